// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS parameter data
//! (SPC-4 §6.35, §6.36).

use super::field::get;
use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use super::opcode::Opcode;
use alloc::vec;
use alloc::vec::Vec;

/// A command timeouts descriptor that reports nothing (SPC-4 §6.35.4), 12 bytes.
const TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Whether timeouts descriptors were asked for (RCTD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // one bit
pub enum Timeouts {
    /// RCTD = 0.
    Omitted,
    /// RCTD = 1.
    Returned,
}

/// A command descriptor of the list of all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// OPERATION CODE.
    pub opcode: Opcode,
    /// SERVICE ACTION, if the operation code has one.
    pub service_action: Option<u16>,
    /// CDB LENGTH, bytes.
    pub cdb_len: u16,
}

/// All commands (reporting options 000b).
#[must_use]
pub fn emit_all(commands: impl IntoIterator<Item = Command>, timeouts: Timeouts) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for command in commands {
        let [sa_high, sa_low] = command.service_action.unwrap_or(0).to_be_bytes();
        let [len_high, len_low] = command.cdb_len.to_be_bytes();
        let flags = u8::from(command.service_action.is_some())
            | if timeouts == Timeouts::Returned { 0x02 } else { 0 };
        bytes.extend_from_slice(&[command.opcode.0, 0, sa_high, sa_low, 0, flags]);
        bytes.extend_from_slice(&[len_high, len_low]);
        if timeouts == Timeouts::Returned {
            bytes.extend_from_slice(&TIMEOUTS);
        }
    }
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The command descriptors of the list of all commands, as many as are announced and there.
#[must_use]
pub fn parse_all(bytes: &[u8]) -> Option<Vec<Command>> {
    let announced = usize::try_from(get_u32(bytes, 0)?).ok()?;
    let rest = bytes.get(4..)?;
    let mut rest = rest.get(..announced).unwrap_or(rest);
    let mut list = Vec::new();
    while let Some([opcode, _, sa_high, sa_low, _, flags, len_high, len_low]) = get::<8>(rest, 0) {
        list.push(Command {
            opcode: Opcode(opcode),
            service_action: (flags & 1 != 0).then(|| u16::from_be_bytes([sa_high, sa_low])),
            cdb_len: u16::from_be_bytes([len_high, len_low]),
        });
        let length = if flags & 2 != 0 { 8 + TIMEOUTS.len() } else { 8 };
        rest = rest.get(length..).unwrap_or_default();
    }
    Some(list)
}

/// One command (the other reporting options): `usage` is its CDB usage data, None if it is not
/// supported.
#[must_use]
pub fn emit_one(usage: Option<&[u8]>, timeouts: Timeouts) -> Vec<u8> {
    let Some(usage) = usage else { return vec![0, 1, 0, 0] };
    let with = timeouts == Timeouts::Returned;
    let [high, low] = u16::try_from(usage.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut bytes = vec![0, if with { 0x83 } else { 0x03 }, high, low];
    bytes.extend_from_slice(usage);
    if with {
        bytes.extend_from_slice(&TIMEOUTS);
    }
    bytes
}

/// What `emit_one` says: SUPPORT and the CDB usage data.
#[must_use]
pub fn parse_one(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let support = get_u8(bytes, 1)? & 7;
    let length = usize::from(get_u16(bytes, 2)?);
    Some((support, bytes.get(4..4 + length)?))
}

/// ABORT TASK, ABORT TASK SET, CLEAR ACA, CLEAR TASK SET and LOGICAL UNIT RESET, as RSTMF bits of
/// byte 0.
pub const TASK_MANAGEMENT_BASIC: u8 = 0x80 | 0x40 | 0x20 | 0x10 | 0x08;

/// QUERY TASK, and in byte 1 QUERY ASYNCHRONOUS EVENT, QUERY TASK SET and I_T NEXUS RESET.
pub const TASK_MANAGEMENT_QUERIES: [u8; 2] = [0x04, 0x04 | 0x02 | 0x01];

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS data with `functions` as bytes 0 and 1: 4 bytes, or
/// 16 with timeouts (REPD).
#[must_use]
pub fn emit_task_management(functions: [u8; 2], timeouts: Timeouts) -> Vec<u8> {
    let [first, second] = functions;
    let mut bytes = vec![first, second, 0, 0];
    if timeouts == Timeouts::Returned {
        bytes[3] = 0x0c;
        bytes.resize(16, 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_vectors() {
        let list = [
            Command { opcode: Opcode::READ_10, service_action: None, cdb_len: 10 },
            Command {
                opcode: Opcode::SERVICE_ACTION_IN_16,
                service_action: Some(0x10),
                cdb_len: 16,
            },
        ];
        assert_eq!(
            emit_all(list, Timeouts::Omitted),
            [0, 0, 0, 16, 0x28, 0, 0, 0, 0, 0, 0, 10, 0x9e, 0, 0, 0x10, 0, 1, 0, 16]
        );
        let with = emit_all([list[0]], Timeouts::Returned);
        assert_eq!(with[..14], [0, 0, 0, 20, 0x28, 0, 0, 0, 0, 2, 0, 10, 0, 0x0a]);
        assert_eq!(with.len(), 24);
    }

    #[test]
    fn one_vectors() {
        assert_eq!(emit_one(None, Timeouts::Returned), [0, 1, 0, 0]);
        assert_eq!(
            emit_one(Some(&[0, 0, 0, 0, 0, 4]), Timeouts::Omitted),
            [0, 3, 0, 6, 0, 0, 0, 0, 0, 4]
        );
        let with = emit_one(Some(&[0; 6]), Timeouts::Returned);
        assert_eq!((with[1], with.len()), (0x83, 22));
        assert_eq!(parse_one(&with), Some((3, &[0; 6][..])));
    }

    #[test]
    fn task_management_vectors() {
        let basic = [TASK_MANAGEMENT_BASIC, 0];
        assert_eq!(emit_task_management(basic, Timeouts::Omitted), [0xf8, 0, 0, 0]);
        let queries = emit_task_management(TASK_MANAGEMENT_QUERIES, Timeouts::Omitted);
        assert_eq!(queries, [0x04, 0x07, 0, 0]);
        let with = emit_task_management(basic, Timeouts::Returned);
        assert_eq!((with[3], with.len()), (12, 16));
    }

    proptest! {
        #[test]
        fn round_trip(
            list in proptest::collection::vec(any::<(u8, Option<u16>, u16)>(), 0..40), with: bool,
        ) {
            let list: Vec<_> = list
                .into_iter()
                .map(|(opcode, service_action, cdb_len)| Command {
                    opcode: Opcode(opcode), service_action, cdb_len,
                })
                .collect();
            let timeouts = if with { Timeouts::Returned } else { Timeouts::Omitted };
            prop_assert_eq!(parse_all(&emit_all(list.clone(), timeouts)), Some(list));
        }

        #[test]
        fn parsers_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (parse_all(&bytes), parse_one(&bytes));
        }
    }
}
