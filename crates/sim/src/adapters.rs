// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RDMA adapters: what pumps post is carried over a connection of the simulated network, without a
//! byte stream. What befalls connections befalls these, too.
//!
//! An adapter is small: few operations under way, few RDMA Reads, few keys. It tells late what it
//! has done, and several things at once. Sends, Writes and Reads are told of in the order in which
//! they were posted (RFC 5040 §5.5), messages in the order in which they come, and neither waits
//! for the other. A connection that is lost takes with it what was not told yet.

mod half;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use engine::Event;
use initiator::Connected;
use initiator::Error;
use initiator::Line;
use rdma::adapter::Post;
use rdma::verbs::End;
use rdma::verbs::Work;
use rdma::violation::Violation;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

use self::half::Completion;
use self::half::Half;
pub(crate) use self::half::SimAdapter;
use self::half::SimAsking;
use crate::net::LinkId;
use crate::net::Segment;
use crate::net::Side;
use crate::options::AdapterPlan;
use crate::rng::Rng;
use crate::tap;
use crate::tap::Said;
use crate::tap::Tap;
use crate::trace::fingerprint;
use crate::wires::ECANCELED;
use crate::world::Dial;
use crate::world::Due;
use crate::world::World;

/// Who asks for a connection waits no longer for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the world knows of adapters.
#[derive(Debug)]
pub(crate) struct Adapters {
    pub(crate) plan: AdapterPlan,
    /// No session has several connections.
    pub(crate) are_alone: bool,
    rng: Rng,
    /// Connections over them.
    links: BTreeSet<LinkId>,
    /// By target: who asks for one.
    asking: BTreeMap<usize, Vec<SimAsking>>,
}

/// What both ends of a connection have.
#[derive(Debug)]
pub(crate) struct Verbs {
    halves: [Arc<Mutex<Half>>; 2],
    /// Who has asked for it and hears how that went.
    dial: Option<Dial>,
}

/// What is on its way, with the number that who posted it gave it.
#[derive(Debug)]
pub(crate) enum Op {
    /// A Send or Write; its bytes are read as late as an adapter would.
    Work(u64, Work),
    /// An RDMA Read: from where, and how many bytes.
    Ask(u64, (Stag, TaggedOffset), u32),
    /// Its answer.
    Answer(u64, Vec<u8>),
}

const LOST: End = End::Violated(Violation::Lost);

impl Adapters {
    pub(crate) fn new(seed: u64) -> Self {
        let (links, asking) = (BTreeSet::new(), BTreeMap::new());
        let (plan, rng) = (AdapterPlan::LARGE, Rng::stream(seed, 102));
        Self { plan, are_alone: true, rng, links, asking }
    }

    /// A process goes, and who asks it for something is not answered.
    pub(crate) fn crash(&mut self, desk: usize) {
        self.asking.remove(&desk);
    }
}

impl Verbs {
    fn half(&self, side: Side) -> MutexGuard<'_, Half> {
        self.halves[side].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    /// Somebody asks for a connection over adapters; `to` listens.
    pub(crate) fn ask(&mut self, dial: Dial, to: usize) {
        let second = dial.portals.first() == Some(&crate::world::second_portal(to));
        let local = crate::wires::local_end(second);
        let (id, fds, peer) = self.lay(dial.from, to);
        let plan = self.adapters.plan;
        let base = self.adapters.rng.below(1 << 40) << 12;
        let [ours, theirs] = fds.map(|fd| Arc::new(Mutex::new(Half::new(fd, plan, base))));
        let asking = SimAsking::new(Arc::clone(&theirs), (peer, local));
        if let Some(link) = self.net.links.get_mut(&id) {
            link.tap = Tap::of_adapter(plan.reads);
            link.verbs = Some(Verbs { halves: [ours, theirs], dial: Some(dial) });
        }
        self.adapters.links.insert(id);
        self.adapters.asking.entry(to).or_default().push(asking);
        self.after(PATIENCE, Due::Unanswered(id));
        self.make_ready(to);
    }

    /// Who asks this target for connections.
    pub(crate) fn take_asking(&mut self, target: usize) -> Vec<SimAsking> {
        self.adapters.asking.remove(&target).unwrap_or_default()
    }

    /// The answer to who has asked: the connection stands, or it does not.
    pub(crate) fn answer_dial(&mut self, id: LinkId, stands: bool) {
        let Some(verbs) = self.net.links.get_mut(&id).and_then(|link| link.verbs.as_mut()) else {
            return;
        };
        let Some(dial) = verbs.dial.take() else { return };
        let half = Arc::clone(&verbs.halves[0]);
        let adapter = SimAdapter::new(half);
        let result = match stands {
            true => {
                let peer = SocketAddr::from(([10, 0, 0, 1], 3260));
                let portal = dial.portals.first().cloned().unwrap_or_default();
                Ok(Connected { line: Line::Adapter(Box::new(adapter)), peer, portal })
            }
            false => Err(Error::unreachable(&dial.portals, "no RDMA connection".to_owned())),
        };
        let from = dial.from;
        self.trace.step(self.now, &[10, from as u64, u64::from(stands)], || {
            format!("desk {from} asks for an RDMA connection: {stands}")
        });
        self.tally.mark(if stands { "connection over adapters" } else { "none over adapters" });
        // Who asked may be gone.
        let _ = dial.result.send(result);
        dial.waker.wake();
        self.make_ready(from);
    }

    /// Adapters begin what was posted, and notice who has left them.
    pub(crate) fn serve_adapters(&mut self) {
        let ids: Vec<LinkId> = self.adapters.links.iter().copied().collect();
        for (id, side) in ids.into_iter().flat_map(|id| [(id, 0), (id, 1)]) {
            let Some(link) = self.net.links.get(&id) else {
                self.adapters.links.remove(&id);
                continue;
            };
            let Some(verbs) = &link.verbs else { continue };
            let is_watched = link.ends[side].fd.is_some();
            let mut half = verbs.half(side);
            let posts = std::mem::take(&mut half.posts);
            let accepted = std::mem::take(&mut half.accepted);
            let parts = std::mem::take(&mut half.parts);
            let ends = half.ended && !is_watched && !link.ends[side].closed;
            drop(half);
            for post in posts {
                self.begin_post(id, side, post);
            }
            if accepted {
                let latency = self.latency();
                self.after(latency, Due::Stands(id));
            }
            if parts {
                self.signal(id, side, Segment::Fin);
                let latency = self.latency() * 2;
                self.after(latency, Due::Parted(id, side));
            }
            if ends {
                self.close_end(id, side, false);
            }
        }
    }

    fn begin_post(&mut self, id: LinkId, side: Side, post: Post) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let Some(verbs) = &link.verbs else { return };
        let mut half = verbs.half(side);
        let (op, said, bytes) = match post {
            Post::Receive(buf) => return half.receives.push_back(buf),
            Post::Disconnect => return,
            Post::Send(work_id, work) => {
                let number = half.fly(work_id, None);
                let bytes = bytes_of(&work);
                let said = match &work {
                    Work::Write { stag, offset, payload } => {
                        Ok(Some(Said::Written(*stag, *offset, payload.len())))
                    }
                    _ => tap::pdu(&bytes).map_err(|what| format!("side {side} sends {what}")),
                };
                (Op::Work(number, work), said, bytes)
            }
            Post::Read(work_id, read) => {
                let number = half.fly(work_id, Some((read.sink, read.sink_offset)));
                let request = ReadRequest {
                    sink_stag: read.sink,
                    sink_offset: TaggedOffset(read.sink_offset as u64),
                    length: read.length,
                    source_stag: read.source,
                    source_offset: read.source_offset,
                };
                let source = (read.source, read.source_offset);
                (Op::Ask(number, source, read.length), Ok(Some(Said::Asked(request))), Vec::new())
            }
        };
        drop(half);
        self.let_go(id, side, op, (said, &bytes));
    }

    /// Something goes on its way; `said` is what it says.
    fn let_go(
        &mut self,
        id: LinkId,
        side: Side,
        op: Op,
        (said, bytes): (Result<Option<Said>, String>, &[u8]),
    ) {
        let latency = self.latency();
        let Some(link) = self.net.links.get_mut(&id) else { return };
        if link.ends[side].closed {
            return;
        }
        let target = self.desks[link.ends[1].desk].home;
        let mut place = tap::Place { target, sessions: &mut self.sessions };
        link.tap.said(side, said, &mut place);
        let arrives = (self.now + latency).max(link.pipes[side].last);
        link.pipes[side].last = arrives;
        link.pipes[side].segments.push_back((arrives, Segment::Op(op)));
        self.tally.bytes += bytes.len() as u64;
        self.at(arrives, Due::Arrival(id, side));
        self.note_heard(id, target);
        let parts = [9, id, side as u64, fingerprint(bytes)];
        let length = bytes.len();
        self.trace.step(self.now, &parts, || format!("link {id}.{side} posts {length} bytes"));
    }

    /// Something that `from` has posted is there.
    pub(crate) fn take_op(&mut self, id: LinkId, from: Side, op: Op) {
        let to = 1 - from;
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let Some(verbs) = &link.verbs else { return };
        let mut half = verbs.half(to);
        if half.ended {
            return;
        }
        let what = match &op {
            Op::Work(_, Work::Write { .. }) => "bytes that are written",
            Op::Work(..) => "a message",
            Op::Ask(..) => "bytes that are asked for",
            Op::Answer(..) => "bytes that it has asked for",
        };
        let taken = match op {
            Op::Work(number, Work::Write { stag, offset, payload }) => {
                let is_taken = half.write(stag, offset, payload.bytes());
                drop(half);
                self.later_acked(id, from, number);
                is_taken
            }
            Op::Work(number, work) => {
                let is_taken = half.receive(&bytes_of(&work));
                drop(half);
                self.later_acked(id, from, number);
                self.show_later(id, to);
                is_taken
            }
            Op::Ask(number, source, length) => match half.read(source, length) {
                Some(bytes) => {
                    drop(half);
                    let said = Ok(Some(Said::Answered(bytes.len(), true)));
                    let heard = bytes.clone();
                    self.let_go(id, to, Op::Answer(number, bytes), (said, &heard));
                    true
                }
                None => {
                    drop(half);
                    false
                }
            },
            Op::Answer(number, bytes) => {
                let is_placed = half.place(number, &bytes);
                drop(half);
                self.acked(id, to, number);
                is_placed
            }
        };
        if !taken {
            self.refuse(id, to, what);
        }
    }

    /// An adapter has no place for what comes, and ends the connection. That is nobody's right,
    /// but for one: over another connection of its session an initiator may have heard that a task
    /// has ended, whose data are still on their way here.
    fn refuse(&mut self, id: LinkId, side: Side, what: &str) {
        let may_be = side == 0 && !self.adapters.are_alone;
        if !may_be {
            let broken = format!("the adapter at link {id}.{side} has no place for {what}");
            return self.tally.broken.push(broken);
        }
        self.tally.mark("memory is gone that another connection's answer has ended");
        self.signal(id, side, Segment::Reset);
        self.end_adapter(id, side, true);
    }

    fn later_acked(&mut self, id: LinkId, side: Side, number: u64) {
        let latency = self.latency();
        self.after(latency, Due::Acked(id, side, number));
    }

    /// An adapter knows that something has been done.
    pub(crate) fn acked(&mut self, id: LinkId, side: Side, number: u64) {
        let Some(link) = self.net.links.get(&id).filter(|link| !link.dead) else { return };
        let Some(verbs) = &link.verbs else { return };
        verbs.half(side).complete(number);
        self.show_later(id, side);
    }

    fn show_later(&mut self, id: LinkId, side: Side) {
        let delay = self.adapters.rng.micros(1..=self.adapters.plan.late);
        let Some(verbs) = self.net.links.get(&id).and_then(|link| link.verbs.as_ref()) else {
            return;
        };
        let mut half = verbs.half(side);
        if !half.hidden.is_empty() && !std::mem::replace(&mut half.is_due, true) {
            drop(half);
            self.after(delay, Due::Show(id, side));
        }
    }

    /// An adapter tells some of what it has done.
    pub(crate) fn show(&mut self, id: LinkId, side: Side) {
        let Some(verbs) = self.net.links.get(&id).and_then(|link| link.verbs.as_ref()) else {
            return;
        };
        let mut half = verbs.half(side);
        half.is_due = false;
        let count = self.adapters.rng.index(half.hidden.len().max(1)) + 1;
        let count = count.min(half.hidden.len());
        if count > 1 {
            self.tally.mark("completions in a batch");
        }
        let batch: Vec<Completion> = half.hidden.drain(..count).collect();
        half.visible.extend(batch);
        drop(half);
        self.wake_watcher(id, side);
        self.show_later(id, side);
    }

    /// The connection has ended for an adapter, by the other one or by what befell it.
    pub(crate) fn end_adapter(&mut self, id: LinkId, side: Side, is_lost: bool) {
        if side == 0 {
            self.answer_dial(id, false);
        }
        let Some(verbs) = self.net.links.get(&id).and_then(|link| link.verbs.as_ref()) else {
            return;
        };
        let mut half = verbs.half(side);
        if half.ended {
            return;
        }
        let told = match is_lost {
            true => self.adapters.rng.index(half.hidden.len() + 1),
            false => half.hidden.len(),
        };
        if is_lost && half.flushes(told) {
            self.tally.mark("completions are flushed");
        }
        half.end(if is_lost { LOST } else { End::Closed }, told);
        drop(half);
        self.wake_watcher(id, side);
    }

    /// A port watches an adapter, or looks at it again.
    pub(crate) fn wake_watcher(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.net.links.get(&id) else { return };
        let Some(verbs) = &link.verbs else { return };
        let is_any = verbs.half(side).has_done();
        if let Some(token) = link.ends[side].receiving.filter(|_| is_any) {
            self.tell(link.ends[side].desk, token, Event::Ready);
        }
    }

    /// A port does not watch an adapter any more; another one may.
    pub(crate) fn unwatch(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let Some(verbs) = &link.verbs else { return };
        let end = &mut link.ends[side];
        if let Some(fd) = end.fd.take() {
            self.handles.insert(fd.as_raw_fd(), crate::world::Place::End(id, side));
            verbs.half(side).fd = Some(fd);
        }
        let (desk, token) = (end.desk, end.receiving.take());
        if let Some(token) = token {
            self.tell(desk, token, Event::ReceiveEnded { error: Some(ECANCELED) });
        }
    }
}

/// What a Send or Write carries.
fn bytes_of(work: &Work) -> Vec<u8> {
    match work {
        Work::Send { head, payload, .. } => [head.bytes(), payload.bytes()].concat(),
        Work::Write { payload, .. } => payload.bytes().to_vec(),
        Work::Read { .. } => Vec::new(),
    }
}
