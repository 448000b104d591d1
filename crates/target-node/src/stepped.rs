// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target in the caller's thread, over ports of the caller's, one for each reactor.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use buf::Pool;
use engine::Port;
use scsi::LogicalUnit;

use crate::authentication::AuthenticationPolicy;
use crate::authentication::Challenges;
use crate::catalogue::Catalogue;
use crate::catalogue::Nodes;
use crate::figures::Holdings;
use crate::figures::SessionSnapshot;
use crate::limits::Limit;
use crate::limits::Limits;
use crate::mail::Answers;
use crate::mail::Mailbox;
use crate::node::Node;
use crate::node::Portal;
use crate::pump::Board;
use crate::pump::Letter;
use crate::pump::LocalEnd;
use crate::pump::Pump;
use crate::pump::Shared;
use crate::rdma::Rdma;
use crate::reactor::LISTENING_REACTOR;
use crate::registry::Registry;
use crate::silences::Silences;
use crate::slow::Slow;
use crate::stores::Files;
use crate::strangers::ConnectionLimits;
use crate::strangers::Strangers;
use crate::volume;

/// What a [`SteppedTarget`] needs to start.
#[derive(Debug)]
pub struct SteppedPlan {
    /// The portals that it tells initiators of.
    pub portals: Vec<Portal>,
    /// What to serve. The ports must know the files of the stores.
    pub nodes: Vec<Node>,
    /// What initiators have to prove in discovery sessions.
    pub discovery: AuthenticationPolicy,
    /// A login that takes longer is closed.
    pub login_timeout: Duration,
    /// Whether portals that have no word of their own speak iSER, too.
    pub rdma: Rdma,
    /// As in [`Plan`](crate::Plan).
    pub end_wait: Duration,
    /// Answers to an initiator with many commands outstanding wait at most so long for others.
    pub hold_back: Duration,
    /// More sessions are refused.
    pub sessions_max: usize,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
}

/// A target whose reactors do a step when they are told to. It makes no thread, reads no clock and
/// waits nowhere but in its ports, so who owns these owns all that happens.
///
/// Its reactors share what those of a [`Target`](crate::Target) share, and write letters to each
/// other in the same way: whoever calls [`turn`](Self::turn) decides in which order they are read.
#[derive(Debug)]
pub struct SteppedTarget<P> {
    pub(crate) pumps: Vec<Pump<P>>,
    shared: Arc<Shared>,
}

impl<P: Port> SteppedTarget<P> {
    /// Serves `plan` to whoever comes to `listeners`, one for each portal of it: a reactor for each
    /// port, with data buffers of its own. As in a [`Target`](crate::Target), the first one listens
    /// for all.
    pub fn new(ports: Vec<(P, Pool)>, plan: SteppedPlan, listeners: Vec<OwnedFd>) -> Self {
        // Whatever plays an adapter comes to the portals of the sockets.
        let adapters = plan.portals.clone();
        let nodes = Nodes::new(plan.nodes, plan.portals, plan.discovery).with_adapters(adapters);
        let registry = Registry::new(plan.sessions_max);
        registry.keep_room_for_proof(nodes.takes_proof());
        let shared = Arc::new(Shared {
            catalogue: Catalogue::new(nodes),
            challenges: Challenges::default(),
            registry,
            strangers: Strangers::new(plan.connections),
            mailboxes: ports.iter().map(|(port, _)| Mailbox::new(port.waker())).collect(),
            board: Board::default(),
            silences: Silences::default(),
            limits: Limits::default(),
            slow: Slow::default(),
            files: Files::default(),
            login_timeout: plan.login_timeout,
            rdma: plan.rdma,
            capture: None,
            end_wait: plan.end_wait,
            hold_back: plan.hold_back,
            locals: AtomicUsize::new(0),
        });
        let ports = ports.into_iter().enumerate();
        let mut pumps: Vec<Pump<P>> = ports
            .map(|(reactor, (port, pool))| Pump::new(port, pool, Arc::clone(&shared), reactor))
            .collect();
        if let Some(first) = pumps.get_mut(LISTENING_REACTOR) {
            let addresses = shared.catalogue.now().addresses();
            listeners
                .into_iter()
                .zip(addresses)
                .for_each(|(fd, address)| first.listen(fd, address));
        }
        Self { pumps, shared }
    }

    /// Lets a reactor do what there is to do, then wait in its port once. False: there is no such
    /// reactor, or it was stopped and all is over.
    pub fn turn(&mut self, reactor: usize) -> bool {
        self.pumps.get_mut(reactor).is_some_and(Pump::turn)
    }

    /// Somebody asks for a connection over an adapter, which is none of this machine.
    pub fn ask(&mut self, asking: Box<dyn verbs::Asking>) {
        if let Some(first) = self.pumps.get_mut(LISTENING_REACTOR) {
            first.let_in(asking);
        }
    }

    /// See [`Target::limit`](crate::Target::limit).
    pub fn limit(&self, limits: Vec<(String, Vec<Limit>)>) {
        self.shared.limit(limits);
    }

    /// Panics if an invariant of a session or a unit does not hold.
    pub fn check(&self) {
        self.pumps.iter().for_each(Pump::check_sessions);
        for node in self.shared.catalogue.now().all() {
            node.luns().iter().for_each(|(_, unit)| unit.check());
        }
    }

    /// Where connections that need no network come in.
    #[must_use]
    pub fn local_door(&self) -> LocalDoor {
        LocalDoor(Arc::clone(&self.shared))
    }

    /// Begins to stop, see [`Target::stop`](crate::Target::stop).
    pub fn stop(&self, grace: Duration) {
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Letter::Stop { grace });
        }
    }

    /// All sessions, as they are between two steps.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionSnapshot> {
        self.pumps.iter().flat_map(Pump::snapshot).collect()
    }

    /// Begins to make a disk smaller, as [`Target::resize`](crate::Target::resize) does: hosts see
    /// so at once. When all answers are there, no work is left that was under way, and the file may
    /// be cut. None: there is no such disk, or it may have lost writes.
    pub fn begin_shrink(&self, target: &str, lun: u16, bytes: u64) -> Option<Answers<()>> {
        let unit = self.unit(target, lun)?;
        if volume::may_have_lost_writes(&unit) {
            return None;
        }
        volume::show_less(&unit, bytes);
        let drain = |reply| Letter::Drain { unit: Arc::clone(&unit), reply };
        Some(Answers::ask(&self.shared.mailboxes, drain))
    }

    /// Hosts see another size of a disk, whose file has it already.
    pub fn show_size(&self, target: &str, lun: u16, bytes: u64) {
        if let Some(unit) = self.unit(target, lun) {
            volume::show(&unit, bytes);
        }
    }

    fn unit(&self, target: &str, lun: u16) -> Option<Arc<LogicalUnit>> {
        let luns = self.shared.catalogue.now().find(target)?.luns();
        luns.into_iter().find(|(number, _)| *number == lun).map(|(_, unit)| unit)
    }

    /// What each reactor holds now: connections, sessions, store work under way, bytes of its pool.
    pub fn holdings(&self) -> impl Iterator<Item = Holdings> {
        self.pumps.iter().map(Pump::holdings)
    }
}

/// Where connections that need no network come in, for whoever does not have the target itself.
#[derive(Clone, Debug)]
pub struct LocalDoor(Arc<Shared>);

impl LocalDoor {
    /// Opens one, see [`Target::connect_local`](crate::Target::connect_local). Once the target is
    /// gone nobody answers, nor closes it while a door is left.
    #[must_use]
    pub fn connect(&self) -> LocalEnd {
        self.0.open_local()
    }
}
