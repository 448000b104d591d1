// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors as numbers that programs decide by, with what people read.

use initiator::Error;
use initiator::Kind;
use initiator::LoginError;
use initiator::Sense;
use initiator::SenseKey;
use initiator::StripeError;

/// What went wrong, as `enum lunwire_code` has it; numbers are never given anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Argument = -1,
    Handle = -2,
    Url = -3,
    Option = -4,
    Unreachable = -5,
    Login = -6,
    Authentication = -7,
    NoTarget = -8,
    NoDisk = -9,
    Range = -10,
    Unaligned = -11,
    ReadOnly = -12,
    Miscompare = -13,
    Unsupported = -14,
    TooLong = -15,
    Busy = -16,
    Reserved = -17,
    Medium = -18,
    NoSpace = -19,
    Status = -20,
    Session = -21,
    WritesLost = -22,
    CannotFlush = -23,
    Changed = -24,
    Protocol = -25,
    Full = -26,
    Closed = -27,
    System = -28,
    None = -29,
    Defect = -30,
}

impl Code {
    /// All of them.
    pub(crate) const ALL: [Self; 30] = [
        Self::Argument,
        Self::Handle,
        Self::Url,
        Self::Option,
        Self::Unreachable,
        Self::Login,
        Self::Authentication,
        Self::NoTarget,
        Self::NoDisk,
        Self::Range,
        Self::Unaligned,
        Self::ReadOnly,
        Self::Miscompare,
        Self::Unsupported,
        Self::TooLong,
        Self::Busy,
        Self::Reserved,
        Self::Medium,
        Self::NoSpace,
        Self::Status,
        Self::Session,
        Self::WritesLost,
        Self::CannotFlush,
        Self::Changed,
        Self::Protocol,
        Self::Full,
        Self::Closed,
        Self::System,
        Self::None,
        Self::Defect,
    ];

    /// The number of Linux that says it best.
    pub(crate) const fn errno(self) -> i32 {
        match self {
            Self::Argument | Self::Url | Self::Option | Self::Range | Self::Unaligned => 22,
            Self::Handle => 9,
            Self::Unreachable => 113,
            Self::Login => 71,
            Self::Authentication | Self::Reserved => 13,
            Self::NoTarget | Self::NoDisk => 6,
            Self::ReadOnly => 30,
            Self::Miscompare => 84,
            Self::Unsupported => 95,
            Self::TooLong => 90,
            Self::Busy => 16,
            Self::NoSpace => 28,
            Self::Changed => 116,
            Self::Protocol => 71,
            Self::Full => 11,
            Self::Closed => 108,
            Self::System => 12,
            Self::None => 2,
            Self::Medium
            | Self::Status
            | Self::Session
            | Self::WritesLost
            | Self::CannotFlush
            | Self::Defect => 5,
        }
    }
}

/// Why a call, or an operation, failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// What this library says.
    Own(Code, String),
    /// What the initiator does.
    Of(Error),
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self::Own(code, text.into())
    }

    pub(crate) fn argument(text: &str) -> Self {
        Self::new(Code::Argument, text)
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Own(code, _) => *code,
            Self::Of(error) => of_kind(error.kind()),
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::Own(_, text) => text.clone(),
            Self::Of(error) => error.to_string(),
        }
    }

    /// The number that the system gave, or that says it best.
    pub(crate) fn errno(&self) -> i32 {
        let told = match self {
            Self::Of(error) => match error.kind() {
                Kind::System(error) => error.raw_os_error(),
                Kind::Unreachable { system, .. } => *system,
                _ => None,
            },
            Self::Own(..) => None,
        };
        told.unwrap_or_else(|| self.code().errno())
    }

    /// The status of the command, if a unit gave one, and what it said.
    pub(crate) fn status(&self) -> Option<(u8, Option<Sense>)> {
        match self {
            Self::Of(error) => match error.kind() {
                Kind::Status { status, sense, .. } => Some((*status, *sense)),
                _ => None,
            },
            Self::Own(..) => None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Of(error)
    }
}

fn of_kind(kind: &Kind) -> Code {
    match kind {
        Kind::Options(_) => Code::Option,
        Kind::Unreachable { .. } => Code::Unreachable,
        Kind::Login(error) => of_login(error),
        Kind::Redirections(_) => Code::Login,
        Kind::Fenced { .. }
        | Kind::GroupUntold
        | Kind::NotRemembered(_)
        | Kind::Session(_)
        | Kind::Ending(_)
        | Kind::Overdue { .. }
        | Kind::NotReplaced => Code::Session,
        Kind::Status { status, sense, .. } => of_status(*status, sense.as_ref()),
        Kind::Short { .. }
        | Kind::Untaken(_)
        | Kind::Malformed(_)
        | Kind::Discovery(_)
        | Kind::DiscoveryRejected(_)
        | Kind::Declaration(_)
        | Kind::Management(_)
        | Kind::Refused(_) => Code::Protocol,
        Kind::Range { .. } => Code::Range,
        Kind::Unaligned(_) => Code::Unaligned,
        Kind::Miscompare { .. } => Code::Miscompare,
        Kind::Unsupported(_) => Code::Unsupported,
        Kind::TooLong { .. } => Code::TooLong,
        Kind::Uneven { .. } => Code::Argument,
        Kind::Reformatted { .. } | Kind::OtherDisk { .. } | Kind::Unsettled { .. } => Code::Changed,
        Kind::Stripe(StripeError::ReadOnly { .. }) => Code::ReadOnly,
        Kind::Stripe(StripeError::Across { .. }) => Code::Unsupported,
        Kind::Stripe(_)
        | Kind::OtherPath { .. }
        | Kind::OtherSize { .. }
        | Kind::OtherProtection { .. }
        | Kind::Nameless
        | Kind::LocalName { .. } => Code::Option,
        Kind::InDoubt | Kind::NoPath => Code::Session,
        Kind::WritesLost => Code::WritesLost,
        Kind::CannotFlush => Code::CannotFlush,
        Kind::NotADisk(_) => Code::NoDisk,
        Kind::Full => Code::Full,
        Kind::Interrupted | Kind::Closed => Code::Closed,
        Kind::System(_) => Code::System,
        _ => Code::Status,
    }
}

fn of_login(error: &LoginError) -> Code {
    match error {
        LoginError::Refused(0x0201 | 0x0202) => Code::Authentication,
        LoginError::Refused(0x0203 | 0x0204) => Code::NoTarget,
        _ => Code::Login,
    }
}

/// SAM-5 §5.3.1, SPC-4 §4.5.
fn of_status(status: u8, sense: Option<&Sense>) -> Code {
    match (status, sense.map(|sense| (sense.key, sense.asc, sense.ascq))) {
        (0x08 | 0x28, _) => Code::Busy,
        (0x18, _) => Code::Reserved,
        (_, Some((SenseKey::DataProtect, 0x27, 0x07))) => Code::NoSpace,
        (_, Some((SenseKey::DataProtect, ..))) => Code::ReadOnly,
        (_, Some((SenseKey::MediumError, ..))) => Code::Medium,
        (_, Some((SenseKey::IllegalRequest, 0x25, _))) => Code::NoDisk,
        (_, Some((SenseKey::IllegalRequest, 0x20, _))) => Code::Unsupported,
        (_, Some((SenseKey::IllegalRequest, 0x21, _))) => Code::Range,
        _ => Code::Status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_a_row_and_each_has_its_errno() {
        for (code, number) in Code::ALL.into_iter().zip((1..).map(|number: i32| -number)) {
            assert_eq!(code as i32, number, "{code:?}");
            assert!(code.errno() > 0);
        }
    }

    #[test]
    fn what_a_unit_says_has_codes_of_its_own() {
        let sense = |key, asc, ascq| Some(Sense::new(key, asc, ascq));
        for (status, sense, code) in [
            (0x08, None, Code::Busy),
            (0x18, None, Code::Reserved),
            (0x02, None, Code::Status),
            (0x02, sense(SenseKey::DataProtect, 0x27, 0), Code::ReadOnly),
            (0x02, sense(SenseKey::DataProtect, 0x27, 7), Code::NoSpace),
            (0x02, sense(SenseKey::MediumError, 0x11, 0), Code::Medium),
            (0x02, sense(SenseKey::IllegalRequest, 0x25, 0), Code::NoDisk),
            (0x02, sense(SenseKey::HardwareError, 0x44, 0), Code::Status),
        ] {
            assert_eq!(of_status(status, sense.as_ref()), code, "{sense:?}");
        }
        assert_eq!(of_login(&LoginError::Refused(0x0201)), Code::Authentication);
        assert_eq!(of_login(&LoginError::Timeout), Code::Login);
    }
}
