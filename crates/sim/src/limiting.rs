// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An administrator limits disks and initiators, and lifts all limits in the end.

use std::num::NonZeroU64;

use target::Limit;
use target::Limited;

use crate::host::target_name;
use crate::options::LimitPlan;
use crate::run::Run;

impl Run {
    /// Other limits of a target, in the place of those that it has.
    pub(crate) fn limit(&mut self, plan: &LimitPlan) {
        let machine = &self.machines[plan.target];
        let Some(served) = &machine.target else { return };
        let of = [Limited::Lun(0), Limited::EachInitiator];
        let limits = of.into_iter().zip(plan.rates).map(|(of, (operations, bytes))| Limit {
            of,
            operations: NonZeroU64::new(operations),
            bytes: NonZeroU64::new(bytes),
            sessions: None,
        });
        served.limit(vec![(target_name(machine.desk), limits.collect())]);
        let mut world = self.world.borrow_mut();
        world.tally.mark("limited");
        machine.desks.iter().for_each(|desk| world.rouse(*desk));
    }

    /// No target has a limit any more: what was held goes on.
    pub(crate) fn lift_limits(&mut self) {
        for machine in &self.machines {
            let Some(served) = &machine.target else { continue };
            let mut world = self.world.borrow_mut();
            if served.holdings().any(|held| held.held > 0) {
                world.tally.mark("held commands set free");
            }
            served.limit(Vec::new());
            machine.desks.iter().for_each(|desk| world.rouse(*desk));
        }
    }
}
