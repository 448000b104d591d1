// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both ends over adapters that a test plays: it carries messages, and moves bytes where a key lets
//! it.

use super::*;
use crate::limits::ADAPTER_BUFFERS;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use buf::Buf;
use rdma::adapter::Depths;
use rdma::adapter::Done;
use rdma::adapter::Post;
use rdma::adapter::Registry;
use rdma::region::Memory;
use rdma::verbs::End;
use rdma::verbs::Work;
use std::sync::Mutex;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

const DEPTHS: Depths = Depths { sends: 64, reads: 2, receives: 160 };

/// Where the first byte of all memory is.
const BASE: u64 = 0x7f00_0000_1000;

/// What the initiator's adapter was shown.
#[derive(Debug, Default)]
struct Shelf {
    all: BTreeMap<u32, Memory>,
    shown_ever: u32,
    /// Keys that there are at most.
    room: usize,
}

#[derive(Clone, Debug)]
struct Keys(Arc<Mutex<Shelf>>);

impl Registry for Keys {
    fn show(&mut self, memory: Memory) -> Result<(Stag, TaggedOffset), Memory> {
        let mut shelf = self.0.lock().unwrap();
        if shelf.all.len() >= shelf.room {
            return Err(memory);
        }
        shelf.shown_ever += 1;
        let key = shelf.shown_ever << 8;
        shelf.all.insert(key, memory);
        Ok((Stag(key), TaggedOffset(BASE)))
    }

    fn take_back(&mut self, key: Stag) -> Option<Memory> {
        self.0.lock().unwrap().all.remove(&key.0)
    }
}

impl Shelf {
    fn place(&self, key: Stag, offset: TaggedOffset) -> (&Memory, usize) {
        let at = usize::try_from(offset.0 - BASE).unwrap();
        (self.all.get(&key.0).expect("a key that is good"), at)
    }
}

/// Two ends, and what their adapters have.
struct Rig {
    pool: Pool,
    near: Initiator,
    far: Target,
    shelf: Arc<Mutex<Shelf>>,
    /// Buffers of each.
    at_near: VecDeque<Buf>,
    at_far: VecDeque<Buf>,
    /// What each was told.
    near_events: Vec<initiator::Event>,
    far_events: Vec<target::Event>,
    /// Messages that the initiator has sent.
    sent: Vec<Vec<u8>>,
    disconnected: bool,
}

impl Rig {
    fn new(room: usize) -> Self {
        let pool = Pool::new(32 << 20).unwrap();
        let shelf = Arc::new(Mutex::new(Shelf { room, ..Shelf::default() }));
        let keys = Box::new(Keys(Arc::clone(&shelf)));
        let near = Initiator::of_adapter(&pool, DEPTHS, keys).unwrap();
        let (far, answer) = Target::of_adapter(&Initiator::ASKED, DEPTHS, &pool).unwrap();
        // Keys of programs are not ended by the peer.
        assert_eq!((Initiator::ASKED, answer), ([0xc0, 0, 0, 0], [0xc0, 0, 0, 0]));
        let (at_near, at_far) = (VecDeque::new(), VecDeque::new());
        let (near_events, far_events, sent) = (Vec::new(), Vec::new(), Vec::new());
        let disconnected = false;
        let mut rig = Self {
            pool,
            near,
            far,
            shelf,
            at_near,
            at_far,
            near_events,
            far_events,
            sent,
            disconnected,
        };
        rig.near.submit(initiator::Op::SendControl { request: login(), data: b"a=b\0".to_vec() });
        rig.turn();
        assert!(matches!(rig.far_events[..], [target::Event::Control { .. }]));
        assert!(rig.far.prepare(&rig.pool));
        rig.near.submit(initiator::Op::NoticeKeys(initiator::Keys::LOGIN));
        rig.far.submit(target::Op::NoticeKeys(target::Keys::LOGIN));
        rig.turn();
        rig.far_events.clear();
        rig.sent.clear();
        rig
    }

    /// Until nothing happens any more.
    fn turn(&mut self) {
        while self.far_turn() | self.near_turn() {
            self.near.check();
            self.far.check();
        }
    }

    fn near_turn(&mut self) -> bool {
        assert!(!self.near.poll_transmit(&mut SgList::new(), StatSn(9)), "no bytes");
        let mut any = false;
        while let Some(post) = self.near.poll_post() {
            any = true;
            match post {
                Post::Receive(buf) => self.at_near.push_back(buf),
                Post::Send(id, Work::Send { head, payload, invalidate: None, .. }) => {
                    let message = [head.bytes(), payload.bytes()].concat();
                    let mut buf = self.at_far.pop_front().expect("a buffer for it");
                    buf[..message.len()].copy_from_slice(&message);
                    self.far.handle_done(Done::Received { buf, length: message.len() });
                    self.sent.push(message);
                    self.near.handle_done(Done::Sent(id));
                }
                Post::Disconnect => self.disconnected = true,
                other => panic!("{other:?}"),
            }
        }
        while self.near.has_more() {
            self.near_events.extend(self.near.feed(&[]).1);
        }
        any
    }

    fn far_turn(&mut self) -> bool {
        assert!(!self.far.poll_transmit(&mut SgList::new()), "no bytes");
        let mut any = false;
        while let Some(post) = self.far.poll_post() {
            any = true;
            match post {
                Post::Receive(buf) => self.at_far.push_back(buf),
                Post::Send(id, Work::Send { head, payload, invalidate, .. }) => {
                    assert!(invalidate.is_none(), "it was asked not to");
                    let message = [head.bytes(), payload.bytes()].concat();
                    let mut buf = self.at_near.pop_front().expect("a buffer for it");
                    buf[..message.len()].copy_from_slice(&message);
                    self.near.handle_done(Done::Received { buf, length: message.len() });
                    self.far.handle_done(Done::Sent(id));
                }
                Post::Send(id, Work::Write { payload, stag, offset }) => {
                    let mut shelf = self.shelf.lock().unwrap();
                    let at = usize::try_from(offset.0 - BASE).unwrap();
                    let Some(Memory::Sink(buf)) = shelf.all.get_mut(&stag.0) else {
                        panic!("nothing is written to by this key")
                    };
                    buf[at..at + payload.len()].copy_from_slice(payload.bytes());
                    self.far.handle_done(Done::Sent(id));
                }
                Post::Read(id, mut read) => {
                    let mut buf = read.buf.take().expect("one Read at a time");
                    let length = usize::try_from(read.length).unwrap();
                    let shelf = self.shelf.lock().unwrap();
                    let (Memory::Source(slice), at) = shelf.place(read.source, read.source_offset)
                    else {
                        panic!("nothing is read by this key")
                    };
                    buf[read.sink_offset..read.sink_offset + length]
                        .copy_from_slice(&slice.bytes()[at..at + length]);
                    self.far.handle_done(Done::Returned(read.sink, buf));
                    self.far.handle_done(Done::Read(id));
                }
                other => panic!("{other:?}"),
            }
        }
        while self.far.has_more() {
            self.far_events.extend(self.far.feed(&[], &self.pool).1);
        }
        while let Some(event) = self.far.poll_event() {
            self.far_events.push(event);
        }
        any
    }

    fn command(&mut self, task: TaskId, read: bool, (length, immediate): (u32, u32)) {
        let mut buf = self.pool.take(length as usize).unwrap();
        buf.fill(0);
        let write = (!read).then(|| Slice::from(bytes(task.index, length)));
        self.near.submit(initiator::Op::Attach { task, write, read: read.then_some(buf) });
        let (command, unsolicited_end) = (command(task, read, length), immediate);
        self.near.submit(initiator::Op::SendCommand { task, command, immediate, unsolicited_end });
        self.turn();
    }

    fn keys(&self) -> usize {
        self.shelf.lock().unwrap().all.len()
    }

    /// The target ends a task.
    fn end(&mut self, task: TaskId) {
        let (response, data) = (status(task), Vec::new());
        self.far.submit(target::Op::SendControl { response, data, task: Some(task) });
        self.far.submit(target::Op::Release { task });
        self.turn();
    }
}

const fn task(index: u32) -> TaskId {
    TaskId { index, generation: 1 }
}

#[test]
fn a_read_comes_into_memory_that_has_a_key_until_its_end() {
    let mut rig = Rig::new(usize::MAX);
    assert_eq!(rig.near.capabilities().buffers, Some(ADAPTER_BUFFERS));
    assert!(rig.at_near.len() + 1 >= usize::from(ADAPTER_BUFFERS), "one for each PDU");
    rig.command(TASK, true, (512, 0));
    assert_eq!((rig.keys(), rig.near.advertised()), (1, 1));
    let data = bytes(9, 512);
    rig.far.submit(put(&data, 0));
    rig.end(TASK);
    let [initiator::Event::Ended(ended)] = &rig.near_events[..] else {
        panic!("{:?}", rig.near_events)
    };
    assert_eq!((ended.task, ended.received), (TASK, 512));
    assert_eq!(rig.keys(), 0, "before anybody hears of it");
    let buf = rig.near.submit(initiator::Op::Detach { task: TASK }).unwrap();
    assert_eq!(buf[..], data[..]);
    rig.near.submit(initiator::Op::Release { task: TASK });
    assert_eq!((rig.near.task_count(), rig.near.copied()), (0, 0));
}

#[test]
fn what_is_written_is_read_from_memory_with_a_key() {
    let mut rig = Rig::new(usize::MAX);
    rig.command(TASK, false, (700, 100));
    let Some(target::Event::Control { immediate: Immediate::Staged { data, length }, .. }) =
        rig.far_events.pop()
    else {
        panic!("no immediate data")
    };
    assert_eq!((length, rig.keys()), (100, 1));
    rig.far.submit(target::Op::Attach { task: TASK, buf: data });
    rig.far.submit(get(100, 600));
    rig.turn();
    assert!(matches!(rig.far_events[..], [target::Event::DataDone { offset: 100, .. }]));
    let whole = rig.far.submit(target::Op::Detach { task: TASK }).unwrap();
    assert_eq!(whole[..], bytes(TASK.index, 700)[..]);
    rig.end(TASK);
    assert_eq!((rig.keys(), rig.near_events.len()), (0, 1));
    // What goes with the command whole needs no key.
    let other = task(4);
    rig.command(other, false, (100, 100));
    assert_eq!(rig.keys(), 0);
}

/// Covers: ISC-14.
#[test]
fn whoever_gives_a_task_up_has_its_memory_at_once() {
    let mut rig = Rig::new(usize::MAX);
    rig.command(TASK, true, (512, 0));
    assert!(rig.near.submit(initiator::Op::Detach { task: TASK }).is_some());
    assert_eq!(rig.keys(), 0, "the target reaches it no more");
    rig.near.submit(initiator::Op::Release { task: TASK });
    // Also where the connection is over, for another one to go on with.
    let other = task(4);
    rig.command(other, true, (512, 0));
    rig.near.handle_done(Done::Ended(End::Closed));
    let carried = rig.near.carry_all();
    assert_eq!((carried.len(), rig.keys(), rig.near.task_count()), (1, 0, 0));
}

#[test]
fn a_command_without_a_key_waits_for_that_of_another() {
    let mut rig = Rig::new(2);
    for index in 1..=4 {
        rig.command(task(index), true, (512, 0));
    }
    assert_eq!((rig.keys(), rig.far_events.len(), rig.sent.len()), (2, 2, 2));
    // A ping goes out all the same, and pays for nobody's place.
    let request = ping(Itt(7), Ttt::NONE);
    rig.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
    rig.turn();
    assert_eq!(rig.sent.len(), 3);
    rig.end(task(1));
    assert_eq!((rig.keys(), rig.sent.len()), (2, 4), "the next one went out");
    // One that is given up while it waits is not sent.
    rig.near.submit(initiator::Op::Release { task: task(4) });
    rig.end(task(2));
    rig.end(task(3));
    assert_eq!((rig.keys(), rig.sent.len(), rig.near_events.len()), (0, 4, 3));
    assert!(!rig.disconnected);
}

#[test]
fn a_command_that_no_key_can_be_had_for_ends_the_connection() {
    let mut rig = Rig::new(0);
    rig.command(TASK, true, (512, 0));
    assert!(rig.disconnected && rig.sent.is_empty());
    rig.near.handle_done(Done::Ended(End::Closed));
    assert!(rig.near.submit(initiator::Op::Detach { task: TASK }).is_some(), "it is here");
    // A write is whole again, too.
    let mut rig = Rig::new(0);
    rig.command(TASK, false, (512, 0));
    assert!(rig.disconnected);
    assert_eq!((rig.near.carry_all().len(), rig.keys()), (1, 0));
}

#[test]
fn there_is_no_end_over_an_adapter_without_buffers() {
    let shelf = Arc::new(Mutex::new(Shelf::default()));
    let small = Pool::new(64 << 10).unwrap();
    assert!(Initiator::of_adapter(&small, DEPTHS, Box::new(Keys(shelf))).is_none());
    assert_eq!(small.bytes_in_use(), 0);
}
