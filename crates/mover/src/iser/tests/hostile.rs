// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers that name memory which they were not given, and messages that iSER does not have.

use super::*;
use crate::iser::message::head;
use crate::iser::stream::BASE;
use crate::iser::stream::Stream;
use iscsi::datamover::StreamViolation;
use rdma::verbs::Head;
use rdma::verbs::Work;
use wire::iser::Advertised;
use wire::iser::IserHeader;
use wire::iwarp::Cause;
use wire::iwarp::Stag;
use wire::iwarp::TaggedOffset;

/// A target without manners: it speaks iWARP, and says what it likes.
struct Rogue {
    pool: Pool,
    near: Initiator,
    stream: Stream,
    /// What the last command has named.
    named: (Option<Advertised>, Option<Advertised>),
}

impl Rogue {
    /// After a command of the initiator with guards around its buffer.
    fn facing(command: ScsiCommand, write: &[u8], read: usize) -> Self {
        Self::facing_with(initiator::Keys::LOGIN, command, (write, 0), read)
    }

    /// As `facing`; so much is sent unasked.
    fn facing_with(
        keys: initiator::Keys,
        command: ScsiCommand,
        (write, immediate): (&[u8], u32),
        read: usize,
    ) -> Self {
        let pool = Pool::new(16 << 20).unwrap();
        let near = Initiator::new(&pool, 1).unwrap();
        let stream = Stream::target(pool.take(16 << 10), 2);
        let mut rogue = Self { stream, near, pool, named: (None, None) };
        let read = (read > 0).then(|| {
            let mut buf = rogue.pool.take(read).unwrap();
            buf.fill(0x55);
            buf
        });
        let write = Some(Slice::from(write.to_vec()));
        rogue.near.submit(initiator::Op::Attach { task: TASK, write, read });
        rogue.near.submit(initiator::Op::NoticeKeys(keys));
        let (task, unsolicited_end) = (TASK, immediate);
        let op = initiator::Op::SendCommand { task, command, immediate, unsolicited_end };
        rogue.near.submit(op);
        rogue.exchange();
        rogue
    }

    /// What the initiator tells.
    fn exchange(&mut self) -> Vec<initiator::Event> {
        let mut events = Vec::new();
        loop {
            let (mut out, mut back) = (SgList::new(), SgList::new());
            let to_rogue = self.near.poll_transmit(&mut out, StatSn(9));
            let to_near = self.stream.poll_transmit(&mut back);
            if !to_rogue && !to_near {
                return events;
            }
            if to_rogue {
                self.near.handle_sent();
                let bytes = out.to_vec();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (taken, arrival) = self.stream.feed(rest, || None);
                    let header = IserHeader::parse(self.stream.message(rest));
                    rest = &rest[taken..];
                    if arrival.is_some()
                        && let Ok(IserHeader::Control { write, read }) = header
                    {
                        self.named = (write, read);
                    }
                }
            }
            if to_near {
                self.stream.handle_sent();
                let bytes = back.to_vec();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (taken, event) = self.near.feed(rest);
                    rest = &rest[taken..];
                    events.extend(event);
                }
            }
        }
    }

    /// The initiator ends the connection, and says so by a Terminate.
    fn assert_ended(&mut self, wanted: Cause) {
        let events = self.exchange();
        let told = initiator::Violation::Rdma(Some(wanted));
        assert!(
            matches!(&events[..], [initiator::Event::Violation(found), ..] if *found == told),
            "{events:?}"
        );
        assert!(self.stream.is_over(), "the Terminate has come");
    }

    fn read_buf(&mut self) -> Vec<u8> {
        self.near.submit(initiator::Op::Detach { task: TASK }).unwrap().to_vec()
    }

    fn send(&mut self, header: IserHeader, response: &Response, invalidate: Option<Stag>) {
        let head = head(header, &response.emit(0)).unwrap();
        self.stream.send(head, Slice::empty(), invalidate);
    }
}

fn at(memory: Advertised, offset: u64) -> TaggedOffset {
    TaggedOffset(memory.base.0.wrapping_add(offset))
}

/// Covers: IST-01.
#[test]
fn a_target_writes_only_to_what_it_may_write_to() {
    let payload = || Slice::from(bytes(1, 64));
    for (what, cause) in [
        ("another stag", Cause::TAGGED_INVALID_STAG),
        ("a key of another time", Cause::TAGGED_INVALID_STAG),
        ("before the buffer", Cause::TAGGED_BOUNDS),
        ("across its end", Cause::TAGGED_BOUNDS),
        ("an offset that wraps", Cause::TAGGED_WRAP),
    ] {
        let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
        let memory = rogue.named.1.unwrap();
        let (stag, offset) = match what {
            "another stag" => (Stag(memory.stag.0 + 0x100), memory.base),
            "a key of another time" => (Stag(memory.stag.0 ^ 1), memory.base),
            "before the buffer" => (memory.stag, at(memory, u64::MAX)),
            "across its end" => (memory.stag, at(memory, 37)),
            _ => (memory.stag, TaggedOffset(u64::MAX - 3)),
        };
        rogue.stream.write(payload(), stag, offset);
        rogue.assert_ended(cause);
        assert_eq!(rogue.read_buf(), [0x55; 100], "{what}: not a byte");
    }
    let mut rogue = Rogue::facing(command(TASK, false, 100), &[7; 100], 0);
    let memory = rogue.named.0.unwrap();
    rogue.stream.write(payload(), memory.stag, memory.base);
    rogue.assert_ended(Cause::REMOTE_ACCESS);
}

/// Covers: IST-01.
#[test]
fn a_target_reads_only_what_it_may_read() {
    for (what, cause) in [
        ("another stag", Cause::REMOTE_INVALID_STAG),
        ("across its end", Cause::REMOTE_BOUNDS),
        ("what is written to", Cause::REMOTE_ACCESS),
    ] {
        let reads = what == "what is written to";
        let mut rogue = Rogue::facing(command(TASK, reads, 100), &[7; 100], 100);
        let memory = rogue.named.0.or(rogue.named.1).unwrap();
        let (source, offset) = match what {
            "another stag" => (Stag(memory.stag.0 + 0x100), 0),
            "across its end" => (memory.stag, 50),
            _ => (memory.stag, 0),
        };
        let mut buf = rogue.pool.take(64).unwrap();
        buf.fill(0x55);
        let sink = rogue.stream.advertise(rdma::region::Memory::Sink(buf)).unwrap();
        let (sink_offset, source_offset, length) = (BASE, at(memory, offset), 64);
        let work = Work::Read { sink, sink_offset, source, source_offset, length };
        assert!(rogue.stream.read(work));
        rogue.assert_ended(cause);
        let withdrawn = rogue.stream.regions.invalidate(sink).map(|withdrawn| withdrawn.memory);
        let Some(rdma::region::Memory::Sink(buf)) = withdrawn else { panic!("it is there") };
        assert_eq!(buf[..], [0x55; 64], "{what}: not a byte");
    }
}

/// Where memory is named only for what is asked for, the rest of it has no name.
///
/// Covers: ISK-12.
#[test]
fn a_target_reads_nothing_that_comes_unasked() {
    let keys = initiator::Keys { solicited_only: true, ..initiator::Keys::LOGIN };
    for (offset, length, is_there) in
        [(0, 60, true), (u64::MAX, 1, false), (60, 1, false), (0, 61, false)]
    {
        let command = command(TASK, false, 100);
        let mut rogue = Rogue::facing_with(keys, command, (&bytes(7, 100), 40), 0);
        let memory = rogue.named.0.unwrap();
        let mut buf = rogue.pool.take(64).unwrap();
        buf.fill(0x55);
        let sink = rogue.stream.advertise(rdma::region::Memory::Sink(buf)).unwrap();
        let (source, source_offset, sink_offset) = (memory.stag, at(memory, offset), BASE);
        let work = Work::Read { sink, sink_offset, source, source_offset, length };
        assert!(rogue.stream.read(work));
        if !is_there {
            rogue.assert_ended(Cause::REMOTE_BOUNDS);
            continue;
        }
        assert!(rogue.exchange().is_empty());
        let withdrawn = rogue.stream.regions.invalidate(sink).map(|withdrawn| withdrawn.memory);
        let Some(rdma::region::Memory::Sink(buf)) = withdrawn else { panic!("it is there") };
        assert_eq!(buf[..60], bytes(7, 100)[40..]);
    }
}

/// Covers: IST-03, ISP-12.
#[test]
fn nothing_is_reached_after_the_end_of_a_task() {
    for invalidates in [false, true] {
        let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
        let memory = rogue.named.1.unwrap();
        rogue.stream.write(Slice::from(bytes(1, 100)), memory.stag, memory.base);
        let invalidate = invalidates.then_some(memory.stag);
        rogue.send(IserHeader::PLAIN, &status(TASK), invalidate);
        rogue.stream.write(Slice::from(bytes(2, 100)), memory.stag, memory.base);
        let events = rogue.exchange();
        let [initiator::Event::Ended(_), initiator::Event::Violation(violation)] = &events[..]
        else {
            panic!("{events:?}")
        };
        let told = initiator::Violation::Rdma(Some(Cause::TAGGED_INVALID_STAG));
        assert_eq!(*violation, told);
        assert_eq!(rogue.read_buf(), bytes(1, 100));
    }
}

/// A status that comes before its data would give out what was in the buffer before.
#[test]
fn only_what_a_target_has_written_counts_as_read() {
    for invalidates in [false, true] {
        for length in [0, 60, 100] {
            let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
            let memory = rogue.named.1.unwrap();
            rogue.stream.write(Slice::from(bytes(1, length)), memory.stag, memory.base);
            let invalidate = invalidates.then_some(memory.stag);
            rogue.send(IserHeader::PLAIN, &status(TASK), invalidate);
            let events = rogue.exchange();
            let [initiator::Event::Ended(ended)] = &events[..] else { panic!("{events:?}") };
            assert_eq!(ended.received, length);
        }
    }
}

/// What comes twice does not stand for what does not come, nor does what comes behind it.
#[test]
fn only_bytes_that_have_come_are_given_out() {
    for (writes, wanted) in [
        (&[(0, 60), (0, 60)][..], 60),
        (&[(40, 60)], 0),
        (&[(60, 40), (0, 50)], 50),
        (&[(60, 40), (0, 50), (40, 20)], 100),
        (&[(50, 50), (50, 50), (0, 10)], 10),
    ] {
        let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
        let memory = rogue.named.1.unwrap();
        for (offset, length) in writes {
            let payload = Slice::from(bytes(1, *length));
            rogue.stream.write(payload, memory.stag, at(memory, *offset));
        }
        rogue.send(IserHeader::PLAIN, &status(TASK), None);
        let events = rogue.exchange();
        let [initiator::Event::Ended(ended)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(ended.received, wanted, "{writes:?}");
    }
}

/// Covers: IST-02/I.
#[test]
fn names_of_one_connection_are_none_of_another() {
    let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
    let pool = Pool::new(1 << 20).unwrap();
    let other = Initiator::new(&pool, 7).unwrap();
    let theirs = rogue.named.1.unwrap().stag;
    let near = core::mem::replace(&mut rogue.near, other);
    drop(near);
    // The same command over another connection.
    let buf = pool.take(100).map(|mut buf| {
        buf.fill(0x55);
        buf
    });
    rogue.stream = Stream::target(rogue.pool.take(16 << 10), 2);
    rogue.near.submit(initiator::Op::Attach { task: TASK, write: None, read: buf });
    let (task, command) = (TASK, command(TASK, true, 100));
    let (immediate, unsolicited_end) = (0, 0);
    let op = initiator::Op::SendCommand { task, command, immediate, unsolicited_end };
    rogue.near.submit(op);
    rogue.exchange();
    rogue.stream.write(Slice::from(bytes(1, 100)), theirs, BASE);
    rogue.assert_ended(Cause::TAGGED_INVALID_STAG);
    assert_eq!(rogue.read_buf(), [0x55; 100]);
}

/// Covers: IST-06.
#[test]
fn only_the_status_of_a_task_ends_its_memory() {
    let other = TaskId { index: 4, generation: 0 };
    for response in [pong(Itt(7)), status(other)] {
        let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
        let buf = rogue.pool.take(10);
        rogue.near.submit(initiator::Op::Attach { task: other, write: None, read: buf });
        let (task, command) = (other, command(other, true, 10));
        let (immediate, unsolicited_end) = (0, 0);
        let op = initiator::Op::SendCommand { task, command, immediate, unsolicited_end };
        let stag = rogue.named.1.unwrap().stag;
        rogue.near.submit(op);
        rogue.exchange();
        rogue.send(IserHeader::PLAIN, &response, Some(stag));
        rogue.assert_ended(Cause::NOT_INVALIDATED);
    }
    let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
    rogue.send(IserHeader::PLAIN, &status(TASK), Some(Stag(0xdead_be01)));
    rogue.assert_ended(Cause::REMOTE_NOT_INVALIDATED);
}

/// Covers: ISP-02/I, ISE-03/I.
#[test]
fn messages_that_iser_does_not_have_end_the_connection() {
    let hello = IserHeader::Hello { max_version: 10, min_version: 10, ird: 1 };
    let pdu = status(TASK).emit(0);
    let plain = IserHeader::PLAIN.emit();
    for opcode in (0..16).filter(|opcode| *opcode != 1) {
        let mut other = plain;
        other[0] = opcode << 4;
        let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
        rogue.stream.send(Head::of(&[&other, &pdu]).unwrap(), Slice::empty(), None);
        rogue.assert_ended(Cause::UNEXPECTED_OPCODE);
    }
    for parts in [
        [&hello.emit()[..], &pdu],
        [&plain, &[]],
        [&plain, &pdu[..47]],
        // More than its header says.
        [&plain, &[&pdu[..], &[0; 4]].concat()],
    ] {
        let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
        rogue.stream.send(Head::of(&parts).unwrap(), Slice::empty(), None);
        rogue.assert_ended(Cause::UNEXPECTED_OPCODE);
    }
}

#[test]
fn data_never_comes_as_a_pdu() {
    let numbers = numbers();
    let data_in = Response::DataIn(DataIn {
        final_: true,
        acknowledge: false,
        status: None,
        lun: UNIT,
        itt: itt(TASK),
        ttt: Ttt::NONE,
        numbers,
        data_sn: DataSn(0),
        offset: 0,
    });
    let mut rogue = Rogue::facing(command(TASK, true, 100), &[], 100);
    rogue.send(IserHeader::PLAIN, &data_in, None);
    let events = rogue.exchange();
    let malformed = initiator::Violation::Malformed { opcode: 0x25 };
    assert!(
        matches!(&events[..], [initiator::Event::Violation(found)] if *found == malformed),
        "{events:?}"
    );
}

/// The other way round: an initiator that says what it likes, to a target.
fn far_events(parts: &[&[u8]]) -> Vec<target::Event> {
    let mut pair = Pair::new();
    let to_near = pair.far_bytes();
    pair.feed_near(&to_near);
    pair.near.submit_raw(Head::of(parts).unwrap());
    pair.exchange().0
}

fn emitted(command: ScsiCommand) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.emit(0, &mut bytes);
    bytes
}

/// Covers: ISP-02/T, ISE-03/T.
#[test]
fn a_target_takes_no_messages_that_iser_does_not_have() {
    let pdu = emitted(command(TASK, true, 0));
    let plain = IserHeader::PLAIN.emit();
    let hello = IserHeader::Hello { max_version: 10, min_version: 10, ird: 1 }.emit();
    let others: Vec<_> = (0..16)
        .filter(|opcode| *opcode != 1)
        .map(|opcode| {
            let mut other = plain;
            other[0] = opcode << 4;
            other
        })
        .collect();
    let others = others.iter().map(|other| [&other[..], &pdu]);
    let cut = [[&hello[..], &pdu], [&plain, &[]], [&plain, &pdu[..47]]];
    for parts in others.chain(cut) {
        let events = far_events(&parts);
        let told = StreamViolation::Rdma(Some(Cause::UNEXPECTED_OPCODE));
        assert!(
            matches!(&events[..], [target::Event::Violation(found)] if *found == told),
            "{events:?}"
        );
    }
}

/// Covers: ISP-23.
#[test]
fn a_command_that_names_no_memory_is_refused() {
    let plain = IserHeader::PLAIN.emit();
    for command in [
        command(TASK, true, 512),
        command(TASK, false, 512),
        ScsiCommand { read: true, bidi_read_length: Some(1), ..command(TASK, false, 0) },
    ] {
        let events = far_events(&[&plain, &emitted(command)]);
        assert!(matches!(events[..], [target::Event::Rejected { reason: 4 }]), "{events:?}");
    }
    let events = far_events(&[&plain, &emitted(command(TASK, true, 0))]);
    assert!(matches!(events[..], [target::Event::Control { .. }]), "{events:?}");
}

#[test]
fn data_that_was_not_announced_is_refused() {
    for ttt in [Ttt::NONE, Ttt(1)] {
        let pdu = DataOut {
            final_: true,
            lun: UNIT,
            itt: itt(TASK),
            ttt,
            exp_stat_sn: StatSn(1),
            data_sn: DataSn(0),
            offset: 0,
        };
        let events = far_events(&[&IserHeader::PLAIN.emit(), &pdu.emit(0)]);
        assert!(matches!(events[..], [target::Event::Rejected { .. }]), "{events:?}");
    }
}

#[test]
fn bytes_that_are_no_mpa_end_the_connection() {
    let pool = Pool::new(1 << 20).unwrap();
    let mut far = Target::of_stranger(1);
    let (_, event) = far.feed(b"MPA ID Rep Frame\0\x02\0\0", &pool);
    let told = StreamViolation::Rdma(Some(Cause::MPA_START));
    assert!(matches!(event, Some(target::Event::Violation(found)) if found == told));
    far.submit(target::Op::Terminate);
    assert!(!far.poll_transmit(&mut SgList::new()) && far.is_terminated());
}

#[test]
fn only_a_login_begins_a_connection() {
    let mut pair = Pair::begin(usize::MAX);
    let request = ping(Itt(1), Ttt::NONE);
    pair.near.submit(initiator::Op::SendControl { request, data: Vec::new() });
    let (events, _) = pair.exchange();
    assert!(
        matches!(events[..], [target::Event::Violation(StreamViolation::NotLogin)]),
        "{events:?}"
    );
}
