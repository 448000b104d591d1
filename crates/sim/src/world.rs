// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that ports share: the time, what is due, connections and disks.
//!
//! Nothing in here calls a pump. The runner takes what is due, gives pumps their turns, and these
//! come back through their ports.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::BinaryHeap;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use buf::SgList;
use clock::Instant;
use engine::Chore;
use engine::Event;
use engine::Token;
use engine::Waker;
use initiator::Connected;
use initiator::Error;
use std::sync::mpsc::Sender;
use store::Outcome;
use store::Run;
use store::foreign::Completer;

use crate::adapters::Adapters;
use crate::check::Sessions;
use crate::disk::Disk;
use crate::disk::EILSEQ;
use crate::disk::ENOSPC;
use crate::disk::Owner;
use crate::disk::What;
use crate::elsewhere::Remote;
use crate::lies::Lie;
use crate::locals::Locals;
use crate::locals::local_portal;
use crate::net::LinkId;
use crate::net::Net;
use crate::net::Side;
use crate::news::Refused;
use crate::options::FramePlan;
use crate::options::Keeping;
use crate::options::LimitPlan;
use crate::options::Resize;
use crate::orders::Orders;
use crate::rados;
use crate::rados::Cluster;
use crate::reactors::Crew;
use crate::report::Tally;
use crate::resets::Resets;
use crate::rng::Rng;
use crate::shelf;
use crate::shelf::Cupboard;
use crate::shuffle::Freedom;
use crate::shuffle::Shuffled;
use crate::shuffle::shuffle;
use crate::silences::Silences;
use crate::trace::START;
use crate::trace::Trace;

/// Shared by the runner and all ports; borrowed for one call at a time.
pub(crate) type Shared = Rc<RefCell<World>>;

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Due {
    /// The first segment of this direction arrives.
    Arrival(LinkId, Side),
    /// A sender may go on.
    Push(LinkId, Side),
    /// Work of a disk goes on.
    Disk(usize, u64),
    /// Something on an object of a cluster goes on.
    Object(rados::Place),
    /// Work of a disk is dropped by who was to answer for it.
    Drop(usize, u64),
    /// A port's wait is over; the number tells whether it still is that wait.
    Wake(usize, u64),
    /// A reactor that has something to do gets to it, in this life of its process.
    Turn(usize, u64),
    /// A port is woken by who has sent a message to it, in this life of its process.
    Woken(usize, u64),
    /// A port gives a connection back.
    Detach(LinkId, Side),
    /// A frame comes to a side, under its number.
    Frame(LinkId, Side, u64),
    /// Stations of a connection have something to do.
    Frames(LinkId),
    /// An attempt to connect ends.
    Dial(Box<Dial>),
    /// A connection over adapters was accepted,
    Stands(LinkId),
    /// or nobody has answered who asked for it.
    Unanswered(LinkId),
    /// An adapter hears that something is done,
    Acked(LinkId, Side, u64),
    /// and tells so.
    Show(LinkId, Side),
    /// An adapter has ended a connection in good order.
    Parted(LinkId, Side),
    /// What a port was asked to keep is kept, or not.
    Kept(Box<KeptNow>),
    /// For the runner.
    Plan(Plan),
}

/// What the runner asked to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The next fault of the list.
    Fault(usize),
    /// A node comes back.
    Start(usize),
    /// The process of a target is started again; an image of its that was removed is another one
    /// then.
    Restart(usize, Option<usize>),
    /// A target hears that an image has another size.
    Hear(usize, usize),
    /// A slow spell of the disks is over.
    Recover,
    /// A session of a host may have work to post.
    Load(usize, usize),
    /// Look whether all is quiet.
    Look,
    /// The power of a target goes.
    Darkness(usize),
    /// A disk gets another size.
    Resize(Resize),
    /// A target has other limits.
    Limit(LimitPlan),
    /// An impostor comes.
    Impostor,
    /// He goes again, and it is looked at what he reached.
    Unmask(LinkId, Reach),
    /// A hog of the list comes,
    Hog(usize),
    /// asks for all that it can,
    HogAsks(LinkId, usize),
    /// and leaves, or aborts all of it.
    HogLeaves(LinkId, usize),
    /// and it takes a little.
    HogTakes(LinkId, usize),
    /// A rogue of the list comes,
    Rogue(usize),
    /// and must be gone by now.
    RogueIsLooked(LinkId, usize),
    /// A hasty initiator comes,
    Hasty,
    /// joins its own session,
    HastyJoins(LinkId),
    /// says the next thing,
    HastyPings(LinkId),
    /// and goes when it is looked at what it was answered on these connections.
    HastyLeaves([LinkId; 4]),
}

/// What an impostor may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// He must be let in: discovery is open, and has nothing to do with other sessions.
    Discovery,
    /// He must not be let in.
    Nothing,
    /// A discovery session that lacks something else: nothing is wrong in either way.
    Either,
}

/// Work of keeping that ends.
#[derive(Debug)]
pub(crate) struct KeptNow {
    pub(crate) desk: usize,
    /// In which life of the process it began.
    life: u64,
    token: Token,
    place: shelf::Place,
    result: Result<(), i32>,
}

/// How a target keeps states.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) cupboard: Cupboard,
    pub(crate) plan: Keeping,
    pub(crate) rng: Rng,
}

/// An attempt to connect.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) from: usize,
    /// The port that listens there; None: nobody ever does.
    pub(crate) to: Option<usize>,
    pub(crate) portals: Vec<String>,
    pub(crate) result: Sender<Result<Connected, Error>>,
    pub(crate) waker: Waker,
    /// The attempt is given up if the other side is silent.
    pub(crate) silent: bool,
    /// Over adapters.
    pub(crate) by_adapters: bool,
    /// Over raw Ethernet.
    pub(crate) by_frames: bool,
}

/// What the world knows of a port.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) events: VecDeque<(Token, Event)>,
    /// Sockets of the port, by their number.
    pub(crate) sockets: BTreeMap<u32, Place>,
    pub(crate) next_socket: u32,
    /// Stamp of the last wait.
    pub(crate) wait: u64,
    pub(crate) state: State,
    /// Token of `Work::Accept`.
    pub(crate) accepting: Option<Token>,
    pub(crate) name: String,
    /// How often its process went.
    pub(crate) life: u64,
    /// The first desk of its process: that of a target's first reactor, or itself.
    pub(crate) home: usize,
    /// It has something to do, and will get to it.
    pub(crate) is_called: bool,
}

/// What a socket is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Listener,
    End(LinkId, Side),
}

/// Whether there is a machine behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    /// The process is gone, the machine says so.
    Stopped,
    /// Nothing answers.
    Dark,
}

/// How the network and the disks are.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    /// One way, microseconds.
    pub(crate) latency: (u64, u64),
    /// Largest piece that is sent or received at once, bytes.
    pub(crate) piece: usize,
    pub(crate) window: (u64, u64),
    /// A step of disk work, microseconds.
    pub(crate) disk: (u64, u64),
    /// All disk work takes so many times as long.
    pub(crate) disk_factor: u32,
}

/// However slow a disk is, a step of its work takes no longer.
const DISK_STEP_MAX: Duration = Duration::from_secs(20);

/// Everything that ports share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Instant,
    agenda: BinaryHeap<Reverse<(Instant, u64)>>,
    dues: BTreeMap<u64, Due>,
    order: u64,
    pub(crate) ready: BTreeSet<usize>,
    pub(crate) desks: Vec<Desk>,
    pub(crate) net: Net,
    pub(crate) disks: Vec<Disk>,
    /// By target.
    pub(crate) keepers: BTreeMap<usize, Keeper>,
    /// By target: what is behind its stores, if that is elsewhere.
    pub(crate) remotes: BTreeMap<usize, Remote>,
    /// By target: the cluster that its disks are images of.
    pub(crate) clusters: BTreeMap<usize, Cluster>,
    pub(crate) silences: Silences,
    /// By target: its reactors, if it has several.
    pub(crate) crews: BTreeMap<usize, Crew>,
    pub(crate) locals: Locals,
    pub(crate) adapters: Adapters,
    /// By target: IRD and ORD of initiators, where something between has little room.
    pub(crate) depths: BTreeMap<usize, [u8; 2]>,
    pub(crate) resets: Resets,
    pub(crate) orders: Orders,
    /// Connections of initiators that break rules: nobody looks at what is sent.
    pub(crate) unheard: BTreeSet<LinkId>,
    /// The faults have stopped.
    pub(crate) is_calm: bool,
    /// What the numbers of descriptors mean that ports will be given.
    pub(crate) handles: BTreeMap<i32, Place>,
    pub(crate) weather: Weather,
    /// What befalls frames.
    pub(crate) frame_plan: FramePlan,
    pub(crate) frame_rng: Rng,
    pub(crate) net_rng: Rng,
    pub(crate) disk_rng: Rng,
    order_rng: Rng,
    portal_rng: Rng,
    /// So many of a thousand lists of PDUs have their data brought out of order, where that is
    /// agreed on.
    pub(crate) disorder: u64,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) lies: Vec<Lie>,
    pub(crate) refused: Vec<Refused>,
    /// As far as the wire tells of them.
    pub(crate) sessions: Sessions,
    /// Added to the time that clocks on walls show, seconds.
    pub(crate) wall: i64,
}

impl World {
    pub(crate) fn new(seed: u64, weather: Weather) -> Self {
        Self {
            now: START,
            agenda: BinaryHeap::new(),
            dues: BTreeMap::new(),
            order: 0,
            ready: BTreeSet::new(),
            desks: Vec::new(),
            net: Net::default(),
            disks: Vec::new(),
            keepers: BTreeMap::new(),
            remotes: BTreeMap::new(),
            clusters: BTreeMap::new(),
            silences: Silences::default(),
            crews: BTreeMap::new(),
            locals: Locals::default(),
            adapters: Adapters::new(seed),
            depths: BTreeMap::new(),
            resets: Resets::default(),
            orders: Orders::default(),
            unheard: BTreeSet::new(),
            is_calm: false,
            handles: BTreeMap::new(),
            weather,
            frame_plan: FramePlan::GOOD,
            frame_rng: Rng::stream(seed, 108),
            net_rng: Rng::stream(seed, 1),
            disk_rng: Rng::stream(seed, 2),
            order_rng: Rng::stream(seed, 6),
            portal_rng: Rng::stream(seed, 9),
            disorder: 0,
            trace: Trace::default(),
            tally: Tally::default(),
            lies: Vec::new(),
            refused: Vec::new(),
            sessions: Sessions::new(),
            wall: 0,
        }
    }

    pub(crate) fn add_desk(&mut self, name: String) -> usize {
        self.desks.push(Desk {
            events: VecDeque::new(),
            sockets: BTreeMap::new(),
            next_socket: 0,
            wait: 0,
            state: State::Up,
            accepting: None,
            name,
            life: 0,
            home: self.desks.len(),
            is_called: false,
        });
        self.desks.len() - 1
    }

    /// Which of so many portals answers first.
    pub(crate) fn first_of(&mut self, portals: usize) -> usize {
        if portals > 1 { self.portal_rng.index(portals) } else { 0 }
    }

    /// `due` after `delay`.
    pub(crate) fn after(&mut self, delay: Duration, due: Due) {
        self.at(self.now + delay, due);
    }

    /// `due` at `at`, behind what is due then already.
    pub(crate) fn at(&mut self, at: Instant, due: Due) {
        self.order += 1;
        self.agenda.push(Reverse((at, self.order)));
        self.dues.insert(self.order, due);
    }

    /// Goes on to the next moment at which something is due, and does it. A plan is given to the
    /// runner. False: nothing is due.
    pub(crate) fn step(&mut self) -> Result<bool, Plan> {
        let Some(Reverse((at, order))) = self.agenda.pop() else { return Ok(false) };
        self.now = self.now.max(at);
        match self.dues.remove(&order) {
            Some(Due::Arrival(link, side)) => self.arrive(link, side),
            Some(Due::Push(link, side)) => self.push(link, side),
            Some(Due::Disk(disk, work)) => self.disk_step(disk, work),
            Some(Due::Object(place)) => self.go_on_in_cluster(place),
            Some(Due::Drop(disk, work)) => self.drop_work(disk, work),
            Some(Due::Wake(desk, wait)) if self.desks[desk].wait == wait => self.make_ready(desk),
            Some(Due::Wake(..)) => {}
            Some(Due::Turn(desk, life)) => self.come_to_its_turn(desk, life),
            Some(Due::Woken(desk, life)) => self.hear_message(desk, life),
            Some(Due::Detach(link, side)) => self.detach(link, side),
            Some(Due::Frame(link, side, number)) => self.frame_comes(link, side, number),
            Some(Due::Frames(link)) => self.exchange(link),
            Some(Due::Dial(dial)) => self.dial(*dial),
            Some(Due::Stands(link)) => self.answer_dial(link, true),
            Some(Due::Unanswered(link)) => self.answer_dial(link, false),
            Some(Due::Acked(link, side, number)) => self.acked(link, side, number),
            Some(Due::Show(link, side)) => self.show(link, side),
            Some(Due::Parted(link, side)) => self.end_adapter(link, side, false),
            Some(Due::Kept(kept)) => self.kept(*kept),
            Some(Due::Plan(plan)) => return Err(plan),
            None => {}
        }
        Ok(true)
    }

    /// Gives an event to a port.
    pub(crate) fn tell(&mut self, desk: usize, token: Token, event: Event) {
        let entry = &mut self.desks[desk];
        if entry.state == State::Up {
            entry.events.push_back((token, event));
            self.make_ready(desk);
        }
    }

    /// What is sent instead of `list`: the same data in another order, if that may be and is drawn.
    pub(crate) fn disorder(&mut self, id: LinkId, side: Side, list: &SgList) -> Option<Vec<u8>> {
        let tap = &self.net.links.get(&id)?.tap;
        let (freedom, framing) = (tap.checks.freedom(), tap.framing(side)?);
        if freedom == Freedom::default() || !self.order_rng.chance(self.disorder) {
            return None;
        }
        let mut bytes = list.to_vec();
        let shuffled = shuffle(&mut bytes, framing, freedom, &mut self.order_rng);
        if shuffled.pdus {
            self.tally.mark(["Data-Outs out of order", "Data-Ins out of order"][side]);
        }
        if shuffled.sequences {
            self.tally.mark("sequences out of order");
        }
        (shuffled != Shuffled::default()).then_some(bytes)
    }

    /// The media that states are kept on are slow no more. Whoever gives up sooner than a slow one
    /// has kept what he asks for would never come to the end of it.
    pub(crate) fn hasten_keeping(&mut self) {
        self.keepers.values_mut().for_each(|keeper| keeper.plan.time = Keeping::QUICK);
    }

    /// A port does a chore. One that keeps something is done at this moment, and ends later; maybe
    /// the power goes before.
    pub(crate) fn keep(&mut self, desk: usize, token: Token, mut chore: Box<dyn Chore>) {
        let home = self.desks[desk].home;
        let Some(keeper) = self.keepers.get_mut(&home) else {
            let result = chore.run();
            return self.tell(desk, token, Event::Ran { result });
        };
        let (result, place) = keeper.cupboard.work(|| chore.run());
        let Some(place) = place else { return self.tell(desk, token, Event::Ran { result }) };
        let (low, high) = keeper.plan.time;
        let delay = keeper.rng.micros(low..=high);
        let darkness =
            keeper.rng.chance(keeper.plan.cuts).then(|| keeper.rng.micros(low / 2..=high));
        let life = self.desks[desk].life;
        self.tally.mark(if result.is_ok() { "kept" } else { "not kept" });
        self.after(delay, Due::Kept(Box::new(KeptNow { desk, life, token, place, result })));
        if let Some(delay) = darkness {
            self.after(delay, Due::Plan(Plan::Darkness(home)));
        }
    }

    fn kept(&mut self, kept: KeptNow) {
        let KeptNow { desk, life, token, place, result } = kept;
        if self.desks[desk].life != life {
            return;
        }
        if let Some(keeper) = self.keepers.get(&self.desks[desk].home) {
            keeper.cupboard.end(place);
        }
        let home = self.desks[desk].home;
        let parts = [7, home as u64, u64::from(result.is_ok())];
        self.trace.step(self.now, &parts, || format!("target {home}: kept {place:?}, {result:?}"));
        self.tell(desk, token, Event::Ran { result });
    }

    /// A disk takes work.
    pub(crate) fn disk_submit(&mut self, desk: usize, disk: usize, token: Token, what: What) {
        let home = self.desks[desk].home;
        self.resets.begin(disk, &self.disks);
        let id = self.disks[disk].submit(home, Owner::Port(desk, token), what);
        self.disks[disk].note_begin(id, self.now);
        self.disk_later(disk, id);
    }

    fn disk_later(&mut self, disk: usize, id: u64) {
        let (low, high) = self.weather.disk;
        let delay = self.disk_rng.micros(low..=high) * self.weather.disk_factor;
        let delay = delay.min(DISK_STEP_MAX);
        self.after(delay, Due::Disk(disk, id));
    }

    fn disk_step(&mut self, disk: usize, id: u64) {
        if !self.disks[disk].works.contains_key(&id) {
            return;
        }
        let done = self.disks[disk].step(id, &mut self.disk_rng);
        if std::mem::take(&mut self.disks[disk].overrun) {
            let broken = format!("disk {disk} is written behind the end that its file was cut to");
            self.tally.broken.push(broken);
        }
        if !done {
            return self.disk_later(disk, id);
        }
        let Some(work) = self.disks[disk].works.remove(&id) else { return };
        let errno = work.fails.unwrap_or(0);
        let parts = [1, disk as u64, id, u64::from(errno.unsigned_abs())];
        self.trace.step(self.now, &parts, || format!("disk {disk}: work {id} ends, {errno}"));
        let (desk, token) = match work.owner {
            Owner::Port(desk, token) => (desk, token),
            Owner::Elsewhere { completer, .. } => {
                self.answer(disk, completer, &work.what, work.fails);
                return self.rouse(work.desk);
            }
        };
        let result = work.fails.map_or(Ok(()), Err);
        let event = match work.what {
            What::Read { buf, .. } => {
                let length = buf.len();
                Event::Read { buf, result: result.map(|()| length) }
            }
            What::ReadElsewhere { .. } => return,
            What::Write { .. } => Event::Wrote { result },
            What::Sync => Event::Synced { result },
            What::Allocation { offset, .. } => {
                let found = self.disks[disk].allocation(offset);
                Event::Allocation { result: result.map(|()| found) }
            }
            What::Clear { .. } => Event::Cleared { result },
            What::Compare { .. } | What::Same { .. } => return,
        };
        self.tell(desk, token, event);
    }

    /// Work that a port knows nothing of has ended.
    pub(crate) fn answer(
        &self,
        disk: usize,
        completer: Completer,
        what: &What,
        fails: Option<i32>,
    ) {
        match (fails, what) {
            (None, What::Allocation { offset, length }) => {
                let (space, end) = self.disks[disk].allocation(*offset);
                let length = (*length).min(end - offset);
                completer.complete_with(Outcome::ProvisioningStatus(Run { space, length }));
            }
            (Some(EILSEQ), What::Compare { differs, .. }) => {
                completer.complete_with(Outcome::Miscompare(*differs));
            }
            (None, _) => completer.complete(Ok(())),
            (Some(ENOSPC), _) => completer.complete(Err(store::Error::Space)),
            (Some(_), What::ReadElsewhere { .. } | What::Allocation { .. }) => {
                completer.complete(Err(store::Error::Read));
            }
            (Some(_), _) => completer.complete(Err(store::Error::Write)),
        }
    }

    /// A port was woken by a thread of somebody else.
    pub(crate) fn rouse(&mut self, desk: usize) {
        if self.desks[desk].state == State::Up && !self.ring(desk) {
            self.ready.insert(desk);
        }
    }
}

/// Address of the portal of target `number`.
pub(crate) fn portal(number: usize) -> String {
    format!("10.0.0.{}:3260", number + 1)
}

/// Address of its portal of another portal group.
pub(crate) fn second_portal(number: usize) -> String {
    format!("10.0.1.{}:3260", number + 1)
}

impl World {
    /// The port behind a portal: targets have the first desks.
    pub(crate) fn listener(&self, address: &str) -> Option<usize> {
        let of = |number: &usize| {
            let addresses = [portal(*number), second_portal(*number), local_portal(*number)];
            addresses.iter().any(|own| own == address)
        };
        (0..self.desks.len()).find(of)
    }

    /// A process or a machine goes: its sockets are gone, its work is forgotten, what the disks
    /// have taken goes on. `dark`: nobody is told.
    pub(crate) fn crash(&mut self, desk: usize, dark: bool) {
        self.desks[desk].state = if dark { State::Dark } else { State::Stopped };
        let ends: Vec<(LinkId, Side)> = self
            .net
            .links
            .iter()
            .flat_map(|(id, link)| [(*id, 0, link.ends[0].desk), (*id, 1, link.ends[1].desk)])
            .filter(|(_, _, of)| *of == desk)
            .map(|(id, side, _)| (id, side))
            .collect();
        for (id, side) in ends {
            if dark && let Some(link) = self.net.links.get_mut(&id) {
                // Neither end of stream nor reset leaves the machine.
                link.ends[side].ending = Some(Some(0));
                link.ends[side].sending = None;
                link.pipes[side].segments.clear();
                link.pipes[side].bytes = 0;
            }
            self.close_end(id, side, true);
        }
        let entry = &mut self.desks[desk];
        entry.life += 1;
        entry.events.clear();
        entry.sockets.clear();
        entry.accepting = None;
        entry.wait += 1;
        entry.is_called = false;
        self.ready.remove(&desk);
        self.adapters.crash(desk);
    }
}
