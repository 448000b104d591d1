// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unit attentions: which event tells whom, what clears them and what does not (SAM-5 §5.14).

use super::*;
use crate::attention::Attention;
use crate::testing::sense_of;

/// Two nexuses whose first unit attention has been reported.
fn both() -> (Bench, Nexus) {
    let bench = Bench::new();
    let other = Nexus::new(names("iqn.b,i,0x2"), vec![(0, Arc::clone(&bench.unit))]);
    assert_eq!(ready(&other), (6, 0x29, 0));
    (bench, other)
}

fn ready(nexus: &Nexus) -> (u8, u8, u8) {
    codes(sense_of(&run(nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[])))
}

fn register(nexus: &Nexus, action: u8, kind: u8, key: u8, action_key: u8) {
    let mut list = [0; 24];
    (list[7], list[15]) = (key, action_key);
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(run(nexus, request(Lun::Unit(0), &cdb, &list, 0), &list).status, 0);
}

type Event = fn(&Bench, &Nexus);

/// Sense key and codes.
type Codes = (u8, u8, u8);

const NOTHING: Codes = (0, 0, 0);

/// What happens, what the nexus that did it is told, and what the other one is.
const EVENTS: &[(&str, Event, Codes, Codes)] = &[
    (
        "logical unit reset",
        |bench, _| _ = bench.unit.logical_unit_reset(),
        (6, 0x29, 3),
        (6, 0x29, 3),
    ),
    ("target cold reset", |bench, _| _ = bench.unit.power_on(), (6, 0x29, 0), (6, 0x29, 0)),
    ("nexus reset", |bench, _| bench.nexus.reset(), (6, 0x29, 7), NOTHING),
    ("commands cleared", |bench, other| other.commands_cleared(&bench.unit), NOTHING, (6, 0x2f, 0)),
    (
        "commands cleared by iSCSI",
        |bench, other| other.commands_cleared_by_iscsi(&bench.unit),
        NOTHING,
        (6, 0x47, 0x7f),
    ),
    (
        "mode parameters changed",
        |bench, _| {
            let list = [0, 0, 0, 0, 0x0a, 10, 4, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
            assert_eq!(bench.sense_out(&[0x15, 0x10, 0, 0, 16, 0], &list), None);
        },
        NOTHING,
        (6, 0x2a, 1),
    ),
    (
        "log parameters changed",
        |bench, _| assert_eq!(bench.sense(&[0x4c, 2, 0x40, 0, 0, 0, 0, 0, 0, 0]), None),
        NOTHING,
        (6, 0x2a, 2),
    ),
    (
        "timestamp changed",
        |bench, _| {
            let cdb = [0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0];
            assert_eq!(bench.sense_out(&cdb, &[0; 12]), None);
        },
        NOTHING,
        (6, 0x2a, 0x10),
    ),
    (
        "reservations preempted",
        |bench, other| {
            register(other, 0, 0, 0, 2);
            register(&bench.nexus, 0, 0, 0, 1);
            register(&bench.nexus, 3, 0, 1, 0);
        },
        NOTHING,
        (6, 0x2a, 3),
    ),
    (
        "reservations released",
        |bench, other| {
            register(other, 0, 0, 0, 2);
            register(&bench.nexus, 0, 0, 0, 1);
            register(&bench.nexus, 1, 5, 1, 0);
            register(&bench.nexus, 2, 5, 1, 0);
        },
        NOTHING,
        (6, 0x2a, 4),
    ),
    (
        "registrations preempted",
        |bench, other| {
            register(other, 0, 0, 0, 2);
            register(&bench.nexus, 0, 0, 0, 1);
            register(&bench.nexus, 4, 1, 1, 2);
        },
        NOTHING,
        (6, 0x2a, 5),
    ),
];

#[test]
fn every_event_tells_whom_it_concerns_once() {
    for (what, event, own, others) in EVENTS {
        let (bench, other) = both();
        event(&bench, &other);
        assert_eq!(ready(&bench.nexus), *own, "{what}");
        assert_eq!(ready(&other), *others, "{what}");
        assert_eq!((ready(&bench.nexus), ready(&other)), (NOTHING, NOTHING), "{what}: once");
    }
}

/// Covers-scsi: 03, 12, A0.
#[test]
fn informative_commands_neither_report_nor_clear_as_status() {
    for (what, event, _, others) in EVENTS {
        let (bench, other) = both();
        event(&bench, &other);
        let at = |cdb: &[u8]| run(&other, request(Lun::Unit(0), cdb, &[], 255), &[]);
        assert_eq!(at(&[0x12, 0, 0, 0, 96, 0]).status, 0, "{what}");
        assert_eq!(at(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]).status, 0, "{what}");
        let data = at(&[0x03, 0, 0, 0, 18, 0]).data_in.expect("sense data").to_vec();
        assert_eq!(codes(Sense::parse(&data)), *others, "{what}");
        assert_eq!(ready(&other), NOTHING, "{what}: REQUEST SENSE has cleared it");
    }
}

#[test]
fn those_of_a_reset_come_first_and_then_each_in_order() {
    let (bench, other) = both();
    // What a device has told needs somebody who has kept it.
    let known = || Attention::ALL.iter().filter(|one| **one != Attention::OfDevice);
    for attention in known().rev() {
        bench.unit.establish_everywhere(*attention);
    }
    let told: Vec<_> = core::iter::from_fn(|| Some(ready(&other)).filter(|code| *code != NOTHING))
        .map(|(_, asc, ascq)| (asc, ascq))
        .collect();
    let all = known().map(|attention| attention.sense());
    let all: Vec<_> = all.map(|sense| (sense.asc, sense.ascq)).collect();
    let expected: Vec<_> = all.iter().filter(|code| code.0 != 0x29).copied().collect();
    assert_eq!(told[0], all[0], "the first of a reset covers the others of its family");
    assert_eq!(told[1..], expected);
}
