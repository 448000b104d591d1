// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One session over its whole life: connections that come and go, and the requests that outlive
//! them.
//!
//! ```text
//! Connecting --stands--> Login --Done--> Up --Closed--+
//!     ^  |  fails          |  Failed                  |
//!     |  +-------+---------+--------------------------+
//!     |          v patience left?         no: Dead, every request ends with the error
//!     +------ Waiting (back-off, Time2Wait)
//! ```

mod adapter;
mod caches;
mod connection;
mod connections;
mod identity;
mod jobs;
mod leaving;
mod login;
mod mover;
mod overdue;
mod paths;
mod portals;
mod witness;

use std::time::Duration;

use ::mover::tcp::initiator::ByteCounters;
use buf::Pool;
use clock::Instant;
use engine::Port;
use iscsi::datamover::Capabilities;
use iscsi::initiator::ConnectionId;
use iscsi::initiator::Ending;
use iscsi::initiator::Function;
use iscsi::initiator::Indication;
use iscsi::initiator::LoginError;
use iscsi::initiator::LoginOutput;
use iscsi::initiator::Output;
use iscsi::initiator::Refused;
use iscsi::initiator::Session;
use iscsi::initiator::SessionError;
use slots::Slots;
use wire::iscsi::Isid;
use wire::scsi::Lun;
use wire::scsi::Sense;

use self::caches::Caches;
use self::connection::Connection;
use self::identity::Identities;
use self::jobs::Jobs;
use self::login::Identifiers;
use self::mover::Mover;
use self::portals::Portals;
use crate::Data;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::Management;
use crate::Nexus;
use crate::Oddity;
use crate::Options;
use crate::Request;
use crate::SessionId;
use crate::Transport;
use crate::connect::Attempt;
use crate::connect::EBUSY;
use crate::connect::EPERM;
use crate::limits;
use crate::options::OptionsError;
use crate::options::distinct;
use crate::options::isid;
use crate::pump::Context;

/// One session.
#[derive(Debug)]
pub(crate) struct SessionDriver {
    pub(crate) id: SessionId,
    options: Options,
    isid: Isid,
    state: State,
    /// The connections, by their place in the session.
    connections: Vec<Connection>,
    /// What those that are gone did to payload bytes.
    past: ByteCounters,
    jobs: Jobs,
    caches: Caches,
    identities: Identities,
    /// Task management functions under way: the name that the session gave it, and the caller's.
    managements: Vec<(u32, u64)>,
    /// Since when there is no session that carries anything.
    down_since: Option<Instant>,
    /// Since when there is one.
    up_since: Option<Instant>,
    /// It has carried something.
    carries: bool,
    attempts: u32,
    redirects: u32,
    portals: Portals,
    identifiers: Identifiers,
    was_up: bool,
    /// It is one path out of several ([`crate::Paths`]): what is lost with a session comes back to
    /// who chooses paths, and is not sent again here.
    hands_back: bool,
    /// The session ends for one over another portal.
    moving: bool,
    closing: bool,
    /// How long another session is tried to be had in the place of this one, which is abandoned.
    replace_until: Option<Instant>,
    /// The session of which the witness has heard, and not that it is over.
    witnessed: Option<Nexus>,
}

#[derive(Debug)]
enum State {
    Connecting(Attempt),
    /// The leading connection logs in.
    Login,
    Up(Box<Session>),
    Waiting(Instant),
    Dead(Error),
}

impl SessionDriver {
    pub(crate) fn new<P: Port>(
        id: SessionId,
        options: Options,
        refuges: Option<&[String]>,
        others: &Slots<SessionId, Self>,
        context: &mut Context<'_, P>,
    ) -> Result<Self, Error> {
        let options = options.checked().map_err(|error| Error::new(Kind::Options(error)))?;
        let mut random = [0; 6];
        context.random(&mut random)?;
        let [identifier, random @ ..] = random;
        let drawn = || {
            distinct(isid(options.enterprise, random), |isid| {
                others.values().any(|other| other.isid == isid)
            })
        };
        let isid = options.isid.unwrap_or_else(drawn);
        if others.values().any(|other| other.would_be_ended_by(isid, &options)) {
            return Err(Error::new(Kind::Options(OptionsError::IsidInUse(isid))));
        }
        let mut link = Self {
            id,
            portals: Portals::new(&options.portals).with_refuges(refuges.unwrap_or_default()),
            identifiers: Identifiers::new(identifier),
            options,
            isid,
            state: State::Waiting(context.now),
            connections: Vec::new(),
            past: ByteCounters::default(),
            jobs: Jobs::default(),
            caches: Caches::default(),
            identities: Identities::default(),
            managements: Vec::new(),
            down_since: Some(context.now),
            up_since: None,
            carries: false,
            attempts: 0,
            redirects: 0,
            was_up: false,
            hands_back: refuges.is_some(),
            moving: false,
            closing: false,
            replace_until: None,
            witnessed: None,
        };
        link.connect(context);
        Ok(link)
    }

    /// Takes a request, which [`SessionDriver::issue`] gives to the session. `awaited`: others wait
    /// for a buffer already, whoever's they are, and come first.
    pub(crate) fn post(
        &mut self,
        tag: u64,
        request: Request,
        pool: &Pool,
        awaited: bool,
    ) -> Result<(), (Error, Request)> {
        if let State::Dead(error) = &self.state {
            return Err((error.clone(), request));
        }
        if self.closing {
            return Err((self.error(Kind::Closed), request));
        }
        if self.hands_back && !self.is_up() {
            return Err((self.error(Kind::Refused(Refused::Recovering)), request));
        }
        let room = match &request.data {
            Data::In(_) if awaited => return Err((self.error(Kind::Full), request)),
            Data::In(length) => match pool.take(*length as usize) {
                Some(buf) => Some(buf),
                None => return Err((self.error(Kind::Full), request)),
            },
            Data::None | Data::Out(_) => None,
        };
        self.jobs.insert(tag, request, room);
        Ok(())
    }

    /// From now on data segments have at most `length` bytes: told to the target at once, where
    /// there is a session, and in each login.
    pub(crate) fn declare<P: Port>(
        &mut self,
        length: u32,
        context: &mut Context<'_, P>,
    ) -> Result<(), Error> {
        if let State::Dead(error) = &self.state {
            return Err(error.clone());
        }
        if let State::Up(session) = &mut self.state {
            let declared = session.declare(length, context.now);
            declared.map_err(|refused| self.error(Kind::Refused(refused)))?;
        } else {
            context.tell(Event::Declared { session: self.id, result: Ok(()) });
        }
        self.options.settings.max_recv_data_segment_length = length;
        self.settle(context);
        Ok(())
    }

    /// Starts a task management function. Whatever becomes of the session, there is one answer.
    pub(crate) fn manage<P: Port>(
        &mut self,
        tag: u64,
        management: Management,
        context: &mut Context<'_, P>,
    ) -> Result<(), Error> {
        if let State::Dead(error) = &self.state {
            return Err(error.clone());
        }
        let unit = match management {
            Management::AbortTaskSet(unit)
            | Management::ClearTaskSet(unit)
            | Management::LogicalUnitReset(unit) => Some(unit),
            Management::TargetWarmReset => None,
        };
        if let Some(other) = unit.and_then(|unit| self.identities.refusal(unit)) {
            return Err(self.error(other));
        }
        // It is about what was posted before it, too.
        self.issue(context);
        let State::Up(session) = &mut self.state else {
            return Err(self.error(Kind::Refused(Refused::Recovering)));
        };
        let lun = |lun| Lun::Unit(lun).emit();
        let function = match management {
            Management::AbortTaskSet(unit) => Function::AbortTaskSet(lun(unit)),
            Management::ClearTaskSet(unit) => Function::ClearTaskSet(lun(unit)),
            Management::LogicalUnitReset(unit) => Function::LogicalUnitReset(lun(unit)),
            Management::TargetWarmReset => Function::TargetWarmReset,
        };
        let asked = session.manage(function, context.now);
        let id = asked.map_err(|refused| self.error(Kind::Refused(refused)))?;
        self.managements.push((id, tag));
        self.settle(context);
        Ok(())
    }

    fn managed<P: Port>(&mut self, id: u32, response: Option<u8>, context: &mut Context<'_, P>) {
        let Some(at) = self.managements.iter().position(|(of, _)| *of == id) else { return };
        let (_, tag) = self.managements.swap_remove(at);
        if response.is_none() {
            self.portals.doubt();
        }
        let result = match response {
            Some(0) => Ok(()),
            Some(response) => Err(self.error(Kind::Management(response))),
            None => Err(self.error(self.cause(Kind::Ending(Ending::Lost { sent: true })))),
        };
        context.tell(Event::Managed { session: self.id, tag, result });
    }

    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    pub(crate) const fn is_dead(&self) -> bool {
        matches!(self.state, State::Dead(_))
    }

    /// Whether a session with these options and this ISID is sure to come to the same portal group
    /// (RFC 7143 §4.4.3): a portal belongs to one.
    fn would_be_ended_by(&self, isid: Isid, options: &Options) -> bool {
        let same_port = self.isid == isid && self.options.initiator == options.initiator;
        let has_portal = |portal| options.portals.contains(portal);
        let same_portal = match (&self.options.local, &options.local) {
            (Some(one), Some(other)) => one.is(other),
            _ => self.options.portals.iter().any(has_portal),
        };
        let is_over = self.closing || self.is_dead();
        !is_over && same_port && same_portal && self.options.target == options.target
    }

    /// When something is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = match &self.state {
            State::Connecting(_) | State::Login | State::Dead(_) => None,
            State::Up(session) => session.poll_timeout(),
            State::Waiting(until) => Some(*until),
        };
        let logins = self.connections.iter().filter_map(Connection::deadline);
        logins.chain(own).chain(self.jobs.deadline()).min()
    }

    /// Does what is due.
    pub(crate) fn expire<P: Port>(&mut self, context: &mut Context<'_, P>) {
        let now = context.now;
        for connection in &mut self.connections {
            connection.expire(now);
        }
        self.note_carried(context);
        match &mut self.state {
            State::Up(session) if session.poll_timeout().is_some_and(|at| at <= now) => {
                session.handle_timeout(now);
            }
            State::Waiting(until) if *until <= now => self.connect(context),
            _ => {}
        }
        self.settle(context);
        self.join_wanted(context);
        if self.jobs.wake(context) {
            self.issue(context);
        }
        self.end_overdue(context);
    }

    /// Looks whether a connection stands, and what has come over those without a socket.
    pub(crate) fn poll_connect<P: Port>(&mut self, context: &mut Context<'_, P>) {
        self.look_for_messages(context);
        self.look_for_joins(context);
        let State::Connecting(attempt) = &self.state else { return };
        let connected = match attempt.try_recv() {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => {
                let is_final = self.is_final(&error);
                return match is_final && !self.was_up && !self.closing {
                    true => self.die(Some(error), context),
                    false => self.lost(error, Duration::ZERO, context),
                };
            }
            Err(std::sync::mpsc::TryRecvError::Empty) => return,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                let error = std::io::Error::other("cannot start a thread to connect");
                return self.lost(error.into(), Duration::ZERO, context);
            }
        };
        let capabilities = self.capabilities(&connected.line);
        let login = match self.login(None, capabilities, context) {
            Ok(login) => login,
            Err(error) => return self.lost(error, Duration::ZERO, context),
        };
        let mut connection = Connection::default();
        let capture = self.options.capture.as_ref();
        connection.begin(connected, login, (self.id, self.transport()), capture, context);
        for gone in std::mem::replace(&mut self.connections, vec![connection]) {
            self.past += gone.byte_counters();
        }
        self.state = State::Login;
        self.settle(context);
    }

    /// Whether waiting for the first connection helps nobody: the interface is somebody else's, or
    /// we may not use it. A connection over IP may be refused for a while by a rule.
    fn is_final(&self, error: &Error) -> bool {
        let Kind::Unreachable { system: Some(number), .. } = error.kind() else { return false };
        *number == EBUSY || *number == EPERM && self.transport() == Transport::Ether
    }

    fn connect<P: Port>(&mut self, context: &mut Context<'_, P>) {
        let (first, others) = self.portals.next();
        self.attempts += 1;
        self.state = State::Connecting(match &self.options.local {
            Some(target) => context.connect_local(target),
            None => context.connect(self.transport(), first, others),
        });
    }

    /// Carries everything that the machines have to say.
    fn settle<P: Port>(&mut self, context: &mut Context<'_, P>) {
        context.mark_dirty(self.id);
        while let Some((at, output)) = self.next_login_output() {
            self.login_output(at, output, context);
        }
        while let State::Up(session) = &mut self.state {
            let Some((at, output)) = session.poll_output_at() else { return };
            self.session_output(at, output, context);
        }
    }

    /// What a login has to say, and on which connection.
    fn next_login_output(&mut self) -> Option<(ConnectionId, LoginOutput)> {
        let logins = self.connections.iter_mut().zip(0..);
        let mut outputs =
            logins.filter_map(|(connection, at)| Some((ConnectionId(at), connection.poll()?)));
        outputs.next()
    }

    fn login_output<P: Port>(
        &mut self,
        at: ConnectionId,
        output: LoginOutput,
        context: &mut Context<'_, P>,
    ) {
        match (output, &self.state) {
            (LoginOutput::Op(op), _) => self.submit(at, op),
            (output, State::Up(_)) => self.join_ended(at, output, context),
            (output, _) => self.leading_ended(output, context),
        }
    }

    /// The login of the leading connection is over.
    fn leading_ended<P: Port>(&mut self, output: LoginOutput, context: &mut Context<'_, P>) {
        match output {
            LoginOutput::Op(_) => {}
            LoginOutput::Done(login) => {
                let portal = self.connections.first().map(Connection::portal).unwrap_or_default();
                let portal = portal.to_owned();
                if !self.portals.ends_the_last(&portal, login.portal_group_tag) {
                    return self.not_taken(&portal, Kind::GroupUntold, context);
                }
                if let Err(why) = self.witness(&portal, login.portal_group_tag) {
                    let kind = Kind::NotRemembered(why);
                    return match self.was_up || self.closing {
                        true => self.not_taken(&portal, kind, context),
                        // Another try would be told the same.
                        false => {
                            self.hang_up(context);
                            self.die(Some(self.error(kind)), context);
                        }
                    };
                }
                let is_refuge = self.portals.is_refuge(&portal);
                if self.hands_back && self.portals.is_in_doubt() {
                    context.tell(Event::Settled { session: self.id });
                }
                self.portals.is_up(&portal, login.portal_group_tag);
                if let Some(got) = login.foreign_isid {
                    let (session, asked) = (self.id, self.isid);
                    context.tell(Event::Oddity { session, oddity: Oddity::Isid { asked, got } });
                }
                if let Some(connection) = self.connections.first_mut() {
                    connection.finish_login(&login);
                }
                let mover = self.connections.first().map(|connection| &connection.mover);
                let capabilities = mover.map_or(Capabilities::STREAM, Mover::capabilities);
                let settings = self.options.settings.clone().within(capabilities);
                let mut session = Session::new(*login, &settings, context.now);
                if self.options.target.is_none() {
                    let asked = session.send_targets(context.now);
                    debug_assert!(asked.is_ok(), "nothing is under way in a new session");
                }
                self.state = State::Up(Box::new(session));
                if !self.was_up {
                    (self.was_up, self.down_since) = (true, None);
                }
                (self.up_since, self.carries, self.redirects) = (Some(context.now), false, 0);
                self.jobs.is_up(context.now);
                self.caches.is_up();
                self.identities.is_up();
                if is_refuge && !self.closing {
                    return self.leave_refuge(context);
                }
                if let Some(connection) = self.connections.first() {
                    context.tell(Event::Up { session: self.id, peer: connection.peer() });
                }
                match self.closing {
                    true => self.close(context),
                    false => self.issue(context),
                }
            }
            LoginOutput::Redirected { address, permanent } => {
                self.hang_up(context);
                self.redirects += 1;
                if self.redirects > limits::REDIRECTS_MAX {
                    let error = self.error(Kind::Redirections(address));
                    return match self.closing {
                        true => self.lost(error, Duration::ZERO, context),
                        false => self.die(Some(error), context),
                    };
                }
                self.portals.moved(&address, permanent);
                self.connect(context);
            }
            LoginOutput::Failed(error) => {
                let hopeless = !error.is_transient() && !self.may_come_back(&error);
                let group = match error {
                    LoginError::PortalGroup { got, .. } => Some(got),
                    _ => None,
                };
                self.portals.failed(self.connections.first().map(Connection::portal), group);
                self.hang_up(context);
                let error = self.error(match error {
                    LoginError::PortalGroup { got, expected } => Kind::Fenced { got, expected },
                    error => Kind::Login(error),
                });
                if hopeless && !self.closing {
                    return self.die(Some(error), context);
                }
                self.lost(error, Duration::ZERO, context);
            }
        }
    }

    /// The login over `portal` has succeeded, and makes no session that can be used.
    fn not_taken<P: Port>(&mut self, portal: &str, kind: Kind, context: &mut Context<'_, P>) {
        self.portals.failed(Some(portal), None);
        self.hang_up(context);
        self.lost(self.error(kind), Duration::ZERO, context);
    }

    /// A target that was there before may be absent while its server starts, and its portal group
    /// behind another portal.
    const fn may_come_back(&self, error: &LoginError) -> bool {
        use LoginError as E;
        self.was_up && matches!(error, E::Refused(0x0203) | E::Stream(_) | E::PortalGroup { .. })
    }

    fn session_output<P: Port>(
        &mut self,
        at: ConnectionId,
        output: Output,
        context: &mut Context<'_, P>,
    ) {
        match output {
            Output::Op(op) => self.session_op(at, op, context),
            Output::Indication(indication) => self.indicate(indication, context),
            Output::Closed { error, time2wait } => {
                if error == SessionError::LoggedOut {
                    for mut connection in self.connections.drain(..) {
                        connection.part(context);
                        self.past += connection.byte_counters();
                    }
                    self.portals.settle();
                    return self.die(None, context);
                }
                self.hang_up(context);
                if self.closing {
                    return self.lost(self.error(Kind::Session(error)), time2wait, context);
                }
                if std::mem::take(&mut self.moving) && error == SessionError::LogoutRequested {
                    return self.moved(context);
                }
                // Another session would be asked the same.
                let is_mute = matches!(error, SessionError::TextTimeout(_));
                let error = self.error(Kind::Session(error));
                if is_mute && self.options.target.is_none() {
                    return self.die(Some(error), context);
                }
                self.lost(error, time2wait, context);
            }
        }
    }

    fn indicate<P: Port>(&mut self, indication: Indication, context: &mut Context<'_, P>) {
        let session = self.id;
        match indication {
            Indication::Ended { task, outcome } => self.ended(task, outcome, context),
            Indication::Overdue { task, step } => self.overdue(task, step, context),
            Indication::Managed { id, response } => self.managed(id, response, context),
            Indication::Targets(result) => {
                self.carries = true;
                let result = result.map_err(|error| self.error(Kind::Discovery(error)));
                context.tell(Event::Targets { session, result });
            }
            Indication::TargetsRejected(reason) => {
                let result = Err(self.error(Kind::DiscoveryRejected(reason)));
                context.tell(Event::Targets { session, result });
            }
            Indication::Declared(result) => {
                let result = result.map_err(|error| self.error(Kind::Declaration(error)));
                context.tell(Event::Declared { session, result });
            }
            Indication::Asynchronous { lun, sense } => {
                if let (Some(Lun::Unit(lun)), Some(sense)) = (Lun::parse(lun), Sense::parse(&sense))
                {
                    self.caches.told(lun, sense);
                    if let Some(fate) = self.caches.take_loss() {
                        context.tell(Event::MayHaveLost { session, lun, fate });
                    }
                }
                context.tell(Event::Asynchronous { session, lun, sense });
            }
        }
    }

    /// There is no session: another try, as long as there is patience.
    fn lost<P: Port>(&mut self, error: Error, wait: Duration, context: &mut Context<'_, P>) {
        let now = context.now;
        // One that ended before anything was answered was none: a target may log us in and hang up
        // for ever. In a discovery session there is always something asked.
        let may_be_idle = self.options.target.is_some();
        if let Some(up) = self.up_since.take()
            && (self.carries || may_be_idle && now.since(up) >= limits::SESSION_MIN)
        {
            (self.down_since, self.attempts) = (None, 0);
        }
        let since = *self.down_since.get_or_insert(now);
        if self.closing {
            return self.lost_while_closing(error, context);
        }
        let left = self.patience().saturating_sub(now.since(since));
        if left.is_zero() {
            return self.die(Some(error), context);
        }
        let pause = self.pause(limits::BACKOFF_MAX);
        let pause = if self.attempts == 0 { wait } else { pause.max(wait) };
        // The last try is at the end of the patience.
        self.state = State::Waiting(now + pause.min(left));
        if self.hands_back {
            let unsent = self.error(Kind::Ending(Ending::Lost { sent: false }));
            self.end_requests(&unsent, context);
        }
        context.tell(Event::Down { session: self.id, error });
    }

    /// The end: every request gets its last word.
    fn die<P: Port>(&mut self, error: Option<Error>, context: &mut Context<'_, P>) {
        let last = error.clone().unwrap_or_else(|| self.error(Kind::Closed));
        self.state = State::Dead(last.clone());
        self.identities.clear();
        self.end_requests(&last, context);
        context.tell(Event::Ended { session: self.id, error });
    }

    fn end_requests<P: Port>(&mut self, last: &Error, context: &mut Context<'_, P>) {
        let jobs = self.jobs.take_all(context);
        for job in jobs.into_iter().filter(|job| job.question.is_none()) {
            let error = last.at_lun(job.request.lun).during(&job.request.cdb);
            context.tell(Event::Done { session: self.id, tag: job.tag, result: Err(error) });
        }
        for (_, tag) in self.managements.drain(..) {
            context.tell(Event::Managed { session: self.id, tag, result: Err(last.clone()) });
        }
    }

    /// Closes all connections. What the port still tells of them meets no link.
    fn hang_up<P: Port>(&mut self, context: &mut Context<'_, P>) {
        for mut connection in self.connections.drain(..) {
            connection.hang_up(context);
            self.past += connection.byte_counters();
        }
    }

    fn error(&self, kind: Kind) -> Error {
        Error::new(kind).at_target(self.options.target.as_deref())
    }
}
