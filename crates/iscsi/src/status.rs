// SPDX-License-Identifier: Apache-2.0 OR MIT
//! StatSN of one connection: numbering of responses and their acknowledgement (RFC 7143 §4.2.2.2).

use crate::serial::Serial;
use wire::iscsi::StatSn;

/// The response numbers of one connection.
///
/// `acknowledged <= next` always: everything before `acknowledged` has reached the initiator.
#[derive(Clone, Copy, Debug)]
pub struct StatusNumbers {
    next: StatSn,
    acknowledged: StatSn,
}

impl StatusNumbers {
    /// The next response gets `next`; all before it count as acknowledged.
    pub const fn new(next: StatSn) -> Self {
        Self { next, acknowledged: next }
    }

    /// The number of one response, which advances StatSN.
    pub fn assign(&mut self) -> StatSn {
        let number = self.next;
        self.next = number.plus(1);
        number
    }

    /// What R2T and NOP-In without a task carry: the next number, not advanced (RFC 7143 §11.8.3).
    pub const fn next(&self) -> StatSn {
        self.next
    }

    /// Takes an ExpStatSN. An older one than before changes nothing; one beyond the next number
    /// acknowledges all that was sent: libiscsi counts the StatSN of an R2T, which RFC 7143 §11.8.3
    /// does not advance, as used.
    pub fn acknowledge(&mut self, expected: StatSn) {
        let expected = if expected.is_after(self.next) { self.next } else { expected };
        if expected.is_after(self.acknowledged) {
            self.acknowledged = expected;
        }
    }

    /// True if every response before `number` has been acknowledged.
    pub fn is_acknowledged(&self, number: StatSn) -> bool {
        !self.acknowledged.is_before(number)
    }

    /// Responses sent and not yet acknowledged.
    pub fn unacknowledged(&self) -> u32 {
        self.next.steps_from(self.acknowledged)
    }

    /// Panics if the invariant does not hold.
    pub fn check(&self) {
        assert!(!self.acknowledged.is_after(self.next), "acknowledged beyond what was sent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_by_one_through_the_wrap() {
        let mut numbers = StatusNumbers::new(StatSn(0xffff_ffff));
        assert_eq!(numbers.assign(), StatSn(0xffff_ffff));
        assert_eq!(numbers.assign(), StatSn(0));
        assert_eq!(numbers.next(), StatSn(1));
        assert_eq!(numbers.unacknowledged(), 2);
        assert!(!numbers.is_acknowledged(StatSn(0)));
        numbers.acknowledge(StatSn(0));
        assert!(numbers.is_acknowledged(StatSn(0)));
        assert!(!numbers.is_acknowledged(StatSn(1)));
        numbers.acknowledge(StatSn(1));
        assert_eq!(numbers.unacknowledged(), 0);
        numbers.check();
    }

    #[test]
    fn acknowledgement_never_goes_back_nor_beyond() {
        let mut numbers = StatusNumbers::new(StatSn(10));
        numbers.assign();
        numbers.acknowledge(StatSn(11));
        numbers.acknowledge(StatSn(4));
        assert!(numbers.is_acknowledged(StatSn(11)));
        numbers.acknowledge(StatSn(12));
        assert!(numbers.is_acknowledged(StatSn(11)));
        assert!(!numbers.is_acknowledged(StatSn(12)));
        numbers.check();
    }
}
