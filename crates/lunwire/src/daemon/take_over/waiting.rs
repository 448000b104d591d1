// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that a process has which has not taken over, and does not give them back either.

use std::time::Duration;
use std::time::Instant;

use anyhow::Error;
use anyhow::Result;
use control::admin::Word;

use super::talk::Talk;
use super::talk::Unheard;
use crate::output;

/// Between two tries to open the disks, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// So often the log tells what is waited for, if that stays the same.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// A process that was given up. As long as it lives it may have locks of disks: the kernel ends
/// both at once.
#[derive(Debug)]
pub(crate) struct Holder {
    talk: Talk,
    pid: u32,
}

/// What comes of waiting for it.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    /// This process has all disks.
    Had(T),
    /// The other one serves after all.
    Serves,
    /// This process is to end.
    Stopped,
}

/// How the other process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    There,
    Ended,
    Serves,
}

impl Holder {
    /// `why`: it is told so, and does not serve if it hears of that before.
    pub(super) fn given_up(talk: Talk, pid: u32, why: &str) -> Self {
        // Who is gone does not want to know.
        let _ = talk.say(&Word::Failed { message: why.to_owned() });
        Self { talk, pid }
    }

    /// The other process.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Opens the disks with `open`, again and again as long as the other process may have them.
    ///
    /// # Errors
    /// They cannot be had, and the other process is gone. `is_stopped` is asked now and then.
    pub(crate) fn outlast<T>(
        &mut self,
        mut open: impl FnMut() -> Result<T>,
        mut is_stopped: impl FnMut() -> bool,
    ) -> Result<Waited<T>> {
        let pid = self.pid;
        let (mut pause, mut told) = (PAUSES.0, None);
        let mut found = Found::There;
        loop {
            let is_last = found == Found::Ended;
            let failed = match open() {
                // What has no lock both may have, until here.
                Ok(_) if self.is_too_late() => return Ok(Waited::Serves),
                Ok(opened) => return Ok(Waited::Had(opened)),
                Err(error) if is_last => return Err(error),
                Err(error) => error,
            };
            tell(pid, &failed, &mut told);
            found = self.look(pause);
            if found == Found::Serves {
                return Ok(Waited::Serves);
            }
            if is_stopped() {
                return Ok(Waited::Stopped);
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Whether it has said that it serves; if not, it does not any more.
    fn is_too_late(&mut self) -> bool {
        self.talk.deafen();
        self.look(Duration::ZERO) == Found::Serves
    }

    /// Waits so long for a word of it, or for its end.
    fn look(&mut self, patience: Duration) -> Found {
        let until = Instant::now() + patience;
        loop {
            // What has come already is heard in any case.
            let rest = until.saturating_duration_since(Instant::now());
            match self.talk.hear(rest.max(Duration::from_millis(1))) {
                Ok(Word::Serving) => return Found::Serves,
                Ok(_) | Err(Unheard::Strange(_)) => {}
                Err(Unheard::Silent) => return Found::There,
                Err(Unheard::Gone) => return Found::Ended,
            }
        }
    }
}

/// `told`: what was told last, and when.
fn tell(pid: u32, failed: &Error, told: &mut Option<(String, Instant)>) {
    let why = output::chain(failed);
    let is_known =
        told.as_ref().is_some_and(|(known, at)| *known == why && at.elapsed() < TELL_EVERY);
    if !is_known {
        tracing::error!(
            pid,
            why,
            "nobody serves: waiting for the process that has not taken over; try: kill -KILL {pid}"
        );
        *told = Some((why, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Holder, Talk) {
        let (one, other) = UnixStream::pair().expect("a pair");
        let talk = Talk::over(one).expect("ours");
        (Holder::given_up(talk, 7, "it is late"), Talk::over(other).expect("ours"))
    }

    fn busy() -> Result<()> {
        Err(anyhow::anyhow!("in use"))
    }

    #[test]
    fn disks_are_waited_for_as_long_as_the_other_process_lives() {
        let (mut holder, mut other) = pair();
        let told = other.hear::<Word>(Duration::from_secs(10)).expect("it is told");
        assert_eq!(told, Word::Failed { message: "it is late".to_owned() });
        let tries = Cell::new(0);
        let had = holder.outlast(
            || {
                tries.set(tries.get() + 1);
                if tries.get() < 4 { busy() } else { Ok(()) }
            },
            || false,
        );
        assert!(matches!(had, Ok(Waited::Had(()))), "{had:?}");
        let stopped = holder.outlast(busy, || true);
        assert!(matches!(stopped, Ok(Waited::Stopped)), "{stopped:?}");
        drop(other);
        tries.set(0);
        let failed = holder.outlast(
            || {
                tries.set(tries.get() + 1);
                busy()
            },
            || false,
        );
        // Once when it was there, for all we knew, and once behind its end.
        assert_eq!((failed.is_err(), tries.get()), (true, 2));
    }

    /// Both would serve what has no locks.
    #[test]
    fn who_would_serve_too_late_is_not_heard() {
        let (mut holder, other) = pair();
        let had = holder.outlast(|| Ok(()), || false);
        assert!(matches!(had, Ok(Waited::Had(()))), "{had:?}");
        other.say(&Word::Serving).expect_err("it is given up for good");
    }

    #[test]
    fn who_serves_in_the_end_is_left_alone() {
        for opens in [busy as fn() -> Result<()>, || Ok(())] {
            let (mut holder, other) = pair();
            other.say(&Word::Opening { disks: 3 }).expect("heard");
            other.say(&"nonsense").expect("heard");
            other.say(&Word::Serving).expect("heard");
            let waited = holder.outlast(opens, || false);
            assert!(matches!(waited, Ok(Waited::Serves)), "{waited:?}");
        }
    }
}
