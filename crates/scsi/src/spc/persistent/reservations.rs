// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registry of a unit, and the one change of it that may be on its way to stable storage.

use super::registry::Registry;

/// What is in force.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    pub(crate) registry: Registry,
    change: Changing,
}

/// Whether a change is being kept: until that is decided no other begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Changing {
    #[default]
    No,
    Yes,
    /// And the unit was powered on behind it: the change came first, so what it makes persist
    /// stays.
    ThenPowerOn,
}

impl Reservations {
    pub(crate) fn is_changing(&self) -> bool {
        self.change != Changing::No
    }

    pub(crate) fn begin_change(&mut self) {
        debug_assert!(!self.is_changing(), "one at a time");
        self.change = Changing::Yes;
    }

    /// True if the unit was powered on meanwhile.
    pub(crate) fn end_change(&mut self) -> bool {
        debug_assert!(self.is_changing(), "it has begun");
        core::mem::take(&mut self.change) == Changing::ThenPowerOn
    }

    /// The unit is powered on: true if that waits for the end of a change.
    pub(crate) fn defer_power_on(&mut self) -> bool {
        if self.is_changing() {
            self.change = Changing::ThenPowerOn;
        }
        self.is_changing()
    }
}

impl From<Registry> for Reservations {
    fn from(registry: Registry) -> Self {
        Self { registry, change: Changing::No }
    }
}
