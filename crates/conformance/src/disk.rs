// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of 2048 blocks that says what a test wants it to say, and our initiator at it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use initiator::Config;
use initiator::Initiator;
use initiator::Options;
use initiator::Session;
use wire::iscsi::*;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;
use wire::scsi::vpd;

use crate::mock;
use crate::mock::Answers;
use crate::mock::Mock;
use crate::mock::lock;

/// So that what is never answered does not hold a test up.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);

/// What becomes of a command in place of a good end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Sense data: its response code, sense key and codes.
    Sense(u8, u8, u8, u8),
    /// A status.
    Status(u8),
    /// No answer, and the next session hears that its nexus was lost, no more.
    Break,
    /// No answer, and the next session hears nothing.
    Vanish,
    /// No answer until it is aborted.
    Silence,
    /// A good end behind an asynchronous event with sense data as above.
    Told(u8, u8, u8, u8),
}

#[derive(Debug)]
struct Unit {
    /// WCE and DPOFUA, where the unit tells them.
    caching: Option<(bool, bool)>,
    /// What the next commands meet, whichever they are.
    next: VecDeque<Event>,
    /// What the next flushes meet.
    flushes: VecDeque<Event>,
}

/// Sense data behind its length.
fn sense(event: Event) -> Vec<u8> {
    let (Event::Sense(code, key, asc, ascq) | Event::Told(code, key, asc, ascq)) = event else {
        return Vec::new();
    };
    match code & 0x7f {
        0x72 | 0x73 => vec![0, 8, code, key, asc, ascq, 0, 0, 0, 0],
        _ => vec![0, 18, code, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0],
    }
}

impl Unit {
    fn answer(&mut self, request: &Request, numbers: Numbers) -> Answers {
        let command = match request {
            Request::Command(command) => command,
            Request::TaskManagement(pdu) => {
                let (response, additional, itt) = (0, 0, pdu.itt);
                let answer = TaskManagementResponse { response, additional, itt, numbers };
                return vec![(Response::TaskManagement(answer), Vec::new())];
            }
            _ => return Vec::new(),
        };
        let flushes = matches!(command.cdb.bytes, [0x35 | 0x91, ..]);
        let event = self.next.pop_front();
        match event.or_else(|| self.flushes.pop_front().filter(|_| flushes)) {
            None => self.carry_out(command, numbers),
            Some(Event::Status(status)) => mock::ended(command, numbers, status, None),
            Some(event @ Event::Sense(..)) => {
                let answer = mock::status(command, numbers, CHECK_CONDITION);
                vec![(Response::Scsi(answer), sense(event))]
            }
            Some(Event::Silence) => Vec::new(),
            Some(Event::Break) => {
                self.next.push_back(Event::Sense(0x70, 6, 0x29, 7));
                hang_up(numbers)
            }
            Some(Event::Vanish) => hang_up(numbers),
            Some(event @ Event::Told(..)) => {
                let lun = LunField::default();
                let (parameter1, parameter2, parameter3) = (0, 0, 0);
                let (event, vcode, data) = (0, 0, sense(event));
                let message =
                    AsyncMessage { lun, numbers, event, vcode, parameter1, parameter2, parameter3 };
                let mut answers = vec![(Response::Async(message), data)];
                let behind = Numbers { stat_sn: StatSn(numbers.stat_sn.0 + 1), ..numbers };
                answers.extend(self.carry_out(command, behind));
                answers
            }
        }
    }

    fn carry_out(&self, command: &ScsiCommand, numbers: Numbers) -> Answers {
        match data(&command.cdb.bytes, self.caching) {
            Some(data) => mock::data(command, numbers, data),
            None => mock::ended(command, numbers, GOOD, None),
        }
    }
}

/// What a disk of 2048 blocks without names says when it is asked. `caching`: WCE and DPOFUA, where
/// it tells them.
#[must_use]
pub fn data(cdb: &[u8], caching: Option<(bool, bool)>) -> Option<Vec<u8>> {
    match cdb {
        [0x12, 0, ..] => Some([&[0, 0, 5, 2, 31][..], &[0; 31]].concat()),
        [0x12, 1, page, ..] => Some(vpd::page(0, *page, &[0])),
        [0x9e, 0x10, ..] => Some(capacity(2047)),
        [0x1a, ..] => Some(match caching {
            None => vec![3, 0, 0, 0],
            Some((on, fua)) => {
                let mut page = vec![0; 24];
                (page[0], page[2], page[4], page[5]) = (23, u8::from(fua) << 4, 0x08, 18);
                page[6] = u8::from(on) << 2;
                page
            }
        }),
        _ => None,
    }
}

/// READ CAPACITY (16) of a disk with blocks of 512 bytes.
#[must_use]
pub fn capacity(last_lba: u64) -> Vec<u8> {
    [&last_lba.to_be_bytes()[..], &512u32.to_be_bytes(), &[0; 20]].concat()
}

/// What nobody may answer: the initiator ends the session.
#[must_use]
pub fn hang_up(numbers: Numbers) -> Answers {
    let (response, itt, time2wait, time2retain) = (0, Itt(0x0bad), 0, 0);
    let answer = LogoutResponse { response, itt, numbers, time2wait, time2retain };
    vec![(Response::Logout(answer), Vec::new())]
}

/// A session of our initiator.
fn connected(mock: &Mock) -> Session {
    let target = Some("iqn.2026-01.example:t".to_owned());
    let initiator = Initiator::start(&Config::default()).expect("an initiator");
    let mut options = Options::new(mock.portal().to_string(), target);
    options.settings.command_timeout = COMMAND_TIMEOUT;
    initiator.connect(options).expect("a session")
}

/// A disk, and a session of our initiator with it.
#[derive(Debug)]
pub struct Lab {
    unit: Arc<Mutex<Unit>>,
    /// The session.
    pub session: Session,
    _mock: Mock,
}

impl Lab {
    /// `caching`: WCE and DPOFUA, where the unit tells them.
    #[must_use]
    pub fn new(caching: Option<(bool, bool)>) -> Self {
        let unit = Unit { caching, next: VecDeque::new(), flushes: VecDeque::new() };
        let unit = Arc::new(Mutex::new(unit));
        let of_script = Arc::clone(&unit);
        let mock =
            Mock::start(move |request, _, numbers| lock(&of_script).answer(request, numbers));
        Self { unit, session: connected(&mock), _mock: mock }
    }

    /// The unit tells another WCE and DPOFUA from now on.
    pub fn has_cache(&self, caching: (bool, bool)) {
        lock(&self.unit).caching = Some(caching);
    }

    /// What one more command meets, whichever it is.
    pub fn next(&self, event: Event) {
        lock(&self.unit).next.push_back(event);
    }

    /// What one more flush meets.
    pub fn flushes(&self, event: Event) {
        lock(&self.unit).flushes.push_back(event);
    }
}
