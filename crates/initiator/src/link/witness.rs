// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the witness of a session hears ([`crate::Witness`]).

use super::SessionDriver;
use super::State;
use crate::Nexus;

impl SessionDriver {
    /// A login over `portal` has succeeded.
    pub(super) fn witness(&mut self, portal: &str, group: Option<u16>) -> Result<(), String> {
        let Some(witness) = &self.options.witness else { return Ok(()) };
        let nexus = Nexus { isid: self.isid, portal: portal.to_owned(), group };
        witness.begins(&nexus)?;
        self.witnessed = Some(nexus);
        Ok(())
    }

    /// Nothing may be left of the session that was witnessed. To be asked whenever something has
    /// happened.
    pub(crate) fn testify(&mut self) {
        if self.witnessed.is_none() || self.may_leave_something() {
            return;
        }
        if let (Some(witness), Some(nexus)) = (&self.options.witness, self.witnessed.take()) {
            witness.ends(&nexus);
        }
    }

    const fn may_leave_something(&self) -> bool {
        matches!(self.state, State::Up(_)) || self.portals.is_in_doubt()
    }
}
