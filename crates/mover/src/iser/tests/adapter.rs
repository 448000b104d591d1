// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target over an adapter that a test plays: what it is given to do, and what becomes of that.

use super::*;
use crate::iser::message::MESSAGE_LEN_MAX;
use crate::limits::ADAPTER_BUFFERS;
use crate::limits::LOGIN_BUFFERS;
use buf::Buf;
use iscsi::datamover::StreamViolation;
use rdma::adapter::Depths;
use rdma::adapter::Done;
use rdma::adapter::Post;
use rdma::adapter::Read;
use rdma::verbs::End;
use rdma::verbs::Work;
use rdma::verbs::WorkId;
use wire::iser::Advertised;
use wire::iser::IserHeader;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

const DEPTHS: Depths = Depths { sends: 64, reads: 2, receives: 160 };
const MEMORY: Advertised = Advertised { stag: Stag(0x55), base: TaggedOffset(0x7000) };

/// A target, and its adapter.
struct Rig {
    pool: Pool,
    far: Target,
    receives: Vec<Buf>,
    works: Vec<(WorkId, Work)>,
    reads: Vec<(WorkId, Read)>,
    disconnected: bool,
    events: Vec<target::Event>,
}

impl Rig {
    fn stranger(said: &[u8]) -> (Self, [u8; 4]) {
        let pool = Pool::new(16 << 20).unwrap();
        let (far, answer) = Target::of_adapter(said, DEPTHS, &pool).unwrap();
        let (receives, works, reads, events) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let disconnected = false;
        let mut rig = Self { pool, far, receives, works, reads, disconnected, events };
        rig.turn();
        (rig, answer)
    }

    /// In full feature phase.
    fn new() -> Self {
        let (mut rig, _) = Self::stranger(&[0x80]);
        rig.say(IserHeader::PLAIN, &login(), &[]);
        assert!(rig.far.prepare(&rig.pool));
        rig.far.submit(target::Op::NoticeKeys(target::Keys::LOGIN));
        rig.turn();
        rig.events.clear();
        rig
    }

    /// The adapter takes what there is to do.
    fn turn(&mut self) {
        assert!(!self.far.poll_transmit(&mut SgList::new()), "an adapter is given no bytes");
        while let Some(post) = self.far.poll_post() {
            match post {
                Post::Receive(buf) => self.receives.push(buf),
                Post::Send(id, work) => self.works.push((id, work)),
                Post::Read(id, read) => self.reads.push((id, read)),
                Post::Disconnect => self.disconnected = true,
            }
        }
        self.far.check();
    }

    fn done(&mut self, done: Done) {
        self.far.handle_done(done);
        while self.far.has_more() {
            let (_, event) = self.far.feed(&[], &self.pool);
            self.events.extend(event);
        }
        while let Some(event) = self.far.poll_event() {
            self.events.push(event);
        }
        self.turn();
    }

    fn say(&mut self, header: IserHeader, request: &Request, data: &[u8]) {
        let mut message = header.emit().to_vec();
        request.emit(u32::try_from(data.len()).unwrap(), &mut message);
        message.extend(data);
        let mut buf = self.receives.remove(0);
        buf[..message.len()].copy_from_slice(&message);
        self.done(Done::Received { buf, length: message.len() });
    }

    /// Everything that was posted to be sent has left.
    fn leave(&mut self) -> Vec<Work> {
        let works = core::mem::take(&mut self.works);
        works.iter().for_each(|(id, _)| self.done(Done::Sent(*id)));
        works.into_iter().map(|(_, work)| work).collect()
    }
}

#[test]
fn strangers_have_few_buffers_and_sessions_one_for_each_pdu() {
    let (mut rig, answer) = Rig::stranger(&[0x80, 0, 0, 0]);
    // Offsets are those of the initiator; it takes Send with Invalidate.
    assert_eq!(answer, [0x80, 0, 0, 0]);
    assert_eq!(rig.receives.len(), LOGIN_BUFFERS);
    assert!(rig.receives.iter().all(|buf| buf.len() == MESSAGE_LEN_MAX));
    assert_eq!(rig.far.capabilities().buffers, Some(ADAPTER_BUFFERS));
    rig.say(IserHeader::PLAIN, &login(), &[]);
    assert!(matches!(rig.events[..], [target::Event::Control { .. }]));
    assert!(rig.far.prepare(&rig.pool));
    rig.turn();
    assert_eq!(rig.receives.len(), usize::from(ADAPTER_BUFFERS));
    // What was lent is the adapter's again when the next one comes.
    let mut rig = Rig::new();
    for _ in 0..3 {
        rig.say(IserHeader::PLAIN, &ping(Itt(7), Ttt::NONE), &[]);
        assert_eq!(rig.receives.len(), usize::from(ADAPTER_BUFFERS));
    }
    // Some of the pool is left, however many there are.
    let crowded = Pool::new(16 << 20).unwrap();
    let sessions = core::iter::repeat_with(|| {
        let (mut far, _) = Target::of_adapter(&[0x80], DEPTHS, &crowded)?;
        far.prepare(&crowded).then_some(far)
    });
    let sessions: Vec<Target> = sessions.map_while(|session| session).collect();
    let left = crowded.bytes_max() - crowded.bytes_in_use();
    assert!(sessions.len() >= 3 && left > crowded.bytes_max() / 20, "{left}");
    let small = Pool::new(64 << 10).unwrap();
    assert!(
        Target::of_adapter(&[0x80], DEPTHS, &small)
            .is_some_and(|(mut far, _)| { !far.prepare(&small) })
    );
    assert!(Target::of_adapter(&[], DEPTHS, &small).is_none(), "it is none of iSER");
    assert_eq!(Rig::stranger(&[0xc0]).1, [0xc0, 0, 0, 0]);
}

#[test]
fn a_read_is_a_write_and_a_status_that_ends_the_memory() {
    let mut rig = Rig::new();
    let header = IserHeader::Control { write: None, read: Some(MEMORY) };
    rig.say(header, &Request::Command(command(TASK, true, 512)), &[]);
    let data = bytes(1, 512);
    rig.far.submit(put(&data, 0));
    rig.far.submit(control(status(TASK), &[]));
    rig.far.submit(target::Op::Release { task: TASK });
    rig.turn();
    rig.events.clear();
    let works = rig.leave();
    let [Work::Write { payload, stag, offset }, Work::Send { invalidate, .. }] = &works[..] else {
        panic!("{works:?}")
    };
    assert_eq!((payload.bytes(), *stag, offset.0), (&data[..], Stag(0x55), 0x7000));
    assert_eq!(*invalidate, Some(Stag(0x55)));
    assert!(matches!(rig.events[..], [target::Event::Released { task: TASK }]), "when it has left");
    assert_eq!(rig.far.counters().bytes_copied, 0);
}

#[test]
fn a_write_is_reads_into_one_buffer() {
    let mut rig = Rig::new();
    let header = IserHeader::Control { write: Some(MEMORY), read: None };
    rig.say(header, &Request::Command(command(TASK, false, 768)), &[]);
    rig.events.clear();
    rig.far.submit(target::Op::Attach { task: TASK, buf: rig.pool.take(768).unwrap() });
    for offset in [0, 256, 512] {
        rig.far.submit(get(offset, 256));
    }
    rig.turn();
    // As many at once as the initiator serves.
    assert_eq!(rig.reads.len(), 2);
    let mut buf = rig.reads[0].1.buf.take().expect("its memory goes with the first one");
    assert!(rig.reads[1].1.buf.is_none());
    let places: Vec<_> =
        rig.reads.iter().map(|(_, read)| (read.sink_offset, read.source_offset.0)).collect();
    assert_eq!(places, [(0, 0x7000), (256, 0x7100)]);
    buf.copy_from_slice(&bytes(2, 768));
    let sink = rig.reads[0].1.sink;
    rig.done(Done::Read(WorkId(u64::MAX)));
    assert!(rig.reads.len() == 3 && rig.reads[2].1.buf.is_none(), "the adapter has it");
    rig.done(Done::Read(WorkId(u64::MAX)));
    rig.done(Done::Returned(sink, buf));
    rig.done(Done::Read(WorkId(u64::MAX)));
    let told: Vec<u32> = rig
        .events
        .iter()
        .map(|event| match event {
            target::Event::DataDone { offset, .. } => *offset,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, [0, 256, 512]);
    let back = rig.far.submit(target::Op::Detach { task: TASK }).expect("it is here");
    assert_eq!(back[..], bytes(2, 768)[..]);
    assert_eq!((rig.far.counters().bytes_copied, rig.far.reads()), (0, 0));
}

#[test]
fn the_end_gives_all_memory_back() {
    let mut rig = Rig::new();
    let header = IserHeader::Control { write: Some(MEMORY), read: None };
    rig.say(header, &Request::Command(command(TASK, false, 256)), &[]);
    rig.far.submit(target::Op::Attach { task: TASK, buf: rig.pool.take(256).unwrap() });
    rig.far.submit(get(0, 256));
    rig.far.submit(control(pong(Itt(9)), &[]));
    rig.far.submit(target::Op::Release { task: TASK });
    rig.turn();
    let (_, mut read) = rig.reads.pop().expect("it was posted");
    rig.done(Done::Returned(read.sink, read.buf.take().expect("its memory")));
    rig.events.clear();
    rig.done(Done::Ended(End::Closed));
    assert!(matches!(rig.events[..], [target::Event::Released { task: TASK }]));
    assert_eq!((rig.far.task_count(), rig.far.backlog()), (0, 0));
    rig.far.submit(control(pong(Itt(9)), &[]));
    rig.works.clear();
    rig.turn();
    assert!(rig.works.is_empty() && !rig.disconnected);
}

#[test]
fn who_breaks_a_rule_of_iser_is_disconnected() {
    let mut rig = Rig::new();
    rig.say(IserHeader::Hello { max_version: 10, min_version: 10, ird: 1 }, &login(), &[]);
    assert!(matches!(rig.events[..], [target::Event::Violation(StreamViolation::Rdma(_))]));
    assert!(rig.disconnected);
    let (mut rig, _) = Rig::stranger(&[0x80]);
    rig.say(IserHeader::PLAIN, &ping(Itt(7), Ttt::NONE), &[]);
    assert!(matches!(rig.events[..], [target::Event::Violation(StreamViolation::NotLogin)]));
}
