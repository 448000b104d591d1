// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the process that serves and the one that is to serve next say to each other at the control
//! socket, a JSON line each.
//!
//! ```text
//! next                              before
//!  | Request::TakeOver ---------------> |
//!  | <------------------ Reply::Offer   | and the sockets, in the same order
//!  | Word::Take ----------------------> | or it hangs up, and nothing has happened
//!  |                                    | disks are closed, locks given up
//!  | <------------------ Word::Released |
//!  | opens the disks                    |
//!  | Word::Opening -------------------> | again and again: silence is taken for an end
//!  | Word::Serving -------------------> | which ends; with Failed, or when the next one hangs up,
//!  |                                    | it opens the disks again
//!  | <-------------------- Word::Failed | it waits no longer: who reads that before it serves ends
//! ```

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;

use super::Events;
use super::Limit;
use super::NewLun;

/// Number of this conversation: a change of it is one that the other side does not understand.
pub const TAKE_OVER_PROTOCOL: u32 = 1;

/// What the next process gets, if it wants to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// See [`TAKE_OVER_PROTOCOL`].
    pub protocol: u32,
    /// Version of the program.
    pub version: String,
    /// Process that serves.
    pub pid: u32,
    /// Its state folder, as a whole path.
    pub state_dir: Option<String>,
    /// The sockets that come behind this line.
    pub sockets: Vec<OfferedSocket>,
    /// Disks that are served since somebody ordered it.
    #[serde(default)]
    pub added: Vec<AddedLun>,
    /// Disks of the configuration that are not served since somebody ordered it.
    #[serde(default)]
    pub removed: Vec<RemovedLun>,
    /// Limits that orders have set; those that limit nothing were lifted.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// States that orders have given target port groups of all disks.
    #[serde(default)]
    pub states: Vec<OrderedState>,
    /// The time of the service manager's watchdog, microseconds.
    #[serde(default)]
    pub watchdog_us: Option<u64>,
    /// How long the next process may say nothing while it opens disks, milliseconds. None: this one
    /// understands no word of that.
    #[serde(default)]
    pub silence_ms: Option<u64>,
}

/// A socket that somebody listens at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedSocket {
    /// What it is for.
    pub kind: SocketKind,
    /// Its address as the configuration has it.
    pub address: String,
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // the next process must know what to do with each
pub enum SocketKind {
    /// A portal of iSCSI.
    Portal,
    /// HTTP.
    Http,
    /// The control socket.
    Control,
}

/// A disk that was added by an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedLun {
    /// Its target.
    pub target: String,
    /// Its number.
    pub lun: u16,
    /// What it is.
    pub disk: NewLun,
}

/// A disk that was removed by an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedLun {
    /// Its target.
    pub target: String,
    /// Its number.
    pub lun: u16,
    /// Its store, as the configuration has it.
    pub store: String,
}

/// The state of a target port group of all disks of a target, also of those that come later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedState {
    /// Target name.
    pub target: String,
    /// Target port group.
    pub group: u16,
    /// As in the configuration.
    pub state: String,
}

/// What they say when the offer is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // both sides must understand each
pub enum Word {
    /// The next process wants it.
    Take,
    /// All disks are closed.
    Released(Carried),
    /// The next process still opens disks.
    Opening {
        /// So many are open.
        disks: u64,
    },
    /// The next process serves.
    Serving,
    /// The next process, or the one before, cannot.
    Failed {
        /// Why.
        message: String,
    },
}

/// What hosts and orders have made of disks, and no file has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Access states that are not those of the configuration.
    pub states: Vec<CarriedState>,
    /// Reservations that are not to outlive a loss of power.
    pub reservations: Vec<CarriedReservations>,
    /// Those that begin anew with each process, and were not written to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<CarriedDisk>,
    /// What has happened until then: the next process counts on. None where it is not understood:
    /// other versions may have other events.
    #[serde(default, deserialize_with = "if_understood", skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
}

fn if_understood<'de, D: Deserializer<'de>>(of: D) -> Result<Option<Events>, D::Error> {
    let value = serde_json::Value::deserialize(of)?;
    Ok(serde_json::from_value(value).ok())
}

/// Who a disk is whose identity ends with its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedDisk {
    /// Target name.
    pub target: String,
    /// Number of the disk.
    pub lun: u16,
    /// What it is: another one at its place is another disk.
    pub store: String,
    /// Unit serial number.
    pub serial: String,
    /// NAA designator, in hexadecimal digits.
    pub naa: String,
    /// What it holds, where its names last longer than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<u64>,
}

/// The state of a target port group of one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedState {
    /// Target name.
    pub target: String,
    /// Number of the disk.
    pub lun: u16,
    /// Target port group.
    pub group: u16,
    /// As in the configuration.
    pub state: String,
}

/// The reservations of one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedReservations {
    /// Target name.
    pub target: String,
    /// Number of the disk.
    pub lun: u16,
    /// What the unit gave for that, in hexadecimal digits.
    pub state: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of versions that told less: a take-over from one of them, or by one, goes on.
    #[test]
    fn words_of_former_versions_are_understood() {
        let offer = r#"{"protocol":1,"version":"0.1.0","pid":7,"state_dir":"/s",
            "sockets":[{"kind":"portal","address":"127.0.0.1:3260"},
            {"kind":"control","address":""}]}"#;
        let offer: Offer = serde_json::from_str(offer).unwrap();
        assert_eq!((offer.sockets.len(), offer.pid), (2, 7));
        assert!(offer.added.is_empty() && offer.removed.is_empty() && offer.limits.is_empty());
        assert!(offer.states.is_empty());
        assert_eq!((offer.watchdog_us, offer.silence_ms), (None, None));
        let released = r#"{"word":"released","states":[],"reservations":[]}"#;
        let Word::Released(carried) = serde_json::from_str(released).unwrap() else {
            panic!("another word")
        };
        assert_eq!(carried, Carried::default());
        let newer = r#"{"word":"released","states":[],"reservations":[],
            "events":{"of":"another form"},"more":1}"#;
        let Word::Released(carried) = serde_json::from_str(newer).unwrap() else {
            panic!("another word")
        };
        assert_eq!(carried, Carried::default());
        for word in ["take", "serving"] {
            serde_json::from_str::<Word>(&format!("{{\"word\":\"{word}\"}}")).unwrap();
        }
        serde_json::from_str::<Word>("{\"word\":\"farther\"}").unwrap_err();
    }
}
