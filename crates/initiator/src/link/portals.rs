// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the next login goes.
//!
//! A login with the ISID of a lost session ends that session only within its portal group (RFC 7143
//! §6.3.5): the target then carries out nothing of it any more. At another group the same ISID is
//! another session beside it. So while commands that change the medium may still come about late,
//! only the group of the lost session will do. Resetting the unit from another group would not:
//! what is on its way to the target then is carried out behind the reset.

use crate::url::with_port;

/// The portals of a target, and which of them may be taken.
#[derive(Debug, Default)]
pub(super) struct Portals {
    /// `host:port` of each.
    list: Vec<String>,
    /// Portals of other paths to the unit: gone to only to end what is left of a session.
    refuges: Vec<String>,
    /// Where a temporary redirection points to.
    elsewhere: Option<String>,
    /// The portal whose login failed last: the others come first.
    avoid: Option<String>,
    /// Those behind which a unit was not accessible: the others come first.
    refusing: Vec<String>,
    /// Portal group tags, as far as logins told them.
    groups: Vec<(String, u16)>,
    /// The group of the session, or of the last one; None: it was not told.
    home: Option<u16>,
    /// The portal of the same.
    last: String,
    /// Something of the last session may still come about.
    in_doubt: bool,
}

impl Portals {
    pub(super) fn new(list: &[String]) -> Self {
        let list = list.iter().map(|portal| with_port(portal)).collect();
        Self { list, ..Self::default() }
    }

    /// The same, of one path out of several: a lost session may also be ended over `refuges`.
    pub(super) fn with_refuges(mut self, refuges: &[String]) -> Self {
        let refuges = refuges.iter().map(|portal| with_port(portal));
        self.refuges = refuges.filter(|portal| !self.list.contains(portal)).collect();
        self
    }

    /// Whether a session over this portal has nothing to do but to end the one before.
    pub(super) fn is_refuge(&self, portal: &str) -> bool {
        self.refuges.iter().any(|refuge| refuge == portal)
    }

    /// Those that are tried side by side, and those that are tried if none of these takes a
    /// connection.
    pub(super) fn next(&mut self) -> (Vec<String>, Vec<String>) {
        if let Some(elsewhere) = self.elsewhere.take() {
            return (vec![elsewhere], Vec::new());
        }
        let mut fit: Vec<String> =
            self.wanted().filter(|portal| self.is_fit(portal)).cloned().collect();
        if fit.is_empty() {
            // Groups may have been changed meanwhile.
            self.groups.clear();
            fit = self.wanted().cloned().collect();
        }
        let avoided =
            |portal: &String| self.avoid.as_ref() == Some(portal) || self.refusing.contains(portal);
        let (others, first): (Vec<String>, Vec<String>) = fit.into_iter().partition(avoided);
        if first.is_empty() { (others, first) } else { (first, others) }
    }

    /// Those of one more connection of a session, another one first for each `place`.
    pub(super) fn of_connection(&self, place: usize, leading: &str) -> (Vec<String>, Vec<String>) {
        // After a temporary redirection the session is where no portal of the list is.
        let known = leading.is_empty() || self.list.iter().any(|portal| portal == leading);
        let mut portals = if known { self.list.clone() } else { vec![leading.to_owned()] };
        let turns = place % portals.len().max(1);
        portals.rotate_left(turns);
        let others = portals.split_off(1.min(portals.len()));
        (portals, others)
    }

    /// The only group that a login may lead to.
    pub(super) fn group(&self) -> Option<u16> {
        self.home.filter(|_| self.in_doubt)
    }

    /// Whether a login over `portal`, which said that it is of this group, has ended what is left
    /// of the session before. Where a group is not told, that is sure of the same portal alone.
    pub(super) fn ends_the_last(&self, portal: &str, group: Option<u16>) -> bool {
        let is_of_one_group = self.home.zip(group).map(|(home, group)| home == group);
        !self.in_doubt || is_of_one_group.unwrap_or(portal == self.last)
    }

    /// Whether the next login has to end what is left of the session before.
    pub(super) const fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// A session is lost with something that may still come about.
    pub(super) const fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// The target has ended the session in order: nothing of it is left.
    pub(super) const fn settle(&mut self) {
        self.in_doubt = false;
    }

    /// A session has begun over `portal`: it has ended the one before, or nothing was left of that.
    pub(super) fn is_up(&mut self, portal: &str, group: Option<u16>) {
        self.in_doubt = false;
        (self.home, self.last) = (group, portal.to_owned());
        self.avoid = None;
        self.refusing.clear();
        if let Some(group) = group {
            self.learn(portal, group);
        }
    }

    /// The login over `portal` failed; `group`: because it is of this one.
    pub(super) fn failed(&mut self, portal: Option<&str>, group: Option<u16>) {
        self.avoid = portal.map(str::to_owned);
        if let (Some(portal), Some(group)) = (portal, group) {
            self.learn(portal, group);
        }
    }

    /// The next login goes elsewhere than to `refusing`; false if there is no other portal. Those
    /// of one group are one port of the target.
    pub(super) fn leave(&mut self, refusing: &[String]) -> bool {
        let group_of = |portal: &String| {
            self.groups.iter().find(|(of, _)| of == portal).map(|(_, group)| *group)
        };
        let groups: Vec<u16> = refusing.iter().filter_map(group_of).collect();
        let refuses = |portal: &&String| {
            refusing.contains(portal) || group_of(portal).is_some_and(|of| groups.contains(&of))
        };
        let refusing: Vec<String> = self.list.iter().filter(refuses).cloned().collect();
        let leaves = refusing.len() < self.list.len();
        if leaves {
            self.refusing = refusing;
        }
        leaves
    }

    /// The target is elsewhere, from now on or for once.
    pub(super) fn moved(&mut self, address: &str, permanent: bool) {
        if permanent {
            self.list = vec![with_port(address)];
        } else {
            self.elsewhere = Some(with_port(address));
        }
    }

    /// Refuges come first where there is something to end: what is silent below its own portal may
    /// still take connections there.
    fn wanted(&self) -> impl Iterator<Item = &String> {
        let refuges = if self.in_doubt { self.refuges.as_slice() } else { &[] };
        refuges.iter().chain(&self.list)
    }

    fn is_fit(&self, portal: &String) -> bool {
        let known = self.groups.iter().find(|(of, _)| of == portal).map(|(_, group)| *group);
        match (self.home, known) {
            _ if !self.in_doubt => true,
            (Some(wanted), Some(known)) => wanted == known,
            (Some(_), None) => true,
            (None, _) => *portal == self.last,
        }
    }

    fn learn(&mut self, portal: &str, group: u16) {
        self.groups.retain(|(of, _)| of != portal);
        if self.list.iter().chain(&self.refuges).any(|of| of == portal) {
            self.groups.push((portal.to_owned(), group));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refuge_is_gone_to_only_to_end_what_is_left() {
        let refuges = ["b:1".to_owned(), "c:1".to_owned()];
        let mut portals = Portals::new(&["a:1".to_owned()]).with_refuges(&refuges);
        assert_eq!(portals.next(), (vec!["a:1".to_owned()], Vec::new()));
        portals.is_up("a:1", Some(1));
        portals.doubt();
        assert_eq!(portals.next().0, ["b:1", "c:1", "a:1"]);
        portals.failed(Some("b:1"), Some(2));
        assert_eq!(portals.next().0, ["c:1", "a:1"], "that of another group ends nothing");
        assert!(portals.is_refuge("c:1") && !portals.is_refuge("a:1"));
        portals.is_up("c:1", Some(1));
        assert_eq!(portals.next(), (vec!["a:1".to_owned()], Vec::new()));
    }

    fn three() -> Portals {
        Portals::new(&["a:1".to_owned(), "b:1".to_owned(), "c:1".to_owned()])
    }

    #[test]
    fn only_the_group_of_the_lost_session_is_tried_while_it_may_go_on() {
        let mut portals = three();
        portals.is_up("a:1", Some(1));
        portals.doubt();
        assert_eq!(portals.group(), Some(1));
        portals.failed(Some("b:1"), Some(2));
        portals.failed(Some("c:1"), Some(2));
        assert_eq!(portals.next().0, ["a:1"]);
        portals.is_up("a:1", Some(1));
        assert_eq!((portals.group(), portals.next().0.len()), (None, 3));
    }

    /// Covers: NAM-17/I.
    #[test]
    fn no_port_is_tried_but_that_of_iscsi_where_none_is_named() {
        let mut portals = Portals::new(&["192.0.2.1".to_owned(), "[2001:db8::1]".to_owned()]);
        let all = ["192.0.2.1:3260", "[2001:db8::1]:3260"].map(str::to_owned);
        for _ in 0..2 {
            let (mut tried, others) = portals.next();
            tried.extend(others);
            tried.sort();
            assert_eq!(tried, all);
            portals.failed(Some("192.0.2.1:3260"), None);
        }
        for permanent in [false, true] {
            portals.moved("192.0.2.7", permanent);
            assert_eq!(portals.next(), (vec!["192.0.2.7:3260".to_owned()], Vec::new()));
        }
    }

    #[test]
    fn without_a_group_a_portal_stands_for_itself_alone() {
        let mut portals = three();
        portals.is_up("b:1", None);
        assert!(portals.ends_the_last("a:1", None), "there is nothing to end");
        portals.doubt();
        assert_eq!(portals.next(), (vec!["b:1".to_owned()], Vec::new()));
        assert!(portals.ends_the_last("b:1", None) && portals.ends_the_last("b:1", Some(1)));
        assert!(!portals.ends_the_last("a:1", None) && !portals.ends_the_last("a:1", Some(1)));
        portals.is_up("b:1", Some(1));
        portals.doubt();
        assert!(portals.ends_the_last("a:1", Some(1)) && !portals.ends_the_last("a:1", None));
    }

    #[test]
    fn groups_that_nobody_has_any_more_are_forgotten() {
        let mut portals = three();
        portals.is_up("a:1", Some(1));
        portals.doubt();
        for portal in ["a:1", "b:1", "c:1"] {
            portals.failed(Some(portal), Some(2));
        }
        let (first, others) = portals.next();
        assert_eq!((first.len(), others.as_slice()), (2, ["c:1".to_owned()].as_slice()));
    }

    #[test]
    fn portals_of_a_group_that_refuses_come_last() {
        let mut portals = three();
        portals.is_up("b:1", Some(2));
        portals.is_up("a:1", Some(1));
        portals.is_up("c:1", Some(1));
        assert!(portals.leave(&["a:1".to_owned()]));
        assert_eq!(portals.next(), (vec!["b:1".into()], vec!["a:1".into(), "c:1".into()]));
        portals.is_up("b:1", Some(2));
        assert!(!portals.leave(&["a:1".to_owned(), "b:1".to_owned()]), "nobody is left");
        assert_eq!(portals.next().0.len(), 3);
    }

    #[test]
    fn a_portal_that_failed_comes_last() {
        let mut portals = three();
        portals.failed(Some("b:1"), None);
        assert_eq!(portals.next(), (vec!["a:1".into(), "c:1".into()], vec!["b:1".to_owned()]));
        let mut one = Portals::new(&["a:1".to_owned()]);
        one.failed(Some("a:1"), None);
        assert_eq!(one.next(), (vec!["a:1".to_owned()], Vec::new()));
    }
}
