// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections over RDMA adapters. An adapter takes posts and tells what it has done, without a
//! socket: of the port it needs only to be woken.

use buf::SgList;
use engine::Port;
use engine::Socket;
use mover::iser;
use rdma::adapter::Done;
use rdma::adapter::Post;
use wire::iscsi::StatSn;

use super::SessionDriver;
use super::connection::Path;
use super::mover::Mover;
use crate::Event;
use crate::SessionId;
use crate::pump::Context;

/// What carries a connection over an adapter.
#[derive(Debug)]
pub(super) struct Adapter {
    connection: Box<dyn verbs::Adapter>,
    /// What wakes the port.
    watched: Socket,
    /// Is never filled.
    list: SgList,
}

impl Adapter {
    /// Over a connection that stands, and the mover over it; None without memory, which is told, or
    /// descriptors.
    pub(super) fn open<P: Port>(
        mut connection: Box<dyn verbs::Adapter>,
        (session, epoch): (SessionId, u32),
        context: &mut Context<'_, P>,
    ) -> Option<(Mover, Self)> {
        let tell = |error| Event::Adapter { session, error };
        connection.furnish(context.pool).map_err(|error| context.tell(tell(error))).ok()?;
        let (depths, registry) = (connection.depths(), connection.registry());
        let mover = iser::Initiator::of_adapter(context.pool, depths, registry);
        if mover.is_none() {
            context.tell(tell(verbs::VerbsError::NoBuffers));
        }
        let mover = mover?;
        let watched = context.watch(connection.watched().ok()?, session, epoch);
        let adapter = Self { connection, watched, list: SgList::new() };
        Some((Mover::Iser(Box::new(mover)), adapter))
    }

    pub(super) fn is_iwarp(&self) -> bool {
        self.connection.is_iwarp()
    }

    /// Gives the adapter what there is to do. True: look at it, though nothing wakes for it.
    pub(super) fn transmit(&mut self, mover: &mut iser::Initiator, exp_stat_sn: StatSn) -> bool {
        let any = mover.poll_transmit(&mut self.list, exp_stat_sn);
        debug_assert!(!any, "an adapter is given posts, and no bytes");
        while let Some(post) = mover.poll_post() {
            self.connection.post(post);
        }
        self.connection.has_done()
    }

    /// Ends the connection: all that it had is with the mover.
    pub(super) fn hang_up<P: Port>(mut self, mover: &mut Mover, context: &mut Context<'_, P>) {
        self.connection.post(Post::Disconnect);
        if let Mover::Iser(mover) = mover {
            while let Some(done) = self.connection.poll() {
                mover.handle_done(done);
            }
        }
        context.hang_up(self.watched);
    }
}

impl SessionDriver {
    /// The adapter of a connection has done something.
    pub(crate) fn stirred<P: Port>(&mut self, epoch: u32, context: &mut Context<'_, P>) {
        if let Some(place) = self.place(epoch)
            && let Some(connection) = self.connections.get_mut(place)
            && let Path::Adapter(adapter) = &mut connection.path
        {
            adapter.connection.look();
            self.look(epoch, context);
        }
    }

    /// Takes what an adapter has done. That is bounded: it gets nothing to do meanwhile.
    pub(crate) fn look<P: Port>(&mut self, epoch: u32, context: &mut Context<'_, P>) {
        let Some(place) = self.place(epoch) else { return };
        let Some(connection) = self.connections.get_mut(place) else { return };
        let (Path::Adapter(adapter), Mover::Iser(mover)) =
            (&mut connection.path, &mut connection.mover)
        else {
            return;
        };
        let mut has_ended = false;
        while let Some(done) = adapter.connection.poll() {
            let before = mover.leaving();
            match &done {
                Done::Received { length, .. } => connection.received += *length as u64,
                Done::Ended(_) => has_ended = true,
                Done::Sent(_) | Done::Read(_) | Done::Returned(..) => {}
            }
            mover.handle_done(done);
            if !has_ended {
                connection.sent += before.saturating_sub(mover.leaving()) as u64;
            }
        }
        connection.sending = mover.leaving() as u64;
        if has_ended && let Some(error) = adapter.connection.take_failure() {
            context.tell(Event::Adapter { session: self.id, error });
        }
        self.received(epoch, &[], context);
        if has_ended {
            self.disconnected(epoch, context);
        }
    }
}
