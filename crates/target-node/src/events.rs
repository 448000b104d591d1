// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a line of the log is about, for who keeps such lines as events: its name says so. A line
//! without one of these names tells of something else, or of a trouble if it is a warning.

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums)] // who keeps them must know each
pub enum Event {
    /// A session has begun, or a connection has joined one.
    Login,
    /// Somebody was not let in.
    Refusal,
    /// A session or a connection has ended as it should.
    Logout,
    /// A session or a connection has ended otherwise.
    Loss,
    /// An initiator has ended one command: where it ends many, one line will do.
    Abort,
    /// An initiator has ended the commands of others, or has reset something.
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
}

impl Event {
    /// All there are.
    pub const ALL: [Self; 11] = [
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
    ];

    /// The name of its lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Login => "lunwire login",
            Self::Refusal => "lunwire login refused",
            Self::Logout => "lunwire logout",
            Self::Loss => "lunwire loss",
            Self::Abort => "lunwire command aborted",
            Self::Reset => "lunwire reset",
            Self::Reservation => "lunwire reservation",
            Self::Lun => "lunwire lun",
            Self::Limit => "lunwire limit",
            Self::Change => "lunwire change",
            Self::TakeOver => "lunwire take-over",
        }
    }

    /// What a line of this name is about.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own() {
        for event in Event::ALL {
            assert_eq!(Event::of_name(event.name()), Some(event));
        }
        assert_eq!(Event::of_name("event crates/target-node/src/pump.rs:1"), None);
    }
}
