// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the daemon lives, and whether it serves.

use crate::looks::Look;
use crate::looks::Seen;
use crate::looks::Serving;

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
            Seen::Opening => Health::of(&["disks are being opened".into()]),
            Seen::Stopping => Health::of(&["the daemon stops".into()]),
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
