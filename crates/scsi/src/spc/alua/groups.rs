// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asymmetric access of a unit: its target port groups, their states, and what a state lets
//! through (SPC-4 §5.15.2).
//!
//! ```text
//!            SET TARGET PORT GROUPS (explicit), administration (implicit)
//! active/optimized <--> active/non-optimized <--> standby <--> unavailable
//!                      transitioning: by administration only
//! ```

use super::reach::Reach;
use crate::attention::Attention;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::lun::UnitError;
use crate::nexus::NexusNames;
use crate::sense;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering;
use wire::scsi::Sense;
use wire::scsi::alua;
use wire::scsi::alua::AccessState;
use wire::scsi::alua::StatusCode;
use wire::scsi::inquiry::PortGroups;

/// A target port group to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub number: u16,
    /// RELATIVE TARGET PORT IDENTIFIERs; each belongs to one group.
    pub ports: Vec<u16>,
    /// PREF: hosts do well to use it.
    pub preferred: bool,
    /// The state at the start.
    pub state: AccessState,
}

/// Who may change the states of a unit's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // with or without the hosts
pub enum Explicit {
    /// Administration alone.
    #[default]
    No,
    /// Hosts too, by SET TARGET PORT GROUPS.
    Yes,
}

/// The unit has no such target port group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no target port group {0}")]
pub struct NoSuchGroup(pub u16);

/// The groups of a unit. Without any, each target port is a group of its own that is active and
/// optimized.
#[derive(Debug, Default)]
pub(crate) struct Access {
    groups: Box<[Group]>,
    explicit: Explicit,
}

#[derive(Debug)]
pub(crate) struct Group {
    number: u16,
    ports: Vec<u16>,
    preferred: bool,
    state: AtomicU8,
    status: AtomicU8,
}

const SUPPORTED: u8 = alua::OPTIMIZED_SUPPORTED
    | alua::NON_OPTIMIZED_SUPPORTED
    | alua::STANDBY_SUPPORTED
    | alua::UNAVAILABLE_SUPPORTED
    | alua::TRANSITIONING_SUPPORTED;

impl Access {
    pub(crate) fn find(&self, number: u16) -> Option<&Group> {
        self.groups.iter().find(|group| group.number == number)
    }

    /// The group of a nexus's target port.
    pub(crate) fn group_of(&self, names: &NexusNames) -> u16 {
        self.of_port(names.relative_port).map_or(names.portal_group_tag, |group| group.number)
    }

    pub(crate) const fn who_changes(&self) -> PortGroups {
        match self.explicit {
            Explicit::No => PortGroups::Implicit,
            Explicit::Yes => PortGroups::Both,
        }
    }

    pub(crate) const fn is_explicit(&self) -> bool {
        matches!(self.explicit, Explicit::Yes)
    }

    /// What REPORT TARGET PORT GROUPS says to the nexus of these names.
    pub(crate) fn shown(&self, names: &NexusNames) -> Vec<alua::Group> {
        if self.groups.is_empty() {
            return vec![alua::Group {
                number: names.portal_group_tag,
                preferred: false,
                state: AccessState::ActiveOptimized,
                supported: alua::OPTIMIZED_SUPPORTED,
                status: StatusCode::None,
                ports: vec![names.relative_port],
            }];
        }
        self.groups.iter().map(Group::shown).collect()
    }

    /// What stops a command at a target port; None: it may go on.
    pub(crate) fn obstacle(&self, relative_port: u16, reach: Reach) -> Option<Sense> {
        let (needed, sense) = match self.of_port(relative_port)?.state() {
            AccessState::Standby => (Reach::Standby, sense::PORT_IN_STANDBY),
            AccessState::Unavailable => (Reach::Unavailable, sense::PORT_UNAVAILABLE),
            AccessState::Transitioning => (Reach::Always, sense::ACCESS_STATE_TRANSITION),
            _ => return None,
        };
        (reach < needed).then_some(sense)
    }

    fn of_port(&self, relative_port: u16) -> Option<&Group> {
        self.groups.iter().find(|group| group.ports.contains(&relative_port))
    }

    /// True if a group lets less than everything through.
    fn is_restricted(&self) -> bool {
        self.groups.iter().any(|group| {
            !matches!(group.state(), AccessState::ActiveOptimized | AccessState::ActiveNonOptimized)
        })
    }
}

impl Group {
    /// True if it was in another state before.
    pub(crate) fn change(&self, state: AccessState, by: StatusCode) -> bool {
        self.status.store(by as u8, Ordering::Relaxed);
        self.state.swap(state as u8, Ordering::AcqRel) != state as u8
    }

    fn state(&self) -> AccessState {
        let code = self.state.load(Ordering::Acquire);
        AccessState::from_code(code).unwrap_or(AccessState::ActiveOptimized)
    }

    fn shown(&self) -> alua::Group {
        alua::Group {
            number: self.number,
            preferred: self.preferred,
            state: self.state(),
            supported: SUPPORTED,
            status: match self.status.load(Ordering::Relaxed) {
                1 => StatusCode::Explicit,
                2 => StatusCode::Implicit,
                _ => StatusCode::None,
            },
            ports: self.ports.clone(),
        }
    }
}

impl LogicalUnit {
    /// The same with target port groups.
    ///
    /// # Errors
    /// If two groups have one number, a port belongs to two of them, or a group has none.
    pub fn with_port_groups(
        mut self,
        groups: Vec<PortGroup>,
        explicit: Explicit,
    ) -> Result<Self, UnitError> {
        for (index, group) in groups.iter().enumerate() {
            let mut others = groups.iter().take(index);
            let twice = others.any(|other| {
                other.number == group.number
                    || other.ports.iter().any(|port| group.ports.contains(port))
            });
            if twice || group.ports.is_empty() {
                return Err(UnitError::PortGroup(group.number));
            }
        }
        let groups = groups.into_iter().map(|group| Group {
            number: group.number,
            ports: group.ports,
            preferred: group.preferred,
            state: AtomicU8::new(group.state as u8),
            status: AtomicU8::new(StatusCode::None as u8),
        });
        *self.access_mut() = Access { groups: groups.collect(), explicit };
        self.show_access();
        Ok(self)
    }

    /// Its target port groups as hosts see them; none if nobody made any.
    #[must_use]
    pub fn port_groups(&self) -> Vec<alua::Group> {
        self.access().groups.iter().map(Group::shown).collect()
    }

    /// Changes the state of a group, as an administrator does; every nexus hears of it, 2A/06.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn set_access_state(&self, group: u16, state: AccessState) -> Result<(), NoSuchGroup> {
        let found = self.access().find(group).ok_or(NoSuchGroup(group))?;
        if found.change(state, StatusCode::Implicit) {
            self.show_access();
            self.establish_everywhere(Attention::AccessStateChanged);
        }
        Ok(())
    }

    /// Sets the bit that lets commands look at the states.
    pub(crate) fn show_access(&self) {
        // Set first: of two changes at the same time the later one decides what stays.
        self.make_special(Special::Asymmetric);
        if !self.access().is_restricted() {
            self.make_ordinary(Special::Asymmetric);
            if self.access().is_restricted() {
                self.make_special(Special::Asymmetric);
            }
        }
    }
}
