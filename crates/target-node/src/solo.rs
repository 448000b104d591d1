// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target of one reactor in the caller's thread, over a port of the caller's.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use buf::Pool;
use engine::Port;
use scsi::LogicalUnit;

use crate::authentication::AuthenticationPolicy;
use crate::authentication::Challenges;
use crate::mail::Letter;
use crate::mail::Mailbox;
use crate::mail::SessionSnapshot;
use crate::node::Node;
use crate::node::Nodes;
use crate::node::Portal;
use crate::node::takes_proof;
use crate::pump::Board;
use crate::pump::Pump;
use crate::reactor::Shared;
use crate::registry::Registry;
use crate::stores::Files;
use crate::strangers::ConnectionLimits;
use crate::strangers::Strangers;
use crate::volume;

/// What a [`Solo`] target needs to start.
#[derive(Debug)]
pub struct SoloPlan {
    /// The portals that it tells initiators of.
    pub portals: Vec<Portal>,
    /// What to serve. The port must know the files of the stores.
    pub nodes: Vec<Node>,
    /// What initiators have to prove in discovery sessions.
    pub discovery: AuthenticationPolicy,
    /// Data buffers.
    pub pool: Pool,
    /// A login that takes longer is closed.
    pub login_timeout: Duration,
    /// Answers to an initiator with many commands outstanding wait at most so long for others.
    pub hold_back: Duration,
    /// More sessions are refused.
    pub sessions_max: usize,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
}

/// A target of one reactor. It makes no thread, reads no clock and waits nowhere but in its port,
/// so who owns the port owns all that happens.
#[derive(Debug)]
pub struct Solo<P> {
    pub(crate) pump: Pump<P>,
    shared: Arc<Shared>,
}

impl<P: Port> Solo<P> {
    /// Serves `plan` over `port` to whoever comes to `listeners`.
    pub fn new(port: P, plan: SoloPlan, listeners: Vec<OwnedFd>) -> Self {
        let proofs = takes_proof(&plan.nodes);
        let shared = Arc::new(Shared {
            nodes: Nodes::new(plan.nodes, plan.portals, plan.discovery),
            challenges: Challenges::default(),
            registry: Registry::new(plan.sessions_max).with_room_for_proof(proofs),
            strangers: Strangers::new(plan.connections),
            mailboxes: vec![Mailbox::new(port.waker())],
            board: Board::default(),
            files: Files::default(),
            login_timeout: plan.login_timeout,
            hold_back: plan.hold_back,
        });
        let mut pump = Pump::new(port, plan.pool, Arc::clone(&shared), 0);
        pump.listen(listeners);
        Self { pump, shared }
    }

    /// Does what there is to do, then waits in the port once. False: it was stopped, and all is
    /// over.
    pub fn turn(&mut self) -> bool {
        self.pump.turn()
    }

    /// Begins to stop, see [`Target::stop`](crate::Target::stop).
    pub fn stop(&mut self, grace: Duration) {
        self.send(Letter::Stop { grace });
    }

    /// All sessions.
    pub fn sessions(&mut self) -> Vec<SessionSnapshot> {
        let (reply, replies) = mpsc::channel();
        self.send(Letter::Snapshot { reply });
        self.pump.letters();
        replies.try_recv().unwrap_or_default()
    }

    /// Begins to make a disk smaller, as [`Target::resize`](crate::Target::resize) does: hosts see
    /// so at once. What is given is told when no work is left that was under way, for then the file
    /// may be cut. None: there is no such disk, or it may have lost writes.
    pub fn begin_shrink(&mut self, target: &str, lun: u16, bytes: u64) -> Option<Receiver<()>> {
        let unit = self.unit(target, lun)?;
        let store = unit.store();
        let healths = store.files().into_iter().filter_map(|file| store.health(file));
        if healths.into_iter().any(|health| health.has_failed()) {
            return None;
        }
        volume::show_less(&unit, bytes);
        let (reply, done) = mpsc::channel();
        self.send(Letter::Drain { unit, reply });
        self.pump.letters();
        Some(done)
    }

    /// Hosts see another size of a disk, whose file has it already.
    pub fn show_size(&self, target: &str, lun: u16, bytes: u64) {
        if let Some(unit) = self.unit(target, lun) {
            volume::show(&unit, bytes);
        }
    }

    fn unit(&self, target: &str, lun: u16) -> Option<Arc<LogicalUnit>> {
        let luns = self.shared.nodes.find(target)?.luns();
        luns.into_iter().find(|(number, _)| *number == lun).map(|(_, unit)| unit)
    }

    /// What it holds now: connections, sessions, store work under way, bytes of its pool.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        self.pump.holdings()
    }

    fn send(&self, letter: Letter) {
        if let Some(mailbox) = self.shared.mailboxes.first() {
            mailbox.send(letter);
        }
    }
}

/// What a reactor holds; all zero when nobody is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Connections, of whatever phase.
    pub connections: usize,
    /// Sessions, of whatever state.
    pub sessions: usize,
    /// Store work under way.
    pub ios: usize,
    /// Task management functions under way.
    pub managements: usize,
    /// Commands that wait for others.
    pub waiting: usize,
    /// Jobs that belong to no session.
    pub jobs: usize,
    /// Bytes of the pool in use.
    pub pool_bytes: usize,
    /// Bytes of the pool that have memory, in use or not.
    pub warm_bytes: usize,
}
