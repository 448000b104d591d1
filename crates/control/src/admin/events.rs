// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has happened to sessions, disks and what is served.

use serde::Deserialize;
use serde::Serialize;

/// Events of a running daemon, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Milliseconds since 1970 when the daemon began to keep them: another one counts anew.
    pub since_ms: u64,
    /// Those behind the one that was asked for.
    pub events: Vec<Event>,
    /// Number of the last one of these, to ask for those behind it.
    pub last: u64,
    /// Whether there are more by now.
    pub more: bool,
    /// Events that are not kept any more, of all kinds.
    pub forgotten: u64,
    /// Events that never were kept: one host had too many in a second.
    pub left_out: u64,
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// From 1; each has a greater one than those before it.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// What it is about.
    pub kind: EventKind,
    /// How bad it is.
    pub level: EventLevel,
    /// What has happened, in words.
    pub text: String,
    /// Address of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// iSCSI name of the initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// Target session identifying handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsih: Option<u16>,
    /// iSCSI name of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Number of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// What else is known, as name and value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<(String, String)>,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // who shows them must have a word for each
pub enum EventKind {
    /// A session has begun, or a connection has joined one.
    Login,
    /// Somebody was not let in.
    Refusal,
    /// A session or a connection has ended as it should.
    Logout,
    /// A session or a connection has ended otherwise.
    Loss,
    /// An initiator has ended a command.
    Abort,
    /// An initiator has reset something, or has ended many commands.
    Reset,
    /// A reservation or a registration has changed.
    Reservation,
    /// A disk has come or gone, or has another size.
    Lun,
    /// Somebody may have more or less.
    Limit,
    /// What is served was changed.
    Change,
    /// Another process serves.
    TakeOver,
    /// Something else is wrong.
    Trouble,
}

impl EventKind {
    /// All there are.
    pub const ALL: [Self; 12] = [
        Self::Login,
        Self::Refusal,
        Self::Logout,
        Self::Loss,
        Self::Abort,
        Self::Reset,
        Self::Reservation,
        Self::Lun,
        Self::Limit,
        Self::Change,
        Self::TakeOver,
        Self::Trouble,
    ];

    /// As it is written.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Refusal => "refusal",
            Self::Logout => "logout",
            Self::Loss => "loss",
            Self::Abort => "abort",
            Self::Reset => "reset",
            Self::Reservation => "reservation",
            Self::Lun => "lun",
            Self::Limit => "limit",
            Self::Change => "change",
            Self::TakeOver => "take-over",
            Self::Trouble => "trouble",
        }
    }
}

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // as the log has them
pub enum EventLevel {
    /// As it should be.
    Info,
    /// Odd.
    Warning,
    /// Somebody has to do something.
    Error,
}
