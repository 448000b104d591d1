// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a token may be refused, and when it must be: the oracle of expiry, of the full table, and of
//! writers that end tokens (SPC-4 §5.16.6).

use std::time::Duration;

use clock::Instant;

use crate::copies::Copy;

/// Tokens of a unit at once. Not the product's own word on it, nor are the next.
const TABLE: usize = 256;

/// How many of them copies may use at once, and so keep, at the most.
const IN_USE_MAX: usize = 32;

/// Life of a token that nobody uses, unless its maker says otherwise.
const INACTIVITY: Duration = Duration::from_secs(60);

/// INVALID TOKEN OPERATION, by its qualifier (SPC-4 §5.16.6.5).
const UNKNOWN: u8 = 0x04;
const REVOKED: u8 = 0x06;
const EXPIRED: u8 = 0x07;

/// Blocks that somebody wrote, or tried to.
#[derive(Debug)]
struct Touched {
    lba: usize,
    count: usize,
    asked: Instant,
    /// None: maybe still under way.
    ended: Option<Instant>,
}

/// The tokens of one unit, as far as hosts know of them.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// When POPULATE TOKEN was asked for.
    asked: Vec<Instant>,
    /// Of those that live long: when it was asked for, and answered.
    lasting: Vec<(Instant, Instant)>,
    touched: Vec<Touched>,
}

impl Tokens {
    /// A token is asked for.
    pub(crate) fn ask(&mut self, now: Instant) {
        self.asked.push(now);
    }

    /// There is one that lives as long as tokens do by default.
    pub(crate) fn made(&mut self, asked: Instant, now: Instant) {
        self.lasting.push((asked, now));
    }

    /// Somebody asked for a write at `now`.
    pub(crate) fn touch(&mut self, lba: usize, count: usize, now: Instant) {
        self.touched.push(Touched { lba, count, asked: now, ended: None });
    }

    /// It has ended, and nothing of it comes later.
    pub(crate) fn rest(&mut self, lba: usize, count: usize, asked: Instant, now: Instant) {
        let its = |one: &&mut Touched| {
            (one.lba, one.count, one.asked, one.ended) == (lba, count, asked, None)
        };
        if let Some(touched) = self.touched.iter_mut().find(its) {
            touched.ended = Some(now);
        }
    }

    /// Whether somebody may have written to the source of `copy` since its token was asked for.
    pub(crate) fn may_be_revoked(&self, copy: &Copy) -> bool {
        let (_, lba) = copy.source;
        self.touched.iter().any(|one| {
            let meets = one.lba < lba + copy.count && lba < one.lba + one.count;
            meets && one.ended.is_none_or(|ended| ended >= copy.asked)
        })
    }

    /// Whether the use of the token of `copy` may have been refused with this qualifier until now.
    pub(crate) fn may_be_refused(&self, ascq: u8, copy: &Copy, now: Instant) -> bool {
        let expired = now.since(copy.asked) >= lives(copy);
        let newer = self.asked.iter().filter(|asked| **asked >= copy.asked).count();
        match ascq {
            UNKNOWN => expired || newer + IN_USE_MAX > TABLE,
            EXPIRED => expired,
            REVOKED => self.may_be_revoked(copy),
            _ => false,
        }
    }

    /// Why the token of `copy` should not have been good any more when its use was asked for.
    pub(crate) fn must_be_refused(&self, copy: &Copy) -> Option<&'static str> {
        if copy.used.since(copy.populated) > lives(copy) {
            return Some("a token that had expired was taken");
        }
        let in_time = |one: &&(Instant, Instant)| {
            one.0 > copy.populated && one.1 < copy.used && copy.used.since(one.0) < INACTIVITY
        };
        let newer = self.lasting.iter().filter(in_time).count();
        (newer >= TABLE).then_some("a token was taken that had made room for newer ones")
    }
}

fn lives(copy: &Copy) -> Duration {
    match copy.inactivity {
        0 => INACTIVITY,
        seconds => Duration::from_secs(seconds.into()),
    }
}

#[cfg(test)]
mod tests {
    use wire::scsi::token::TOKEN_LEN;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    fn copy(inactivity: u32) -> Copy {
        Copy {
            source: (0, 10),
            destination: (0, 50),
            count: 5,
            run: 1,
            inactivity,
            immediate: false,
            delete: false,
            asked: at(10),
            populated: at(11),
            used: at(15),
            token: [0; TOKEN_LEN],
        }
    }

    #[test]
    fn a_refusal_has_a_reason() {
        let mut tokens = Tokens::default();
        let refused = |tokens: &Tokens, copy| {
            [UNKNOWN, EXPIRED, REVOKED, 9].map(|ascq| tokens.may_be_refused(ascq, &copy, at(16)))
        };
        assert_eq!(refused(&tokens, copy(0)), [false; 4]);
        assert_eq!(refused(&tokens, copy(5)), [true, true, false, false]);
        tokens.touch(14, 1, at(1));
        assert_eq!(refused(&tokens, copy(0)), [false, false, true, false]);
        tokens.rest(14, 1, at(1), at(9));
        tokens.touch(15, 1, at(12));
        assert_eq!(refused(&tokens, copy(0)), [false; 4], "before it, and behind its end");
        (0..TABLE).for_each(|_| tokens.ask(at(12)));
        assert_eq!(refused(&tokens, copy(0)), [true, false, false, false]);
    }

    #[test]
    fn what_is_no_more_is_not_taken() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.must_be_refused(&copy(4)), None);
        assert!(tokens.must_be_refused(&copy(3)).is_some());
        (1..TABLE).for_each(|_| tokens.made(at(12), at(13)));
        tokens.made(at(12), at(15));
        assert_eq!(tokens.must_be_refused(&copy(0)), None);
        tokens.made(at(12), at(14));
        assert!(tokens.must_be_refused(&copy(0)).is_some());
    }
}
