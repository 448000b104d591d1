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
use rdma::mpa::Sender;
use wire::iscsi::CmdSn;
use wire::iscsi::LunField;
use wire::iscsi::NopIn;
use wire::iscsi::Numbers;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::ScsiCommand;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;
use wire::iser::IserHeader;
use wire::iwarp::MULPDU_MAX;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::QueueNumber;
use wire::iwarp::Stag;
use wire::iwarp::Untagged;

/// Tasks that are begun at once: what the core would bound.
const TASKS: u32 = 16;

/// Bytes into an end of iSER that answers commands as a core might: no panic, and no buffer is
/// kept.
pub fn iser_target(data: &[u8]) {
    with_pool(|pool| {
        let mut input = Input::new(data);
        let mut far = Target::of_login(pool, 1).expect("room for a message");
        let mut side = Side { sender: Sender::new(Framing::default()), msn: Msn(1), tasks: 0 };
        let (_, request) = Initiator::new(Offer::default(), Instant(0));
        side.feed(&mut far, &request, pool);
        let hello = input.byte() & 1 == 1;
        far.follow(Vec::new(), Keys { hello, first_burst_length: 65536, ..Keys::LOGIN });
        while !input.is_empty() {
            let kind = input.byte();
            let length = usize::from(input.byte()) << (kind >> 6);
            let bytes = input.take(length).to_vec();
            let segment = match kind & 3 {
                0 => bytes,
                1 => side.send(&[IserHeader::PLAIN.emit().to_vec(), bytes].concat()),
                2 => side.send(&bytes),
                _ => side.send(&[&[0x1c, 0, 0, 0][..], &[0, 0, 1, 0], &bytes].concat()),
            };
            side.feed_segment(&mut far, &segment, pool);
        }
        far.submit(Op::Terminate);
    });
}

/// The initiator's.
struct Side {
    sender: Sender,
    msn: Msn,
    tasks: u32,
}

impl Side {
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
            self.feed(far, &list.to_vec(), pool);
        }
    }

    fn feed(&mut self, far: &mut Target, mut bytes: &[u8], pool: &Pool) {
        while !bytes.is_empty() || far.has_more() {
            let (taken, event) = far.feed(bytes, pool);
            bytes = bytes.get(taken..).expect("no more is taken than is given");
            match event {
                Some(Event::Control { request: Request::Command(command), immediate }) => {
                    self.begin(far, &command, immediate, pool);
                }
                Some(Event::Control { request: Request::NopOut(nop), .. }) => {
                    let (lun, ttt) = (LunField::default(), Ttt::NONE);
                    let pong = Response::NopIn(NopIn { lun, itt: nop.itt, ttt, numbers: NUMBERS });
                    let data = far.control_data().to_vec();
                    far.submit(Op::SendControl { response: pong, data, task: None });
                }
                Some(_) | None => {}
            }
            let mut list = SgList::new();
            while far.poll_transmit(&mut list) {
                list.clear();
                far.handle_sent();
            }
            while far.poll_event().is_some() {}
            far.check();
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
        if command.write
            && let Some(buf) = staged(immediate).or_else(|| pool.take(length.try_into().ok()?))
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
