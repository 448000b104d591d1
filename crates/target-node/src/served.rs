// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target while it is served, and its units, which come and go.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::RwLockReadGuard;
use std::sync::RwLockWriteGuard;

use scsi::LogicalUnit;

use crate::node::LunMap;
use crate::node::Node;

/// A node in one generation of what is served. Its units come and go, and are the same in each
/// generation that has the node.
#[derive(Debug)]
pub(crate) struct Served {
    node: Node,
    /// Instead of those of the node.
    luns: Arc<RwLock<Luns>>,
}

#[derive(Debug)]
struct Luns {
    /// By number.
    map: LunMap,
    /// Units that are for these initiators alone, whatever the rules of the node say.
    only: Vec<(u16, Vec<String>)>,
    /// Numbers of units that have gone.
    gone: Vec<u16>,
}

impl Luns {
    fn shows(&self, node: &Node, initiator: &str, number: u16) -> bool {
        match self.only.iter().find(|(of, _)| *of == number) {
            Some((_, initiators)) => initiators.iter().any(|name| name == initiator),
            None => node.shows(initiator, number),
        }
    }
}

impl Served {
    pub(crate) fn new(mut node: Node) -> Self {
        let mut map = std::mem::take(&mut node.luns);
        map.sort_by_key(|(lun, _)| *lun);
        let luns = Luns { map, only: Vec::new(), gone: Vec::new() };
        Self { node, luns: Arc::new(RwLock::new(luns)) }
    }

    /// The same target with its units, on the terms of `node`.
    pub(crate) fn on_terms_of(&self, node: Node) -> Self {
        Self { node, luns: Arc::clone(&self.luns) }
    }

    /// Whether these are two generations of one target, and not two that had the name in turn.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.luns, &other.luns)
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// The units now, by number.
    pub(crate) fn luns(&self) -> LunMap {
        self.read().map.clone()
    }

    /// The units that `initiator` sees now.
    pub(crate) fn lun_map(&self, initiator: &str) -> LunMap {
        let luns = self.read();
        let shown = luns.map.iter().filter(|(lun, _)| luns.shows(&self.node, initiator, *lun));
        shown.cloned().collect()
    }

    /// Logins from now on see one more unit: those of `initiators`, or without any all that the
    /// rules let see it.
    pub(crate) fn add_lun(&self, lun: u16, unit: Arc<LogicalUnit>, initiators: Vec<String>) {
        let mut luns = self.write();
        luns.map.push((lun, unit));
        luns.map.sort_by_key(|(number, _)| *number);
        if !initiators.is_empty() {
            luns.only.push((lun, initiators));
        }
    }

    /// Whether there is somebody whom the rules let see the unit of this number.
    pub(crate) fn is_for_somebody(&self, lun: u16) -> bool {
        let luns = self.read();
        let (node, access) = (&self.node, &self.node.access);
        access.is_empty() || access.iter().any(|rule| luns.shows(node, &rule.initiator, lun))
    }

    /// The initiators that alone see the unit of this number; None: all that may log in.
    pub(crate) fn initiators_of(&self, lun: u16) -> Option<Vec<String>> {
        let luns = self.read();
        let (node, access) = (&self.node, &self.node.access);
        if access.is_empty() {
            return luns.only.iter().find(|(of, _)| *of == lun).map(|(_, names)| names.clone());
        }
        let rules = access.iter().filter(|rule| luns.shows(node, &rule.initiator, lun));
        let names: Vec<String> = rules.map(|rule| rule.initiator.clone()).collect();
        (names.len() < access.len()).then_some(names)
    }

    /// Logins from now on see a unit no more.
    pub(crate) fn remove_lun(&self, lun: u16) {
        let mut luns = self.write();
        luns.map.retain(|(number, _)| *number != lun);
        luns.only.retain(|(number, _)| *number != lun);
        if !luns.gone.contains(&lun) {
            luns.gone.push(lun);
        }
    }

    /// Logins from now on see those that come, which are for all that the rules let see them, and
    /// those that go no more. Gives the latter.
    pub(crate) fn exchange(&self, goes: &[u16], comes: LunMap) -> LunMap {
        let mut luns = self.write();
        let (gone, mut map): (LunMap, LunMap) =
            std::mem::take(&mut luns.map).into_iter().partition(|(lun, _)| goes.contains(lun));
        luns.only.retain(|(lun, _)| !goes.contains(lun));
        let news: Vec<u16> = goes.iter().filter(|lun| !luns.gone.contains(lun)).copied().collect();
        luns.gone.extend(news);
        map.extend(comes);
        map.sort_by_key(|(lun, _)| *lun);
        luns.map = map;
        gone
    }

    /// Logins from now on see no unit at all: the target is served no more.
    pub(crate) fn remove_all(&self) -> LunMap {
        std::mem::take(&mut self.write().map)
    }

    /// True if no unit had this number since the target is served.
    pub(crate) fn is_unused(&self, lun: u16) -> bool {
        let luns = self.read();
        !luns.gone.contains(&lun) && !luns.map.iter().any(|(number, _)| *number == lun)
    }

    fn read(&self) -> RwLockReadGuard<'_, Luns> {
        self.luns.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Luns> {
        self.luns.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scsi::Identity;
    use store::null::Null;

    fn luns(numbers: &[u16]) -> LunMap {
        let unit = |lun: u16| {
            let identity = Identity::derive("iqn.2026-01.local.test", lun, "LUNWIRE", "DISK");
            let store = Arc::new(Null::new(1 << 20).expect("room"));
            (lun, Arc::new(LogicalUnit::new(identity, store, 512).expect("a legal unit")))
        };
        numbers.iter().copied().map(unit).collect()
    }

    fn numbers(luns: &[(u16, Arc<LogicalUnit>)]) -> Vec<u16> {
        luns.iter().map(|(lun, _)| *lun).collect()
    }

    /// A file may name them in any order, and so does `lunwire dump` those that came by order.
    #[test]
    fn units_are_in_the_order_of_their_numbers_however_they_come() {
        let served = Served::new(Node::new("iqn.2026-01.local.test".into(), luns(&[24, 0, 5])));
        assert_eq!(numbers(&served.luns()), [0, 5, 24], "at the start");
        assert_eq!(numbers(&served.lun_map("iqn.2026-01.local.host")), [0, 5, 24]);
        served.exchange(&[5], luns(&[7, 3]));
        assert_eq!(numbers(&served.luns()), [0, 3, 7, 24], "by a change");
        luns(&[1]).into_iter().for_each(|(lun, unit)| served.add_lun(lun, unit, Vec::new()));
        assert_eq!(numbers(&served.luns()), [0, 1, 3, 7, 24], "by an order");
    }
}
