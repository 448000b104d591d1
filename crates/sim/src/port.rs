// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine of the simulator: a port without a kernel, over the world.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clock::Instant;
use engine::Event;
use engine::FileRefused;
use engine::Landing;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Waker;
use engine::Work;
use initiator::Attempt;
use initiator::Connector;
use initiator::Transport;

use crate::disk::What;
use crate::net::LinkId;
use crate::net::Segment;
use crate::net::Sending;
use crate::net::Side;
use crate::rng::Rng;
use crate::wires::ECANCELED;
use crate::world::Dial;
use crate::world::Due;
use crate::world::Place;
use crate::world::Shared;

/// A turn of a pump takes at least so long, so that one who polls gets on.
const TURN: Duration = Duration::from_micros(1);

/// Time since 1970 at the start of a run.
const WALL: i64 = 1_800_000_000;

/// One thread's port.
#[derive(Debug)]
pub(crate) struct SimPort {
    world: Shared,
    desk: usize,
    waker: Waker,
    rng: Rng,
    /// By the number of a file: the disk it stands for.
    files: Vec<usize>,
}

impl SimPort {
    /// The port of `desk`; file `n` of its stores is disk `files[n]`.
    pub(crate) fn new(world: &Shared, desk: usize, rng: Rng, files: Vec<usize>) -> Self {
        let waker = Waker::new().expect("descriptors are left: a port takes one");
        Self { world: Shared::clone(world), desk, waker, rng, files }
    }

    /// Where a socket leads to, if it is a connection.
    fn end(&self, socket: Socket) -> Option<(LinkId, Side)> {
        match self.world.borrow().desks[self.desk].sockets.get(&socket.0)? {
            Place::End(link, side) => Some((*link, *side)),
            Place::Listener => None,
        }
    }

    fn receive(&self, token: Token, socket: Socket) {
        let mut world = self.world.borrow_mut();
        let Some(Place::End(id, side)) = world.desks[self.desk].sockets.get(&socket.0).copied()
        else {
            let error = Some(ECANCELED);
            return world.tell(self.desk, token, Event::ReceiveEnded { error });
        };
        if let Some(link) = world.net.links.get_mut(&id) {
            link.ends[side].receiving = Some(token);
        }
        world.feed(id, side);
    }

    fn watch(&self, token: Token, socket: Socket) {
        let Some((id, side)) = self.end(socket) else { return };
        let mut world = self.world.borrow_mut();
        if let Some(link) = world.net.links.get_mut(&id) {
            link.ends[side].receiving = Some(token);
        }
        world.wake_watcher(id, side);
    }

    fn send(&self, token: Token, socket: Socket, list: buf::SgList) {
        let mut world = self.world.borrow_mut();
        if let Some(Place::End(id, side)) = world.desks[self.desk].sockets.get(&socket.0).copied()
            && let Some(link) = world.net.links.get(&id)
            && !link.ends[side].closed
        {
            debug_assert!(link.ends[side].sending.is_none(), "one send at a time");
            let bytes = world.disorder(id, side, &list);
            if let Some(link) = world.net.links.get_mut(&id) {
                link.ends[side].sending = Some(Sending { token, list, taken: 0, bytes });
            }
            return world.after(TURN, Due::Push(id, side));
        }
        world.tell(self.desk, token, Event::Sent { list, result: Err(ECANCELED) });
    }

    fn file(&self, token: Token, file: u32, what: What) {
        let disk = self.files[file as usize];
        self.world.borrow_mut().disk_submit(self.desk, disk, token, what);
    }
}

impl Port for SimPort {
    fn add_socket(&mut self, fd: OwnedFd) -> Socket {
        let mut world = self.world.borrow_mut();
        let place = world.handles.get(&fd.as_raw_fd()).copied();
        let desk = &mut world.desks[self.desk];
        desk.next_socket += 1;
        let number = desk.next_socket;
        if let Some(place) = place {
            desk.sockets.insert(number, place);
            if let Place::End(id, side) = place
                && let Some(link) = world.net.links.get_mut(&id)
            {
                (link.ends[side].fd, link.ends[side].desk) = (Some(fd), self.desk);
            }
        }
        Socket(number)
    }

    fn add_file(&mut self, id: u32, _file: Arc<OwnedFd>, _direct: bool) -> Result<(), FileRefused> {
        // All numbers stand for disks that are there from the start.
        Err(FileRefused::Taken(id))
    }

    fn remove_file(&mut self, _id: u32) {}

    fn submit(&mut self, token: Token, work: Work) {
        match work {
            Work::Accept { .. } => {
                self.world.borrow_mut().desks[self.desk].accepting = Some(token);
            }
            Work::Receive { socket } => self.receive(token, socket),
            Work::Watch { socket } => self.watch(token, socket),
            Work::Send { socket, list } => self.send(token, socket, list),
            Work::Detach { socket } => {
                self.world.borrow_mut().begin_detach(self.desk, token, socket.0);
            }
            Work::Read { file, offset, buf } => self.file(token, file, What::Read { offset, buf }),
            Work::Write { file, offset, data, durable } => {
                self.file(token, file, What::Write { offset, data, durable });
            }
            Work::Sync { file } => self.file(token, file, What::Sync),
            Work::Clear { file, offset, length, leave } => {
                self.file(token, file, What::Clear { offset, length, leave });
            }
            Work::Allocation { file, offset } => {
                self.file(token, file, What::Allocation { offset, length: u64::MAX });
            }
            Work::Chore { chore } => self.world.borrow_mut().keep(self.desk, token, chore),
        }
    }

    fn pause(&mut self, socket: Socket) {
        if let Some((id, side)) = self.end(socket)
            && let Some(link) = self.world.borrow_mut().net.links.get_mut(&id)
        {
            link.ends[side].paused = true;
        }
    }

    fn resume(&mut self, socket: Socket) {
        if let Some((id, side)) = self.end(socket) {
            let mut world = self.world.borrow_mut();
            if let Some(link) = world.net.links.get_mut(&id) {
                link.ends[side].paused = false;
            }
            world.feed(id, side);
        }
    }

    fn land(&mut self, socket: Socket, landing: Landing) -> Option<Landing> {
        let Some((id, side)) = self.end(socket) else { return Some(landing) };
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        let Some(link) = world.net.links.get_mut(&id) else { return Some(landing) };
        let end = &mut link.ends[side];
        let token = end.receiving.filter(|_| !end.closed && !end.paused && end.unread.is_empty());
        // What is on its way to the pump comes before.
        let before = world.desks[self.desk].events.iter().any(|(of, _)| Some(*of) == token);
        if token.is_none() || before {
            return Some(landing);
        }
        end.landing = Some((landing, 0));
        world.tally.mark("landing");
        None
    }

    fn acknowledged(&self, socket: Socket) -> Option<u64> {
        let (id, side) = self.end(socket)?;
        let world = self.world.borrow();
        // The kernel knows nothing of streams over frames.
        let link = world.net.links.get(&id).filter(|link| link.frames.is_none())?;
        Some(link.pipes[side].arrived)
    }

    fn shutdown(&mut self, socket: Socket) {
        let Some((id, side)) = self.end(socket) else { return };
        let mut world = self.world.borrow_mut();
        let Some(link) = world.net.links.get_mut(&id) else { return };
        if link.ends[side].sending.is_some() {
            link.ends[side].shut = true;
        } else {
            world.signal(id, side, Segment::Fin);
        }
    }

    fn close(&mut self, socket: Socket) {
        let mut world = self.world.borrow_mut();
        match world.desks[self.desk].sockets.remove(&socket.0) {
            Some(Place::End(id, side)) => {
                match world.net.links.get(&id).is_some_and(|link| link.verbs.is_some()) {
                    true => world.unwatch(id, side),
                    false => world.close_end(id, side, false),
                }
            }
            Some(Place::Listener) => {
                let desk = &mut world.desks[self.desk];
                if let Some(token) = desk.accepting.take() {
                    let errno = rustix::io::Errno::CANCELED.raw_os_error();
                    desk.events.push_back((token, Event::AcceptFailed { errno }));
                }
            }
            None => {}
        }
    }

    fn next_event(&mut self) -> Option<(Token, Event)> {
        if self.waker.answer() {
            return Some((Token(0), Event::Woken));
        }
        let mut world = self.world.borrow_mut();
        if world.breaks_off(self.desk) {
            return None;
        }
        world.desks[self.desk].events.pop_front()
    }

    fn wait(&mut self, deadline: Option<Instant>) {
        let mut world = self.world.borrow_mut();
        world.desks[self.desk].wait += 1;
        if self.waker.answer() {
            world.tell(self.desk, Token(0), Event::Woken);
        }
        if !world.desks[self.desk].events.is_empty() {
            world.make_ready(self.desk);
        }
        if let Some(deadline) = deadline {
            let at = deadline.max(world.now + TURN);
            let wait = world.desks[self.desk].wait;
            world.at(at, Due::Wake(self.desk, wait));
        }
    }

    fn wait_n(&mut self, _count: usize, deadline: Instant) {
        self.wait(Some(deadline));
    }

    fn now(&self) -> Instant {
        self.world.borrow().now
    }

    fn wall_clock(&self) -> Duration {
        let world = self.world.borrow();
        let seconds = u64::try_from(WALL.saturating_add(world.wall)).unwrap_or(0);
        Duration::from_secs(seconds) + world.now.since(crate::trace::START)
    }

    fn random(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.rng.fill(bytes);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn name(&self) -> &'static str {
        "sim"
    }
}

/// Makes the connections of a simulated host.
#[derive(Debug)]
pub(crate) struct SimConnector {
    pub(crate) world: Shared,
    pub(crate) desk: usize,
}

impl Connector for SimConnector {
    fn connect(
        &mut self,
        transport: Transport,
        mut portals: Vec<String>,
        _others: Vec<String>,
        waker: Waker,
    ) -> Attempt {
        let (result, attempt) = mpsc::channel();
        let mut world = self.world.borrow_mut();
        // All are tried at once: whichever answers first.
        let first = world.first_of(portals.len());
        portals.rotate_left(first);
        let to = portals.first().and_then(|portal| world.listener(portal));
        let delay = world.latency() * 2;
        let (from, silent) = (self.desk, false);
        let is_local = portals.first().is_some_and(|portal| portal.starts_with("local:"));
        let by_adapters = transport == Transport::Verbs && !is_local;
        let by_frames = transport == Transport::Ether && !is_local;
        let dial = Dial { from, to, portals, result, waker, silent, by_adapters, by_frames };
        world.after(delay, Due::Dial(Box::new(dial)));
        attempt
    }
}
