// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an error of the initiator means to whoever uses a store.

use initiator::Error;
use initiator::Kind;
use initiator::Sense;
use initiator::SenseKey;
use store::Op;
use store::Outcome;

/// WRITE PROTECTED, SPACE ALLOCATION FAILED WRITE PROTECT (SPC-4 annex F).
const WRITE_PROTECTED: u8 = 0x27;
const NO_SPACE: (u8, u8) = (WRITE_PROTECTED, 0x07);

/// How `op` has ended, which failed with `error`.
pub(crate) fn failed(op: &Op, error: &Error) -> Outcome {
    let usual = match op {
        Op::Read { .. } => store::Error::Read,
        Op::ProvisioningStatus { .. } => store::Error::Internal,
        _ => store::Error::Write,
    };
    Outcome::Failed(match error.kind() {
        Kind::Miscompare { at } => return Outcome::Miscompare(*at),
        Kind::Unsupported(_) | Kind::TooLong { .. } => store::Error::Unsupported,
        Kind::Range { .. } => store::Error::Range,
        Kind::Full => store::Error::Busy,
        Kind::Status { sense: Some(sense), .. } => by_sense(*sense, usual),
        Kind::Overdue { .. } | Kind::Session(_) | Kind::Unreachable { .. } | Kind::Login(_) => {
            store::Error::Silent
        }
        _ => usual,
    })
}

fn by_sense(sense: Sense, usual: store::Error) -> store::Error {
    match (sense.key, sense.asc, sense.ascq) {
        (SenseKey::DataProtect, asc, ascq) if (asc, ascq) == NO_SPACE => store::Error::Space,
        (SenseKey::DataProtect, WRITE_PROTECTED, _) => store::Error::ReadOnly,
        (SenseKey::IllegalRequest, 0x21, _) => store::Error::Range,
        (SenseKey::NotReady, ..) => store::Error::Silent,
        _ => usual,
    }
}
