// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Target port groups: parameter data of REPORT and SET TARGET PORT GROUPS (SPC-4 §6.37, §6.45).

use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use alloc::vec::Vec;

/// Bytes of a target port group descriptor before its ports.
pub const GROUP_LEN: usize = 8;
/// Bytes of a target port descriptor.
pub const PORT_LEN: usize = 4;
/// Bytes before the descriptors of a SET TARGET PORT GROUPS parameter list.
pub const SET_HEADER_LEN: usize = 4;
/// Bytes of a descriptor of a SET TARGET PORT GROUPS parameter list.
pub const SET_DESCRIPTOR_LEN: usize = 4;

/// T_SUP: the state transitioning is shown.
pub const TRANSITIONING_SUPPORTED: u8 = 0x80;
/// U_SUP.
pub const UNAVAILABLE_SUPPORTED: u8 = 0x08;
/// S_SUP.
pub const STANDBY_SUPPORTED: u8 = 0x04;
/// AN_SUP.
pub const NON_OPTIMIZED_SUPPORTED: u8 = 0x02;
/// AO_SUP.
pub const OPTIMIZED_SUPPORTED: u8 = 0x01;

/// ASYMMETRIC ACCESS STATE of a target port group (SPC-4 §5.15.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum AccessState {
    /// All commands, at full speed.
    ActiveOptimized = 0x0,
    /// All commands, perhaps slower.
    ActiveNonOptimized = 0x1,
    /// What is needed to take over, but not the medium.
    Standby = 0x2,
    /// What is needed to find out, and nothing else.
    Unavailable = 0x3,
    /// On the way from one state to another.
    Transitioning = 0xf,
}

impl AccessState {
    /// Every state that is built.
    pub const ALL: [Self; 5] = [
        Self::ActiveOptimized,
        Self::ActiveNonOptimized,
        Self::Standby,
        Self::Unavailable,
        Self::Transitioning,
    ];

    /// The state of a code; None for offline, logical block dependent and reserved ones.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == code)
    }
}

/// STATUS CODE: who changed the state last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(clippy::exhaustive_enums)] // the others are reserved
pub enum StatusCode {
    /// Nobody since the unit exists.
    None = 0,
    /// SET TARGET PORT GROUPS.
    Explicit = 1,
    /// The device server by itself.
    Implicit = 2,
}

/// A target port group as REPORT TARGET PORT GROUPS shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// TARGET PORT GROUP.
    pub number: u16,
    /// PREF: hosts do well to use it.
    pub preferred: bool,
    /// ASYMMETRIC ACCESS STATE.
    pub state: AccessState,
    /// The `*_SUPPORTED` bits of the states that it may have.
    pub supported: u8,
    /// Who changed the state last.
    pub status: StatusCode,
    /// RELATIVE TARGET PORT IDENTIFIERs; the first 255 are shown.
    pub ports: Vec<u16>,
}

/// PARAMETER DATA FORMAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the others are reserved
pub enum Format {
    /// Length only header (000b).
    Short,
    /// Extended header (001b) with IMPLICIT TRANSITION TIME, seconds.
    Extended(u8),
}

/// Parameter data of REPORT TARGET PORT GROUPS.
#[must_use]
pub fn emit<'a>(groups: impl IntoIterator<Item = &'a Group>, format: Format) -> Vec<u8> {
    let mut bytes = Vec::from([0; 4]);
    if let Format::Extended(seconds) = format {
        bytes.extend_from_slice(&[0x10, seconds, 0, 0]);
    }
    for group in groups {
        let [high, low] = group.number.to_be_bytes();
        let ports = group.ports.get(..usize::from(u8::MAX)).unwrap_or(&group.ports);
        let count = u8::try_from(ports.len()).unwrap_or(u8::MAX);
        let first = u8::from(group.preferred) << 7 | group.state as u8;
        let status = group.status as u8;
        bytes.extend_from_slice(&[first, group.supported, high, low, 0, status, 0, count]);
        for port in ports {
            let [high, low] = port.to_be_bytes();
            bytes.extend_from_slice(&[0, 0, high, low]);
        }
    }
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    if let Some(head) = bytes.first_chunk_mut() {
        *head = length.to_be_bytes();
    }
    bytes
}

/// Reads parameter data; groups in a state that [`AccessState`] does not have are left out. None if
/// the data are shorter than they announce.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<(Format, Vec<Group>)> {
    let length = usize::try_from(get_u32(bytes, 0)?).ok()?;
    let data = bytes.get(4..)?.get(..length)?;
    let (format, mut rest) = match get_u8(data, 0) {
        // A group whose first byte looks so would be in a reserved state.
        Some(first) if first & 0x70 == 0x10 => (Format::Extended(get_u8(data, 1)?), data.get(4..)?),
        _ => (Format::Short, data),
    };
    let mut groups = Vec::new();
    while !rest.is_empty() {
        let count = usize::from(get_u8(rest, 7)?);
        let ports = rest.get(GROUP_LEN..)?.get(..count * PORT_LEN)?;
        let first = get_u8(rest, 0)?;
        if let Some(state) = AccessState::from_code(first & 0x0f) {
            groups.push(Group {
                number: get_u16(rest, 2)?,
                preferred: first & 0x80 != 0,
                state,
                supported: get_u8(rest, 1)?,
                status: match get_u8(rest, 5)? {
                    1 => StatusCode::Explicit,
                    2 => StatusCode::Implicit,
                    _ => StatusCode::None,
                },
                ports: ports.chunks_exact(PORT_LEN).filter_map(|port| get_u16(port, 2)).collect(),
            });
        }
        rest = rest.get(GROUP_LEN + count * PORT_LEN..)?;
    }
    Some((format, groups))
}

/// A descriptor of a SET TARGET PORT GROUPS parameter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The code of the wanted state, whether there is one or not.
    pub state: u8,
    /// TARGET PORT GROUP.
    pub group: u16,
}

/// The descriptors of a parameter list; None if its length is not that of whole descriptors.
#[must_use]
pub fn wanted(list: &[u8]) -> Option<Vec<Wanted>> {
    let descriptors = list.get(SET_HEADER_LEN..)?;
    if !descriptors.len().is_multiple_of(SET_DESCRIPTOR_LEN) {
        return None;
    }
    descriptors
        .chunks_exact(SET_DESCRIPTOR_LEN)
        .map(|one| Some(Wanted { state: get_u8(one, 0)? & 0x0f, group: get_u16(one, 2)? }))
        .collect()
}

/// A SET TARGET PORT GROUPS parameter list.
#[must_use]
pub fn emit_wanted(list: &[Wanted]) -> Vec<u8> {
    let mut bytes = Vec::from([0; SET_HEADER_LEN]);
    for one in list {
        let [high, low] = one.group.to_be_bytes();
        bytes.extend_from_slice(&[one.state & 0x0f, 0, high, low]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn group() -> Group {
        Group {
            number: 0x0102,
            preferred: true,
            state: AccessState::Standby,
            supported: 0x0f,
            status: StatusCode::Explicit,
            ports: vec![0x0304, 5],
        }
    }

    #[test]
    fn vector() {
        let body = [0x82, 0x0f, 1, 2, 0, 1, 0, 2, 0, 0, 3, 4, 0, 0, 0, 5];
        let short = emit(&[group()], Format::Short);
        assert_eq!(short[..4], [0, 0, 0, 16]);
        assert_eq!(short[4..], body);
        let extended = emit(&[group()], Format::Extended(7));
        assert_eq!(extended[..8], [0, 0, 0, 20, 0x10, 7, 0, 0]);
        assert_eq!(extended[8..], body);
    }

    #[test]
    fn lists_of_whole_descriptors_only() {
        let list = emit_wanted(&[Wanted { state: 2, group: 3 }]);
        assert_eq!(list, [0, 0, 0, 0, 2, 0, 0, 3]);
        assert_eq!(wanted(&list), Some(vec![Wanted { state: 2, group: 3 }]));
        assert_eq!(wanted(&list[..4]), Some(vec![]));
        for cut in [0, 1, 3, 5, 7] {
            assert_eq!(wanted(&list[..cut]), None, "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            list in proptest::collection::vec(
                (any::<u16>(), any::<bool>(), 0_usize..5, any::<u8>(),
                    proptest::collection::vec(any::<u16>(), 0..5)), 0..6),
            seconds in proptest::option::of(any::<u8>()),
        ) {
            let groups: Vec<Group> = list.into_iter().map(|(number, preferred, state, sup, ports)| {
                let state = AccessState::ALL[state];
                let status = StatusCode::Implicit;
                Group { number, preferred, state, supported: sup, status, ports }
            }).collect();
            let format = seconds.map_or(Format::Short, Format::Extended);
            let bytes = emit(&groups, format);
            let parsed = parse(&bytes).expect("well formed");
            prop_assert_eq!(parsed, (format, groups));
        }

        #[test]
        fn parse_is_total(
            bytes in proptest::collection::vec(any::<u8>(), 0..60), small in 0_u8..60,
        ) {
            let _ = (parse(&bytes), wanted(&bytes));
            let mut bytes = bytes;
            if let Some(head) = bytes.first_chunk_mut::<4>() {
                *head = [0, 0, 0, small];
            }
            let _ = parse(&bytes);
        }
    }
}
