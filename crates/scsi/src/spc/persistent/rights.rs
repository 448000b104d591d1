// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may do what under a reservation (SPC-4 §5.12.3, SBC-3 §4.17), from words that are read
//! without a lock.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;
use wire::scsi::persistent::Type;

/// How a command stands to reservations; the table has one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Guard {
    /// Not said: the table does not compile with it.
    Unset,
    /// Allowed to all under a persistent reservation.
    Open,
    /// Allowed to all under any reservation.
    Always,
    /// Reads the medium or what belongs to it.
    Reads,
    /// Changes the medium or how the unit behaves.
    Writes,
    /// START STOP UNIT: open if it only starts, else as `Writes`.
    Starts,
    /// Decides by itself, under the lock of the reservations.
    Decides,
}

/// What a nexus is to the reservation of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) registered: bool,
    /// Holds the persistent reservation, alone or with all registrants.
    pub(crate) holds: bool,
    /// Holds the reservation of RESERVE.
    pub(crate) holds_legacy: bool,
}

/// The standing of one nexus, to be read at any time.
#[derive(Debug, Default)]
pub(crate) struct StandingWord(AtomicU32);

/// What kind of reservation there is, to be read at any time.
#[derive(Debug, Default)]
pub(crate) struct ReservedWord(AtomicU32);

/// The kind of reservation of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    Nobody,
    /// By RESERVE.
    Legacy,
    Persistent(Type),
}

const LEGACY: u32 = 0x100;

impl StandingWord {
    pub(crate) fn store(&self, standing: Standing) {
        let bits = u32::from(standing.registered)
            | u32::from(standing.holds) << 1
            | u32::from(standing.holds_legacy) << 2;
        self.0.store(bits, Ordering::Release);
    }

    pub(crate) fn load(&self) -> Standing {
        let bits = self.0.load(Ordering::Acquire);
        Standing { registered: bits & 1 != 0, holds: bits & 2 != 0, holds_legacy: bits & 4 != 0 }
    }
}

impl ReservedWord {
    pub(crate) fn store(&self, reserved: Reserved) {
        let code = match reserved {
            Reserved::Nobody => 0,
            Reserved::Legacy => LEGACY,
            Reserved::Persistent(kind) => kind as u32,
        };
        self.0.store(code, Ordering::Release);
    }

    pub(crate) fn load(&self) -> Reserved {
        match self.0.load(Ordering::Acquire) {
            0 => Reserved::Nobody,
            LEGACY => Reserved::Legacy,
            code => {
                let kind = u8::try_from(code).ok().and_then(Type::from_code);
                kind.map_or(Reserved::Nobody, Reserved::Persistent)
            }
        }
    }
}

/// False if the command conflicts with the reservation. `starts`: it is a START STOP UNIT that only
/// starts.
pub(crate) fn allows(reserved: Reserved, standing: Standing, guard: Guard, starts: Starts) -> bool {
    let kind = match reserved {
        Reserved::Nobody => return true,
        Reserved::Legacy => return standing.holds_legacy || guard == Guard::Always,
        Reserved::Persistent(kind) => kind,
    };
    let guard = match (guard, starts) {
        (Guard::Starts, Starts::Only) => Guard::Open,
        (Guard::Starts, Starts::No) => Guard::Writes,
        (guard, _) => guard,
    };
    match guard {
        Guard::Always | Guard::Open | Guard::Decides => true,
        Guard::Reads if kind.lets_read() => true,
        _ => standing.holds || (standing.registered && kind.lets_registrants()),
    }
}

/// Whether a command is a START STOP UNIT that does nothing but start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starts {
    Only,
    No,
}
