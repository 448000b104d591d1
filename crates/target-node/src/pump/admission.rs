// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an accepted connection to a session: login, access, the ISID rule (RFC 7143 §6.3).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use engine::Port;
use iscsi::target_role::Admission;
use iscsi::target_role::AdmissionRequest;
use iscsi::target_role::Authentication;
use iscsi::target_role::ConnectionId;
use iscsi::target_role::LoggedIn;
use iscsi::target_role::Login;
use iscsi::target_role::LoginOutput;
use iscsi::target_role::reason_of;
use mover::Mover;
use mover::iser;
use wire::iscsi::Cid;
use wire::iscsi::StatSn;
use wire::iscsi::Tsih;

use super::Connection;
use super::Followers;
use super::Kind;
use super::Phase;
use super::Pump;
use super::Session;
use super::adapters::Entrance;
use super::context::Context;
use super::course::Courses;
use super::held::Held;
use super::letter::Letter;
use super::listening::Listener;
use super::owed::Lent;
use super::tally::Took;
use super::token;
use super::transport::Carrier;
use super::transport::Line;
use super::view::ConnectionView;
use super::view::never;
use crate::catalogue::Outdated;
use crate::catalogue::Terms;
use crate::ends::Ends;
use crate::ends::Peer;
use crate::ends::without_mapping;
use crate::events::Event;
use crate::node::PORTAL_GROUP_TAG;
use crate::rdma::Rdma;
use crate::registry::Claim;
use crate::registry::Identity;
use crate::registry::Scope;
use crate::served::Served;
use crate::strangers::ConnectionPlace;
use crate::strangers::Entry;
use crate::table::Key;
use crate::table::Table;

/// Login statuses that the node gives (RFC 7143 §11.13.5).
pub(super) const SESSION_DOES_NOT_EXIST: u16 = 0x020a;
pub(super) const OUT_OF_RESOURCES: u16 = 0x0302;
pub(super) const AUTHENTICATION_FAILURE: u16 = 0x0201;

/// Connections that one reactor holds; more are closed at once. Each may cost a session's memory.
const CONNECTIONS_MAX: usize = 16_384;

/// A connection whose login is under way.
#[derive(Debug)]
pub(super) struct LoginPhase {
    pub(super) machine: Login,
    /// The first byte that has come, if any has.
    pub(super) first: Option<u8>,
    /// Whether its portal speaks iSER, too.
    pub(super) rdma: Rdma,
    /// The mover that follows when the login is done.
    pub(super) successor: Option<Box<iser::Target>>,
    /// The names that it came with: initiator, target.
    asked: Option<(String, Option<String>)>,
    identity: Option<Identity>,
    /// On what it is let in, and the portal group that it came to: all of one generation of what
    /// is served.
    terms: Option<Terms>,
    group: u16,
    settings: Option<iscsi::target_role::Settings>,
    /// Whom the initiator has proved to be, by CHAP.
    user: Option<String>,
    /// The place that this login has taken in the registry.
    claimed: Option<Tsih>,
    /// It has none, since a limit lets its initiator have so many sessions.
    limited: Option<usize>,
    /// The CID that it wants to join with.
    pub(super) cid: Cid,
    /// The session here that this login wants to join, or the status that it gets once it has
    /// proved who it is: strangers are not told which sessions there are.
    pub(super) joins: Option<Result<Key, u16>>,
}

impl LoginPhase {
    /// Whether it begins with MPA, or would.
    pub(super) fn begins_with_rdma(&self) -> bool {
        self.first == Some(iser::FIRST_BYTE)
    }

    /// Who asks for which target, as far as that was said.
    fn asked(&self) -> (&str, &str) {
        let (initiator, target) =
            self.asked.as_ref().map_or((None, None), |(initiator, target)| {
                (Some(initiator.as_str()), target.as_deref())
            });
        (initiator.unwrap_or("(unknown)"), target.unwrap_or("(none)"))
    }
}

/// Where connections come in.
#[derive(Debug, Default)]
pub(super) struct Door {
    pub(super) listeners: Table<Listener>,
    /// Where adapters take connections.
    pub(super) adapters: Table<Entrance>,
    /// Connections so far: the reactors take them in turn.
    accepted: usize,
}

/// A connection whose login is under way.
pub(super) struct LoginView<'a, P> {
    key: Key,
    pub(super) login: &'a mut LoginPhase,
    pub(super) mover: &'a mut Mover,
    dirty: &'a mut bool,
    peer: Peer,
    local: SocketAddr,
    followers: &'a mut Option<Box<Followers>>,
    pub(super) sessions: &'a mut Table<Session>,
    pub(super) context: &'a mut Context<P>,
}

/// The connection must go to this reactor, where the session lives that it wants to join.
pub(super) struct Elsewhere {
    pub(super) reactor: usize,
}

impl<P: Port> Pump<P> {
    /// A new connection: this reactor's own, or a letter to the next one in turn.
    pub(super) fn accepted(&mut self, fd: OwnedFd, ends: Ends) {
        if self.context.stopping.is_some() {
            return;
        }
        let reactor = self.next_reactor();
        if reactor == self.context.reactor {
            self.adopt(Carrier::Socket(fd, None), ends);
        } else {
            self.context.shared.mailboxes[reactor].send(Letter::Connection { fd, ends });
        }
    }

    /// Which takes the next connection.
    pub(super) fn next_reactor(&mut self) -> usize {
        let reactor = self.door.accepted % self.context.shared.mailboxes.len();
        self.door.accepted += 1;
        reactor
    }

    /// Begins the login phase of a connection.
    pub(super) fn adopt(&mut self, carrier: Carrier, ends: Ends) {
        if let Some(mover) = carrier.mover()
            && !self.refuses(&ends)
        {
            let _ = self.begin_login(carrier, mover, ends);
        }
    }

    /// Whether there are as many connections as there may be.
    pub(super) fn refuses(&self, ends: &Ends) -> bool {
        if self.is_full() {
            let peer = ends.peer;
            let reason = match self.context.stopping {
                Some(_) => "the daemon stops",
                None => "a reactor has as many connections as it may have",
            };
            tracing::warn!(%peer, reason, "refused a connection");
        }
        self.is_full()
    }

    /// Begins the login phase of a connection with its mover.
    pub(super) fn begin_login(
        &mut self,
        mut carrier: Carrier,
        mover: Mover,
        ends: Ends,
    ) -> Option<Key> {
        let Ends { peer, local } = ends;
        let now = self.context.port.now();
        let shared = &self.context.shared;
        let timeout = shared.login_timeout;
        let ends = Ends { peer: peer.without_mapping(), local: without_mapping(local) };
        let rdma = shared.catalogue.now().rdma(ends.local).unwrap_or(shared.rdma);
        let capabilities = match &mover {
            Mover::Tcp(_) => rdma.stream(),
            mover => mover.capabilities(),
        };
        let machine = Login::new(now, StatSn(1), timeout, capabilities);
        let login = LoginPhase {
            machine,
            first: None,
            rdma,
            successor: None,
            asked: None,
            identity: None,
            terms: None,
            group: PORTAL_GROUP_TAG,
            settings: None,
            user: None,
            claimed: None,
            limited: None,
            cid: Cid(0),
            joins: None,
        };
        carrier.be_captured(&self.context, ends);
        self.insert_connection(carrier, ends, mover, Box::new(login))
    }

    /// Whether another connection is one too many.
    pub(super) fn is_full(&self) -> bool {
        self.connections.len() >= CONNECTIONS_MAX || self.context.stopping.is_some()
    }

    /// Goes on with a login over this connection.
    pub(super) fn insert_connection(
        &mut self,
        carrier: Carrier,
        Ends { peer, local }: Ends,
        mover: Mover,
        login: Box<LoginPhase>,
    ) -> Option<Key> {
        let is_local = carrier.is_local();
        let line = Line::open(carrier, &mut self.context.port);
        let key = self.connections.insert(Connection {
            line,
            peer,
            local,
            mover,
            pool: self.context.pool.clone(),
            phase: Phase::Login(login),
            ticket: None,
            dirty: false,
            paused: false,
            messages: 0,
            lands: false,
            ended: false,
            held_until: None,
            told: StatSn(0),
            progress: super::sweep::Progress::default(),
            followers: None,
        });
        if self.context.is_observed
            && let Some(connection) = self.connections.get_mut(key)
        {
            connection.followers = self.context.follow_new(key, Ends { peer, local });
        }
        let place = ConnectionPlace { reactor: self.context.reactor, connection: key };
        match self.context.shared.strangers.enter(peer.ip(), place) {
            Entry::In { ticket, instead_of } => {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.ticket = Some(ticket);
                }
                self.make_leave(instead_of);
            }
            Entry::Full => {
                tracing::debug!(%peer, "refused a connection: all are in use by sessions");
                if let Some(connection) = self.connections.remove(key) {
                    connection.line.close(&mut self.context.port);
                }
                return None;
            }
        }
        self.context.sweep_later();
        if is_local {
            self.context.locals.push(key);
        }
        if let Some(view) = self.connection(key) {
            view.connection.line.begin(token(Kind::Receive, key), &mut view.context.port);
        }
        self.arm_login(key);
        Some(key)
    }

    /// A stranger makes room, on whichever reactor it is.
    fn make_leave(&mut self, stranger: Option<ConnectionPlace>) {
        match stranger {
            Some(ConnectionPlace { reactor, connection }) if reactor == self.context.reactor => {
                self.evict(connection);
            }
            Some(ConnectionPlace { reactor, connection }) => {
                self.context.shared.mailboxes[reactor].send(Letter::Evict { connection });
            }
            None => {}
        }
    }

    /// Ends the connection of a stranger, unless it is known by now who that is.
    pub(super) fn evict(&mut self, key: Key) {
        let Some(ConnectionView { connection, .. }) = self.connection(key) else { return };
        if connection.ticket.is_some() {
            tracing::debug!(peer = %connection.peer, "closed a connection: too many strangers");
            self.disconnected(key, None);
        }
    }

    /// None: it has become a session's, moves to another reactor, closes, or is gone.
    pub(super) fn login(&mut self, key: Key) -> Option<LoginView<'_, P>> {
        let Connection { phase, mover, dirty, peer, local, followers, .. } =
            self.connections.get_mut(key)?;
        let Phase::Login(login) = phase else { return None };
        let (peer, local) = (*peer, *local);
        let (sessions, context) = (&mut self.sessions, &mut self.context);
        Some(LoginView { key, login, mover, dirty, peer, local, followers, sessions, context })
    }

    pub(super) fn arm_login(&mut self, key: Key) {
        if let Some(view) = self.login(key)
            && let Some(deadline) = view.login.machine.poll_timeout()
        {
            view.context.timers.set(token(Kind::ConnectionTimer, key).0, deadline);
        }
    }

    /// Carries everything that a login has to say.
    pub(super) fn settle_login(&mut self, key: Key) {
        while let Some(mut view) = self.login(key) {
            match view.login.machine.poll_output() {
                None => break,
                Some(LoginOutput::Op(op)) => {
                    if let Some(followers) = view.followers {
                        followers.said(view.context.port.wall_clock(), &op, view.mover);
                    }
                    view.mover.submit(op);
                    view.context.sending.mark(key, view.dirty);
                }
                Some(LoginOutput::Admit(request)) => match view.admit(&request) {
                    Ok(admission) => view.login.machine.admit(admission),
                    Err(Elsewhere { reactor }) => self.move_login(key, reactor, request),
                },
                Some(LoginOutput::Establish) => self.establish(key),
                Some(LoginOutput::Done(login)) => {
                    view.context.tally.visits.logins += 1;
                    let joins = view.login.joins;
                    self.go_on_with_rdma(key, &login);
                    match joins {
                        Some(Ok(session)) => self.joined(key, session, &login),
                        _ => self.enter(key, login),
                    }
                }
                Some(LoginOutput::Failed { status, reason }) => {
                    view.tell_failure(status, &reason);
                    let visits = &mut view.context.tally.visits;
                    visits.note_failure(status);
                    visits.limited += u64::from(view.login.limited.is_some());
                    self.abandon_login(key);
                }
            }
        }
    }

    /// A login asks for its place, when all is proved that has to be, or goes on when the place is
    /// free; the connection may have gone meanwhile.
    pub(super) fn establish(&mut self, key: Key) {
        if let Some(mut view) = self.login(key)
            && view.prepare_rdma()
            && let Some(session) = view.establish()
        {
            // Of which it takes the place of a connection.
            self.settle(session);
            self.quiesce_for_join(key);
        }
    }

    /// A finished login becomes a session.
    fn enter(&mut self, key: Key, login: LoggedIn) {
        if let Some(mut view) = self.connection(key)
            && let Some((session, outdated)) = view.enter(login)
        {
            self.settle(session);
            if let Some(why) = outdated {
                self.end_outdated(session, why, 0);
            }
        }
    }

    /// A login ends without a session.
    pub(super) fn abandon_login(&mut self, key: Key) {
        if let Some(mut view) = self.connection(key) {
            view.abandon_login();
        }
    }
}

impl<P: Port> LoginView<'_, P> {
    fn tell_failure(&self, status: Option<u16>, reason: &str) {
        let peer = self.peer;
        match status {
            Some(status) => {
                let status = format_args!("{status:04x}");
                let (initiator, target) = self.login.asked();
                let limit = self.login.limited;
                let reason = match limit {
                    Some(_) => "a limit lets the initiator have no more sessions",
                    None => reason,
                };
                tracing::warn!(
                    name: Event::Refusal.name(), %peer, initiator, target, status, limit, reason,
                    "login refused"
                );
            }
            None => {
                let reason = match self.login.begins_with_rdma() && self.login.rdma == Rdma::Off {
                    true => "it begins with MPA, as iSER does, which this portal does not speak",
                    false => reason,
                };
                tracing::info!(%peer, reason, "connection closed before login");
            }
        }
    }

    /// Whether this initiator may log in to this target, and as what.
    ///
    /// # Errors
    /// It wants to join a session of another reactor.
    pub(super) fn admit(&mut self, request: &AdmissionRequest) -> Result<Admission, Elsewhere> {
        self.login.asked = Some((request.initiator.clone(), request.target.clone()));
        let Context { shared, port, .. } = &mut *self.context;
        let nodes = shared.catalogue.now();
        let group = nodes.portal_group(self.local);
        let identity = Identity::of(request, self.local, group);
        let draw = || shared.challenges.draw(|bytes| port.random(bytes));
        let admission = nodes.admit(request, group, draw);
        let joins = match &admission {
            Admission::Granted { authentication, .. } if request.tsih != Tsih(0) => {
                match self.find_session(request, &identity)? {
                    Err(status) if matches!(authentication, Authentication::Off) => {
                        return Ok(Admission::Refused { status, reason: reason_of(status) });
                    }
                    joins => Some(joins),
                }
            }
            _ => None,
        };
        self.login.joins = joins;
        if let Admission::Granted { settings, .. } = &admission {
            self.login.settings = Some(settings.clone());
            let target = request.target.as_deref();
            // What was granted has terms.
            self.login.terms = nodes.terms(&request.initiator, target, request.discovery).ok();
            self.login.group = group;
        }
        self.login.identity = Some(identity);
        Ok(admission)
    }

    /// Takes the session's place in the registry; an older session in it is ended first (RFC 7143
    /// §6.3.5). A login that joins a session gives that one if it must end another connection of it
    /// before.
    fn establish(&mut self) -> Option<Key> {
        let login = &mut *self.login;
        match login.joins {
            Some(Ok(session)) => return self.join(session),
            Some(Err(status)) => {
                login.machine.establish(Err(status));
                return None;
            }
            None => {}
        }
        let identity = login.identity.clone();
        debug_assert!(identity.is_some(), "who was admitted has a name");
        let identity = identity?;
        login.user = login.machine.authenticated().map(ToOwned::to_owned);
        let Context { shared, reactor: here, .. } = &*self.context;
        let most = match &identity.scope {
            Scope::Target(name, _) => shared.limits.sessions_max(name, &identity.initiator),
            _ => None,
        };
        let place = (&identity, most);
        match shared.registry.claim(place, login.user.as_deref(), *here) {
            Claim::New(tsih) => {
                login.claimed = Some(tsih);
                login.machine.establish(Ok(tsih));
            }
            Claim::Exhausted => login.machine.establish(Err(OUT_OF_RESOURCES)),
            Claim::TooMany => {
                login.limited = most;
                login.machine.establish(Err(OUT_OF_RESOURCES));
            }
            Claim::Foreign => login.machine.establish(Err(AUTHENTICATION_FAILURE)),
            Claim::Occupied(home) => {
                let (tsih, reactor, connection) = (home.tsih, *here, self.key);
                let letter = Letter::Reinstate { identity, tsih, reactor, connection };
                shared.mailboxes[home.reactor].send(letter);
            }
        }
        None
    }
}

impl<P: Port> ConnectionView<'_, P> {
    /// A finished login becomes a session; None if it has no place. Gives why it would not be let
    /// in any more, if so.
    fn enter(&mut self, login: LoggedIn) -> Option<(Key, Option<Outdated>)> {
        let now = self.context.port.now();
        let connection = &mut *self.connection;
        let Phase::Login(phase) = &mut connection.phase else { return None };
        let place = (phase.identity.take(), phase.settings.take(), phase.claimed.take());
        let ((Some(identity), Some(settings), Some(tsih)), Some(terms)) =
            (place, phase.terms.take())
        else {
            never("a login is done when it has its place");
            return None;
        };
        // What is served may have become another while the login went on. What is exchanged from
        // here on finds the session in the table.
        let nodes = self.context.shared.catalogue.now();
        let (initiator, target) = (&login.initiator, login.target.as_deref());
        let has_proved = phase.user.is_some();
        let reviewed = nodes.review(&terms, initiator, target, login.discovery, has_proved);
        let (terms, outdated) = match reviewed {
            Ok(terms) => (terms, None),
            Err(why) => (terms, Some(why)),
        };
        let served = terms.served().filter(|_| !login.discovery);
        let nexus = served.map(|served| nexus(served, &login, phase.group));
        tracing::info!(
            name: Event::Login.name(),
            peer = %connection.peer,
            initiator = login.initiator,
            target = login.target.as_deref().unwrap_or("(discovery)"),
            user = phase.user.as_deref().unwrap_or("(none)"),
            tsih = tsih.0,
            reactor = self.context.reactor,
            "session opened"
        );
        connection.lands = login.capabilities.lands
            && login.parameters.error_recovery_level == 0
            && !connection.line.is_captured();
        // Discovery without a proof may be anybody, and needs no more than a moment.
        let is_known = !login.discovery || phase.user.is_some();
        let pool = self.context.pool.share();
        connection.pool = pool.clone();
        let session = self.sessions.insert(Session {
            machine: iscsi::target_role::Session::new(login.clone(), &settings, now),
            nexus,
            pool,
            login,
            terms,
            identity,
            user: phase.user.take(),
            tsih,
            since: now,
            peer: connection.peer,
            connections: vec![self.key],
            tasks: Vec::new(),
            courses: Courses::default(),
            held: Held::default(),
            awaiting_memory: std::collections::VecDeque::new(),
            exchanges: Vec::new(),
            owed: 0,
            lent: Lent::default(),
            paid: now,
            ios: 0,
            waiters: Vec::new(),
            closed: false,
            to_arm: false,
            commands: 0,
            bytes_in: 0,
            bytes_out: 0,
            took: Took::default(),
        });
        self.context.owed.open();
        if let (Some(followers), Some(entry)) =
            (&mut connection.followers, self.sessions.get(session))
        {
            followers.know(self.context.port.wall_clock(), &entry.who());
        }
        connection.phase = Phase::Session { session, id: ConnectionId(0) };
        if is_known && let Some(ticket) = connection.ticket.take() {
            self.context.shared.strangers.forget(&ticket);
        }
        Some((session, outdated))
    }

    /// A login, if it is one, ends without a session: its place is free again, the connection
    /// closes.
    pub(super) fn abandon_login(&mut self) {
        let Phase::Login(login) = &mut self.connection.phase else { return };
        let claim = login.identity.take().zip(login.claimed.take());
        if let Some((identity, tsih)) = claim {
            self.context.shared.registry.release(&identity, tsih);
        }
        self.context.begin_closing(self.key, self.connection);
    }
}

/// The I_T nexus of a session (RFC 7143 §4.4.2: names of SCSI ports and devices).
fn nexus(served: &Served, login: &LoggedIn, portal_group_tag: u16) -> scsi::Nexus {
    let names = scsi::NexusNames {
        initiator_port: iscsi::name::initiator_port(&login.initiator, login.isid),
        target_device: served.node().name.clone(),
        portal_group_tag,
        relative_port: portal_group_tag,
    };
    let newer = login.parameters.protocol_level >= 2;
    let queries = if newer { scsi::Queries::All } else { scsi::Queries::None };
    scsi::Nexus::new(names, served.lun_map(&login.initiator)).with_queries(queries)
}
