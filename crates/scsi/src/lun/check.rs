// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What always holds of a unit between two steps of its commands: the words that commands read
//! without a lock say what is under the locks.

use super::LogicalUnit;
use super::Special;
use crate::spc::persistent::rights::Reserved;

impl LogicalUnit {
    /// Asserts what always holds. No command may take a step meanwhile on another thread: for tests
    /// and simulation.
    pub fn check(&self) {
        self.task_set.lock().check(self);
        self.tokens.check(self.is_special(Special::Tokens));
        let reservations = self.reservations.lock();
        let registry = &reservations.registry;
        registry.check();
        let reserved = registry.reserved();
        assert_eq!(self.reserved(), reserved, "commands know the reservation");
        let special = self.is_special(Special::Reserved);
        assert_eq!(special, reserved != Reserved::Nobody, "commands look at the reservation");
        for entry in self.ports.lock().iter() {
            let (shown, standing) = (entry.nexus_state.standing.load(), entry.name());
            assert_eq!(shown, registry.standing(&standing), "{standing:?} knows what it may do");
        }
    }
}
