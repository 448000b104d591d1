// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The macro that makes a View from the RFC's table of fields.

/// Makes the View of one PDU: `struct Name("title", opcode) { "RFC label" accessor: Type = PLACE;
/// ... }`.
macro_rules! view {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($title:literal, $opcode:expr) {
            $($(#[$field_doc:meta])* $label:literal $field:ident: $type:ty = $place:expr;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<T: AsRef<[u8]>> {
            bytes: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Wraps a header, which may be longer than it says. Any opcode is taken.
            ///
            /// # Errors
            /// [`ParseError::Truncated`](crate::iscsi::ParseError::Truncated) if BHS and AHS are
            /// not whole.
            #[inline]
            pub fn new_checked(bytes: T) -> Result<Self, $crate::iscsi::ParseError> {
                $crate::iscsi::bhs::check_length(bytes.as_ref())?;
                Ok(Self { bytes })
            }

            /// The fields that all PDUs share.
            #[inline]
            pub fn bhs(&self) -> $crate::iscsi::BhsView<&[u8]> {
                $crate::iscsi::BhsView::unchecked(self.bytes.as_ref())
            }

            /// Gives the bytes back.
            #[inline]
            pub fn into_inner(self) -> T {
                self.bytes
            }

            $(
                $(#[$field_doc])*
                #[inline]
                pub fn $field(&self) -> $type {
                    $crate::iscsi::field::Place::read($place, self.bytes.as_ref())
                }
            )*
        }

        impl<T: AsRef<[u8]>> core::fmt::Display for $name<T> {
            /// One line; with `{:#}` one line a field.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                use $crate::iscsi::pretty::Printer;
                let mut printer = Printer::begin(f, $title, self.bhs(), $opcode)?;
                $(printer.field($label, &self.$field())?;)*
                Ok(())
            }
        }
    };
}

pub(super) use view;
