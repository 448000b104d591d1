// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a running daemon can be asked through its control socket: one JSON line each way.

mod attachment;
mod events;
mod layers;
mod load;
mod reloaded;
mod session;
mod status;
mod take_over;
mod target;

use serde::Deserialize;
use serde::Serialize;

pub use attachment::Attachment;
pub use attachment::AttachmentState;
pub use events::Event;
pub use events::EventKind;
pub use events::EventLevel;
pub use events::Events;
pub use layers::LayerTime;
pub use layers::Layers;
pub use load::Load;
pub use load::LunLoad;
pub use load::SessionLoad;
pub use reloaded::Change;
pub use reloaded::Difference;
pub use reloaded::EndedSession;
pub use reloaded::Refused;
pub use reloaded::Reloaded;
pub use session::Connection;
pub use session::IwarpStream;
pub use session::RdmaStream;
pub use session::Session;
pub use status::Capture;
pub use status::Iser;
pub use status::Limit;
pub use status::Station;
pub use status::StationConnection;
pub use status::Status;
pub use take_over::AddedLun;
pub use take_over::Carried;
pub use take_over::CarriedDisk;
pub use take_over::CarriedReservations;
pub use take_over::CarriedState;
pub use take_over::Offer;
pub use take_over::OfferedSocket;
pub use take_over::OrderedState;
pub use take_over::RemovedLun;
pub use take_over::SocketKind;
pub use take_over::TAKE_OVER_PROTOCOL;
pub use take_over::Word;
pub use target::Image;
pub use target::Lun;
pub use target::PortGroup;
pub use target::Target;
pub use target::Waiting;

/// Longest request, bytes: one carries a path, which the system bounds to 4096 and JSON may double.
pub const REQUEST_LEN_MAX: usize = 16 << 10;

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
#[expect(clippy::exhaustive_enums)] // the daemon must answer each
pub enum Request {
    /// What the daemon is and does.
    Status,
    /// The sessions.
    Sessions,
    /// Ask the initiator of the session with this TSIH to log out, and end the session if it has
    /// not after `timeout_s`.
    LogoutSession {
        /// Target session identifying handle.
        tsih: u16,
        /// Seconds.
        timeout_s: u16,
    },
    /// Where the time of commands went.
    Layers,
    /// What disks and sessions have done, for who makes rates of it.
    Load,
    /// What has happened.
    Events {
        /// Those behind this one; 0 for all that are kept.
        #[serde(default)]
        after: u64,
    },
    /// The target port groups of all units.
    PortGroups,
    /// Change the state of a target port group.
    SetPortGroup {
        /// Target name.
        target: String,
        /// One unit; all of the target if None.
        lun: Option<u16>,
        /// Target port group.
        group: u16,
        /// As in the configuration.
        state: String,
    },
    /// Limit a LUN, or an initiator; what is None is not limited, and with nothing else than None
    /// there is no limit any more.
    SetLimit {
        /// The target; none where there is only one.
        target: Option<String>,
        /// The LUN.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lun: Option<u16>,
        /// The initiator, or `*` for each; this or the LUN.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initiator: Option<String>,
        /// Commands in a second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        iops: Option<u64>,
        /// Bytes in a second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bandwidth: Option<u64>,
        /// Sessions of an initiator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sessions: Option<u64>,
    },
    /// End the session with this TSIH.
    DropSession {
        /// Target session identifying handle.
        tsih: u16,
    },
    /// Give a disk another size.
    ResizeLun {
        /// The target; none where there is only one.
        target: Option<String>,
        /// Number of the disk.
        lun: u16,
        /// The new size.
        bytes: u64,
        /// Whether it may become smaller.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shrink: bool,
    },
    /// Serve one more logical unit, until the daemon ends.
    AddLun {
        /// The target; none where there is only one.
        target: Option<String>,
        /// Its number; if None the lowest one that no unit had since the daemon began.
        number: Option<u16>,
        /// What it is.
        lun: NewLun,
    },
    /// Serve a logical unit no more.
    RemoveLun {
        /// The target; none where there is only one.
        target: Option<String>,
        /// Its number.
        lun: u16,
        /// Whether what was written to memory may be lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        destroy_data: bool,
    },
    /// What is attached: asked of who attaches a disk, not of a daemon that serves some.
    Attachment,
    /// Attach the disk no more, and end; asked as `Attachment`.
    Detach {
        /// Even if somebody uses it, or what was written may be lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
        /// The device stays, for the next process that attaches the disk.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        leave: bool,
    },
    /// Look whether the files behind disks have another size.
    RescanLuns,
    /// Read the configuration again, and serve what it says now: all of it or nothing.
    Reload {
        /// Only tell what would be otherwise.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
        /// Whether what was written to memory may be lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        destroy_data: bool,
    },
    /// Write down what is served as a configuration file.
    Dump,
    /// Hand over sockets, disks and state to the process that asks.
    TakeOver {
        /// See [`TAKE_OVER_PROTOCOL`].
        protocol: u32,
        /// Version of the program that asks.
        version: String,
    },
    /// Tell what sessions say from now on; parts of a capture follow the answer.
    Trace(TraceOrder),
    /// Make a file with the present content of a disk.
    SnapshotLun {
        /// The target; none where there is only one.
        target: Option<String>,
        /// Number of the disk.
        lun: u16,
        /// Absolute path of the file, which must not exist.
        path: String,
        /// The same as it was asked for, if that can be a name: of an image, which has snapshots of
        /// its own kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

impl Request {
    /// What a line asks for. Read here once for all who are asked: it is some 50 KB of code.
    ///
    /// # Errors
    /// It is none; says where.
    pub fn of_line(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // who asks must read each
pub enum Reply {
    /// To `Status`.
    Status(Status),
    /// To `Sessions`.
    Sessions {
        /// By TSIH.
        sessions: Vec<Session>,
        /// Reactors that do not answer, whose sessions are missing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        silent_reactors: Vec<usize>,
    },
    /// To `Layers`.
    Layers(Layers),
    /// To `Load`.
    Load(Load),
    /// To `Events`.
    Events(Events),
    /// To `PortGroups`.
    PortGroups {
        /// By target, number and group.
        groups: Vec<PortGroup>,
    },
    /// To `TakeOver`; what follows is told in [`Word`]s.
    Offer(Offer),
    /// To an order that was carried out.
    Done,
    /// To `ResizeLun`.
    Resized {
        /// Where it is.
        target: String,
        /// Number of the disk.
        lun: u16,
        /// What hosts saw before, bytes.
        before: u64,
        /// What they see now.
        now: u64,
        /// What is to be thought of, such as a file system with less room.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `AddLun`.
    Added {
        /// Where it is.
        target: String,
        /// Number of the disk.
        lun: u16,
        /// What it is.
        disk: Lun,
        /// No initiator sees it: each has a list of numbers, and this one is on none.
        #[serde(default)]
        for_nobody: bool,
        /// What is to be thought of, such as more disks in memory than the machine has.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `RemoveLun`.
    Removed {
        /// Where it was.
        target: String,
        /// Number of the disk.
        lun: u16,
        /// What is to be thought of.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `RescanLuns`.
    Rescanned {
        /// The disks whose file is another size than what hosts saw.
        luns: Vec<RescannedLun>,
        /// What is to be thought of, such as a disk that has become smaller, or one that could not
        /// be looked at.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `Reload`.
    Reloaded(Reloaded),
    /// To `Dump`.
    Dumped {
        /// The file.
        text: String,
        /// What it does not say.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// To `SnapshotLun`.
    Snapshotted {
        /// Where the disk is.
        target: String,
        /// Number of the disk.
        lun: u16,
        /// Its size, bytes.
        bytes: u64,
        /// What it is called, where it is no file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// What is to be thought of.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `Attachment`.
    Attachment(Attachment),
    /// To `Detach`.
    Detached {
        /// What is lost.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `Trace`: what follows are parts of a capture.
    Tracing,
    /// After the last one of them.
    Traced {
        /// PDUs that were recorded.
        pdus: u64,
        /// Bytes of the whole capture.
        bytes: u64,
        /// PDUs that are missing: they came faster than they could be passed on.
        lost: u64,
        /// Connections that the trace was about.
        connections: u64,
        /// Why it is over: `limit`, `time`, `reader`, `stalled` or `process`.
        end: String,
    },
    /// The request cannot be met.
    Error {
        /// Why, and what to do.
        message: String,
    },
}

impl Reply {
    /// As it is written down, with the end of its line. Made here once for all who tell it: it is
    /// some 30 KB of code.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        // All of it can be written down.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

/// A trace that is asked for. What is None is not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceOrder {
    /// Of sessions with this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Of this initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// Of the session with this TSIH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u16>,
    /// Of what is for a unit only those for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// Bytes of the whole capture.
    pub limit_bytes: u64,
    /// Bytes that are kept of each data segment of a user.
    pub data_bytes: u64,
    /// How long, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
}

/// A logical unit that is to be served; each value as in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewLun {
    /// Its store; paths are absolute.
    pub store: String,
    /// Logical block length, bytes.
    pub block: Option<u32>,
    /// Type of protection information.
    pub protection: Option<u8>,
    /// Serial number.
    pub serial: Option<String>,
    /// Space left at which hosts are warned.
    pub space_warning: Option<String>,
    /// Names of the initiators that see it; if empty, those whom the configuration lets.
    #[serde(default)]
    pub initiators: Vec<String>,
}

/// A disk whose file is another size than what hosts saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescannedLun {
    /// The target.
    pub target: String,
    /// Number of the disk.
    pub lun: u16,
    /// What hosts saw before, bytes.
    pub before: u64,
    /// Size of the file: hosts see it now if it is larger.
    pub now: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let orders = [
            Request::Status,
            Request::Sessions,
            Request::Layers,
            Request::Load,
            Request::LogoutSession { tsih: 7, timeout_s: 10 },
            Request::DropSession { tsih: 7 },
            Request::ResizeLun { target: None, lun: 1, bytes: 1 << 40, shrink: false },
            Request::AddLun {
                target: None,
                number: Some(3),
                lun: NewLun {
                    store: "memory:1G".into(),
                    block: Some(4096),
                    protection: None,
                    serial: Some("one".into()),
                    space_warning: None,
                    initiators: vec!["iqn.b".into()],
                },
            },
            Request::RemoveLun { target: Some("iqn.a".into()), lun: 3, destroy_data: true },
            Request::RescanLuns,
            Request::SnapshotLun {
                target: Some("iqn.a".into()),
                lun: 0,
                path: "/a".into(),
                name: Some("a".into()),
            },
        ];
        for request in orders {
            let line = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        }
        let reply = Reply::Error { message: "no session 7".into() };
        let line = serde_json::to_string(&reply).unwrap();
        assert_eq!(line, r#"{"reply":"error","message":"no session 7"}"#);
    }

    /// Who reads what earlier versions told reads this, and the other way round.
    #[test]
    fn reactors_are_named_only_if_they_are_silent() {
        let told = |silent_reactors| {
            let reply = Reply::Sessions { sessions: Vec::new(), silent_reactors };
            serde_json::to_string(&reply).unwrap()
        };
        let before = r#"{"reply":"sessions","sessions":[]}"#;
        assert_eq!(told(Vec::new()), before);
        assert_eq!(told(vec![1]), r#"{"reply":"sessions","sessions":[],"silent_reactors":[1]}"#);
        let Reply::Sessions { silent_reactors, .. } = serde_json::from_str(before).unwrap() else {
            panic!("of another kind")
        };
        assert!(silent_reactors.is_empty());
    }

    #[test]
    fn unknown_requests_are_refused() {
        for line in ["{}", "[]", r#"{"request":"reboot"}"#, r#"{"request":"drop-session"}"#] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }
}
