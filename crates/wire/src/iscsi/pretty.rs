// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers as text, for traces: `{}` is one line, `{:#}` one line a field.
//!
//! The short form leaves out what says nothing: clear flags, tags that mean "none", LUN 0 and other
//! zeros.

use super::*;
use core::fmt;

/// Any header, shown by the View that its opcode names; what no View takes is shown as hex.
///
/// ```
/// # use lunwire_wire::iscsi::Pretty;
/// assert_eq!(Pretty(&[0x32; 3]).to_string(), "no header: 323232");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pretty<'a>(pub &'a [u8]);

impl fmt::Display for Pretty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.try_fmt(f);
        shown.unwrap_or_else(|_| match BhsView::new_checked(self.0) {
            Ok(bhs) => write!(f, "{bhs}: {}", Hex(self.0)),
            Err(_) => write!(f, "no header: {}", Hex(self.0)),
        })
    }
}

impl Pretty<'_> {
    fn try_fmt(&self, f: &mut fmt::Formatter<'_>) -> Result<fmt::Result, ParseError> {
        macro_rules! show {
            ($opcode:expr, $($code:ident => $view:ident),* $(,)?) => {
                match $opcode {
                    $($code => fmt::Display::fmt(&$view::new_checked(self.0)?, f),)*
                    opcode => return Err(ParseError::UnknownOpcode(opcode)),
                }
            };
        }
        Ok(show!(BhsView::new_checked(self.0)?.opcode(),
            OPCODE_NOP_OUT => NopOutView,
            OPCODE_SCSI_COMMAND => CommandView,
            OPCODE_TASK_MANAGEMENT_REQUEST => TaskManagementRequestView,
            OPCODE_LOGIN_REQUEST => LoginRequestView,
            OPCODE_TEXT_REQUEST => TextRequestView,
            OPCODE_DATA_OUT => DataOutView,
            OPCODE_LOGOUT_REQUEST => LogoutRequestView,
            OPCODE_SNACK => SnackView,
            OPCODE_NOP_IN => NopInView,
            OPCODE_SCSI_RESPONSE => ResponseView,
            OPCODE_TASK_MANAGEMENT_RESPONSE => TaskManagementResponseView,
            OPCODE_LOGIN_RESPONSE => LoginResponseView,
            OPCODE_TEXT_RESPONSE => TextResponseView,
            OPCODE_DATA_IN => DataInView,
            OPCODE_LOGOUT_RESPONSE => LogoutResponseView,
            OPCODE_R2T => R2tView,
            OPCODE_ASYNC_MESSAGE => AsyncMessageView,
            OPCODE_REJECT => RejectView,
        ))
    }
}

impl<T: AsRef<[u8]>> fmt::Display for BhsView<T> {
    /// One line; with `{:#}` one line a field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer { f };
        printer.f.write_str("BHS")?;
        printer.field("Opcode", &self.opcode())?;
        printer.field("I", &self.immediate())?;
        printer.lengths(self)?;
        printer.field("LUN", &self.lun())?;
        printer.field("ITT", &self.itt())
    }
}

/// A value of a header field as text.
pub(super) trait Show {
    /// Whether it says nothing, so that the short form leaves it out.
    fn is_silent(&self) -> bool;
    /// Whether the label alone tells it.
    fn is_flag(&self) -> bool {
        false
    }
    /// Writes the value.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Writes the fields of one header.
pub(super) struct Printer<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
}

impl<'a, 'b> Printer<'a, 'b> {
    /// Writes the title and the lengths; tells if the opcode is not the one of the View.
    pub(super) fn begin(
        f: &'a mut fmt::Formatter<'b>,
        title: &str,
        bhs: BhsView<&[u8]>,
        opcode: u8,
    ) -> Result<Self, fmt::Error> {
        f.write_str(title)?;
        let mut printer = Self { f };
        if bhs.opcode() != opcode {
            printer.field("Opcode", &bhs.opcode())?;
        }
        printer.lengths(&bhs)?;
        Ok(printer)
    }

    fn lengths<T: AsRef<[u8]>>(&mut self, bhs: &BhsView<T>) -> fmt::Result {
        self.field("AHS", &u32::try_from(bhs.total_ahs_length()).unwrap_or(u32::MAX))?;
        self.field("Data", &bhs.data_segment_length())
    }

    /// Writes one field.
    pub(super) fn field(&mut self, label: &str, value: &dyn Show) -> fmt::Result {
        if self.f.alternate() {
            write!(self.f, "\n  {label}: ")?;
            return value.show(self.f);
        }
        if value.is_silent() {
            return Ok(());
        }
        write!(self.f, " {label}")?;
        if value.is_flag() {
            return Ok(());
        }
        self.f.write_str("=")?;
        value.show(self.f)
    }
}

impl Show for bool {
    fn is_silent(&self) -> bool {
        !self
    }

    fn is_flag(&self) -> bool {
        true
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self { "1" } else { "0" })
    }
}

impl Show for u8 {
    fn is_silent(&self) -> bool {
        *self == 0
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{self:02x}")
    }
}

impl Show for u16 {
    fn is_silent(&self) -> bool {
        *self == 0
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{self:04x}")
    }
}

impl Show for u32 {
    fn is_silent(&self) -> bool {
        *self == 0
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Show for Numbers {
    fn is_silent(&self) -> bool {
        false
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.stat_sn.0, self.exp_cmd_sn.0, self.max_cmd_sn.0)
    }
}

impl Show for Isid {
    fn is_silent(&self) -> bool {
        false
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Show for LunField {
    fn is_silent(&self) -> bool {
        self.0 == [0; 8]
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Hex(&self.0))
    }
}

impl Show for [u8; 16] {
    fn is_silent(&self) -> bool {
        false
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Hex(self))
    }
}

macro_rules! tags {
    ($($name:ident),*) => {$(
        impl Show for $name {
            fn is_silent(&self) -> bool {
                *self == Self::NONE
            }

            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{:08x}", self.0)
            }
        }
    )*};
}

macro_rules! numbers {
    ($($name:ident),*) => {$(
        impl Show for $name {
            fn is_silent(&self) -> bool {
                false
            }

            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    )*};
}

tags!(Itt, Ttt);
numbers!(CmdSn, StatSn, DataSn, R2tSn, Cid, Tsih);

/// Bytes as hex digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
