// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sense data in fixed and in descriptor format (SPC-4 §4.5).

use super::field::get_u8;
use super::field::get_u16;
use super::field::get_u32;
use super::field::get_u64;
use super::field::put;
use alloc::vec;
use alloc::vec::Vec;

/// Length of fixed format sense data as written here, bytes.
pub const FIXED_LEN: usize = 18;

/// Sense keys (SPC-4 §4.5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums)] // four bits: all sixteen are here
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// Done, with recovery.
    RecoveredError = 0x1,
    /// Not accessible now.
    NotReady = 0x2,
    /// Flaw in the medium.
    MediumError = 0x3,
    /// Non-recoverable failure of the device.
    HardwareError = 0x4,
    /// The command or its parameters are wrong.
    IllegalRequest = 0x5,
    /// Something happened that the initiator must know.
    UnitAttention = 0x6,
    /// Protected from this access.
    DataProtect = 0x7,
    /// Blank or non-blank medium met.
    BlankCheck = 0x8,
    /// Vendor specific.
    VendorSpecific = 0x9,
    /// A copy command failed.
    CopyAborted = 0xa,
    /// The device server aborted the command.
    AbortedCommand = 0xb,
    /// Reserved.
    Reserved = 0xc,
    /// End of partition with data left.
    VolumeOverflow = 0xd,
    /// The data did not match.
    Miscompare = 0xe,
    /// Completion sense data.
    Completed = 0xf,
}

impl SenseKey {
    /// From the low four bits of `code`.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code & 0xf {
            0x0 => Self::NoSense,
            0x1 => Self::RecoveredError,
            0x2 => Self::NotReady,
            0x3 => Self::MediumError,
            0x4 => Self::HardwareError,
            0x5 => Self::IllegalRequest,
            0x6 => Self::UnitAttention,
            0x7 => Self::DataProtect,
            0x8 => Self::BlankCheck,
            0x9 => Self::VendorSpecific,
            0xa => Self::CopyAborted,
            0xb => Self::AbortedCommand,
            0xc => Self::Reserved,
            0xd => Self::VolumeOverflow,
            0xe => Self::Miscompare,
            _ => Self::Completed,
        }
    }
}

/// What a field pointer points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums)] // the C/D bit
pub enum FieldOf {
    /// C/D = 1.
    Cdb,
    /// C/D = 0: the parameter list sent as data.
    ParameterList,
}

/// Sense key specific data of ILLEGAL REQUEST (SPC-4 §4.5.2.4.2): the field in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldPointer {
    /// CDB or parameter list.
    pub of: FieldOf,
    /// First byte of the field.
    pub byte: u16,
    /// Leftmost bit of the field, 0-7, if it is less than a byte.
    pub bit: Option<u8>,
}

impl FieldPointer {
    fn emit(self) -> [u8; 3] {
        let command = if self.of == FieldOf::Cdb { 0x40 } else { 0 };
        let bit = self.bit.map_or(0, |bit| 0x08 | bit & 7);
        let [high, low] = self.byte.to_be_bytes();
        [0x80 | command | bit, high, low]
    }

    fn parse(bytes: &[u8], at: usize) -> Option<Self> {
        let head = get_u8(bytes, at)?;
        if head & 0x80 == 0 {
            return None;
        }
        Some(Self {
            of: if head & 0x40 != 0 { FieldOf::Cdb } else { FieldOf::ParameterList },
            byte: get_u16(bytes, at + 1)?,
            bit: (head & 0x08 != 0).then_some(head & 7),
        })
    }
}

/// Sense data as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sense {
    /// It is about a command that had ended well before, not about the one that ends with it, which
    /// was not carried out (SPC-4 §4.5.7).
    pub deferred: bool,
    /// SENSE KEY.
    pub key: SenseKey,
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
    /// INFORMATION: the first LBA in error, or as the command says.
    pub information: Option<u64>,
    /// The field in error; only with ILLEGAL REQUEST.
    pub field: Option<FieldPointer>,
    /// PROGRESS INDICATION, parts of 65536; only with NOT READY and NO SENSE.
    pub progress: Option<u16>,
}

impl Sense {
    /// Key and codes alone.
    #[must_use]
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self { deferred: false, key, asc, ascq, information: None, field: None, progress: None }
    }

    /// The same as a deferred error.
    #[must_use]
    pub const fn of_an_earlier_command(mut self) -> Self {
        self.deferred = true;
        self
    }

    /// The same with INFORMATION.
    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// The same with a field pointer.
    #[must_use]
    pub const fn with_field(mut self, field: FieldPointer) -> Self {
        self.field = Some(field);
        self
    }

    /// The same with a progress indication.
    #[must_use]
    pub const fn with_progress(mut self, progress: u16) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Sense key specific data (SPC-4 §4.5.2.4).
    fn specific(&self) -> Option<[u8; 3]> {
        let progress = self.progress.map(|progress| {
            let [high, low] = progress.to_be_bytes();
            [0x80, high, low]
        });
        self.field.map(FieldPointer::emit).or(progress)
    }

    /// Fixed format, response code 70h or 71h (SPC-4 §4.5.3). INFORMATION that does not fit 32 bits
    /// is left out.
    #[must_use]
    pub fn emit_fixed(&self) -> [u8; FIXED_LEN] {
        let mut bytes = [0; FIXED_LEN];
        bytes[0] = 0x70 | u8::from(self.deferred);
        bytes[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            bytes[0] |= 0x80;
            put(&mut bytes, 3, information.to_be_bytes());
        }
        bytes[7] = 10;
        bytes[12] = self.asc;
        bytes[13] = self.ascq;
        if let Some(specific) = self.specific() {
            put(&mut bytes, 15, specific);
        }
        bytes
    }

    /// Descriptor format, response code 72h or 73h (SPC-4 §4.5.2).
    #[must_use]
    pub fn emit_descriptor(&self) -> Vec<u8> {
        let code = 0x72 | u8::from(self.deferred);
        let mut bytes = vec![code, self.key as u8, self.asc, self.ascq, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0x00, 0x0a, 0x80, 0]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        let specific = self.specific();
        if let Some(specific) = specific {
            bytes.extend_from_slice(&[0x02, 0x06, 0, 0]);
            bytes.extend_from_slice(&specific);
            bytes.push(0);
        }
        bytes[7] = if self.information.is_some() { 12 } else { 0 }
            + if specific.is_some() { 8 } else { 0 };
        bytes
    }

    /// Reads either format, current or deferred; None if it is neither or too short for its codes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (code, sense) = match get_u8(bytes, 0)? & 0x7f {
            code @ (0x70 | 0x71) => (code, Self::parse_fixed(bytes)?),
            code @ (0x72 | 0x73) => (code, Self::parse_descriptor(bytes)?),
            _ => return None,
        };
        Some(Self { deferred: code & 1 != 0, ..sense })
    }

    fn parse_fixed(bytes: &[u8]) -> Option<Self> {
        let key = SenseKey::from_code(get_u8(bytes, 2)?);
        let end = (8 + usize::from(get_u8(bytes, 7)?)).min(bytes.len());
        let bytes = bytes.get(..end)?;
        let valid = get_u8(bytes, 0)? & 0x80 != 0;
        Some(Self {
            deferred: false,
            key,
            asc: get_u8(bytes, 12).unwrap_or(0),
            ascq: get_u8(bytes, 13).unwrap_or(0),
            information: if valid { get_u32(bytes, 3).map(u64::from) } else { None },
            field: Self::field_of(key, bytes, 15),
            progress: Self::progress_of(key, bytes, 15),
        })
    }

    fn parse_descriptor(bytes: &[u8]) -> Option<Self> {
        let key = SenseKey::from_code(get_u8(bytes, 1)?);
        let mut sense = Self::new(key, get_u8(bytes, 2)?, get_u8(bytes, 3)?);
        let end = (8 + usize::from(get_u8(bytes, 7)?)).min(bytes.len());
        let mut rest = bytes.get(8..end)?;
        while let (Some(kind), Some(len)) = (get_u8(rest, 0), get_u8(rest, 1)) {
            let Some((descriptor, after)) = rest.split_at_checked(2 + usize::from(len)) else {
                break;
            };
            match kind {
                0x00 if get_u8(descriptor, 2).is_some_and(|flags| flags & 0x80 != 0) => {
                    sense.information = get_u64(descriptor, 4);
                }
                0x02 => {
                    sense.field = Self::field_of(key, descriptor, 4);
                    sense.progress = Self::progress_of(key, descriptor, 4);
                }
                _ => {}
            }
            rest = after;
        }
        Some(sense)
    }

    fn progress_of(key: SenseKey, bytes: &[u8], at: usize) -> Option<u16> {
        let has_progress = matches!(key, SenseKey::NotReady | SenseKey::NoSense);
        let valid = has_progress && get_u8(bytes, at)? & 0x80 != 0;
        if valid { get_u16(bytes, at + 1) } else { None }
    }

    fn field_of(key: SenseKey, bytes: &[u8], at: usize) -> Option<FieldPointer> {
        if key == SenseKey::IllegalRequest { FieldPointer::parse(bytes, at) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_field_in_cdb_fixed_vector() {
        let field = FieldPointer { of: FieldOf::Cdb, byte: 1, bit: Some(7) };
        let sense = Sense::new(SenseKey::IllegalRequest, 0x24, 0).with_field(field);
        assert_eq!(
            sense.emit_fixed(),
            [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcf, 0, 1]
        );
    }

    #[test]
    fn medium_error_carries_the_lba() {
        let sense = Sense::new(SenseKey::MediumError, 0x11, 0).with_information(0x1234);
        let fixed = sense.emit_fixed();
        assert_eq!(fixed[..7], [0xf0, 0, 3, 0, 0, 0x12, 0x34]);
        let wide = sense.with_information(1 << 32);
        assert_eq!(wide.emit_fixed()[0], 0x70, "does not fit: not valid");
        assert_eq!(
            wide.emit_descriptor(),
            [0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0]
        );
    }

    #[test]
    fn progress_is_sense_key_specific() {
        let sense = Sense::new(SenseKey::NotReady, 0x04, 0x1b).with_progress(0x8001);
        assert_eq!(sense.emit_fixed()[12..], [0x04, 0x1b, 0, 0x80, 0x80, 0x01]);
        assert_eq!(sense.emit_descriptor()[7..], [8, 2, 6, 0, 0, 0x80, 0x80, 0x01, 0]);
    }

    #[test]
    fn a_deferred_error_is_told_from_a_current_one() {
        let current = Sense::new(SenseKey::MediumError, 0x0c, 0);
        let deferred = current.of_an_earlier_command();
        assert_eq!([current, deferred].map(|sense| sense.emit_fixed()[0]), [0x70, 0x71]);
        assert_eq!([current, deferred].map(|sense| sense.emit_descriptor()[0]), [0x72, 0x73]);
        for code in [0x71, 0xf1, 0x73] {
            let mut bytes = if code == 0x73 {
                current.emit_descriptor()
            } else {
                current.emit_fixed().to_vec()
            };
            bytes[0] = code;
            let parsed = Sense::parse(&bytes).map(|sense| (sense.deferred, sense.key, sense.asc));
            assert_eq!(parsed, Some((true, SenseKey::MediumError, 0x0c)), "{code:x}");
        }
    }

    fn any_sense() -> impl Strategy<Value = Sense> {
        let field =
            proptest::option::of((any::<bool>(), any::<u16>(), proptest::option::of(0_u8..8)));
        let progress = any::<Option<u16>>();
        let codes = (any::<bool>(), 0_u8..16, any::<u8>(), any::<u8>());
        (codes, any::<Option<u32>>(), field, progress).prop_map(
            |((deferred, key, asc, ascq), information, field, progress)| {
                let key = SenseKey::from_code(key);
                Sense {
                    deferred,
                    key,
                    asc,
                    ascq,
                    information: information.map(u64::from),
                    progress: progress
                        .filter(|_| matches!(key, SenseKey::NotReady | SenseKey::NoSense)),
                    field: field.filter(|_| key == SenseKey::IllegalRequest).map(
                        |(cdb, byte, bit)| FieldPointer {
                            of: if cdb { FieldOf::Cdb } else { FieldOf::ParameterList },
                            byte,
                            bit,
                        },
                    ),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip(sense in any_sense()) {
            prop_assert_eq!(Sense::parse(&sense.emit_fixed()), Some(sense));
            prop_assert_eq!(Sense::parse(&sense.emit_descriptor()), Some(sense));
        }

        #[test]
        fn parse_is_total(
            bytes in proptest::collection::vec(any::<u8>(), 0..64), head in 0x70_u8..0x74,
        ) {
            let _ = Sense::parse(&bytes);
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = head;
            }
            let _ = Sense::parse(&bytes);
        }
    }
}
