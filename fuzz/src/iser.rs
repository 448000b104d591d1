// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target's end of an iSER connection: any segments from the initiator, whose FPDUs are good.

use crate::input::Input;
use crate::with_pool;
use buf::Buf;
use buf::Pool;
use buf::SgList;
use buf::Slice;
use clock::Instant;
use iscsi::datamover::Event;
use iscsi::datamover::Immediate;
use iscsi::datamover::Keys;
use iscsi::datamover::Op;
use iscsi::datamover::TaskId;
use mover::iser::Target;
use rdma::mpa::Framing;
use rdma::mpa::Initiator;
use rdma::mpa::Offer;
use rdma::mpa::Receiver;
use rdma::mpa::Sender;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::CmdSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::NopIn;
use wire::iscsi::Numbers;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;
use wire::iser::Advertised;
use wire::iser::IserHeader;
use wire::iwarp::Ddp;
use wire::iwarp::MULPDU_MAX;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::QueueNumber;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::Untagged;

/// Tasks that are begun at once: what the core would bound.
const TASKS: u32 = 16;

/// How far inputs have come: what the mover told, and why connections ended.
#[derive(Debug, Default)]
pub struct Reached {
    /// SCSI commands, and those with immediate data.
    pub commands: u32,
    /// Of these, immediate data.
    pub staged: u32,
    /// Bursts that came whole, and those that did not.
    pub bursts: u32,
    /// Bursts that failed.
    pub failed: u32,
    /// PDUs that were refused.
    pub rejected: u32,
    /// RDMA Reads and Writes of the target.
    pub reads: u32,
    /// RDMA Writes of the target.
    pub writes: u32,
    /// Why connections ended, as the target says: layer and type, code.
    pub ends: BTreeSet<[u8; 2]>,
}

/// Bytes into an end of iSER that answers commands as a core might: no panic, no buffer is kept,
/// and no byte is placed that was not asked for.
pub fn iser_target(data: &[u8]) {
    iser_target_reaches(data, &mut Reached::default());
}

/// As [`iser_target`], and tells how far it came.
pub fn iser_target_reaches(data: &[u8], reached: &mut Reached) {
    with_pool(|pool| {
        let mut input = Input::new(data);
        let mut far = Target::of_login(pool, 1).expect("room for a message");
        let (sender, receiver) = (Sender::new(Framing::default()), None);
        let (asked, msn, cmd_sn) = (VecDeque::new(), Msn(1), 1);
        let (tasks, spoils) = (0, false);
        let mut side = Side { sender, receiver, asked, msn, cmd_sn, tasks, spoils, reached };
        let (_, request) = Initiator::new(Offer::default(), Instant(0));
        side.feed(&mut far, &request, pool);
        let way = input.byte();
        let (hello, own_unexpected_max) = (way == 255, if way == 254 { 4 } else { 0 });
        let first_burst_length = 65536;
        let keys = Keys { hello, own_unexpected_max, first_burst_length, ..Keys::LOGIN };
        far.follow(Vec::new(), keys);
        while !input.is_empty() {
            let segment = side.segment(&mut input);
            side.feed_segment(&mut far, &segment, pool);
        }
        far.submit(Op::Terminate);
    });
}

/// The initiator's.
struct Side<'a> {
    sender: Sender,
    /// Of what the target sends behind its reply.
    receiver: Option<Receiver>,
    /// Its Read Requests that were not answered.
    asked: VecDeque<ReadRequest>,
    msn: Msn,
    cmd_sn: u32,
    tasks: u32,
    /// The next CRC is wrong.
    spoils: bool,
    reached: &'a mut Reached,
}

impl Side<'_> {
    /// Mostly what an initiator sends, so that what follows is reached, too.
    fn segment(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let (kind, fault) = (input.byte(), input.byte());
        let length = usize::from(input.peek());
        match (fault, kind & 7) {
            (0, 0) => input.take(length).to_vec(),
            (0, 1) => {
                let bytes = input.take(length).to_vec();
                self.send(&bytes)
            }
            (0, 2) => {
                let hello = IserHeader::Hello { max_version: kind >> 4, min_version: 9, ird: 4 };
                self.send(&hello.emit())
            }
            (0, 3) => self.ask(input),
            (0, 4) => self.answer(Opcode::Write, 0x30, input),
            (0, 5) => self.answer(Opcode::ReadResponse, 0x30, input),
            (0, 6) => {
                self.spoils = true;
                self.answer(Opcode::Write, 0, input)
            }
            (_, 0) => self.answer(Opcode::Write, 0, input),
            (_, 1..=3) if !self.asked.is_empty() => {
                self.answer(Opcode::ReadResponse, kind & 0x40, input)
            }
            _ => {
                let memory = Some(Advertised { stag: Stag(0x100), base: TaggedOffset(4096) });
                let header = match kind >> 4 {
                    1 => IserHeader::PLAIN,
                    2 => IserHeader::Control { write: None, read: memory },
                    _ => IserHeader::Control { write: memory, read: memory },
                };
                let pdu = match kind & 4 {
                    0 => self.command(input),
                    _ => input.pdu(&mut self.cmd_sn),
                };
                self.send(&[&header.emit()[..], &pdu].concat())
            }
        }
    }

    /// A SCSI command that is one, with some of its data.
    fn command(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let (flags, length) = (input.byte(), u32::from(input.byte()) * 64);
        let write = flags & 1 == 0;
        let immediate = u32::from(input.byte()).min(if write { length } else { 0 });
        let command = ScsiCommand {
            immediate: flags & 2 != 0,
            final_: flags & 4 == 0,
            read: !write,
            write,
            attribute: Attribute::Simple,
            priority: 0,
            lun: LunField::default(),
            itt: Itt(u32::from(flags >> 3 & 1) + self.cmd_sn),
            expected_length: length,
            cmd_sn: CmdSn(self.cmd_sn),
            exp_stat_sn: StatSn(1),
            cdb: Cdb { bytes: [0; 32], len: 16 },
            bidi_read_length: None,
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        let mut pdu = Vec::new();
        command.emit(immediate, &mut pdu);
        let data = usize::try_from(immediate).unwrap_or_default().next_multiple_of(4);
        pdu.resize(pdu.len() + data, 3);
        pdu
    }

    /// A segment of the data that the target has asked for first, or nearly that.
    fn answer(&mut self, opcode: Opcode, kind: u8, input: &mut Input<'_>) -> Vec<u8> {
        let Some(asked) = self.asked.front_mut() else {
            let pdu = input.pdu(&mut self.cmd_sn);
            return self.send(&[&IserHeader::PLAIN.emit()[..], &pdu].concat());
        };
        let wrong = if kind & 0x30 == 0x30 { input.byte() } else { 0 };
        let most = asked.length.min(1024);
        let length = if kind & 0x40 == 0 { most } else { u32::from(input.byte()).min(most) };
        let last = length == asked.length;
        let header = Tagged {
            last: last ^ (wrong & 0x80 != 0),
            control: opcode.control(),
            stag: Stag(asked.sink_stag.0 ^ u32::from(wrong & 3)),
            offset: TaggedOffset(asked.sink_offset.0.wrapping_add((wrong >> 2 & 3).into())),
        };
        if opcode == Opcode::ReadResponse {
            asked.length -= length;
            asked.sink_offset.0 += u64::from(length);
            if last {
                self.asked.pop_front();
            }
        }
        let more = usize::from(wrong >> 4 & 3);
        let payload = vec![9; usize::try_from(length).unwrap_or_default() + more];
        [&header.emit()[..], &payload].concat()
    }

    /// A Read Request, which a target answers only where it asks for nothing.
    fn ask(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let (control, queue, offset) = (Opcode::ReadRequest.control(), QueueNumber(1), 0);
        let msn = Msn(u32::from(input.byte() >> 4));
        let header = Untagged { last: true, control, invalidate: Stag(0), queue, msn, offset };
        [&header.emit()[..], &[0; 28]].concat()
    }

    /// A segment that is all of a Send.
    fn send(&mut self, message: &[u8]) -> Vec<u8> {
        let header = Untagged {
            last: true,
            control: Opcode::Send.control(),
            invalidate: Stag(0),
            queue: QueueNumber(0),
            msn: self.msn,
            offset: 0,
        };
        self.msn = Msn(self.msn.0.wrapping_add(1));
        [&header.emit()[..], message].concat()
    }

    fn feed_segment(&mut self, far: &mut Target, segment: &[u8], pool: &Pool) {
        if (14..=MULPDU_MAX).contains(&segment.len()) {
            let mut list = SgList::new();
            self.sender.frame(segment, &Slice::empty(), &mut list);
            let mut bytes = list.to_vec();
            if core::mem::take(&mut self.spoils)
                && let Some(last) = bytes.last_mut()
            {
                *last ^= 1;
            }
            self.feed(far, &bytes, pool);
        }
    }

    fn feed(&mut self, far: &mut Target, mut bytes: &[u8], pool: &Pool) {
        while !bytes.is_empty() || far.has_more() {
            let (taken, event) = far.feed(bytes, pool);
            bytes = bytes.get(taken..).expect("no more is taken than is given");
            self.take_event(far, event, pool);
            self.listen(far);
            while let Some(event) = far.poll_event() {
                self.take_event(far, Some(event), pool);
            }
            far.check();
        }
    }

    fn take_event(&mut self, far: &mut Target, event: Option<Event>, pool: &Pool) {
        match event {
            Some(Event::Control { request: Request::Command(command), immediate }) => {
                self.reached.commands += 1;
                self.begin(far, &command, immediate, pool);
            }
            Some(Event::Control { request: Request::NopOut(nop), .. }) => {
                let (lun, ttt) = (LunField::default(), Ttt::NONE);
                let pong = Response::NopIn(NopIn { lun, itt: nop.itt, ttt, numbers: NUMBERS });
                let data = far.control_data().to_vec();
                far.submit(Op::SendControl { response: pong, data, task: None });
            }
            Some(Event::DataDone { task, offset, length }) => {
                self.reached.bursts += 1;
                let buf = far.submit(Op::Detach { task });
                if let Some(buf) = buf {
                    let end = usize::try_from(offset + length).expect("it fits a buffer");
                    assert!(end <= buf.len(), "a burst lies within its buffer");
                    far.submit(Op::Attach { task, buf });
                }
            }
            Some(Event::DataFailed { .. }) => self.reached.failed += 1,
            Some(Event::Rejected { .. }) => self.reached.rejected += 1,
            Some(_) | None => {}
        }
    }

    /// What the target sends: it makes no faults.
    fn listen(&mut self, far: &mut Target) {
        let mut list = SgList::new();
        while far.poll_transmit(&mut list) {
            let bytes = list.to_vec();
            list.clear();
            far.handle_sent();
            let Some(receiver) = &mut self.receiver else {
                assert!(bytes.starts_with(b"MPA ID Rep Frame"));
                self.receiver = Some(Receiver::new(Framing::default()));
                continue;
            };
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (taken, segment) = receiver.feed(rest).expect("good FPDUs");
                rest = rest.get(taken..).expect("no more is taken than is given");
                let Some(segment) = segment else { continue };
                let header = Ddp::parse(segment).expect("a good header");
                let payload = segment.get(header.len()..).expect("behind the header");
                match Opcode::parse(header.control()) {
                    Ok(Opcode::ReadRequest) => {
                        self.reached.reads += 1;
                        let request = payload.first_chunk().expect("a whole request");
                        self.asked.push_back(ReadRequest::parse(request));
                    }
                    Ok(Opcode::Write) => self.reached.writes += 1,
                    Ok(Opcode::Terminate) => {
                        self.reached.ends.extend(payload.first_chunk::<2>());
                    }
                    _ => {}
                }
            }
        }
    }

    /// A task for a command: all of its data is asked for, and given.
    fn begin(
        &mut self,
        far: &mut Target,
        command: &ScsiCommand,
        immediate: Immediate,
        pool: &Pool,
    ) {
        let task = TaskId { index: self.tasks % TASKS, generation: self.tasks / TASKS };
        if let Some(before) = self.tasks.checked_sub(TASKS) {
            let before = TaskId { index: before % TASKS, generation: before / TASKS };
            far.submit(Op::Abandon { task: before });
            far.submit(Op::Release { task: before });
        }
        self.tasks += 1;
        let length = command.expected_length.min(65536);
        let (itt, lun) = (command.itt, command.lun);
        let immediate = staged(immediate);
        self.reached.staged += u32::from(immediate.is_some());
        if command.write
            && let Some(buf) = immediate.or_else(|| pool.take(length.try_into().ok()?))
        {
            far.submit(Op::Attach { task, buf });
            let (offset, numbers) = (0, NUMBERS);
            match command.final_ {
                true => far.submit(Op::GetData { task, itt, lun, offset, length, numbers }),
                false => {
                    let discard = false;
                    far.submit(Op::ExpectUnsolicited { task, itt, lun, offset, length, discard })
                }
            };
        }
        if command.read {
            let data = Slice::from(vec![7; length.try_into().unwrap_or_default()]);
            let (offset, burst, numbers, status) = (0, 512, NUMBERS, None);
            far.submit(Op::PutData { task, itt, data, offset, burst, numbers, status });
        }
    }
}

fn staged(immediate: Immediate) -> Option<Buf> {
    match immediate {
        Immediate::Staged { data, .. } => Some(data),
        Immediate::None | Immediate::Exhausted { .. } => None,
    }
}

const NUMBERS: Numbers =
    Numbers { stat_sn: StatSn(1), exp_cmd_sn: CmdSn(1), max_cmd_sn: CmdSn(64) };
