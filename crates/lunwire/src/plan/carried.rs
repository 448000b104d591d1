// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What orders have changed of the disks of a configuration, for the process that serves next.

use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use control::admin;
use control::admin::AddedLun;
use control::admin::OrderedState;
use control::admin::RemovedLun;
use scsi::AccessState;
use scsi::Explicit;
use target::Limit;
use target::Limited;

use super::Draft;
use super::limit;
use super::lun::DraftLun;
use super::place;
use crate::ports;

impl Draft {
    /// Its disks: target, number, store.
    pub(super) fn places(&self) -> impl Iterator<Item = (String, u16, String)> {
        self.targets.iter().flat_map(|target| {
            target.luns.iter().map(|lun| (target.name.clone(), lun.number, lun.store.clone()))
        })
    }

    /// The disks that came by orders, and those that went.
    ///
    /// # Errors
    /// One of them cannot be told.
    pub(crate) fn ordered(&self) -> Result<(Vec<AddedLun>, Vec<RemovedLun>)> {
        let mut added = Vec::new();
        for target in &self.targets {
            for lun in &target.luns {
                let place = (target.name.clone(), lun.number, lun.store.clone());
                if self.as_read.contains(&place) {
                    continue;
                }
                if !lun.only.is_empty() {
                    bail!(
                        "LUN {} of {} was added for some initiators alone (--initiator), which \
                         no configuration can say; try: lunwire lun remove {} --target {}",
                        lun.number,
                        target.name,
                        lun.number,
                        target.name
                    );
                }
                let (target, disk) = (target.name.clone(), lun.to_order()?);
                added.push(AddedLun { target, lun: lun.number, disk });
            }
        }
        let now: Vec<_> = self.places().collect();
        let gone = self.as_read.iter().filter(|place| !now.contains(place));
        let removed = gone.map(|(target, lun, store)| {
            let store = place::absolute(store)?;
            Ok(RemovedLun { target: target.clone(), lun: *lun, store })
        });
        Ok((added, removed.collect::<Result<_>>()?))
    }

    /// Serves what orders have made of the configuration of the process before. Says of what is
    /// otherwise than in this one.
    ///
    /// # Errors
    /// A disk that was added has no place here.
    pub(crate) fn take_ordered(
        &mut self,
        added: &[AddedLun],
        removed: &[RemovedLun],
    ) -> Result<Vec<String>> {
        let mut told = Vec::new();
        for RemovedLun { target: name, lun: number, store } in removed {
            let target = self.targets.iter_mut().find(|target| target.name == *name);
            let Some(target) = target else { continue };
            let before = target.luns.len();
            let is_it = |lun: &DraftLun| {
                lun.number == *number && place::absolute(&lun.store).is_ok_and(|it| it == *store)
            };
            target.luns.retain(|lun| !is_it(lun));
            if target.luns.len() < before {
                told.push(format!("LUN {number} of {name} is not served: it was removed by order"));
            }
        }
        for AddedLun { target: name, lun: number, disk } in added {
            let store = &disk.store;
            let target = self.targets.iter_mut().find(|target| target.name == *name);
            let target = target.ok_or_else(|| {
                anyhow!(
                    "LUN {number} of {name} ({store}) was added by order, and the configuration \
                     has no such target; try: lunwire lun remove {number} --target {name}"
                )
            })?;
            if let Some(other) = target.luns.iter().find(|lun| lun.number == *number) {
                if place::absolute(&other.store)? == *store {
                    continue;
                }
                bail!(
                    "LUN {number} of {name} ({store}) was added by order, and the configuration \
                     has {} there; try: another number in the configuration",
                    other.store
                );
            }
            let lun = DraftLun::from_order(*number, disk).map_err(anyhow::Error::msg)?;
            target.luns.push(lun);
            told.push(format!("LUN {number} of {name} is served: it was added by order ({store})"));
        }
        Ok(told)
    }

    /// The limits that orders have set; those that limit nothing were lifted.
    pub(crate) fn ordered_limits(&self) -> Vec<admin::Limit> {
        let mut ordered = Vec::new();
        for target in &self.targets {
            let read = self.limits_as_read.iter().find(|(name, _)| *name == target.name);
            let read = read.map_or(&[][..], |(_, limits)| limits);
            let set = target.limits_of_now().filter(|limit| !read.contains(limit));
            ordered.extend(set.map(|limit| limit::told(&target.name, limit)));
            let is_lifted =
                |limit: &&Limit| !target.limits.iter().any(|other| other.of == limit.of);
            for Limit { of, .. } in read.iter().filter(is_lifted) {
                let nothing =
                    Limit { of: of.clone(), operations: None, bytes: None, sessions: None };
                ordered.push(limit::told(&target.name, &nothing));
            }
        }
        ordered
    }

    /// Limits what orders have limited in the process before. Says of what is otherwise than in
    /// this configuration. Of disks that are not there nothing is.
    ///
    /// # Errors
    /// A limit is not understood.
    pub(crate) fn take_limits(&mut self, limits: &[admin::Limit]) -> Result<Vec<String>> {
        let mut told = Vec::new();
        for ordered in limits {
            let name = &ordered.target;
            let target = self.targets.iter_mut().find(|target| target.name == *name);
            let Some(target) = target else { continue };
            let limit = limit::heard(ordered)
                .map_err(|why| anyhow!("a limit of {name} that was set by order: {why}"))?;
            let is_there = match limit.of {
                Limited::Lun(number) => target.luns.iter().any(|lun| lun.number == number),
                _ => true,
            };
            let known = target.limits.iter().find(|other| other.of == limit.of);
            let is_so = known.map_or_else(|| limit::is_none(&limit), |known| *known == limit);
            if is_so || !is_there {
                continue;
            }
            let of = limit::shown(&limit.of);
            told.push(match limit::is_none(&limit) {
                true => format!("{of} of {name} is not limited: its limit was lifted by order"),
                false => format!("{of} of {name} is limited as it was by order"),
            });
            target.set_limit(limit);
        }
        Ok(told)
    }

    /// An order gave a target port group this state, of all disks.
    pub(crate) fn set_state(&mut self, target: &str, group: u16, state: AccessState) {
        let target = self.targets.iter_mut().find(|draft| draft.name == target);
        if let Some(target) = target {
            target.states.retain(|(number, _)| *number != group);
            target.states.push((group, state));
        }
    }

    /// The states that orders gave target port groups of all disks of a target.
    pub(crate) fn ordered_states(&self, target: &str) -> &[(u16, AccessState)] {
        let target = self.targets.iter().find(|draft| draft.name == target);
        target.map_or(&[], |target| &target.states)
    }

    /// The same of all targets, for the process that serves next.
    pub(crate) fn all_ordered_states(&self) -> Vec<OrderedState> {
        let all = self.targets.iter().flat_map(|target| {
            target.states.iter().map(|(group, state)| {
                let (target, state) = (target.name.clone(), ports::name_of(*state).to_owned());
                OrderedState { target, group: *group, state }
            })
        });
        all.collect()
    }

    /// Disks get the states that orders have given all of them in the process before. Says of what
    /// is otherwise than in this configuration. Of port groups that are not there nothing is.
    ///
    /// # Errors
    /// A state is not understood.
    pub(crate) fn take_states(&mut self, ordered: &[OrderedState]) -> Result<Vec<String>> {
        let mut told = Vec::new();
        for OrderedState { target, group, state: name } in ordered {
            let Some(at_start) = self.state_at_start(target, *group) else { continue };
            let state = ports::state(name).map_err(|right| {
                anyhow!("state {name} of port group {group} of {target}, set by order: {right}")
            })?;
            if state != at_start {
                told.push(format!("port group {group} of {target} is {name}: it was set by order"));
            }
            self.set_state(target, *group, state);
        }
        Ok(told)
    }

    /// States that orders gave stay behind a reload where those of the file do not count: hosts
    /// have a say in them.
    pub(crate) fn keep_states(&mut self, before: &Self) {
        for target in self.targets.iter_mut().filter(|target| target.explicit == Explicit::Yes) {
            let known = before.ordered_states(&target.name).iter();
            let is_there = |group: u16| target.port_groups.iter().any(|one| one.number == group);
            let states = known.filter(|(group, _)| is_there(*group)).copied().collect();
            target.states = states;
        }
    }

    /// The state of a target port group at the start.
    pub(crate) fn state_at_start(&self, target: &str, group: u16) -> Option<AccessState> {
        let target = self.targets.iter().find(|draft| draft.name == target)?;
        target.port_groups.iter().find(|one| one.number == group).map(|one| one.state)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use scsi::PortGroup;

    use super::super::node::DraftTarget;
    use super::*;

    const NAME: &str = "iqn.2026-01.com.example:a";

    fn draft(stores: &[(u16, &str)]) -> Draft {
        let mut target = DraftTarget::new(NAME.to_owned());
        let luns = stores
            .iter()
            .map(|(number, word)| DraftLun::new(*number, word, word.parse().expect("a store")));
        target.luns = luns.collect();
        let mut draft = Draft::new();
        draft.targets.push(target);
        draft.as_read = draft.places().collect();
        draft
    }

    fn lun(number: u16, word: &str) -> DraftLun {
        DraftLun::new(number, word, word.parse().expect("a store"))
    }

    fn numbers(draft: &Draft) -> Vec<u16> {
        draft.lun_numbers(NAME)
    }

    #[test]
    fn orders_go_from_process_to_process() {
        let mut first = draft(&[(0, "file:/a"), (1, "file:/b")]);
        assert_eq!(first.ordered().expect("none"), (Vec::new(), Vec::new()));
        first.add_lun(NAME, lun(7, "file:/c"));
        first.keep_luns(|_, number| number != 1);
        let (added, removed) = first.ordered().expect("orders");
        let mut second = draft(&[(0, "file:/a"), (1, "file:/b")]);
        assert_eq!(second.take_ordered(&added, &removed).expect("room").len(), 2);
        assert_eq!(numbers(&second), [0, 7]);
        // The next one hears of them, too.
        assert_eq!(second.ordered().expect("orders"), (added.clone(), removed.clone()));
        // A file that says what was ordered needs no order.
        let mut written = draft(&[(0, "file:/a"), (7, "file:/c")]);
        assert!(written.take_ordered(&added, &removed).expect("room").is_empty());
        assert_eq!(written.ordered().expect("none"), (Vec::new(), Vec::new()));
        // Another disk in the place of one that was removed is meant.
        let mut other = draft(&[(1, "file:/other")]);
        assert_eq!(other.take_ordered(&[], &removed).expect("room").len(), 0);
        assert_eq!(numbers(&other), [1]);
    }

    fn limit(of: Limited, operations: u64) -> Limit {
        Limit { of, operations: NonZeroU64::new(operations), bytes: None, sessions: None }
    }

    #[test]
    fn limits_of_orders_go_from_process_to_process() {
        let limited = || {
            let mut draft = draft(&[(0, "file:/a"), (1, "file:/b")]);
            draft.set_limit(NAME, limit(Limited::Lun(0), 100));
            draft.set_limit(NAME, limit(Limited::EachInitiator, 7));
            draft.limits_as_read = draft.limits();
            draft
        };
        let mut first = limited();
        assert!(first.ordered_limits().is_empty(), "its file says it");
        first.set_limit(NAME, limit(Limited::Lun(0), 200));
        first.set_limit(NAME, limit(Limited::EachInitiator, 0));
        first.set_limit(NAME, limit(Limited::Lun(1), 300));
        first.set_limit(NAME, limit(Limited::Initiator("iqn.2026-01.a:b".into()), 400));
        let orders = first.ordered_limits();
        assert_eq!(orders.len(), 4);
        let mut second = limited();
        assert_eq!(second.take_limits(&orders).expect("understood").len(), 4);
        assert_eq!(second.limits(), first.limits());
        // The next one hears of them, too; and a file that says it needs no order.
        assert_eq!(second.ordered_limits(), orders);
        second.limits_as_read = second.limits();
        assert!(second.take_limits(&orders).expect("understood").is_empty());
        assert!(second.ordered_limits().is_empty());
        // Those of a disk that is gone go with it, and a target that is not there has none.
        let mut less = draft(&[(0, "file:/a")]);
        less.take_limits(&orders).expect("understood");
        assert_eq!(less.limits()[0].1.len(), 2);
        first.keep_luns(|_, number| number != 1);
        assert_eq!(first.ordered_limits().len(), 3);
        assert!(Draft::new().take_limits(&orders).expect("none").is_empty());
        let wrong = admin::Limit { lun: Some(0), sessions: Some(1), ..orders[0].clone() };
        assert!(second.take_limits(&[wrong]).is_err());
    }

    #[test]
    fn states_of_orders_go_from_process_to_process() {
        let grouped = || {
            let mut draft = draft(&[(0, "file:/a")]);
            let (ports, state) = (vec![1], AccessState::ActiveOptimized);
            let group = PortGroup { number: 1, ports, preferred: false, state };
            draft.targets[0].port_groups.push(group);
            draft
        };
        let mut first = grouped();
        assert_eq!(first.all_ordered_states(), []);
        first.set_state(NAME, 1, AccessState::Standby);
        let ordered = first.all_ordered_states();
        let mut second = grouped();
        assert_eq!(second.take_states(&ordered).expect("understood").len(), 1);
        assert_eq!(second.ordered_states(NAME), [(1, AccessState::Standby)]);
        // The next one hears of them, too; and what a file says needs no word.
        assert_eq!(second.all_ordered_states(), ordered);
        second.targets[0].port_groups[0].state = AccessState::Standby;
        assert!(second.take_states(&ordered).expect("understood").is_empty());
        // Of a group, or a target, that is not there nothing is.
        let mut without = draft(&[(0, "file:/a")]);
        assert!(without.take_states(&ordered).expect("none").is_empty());
        assert_eq!(without.all_ordered_states(), []);
        assert!(Draft::new().take_states(&ordered).expect("none").is_empty());
        let wrong = OrderedState { state: "elsewhere".into(), ..ordered[0].clone() };
        assert!(second.take_states(&[wrong]).is_err());
        // A reload has the states of the file, but where hosts have a say in them.
        for (explicit, kept) in [(Explicit::No, 0), (Explicit::Yes, 1)] {
            let mut wanted = grouped();
            wanted.targets[0].explicit = explicit;
            wanted.keep_states(&first);
            assert_eq!(wanted.ordered_states(NAME).len(), kept);
        }
    }

    #[test]
    fn an_order_without_a_place_is_refused() {
        let mut first = draft(&[(0, "file:/a")]);
        first.add_lun(NAME, lun(7, "file:/c"));
        let (added, _) = first.ordered().expect("orders");
        let mut taken = draft(&[(7, "file:/d")]);
        let error = taken.take_ordered(&added, &[]).expect_err("its number is taken").to_string();
        assert!(error.contains("LUN 7") && error.contains("file:/d"), "{error}");
        let error = Draft::new().take_ordered(&added, &[]).expect_err("no target").to_string();
        assert!(error.contains("no such target"), "{error}");
        let of_one = lun(8, "file:/e").only_for(vec!["iqn.host".to_owned()]);
        first.add_lun(NAME, of_one);
        let error = first.ordered().expect_err("no file says that").to_string();
        assert!(error.contains("LUN 8") && error.contains("--initiator"), "{error}");
    }
}
