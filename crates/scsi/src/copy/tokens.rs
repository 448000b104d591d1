// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ROD tokens of a unit (SPC-4 §5.16.6): point in time copies that any change of their source
//! ends.
//!
//! A token names no memory and takes no copy: it stands for runs of blocks. So whoever changes a
//! block of them revokes it before, which costs a look at one bit of a word that writers look at
//! anyway.

use crate::limits;
use crate::lun::LogicalUnit;
use crate::lun::Special;
use crate::sense;
use crate::sense::Fault;
use alloc::sync::Arc;
use alloc::vec::Vec;
use clock::Instant;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;
use core::time::Duration;
use wire::scsi::token::TOKEN_LEN;

/// The tokens of one unit.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// The oldest first.
    list: spin::Mutex<Vec<Arc<RodToken>>>,
    /// All runs of all tokens lie between these bytes, so that most writers need no lock. They
    /// change only while no writer is under way.
    from: AtomicU64,
    to: AtomicU64,
}

/// A token that was given out.
#[derive(Debug)]
pub(crate) struct RodToken {
    bytes: [u8; TOKEN_LEN],
    /// First byte and length of each run.
    runs: Vec<(u64, u64)>,
    inactivity: Duration,
    /// The end of its life, whatever happens.
    ends: Instant,
    /// When it expires if nobody uses it, in the nanoseconds of [`Instant`].
    idle_until: AtomicU64,
    end: AtomicU8,
}

/// Why a token is good no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum End {
    Revoked = 1,
    Deleted = 2,
}

impl RodToken {
    pub(super) fn new(
        bytes: [u8; TOKEN_LEN],
        runs: Vec<(u64, u64)>,
        inactivity: Duration,
        now: Instant,
    ) -> Self {
        Self {
            bytes,
            runs,
            inactivity,
            ends: now + limits::TOKEN_LIFETIME,
            idle_until: AtomicU64::new((now + inactivity).0),
            end: AtomicU8::new(0),
        }
    }

    /// Bytes that it stands for.
    pub(super) fn len(&self) -> u64 {
        self.runs.iter().map(|(_, length)| length).sum()
    }

    /// The parts of its runs that hold `length` bytes from `offset` on, all within it.
    pub(super) fn parts(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let (mut skip, mut left) = (offset, length);
        let mut parts = Vec::new();
        for (start, run) in &self.runs {
            let skipped = skip.min(*run);
            skip -= skipped;
            let taken = left.min(run - skipped);
            if taken > 0 {
                parts.push((start + skipped, taken));
            }
            left -= taken;
        }
        parts
    }

    /// That it is still what it was given out for.
    pub(super) fn check(&self) -> Result<(), Fault> {
        match self.end.load(Ordering::SeqCst) {
            0 => Ok(()),
            end if end == End::Revoked as u8 => Err(sense::TOKEN_REVOKED.into()),
            _ => Err(sense::TOKEN_DELETED.into()),
        }
    }

    /// Somebody uses it now, if it has not expired.
    fn touch(&self, now: Instant) -> Result<(), Fault> {
        if self.is_expired(now) {
            return Err(sense::TOKEN_EXPIRED.into());
        }
        self.idle_until.store((now + self.inactivity).0, Ordering::Relaxed);
        Ok(())
    }

    fn is_expired(&self, now: Instant) -> bool {
        now >= self.ends || now.0 >= self.idle_until.load(Ordering::Relaxed)
    }

    /// Ends it; a copy that uses it ends too.
    pub(super) fn delete(&self) {
        self.end.store(End::Deleted as u8, Ordering::SeqCst);
    }

    /// What it stands for is about to change, or nobody looks after it any more.
    fn revoke(&self) {
        let (revoked, order) = (End::Revoked as u8, Ordering::SeqCst);
        let _ = self.end.compare_exchange(0, revoked, order, order);
    }

    fn touches(&self, offset: u64, length: u64) -> bool {
        self.runs.iter().any(|(start, run)| *start < offset + length && offset < start + run)
    }

    /// Compares all bytes, however early they differ.
    fn is(&self, bytes: &[u8; TOKEN_LEN]) -> bool {
        self.bytes.iter().zip(bytes).fold(0, |differs, (own, other)| differs | (own ^ other)) == 0
    }
}

/// Somebody has it beside the list, from which alone it is taken.
fn is_in_use(token: &Arc<RodToken>) -> bool {
    Arc::strong_count(token) > 1
}

impl Tokens {
    /// The token with these bytes.
    pub(super) fn find(
        &self,
        bytes: &[u8; TOKEN_LEN],
        now: Instant,
    ) -> Result<Arc<RodToken>, Fault> {
        let tokens = self.list.lock();
        let found = tokens.iter().find(|token| token.is(bytes)).ok_or(sense::TOKEN_UNKNOWN)?;
        found.check()?;
        found.touch(now)?;
        Ok(Arc::clone(found))
    }
}

impl Tokens {
    /// Asserts what always holds; `shown`: writers look at them.
    pub(crate) fn check(&self, shown: bool) {
        let tokens = self.list.lock();
        assert!(tokens.len() <= limits::TOKENS_MAX, "tokens are bounded");
        let (from, to) = (self.from.load(Ordering::SeqCst), self.to.load(Ordering::SeqCst));
        for token in tokens.iter().filter(|token| token.check().is_ok()) {
            assert!(shown, "writers look at tokens that are good");
            let within = token.runs.iter().all(|(start, run)| *start >= from && start + run <= to);
            assert!(within, "writers look where tokens stand for something");
        }
    }
}

impl LogicalUnit {
    /// Gives a token out; the oldest one makes room for it. No writer may be under way.
    ///
    /// A token that a copy uses stays here until its end, so that writers find it: it goes only if
    /// all are in use, and ends its copy then.
    pub(super) fn keep_token(&self, token: RodToken, now: Instant) {
        let Tokens { list, from, to } = self.tokens();
        let mut tokens = list.lock();
        tokens.retain(|token| !token.is_expired(now) || is_in_use(token));
        if tokens.len() >= limits::TOKENS_MAX {
            let oldest = tokens.iter().position(|token| !is_in_use(token)).unwrap_or(0);
            tokens.remove(oldest).revoke();
        }
        tokens.push(Arc::new(token));
        let runs = || tokens.iter().flat_map(|token| &token.runs);
        from.store(runs().map(|(start, _)| *start).min().unwrap_or(0), Ordering::SeqCst);
        to.store(runs().map(|(start, run)| start + run).max().unwrap_or(0), Ordering::SeqCst);
        self.make_special(Special::Tokens);
    }

    /// The bytes are about to change: tokens that stand for one of them end. What they were is
    /// remembered for a while, so that their users learn why.
    #[cold]
    pub(crate) fn revoke_tokens(&self, (offset, length): (u64, u64)) {
        let Tokens { from, to, .. } = self.tokens();
        if offset >= to.load(Ordering::SeqCst) || offset + length <= from.load(Ordering::SeqCst) {
            return;
        }
        self.revoke_listed((offset, length));
    }

    /// The bytes from `bytes` on are about to be cut off, and commands see so already: tokens that
    /// stand for one of them end.
    pub fn cut_off(&self, bytes: u64) {
        self.revoke_listed((bytes, u64::MAX - bytes));
    }

    fn revoke_listed(&self, (offset, length): (u64, u64)) {
        let tokens = self.tokens().list.lock();
        tokens
            .iter()
            .filter(|token| token.touches(offset, length))
            .for_each(|token| token.revoke());
        if tokens.iter().all(|token| token.check().is_err()) {
            // Under the lock, so that no new token is overlooked.
            self.make_ordinary(Special::Tokens);
        }
    }
}
