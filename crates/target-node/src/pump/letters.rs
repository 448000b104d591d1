// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What other reactors and administration ask of this one, by letters, and its answers.

use clock::Instant;
use engine::Port;
use wire::iscsi::Tsih;

use super::Phase;
use super::Pump;
use super::letter::Letter;
use super::transport::Carrier;
use super::view::SessionView;
use crate::registry::Identity;
use crate::table::Key;

impl<P: Port> Pump<P> {
    pub(super) fn letters(&mut self) {
        if self.context.shared.mailboxes[self.context.reactor].take_stirred() {
            self.context.waiting.somebody_ended();
        }
        while let Some(letter) = self.context.shared.mailboxes[self.context.reactor].take() {
            match letter {
                Letter::Connection { fd, ends } => self.adopt(Carrier::Socket(fd, None), ends),
                Letter::Incoming(incoming) => self.take_in(incoming),
                Letter::Local { end, ends } => self.adopt(Carrier::from(end), ends),
                Letter::TakeOver(handover) => self.take_over(*handover),
                Letter::Reinstate { identity, tsih, reactor, connection } => {
                    self.make_room(&identity, tsih, (reactor, connection));
                }
                Letter::Evict { connection } => self.evict(connection),
                Letter::Vacated { connection } => self.go_on_joining(connection),
                Letter::AbortUnits { units, effect, whose, reactor, management } => {
                    self.abort_units(&units, effect, &whose, (reactor, management));
                }
                Letter::UnitsAborted { management } => self.done_elsewhere(management),
                Letter::EndSessions { target } => self.end_sessions(&target),
                Letter::Drain { unit, reply } => self.drain(&unit, reply),
                Letter::EndTasks { unit, reply } => self.end_tasks_of(&unit, reply),
                // Who asked for one of these may have given up.
                Letter::Remap { target, reply } => {
                    self.remap(&target);
                    let _ = reply.send(());
                }
                Letter::AddFile { file, reply } => {
                    let _ = reply.send(self.context.port.add_file(file.id.0, file.fd, file.direct));
                }
                Letter::RemoveFile { id, reply } => {
                    self.context.port.remove_file(id.0);
                    let _ = reply.send(());
                }
                Letter::Drop { tsih, reply } => {
                    let found = self.with_session(tsih, |session, _| session.drop_session());
                    let _ = reply.send((self.context.reactor, found));
                }
                Letter::Logout { tsih, seconds, reply } => {
                    let found = self.with_session(tsih, |session, now| {
                        session.set_now(now);
                        session.request_logout(seconds);
                    });
                    let _ = reply.send((self.context.reactor, found));
                }
                Letter::Review { nodes, ending, reply } => {
                    let _ = reply.send(self.review(&nodes, ending));
                }
                Letter::Listen { fd, address, reply } => {
                    self.listen(fd, address);
                    let _ = reply.send(());
                }
                Letter::Unlisten { address, reply } => self.unlisten(address, reply),
                Letter::Trace { trace } => self.begin_trace(trace),
                Letter::Untrace { trace } => self.end_trace(&trace),
                Letter::Figures { reply } => {
                    let _ = reply.send(self.figures());
                }
                Letter::Stop { grace } => self.stop(grace),
            }
        }
    }

    /// A login of another reactor reinstates the session `tsih`, if it is of the same initiator.
    fn make_room(&mut self, identity: &Identity, tsih: Tsih, (reactor, connection): (usize, Key)) {
        let found = self.session_by_tsih(tsih).filter(|of| of.session.identity == *identity);
        match found.map(|view| view.key) {
            Some(key) => self.reinstate(key, (reactor, connection)),
            None => self.context.shared.mailboxes[reactor].send(Letter::Vacated { connection }),
        }
    }

    /// Does `what` with a session and carries what it has to say; false if it is not here.
    fn with_session(
        &mut self,
        tsih: Tsih,
        what: impl FnOnce(&mut iscsi::target_role::Session, Instant),
    ) -> bool {
        let Some(view) = self.session_by_tsih(tsih) else { return false };
        what(&mut view.session.machine, view.context.port.now());
        let key = view.key;
        self.settle(key);
        true
    }

    /// The sessions of a target see the units that it has now.
    fn remap(&mut self, target: &str) {
        let nodes = self.context.shared.catalogue.now();
        let Some(served) = nodes.find(target) else { return };
        for session in self.sessions.values_mut() {
            if session.login.target.as_deref() == Some(target) {
                session.remap(served);
            }
        }
    }

    fn session_by_tsih(&mut self, tsih: Tsih) -> Option<SessionView<'_, P>> {
        let (key, _) = self.sessions.iter().find(|(_, entry)| entry.tsih == tsih)?;
        self.session(key)
    }

    /// Panics if an invariant of a session does not hold.
    pub(crate) fn check_sessions(&self) {
        assert!(self.context.effects.is_empty(), "what an event means for others is carried out");
        let messages = self.connections.iter().map(|(_, connection)| connection.messages).sum();
        let lent = self.sessions.iter().map(|(_, session)| &session.lent);
        self.context.owed.check(lent, messages);
        for (_, session) in self.sessions.iter() {
            session.machine.check();
        }
        for (_, connection) in self.connections.iter() {
            if let Phase::Session { session, .. } = connection.phase {
                assert!(self.sessions.get(session).is_some(), "it closes with its session");
            }
        }
        for (_, io) in self.context.ios.iter().filter(|(_, io)| io.session != Key::NOBODY) {
            let session = self.sessions.get(io.session);
            let may_be_gone = io.patience.is_over();
            assert!(session.is_some() || may_be_gone, "a session stays until its work is done");
            let task = session.and_then(|of| of.tasks.get(io.task.index as usize)?.as_ref());
            let is_there = task.is_some_and(|task| task.id == io.task);
            assert!(!may_be_gone || io.ended.is_some(), "what is wanted is waited for");
            assert_ne!(is_there, io.ended.is_some(), "work knows whether its task has ended");
        }
    }
}
