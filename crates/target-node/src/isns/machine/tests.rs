// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registrar against answers made by hand, over a virtual clock.

use proptest::prelude::*;
use wire::isns::Attributes;
use wire::isns::Payload;

use super::*;
use crate::node::Portal;

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9));
const START: Instant = Instant(1_000_000_000_000);

fn registration(targets: usize) -> Registration {
    let name = |number| format!("iqn.2026-01.com.example:disk-{number}");
    Registration {
        entity: name(0),
        targets: (0..targets).map(|number| (name(number), None)).collect(),
        portals: ["0.0.0.0:3260", "192.0.2.1:3261"]
            .map(|one| Portal::from(one.parse::<SocketAddr>().unwrap()))
            .to_vec(),
    }
}

fn after(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

fn talking(targets: usize) -> Registrar {
    let mut registrar = Registrar::new(registration(targets), START);
    assert_eq!(registrar.next(START), Next::Connect);
    registrar.connected(LOCAL, START);
    registrar
}

/// The next request: header, attributes as (tag, value).
fn sent(registrar: &mut Registrar, now: Instant) -> (Header, Vec<(u32, Vec<u8>)>) {
    let bytes = registrar.transmit(now).expect("a request");
    let (header, payload) = bytes.split_first_chunk().unwrap();
    let header = Header::parse(*header).unwrap();
    assert_eq!(usize::from(header.length), payload.len());
    assert!(header.flags.has(Flags::CLIENT.with(Flags::FIRST).with(Flags::LAST)));
    let attributes = Attributes::new(payload).map(Result::unwrap);
    (header, attributes.map(|one| (one.tag.0, one.value.to_vec())).collect())
}

fn pdu(
    function: Function,
    transaction: u16,
    sequence: u16,
    flags: Flags,
    payload: &[u8],
) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    let flags = flags.with(Flags::SERVER);
    let header = Header { function: function.response(), length, flags, transaction, sequence };
    [&header.emit()[..], payload].concat()
}

/// The answer to `request`; with what the entity has where it knows us.
fn answer(request: &Header, status: Status, period: Option<u32>) -> Vec<u8> {
    let mut payload = status.0.to_be_bytes().to_vec();
    let mut attributes = Payload::new();
    attributes.push_text(Tag::ENTITY, "iqn.2026-01.com.example:disk-0");
    attributes.push_empty(Tag::DELIMITER);
    if let Some(period) = period {
        attributes.push_text(Tag::ENTITY, "iqn.2026-01.com.example:disk-0");
        attributes.push_number(Tag::PERIOD, period);
    }
    payload.extend_from_slice(attributes.as_bytes());
    pdu(request.function, request.transaction, 0, Flags::FIRST.with(Flags::LAST), &payload)
}

fn registered(period: u32) -> Registrar {
    let mut registrar = talking(1);
    let (request, _) = sent(&mut registrar, START);
    registrar.received(&answer(&request, Status::SUCCESS, Some(period)), START);
    assert_eq!(registrar.poll_news(), Some(News::Registered));
    assert!(!registrar.is_talking());
    registrar
}

/// Covers: DIS-21/T.
#[test]
fn a_registration_names_entity_portals_targets_and_groups() {
    let mut registrar = talking(1);
    let (header, attributes) = sent(&mut registrar, START);
    assert_eq!(header.function, Function::REGISTER);
    assert!(header.flags.has(Flags::REPLACE));
    let tags: Vec<u32> = attributes.iter().map(|(tag, _)| *tag).collect();
    let groups = [48, 49, 50, 51, 48, 49, 50, 51];
    let expected = [&[32, 1, 0, 1, 2, 6, 16, 17, 16, 17, 32, 33][..], &groups].concat();
    assert_eq!(tags, expected);
    // The wildcard portal is registered as the address that the server sees.
    assert_eq!(attributes[6].1[12..], [192, 0, 2, 9]);
    assert_eq!(attributes[7].1, [0, 0, 0x0c, 0xbc]);
    assert_eq!(attributes[8].1[12..], [192, 0, 2, 1]);
    assert_eq!(attributes[11].1, [0, 0, 0, 1], "a target");
    assert_eq!(registrar.transmit(START), None, "one request at a time");
}

#[test]
fn many_targets_take_several_messages() {
    let mut registrar = talking(10_000);
    let (mut names, mut messages) = (0, 0);
    while registrar.is_talking() {
        let (request, attributes) = sent(&mut registrar, START);
        assert_eq!(request.flags.has(Flags::REPLACE), messages == 0, "only the first replaces");
        names += attributes.iter().skip(1).filter(|(tag, _)| *tag == 32).count();
        messages += 1;
        registrar.received(&answer(&request, Status::SUCCESS, None), START);
    }
    assert_eq!(names, 10_000);
    assert!(messages > 10);
    assert_eq!(registrar.poll_news(), Some(News::Registered));
}

#[test]
fn an_inquiry_comes_before_the_period_ends() {
    let mut registrar = registered(90);
    assert_eq!(registrar.next(START), Next::Rest(Duration::from_secs(30)));
    for round in 1..5 {
        let now = after(30 * round);
        assert_eq!(registrar.next(now), Next::Connect);
        registrar.connected(LOCAL, now);
        let (request, attributes) = sent(&mut registrar, now);
        assert_eq!(request.function, Function::QUERY);
        let tags: Vec<u32> = attributes.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(tags, [32, 1, 0, 1, 6]);
        registrar.received(&answer(&request, Status::SUCCESS, Some(90)), now);
        assert_eq!(registrar.next(now), Next::Rest(Duration::from_secs(30)));
        assert_eq!(registrar.poll_news(), None);
    }
}

#[test]
fn what_is_registered_becomes_another() {
    let mut registrar = registered(300);
    let now = after(10);
    assert_eq!(registrar.replace(registration(2), now), Entity::Same);
    assert_eq!(registrar.next(now), Next::Connect, "at once");
    registrar.connected(LOCAL, now);
    let (request, attributes) = sent(&mut registrar, now);
    assert_eq!(request.function, Function::REGISTER);
    assert!(request.flags.has(Flags::REPLACE));
    assert_eq!(attributes.iter().skip(1).filter(|(tag, _)| *tag == 32).count(), 2);
    registrar.received(&answer(&request, Status::SUCCESS, Some(300)), now);
    assert_eq!(registrar.poll_news(), Some(News::Registered));
    assert_eq!(registrar.next(now), Next::Rest(Duration::from_secs(100)));
}

/// Its first target has gone, so the daemon has another name, and the old one is taken back first.
#[test]
fn a_new_name_is_registered_after_the_old_one_is_taken_back() {
    let mut registrar = registered(300);
    let name = "iqn.2026-01.com.example:other";
    let other = Registration {
        entity: name.to_owned(),
        targets: vec![(name.to_owned(), None)],
        ..registration(0)
    };
    let now = after(10);
    assert_eq!(registrar.replace(other, now), Entity::Another);
    for attempt in 0..2 {
        registrar.connected(LOCAL, now);
        let (request, attributes) = sent(&mut registrar, now);
        assert_eq!(request.function, Function::DEREGISTER);
        assert!(attributes[0].1.starts_with(b"iqn.2026-01.com.example:disk-0"));
        if attempt == 0 {
            // It is not lost by a failure.
            registrar.failed("it is gone".into(), now);
            assert!(matches!(registrar.poll_news(), Some(News::Failed { .. })));
            continue;
        }
        registrar.received(&answer(&request, Status::SUCCESS, None), now);
    }
    let (request, attributes) = sent(&mut registrar, now);
    assert_eq!(request.function, Function::REGISTER);
    assert!(attributes[0].1.starts_with(name.as_bytes()));
    registrar.received(&answer(&request, Status::SUCCESS, None), now);
    assert_eq!(registrar.poll_news(), Some(News::Registered));
    registrar.leave(now);
    registrar.connected(LOCAL, now);
    let (request, attributes) = sent(&mut registrar, now);
    assert_eq!(request.function, Function::DEREGISTER);
    assert!(attributes[0].1.starts_with(name.as_bytes()));
    registrar.received(&answer(&request, Status::SUCCESS, None), now);
    assert_eq!(registrar.poll_news(), Some(News::Deregistered));
    assert_eq!(registrar.next(now), Next::Over);
}

#[test]
fn whoever_is_forgotten_registers_again() {
    for (status, period) in [(Status::NO_SUCH_ENTRY, None), (Status::SUCCESS, None)] {
        let mut registrar = registered(300);
        let now = after(100);
        registrar.connected(LOCAL, now);
        let (request, _) = sent(&mut registrar, now);
        registrar.received(&answer(&request, status, period), now);
        assert_eq!(registrar.poll_news(), Some(News::Forgotten));
        let (request, _) = sent(&mut registrar, now);
        assert_eq!(request.function, Function::REGISTER);
        registrar.received(&answer(&request, Status::SUCCESS, Some(300)), now);
        assert_eq!(registrar.poll_news(), Some(News::Registered));
    }
}

#[test]
fn the_pause_after_failures_grows_and_is_bounded() {
    let mut registrar = Registrar::new(registration(1), START);
    let mut pauses = Vec::new();
    let mut now = START;
    for _ in 0..40 {
        assert_eq!(registrar.next(now), Next::Connect);
        registrar.failed("connection refused".into(), now);
        let Next::Rest(pause) = registrar.next(now) else { panic!("no rest") };
        let retry = Some(pause);
        let reason = "connection refused".to_owned();
        assert_eq!(registrar.poll_news(), Some(News::Failed { reason, retry }));
        pauses.push(pause.as_secs());
        now = now + pause;
    }
    assert_eq!(pauses[..7], [1, 2, 4, 8, 16, 32, 60]);
    assert!(pauses[7..].iter().all(|pause| *pause == 60));
    // An answer ends the series.
    registrar.connected(LOCAL, now);
    let (request, _) = sent(&mut registrar, now);
    registrar.received(&answer(&request, Status::SUCCESS, None), now);
    registrar.failed("gone".into(), now);
    assert_eq!(registrar.next(now), Next::Rest(Duration::from_secs(1)));
}

#[test]
fn a_silent_server_is_left() {
    let mut registrar = talking(1);
    sent(&mut registrar, START);
    registrar.handle_timeout(after(4));
    assert!(registrar.is_talking());
    registrar.handle_timeout(after(5));
    assert!(!registrar.is_talking());
    assert_eq!(registrar.next(after(5)), Next::Rest(Duration::from_secs(1)));
    // What was cut short is begun anew.
    registrar.connected(LOCAL, after(6));
    assert_eq!(sent(&mut registrar, after(6)).0.function, Function::REGISTER);
}

#[test]
fn whoever_leaves_deregisters() {
    let mut registrar = registered(300);
    registrar.leave(after(1));
    assert_eq!(registrar.next(after(1)), Next::Connect);
    registrar.connected(LOCAL, after(1));
    let (request, attributes) = sent(&mut registrar, after(1));
    assert_eq!(request.function, Function::DEREGISTER);
    let tags: Vec<u32> = attributes.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, [32, 0, 1]);
    registrar.received(&answer(&request, Status::SUCCESS, None), after(1));
    assert_eq!(registrar.next(after(1)), Next::Over);
    assert_eq!(registrar.poll_news(), Some(News::Deregistered));
}

#[test]
fn leaving_takes_no_detour() {
    // Nobody knows us.
    let mut registrar = Registrar::new(registration(1), START);
    registrar.leave(START);
    assert_eq!(registrar.next(START), Next::Over);
    // In the middle of a registration: its answer is awaited, but not for long.
    let mut registrar = talking(1);
    let (request, _) = sent(&mut registrar, START);
    registrar.leave(START);
    registrar.received(&answer(&request, Status::SUCCESS, Some(300)), START);
    assert_eq!(registrar.next(START), Next::Connect);
    registrar.connected(LOCAL, START);
    assert_eq!(sent(&mut registrar, START).0.function, Function::DEREGISTER);
    registrar.handle_timeout(after(5));
    assert_eq!(registrar.next(after(5)), Next::Over, "one attempt is enough");
    let mut registrar = talking(1);
    sent(&mut registrar, START);
    registrar.leave(START);
    registrar.handle_timeout(after(1));
    assert_eq!(registrar.next(after(1)), Next::Over);
}

/// RFC 4171 §5.1: a message may take several PDUs.
#[test]
fn answers_may_come_in_pieces() {
    let mut registrar = talking(1);
    let (request, _) = sent(&mut registrar, START);
    let whole = answer(&request, Status::SUCCESS, Some(90)).split_off(HEADER_LEN);
    let (first, second) = whole.split_at(8);
    let (function, transaction) = (request.function, request.transaction);
    let mut bytes = pdu(function, transaction, 0, Flags::FIRST, first);
    bytes.extend(pdu(function, transaction, 1, Flags::LAST, second));
    for byte in &bytes {
        assert!(registrar.is_talking());
        registrar.received(&[*byte], START);
    }
    assert_eq!(registrar.poll_news(), Some(News::Registered));
    assert_eq!(registrar.next(START), Next::Rest(Duration::from_secs(30)));
}

/// Makes an answer that is none.
type Bent = Box<dyn Fn(&Header) -> Vec<u8>>;

#[test]
fn answers_that_are_none_end_the_exchange() {
    let good = |request: &Header| answer(request, Status::SUCCESS, Some(300));
    let bend = |place: usize, value: u8| {
        move |request: &Header| {
            let mut bytes = good(request);
            bytes[place] = value;
            bytes
        }
    };
    let cases: [(&str, Bent); 8] = [
        ("version", Box::new(bend(1, 9))),
        ("function", Box::new(bend(3, 2))),
        ("a request", Box::new(bend(2, 0))),
        ("length", Box::new(bend(5, 6))),
        ("sender", Box::new(bend(6, 0x8c))),
        ("transaction", Box::new(bend(9, 77))),
        ("sequence", Box::new(bend(11, 1))),
        ("attribute length", Box::new(bend(HEADER_LEN + 4 + 4, 0x7f))),
    ];
    for (what, make) in cases {
        let mut registrar = talking(1);
        let (request, _) = sent(&mut registrar, START);
        registrar.received(&make(&request), START);
        assert!(!registrar.is_talking(), "{what}");
        assert!(matches!(registrar.poll_news(), Some(News::Failed { .. })), "{what}");
    }
    // And a refusal is told with its status.
    let mut registrar = talking(1);
    let (request, _) = sent(&mut registrar, START);
    registrar.received(&answer(&request, Status(7), None), START);
    let Some(News::Failed { reason, .. }) = registrar.poll_news() else { panic!("no news") };
    assert_eq!(reason, "it refuses: status 7");
}

#[test]
fn an_answer_without_end_is_bounded() {
    let mut registrar = talking(1);
    let (request, _) = sent(&mut registrar, START);
    let mut pdus = 0;
    while registrar.is_talking() {
        let (function, transaction) = (request.function, request.transaction);
        registrar.received(&pdu(function, transaction, pdus, Flags::default(), &[0; 32768]), START);
        pdus += 1;
        assert!(pdus < 20);
    }
    assert!(matches!(registrar.poll_news(), Some(News::Failed { .. })));
}

/// Names that a server sends are longer than any that it may (CVE-2010-2221), or no text at all.
#[test]
fn names_of_any_length_are_only_compared() {
    for length in [0, 4, 224, 256, 4096, 65_000] {
        let mut registrar = talking(1);
        let (request, _) = sent(&mut registrar, START);
        let mut payload = vec![0; 4];
        payload.extend(Tag::ENTITY.0.to_be_bytes());
        payload.extend(u32::try_from(length).unwrap().to_be_bytes());
        payload.resize(payload.len() + length, b'%');
        let flags = Flags::FIRST.with(Flags::LAST);
        registrar.received(&pdu(request.function, request.transaction, 0, flags, &payload), START);
        assert_eq!(registrar.poll_news(), Some(News::Registered), "{length}");
    }
}

/// A registrar whose portals can be asked after; registered, with the answer's interval.
fn inquired(interval: u32) -> Registrar {
    let mut registrar = Registrar::new(registration(1), START);
    registrar.listens(vec!["192.0.2.9:40000".parse().unwrap()]);
    registrar.connected(LOCAL, START);
    let (request, attributes) = sent(&mut registrar, START);
    let tags: Vec<u32> = attributes.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags[6..12], [16, 17, 19, 20, 16, 17], "the other address has nobody to ask");
    assert_eq!(attributes[9].1, [0, 1, 0x9c, 0x40]);
    let mut bytes = answer(&request, Status::SUCCESS, Some(300));
    let mut attributes = Payload::new();
    attributes.push_number(Tag::INQUIRY_INTERVAL, interval);
    bytes.extend_from_slice(attributes.as_bytes());
    let length = u16::try_from(bytes.len() - HEADER_LEN).unwrap();
    bytes[4..6].copy_from_slice(&length.to_be_bytes());
    registrar.received(&bytes, START);
    assert_eq!(registrar.poll_news(), Some(News::Registered));
    registrar
}

/// RFC 4171 §6.3.4: a server that asks us needs not be asked.
#[test]
fn inquiries_stand_for_queries() {
    let mut registrar = inquired(60);
    for minute in 1..100 {
        let now = after(60 * minute);
        assert!(matches!(registrar.next(now), Next::Rest(_)), "minute {minute}");
        registrar.inquired(now);
        assert_eq!(registrar.next(now), Next::Rest(Duration::from_secs(100)));
        registrar.inquired(after(60));
        assert_eq!(registrar.next(now), Next::Rest(Duration::from_secs(100)), "an old one");
    }
    // None comes any more: first we ask.
    let last = after(60 * 99);
    let now = last + Duration::from_secs(100);
    assert_eq!(registrar.next(now), Next::Connect);
    registrar.connected(LOCAL, now);
    let (request, _) = sent(&mut registrar, now);
    assert_eq!(request.function, Function::QUERY);
    registrar.received(&answer(&request, Status::SUCCESS, Some(300)), now);
    // Then the server has dropped the portals that it could not reach.
    assert_eq!(registrar.next(now), Next::Rest(Duration::from_secs(80)));
    let now = last + Duration::from_secs(180);
    assert_eq!(registrar.next(now), Next::Connect);
    registers_without(&mut registrar, now);
}

/// Connects, and registers without inquiries because they do not come.
fn registers_without(registrar: &mut Registrar, now: Instant) {
    registrar.connected(LOCAL, now);
    assert_eq!(registrar.poll_news(), Some(News::Silent));
    let (request, attributes) = sent(registrar, now);
    assert!(request.flags.has(Flags::REPLACE));
    assert!(attributes.iter().all(|(tag, _)| !matches!(tag, 19 | 20)));
    registrar.received(&answer(&request, Status::SUCCESS, Some(300)), now);
    assert_eq!(registrar.poll_news(), Some(News::Registered));
    assert_eq!(registrar.next(now), Next::Rest(Duration::from_secs(100)));
}

#[test]
fn where_no_inquiry_arrives_the_server_is_asked() {
    let mut registrar = inquired(30);
    assert_eq!(registrar.next(START), Next::Rest(Duration::from_secs(60)));
    registers_without(&mut registrar, after(60));
    // What comes late changes nothing.
    registrar.inquired(after(61));
    assert_eq!(registrar.next(after(160)), Next::Connect);
    registrar.connected(LOCAL, after(160));
    assert_eq!(sent(&mut registrar, after(160)).0.function, Function::QUERY);
}

/// A server that is down for an hour asks nobody; it is given time to ask once it is back.
#[test]
fn a_server_that_was_down_is_not_taken_for_silent() {
    let mut registrar = inquired(30);
    registrar.connected(LOCAL, after(50));
    registrar.failed("connection refused".into(), after(50));
    assert_eq!(registrar.next(after(51)), Next::Connect);
    registrar.connected(LOCAL, after(51));
    assert_eq!(sent(&mut registrar, after(51)).0.function, Function::QUERY);
}

#[test]
fn a_server_without_inquiries_is_registered_with_all_the_same() {
    let mut registrar = Registrar::new(registration(1), START);
    registrar.listens(vec!["192.0.2.9:40000".parse().unwrap()]);
    registrar.connected(LOCAL, START);
    let (request, _) = sent(&mut registrar, START);
    registrar.received(&answer(&request, Status::NO_INQUIRIES, None), START);
    let (request, attributes) = sent(&mut registrar, START);
    assert!(attributes.iter().all(|(tag, _)| !matches!(tag, 19 | 20)));
    registrar.received(&answer(&request, Status::SUCCESS, Some(90)), START);
    assert_eq!(registrar.poll_news(), Some(News::Registered));
    assert_eq!(registrar.next(START), Next::Rest(Duration::from_secs(30)));
    // One that refuses what was not asked for is no better than any that refuses.
    let mut registrar = talking(1);
    let (request, _) = sent(&mut registrar, START);
    registrar.received(&answer(&request, Status::NO_INQUIRIES, None), START);
    assert!(matches!(registrar.poll_news(), Some(News::Failed { .. })));
}

proptest! {
    /// Whatever a server sends: no panic, no growth, and the exchange ends in time.
    #[test]
    fn hostile_answers(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..20),
        valid in any::<bool>(),
    ) {
        let mut registrar = talking(3);
        let (request, _) = sent(&mut registrar, START);
        if valid {
            let length = pieces.iter().map(Vec::len).sum::<usize>() / 4 * 4;
            let header = Header {
                function: request.function.response(),
                length: u16::try_from(length).unwrap(),
                flags: Flags::SERVER.with(Flags::LAST),
                transaction: request.transaction,
                sequence: 0,
            };
            registrar.received(&header.emit(), START);
        }
        for piece in &pieces {
            registrar.received(piece, START);
            while registrar.transmit(START).is_some() {}
        }
        registrar.handle_timeout(after(5));
        prop_assert!(!registrar.is_talking());
    }
}
