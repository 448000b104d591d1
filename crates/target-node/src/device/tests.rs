// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::collections::VecDeque;
use std::io;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::time::Duration;

use buf::Pool;
use engine::sg::Data;
use engine::sg::Reply;
use store::Outcome;
use store::device::Answer;
use store::device::CDB_LEN_MAX;
use store::device::Failure;
use store::device::Pace;
use store::device::answer_of;
use store::foreign::Answers;
use wire::scsi::sam::CHECK_CONDITION;

use super::carrier::LONG;
use super::carrier::judged;
use super::*;

/// A carrier whose commands end when the test says so, or at once.
#[derive(Debug, Default)]
struct Fake {
    state: Mutex<FakeState>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct FakeState {
    /// Commands wait for their end.
    holds: bool,
    /// First byte of each CDB, in the order in which they came.
    seen: Vec<u8>,
    under_way: usize,
    most: usize,
    resets: usize,
    cannot_reset: bool,
    /// Says that it has moved what it has not.
    lies: bool,
    replies: VecDeque<Result<Reply, i32>>,
}

impl Fake {
    fn with(&self, what: impl FnOnce(&mut FakeState)) {
        what(&mut self.state.lock().expect("whole"));
        self.news.notify_all();
    }

    fn wait(&self, until: impl Fn(&FakeState) -> bool) {
        let state = self.state.lock().expect("whole");
        let waited = self.news.wait_timeout_while(state, PATIENCE, |state| !until(state));
        let (state, timeout) = waited.expect("whole");
        drop(state);
        assert!(!timeout.timed_out(), "{self:?}");
    }
}

impl Carrier for Arc<Fake> {
    fn carry_out(&self, cdb: &[u8], data: Data<'_>, _: Duration) -> io::Result<Reply> {
        let mut state = self.state.lock().expect("whole");
        state.seen.push(cdb[0]);
        state.under_way += 1;
        state.most = state.most.max(state.under_way);
        self.news.notify_all();
        let mut state = self.news.wait_while(state, |state| state.holds).expect("whole");
        state.under_way -= 1;
        let reply = state.replies.pop_front().unwrap_or_else(|| Ok(good()));
        let moved = match data {
            Data::In(bytes) => {
                if !state.lies {
                    bytes.fill(7);
                }
                bytes.len()
            }
            Data::Out(bytes) => bytes.len(),
            Data::Nothing => 0,
        };
        let moved = u32::try_from(moved).expect("small");
        reply.map(|reply| Reply { moved, ..reply }).map_err(io::Error::from_raw_os_error)
    }

    fn reset(&self) -> io::Result<()> {
        let mut state = self.state.lock().expect("whole");
        if state.cannot_reset {
            return Err(io::Error::from_raw_os_error(95));
        }
        state.resets += 1;
        state.holds = false;
        self.news.notify_all();
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

fn good() -> Reply {
    Reply { status: 0, host_status: 0, driver_status: 0, sense: Vec::new(), moved: 0 }
}

/// The thread of a reactor, as far as answers go.
#[derive(Debug)]
struct Inbox(Mutex<Sender<(u64, Outcome)>>);

impl Answers for Inbox {
    fn answer(&self, ticket: u64, outcome: Outcome) {
        self.0.lock().expect("whole").send((ticket, outcome)).expect("the test listens");
    }
}

struct Bench {
    fake: Arc<Fake>,
    device: Served<Arc<Fake>>,
    inbox: Arc<Inbox>,
    answers: Receiver<(u64, Outcome)>,
    pool: Pool,
}

impl Bench {
    fn of(kind: u8, depth: u32) -> Self {
        let fake = Arc::new(Fake::default());
        let facts = Facts { kind, removable: false, transfer_max: 1 << 20, capacity: None };
        let times = Times { usual: USUAL };
        let device = Served::new("/dev/sg9", Arc::clone(&fake), facts, times, depth);
        let (tell, answers) = mpsc::channel();
        let inbox = Arc::new(Inbox(Mutex::new(tell)));
        Self { fake, device, inbox, answers, pool: Pool::new(1 << 20).expect("room") }
    }

    fn begin(&self, ticket: u64, transfer: Transfer) -> Errand {
        let mut cdb = [0; CDB_LEN_MAX];
        cdb[0] = u8::try_from(ticket).expect("small");
        let command = Command { cdb, cdb_len: 6, transfer, pace: Pace::Usual };
        let errand = self.device.carry_out(command);
        let room = errand.room() as usize;
        let buf = (room > 0).then(|| self.pool.take(room).expect("room"));
        errand.begin(Arc::clone(&self.inbox) as _, ticket, buf);
        errand
    }

    fn next(&self) -> (u64, Answer) {
        let (ticket, outcome) = self.answers.recv_timeout(PATIENCE).expect("an answer");
        (ticket, answer_of(outcome))
    }

    fn failure(&self) -> (u64, Failure) {
        match self.next() {
            (ticket, Answer::Failed(failure)) => (ticket, failure),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn data_go_into_the_buffer_of_the_driver_and_out_of_that_of_the_command() {
    let bench = Bench::of(0, 4);
    bench.begin(1, Transfer::In(512));
    let (1, Answer::Ended { status: 0, moved: 512, data: Some(data), .. }) = bench.next() else {
        panic!("it ended well");
    };
    assert_eq!(data.to_vec(), [7; 512]);
    drop(data);
    bench.begin(2, Transfer::Out(vec![1; 100].into()));
    let ended = bench.next();
    assert!(matches!(ended, (2, Answer::Ended { moved: 100, data: None, .. })), "{ended:?}");
    assert_eq!(bench.pool.bytes_in_use(), 0);
}

/// Drivers that know nothing of residuals say that all has come.
#[test]
fn what_no_device_has_written_is_zero() {
    let bench = Bench::of(0, 4);
    for lies in [false, true] {
        bench.fake.with(|fake| fake.lies = lies);
        bench.begin(1, Transfer::In(4096));
        let (1, Answer::Ended { moved: 4096, data: Some(data), .. }) = bench.next() else {
            panic!("it ended well");
        };
        let expected = if lies { 0 } else { 7 };
        assert!(data.to_vec() == [expected; 4096], "nothing of an earlier command");
    }
}

#[test]
fn no_more_commands_are_sent_than_the_device_takes() {
    for (kind, depth, most) in [(0, 3, 3), (1, 64, 1), (8, 64, 1), (0, 1000, 16)] {
        let bench = Bench::of(kind, depth);
        bench.fake.with(|fake| fake.holds = true);
        for ticket in 0..40 {
            bench.begin(ticket, Transfer::Nothing);
        }
        bench.fake.wait(|fake| fake.under_way == most);
        bench.fake.with(|fake| fake.holds = false);
        let mut ended: Vec<u64> = (0..40).map(|_| bench.next().0).collect();
        let in_order = ended.is_sorted();
        ended.sort_unstable();
        assert_eq!(ended, (0..40).collect::<Vec<_>>());
        assert!(most > 1 || in_order, "commands of a tape keep their order");
        bench.fake.with(|fake| assert_eq!(fake.most, most));
    }
}

#[test]
fn what_waits_can_be_taken_back_and_what_is_sent_cannot() {
    let bench = Bench::of(1, 1);
    bench.fake.with(|fake| fake.holds = true);
    let sent = bench.begin(1, Transfer::Nothing);
    bench.fake.wait(|fake| fake.under_way == 1);
    let waits = bench.begin(2, Transfer::In(512));
    bench.begin(3, Transfer::Nothing);
    waits.cancel();
    assert_eq!(bench.failure(), (2, Failure::Aborted));
    assert_eq!(bench.pool.bytes_in_use(), 0);
    sent.cancel();
    waits.cancel();
    assert!(bench.answers.try_recv().is_err(), "it ends with the device");
    bench.fake.with(|fake| fake.holds = false);
    assert_eq!([bench.next().0, bench.next().0], [1, 3]);
    bench.fake.with(|fake| assert_eq!(fake.seen, [1, 3]));
}

#[test]
fn a_reset_overtakes_commands_that_the_device_does_not_answer() {
    let bench = Bench::of(0, 2);
    bench.fake.with(|fake| fake.holds = true);
    bench.begin(1, Transfer::Nothing);
    bench.begin(2, Transfer::Nothing);
    bench.fake.wait(|fake| fake.under_way == 2);
    bench.fake.with(|fake| {
        let reset = Reply { host_status: 8, ..good() };
        fake.replies.extend([Ok(reset.clone()), Ok(reset)]);
    });
    bench.device.reset().begin(Arc::clone(&bench.inbox) as _, 9, None);
    let mut ended = Vec::new();
    for _ in 0..3 {
        let (ticket, outcome) = bench.answers.recv_timeout(PATIENCE).expect("an answer");
        assert_eq!(matches!(outcome, Outcome::Done), ticket == 9, "{outcome:?}");
        ended.push(ticket);
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 9]);
    bench.fake.with(|fake| {
        assert_eq!(fake.resets, 1);
        fake.cannot_reset = true;
    });
    bench.device.reset().begin(Arc::clone(&bench.inbox) as _, 10, None);
    let (ticket, outcome) = bench.answers.recv_timeout(PATIENCE).expect("an answer");
    assert!(matches!((ticket, outcome), (10, Outcome::Done)), "whoever waits is not kept waiting");
}

#[test]
fn a_device_that_is_closed_ends_what_waits_and_takes_nothing() {
    let bench = Bench::of(1, 1);
    bench.fake.with(|fake| fake.holds = true);
    bench.begin(1, Transfer::Nothing);
    bench.fake.wait(|fake| fake.under_way == 1);
    bench.begin(2, Transfer::Nothing);
    let fake = Arc::clone(&bench.fake);
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        fake.with(|fake| fake.holds = false);
    });
    bench.device.close().expect("what was under way has ended");
    assert_eq!(bench.failure(), (2, Failure::Gone));
    assert_eq!(bench.next().0, 1);
    bench.begin(3, Transfer::Nothing);
    assert_eq!(bench.failure(), (3, Failure::Gone));
    later.join().expect("no panic");
}

#[test]
fn a_command_that_nobody_waits_for_is_sent_too() {
    let bench = Bench::of(1, 1);
    let mut cdb = [0; CDB_LEN_MAX];
    cdb[0] = 0x1e;
    let transfer = Transfer::Nothing;
    bench.device.send(Command { cdb, cdb_len: 6, transfer, pace: Pace::Usual });
    bench.fake.wait(|fake| fake.seen == [0x1e]);
}

#[test]
fn what_the_system_says_has_a_meaning() {
    let of = |status, host_status, driver_status, sense: &[u8]| {
        let sense = sense.to_vec();
        judged(Ok(Reply { status, host_status, driver_status, sense, moved: 0 }))
            .map(|reply| reply.status)
    };
    assert_eq!(of(0, 0, 0, &[]), Ok(0));
    assert_eq!(of(2, 7, 8, &[0x70]), Ok(2), "sense data say more than the driver");
    assert_eq!(of(0x28, 0, 0, &[]), Ok(0x28));
    assert_eq!(of(0x18, 0x11, 0, &[]), Ok(0x18), "DID_NEXUS_FAILURE");
    for (host, failure) in [
        (1, Failure::Gone),
        (2, Failure::Busy),
        (3, Failure::TimedOut),
        (5, Failure::Aborted),
        (7, Failure::Transport),
        (8, Failure::Reset),
        (0xe, Failure::Busy),
        (0xff, Failure::Transport),
    ] {
        assert_eq!(of(0, host, 0, &[]), Err(failure), "{host:x}");
    }
    assert_eq!(of(0, 0, 6, &[]), Err(Failure::TimedOut));
    for (errno, failure) in [
        (19, Failure::Gone),
        (6, Failure::Gone),
        (1, Failure::NotPermitted),
        (22, Failure::DoesNotFit),
        (12, Failure::Busy),
        (33, Failure::Busy),
        (5, Failure::Transport),
    ] {
        let judged = judged(Err(io::Error::from_raw_os_error(errno)));
        assert_eq!(judged.map(|_| ()), Err(failure), "{errno}");
    }
}

#[test]
fn times_follow_the_pace() {
    let of = |usual: u64| Times { usual: Duration::from_secs(usual) };
    assert_eq!(of(90).of(Pace::Usual).as_secs(), 90);
    assert_eq!(of(90).of(Pace::Long), LONG);
}

/// A device that answers the questions of a probe.
#[derive(Debug)]
struct Asked {
    kind: u8,
    pages: Vec<(u8, Vec<u8>)>,
    attentions: Mutex<u32>,
    capacity_16: bool,
    last: u64,
}

impl Asked {
    fn answer(&self, cdb: &[u8]) -> Option<Vec<u8>> {
        match cdb {
            [0x12, 0, ..] => {
                let mut data = vec![b' '; 36];
                data[..5].copy_from_slice(&[self.kind, 0x80, 6, 2, 31]);
                data[8..12].copy_from_slice(b"ACME");
                data[16..20].copy_from_slice(b"DISK");
                Some(data)
            }
            [0x12, 1, page, ..] => {
                let (_, content) = self.pages.iter().find(|(code, _)| code == page)?;
                Some(wire::scsi::vpd::page(self.kind, *page, content))
            }
            [0x9e, ..] if !self.capacity_16 => None,
            [0x9e, ..] => Some([&self.last.to_be_bytes()[..], &[0, 0, 16, 0], &[0; 20]].concat()),
            [0x25, ..] => Some(vec![0, 0, 0, 99, 0, 0, 2, 0]),
            _ => Some(Vec::new()),
        }
    }
}

impl Carrier for Asked {
    fn carry_out(&self, cdb: &[u8], data: Data<'_>, _: Duration) -> io::Result<Reply> {
        let refuse = |key, asc| {
            let mut sense = vec![0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc];
            sense.resize(18, 0);
            Ok(Reply { status: CHECK_CONDITION, sense, ..good() })
        };
        let mut left = self.attentions.lock().expect("whole");
        if *left > 0 && cdb[0] != 0x12 {
            *left -= 1;
            return refuse(6, 0x29);
        }
        let Some(answer) = self.answer(cdb) else { return refuse(5, 0x24) };
        let moved = if let Data::In(room) = data {
            let moved = answer.len().min(room.len());
            room[..moved].copy_from_slice(&answer[..moved]);
            moved
        } else {
            0
        };
        Ok(Reply { moved: u32::try_from(moved).expect("small"), ..good() })
    }

    fn reset(&self) -> io::Result<()> {
        unreachable!("a probe resets nothing")
    }
}

#[test]
fn a_device_says_who_it_is() {
    let naa = [0x50, 1, 2, 3, 4, 5, 6, 7];
    let page_83 = [&[1, 3, 0, 8][..], &naa, &[0x61, 0x93, 0, 8], &[0x50; 8]].concat();
    let mut asked = Asked {
        kind: 0,
        pages: vec![(0x80, b"  SN-1 ".to_vec()), (0x83, page_83)],
        attentions: Mutex::new(3),
        capacity_16: true,
        last: (1 << 32) + 9,
    };
    let known = probe::probe(&asked, 4096).expect("it answers");
    assert_eq!((&*known.vendor, &*known.product), ("ACME", "DISK"));
    assert_eq!(known.serial.as_deref(), Some("SN-1"));
    assert_eq!((known.naa.as_deref(), known.name.as_deref()), (Some(&naa[..]), Some(&naa[..])));
    assert_eq!(known.facts.capacity, Some((4096, (1 << 32) + 10)));
    assert!(known.facts.removable);
    asked.capacity_16 = false;
    asked.pages.pop();
    let known = probe::probe(&asked, 4096).expect("it answers");
    assert_eq!(known.facts.capacity, Some((512, 100)));
    assert_eq!(known.name.as_deref(), Some(&b"ACME\0DISK\0SN-1"[..]));
    asked.pages.clear();
    asked.kind = 1;
    let known = probe::probe(&asked, 4096).expect("it answers");
    assert_eq!((known.serial, known.name, known.facts.capacity), (None, None, None));
    asked.kind = 0;
    asked.last = u64::MAX / 4096;
    asked.capacity_16 = true;
    let known = probe::probe(&asked, 4096).expect("it answers");
    assert_eq!(known.facts.capacity, None, "nonsense");
    asked.kind = 0x7f;
    let error = probe::probe(&asked, 4096).expect_err("nothing is there");
    assert!(error.to_string().contains("no device at this address"), "{error}");
}
