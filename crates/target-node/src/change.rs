// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served becomes another: targets, who may use them, and portals, while sessions go on.
//!
//! All that can fail comes first: the new disks are opened, the new portals listened on, the new
//! files known to each reactor. Then the new generation takes the place of the old one at once.
//! Sessions that it would not let in are asked to log out, and dropped if they do not; the others
//! see the units that are theirs now and notice nothing else. What was negotiated stays until the
//! next login, and so does a session whose portal was closed.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use scsi::LogicalUnit;

use crate::authentication::AuthenticationPolicy;
use crate::catalogue::Nodes;
use crate::catalogue::OutdatedSession;
use crate::events::Event;
use crate::inventory::tell_reservations_end;
use crate::mail::Answers;
use crate::node::LunMap;
use crate::node::Node;
use crate::node::NodeError;
use crate::node::Portal;
use crate::pump::Letter;
use crate::reactor::LISTENING_REACTOR;
use crate::served::Served;
use crate::stores::Stores;
use crate::target::PATIENCE;
use crate::target::Target;
use crate::target::listening;
use crate::volume::VolumeError;

/// What is to be otherwise. What it does not name stays as it is.
#[derive(Debug, Default)]
pub struct Change {
    /// Targets that come, with their disks.
    pub add: Vec<Node>,
    /// Targets whose alias, access list, authentication, settings or place is another from now on.
    /// Their disks stay and are not named here.
    pub replace: Vec<Node>,
    /// Names of targets that go, with their disks.
    pub remove: Vec<String>,
    /// Disks that come to targets that stay: name of the target, number, disk. The number may be
    /// that of one which goes.
    pub add_luns: Vec<(String, u16, Arc<LogicalUnit>)>,
    /// Disks that go from targets that stay: name of the target, number. Commands under way end as
    /// [`Target::remove_lun`] has it.
    pub remove_luns: Vec<(String, u16)>,
    /// Where to listen, too. Of a portal that is there, with the same group, [`Portal::rdma`] is
    /// another from now on; sessions stay as they are.
    pub listen: Vec<Portal>,
    /// Where to listen no more, as [`Target::portals`] names it. Sessions that came that way stay.
    pub unlisten: Vec<SocketAddr>,
    /// What initiators have to prove in discovery sessions.
    pub discovery: Option<AuthenticationPolicy>,
    /// Whether a target that an initiator may not use looks to it like one that is not there.
    pub hide_targets: Option<bool>,
    /// Initiators whose sessions end get so long to log out, in whole seconds; without any the
    /// sessions are dropped at once.
    pub grace: Duration,
}

/// Why nothing was changed; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] NodeError),
    /// No such target.
    #[error("no target {0}; try: lunwire status")]
    NoTarget(String),
    /// Another one has the name.
    #[error("target {0} is served already; try: another name")]
    Taken(String),
    /// Two things are to be done with one target.
    #[error("target {0} is named twice; try: one change after the other")]
    Twice(String),
    /// Disks of a target that stays.
    #[error("the disks of {0} are not changed with its terms; try: lunwire lun add or lun remove")]
    Disks(String),
    /// Nobody listens there.
    #[error("{0} is no portal; try: lunwire status")]
    NoPortal(SocketAddr),
    /// Hosts could not tell whether a path is good.
    #[error(
        "portal group {tag} is in no port group of LUN {lun} of {target}, and those of a disk do \
         not change; try: a portal group that is in one"
    )]
    PortGroup {
        /// The portal group.
        tag: u16,
        /// The target.
        target: String,
        /// The number of the disk.
        lun: u16,
    },
    /// A portal cannot be opened.
    #[error("cannot listen on {address}: {source}{}", listening(address, source))]
    Listen {
        /// The portal.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The files of a new disk.
    #[error(transparent)]
    Files(#[from] VolumeError),
}

/// What a change has done.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Changed {
    /// Sessions that are ended by it.
    pub ended: Vec<OutdatedSession>,
    /// Reactors that do not answer: their sessions may go on as before.
    pub silent: Vec<usize>,
    /// What is wrong with disks that are served no more: see [`VolumeError::Lingers`] and
    /// [`VolumeError::Flush`].
    pub left: Vec<VolumeError>,
}

impl Target {
    /// Changes what is served. `make` opens the disks of targets that come. Who logs in meanwhile
    /// finds all of the old or all of the new. Returns when the disks of targets that go are
    /// closed.
    ///
    /// # Errors
    /// What `make` says, or see [`ChangeError`]; nothing has changed then.
    pub fn change<E: From<ChangeError>>(
        &self,
        make: impl FnOnce(&mut Stores) -> Result<Change, E>,
    ) -> Result<Changed, E> {
        let _one_at_a_time = self.volumes();
        let mut stores = self.files().beside();
        let change = make(&mut stores)?;
        Ok(self.apply(change, stores)?)
    }

    /// Which sessions a change would end, and nothing is changed.
    ///
    /// # Errors
    /// See [`ChangeError`]. Whether portals can be listened on is not looked at.
    pub fn preview(&self, change: &Change) -> Result<Vec<OutdatedSession>, ChangeError> {
        let nodes = Arc::new(self.nodes().after(change)?);
        Ok(self.review(&nodes, None, &mut Vec::new()))
    }

    fn apply(&self, change: Change, stores: Stores) -> Result<Changed, ChangeError> {
        let before = self.nodes();
        let mut next = before.after(&change)?;
        let goes = |portal: &&Portal| change.unlisten.contains(&portal.address);
        let old = before.portals.len() - before.portals.iter().filter(goes).count();
        let sockets = open_portals(next.portals.iter_mut().skip(old))?;
        self.introduce_files(&stores.files)?;
        self.files().add(stores.files);
        let (next, removed) = (Arc::new(next), before.named(&change.remove));
        self.catalogue().exchange(Arc::clone(&next));
        let gone = next.exchange_luns(&change);
        gone.iter().for_each(|(_, unit)| unit.withdraw());
        self.registry().keep_room_for_proof(next.takes_proof());
        let mut changed = Changed::default();
        for (fd, address) in sockets {
            // Without a second descriptor it is served, and cannot be handed over.
            if let Err(error) = self.doors().add(&fd, address) {
                tracing::warn!(portal = %address, %error, "a socket cannot be kept for later");
            }
            self.ask_listener(&mut changed, |reply| Letter::Listen { fd, address, reply });
        }
        for address in change.unlisten {
            self.doors().remove(address);
            self.ask_listener(&mut changed, |reply| Letter::Unlisten { address, reply });
        }
        let seconds = u16::try_from(change.grace.as_secs()).unwrap_or(u16::MAX);
        changed.ended = self.review(&next, Some(seconds), &mut changed.silent);
        self.register(&next);
        tracing::info!(
            name: Event::Change.name(),
            targets = next.all().len(),
            portals = next.addresses().len(),
            sessions_ended = changed.ended.len(),
            "what is served was changed"
        );
        let mut units = LunMap::new();
        for served in removed {
            let luns = served.remove_all();
            // What RESERVE gave ends with its session, which tells it.
            let persistent = luns.iter().filter(|(_, unit)| !unit.reservations_shown().legacy);
            persistent.for_each(|(lun, unit)| {
                tell_reservations_end(&served.node().name, *lun, unit);
            });
            units.extend(luns);
        }
        changed.left = self.close_units(gone, Duration::ZERO);
        changed.left.extend(self.close_units(units, change.grace));
        for served in next.all() {
            served.luns().iter().for_each(|(_, unit)| unit.tell_absent_of_other_units());
        }
        changed.silent.sort_unstable();
        changed.silent.dedup();
        if !changed.silent.is_empty() {
            let silent = &changed.silent;
            tracing::error!(reactors = ?silent, "reactors do not answer: sessions may go on there");
        }
        Ok(changed)
    }

    /// Which sessions `nodes` would not let in. `ending`: they are ended, within so many seconds.
    fn review(
        &self,
        nodes: &Arc<Nodes>,
        ending: Option<u16>,
        silent: &mut Vec<usize>,
    ) -> Vec<OutdatedSession> {
        let letter = |reply| Letter::Review { nodes: Arc::clone(nodes), ending, reply };
        let answered = Answers::ask(self.mailboxes(), letter).within(PATIENCE);
        silent.extend(answered.silent);
        let mut sessions: Vec<OutdatedSession> = answered.answers.into_iter().flatten().collect();
        sessions.sort_by_key(|session| session.tsih);
        sessions
    }

    /// Waits for the answer of the reactor that listens for all.
    fn ask_listener(&self, changed: &mut Changed, letter: impl FnOnce(Sender<()>) -> Letter) {
        let (reply, replies) = mpsc::channel();
        if let Some(mailbox) = self.mailboxes().get(LISTENING_REACTOR) {
            mailbox.send(letter(reply));
        }
        if replies.recv_timeout(PATIENCE).is_err() {
            changed.silent.push(LISTENING_REACTOR);
        }
    }
}

impl Nodes {
    /// The next generation.
    ///
    /// # Errors
    /// What of it cannot be; see [`ChangeError`].
    pub(crate) fn after(&self, change: &Change) -> Result<Self, ChangeError> {
        let Change { add, replace, remove, listen, unlisten, discovery, hide_targets, .. } = change;
        add.iter().chain(replace).try_for_each(Node::check)?;
        let named = add.iter().chain(replace).map(|node| &node.name).chain(remove);
        let mut seen = HashSet::new();
        for name in named {
            if !seen.insert(name) {
                return Err(ChangeError::Twice(name.clone()));
            }
        }
        for name in replace.iter().map(|node| &node.name).chain(remove) {
            self.find(name).ok_or_else(|| ChangeError::NoTarget(name.clone()))?;
        }
        let going = self.named(remove);
        let going = going.iter().flat_map(|served| served.luns());
        let going: LunMap = going.chain(self.check_luns(change)?).collect();
        if let Some((lun, _)) = going.into_iter().find(|(_, unit)| unit.is_being_wiped()) {
            return Err(VolumeError::Wiping { lun }.into());
        }
        if let Some(node) = add.iter().find(|node| self.find(&node.name).is_some()) {
            return Err(ChangeError::Taken(node.name.clone()));
        }
        if let Some(node) = replace.iter().find(|node| !node.luns.is_empty()) {
            return Err(ChangeError::Disks(node.name.clone()));
        }
        let is_portal = |address: &SocketAddr| self.addresses().contains(address);
        if let Some(address) = unlisten.iter().find(|address| !is_portal(address)) {
            return Err(ChangeError::NoPortal(*address));
        }
        let stay = self.nodes.iter().filter(|served| !remove.contains(&served.node().name));
        let mut nodes: Vec<Arc<Served>> = stay
            .map(|served| {
                let terms = replace.iter().find(|node| node.name == served.node().name);
                terms.map_or_else(
                    || Arc::clone(served),
                    |node| Arc::new(served.on_terms_of(node.clone())),
                )
            })
            .collect();
        let mut portals = self.portals.clone();
        portals.retain(|portal| !unlisten.contains(&portal.address));
        for portal in listen {
            let is_it =
                |old: &&mut Portal| (old.address, old.group) == (portal.address, portal.group);
            match portals.iter_mut().find(is_it) {
                Some(old) => old.rdma = portal.rdma,
                None => portals.push(*portal),
            }
        }
        let new: Vec<u16> = listen.iter().map(|portal| portal.group).collect();
        nodes
            .iter()
            .try_for_each(|served| in_port_groups(&new, &served.node().name, &served.luns()))?;
        let all = portals.iter().chain(&self.adapters);
        let all: Vec<u16> = all.map(|portal| portal.group).collect();
        add.iter().try_for_each(|node| in_port_groups(&all, &node.name, &node.luns))?;
        change.add_luns.iter().try_for_each(|(target, lun, unit)| {
            in_port_groups(&all, target, &vec![(*lun, Arc::clone(unit))])
        })?;
        nodes.extend(add.iter().cloned().map(Served::new).map(Arc::new));
        Ok(Self {
            nodes,
            portals,
            adapters: self.adapters.clone(),
            discovery: discovery.as_ref().unwrap_or(&self.discovery).clone(),
            hide: hide_targets.unwrap_or(self.hide),
        })
    }

    /// Whether the disks of targets that stay can come and go so. Gives those that go.
    fn check_luns(&self, change: &Change) -> Result<LunMap, ChangeError> {
        let stays = |name: &String| match self.find(name) {
            Some(served) if !change.remove.contains(name) => Ok(served.luns()),
            _ => Err(ChangeError::NoTarget(name.clone())),
        };
        let mut going = LunMap::new();
        let mut gone = HashSet::new();
        for (target, lun) in &change.remove_luns {
            let unit = stays(target)?.into_iter().find(|(number, _)| number == lun);
            match unit.filter(|_| gone.insert((target, *lun))) {
                Some(unit) => going.push(unit),
                None => {
                    return Err(VolumeError::NoLun { target: target.clone(), lun: *lun }.into());
                }
            }
        }
        let mut come = HashSet::new();
        for (target, lun, _) in &change.add_luns {
            let is_there = stays(target)?.iter().any(|(number, _)| number == lun);
            if is_there && !gone.contains(&(target, *lun)) || !come.insert((target, *lun)) {
                return Err(VolumeError::Taken { target: target.clone(), lun: *lun }.into());
            }
        }
        Ok(going)
    }

    /// Exchanges the disks of targets that stay. Gives those that go.
    fn exchange_luns(&self, change: &Change) -> LunMap {
        let mut removed = LunMap::new();
        for served in &self.nodes {
            let name = &served.node().name;
            let goes = change.remove_luns.iter().filter(|(target, _)| target == name);
            let goes: Vec<u16> = goes.map(|(_, lun)| *lun).collect();
            let comes = change.add_luns.iter().filter(|(target, ..)| target == name);
            let comes: LunMap = comes.map(|(_, lun, unit)| (*lun, Arc::clone(unit))).collect();
            let luns = served.exchange(&goes, comes);
            luns.iter().for_each(|(lun, unit)| tell_reservations_end(name, *lun, unit));
            removed.extend(luns);
        }
        removed
    }

    /// The targets with these names.
    fn named(&self, names: &[String]) -> Vec<Arc<Served>> {
        names.iter().filter_map(|name| self.find(name)).cloned().collect()
    }
}

/// Whether each of these portal groups is in a port group of each unit that has any.
fn in_port_groups(tags: &[u16], target: &str, luns: &LunMap) -> Result<(), ChangeError> {
    for (lun, unit) in luns {
        let groups = unit.port_groups();
        let is_in_one = |tag: &u16| groups.iter().any(|group| group.ports.contains(tag));
        if let Some(tag) = tags.iter().find(|tag| !groups.is_empty() && !is_in_one(tag)) {
            let target = target.to_owned();
            return Err(ChangeError::PortGroup { tag: *tag, target, lun: *lun });
        }
    }
    Ok(())
}

/// Listens on new portals, which have the addresses that it really is then.
fn open_portals<'a>(
    new: impl Iterator<Item = &'a mut Portal>,
) -> Result<Vec<(OwnedFd, SocketAddr)>, ChangeError> {
    new.map(|portal| {
        let address = portal.address;
        let opened = engine::listen(address).map(TcpListener::from);
        let opened = opened.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (real, listener) = opened.map_err(|source| ChangeError::Listen { address, source })?;
        portal.address = real;
        Ok((OwnedFd::from(listener), real))
    })
    .collect()
}
