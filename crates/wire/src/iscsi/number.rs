// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Newtypes for the numbers of an iSCSI PDU. Serial arithmetic on them is in `iscsi::serial`.

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $int);
    )*};
}

number! {
    /// Command sequence number, one series for each session (RFC 7143 §4.2.2.1).
    CmdSn(u32);
    /// Status sequence number, one series for each connection (RFC 7143 §4.2.2.2).
    StatSn(u32);
    /// Data sequence number: Data-In within a command, Data-Out within a sequence
    /// (RFC 7143 §4.2.2.4).
    DataSn(u32);
    /// R2T sequence number within a command (RFC 7143 §11.8.1).
    R2tSn(u32);
    /// Initiator Task Tag (RFC 7143 §11.2.1.8).
    Itt(u32);
    /// Target Transfer Tag (RFC 7143 §11.7.4).
    Ttt(u32);
    /// Connection id, unique within its session (RFC 7143 §11.12.7).
    Cid(u16);
    /// Target session identifying handle; zero asks for a new session (RFC 7143 §11.12.6).
    Tsih(u16);
    /// The initiator's part of the session id (RFC 7143 §11.12.5).
    Isid([u8; 6]);
    /// The eight LUN bytes as they stand in a header (SAM-5 §4.7); `scsi::lun` decodes them.
    LunField([u8; 8]);
}

impl Itt {
    /// No task: 0xffffffff.
    pub const NONE: Self = Self(u32::MAX);
}

impl Ttt {
    /// No transfer: 0xffffffff.
    pub const NONE: Self = Self(u32::MAX);
}

impl Isid {
    /// How the six bytes are made up.
    pub const fn kind(self) -> IsidKind {
        match self.0[0] >> 6 {
            0 => IsidKind::Oui,
            1 => IsidKind::EnterpriseNumber,
            2 => IsidKind::Random,
            _ => IsidKind::Reserved,
        }
    }

    /// Whether it has one of the three forms, with zeroes where they have reserved bits: what is
    /// received may have anything there, what is sent may not.
    pub const fn is_proper(self) -> bool {
        match self.kind() {
            IsidKind::Oui => true,
            IsidKind::EnterpriseNumber | IsidKind::Random => self.0[0] & 0x3f == 0,
            IsidKind::Reserved => false,
        }
    }
}

impl core::fmt::Display for Isid {
    /// As in a SCSI port name: `0x` and 12 hex digits (RFC 7143 §4.4.2).
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The T field of an ISID: who keeps it unique (RFC 7143 §11.12.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // two bits
pub enum IsidKind {
    /// An IEEE OUI, 22 bits, and a qualifier of 24 bits.
    Oui,
    /// An IANA enterprise number, 24 bits, and a qualifier of 16 bits.
    EnterpriseNumber,
    /// A random number, 24 bits, and a qualifier of 16 bits.
    Random,
    /// Never sent.
    Reserved,
}
