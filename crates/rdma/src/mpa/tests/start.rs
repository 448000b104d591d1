// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests and replies.

use super::super::*;
use crate::limits::START_TIMEOUT;
use crate::limits::USER_DATA_LEN_MAX;
use crate::violation::Violation;
use alloc::vec;
use alloc::vec::Vec;
use clock::Instant;
use proptest::prelude::*;
use wire::iwarp::Cause;
use wire::iwarp::Enhanced;
use wire::iwarp::ReadyTypes;
use wire::iwarp::START_LEN;
use wire::iwarp::Start;
use wire::iwarp::StartKind;

const NOW: Instant = Instant(0);
const REQUEST: &[u8] = b"MPA ID Req Frame";
const REPLY: &[u8] = b"MPA ID Rep Frame";
const ALL_TYPES: ReadyTypes = ReadyTypes { send: true, write: true, read: true };

fn offer(private_data: &[u8]) -> Offer {
    let private_data = private_data.to_vec().try_into().expect("it is short");
    Offer { private_data, ..Offer::default() }
}

fn deep(ird: u16, ord: u16) -> Offer {
    Offer { depths: Depths { ird, ord }, ..Offer::default() }
}

/// A frame as it is on the wire.
fn frame(key: &[u8], rest: &[u8]) -> Vec<u8> {
    [key, rest].concat()
}

fn request(bytes: &[u8]) -> Result<Option<Request>, Violation> {
    let (taken, request) = Responder::new(NOW).handle_bytes(bytes)?;
    assert!(request.is_none() || taken == bytes.len());
    Ok(request)
}

fn reply(offer: Offer, bytes: &[u8]) -> Result<Option<Reply>, Violation> {
    Initiator::new(offer, NOW).0.handle_bytes(bytes).map(|(_, reply)| reply)
}

fn agreed(offer: Offer, bytes: &[u8]) -> Result<Agreed, Violation> {
    match reply(offer, bytes)? {
        Some(Reply::Agreed { agreed, .. }) => Ok(agreed),
        other => panic!("{other:?}"),
    }
}

/// Both ends of a start.
fn both(initiator: Offer, responder: &Offer) -> (Agreed, Agreed) {
    let (mut asks, bytes) = Initiator::new(initiator, NOW);
    let asked = request(&bytes).unwrap().unwrap();
    let (theirs, bytes) = asked.accept(responder);
    match asks.handle_bytes(&bytes).unwrap() {
        (taken, Some(Reply::Agreed { agreed, .. })) if taken == bytes.len() => (agreed, theirs),
        other => panic!("{other:?}"),
    }
}

/// Covers: MPE-01, MPA-05/S, MPA-19.
#[test]
fn a_request_is_enhanced_and_asks_for_crcs() {
    let (_, bytes) = Initiator::new(deep(32, 32), NOW);
    assert_eq!(bytes, frame(REQUEST, &[0x50, 2, 0, 4, 0, 32, 0, 32]));
    let plain = Offer { checks: Checks::None, ..Offer::default() };
    let (_, bytes) = Initiator::new(plain, NOW);
    let asked = request(&bytes).unwrap().unwrap();
    assert_eq!(asked.accept(&Offer::default()).1[16], 0x50, "the replier asks for them, too");
}

/// Covers: MPA-20.
#[test]
fn the_request_goes_first_and_nothing_before_a_good_reply() {
    let (mut asks, bytes) = Initiator::new(Offer::default(), NOW);
    assert_eq!(bytes[..16], *REQUEST);
    let good = frame(REPLY, &[0x50, 2, 0, 4, 0, 1, 0, 1]);
    let (last, head) = good.split_last().unwrap();
    assert_eq!(asks.handle_bytes(head), Ok((23, None)), "there is nothing to go on with");
    let whole = asks.handle_bytes(core::slice::from_ref(last));
    assert!(matches!(whole, Ok((1, Some(Reply::Agreed { .. })))));
    let bad = frame(REPLY, &[0x50, 9, 0, 4, 0, 1, 0, 1]);
    let (mut asks, _) = Initiator::new(Offer::default(), NOW);
    assert!(asks.handle_bytes(&bad).is_err() && asks.handle_bytes(&good).is_err());
}

/// Covers: MPA-04/S.
#[test]
fn one_side_that_wants_crcs_is_enough() {
    let wants = |checks| Offer { checks, ..Offer::default() };
    for (ours, theirs, wanted) in [
        (Checks::None, Checks::None, Checks::None),
        (Checks::Crc, Checks::None, Checks::Crc),
        (Checks::None, Checks::Crc, Checks::Crc),
        (Checks::Crc, Checks::Crc, Checks::Crc),
    ] {
        let (asks, asked) = both(wants(ours), &wants(theirs));
        assert_eq!([asks.framing.checks, asked.framing.checks], [wanted; 2]);
    }
}

/// Covers: MPA-09/S.
#[test]
fn each_side_asks_for_its_own_markers() {
    let wants = |markers| Offer { markers, ..Offer::default() };
    for ours in [Markers::None, Markers::Sent] {
        for theirs in [Markers::None, Markers::Sent] {
            let (asks, asked) = both(wants(ours), &wants(theirs));
            assert_eq!((asks.framing.received, asks.framing.sent), (ours, theirs));
            assert_eq!((asked.framing.received, asked.framing.sent), (theirs, ours));
        }
    }
}

/// Covers: MPE-04/S.
#[test]
fn the_four_bytes_count_as_private_data_and_stay_below() {
    let longest = vec![7; USER_DATA_LEN_MAX];
    let (mut asks, bytes) = Initiator::new(offer(&longest), NOW);
    assert_eq!((bytes[18..20].to_vec(), bytes.len()), (vec![2, 0], START_LEN + 512));
    let asked = request(&bytes).unwrap().unwrap();
    assert_eq!(asked.private_data(), longest);
    let answer = asked.accept(&offer(&longest)).1;
    assert!(matches!(
        asks.handle_bytes(&answer),
        Ok((532, Some(Reply::Agreed { private_data, .. }))) if private_data == longest
    ));
    let beyond = PrivateData::try_from(vec![7; USER_DATA_LEN_MAX + 1]);
    assert_eq!(beyond.map_err(|bytes| bytes.len()), Err(509));
}

/// Covers: MPA-17/S.
#[test]
fn a_peer_with_too_much_private_data_is_refused() {
    for (length, bytes) in [(513, [2, 1]), (u16::MAX, [0xff, 0xff])] {
        let rest = [0x40, 1, bytes[0], bytes[1]];
        let refused = Violation::PrivateData(length);
        assert_eq!(request(&frame(REQUEST, &rest)).unwrap_err(), refused);
        assert_eq!(reply(Offer::default(), &frame(REPLY, &rest)).unwrap_err(), refused);
    }
    let short = frame(REQUEST, &[0x50, 2, 0, 3, 0, 0, 0]);
    assert_eq!(request(&short).unwrap_err(), Violation::PrivateData(3), "S without its bytes");
}

/// Covers: MPA-25.
#[test]
fn a_rejection_hands_its_private_data_up() {
    let (mut asks, bytes) = Initiator::new(Offer::default(), NOW);
    let asked = request(&bytes).unwrap().unwrap();
    let bytes = asked.reject(&b"no".to_vec().try_into().unwrap());
    assert_eq!(bytes[16..20], [0x70, 2, 0, 6]);
    let private_data = b"no".to_vec();
    assert_eq!(asks.handle_bytes(&bytes), Ok((26, Some(Reply::Rejected { private_data }))));
    assert_eq!(asks.terminate(), None);
}

#[test]
fn a_rejection_may_leave_its_depths_out() {
    let bare = reply(Offer::default(), &frame(REPLY, &[0x70, 2, 0, 0]));
    assert_eq!(bare, Ok(Some(Reply::Rejected { private_data: vec![] })));
    let asked = request(&frame(REQUEST, &[0x70, 2, 0, 0])).unwrap_err();
    assert_eq!(asked, Violation::PrivateData(0), "a request may not");
}

/// Covers: MPA-22/S, MPA-29/S.
#[test]
fn the_wrong_frame_ends_the_start() {
    let (good, answer) = ([0x40, 1, 0, 0], [0x40, 1, 0, 0]);
    assert_eq!(request(&frame(REPLY, &answer)).unwrap_err(), Violation::Crossed);
    assert_eq!(reply(Offer::default(), &frame(REQUEST, &good)).unwrap_err(), Violation::Crossed);
    let login = [0x43; START_LEN];
    assert_eq!(request(&login).unwrap_err(), Violation::Key);
    let mut responder = Responder::new(NOW);
    assert_eq!(responder.handle_bytes(&login).unwrap_err(), Violation::Key);
    let again = responder.handle_bytes(&frame(REQUEST, &good)).unwrap_err();
    assert_eq!((again, again.cause()), (Violation::Key, Cause::MPA_START));
}

/// Covers: MPA-23/S.
#[test]
fn revisions_that_nobody_knows_end_the_start() {
    for revision in [0, 3, 7] {
        let rest = [0x40, revision, 0, 0];
        let refused = Violation::Revision(revision);
        assert_eq!(request(&frame(REQUEST, &rest)).unwrap_err(), refused);
        assert_eq!(reply(Offer::default(), &frame(REPLY, &rest)).unwrap_err(), refused);
    }
}

/// Covers: MPA-24/S.
#[test]
fn who_stalls_is_given_up() {
    let due = NOW + START_TIMEOUT;
    let bytes = frame(REQUEST, &[0x40, 1, 0, 2, 1, 2]);
    for stalls_at in [0, 1, 19, 20, 21] {
        let mut responder = Responder::new(NOW);
        let (taken, request) = responder.handle_bytes(&bytes[..stalls_at]).unwrap();
        assert!(taken == stalls_at && request.is_none());
        assert_eq!(responder.poll_timeout(), due);
        assert_eq!(responder.handle_timeout(NOW), Ok(()));
        assert_eq!(responder.handle_timeout(due), Err(Violation::StartTimeout));
        assert!(responder.handle_bytes(&bytes[stalls_at..]).is_err(), "too late");
    }
    let (mut initiator, _) = Initiator::new(Offer::default(), NOW);
    assert_eq!(initiator.poll_timeout(), due);
    assert_eq!(initiator.handle_timeout(NOW), Ok(()));
    assert_eq!(initiator.handle_timeout(due), Err(Violation::StartTimeout));
}

/// Covers: MPE-02, MPE-05.
#[test]
fn a_reply_is_enhanced_and_fits_the_asker() {
    for (asked, own, wanted) in [
        ((32, 32), (16, 64), (16, 32)),
        ((0, 0), (16, 16), (0, 0)),
        ((8, 64), (256, 256), (64, 8)),
        ((0x3fff, 0x3fff), (16, 8), (16, 8)),
    ] {
        let (_, bytes) = Initiator::new(deep(asked.0, asked.1), NOW);
        let (agreed, bytes) = request(&bytes).unwrap().unwrap().accept(&deep(own.0, own.1));
        assert_eq!(bytes[16..20], [0x50, 2, 0, 4]);
        let told = Enhanced::parse(*bytes[20..].first_chunk().unwrap());
        assert_eq!((told.ird, told.ord), wanted);
        assert_eq!(agreed.depths, Depths { ird: wanted.0, ord: wanted.1 });
    }
}

/// Covers: MPE-06.
#[test]
fn the_asker_reads_no_more_than_is_served() {
    let answer = |depths: [u8; 4]| frame(REPLY, &[&[0x50, 2, 0, 4][..], &depths].concat());
    let fits = agreed(deep(16, 64), &answer([0, 8, 0, 16])).unwrap();
    assert_eq!(fits.depths, Depths { ird: 16, ord: 8 });
    let (mut asks, _) = Initiator::new(deep(16, 64), NOW);
    let refused = asks.handle_bytes(&answer([0, 8, 0, 17])).unwrap_err();
    assert_eq!(refused, Violation::Depth { wanted: 17, served: 16 });
    assert_eq!(refused.cause(), Cause { layer: 2, kind: 0, code: 6 });
    let bytes = asks.terminate().unwrap();
    assert_eq!(bytes[2..4], [0x41, 0x47], "a Terminate");
    assert_eq!(bytes[20..24], [0x20, 6, 0, 0]);
}

/// Covers: MPE-07/S.
#[test]
fn a_depth_may_stay_unsaid() {
    let answer = frame(REPLY, &[0x50, 2, 0, 4, 0x3f, 0xff, 0x3f, 0xff]);
    let agreed = agreed(deep(16, 64), &answer).unwrap();
    assert_eq!(agreed.depths, Depths { ird: 16, ord: 64 });
    let (_, bytes) = Initiator::new(deep(0x3fff, 0x3fff), NOW);
    let (agreed, _) = request(&bytes).unwrap().unwrap().accept(&deep(1, 2));
    assert_eq!(agreed.depths, Depths { ird: 1, ord: 2 });
}

/// Covers: MPE-03/S.
#[test]
fn a_peer_of_revision_1_is_served() {
    let asked = request(&frame(REQUEST, &[0x40, 1, 0, 2, 5, 6])).unwrap().unwrap();
    assert_eq!(asked.private_data(), [5, 6]);
    let (theirs, bytes) = asked.accept(&offer(&[9]));
    assert_eq!(bytes, frame(REPLY, &[0x40, 1, 0, 1, 9]));
    assert_eq!((theirs.depths, theirs.ready), (Depths::default(), None));
    let offer = Offer { ready: Some(ALL_TYPES), ..deep(3, 4) };
    let ours = agreed(offer, &frame(REPLY, &[0x40, 1, 0, 0])).unwrap();
    assert_eq!((ours.depths, ours.ready), (Depths { ird: 3, ord: 4 }, None));
}

/// Covers: MPE-09.
#[test]
fn a_responder_chooses_one_of_the_offered_messages() {
    let only = |send, write, read| ReadyTypes { send, write, read };
    for (offered, chosen) in [
        (ALL_TYPES, ReadyType::Write),
        (only(true, false, false), ReadyType::Send),
        (only(false, false, true), ReadyType::Read),
    ] {
        let offer = Offer { ready: Some(offered), ..Offer::default() };
        let (ours, theirs) = both(offer, &Offer::default());
        assert_eq!([ours.ready, theirs.ready], [Some(chosen); 2]);
    }
}

#[test]
fn an_asker_goes_on_with_nothing_that_it_did_not_offer() {
    let writes = ReadyTypes { write: true, ..ReadyTypes::default() };
    let offer = || Offer { ready: Some(writes), ..deep(1, 1) };
    for ready in [ReadyTypes::default(), ReadyTypes { send: true, read: true, write: false }] {
        let enhanced = Enhanced { peer_to_peer: true, ready, ird: 1, ord: 1 };
        let bytes = frame(REPLY, &[&[0x50, 2, 0, 4][..], &enhanced.emit()].concat());
        let refused = agreed(offer(), &bytes).unwrap_err();
        assert_eq!((refused, refused.cause().code), (Violation::ReadyType, 7));
    }
}

#[test]
fn what_follows_the_frame_is_left() {
    let mut bytes = frame(REQUEST, &[0x40, 1, 0, 2, 1, 2]);
    bytes.extend_from_slice(b"FPDU");
    let (taken, request) = Responder::new(NOW).handle_bytes(&bytes).unwrap();
    assert_eq!((taken, request.is_some()), (22, true));
}

proptest! {
    #[test]
    fn pieces_mean_the_same(
        cuts in proptest::collection::vec(1..40_usize, 0..40),
        data in proptest::collection::vec(any::<u8>(), 0..USER_DATA_LEN_MAX),
    ) {
        let (_, bytes) = Initiator::new(offer(&data), NOW);
        let mut responder = Responder::new(NOW);
        let (mut rest, mut cuts) = (&bytes[..], cuts.into_iter().cycle());
        while !rest.is_empty() {
            let piece = cuts.next().unwrap_or(1).min(rest.len());
            let (taken, asked) = responder.handle_bytes(&rest[..piece]).unwrap();
            prop_assert_eq!(taken, piece);
            rest = &rest[taken..];
            prop_assert_eq!(asked.is_some(), rest.is_empty());
            if let Some(asked) = asked {
                prop_assert_eq!(asked.private_data(), &data);
            }
        }
    }

    #[test]
    fn any_reply_is_judged(flags: u8, revision in 0..4_u8, rest: [u8; 4], length in 0..600_u16) {
        let [high, low] = length.to_be_bytes();
        let head = [flags, revision, high, low];
        let bytes = frame(REPLY, &[&head, &rest[..], &[0; 600]].concat());
        if let Ok(Some(Reply::Agreed { agreed, .. })) = reply(deep(8, 8), &bytes) {
            prop_assert!(agreed.depths.ord <= 8 && agreed.depths.ird == 8);
            let told = Start::parse(bytes.first_chunk().unwrap()).unwrap();
            prop_assert!(told.kind == StartKind::Reply && !told.reject);
        }
    }
}
