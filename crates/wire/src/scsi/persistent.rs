// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PERSISTENT RESERVE IN and OUT (SPC-4 §6.15, §6.16) and the iSCSI TransportID (SPC-4 §7.6.4.6).

use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use super::field::get_u64;
use super::field::put;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// READ KEYS, service action of PERSISTENT RESERVE IN.
pub const READ_KEYS: u16 = 0x00;
/// READ RESERVATION.
pub const READ_RESERVATION: u16 = 0x01;
/// REPORT CAPABILITIES.
pub const REPORT_CAPABILITIES: u16 = 0x02;
/// READ FULL STATUS.
pub const READ_FULL_STATUS: u16 = 0x03;

/// REGISTER, service action of PERSISTENT RESERVE OUT.
pub const REGISTER: u16 = 0x00;
/// RESERVE.
pub const RESERVE: u16 = 0x01;
/// RELEASE.
pub const RELEASE: u16 = 0x02;
/// CLEAR.
pub const CLEAR: u16 = 0x03;
/// PREEMPT.
pub const PREEMPT: u16 = 0x04;
/// PREEMPT AND ABORT.
pub const PREEMPT_AND_ABORT: u16 = 0x05;
/// REGISTER AND IGNORE EXISTING KEY.
pub const REGISTER_AND_IGNORE_EXISTING_KEY: u16 = 0x06;
/// REGISTER AND MOVE.
pub const REGISTER_AND_MOVE: u16 = 0x07;

/// Length of the basic parameter list, and the fixed part of every other one, bytes.
pub const LIST_LEN: usize = BASIC_LIST_LEN as usize;
pub(super) const BASIC_LIST_LEN: u8 = 24;

/// TYPE of a persistent reservation (SPC-4 §6.15.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums)] // all that SPC-4 has
#[repr(u8)]
pub enum Type {
    /// 1h.
    WriteExclusive = 1,
    /// 3h.
    ExclusiveAccess = 3,
    /// 5h.
    WriteExclusiveRegistrantsOnly = 5,
    /// 6h.
    ExclusiveAccessRegistrantsOnly = 6,
    /// 7h.
    WriteExclusiveAllRegistrants = 7,
    /// 8h.
    ExclusiveAccessAllRegistrants = 8,
}

impl Type {
    /// Every type.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// From the low four bits of `code`; None for a reserved or obsolete one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code & 0xf)
    }

    /// Others may read.
    #[must_use]
    pub const fn lets_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive
                | Self::WriteExclusiveRegistrantsOnly
                | Self::WriteExclusiveAllRegistrants
        )
    }

    /// Registrants have the rights of the holder.
    #[must_use]
    pub const fn lets_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Every registrant is a holder.
    #[must_use]
    pub const fn is_of_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }
}

/// READ KEYS data.
#[must_use]
pub fn emit_keys(generation: u32, keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    with_header(generation, keys.into_iter().flat_map(u64::to_be_bytes).collect())
}

/// READ RESERVATION data: the holder's key (0 where all registrants are holders) and the type.
#[must_use]
pub fn emit_reservation(generation: u32, reservation: Option<(u64, Type)>) -> Vec<u8> {
    let mut content = Vec::new();
    if let Some((key, kind)) = reservation {
        content.extend_from_slice(&key.to_be_bytes());
        content.extend_from_slice(&[0, 0, 0, 0, 0, kind as u8, 0, 0]);
    }
    with_header(generation, content)
}

/// Whether registrations and reservations survive a loss of power (PTPL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // PTPL_C and PTPL_A
pub enum PowerLoss {
    /// They cannot.
    Never,
    /// They can but do not.
    Possible,
    /// They do.
    Active,
}

/// REPORT CAPABILITIES data: compatible handling of RESERVE, SPEC_I_PT, ALL_TG_PT and all types.
#[must_use]
pub fn emit_capabilities(power_loss: PowerLoss) -> [u8; 8] {
    let possible = u8::from(power_loss != PowerLoss::Never);
    let active = u8::from(power_loss == PowerLoss::Active);
    let mut mask = 0_u16;
    for kind in Type::ALL {
        // Types 0-7 are the bits of the first byte, 8-15 those of the second.
        mask |= 1 << ((kind as u16 + 8) % 16);
    }
    let [high, low] = mask.to_be_bytes();
    [0, 8, 0x1c | possible, 0x80 | active, high, low, 0, 0]
}

/// Full status descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullStatus {
    /// RESERVATION KEY.
    pub key: u64,
    /// ALL_TG_PT.
    pub all_target_ports: bool,
    /// R_HOLDER and the type.
    pub holds: Option<Type>,
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub relative_port: u16,
    /// Name of the initiator port.
    pub initiator_port: String,
}

/// READ FULL STATUS data.
#[must_use]
pub fn emit_full_status(generation: u32, list: &[FullStatus]) -> Vec<u8> {
    let mut content = Vec::new();
    for one in list {
        let transport_id = emit_transport_id(&one.initiator_port);
        let mut bytes = [0; 24];
        put(&mut bytes, 0, one.key.to_be_bytes());
        bytes[12] = u8::from(one.all_target_ports) << 1 | u8::from(one.holds.is_some());
        bytes[13] = one.holds.map_or(0, |kind| kind as u8);
        put(&mut bytes, 18, one.relative_port.to_be_bytes());
        let length = u32::try_from(transport_id.len()).unwrap_or(u32::MAX);
        put(&mut bytes, 20, length.to_be_bytes());
        content.extend_from_slice(&bytes);
        content.extend_from_slice(&transport_id);
    }
    with_header(generation, content)
}

fn with_header(generation: u32, content: Vec<u8>) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    put(&mut bytes, 0, generation.to_be_bytes());
    put(&mut bytes, 4, u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(content);
    bytes
}

/// TransportID of an iSCSI initiator port `name,i,0xISID`.
#[must_use]
pub fn emit_transport_id(initiator_port: &str) -> Vec<u8> {
    let length = (initiator_port.len() + 1).next_multiple_of(4).max(20);
    let mut bytes = vec![0x45, 0];
    bytes.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(initiator_port.as_bytes());
    bytes.resize(4 + length, 0);
    bytes
}

/// The initiator port that a TransportID names, and the bytes behind it; None if it is malformed,
/// of another protocol, or names a device without a port.
#[must_use]
pub fn parse_transport_id(bytes: &[u8]) -> Option<(String, &[u8])> {
    if get_u8(bytes, 0)? != 0x45 {
        return None;
    }
    let length = usize::from(get_u16(bytes, 2)?);
    if length < 20 || !length.is_multiple_of(4) {
        return None;
    }
    let (name, rest) = bytes.get(4..)?.split_at_checked(length)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    let name = core::str::from_utf8(name.get(..end)?).ok()?;
    let (device, isid) = name.rsplit_once(",i,0x")?;
    let isid_is_good = isid.len() == 12 && isid.bytes().all(|digit| digit.is_ascii_hexdigit());
    if device.is_empty() || device.len() > 223 || !isid_is_good {
        return None;
    }
    // As names are compared (RFC 3722); initiators whose names are more than ASCII do not log in.
    let mut port = device.to_ascii_lowercase();
    port.push_str(",i,0x");
    port.push_str(&isid.to_ascii_lowercase());
    Some((port, rest))
}

/// The basic parameter list (SPC-4 §6.16.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterList<'a> {
    /// RESERVATION KEY.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub action_key: u64,
    /// Byte 20: SPEC_I_PT, ALL_TG_PT, APTPL.
    flags: u8,
    /// What follows.
    pub rest: &'a [u8],
}

/// The basic parameter list of PERSISTENT RESERVE OUT (SPC-4 §6.16.3), without flags.
#[must_use]
pub fn emit_list(key: u64, action_key: u64) -> [u8; LIST_LEN] {
    let mut bytes = [0; LIST_LEN];
    bytes[..8].copy_from_slice(&key.to_be_bytes());
    bytes[8..16].copy_from_slice(&action_key.to_be_bytes());
    bytes
}

impl<'a> ParameterList<'a> {
    /// Reads a list; None if it is shorter than its fixed part.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        Some(Self {
            key: get_u64(bytes, 0)?,
            action_key: get_u64(bytes, 8)?,
            flags: get_u8(bytes, 20)?,
            rest: bytes.get(LIST_LEN..)?,
        })
    }

    /// SPEC_I_PT: a list of initiator ports to register follows.
    #[must_use]
    pub const fn names_initiator_ports(&self) -> bool {
        self.flags & 0x08 != 0
    }

    /// ALL_TG_PT: at every target port.
    #[must_use]
    pub const fn all_target_ports(&self) -> bool {
        self.flags & 0x04 != 0
    }

    /// APTPL: to be kept through a loss of power.
    #[must_use]
    pub const fn persists(&self) -> bool {
        self.flags & 0x01 != 0
    }

    /// The initiator ports of SPEC_I_PT, at most `max`; None if malformed.
    #[must_use]
    pub fn initiator_ports(&self, max: usize) -> Option<Vec<String>> {
        let length = usize::try_from(get_u32(self.rest, 0)?).ok()?;
        let mut rest = self.rest.get(4..)?;
        if rest.len() != length {
            return None;
        }
        let mut ports = Vec::new();
        while !rest.is_empty() {
            if ports.len() >= max {
                return None;
            }
            let (port, after) = parse_transport_id(rest)?;
            ports.push(port);
            rest = after;
        }
        Some(ports)
    }
}

/// The parameter list of REGISTER AND MOVE (SPC-4 §6.16.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveList {
    /// RESERVATION KEY.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: that of the new holder.
    pub action_key: u64,
    /// UNREG: the old holder is no longer registered.
    pub unregister: bool,
    /// APTPL.
    pub persists: bool,
    /// RELATIVE TARGET PORT IDENTIFIER of the new holder's nexus.
    pub relative_port: u16,
    /// Its initiator port; None if the TransportID is malformed.
    pub initiator_port: Option<String>,
}

impl MoveList {
    /// Reads a list; None if it is shorter than its fixed part or lies about its length.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let flags = get_u8(bytes, 17)?;
        let length = usize::try_from(get_u32(bytes, 20)?).ok()?;
        let transport_id = bytes.get(LIST_LEN..)?;
        if transport_id.len() != length {
            return None;
        }
        Some(Self {
            key: get_u64(bytes, 0)?,
            action_key: get_u64(bytes, 8)?,
            unregister: flags & 2 != 0,
            persists: flags & 1 != 0,
            relative_port: get_u16(bytes, 18)?,
            initiator_port: parse_transport_id(transport_id)
                .filter(|(_, rest)| rest.is_empty())
                .map(|(port, _)| port),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn capabilities_vector() {
        assert_eq!(emit_capabilities(PowerLoss::Never), [0, 8, 0x1c, 0x80, 0xea, 0x01, 0, 0]);
        assert_eq!(emit_capabilities(PowerLoss::Active), [0, 8, 0x1d, 0x81, 0xea, 0x01, 0, 0]);
    }

    #[test]
    fn keys_and_reservation_vectors() {
        assert_eq!(emit_keys(2, [1]), [0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(emit_reservation(3, None), [0, 0, 0, 3, 0, 0, 0, 0]);
        let held = emit_reservation(3, Some((5, Type::ExclusiveAccess)));
        assert_eq!(held[4..], [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 3, 0, 0]);
    }

    #[test]
    fn full_status_vector() {
        let one = FullStatus {
            key: 9,
            all_target_ports: true,
            holds: Some(Type::WriteExclusive),
            relative_port: 1,
            initiator_port: "iqn.a,i,0x123456789abc".into(),
        };
        let bytes = emit_full_status(1, &[one]);
        assert_eq!(bytes[4..8], [0, 0, 0, 52]);
        assert_eq!(bytes[20..32], [3, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 28]);
        assert_eq!(bytes[32..36], [0x45, 0, 0, 24]);
        assert_eq!(bytes[57..], [b'c', 0, 0]);
    }

    #[test]
    fn transport_ids_must_name_a_port() {
        let good = emit_transport_id("iqn.a,i,0x00023D000001");
        let (port, rest) = parse_transport_id(&good).expect("good");
        assert_eq!((port.as_str(), rest), ("iqn.a,i,0x00023d000001", &[][..]));
        for bad in ["iqn.a", "iqn.a,i,0x1", ",i,0x00023d000001", "iqn.a,i,0x00023d00000g"] {
            assert_eq!(parse_transport_id(&emit_transport_id(bad)), None, "{bad}");
        }
        let mut other = good.clone();
        other[0] = 0x05;
        assert_eq!(parse_transport_id(&other), None);
        assert_eq!(parse_transport_id(&good[..good.len() - 1]), None);
    }

    /// Two ways of writing one name are one port.
    #[test]
    fn transport_ids_name_ports_as_they_are_compared() {
        let id = emit_transport_id("iqn.A,i,0x00023D000001");
        let (port, _) = parse_transport_id(&id).expect("good");
        assert_eq!(port, "iqn.a,i,0x00023d000001");
    }

    #[test]
    fn lists_of_ports() {
        let mut bytes = vec![0; LIST_LEN];
        bytes[20] = 0x0d;
        let id = emit_transport_id("iqn.a,i,0x00023d000001");
        bytes.extend_from_slice(&u32::try_from(id.len() * 2).expect("short").to_be_bytes());
        bytes.extend_from_slice(&id);
        bytes.extend_from_slice(&id);
        let list = ParameterList::parse(&bytes).expect("long enough");
        assert!(list.names_initiator_ports() && list.all_target_ports() && list.persists());
        assert_eq!(list.initiator_ports(2).map(|ports| ports.len()), Some(2));
        assert_eq!(list.initiator_ports(1), None);
        bytes.pop();
        assert_eq!(ParameterList::parse(&bytes).expect("still").initiator_ports(9), None);
        assert_eq!(ParameterList::parse(&bytes[..23]), None);
    }

    proptest! {
        #[test]
        fn parsers_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = (parse_transport_id(&bytes), MoveList::parse(&bytes));
            let _ = ParameterList::parse(&bytes).map(|list| list.initiator_ports(10));
        }
    }
}
