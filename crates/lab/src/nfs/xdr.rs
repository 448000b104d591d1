// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What calls and answers of NFS are made of: numbers of four and eight bytes, and bytes that are
//! counted and filled up to four (XDR, RFC 4506).

/// A call as it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn number(&mut self, value: u32) -> &mut Self {
        self.fixed(&value.to_be_bytes())
    }

    pub(super) fn long(&mut self, value: u64) -> &mut Self {
        self.fixed(&value.to_be_bytes())
    }

    /// As many bytes as everybody knows: a multiple of four.
    pub(super) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Bytes with their count.
    pub(super) fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).fixed(bytes);
        let fill = bytes.len().next_multiple_of(4) - bytes.len();
        self.fixed(&[0; 3][..fill])
    }

    /// Numbers with their count.
    pub(super) fn numbers(&mut self, values: &[u32]) -> &mut Self {
        self.number(u32::try_from(values.len()).unwrap_or(u32::MAX));
        values.iter().for_each(|value| {
            self.number(*value);
        });
        self
    }
}

/// An answer as it is read; None where it is too short.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn fixed(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.fixed(4)?.try_into().ok()?))
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.fixed(8)?.try_into().ok()?))
    }

    pub(super) fn opaque(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let all = self.fixed(length.checked_next_multiple_of(4)?)?;
        all.get(..length)
    }

    /// Passes by numbers with their count.
    pub(super) fn numbers(&mut self) -> Option<()> {
        let count = usize::try_from(self.number()?).ok()?;
        self.fixed(count.checked_mul(4)?).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut call = Writer::default();
        call.number(7).long(1 << 40).opaque(b"lunwire").numbers(&[1, 2]).opaque(b"");
        assert_eq!(call.bytes.len(), 4 + 8 + 4 + 8 + 4 + 8 + 4, "all is filled up to four");
        let mut answer = Reader::new(&call.bytes);
        assert_eq!((answer.number(), answer.long()), (Some(7), Some(1 << 40)));
        assert_eq!(answer.opaque(), Some(&b"lunwire"[..]));
        assert_eq!((answer.numbers(), answer.opaque()), (Some(()), Some(&b""[..])));
        assert_eq!(answer.number(), None, "nothing is left");
    }

    #[test]
    fn a_count_that_lies_ends_it() {
        for bytes in [&[0xff; 4][..], &[0xff; 8], &[0, 0, 0, 5, 1, 2, 3, 4], &[0, 0, 0]] {
            assert_eq!(Reader::new(bytes).opaque(), None, "{bytes:?}");
            assert_eq!(Reader::new(bytes).numbers(), None, "{bytes:?}");
        }
    }
}
