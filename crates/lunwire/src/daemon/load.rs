// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What disks and sessions have done, as the control socket tells it: so much of it as who asks
//! each second can take.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use control::admin;
use engine::laps::Layer;
use target::Answered;
use target::LunSnapshot;
use target::Operation;
use target::SessionSnapshot;
use target::TIMED_SESSIONS_MAX;
use target::Target;
use target::Times;

use crate::client::layers;

/// Logical units that are told of.
const LUNS_MAX: usize = 2048;

/// Logical units whose times are told: a histogram for each kind of command.
const TIMED_LUNS_MAX: usize = 256;

/// Sessions that are told of.
const SESSIONS_MAX: usize = 1024;

/// Times of the commands of one disk.
type Took = BTreeMap<Operation, Layer>;

/// Asks all reactors. `uptime`: since the daemon began to serve, which is looked at after that.
pub(super) fn of(
    target: &Target,
    patience: Duration,
    uptime: impl FnOnce() -> Duration,
) -> admin::Load {
    let Answered { answers, silent, .. } = target.figures(patience);
    let uptime = uptime();
    let (mut times, mut took) = (Times::default(), BTreeMap::<String, Took>::new());
    let mut sessions = Vec::new();
    for figures in answers {
        times.join(figures.times);
        sessions.extend(figures.sessions);
        for disk in figures.disks {
            let Some(serial) = disk.disk else { continue };
            let all = took.entry(serial).or_default();
            for (operation, layer) in &disk.took {
                all.entry(*operation).or_default().join(layer);
            }
        }
    }
    let targets = target.targets();
    let each = targets.iter().flat_map(|of| of.luns.iter().map(|lun| (&*of.name, lun)));
    let told = each.clone().take(LUNS_MAX).enumerate().map(|(place, (name, one))| {
        let took = took.get(&one.serial).filter(|_| place < TIMED_LUNS_MAX);
        lun(name, one, took)
    });
    let luns: Vec<_> = told.collect();
    // The oldest ones stay, whoever comes.
    sessions.sort_by_key(|session| Reverse(session.age));
    let sessions_left_out = sessions.len().saturating_sub(SESSIONS_MAX);
    sessions.truncate(SESSIONS_MAX);
    // Each reactor has told as many.
    let untimed = sessions.iter_mut().skip(TIMED_SESSIONS_MAX);
    untimed.for_each(|session| session.took.clear());
    let sessions = sessions.into_iter().map(session).collect();
    let layers = layers::told(&times);
    admin::Load {
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        cycles_per_second: layers.cycles_per_second,
        layers: layers.layers.into_iter().map(short).collect(),
        luns_left_out: each.count().saturating_sub(luns.len()),
        luns,
        sessions,
        sessions_left_out,
        silent_reactors: silent,
    }
}

fn lun(target: &str, lun: &LunSnapshot, took: Option<&Took>) -> admin::LunLoad {
    let totals = &lun.totals;
    let times = took.into_iter().flatten().map(|(operation, layer)| timed(*operation, layer));
    admin::LunLoad {
        target: target.to_owned(),
        lun: lun.number,
        reads: totals.reads,
        writes: totals.writes,
        read_bytes: totals.bytes_read,
        written_bytes: totals.bytes_written,
        errors: totals
            .read_errors
            .saturating_add(totals.write_errors)
            .saturating_add(totals.verify_errors),
        times: times.collect(),
    }
}

fn timed(operation: Operation, layer: &Layer) -> admin::LayerTime {
    short(admin::LayerTime {
        name: operation.name().to_owned(),
        cycles: layer.cycles,
        laps: layer.laps,
        lengths: layer.lengths().to_vec(),
    })
}

/// Without the lengths behind the longest one that there was.
fn short(mut time: admin::LayerTime) -> admin::LayerTime {
    let used = time.lengths.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    time.lengths.truncate(used);
    time
}

fn session(session: SessionSnapshot) -> admin::SessionLoad {
    admin::SessionLoad {
        tsih: session.tsih,
        initiator: session.initiator,
        target: session.target,
        age_s: session.age.as_secs(),
        tasks: session.tasks,
        commands: session.commands,
        read_bytes: session.bytes_in,
        written_bytes: session.bytes_out,
        times: session.took.iter().map(|(operation, layer)| timed(*operation, layer)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_nothing_had_are_left_out_at_the_end() {
        let time = |lengths: &[u32]| admin::LayerTime {
            name: "read".into(),
            cycles: 1,
            laps: 2,
            lengths: lengths.to_vec(),
        };
        for (all, told) in
            [(&[0, 3, 0, 1, 0, 0][..], &[0, 3, 0, 1][..]), (&[0, 0], &[]), (&[], &[])]
        {
            assert_eq!(short(time(all)), time(told));
        }
    }
}
