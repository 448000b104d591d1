// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator's end of an iSER connection: any segments from the target, whose FPDUs are good.

use crate::input::Input;
use crate::with_pool;
use buf::Buf;
use buf::Pool;
use buf::SgList;
use buf::Slice;
use iscsi::initiator::datamover::Event;
use iscsi::initiator::datamover::Keys;
use iscsi::initiator::datamover::Op;
use iscsi::initiator::datamover::TaskId;
use iscsi::initiator::datamover::itt;
use mover::iser::Initiator;
use rdma::mpa::Framing;
use rdma::mpa::Receiver;
use rdma::mpa::Sender;
use wire::iscsi::Attribute;
use wire::iscsi::BHS_LEN;
use wire::iscsi::Cdb;
use wire::iscsi::CmdSn;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::NopIn;
use wire::iscsi::Numbers;
use wire::iscsi::Residual;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;
use wire::iscsi::ScsiResponse;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;
use wire::iser::Advertised;
use wire::iser::IserHeader;
use wire::iwarp::Ddp;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::QueueNumber;
use wire::iwarp::ReadRequest;
use wire::iwarp::Stag;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::Untagged;

/// Commands under way at most.
const TASKS: u32 = 4;
/// Bytes of each.
const LEN: usize = 64;
/// What is in a buffer before anything comes.
const BEFORE: u8 = 0x55;

/// How far inputs have come.
#[derive(Debug, Default)]
pub struct InitiatorReached {
    /// Commands that ended, and those whose data came whole.
    pub ended: u32,
    /// Of these, with all of their data.
    pub whole: u32,
    /// Connections that ended for a rule that was broken.
    pub violations: u32,
    /// Answers to RDMA Reads.
    pub responses: u32,
}

/// A target's bytes into the initiator's end: no panic, no buffer is kept, no byte is placed but by
/// an STag, and what was not placed does not count as received.
pub fn iser_initiator(data: &[u8]) {
    iser_initiator_reaches(data, &mut InitiatorReached::default());
}

/// As [`iser_initiator`], and tells how far it came.
pub fn iser_initiator_reaches(data: &[u8], reached: &mut InitiatorReached) {
    with_pool(|pool| {
        let mut input = Input::new(data);
        let near = Initiator::new(pool, 1).expect("room for a message");
        let (sender, receiver) =
            (Sender::new(Framing::default()), Receiver::new(Framing::default()));
        let mut run = Run {
            near,
            sender,
            receiver,
            named: Vec::new(),
            msn: [1; 2],
            tasks: 0,
            open: Vec::new(),
            is_over: false,
            reached,
        };
        run.begin();
        while !input.is_empty() && !run.is_over {
            run.step(&mut input, pool);
        }
        run.end();
    });
}

struct Run<'a> {
    near: Initiator,
    /// The target's FPDUs, and those of the initiator.
    sender: Sender,
    receiver: Receiver,
    /// What commands have named.
    named: Vec<(Itt, Advertised)>,
    /// Numbers that are due on queues 0 and 1.
    msn: [u32; 2],
    tasks: u32,
    open: Vec<TaskId>,
    is_over: bool,
    reached: &'a mut InitiatorReached,
}

impl Run<'_> {
    fn begin(&mut self) {
        let mut list = SgList::new();
        assert!(self.near.poll_transmit(&mut list, StatSn(1)), "the request goes out first");
        self.near.handle_sent();
        self.feed(b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x10\x00\x10");
        self.near.submit(Op::NoticeKeys(Keys { strays: true, ..Keys::LOGIN }));
    }

    fn step(&mut self, input: &mut Input<'_>, pool: &Pool) {
        let (kind, fault) = (input.byte(), input.byte());
        let wrong = if fault == 0 { input.byte() } else { 0 };
        match kind & 7 {
            0 | 1 => self.command(kind, pool),
            2 | 3 => self.write(kind, wrong),
            4 => self.read(kind, wrong),
            5 | 6 => self.status(kind, wrong),
            _ if fault == 0 => {
                let length = usize::from(input.peek());
                let bytes = input.take(length).to_vec();
                self.segment(&bytes, &[]);
            }
            _ => {
                let (lun, itt, ttt) = (LunField::default(), Itt::NONE, Ttt(1));
                let ping = Response::NopIn(NopIn { lun, itt, ttt, numbers: NUMBERS });
                self.send(Opcode::Send, Stag(0), &ping.emit(0));
            }
        }
        self.near.check();
    }

    fn command(&mut self, kind: u8, pool: &Pool) {
        if self.open.len() >= TASKS as usize {
            return;
        }
        let read = kind & 8 == 0;
        let task = TaskId { index: self.tasks % 64, generation: self.tasks / 64 };
        self.tasks += 1;
        let command = ScsiCommand {
            immediate: false,
            final_: true,
            read,
            write: !read,
            attribute: Attribute::Simple,
            priority: 0,
            lun: LunField::default(),
            itt: itt(task),
            expected_length: u32::try_from(LEN).expect("it is short"),
            cmd_sn: CmdSn(self.tasks),
            exp_stat_sn: StatSn(1),
            cdb: Cdb { bytes: [0; 32], len: 16 },
            bidi_read_length: None,
        };
        let buf = pool.take(LEN).map(|mut buf| {
            buf.fill(BEFORE);
            buf
        });
        let (write, read) = match read {
            true => (None, buf),
            false => (buf.map(Buf::freeze), None),
        };
        self.near.submit(Op::Attach { task, write, read });
        let (immediate, unsolicited_end) = (0, 0);
        self.near.submit(Op::SendCommand { task, command, immediate, unsolicited_end });
        self.open.push(task);
        self.listen();
    }

    fn named(&self, kind: u8) -> Option<(Itt, Advertised)> {
        let count = self.named.len().max(1);
        self.named.get(usize::from(kind >> 3) % count).copied()
    }

    fn write(&mut self, kind: u8, wrong: u8) {
        let Some((_, memory)) = self.named(kind) else { return };
        let header = Tagged {
            last: wrong & 1 == 0,
            control: Opcode::Write.control(),
            stag: Stag(memory.stag.0 ^ u32::from(wrong >> 1 & 3)),
            offset: TaggedOffset(memory.base.0.wrapping_add((wrong >> 3 & 1).into())),
        };
        let length = LEN + usize::from(wrong >> 4 & 1) - usize::from(wrong >> 5 & 1);
        self.segment(&header.emit(), &vec![9; length]);
    }

    fn read(&mut self, kind: u8, wrong: u8) {
        let Some((_, memory)) = self.named(kind) else { return };
        let request = ReadRequest {
            sink_stag: Stag(1),
            sink_offset: TaggedOffset(0),
            length: u32::try_from(LEN).expect("it is short") + u32::from(wrong & 1),
            source_stag: Stag(memory.stag.0 ^ u32::from(wrong >> 1 & 3)),
            source_offset: memory.base,
        };
        let header = self.header(Opcode::ReadRequest, 1, Stag(0));
        self.segment(&header.emit(), &request.emit());
    }

    fn status(&mut self, kind: u8, wrong: u8) {
        let Some((tag, memory)) = self.named(kind) else { return };
        let response = Response::Scsi(ScsiResponse {
            response: 0,
            status: 0,
            status_qualifier: 0,
            itt: Itt(tag.0 ^ u32::from(wrong & 1)),
            snack_tag: 0,
            numbers: NUMBERS,
            exp_data_sn: DataSn(0),
            bidi_read_residual: Residual::None,
            residual: Residual::None,
        });
        let stag = Stag(memory.stag.0 ^ u32::from(wrong >> 1 & 3));
        let opcode = if kind & 1 == 0 { Opcode::Send } else { Opcode::SendInvalidate };
        let stag = if kind & 1 == 0 { Stag(0) } else { stag };
        self.send(opcode, stag, &response.emit(0));
    }

    fn header(&mut self, opcode: Opcode, queue: u32, invalidate: Stag) -> Untagged {
        let place = usize::try_from(queue).unwrap_or_default();
        let msn = self.msn.get_mut(place).expect("there are two");
        *msn += 1;
        let (msn, queue) = (Msn(*msn - 1), QueueNumber(queue));
        Untagged { last: true, control: opcode.control(), invalidate, queue, msn, offset: 0 }
    }

    fn send(&mut self, opcode: Opcode, invalidate: Stag, pdu: &[u8]) {
        let header = self.header(opcode, 0, invalidate).emit();
        self.segment(&header, &[&IserHeader::PLAIN.emit()[..], pdu].concat());
    }

    fn segment(&mut self, header: &[u8], payload: &[u8]) {
        if header.len() < 14 {
            return;
        }
        let mut list = SgList::new();
        self.sender.frame(header, &Slice::from(payload.to_vec()), &mut list);
        let bytes = list.to_vec();
        let (first, second) = bytes.split_at(bytes.len() / 3);
        self.feed(first);
        self.feed(second);
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while !self.is_over && (!bytes.is_empty() || self.near.has_more()) {
            let (taken, event) = self.near.feed(bytes);
            bytes = bytes.get(taken..).expect("no more is taken than is given");
            match event {
                Some(Event::Ended(ended)) => {
                    self.reached.ended += 1;
                    self.named.retain(|(tag, _)| *tag != itt(ended.task));
                    self.open.retain(|task| *task != ended.task);
                    let buf = self.near.submit(Op::Detach { task: ended.task });
                    if let Some(buf) = buf {
                        let came = buf.iter().take_while(|byte| **byte != BEFORE).count();
                        let received = usize::try_from(ended.received).unwrap_or(usize::MAX);
                        assert_eq!(received, came, "what came without a gap counts, and no more");
                        self.reached.whole += u32::from(came == LEN);
                    }
                    self.near.submit(Op::Release { task: ended.task });
                }
                Some(Event::Violation(_)) => {
                    self.reached.violations += 1;
                    self.is_over = true;
                }
                _ => {}
            }
        }
        self.listen();
    }

    /// What the initiator sends: it makes no faults.
    fn listen(&mut self) {
        let mut list = SgList::new();
        while self.near.poll_transmit(&mut list, StatSn(1)) {
            let bytes = list.to_vec();
            list.clear();
            self.near.handle_sent();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (taken, segment) = self.receiver.feed(rest).expect("good FPDUs");
                rest = rest.get(taken..).expect("no more is taken than is given");
                let Some(segment) = segment else { continue };
                let header = Ddp::parse(segment).expect("a good header");
                match Opcode::parse(header.control()) {
                    Ok(Opcode::ReadResponse) => self.reached.responses += 1,
                    Ok(opcode) if opcode.queue() == Some(QueueNumber(0)) => {
                        let message = segment.get(header.len()..).unwrap_or_default();
                        self.named.extend(names(message));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Nothing is reached by anybody when all tasks are given up.
    fn end(&mut self) {
        for task in self.open.drain(..) {
            drop(self.near.submit(Op::Detach { task }));
            self.near.submit(Op::Release { task });
        }
        assert_eq!((self.near.advertised(), self.near.task_count()), (0, 0));
    }
}

/// What a command names, by its tag.
fn names(message: &[u8]) -> Vec<(Itt, Advertised)> {
    let Ok(IserHeader::Control { write, read }) = IserHeader::parse(message) else {
        return Vec::new();
    };
    let pdu = message.get(message.len().saturating_sub(BHS_LEN)..).unwrap_or_default();
    let tag = pdu.get(16..).and_then(<[u8]>::first_chunk);
    let tag = Itt(tag.map_or(0, |tag| u32::from_be_bytes(*tag)));
    write.into_iter().chain(read).map(|memory| (tag, memory)).collect()
}

const NUMBERS: Numbers =
    Numbers { stat_sn: StatSn(1), exp_cmd_sn: CmdSn(1), max_cmd_sn: CmdSn(64) };
