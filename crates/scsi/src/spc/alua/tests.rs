// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two ports, two groups, every state and every command.

use super::groups::Explicit;
use super::groups::PortGroup;
use super::reach::Reach;
use crate::Identity;
use crate::LogicalUnit;
use crate::Nexus;
use crate::UnitError;
use crate::table;
use crate::table::Flag;
use crate::testing::Disk;
use crate::testing::codes;
use crate::testing::geometry;
use crate::testing::names;
use crate::testing::request;
use crate::testing::run;
use crate::testing::sense_of;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::alua;
use wire::scsi::alua::AccessState;
use wire::scsi::alua::Format;
use wire::scsi::alua::StatusCode;
use wire::scsi::alua::Wanted;

const RTPG: [u8; 12] = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
const CHANGED: (u8, u8, u8) = (6, 0x2a, 6);

struct Paths {
    unit: Arc<LogicalUnit>,
    first: Nexus,
    second: Nexus,
}

fn group(number: u16, port: u16, state: AccessState) -> PortGroup {
    PortGroup { number, ports: vec![port], preferred: number == 10, state }
}

fn bare() -> LogicalUnit {
    let identity = Identity::derive("iqn.a", 0, "LUNWIRE", "disk");
    LogicalUnit::new(identity, Disk::new(geometry()), 512).expect("a good disk")
}

fn paths(explicit: Explicit) -> Paths {
    let groups = vec![
        group(10, 1, AccessState::ActiveOptimized),
        group(20, 2, AccessState::ActiveNonOptimized),
    ];
    let unit = Arc::new(bare().with_port_groups(groups, explicit).expect("two groups"));
    let nexus = |port: u16| {
        let mut names = names("iqn.host,i,0x1");
        (names.portal_group_tag, names.relative_port) = (port, port);
        let nexus = Nexus::new(names, vec![(0, Arc::clone(&unit))]);
        assert_eq!(codes(ready(&nexus)), (6, 0x29, 0));
        nexus
    };
    let (first, second) = (nexus(1), nexus(2));
    Paths { unit, first, second }
}

fn ready(nexus: &Nexus) -> Option<Sense> {
    sense_of(&run(nexus, request(Lun::Unit(0), &[0; 6], &[], 0), &[]))
}

fn data(nexus: &Nexus, cdb: &[u8]) -> Vec<u8> {
    let completion = run(nexus, request(Lun::Unit(0), cdb, &[], 4096), &[]);
    assert_eq!(completion.status, 0);
    completion.data_in.expect("data").to_vec()
}

fn set_list(nexus: &Nexus, list: &[u8]) -> Option<Sense> {
    let length = u8::try_from(list.len()).expect("short");
    let cdb = [0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, length, 0, 0];
    sense_of(&run(nexus, request(Lun::Unit(0), &cdb, list, 0), list))
}

fn set(nexus: &Nexus, list: &[(u8, u16)]) -> Option<Sense> {
    let list: Vec<_> = list.iter().map(|&(state, group)| Wanted { state, group }).collect();
    set_list(nexus, &alua::emit_wanted(&list))
}

fn states(nexus: &Nexus) -> Vec<(u16, AccessState, StatusCode)> {
    let (format, groups) = alua::parse(&data(nexus, &RTPG)).expect("well formed");
    assert_eq!(format, Format::Short);
    groups.iter().map(|group| (group.number, group.state, group.status)).collect()
}

/// Covers-scsi: A3/0A.
#[test]
fn groups_are_reported_in_both_formats_through_every_port() {
    let paths = paths(Explicit::No);
    for nexus in [&paths.first, &paths.second] {
        let (_, groups) = alua::parse(&data(nexus, &RTPG)).expect("well formed");
        assert_eq!(groups, paths.unit.port_groups());
        assert_eq!((groups[0].preferred, groups[1].preferred), (true, false));
        assert_eq!((&groups[0].ports, &groups[1].ports), (&vec![1], &vec![2]));
        let mut extended = RTPG;
        extended[1] |= 0x20;
        let (format, same) = alua::parse(&data(nexus, &extended)).expect("well formed");
        assert_eq!((format, same), (Format::Extended(0), groups));
    }
    let mut reserved = RTPG;
    reserved[1] |= 0x40;
    let sense = sense_of(&run(&paths.first, request(Lun::Unit(0), &reserved, &[], 99), &[]));
    assert_eq!(codes(sense), (5, 0x24, 0));
}

#[test]
fn page_83_and_standard_data_tell_the_group_and_who_changes_it() {
    let (implicit, both) = (paths(Explicit::No), paths(Explicit::Yes));
    for (nexus, tpgs) in [(&implicit.first, 0x10), (&both.second, 0x30)] {
        assert_eq!(data(nexus, &[0x12, 0, 0, 0, 96, 0])[5] & 0x30, tpgs);
    }
    let page = data(&both.second, &[0x12, 1, 0x83, 0, 255, 0]);
    let list = wire::scsi::vpd::designators(&page[4..]);
    assert!(list.contains(&wire::scsi::vpd::Designator::TargetPortGroup(20)));
    assert!(list.contains(&wire::scsi::vpd::Designator::RelativeTargetPort(2)));
}

/// The lists of SPC-4 §5.15.2.4, and READ CAPACITY and REPORT SUPPORTED OPERATION CODES in standby.
fn let_through(state: AccessState, opcode: u8, action: Option<u16>) -> bool {
    let transitioning = matches!((opcode, action), (0x12 | 0xa0 | 0x03, _) | (0xa3, Some(0x0a)));
    let unavailable =
        transitioning || matches!((opcode, action), (0xa4, Some(0x0a)) | (0x3b | 0x3c, _));
    let standby = unavailable
        || matches!(opcode, 0x15 | 0x55 | 0x1a | 0x5a | 0x4c | 0x4d | 0x5e | 0x5f | 0x1c | 0x1d)
        || matches!((opcode, action), (0x25, _) | (0x9e, Some(0x10)) | (0xa3, Some(0x0c)));
    match state {
        AccessState::Standby => standby,
        AccessState::Unavailable => unavailable,
        AccessState::Transitioning => transitioning,
        _ => true,
    }
}

#[test]
fn every_state_lets_through_what_the_standard_lists() {
    let refusals = [
        (AccessState::Standby, (2, 0x04, 0x0b)),
        (AccessState::Unavailable, (2, 0x04, 0x0c)),
        (AccessState::Transitioning, (2, 0x04, 0x0a)),
    ];
    for (state, refusal) in refusals {
        let paths = paths(Explicit::Yes);
        paths.unit.set_access_state(20, state).expect("a group");
        assert_eq!(
            codes(sense_of(&run(
                &paths.second,
                request(Lun::Unit(0), &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512),
                &[],
            ))),
            CHANGED
        );
        for entry in table::all().filter(|entry| entry.supported(&paths.unit)) {
            let cdb = entry.bare();
            let cdb = &cdb[..usize::from(entry.length).clamp(6, 32)];
            let what = (state, entry.opcode.name(), entry.service_action);
            let passes = let_through(state, entry.opcode.0, entry.service_action);
            assert_eq!(Reach::of(entry) >= needed(state), passes, "{what:?}");
            let completion = run(&paths.second, request(Lun::Unit(0), cdb, &[], 4096), &[]);
            let sense = Sense::parse(&completion.sense);
            assert_eq!(codes(sense) == refusal, !passes, "{what:?}: {sense:?}");
            let elsewhere = run(&paths.first, request(Lun::Unit(0), cdb, &[], 4096), &[]);
            assert_ne!(codes(Sense::parse(&elsewhere.sense)), refusal, "{what:?}");
        }
    }
}

fn needed(state: AccessState) -> Reach {
    match state {
        AccessState::Standby => Reach::Standby,
        AccessState::Unavailable => Reach::Unavailable,
        AccessState::Transitioning => Reach::Always,
        _ => Reach::Active,
    }
}

#[test]
fn an_implicit_change_is_told_to_every_nexus_once() {
    let paths = paths(Explicit::No);
    paths.unit.set_access_state(20, AccessState::Standby).expect("a group");
    assert_eq!(codes(ready(&paths.first)), CHANGED);
    assert_eq!(codes(ready(&paths.second)), CHANGED);
    assert_eq!(codes(ready(&paths.second)), (2, 0x04, 0x0b));
    assert_eq!(ready(&paths.first), None, "the other group works on");
    paths.unit.set_access_state(20, AccessState::Standby).expect("a group");
    assert_eq!(ready(&paths.first), None, "nothing has changed");
    assert_eq!(states(&paths.second)[1], (20, AccessState::Standby, StatusCode::Implicit));
    paths.unit.set_access_state(20, AccessState::ActiveOptimized).expect("a group");
    assert_eq!(codes(ready(&paths.second)), CHANGED);
    assert_eq!(ready(&paths.second), None);
    assert!(paths.unit.set_access_state(30, AccessState::Standby).is_err());
}

/// Covers-scsi: A4/0A.
#[test]
fn an_explicit_change_is_told_to_the_others() {
    let paths = paths(Explicit::Yes);
    assert_eq!(set(&paths.second, &[(0, 20), (2, 10)]), None);
    assert_eq!(
        states(&paths.second),
        [
            (10, AccessState::Standby, StatusCode::Explicit),
            (20, AccessState::ActiveOptimized, StatusCode::Explicit)
        ]
    );
    assert_eq!(ready(&paths.second), None, "who asks knows");
    assert_eq!(codes(ready(&paths.first)), CHANGED);
    assert_eq!(codes(ready(&paths.first)), (2, 0x04, 0x0b));
    assert_eq!(set(&paths.first, &[(0, 10)]), None, "a group takes itself out of standby");
    assert_eq!(ready(&paths.first), None);
}

/// Covers-scsi: A4/0A.
#[test]
fn a_list_with_one_wrong_descriptor_changes_nothing() {
    let paths = paths(Explicit::Yes);
    let before = states(&paths.first);
    for (list, byte) in [
        (&[(2, 20), (0, 30)][..], 10),
        (&[(2, 20), (0xf, 10)], 8),
        (&[(4, 10)], 4),
        (&[(0xe, 10)], 4),
    ] {
        let sense = set(&paths.first, list).expect("refused");
        assert_eq!(codes(Some(sense)), (5, 0x26, 0), "{list:?}");
        assert_eq!(sense.field.map(|field| field.byte), Some(byte), "{list:?}");
    }
    for length in [1, 3, 5, 7] {
        assert_eq!(codes(set_list(&paths.first, &[0; 8][..length])), (5, 0x1a, 0));
    }
    assert_eq!(set_list(&paths.first, &[]), None, "no list is no error");
    assert_eq!(states(&paths.first), before);
    assert_eq!(ready(&paths.second), None);
}

#[test]
fn hosts_may_not_change_states_where_only_administration_does() {
    let paths = paths(Explicit::No);
    assert_eq!(codes(set(&paths.first, &[(0, 20)])), (5, 0x24, 0));
    let one = data(&paths.first, &[0xa3, 0x0c, 2, 0xa4, 0, 0x0a, 0, 0, 0, 99, 0, 0]);
    assert_eq!(one[1] & 7, 1, "not supported");
}

#[test]
fn groups_need_numbers_and_ports_of_their_own() {
    let state = AccessState::ActiveOptimized;
    for wrong in [
        vec![group(1, 1, state), group(1, 2, state)],
        vec![group(1, 1, state), group(2, 1, state)],
        vec![PortGroup { number: 1, ports: vec![], preferred: false, state }],
    ] {
        let refused = bare().with_port_groups(wrong, Explicit::No).err();
        assert!(matches!(refused, Some(UnitError::PortGroup(_))));
    }
}

#[test]
fn informative_commands_are_let_through_by_every_state() {
    assert!(
        table::all().filter(|e| e.has(Flag::Informative)).all(|e| Reach::of(e) == Reach::Always)
    );
}
