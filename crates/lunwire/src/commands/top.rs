// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire top`: what the sessions of a running daemon do now.

use std::cmp::Reverse;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use control::admin::Load;
use control::admin::Reply;
use control::admin::Request;
use control::admin::Session;
use control::units;
use engine::laps::Layer;
use serde_json::Value;
use serde_json::json;
use target::Operation;

use crate::args::TopOptions;
use crate::args::Usage;
use crate::client;
use crate::control_socket::asking;
use crate::daemon::shown;
use crate::output;

/// More often than this says nothing but noise; an hour is what nobody waits for by mistake.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);

/// What one session did, in a second.
#[derive(Clone, Debug, PartialEq)]
struct Rate {
    tsih: u16,
    initiator: String,
    target: String,
    /// Under way.
    tasks: usize,
    commands: u64,
    /// Bytes.
    read: u64,
    /// Bytes.
    written: u64,
    took: Took,
}

/// How long reads and writes took that were timed, microseconds; None: none was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Took {
    median: Option<f64>,
    p99: Option<f64>,
}

/// What is asked for at a time.
struct Seen {
    sessions: Vec<Session>,
    load: Load,
    at: Instant,
}

/// Shows the rates again and again.
pub(crate) fn run(options: &TopOptions) -> Result<()> {
    let interval = client::time("--interval", &options.interval)?;
    if !INTERVALS.contains(&interval) {
        let text = format!("--interval {}: from 10ms to 60m, such as 2s", options.interval);
        return Err(Usage(text).into());
    }
    let socket = options.admin.daemon.control_socket.as_deref();
    let clears = !options.admin.json && std::io::stdout().is_terminal();
    let mut before = look(socket)?;
    let mut left = options.count;
    while left != Some(0) {
        std::thread::sleep(interval);
        let now = look(socket)?;
        let passed = now.at - before.at;
        let mut rates = rates(&before.sessions, &now.sessions, passed);
        for rate in &mut rates {
            rate.took = took(rate, &before.load, &now.load);
        }
        if options.admin.json {
            output::result(as_json(&rates, passed));
        } else {
            show(&rates, clears);
        }
        if !output::written()? {
            return Ok(());
        }
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

fn look(socket: Option<&Path>) -> Result<Seen> {
    let sessions = sessions(socket)?;
    let at = Instant::now();
    match asking::ask(socket, &Request::Load)? {
        Reply::Load(load) => Ok(Seen { sessions, load, at }),
        _ => Err(asking::unexpected(socket)),
    }
}

fn sessions(socket: Option<&Path>) -> Result<Vec<Session>> {
    match asking::ask(socket, &Request::Sessions)? {
        Reply::Sessions { sessions, silent_reactors } => {
            if !silent_reactors.is_empty() {
                output::warn(shown::silent(&silent_reactors));
            }
            Ok(sessions)
        }
        _ => Err(asking::unexpected(socket)),
    }
}

/// What came since `before`, the busiest session first. One that has a number of another one that
/// has ended, or that has begun meanwhile, came as a whole.
fn rates(before: &[Session], now: &[Session], took: Duration) -> Vec<Rate> {
    let of = |session: &Session| {
        let known = before.iter().find(|known| {
            known.tsih == session.tsih
                && known.initiator == session.initiator
                && known.isid == session.isid
                && known.commands <= session.commands
        });
        let each_second = |now: u64, before: Option<u64>| {
            let came = now.saturating_sub(before.unwrap_or(0));
            let milliseconds = took.as_millis().max(1);
            u64::try_from(u128::from(came) * 1000 / milliseconds).unwrap_or(u64::MAX)
        };
        Rate {
            tsih: session.tsih,
            initiator: session.initiator.clone(),
            target: session.target.clone().unwrap_or_else(|| "(discovery)".to_owned()),
            tasks: session.tasks,
            commands: each_second(session.commands, known.map(|known| known.commands)),
            read: each_second(session.read_bytes, known.map(|known| known.read_bytes)),
            written: each_second(session.written_bytes, known.map(|known| known.written_bytes)),
            took: Took::default(),
        }
    };
    let mut rates: Vec<Rate> = now.iter().map(of).collect();
    rates
        .sort_by_key(|rate| (Reverse(rate.commands), Reverse(rate.read + rate.written), rate.tsih));
    rates
}

/// How long those of a session took that came between two loads, as far as they tell it.
fn took(of: &Rate, before: &Load, now: &Load) -> Took {
    let find = |load: &Load| {
        let mut all = load.sessions.iter();
        all.find(|session| session.tsih == of.tsih && session.initiator == of.initiator).cloned()
    };
    let Some(session) = find(now) else { return Took::default() };
    // A number that another one had, too, counts from nothing.
    let known = find(before).filter(|known| known.commands <= session.commands);
    let known = known.map(|known| known.times).unwrap_or_default();
    let mut all = Layer::default();
    for time in session.times.iter().filter(|time| time.name != Operation::Other.name()) {
        let mut came = Layer::of(time.cycles, time.laps, &time.lengths);
        if let Some(time) = known.iter().find(|known| known.name == time.name) {
            came.subtract(&Layer::of(time.cycles, time.laps, &time.lengths));
        }
        all.join(&came);
    }
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    let microseconds = |share: f64| {
        (all.laps > 0)
            .then(|| all.percentile(share) as f64 * 1e6 / now.cycles_per_second.max(1) as f64)
    };
    Took { median: microseconds(0.5), p99: microseconds(0.99) }
}

fn show(rates: &[Rate], clears: bool) {
    if clears {
        output::line("\x1b[H\x1b[2J");
    }
    let mut rows = vec![
        [
            "TSIH",
            "commands/s",
            "read/s",
            "written/s",
            "p50 us",
            "p99 us",
            "under way",
            "initiator",
            "target",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    rows.extend(rates.iter().map(|rate| {
        vec![
            rate.tsih.to_string(),
            rate.commands.to_string(),
            units::bytes(rate.read),
            units::bytes(rate.written),
            microseconds(rate.took.median),
            microseconds(rate.took.p99),
            rate.tasks.to_string(),
            rate.initiator.clone(),
            rate.target.clone(),
        ]
    }));
    output::table(&rows);
    if rates.is_empty() {
        output::line("no sessions");
    }
}

fn microseconds(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}"))
}

fn as_json(rates: &[Rate], took: Duration) -> Value {
    let sessions = rates.iter().map(|rate| {
        json!({
            "tsih": rate.tsih,
            "initiator": rate.initiator,
            "target": rate.target,
            "tasks": rate.tasks,
            "commands_per_s": rate.commands,
            "read_bytes_per_s": rate.read,
            "written_bytes_per_s": rate.written,
            "p50_us": rate.took.median.map(output::rounded),
            "p99_us": rate.took.p99.map(output::rounded),
        })
    });
    let seconds = output::rounded(took.as_secs_f64());
    json!({ "seconds": seconds, "sessions": sessions.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use control::admin::LayerTime;
    use control::admin::SessionLoad;

    use super::*;

    fn session(tsih: u16, isid: &str, counts: [u64; 3]) -> Session {
        let [commands, read_bytes, written_bytes] = counts;
        Session {
            tsih,
            initiator: "iqn.i".into(),
            initiator_alias: None,
            isid: isid.into(),
            target: Some("iqn.t".into()),
            discovery: false,
            age_s: 1,
            reactor: 0,
            tasks: 3,
            held: 0,
            commands,
            read_bytes,
            written_bytes,
            negotiated: Vec::new(),
            connections: Vec::new(),
        }
    }

    #[test]
    fn rates_are_what_came_in_a_second_and_the_busiest_is_first() {
        let before = [session(1, "a", [100, 0, 0]), session(2, "b", [10, 4096, 512])];
        let now = [
            session(1, "a", [102, 0, 0]),
            session(2, "b", [30, 8192, 512]),
            session(3, "c", [5, 0, 1024]),
        ];
        let rates = rates(&before, &now, Duration::from_millis(500));
        let shown: Vec<_> =
            rates.iter().map(|rate| (rate.tsih, rate.commands, rate.read, rate.written)).collect();
        assert_eq!(shown, [(2, 40, 8192, 0), (3, 10, 0, 2048), (1, 4, 0, 0)]);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_session() {
        let before = [session(1, "a", [100, 1 << 20, 0])];
        let second = Duration::from_secs(1);
        assert_eq!(rates(&before, &[session(1, "b", [7, 0, 0])], second)[0].commands, 7);
        assert_eq!(rates(&before, &[session(1, "a", [7, 0, 0])], second)[0].commands, 7);
        assert_eq!(rates(&before, &[], second), []);
    }

    #[test]
    fn times_are_those_of_reads_and_writes_that_came_since() {
        let time = |name: &str, all: &[u64]| {
            let mut layer = Layer::default();
            all.iter().for_each(|cycles| layer.add(*cycles));
            let (cycles, laps, lengths) = (layer.cycles, layer.laps, layer.lengths().to_vec());
            LayerTime { name: name.into(), cycles, laps, lengths }
        };
        let load = |commands: u64, times: Vec<LayerTime>| Load {
            uptime_ms: 0,
            cycles_per_second: 1_000_000,
            layers: Vec::new(),
            luns: Vec::new(),
            luns_left_out: 0,
            sessions: vec![SessionLoad {
                tsih: 1,
                initiator: "iqn.i".into(),
                target: None,
                age_s: 0,
                tasks: 0,
                commands,
                read_bytes: 0,
                written_bytes: 0,
                times,
            }],
            sessions_left_out: 0,
            silent_reactors: Vec::new(),
        };
        let of = |tsih| rates(&[], &[session(tsih, "a", [0; 3])], Duration::from_secs(1)).remove(0);
        let before = load(9, vec![time("read", &[5000; 9])]);
        let all = vec![time("other", &[1 << 20]), time("read", &[5000; 9]), time("write", &[3; 3])];
        let now = load(13, all.clone());
        let wanted = Took { median: Some(3.0), p99: Some(3.0) };
        assert_eq!(took(&of(1), &before, &now), wanted);
        assert_eq!(took(&of(2), &before, &now), Took::default());
        // Nothing came; and then another one has its number.
        assert_eq!(took(&of(1), &now, &now), Took::default());
        assert!(took(&of(1), &now, &load(12, all)).p99 > Some(5000.0));
    }
}
