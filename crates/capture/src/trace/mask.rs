// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the texts of logins and text negotiation nobody is to read in a trace.
//!
//! Read first: RFC 7143 §6.1 (keys), §6.2 (a value may go on in the next PDU: C), §12.1 (methods).
//!
//! Known keys are shown, and the values of all others are not: what proves who somebody is belongs
//! to those, whatever the method, and so does what a vendor may have made up.

/// Keys of RFC 7143 §13 and of RFC 7145 §6 and RFC 7144 §4, and those of CHAP that prove nothing.
const SHOWN: [&[u8]; 37] = [
    b"AuthMethod",
    b"CHAP_A",
    b"CHAP_I",
    b"CHAP_N",
    b"DataDigest",
    b"DataPDUInOrder",
    b"DataSequenceInOrder",
    b"DefaultTime2Retain",
    b"DefaultTime2Wait",
    b"ErrorRecoveryLevel",
    b"FirstBurstLength",
    b"HeaderDigest",
    b"IFMarkInt",
    b"IFMarker",
    b"ImmediateData",
    b"InitialR2T",
    b"InitiatorAlias",
    b"InitiatorName",
    b"InitiatorRecvDataSegmentLength",
    b"MaxAHSLength",
    b"MaxBurstLength",
    b"MaxConnections",
    b"MaxOutstandingR2T",
    b"MaxOutstandingUnexpectedPDUs",
    b"MaxRecvDataSegmentLength",
    b"OFMarkInt",
    b"OFMarker",
    b"RDMAExtensions",
    b"SendTargets",
    b"SessionType",
    b"TargetAddress",
    b"TargetAlias",
    b"TargetName",
    b"TargetPortalGroupTag",
    b"TargetRecvDataSegmentLength",
    b"TaskReporting",
    b"iSCSIProtocolLevel",
];

/// Longest name of a key (RFC 7143 §6.1).
const NAME_LEN_MAX: usize = 63;

/// What stands in the place of each byte that is not shown.
const VEIL: u8 = b'*';

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(super) struct Mask(At);

/// Where the next byte is.
#[derive(Clone, Debug)]
enum At {
    /// In the name of a key, of which this has come.
    Name(Vec<u8>),
    /// In a value that may be shown.
    Shown,
    /// In one that may not.
    Hidden,
}

impl Mask {
    pub(super) const fn new() -> Self {
        Self(At::Name(Vec::new()))
    }

    /// What stands before the next byte is not known.
    pub(super) fn lose(&mut self) {
        self.0 = At::Hidden;
    }

    /// A text is over, and the next one begins with a name.
    pub(super) fn end(&mut self) {
        *self = Self::new();
    }

    /// Covers what is secret in the next bytes of a text.
    pub(super) fn cover(&mut self, text: &mut [u8]) {
        for byte in text {
            match (&mut self.0, *byte) {
                (_, 0) => self.end(),
                (At::Name(name), b'=') => {
                    let is_shown = SHOWN.contains(&name.as_slice());
                    self.0 = if is_shown { At::Shown } else { At::Hidden };
                }
                (At::Name(name), _) if name.len() < NAME_LEN_MAX => name.push(*byte),
                (At::Name(_), _) => {
                    // No name is so long.
                    *byte = VEIL;
                    self.0 = At::Hidden;
                }
                (At::Shown, _) => {}
                (At::Hidden, _) => *byte = VEIL,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part of a text as it is shown.
    fn covered(parts: &[&str]) -> Vec<String> {
        let mut mask = Mask::new();
        let cover = |part: &&str| {
            let mut text = part.as_bytes().to_vec();
            mask.cover(&mut text);
            assert_eq!(text.len(), part.len());
            String::from_utf8(text).unwrap()
        };
        parts.iter().map(cover).collect()
    }

    #[test]
    fn what_proves_something_is_not_shown() {
        let text = "CHAP_N=me\0CHAP_R=0x0123\0CHAP_I=7\0CHAP_C=0bAA==\0SRP_M=1\0X-com.a.b=c\0";
        let seen = "CHAP_N=me\0CHAP_R=******\0CHAP_I=7\0CHAP_C=******\0SRP_M=*\0X-com.a.b=*\0";
        assert_eq!(covered(&[text]), [seen]);
        assert_eq!(covered(&["chap_n=me\0=a\0chap_r\0"]), ["chap_n=**\0=*\0chap_r\0"]);
    }

    /// Wherever a text is cut.
    #[test]
    fn a_value_may_go_on_in_the_next_pdu() {
        let text = "InitiatorName=iqn.a\0CHAP_R=0x0123\0TargetName=iqn.b\0";
        let whole = covered(&[text]).concat();
        assert_eq!(whole, "InitiatorName=iqn.a\0CHAP_R=******\0TargetName=iqn.b\0");
        for at in 0..=text.len() {
            let (first, second) = text.split_at(at);
            assert_eq!(covered(&[first, second]).concat(), whole);
        }
    }

    #[test]
    fn what_is_no_text_is_not_shown_for_long() {
        let text = "s".repeat(200);
        assert_eq!(covered(&[&text]), [format!("{}{}", &text[..63], "*".repeat(137))]);
    }

    #[test]
    fn after_a_hole_nothing_is_shown_before_the_next_key() {
        let mut mask = Mask::new();
        mask.lose();
        let mut text = b"0123\0AuthMethod=CHAP\0".to_vec();
        mask.cover(&mut text);
        assert_eq!(text, b"****\0AuthMethod=CHAP\0");
    }
}
