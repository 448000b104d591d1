// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rogues: whoever reaches a portal may begin with MPA, and then break each rule of iWARP and iSER
//! before anybody knows him. He must be gone soon, let in nowhere, and nobody else may notice.

use std::time::Duration;

use crc::crc32c;
use wire::iscsi::Cid;
use wire::iscsi::Isid;
use wire::iscsi::Response;
use wire::iscsi::Stage as LoginStage;
use wire::iscsi::Tsih;
use wire::iser::ISER_LEN;
use wire::iser::IserHeader;
use wire::iwarp::Enhanced;
use wire::iwarp::LENGTH_LEN;
use wire::iwarp::MARKER_LEN;
use wire::iwarp::Msn;
use wire::iwarp::Opcode;
use wire::iwarp::READ_QUEUE;
use wire::iwarp::ReadRequest;
use wire::iwarp::SEND_QUEUE;
use wire::iwarp::START_LEN;
use wire::iwarp::Stag;
use wire::iwarp::Start;
use wire::iwarp::StartKind;
use wire::iwarp::Tagged;
use wire::iwarp::TaggedOffset;
use wire::iwarp::UNTAGGED_LEN;
use wire::iwarp::Untagged;
use wire::iwarp::padding;

use crate::host::target_name;
use crate::impostors;
use crate::logins;
use crate::net::LinkId;
use crate::options::Rogue;
use crate::options::Secrets;
use crate::run::Run;
use crate::world;
use crate::world::Due;
use crate::world::Plan;

/// No login takes longer.
const STAY: Duration = Duration::from_secs(40);

/// Bytes that no login has in a segment.
const TOO_LONG: u16 = 20_000;

/// Memory that nobody has named.
const FOREIGN: (Stag, TaggedOffset) = (Stag(0x1234_5678), TaggedOffset(0x1_0000));

impl Run {
    /// Rogue number `index` comes to a target.
    pub(crate) fn send_rogue(&mut self, index: usize) {
        let rogue = self.options.rogues[index].1;
        let target = index % self.machines.len();
        let Some(said) = self.what_he_says(rogue, target) else { return };
        let machine = &self.machines[target];
        let mut world = self.world.borrow_mut();
        let entry = &world.desks[machine.desk];
        if entry.state != world::State::Up || entry.accepting.is_none() {
            return;
        }
        let link = world.knock(self.impostor_desk, machine.desk);
        world.unheard.insert(link);
        world.send_bare(link, said);
        let now = world.now;
        world.trace.step(now, &[11, link], || format!("link {link}: a rogue comes: {rogue:?}"));
        world.tally.mark("rogues");
        world.after(STAY, Due::Plan(Plan::RogueIsLooked(link, index)));
    }

    /// What has he reached?
    pub(crate) fn look_at_rogue(&mut self, link: LinkId, index: usize) {
        let rogue = self.options.rogues[index].1;
        let mut world = self.world.borrow_mut();
        let Some(entry) = world.net.links.get_mut(&link) else { return };
        let heard: Vec<u8> = entry.ends[0].unread.iter().copied().collect();
        let is_there = !entry.ends[1].closed && rogue != Rogue::Impostor;
        world.close_end(link, 0, false);
        drop(world);
        // What befalls connections befalls his, too.
        if self.stage.may_lose {
            return;
        }
        let wrong = if is_let_in(&heard) {
            "was let in"
        } else if is_there {
            "is still there"
        } else if rogue == Rogue::Markers && heard.get(replied(&heard)..).is_some_and(is_unmarked) {
            "was answered without markers"
        } else {
            return;
        };
        self.stage.fail(format!("a rogue {wrong} (link {link}): {rogue:?}"));
    }

    fn what_he_says(&mut self, rogue: Rogue, target: usize) -> Option<Vec<u8>> {
        let login = logins::straight(Isid([0x80, 0, 0, 3, 0, 0]), Tsih(0), Cid(1));
        let name = "InitiatorName=iqn.2026-01.local.lunwire.sim:rogue\0";
        let text = format!("{name}TargetName={}\0", target_name(target));
        let pdu = message(&IserHeader::PLAIN, &logins::pdu(login, &text));
        let send = untagged(Opcode::Send);
        let write = tagged(FOREIGN, b"data");
        let said = match rogue {
            Rogue::HalfRequest => return Some(request(false)[..START_LEN - 5].to_vec()),
            Rogue::HalfFrame => {
                let whole = fpdu(&send.emit(), &pdu);
                whole[..whole.len() / 2].to_vec()
            }
            Rogue::BrokenCrc => {
                let mut whole = fpdu(&send.emit(), &pdu);
                let last = whole.len() - 1;
                whole[last] ^= 1;
                whole
            }
            Rogue::WrongMsn => fpdu(&Untagged { msn: Msn(2), ..send }.emit(), &pdu),
            Rogue::WrongOffset => fpdu(&Untagged { offset: 4, ..send }.emit(), &pdu),
            Rogue::WrongQueue => {
                let queue = wire::iwarp::QueueNumber(3);
                fpdu(&Untagged { queue, ..send }.emit(), &pdu)
            }
            Rogue::ForeignStag | Rogue::Markers => write,
            Rogue::ForeignSource => {
                let (source_stag, source_offset) = FOREIGN;
                let (sink_stag, sink_offset, length) = (Stag(1), TaggedOffset(0), 512);
                let asks =
                    ReadRequest { sink_stag, sink_offset, length, source_stag, source_offset };
                let header = Untagged { queue: READ_QUEUE, ..untagged(Opcode::ReadRequest) };
                fpdu(&header.emit(), &asks.emit())
            }
            Rogue::TwoLogins => {
                let asks = wire::iscsi::LoginRequest { transit: false, next: None, ..login };
                let pdu = message(&IserHeader::PLAIN, &logins::pdu(asks, &text));
                let second = Untagged { msn: Msn(2), ..send };
                [fpdu(&send.emit(), &pdu), fpdu(&second.emit(), &pdu)].concat()
            }
            Rogue::TooLong => TOO_LONG.to_be_bytes().to_vec(),
            Rogue::TooShort => fpdu(&[0x41], &[]),
            Rogue::NoPdu => {
                let hello = IserHeader::Hello { max_version: 10, min_version: 10, ird: 1 };
                fpdu(&send.emit(), &message(&hello, &[]))
            }
            Rogue::Impostor => {
                let pdu = message(&IserHeader::PLAIN, &self.of_another_one(target)?);
                fpdu(&send.emit(), &pdu)
            }
        };
        Some([request(rogue == Rogue::Markers), said].concat())
    }

    /// The login of somebody who is there, where he had to prove who he is.
    fn of_another_one(&mut self, target: usize) -> Option<Vec<u8>> {
        let machine = &self.machines[target];
        if self.stage.secrets[target] == Secrets::None || machine.plan.optional {
            return None;
        }
        let mut victims = machine.target.as_ref()?.sessions();
        victims.retain(|session| !session.discovery);
        let victim = victims.get(self.impostor_rng.index(victims.len().max(1)))?;
        let joins = self.impostor_rng.pick(&[None, Some(true), Some(false)]);
        Some(impostors::straight(joins, victim))
    }
}

/// A request for a connection, with CRCs.
fn request(markers: bool) -> Vec<u8> {
    let depths = Enhanced { ird: 4, ord: 4, ..Enhanced::default() };
    let start = Start {
        kind: StartKind::Request,
        markers,
        crc: true,
        reject: false,
        enhanced: true,
        revision: 2,
        private_data_length: 8,
    };
    [&start.emit()[..], &depths.emit(), &[0x80, 0, 0, 0]].concat()
}

fn message(header: &IserHeader, pdu: &[u8]) -> Vec<u8> {
    [&header.emit()[..], pdu].concat()
}

fn untagged(opcode: Opcode) -> Untagged {
    let (control, invalidate, queue) = (opcode.control(), Stag(0), SEND_QUEUE);
    Untagged { last: true, control, invalidate, queue, msn: Msn(1), offset: 0 }
}

/// An RDMA Write.
fn tagged((stag, offset): (Stag, TaggedOffset), payload: &[u8]) -> Vec<u8> {
    let header = Tagged { last: true, control: Opcode::Write.control(), stag, offset };
    fpdu(&header.emit(), payload)
}

fn fpdu(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len() + payload.len()).unwrap_or(u16::MAX);
    let mut bytes = [&length.to_be_bytes()[..], header, payload].concat();
    bytes.resize(bytes.len() + padding(length), 0);
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes
}

/// Bytes of the reply.
fn replied(heard: &[u8]) -> usize {
    let length = heard.get(START_LEN - LENGTH_LEN..START_LEN).unwrap_or_default();
    let length: usize = length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
    START_LEN + length
}

/// Whether an answer lacks the first marker, which points to the FPDU behind it (RFC 5044 §4.3).
fn is_unmarked(answer: &[u8]) -> bool {
    !answer.is_empty() && !answer.starts_with(&[0; MARKER_LEN])
}

/// Whether a login went well.
fn is_let_in(heard: &[u8]) -> bool {
    let at = replied(heard) + LENGTH_LEN + UNTAGGED_LEN + ISER_LEN;
    let Some(header) = heard.get(at..) else { return false };
    matches!(
        Response::parse(header),
        Ok(Response::Login(answer))
            if answer.status == 0 && answer.next == Some(LoginStage::FullFeature)
    )
}
