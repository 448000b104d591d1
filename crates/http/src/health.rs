// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the daemon lives, and whether it serves.

use crate::looks::Look;
use crate::looks::Seen;
use crate::looks::Serving;

pub(crate) const OPENING: &str = "disks are being opened";
pub(crate) const STOPPING: &str = "the daemon stops";

/// What a probe is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) is_well: bool,
    /// `ok`, or a line for all that is not.
    pub(crate) said: String,
}

impl Health {
    fn of(wrong: &[String]) -> Self {
        match wrong {
            [] => Self { is_well: true, said: "ok\n".into() },
            wrong => Self { is_well: false, said: wrong.join("\n") + "\n" },
        }
    }
}

impl Look {
    /// Whether every reactor answers. A daemon that opens its disks, or stops, lives.
    pub(crate) fn health(&self) -> Health {
        match &self.seen {
            Seen::Serving(serving) => Health::of(&silent(serving)),
            Seen::Opening | Seen::Stopping => Health::of(&[]),
        }
    }

    /// Whether hosts are served: listeners stand, and all LUNs can be used.
    pub(crate) fn readiness(&self) -> Health {
        match &self.seen {
            Seen::Opening => Health::of(&[OPENING.into()]),
            Seen::Stopping => Health::of(&[STOPPING.into()]),
            Seen::Serving(serving) => {
                let mut wrong = silent(serving);
                if serving.portals.is_empty() && serving.stations == 0 {
                    wrong.push("no portal listens".into());
                }
                wrong.extend(useless_luns(serving));
                Health::of(&wrong)
            }
        }
    }
}

fn silent(serving: &Serving) -> Vec<String> {
    let silent = serving.silent.iter();
    silent.map(|reactor| format!("reactor {reactor} does not answer")).collect()
}

/// A line for each LUN whose commands fail, or are told BUSY.
fn useless_luns(serving: &Serving) -> impl Iterator<Item = String> {
    let luns = serving
        .targets
        .iter()
        .flat_map(|target| target.luns.iter().map(|lun| (target.name.as_str(), lun)));
    luns.filter_map(|(target, lun)| {
        let elsewhere = lun.elsewhere;
        let what = match elsewhere {
            Some(elsewhere) if elsewhere.shut_out => {
                format!("{} has shut this daemon out", elsewhere.who)
            }
            Some(elsewhere) if elsewhere.is_busy => format!("{} does not answer", elsewhere.who),
            _ if lun.is_fenced => "its store does not answer".into(),
            _ => return None,
        };
        Some(format!("LUN {} of {target}: {what}", lun.number))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::Gate;
    use crate::looks::Looks;
    use crate::tests::target;

    #[test]
    fn what_does_not_serve_is_named_line_by_line() {
        let target = target();
        let looked = || {
            let seen = Seen::Serving(Box::new(crate::looks::serving(&target)));
            Looks::new("0", Gate::default()).look(seen)
        };
        assert_eq!(looked().readiness(), Health { is_well: true, said: "ok\n".into() });
        assert!(looked().health().is_well);
        let name = target.names().remove(0);
        let spoilt = |spoil: fn(&mut Serving)| {
            let mut look = looked();
            if let Seen::Serving(serving) = &mut look.seen {
                spoil(serving);
            }
            (look.health(), look.readiness())
        };
        let (health, readiness) = spoilt(|of| of.silent = vec![1, 3]);
        assert_eq!(health.said, "reactor 1 does not answer\nreactor 3 does not answer\n");
        assert!(!health.is_well && readiness == health);
        let (health, readiness) = spoilt(|of| of.portals.clear());
        assert!(health.is_well, "it lives");
        assert_eq!(readiness, Health { is_well: false, said: "no portal listens\n".into() });
        let (_, readiness) = spoilt(|of| of.targets[0].luns[0].is_fenced = true);
        assert_eq!(readiness.said, format!("LUN 0 of {name}: its store does not answer\n"));
        target.stop(Duration::ZERO).unwrap();
    }
}
