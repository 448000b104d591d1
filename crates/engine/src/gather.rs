// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One send of a socket: the list, what is left of it, and how the kernel sees it.

use std::ptr;

use buf::SgList;
use libc::iovec;
use libc::msghdr;

use crate::Token;
use crate::limits::GATHER_MAX;

/// Kept per socket and reused, so that sending allocates nothing in steady state.
///
/// Must not move while the kernel holds `header()`: owners keep it in a `Box`.
#[derive(Debug)]
pub(crate) struct Gather {
    token: Token,
    list: Option<SgList>,
    vectors: Vec<iovec>,
    /// The first of `vectors` that is not sent completely.
    first: usize,
    remaining: usize,
    header: msghdr,
}

impl Gather {
    pub(crate) fn new() -> Box<Self> {
        let header = msghdr {
            msg_name: ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: ptr::null_mut(),
            msg_iovlen: 0,
            msg_control: ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        };
        let (list, vectors) = (None, Vec::new());
        Box::new(Self { token: Token(0), list, vectors, first: 0, remaining: 0, header })
    }

    /// Takes `list` to be sent.
    pub(crate) fn start(&mut self, token: Token, list: SgList) {
        self.token = token;
        self.vectors.clear();
        self.vectors.extend(
            list.iter().map(|(base, len)| iovec { iov_base: base.cast_mut().cast(), iov_len: len }),
        );
        self.first = 0;
        self.remaining = list.len();
        self.list = Some(list);
    }

    /// True while a list is under way.
    pub(crate) const fn is_busy(&self) -> bool {
        self.list.is_some()
    }

    /// Bytes that are still to be sent.
    pub(crate) const fn remaining(&self) -> usize {
        self.remaining
    }

    /// What is left, for sendmsg(2); valid until this value is touched again.
    pub(crate) fn header(&mut self) -> *const msghdr {
        let left = self.vectors.get_mut(self.first..).unwrap_or_default();
        self.header.msg_iovlen = left.len().min(GATHER_MAX);
        self.header.msg_iov = left.as_mut_ptr();
        &raw const self.header
    }

    /// Notes that `bytes` more were sent.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let mut bytes = bytes.min(self.remaining);
        self.remaining -= bytes;
        while let Some(vector) = self.vectors.get_mut(self.first) {
            if bytes < vector.iov_len {
                vector.iov_base = vector.iov_base.wrapping_byte_add(bytes);
                vector.iov_len -= bytes;
                return;
            }
            bytes -= vector.iov_len;
            self.first += 1;
        }
    }

    /// Ends the send and gives the list back; None if none was under way.
    pub(crate) fn finish(&mut self) -> Option<(Token, SgList)> {
        self.vectors.clear();
        self.first = 0;
        self.remaining = 0;
        self.list.take().map(|list| (self.token, list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(gather: &mut Gather) -> Vec<usize> {
        gather.vectors.get(gather.first..).unwrap().iter().map(|v| v.iov_len).collect()
    }

    #[test]
    fn advances_within_and_over_elements() {
        let mut list = SgList::new();
        list.push(buf::Slice::from(vec![1; 3]));
        list.push(buf::Slice::from(vec![2; 4]));
        list.push(buf::Slice::from(vec![3; 5]));
        let mut gather = Gather::new();
        gather.start(Token(9), list);
        assert_eq!(gather.remaining(), 12);
        gather.advance(2);
        assert_eq!(lengths(&mut gather), [1, 4, 5]);
        gather.advance(5);
        assert_eq!(lengths(&mut gather), [5]);
        gather.advance(5);
        assert_eq!(gather.remaining(), 0);
        let (token, list) = gather.finish().unwrap();
        assert_eq!((token, list.len()), (Token(9), 12));
        assert!(gather.finish().is_none());
        assert!(!gather.is_busy());
    }

    #[test]
    fn one_call_takes_a_bounded_number_of_elements() {
        let mut list = SgList::new();
        for _ in 0..GATHER_MAX + 10 {
            list.push(buf::Slice::from(vec![7; 2]));
        }
        let mut gather = Gather::new();
        gather.start(Token(1), list);
        gather.header();
        assert_eq!(gather.header.msg_iovlen, GATHER_MAX);
        gather.advance(2 * GATHER_MAX);
        gather.header();
        assert_eq!(gather.header.msg_iovlen, 10);
    }
}
