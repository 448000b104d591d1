// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a long operation has come: a line that is rewritten on a terminal, plain lines
//! elsewhere.

use std::io::IsTerminal;
use std::io::Write;
use std::time::Duration;
use std::time::Instant;

use control::units;

use crate::output;

/// Between two updates of a terminal.
const ON_TERMINAL: Duration = Duration::from_millis(200);

/// Between two plain lines.
const ELSEWHERE: Duration = Duration::from_secs(5);

/// The time that a rate is of.
const INTERVAL: Duration = Duration::from_secs(1);

/// Without progress for so long, it says what it waits for.
const STANDSTILL: Duration = Duration::from_secs(3);

/// What nothing comes of.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Who is to answer next.
    pub(crate) who: String,
    /// For how long it has told that it is busy.
    pub(crate) busy: Option<Duration>,
}

/// Prints to standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    quiet: bool,
    terminal: bool,
    begun: Instant,
    shown: Instant,
    /// How much was done when something was done last, and when that was.
    moved: (u64, Instant),
    /// Bytes that were there when it began.
    from: u64,
    /// None: nobody knows.
    total: Option<u64>,
}

impl Progress {
    pub(crate) fn new(what: &'static str, from: u64, total: Option<u64>, quiet: bool) -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        let moved = (from, now);
        Self { what, quiet, terminal, begun: now, shown: now, moved, from, total }
    }

    /// `done` bytes are done; `waits`: who is to answer next.
    pub(crate) fn show(&mut self, done: u64, waits: impl FnOnce() -> Option<Wait>) {
        if done != self.moved.0 {
            self.moved = (done, Instant::now());
        }
        let pause = if self.terminal { ON_TERMINAL } else { ELSEWHERE };
        if self.quiet || self.shown.elapsed() < pause {
            return;
        }
        self.shown = Instant::now();
        let moved = done.saturating_sub(self.from);
        let mut text = line(self.what, done, self.total, moved, self.begun.elapsed());
        let still = self.moved.1.elapsed();
        if still >= STANDSTILL
            && let Some(wait) = waits()
        {
            text = standing(&text, &wait, still);
        }
        if self.terminal {
            output::rewrite(&text);
        } else {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// The last line.
    pub(crate) fn finish(self, done: u64) {
        // An empty stream is no copy that is done.
        if self.quiet || (done == 0 && self.total.is_none()) {
            return;
        }
        let text = line(self.what, done, Some(done), done - self.from, self.begun.elapsed());
        output::clear();
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// How far a measurement has come that takes a known time.
#[derive(Debug)]
pub(crate) struct Ticker {
    terminal: bool,
    begun: Instant,
    shown: Instant,
    whole: Duration,
    pace: Pace,
}

/// How fast commands end now: the average of what was before an outage says nothing of it.
#[derive(Debug)]
struct Pace {
    /// When it was measured last, and how many had ended by then.
    at: Instant,
    commands: u64,
    rate: f64,
    /// How many had ended when one did last, and when that was.
    moved: (u64, Instant),
}

impl Pace {
    const fn new(at: Instant) -> Self {
        Self { at, commands: 0, rate: 0.0, moved: (0, at) }
    }

    /// `commands` have ended by now. Gives how long ago the last one did.
    fn note(&mut self, now: Instant, commands: u64) -> Duration {
        if commands != self.moved.0 {
            self.moved = (commands, now);
        }
        let time = now.saturating_duration_since(self.at);
        if time >= INTERVAL || self.commands == 0 {
            let ended = commands.saturating_sub(self.commands);
            self.rate = ended as f64 / time.as_secs_f64().max(0.001);
        }
        if time >= INTERVAL {
            (self.at, self.commands) = (now, commands);
        }
        now.saturating_duration_since(self.moved.1)
    }
}

impl Ticker {
    pub(crate) fn new(begun: Instant, whole: Duration) -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            begun,
            shown: begun,
            whole,
            pace: Pace::new(begun),
        }
    }

    /// `commands` have ended; `busy`: for how long the target has told that it is.
    pub(crate) fn show(
        &mut self,
        now: Instant,
        commands: u64,
        busy: impl FnOnce() -> Option<Duration>,
    ) {
        let pause = if self.terminal { ON_TERMINAL } else { ELSEWHERE };
        if now.saturating_duration_since(self.shown) < pause {
            return;
        }
        self.shown = now;
        let still = self.pace.note(now, commands);
        let busy = if still >= STANDSTILL { busy() } else { None };
        let time = now.saturating_duration_since(self.begun);
        let text = tick(time, self.whole, self.pace.rate, still, busy);
        if self.terminal {
            output::rewrite(&text);
        } else {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
}

impl Drop for Ticker {
    /// The result takes the place of the line.
    fn drop(&mut self) {
        output::clear();
    }
}

fn tick(
    time: Duration,
    whole: Duration,
    rate: f64,
    still: Duration,
    busy: Option<Duration>,
) -> String {
    let what = match busy {
        Some(busy) => format!("waiting: target is busy ({} s)", busy.as_secs()),
        None if still >= STANDSTILL => format!("no answer for {} s", still.as_secs()),
        None => format!("{rate:.0} commands/s"),
    };
    format!("measured: {} of {} s, {what}", time.as_secs(), whole.as_secs())
}

/// What nothing comes of is no matter of speed.
fn standing(line: &str, wait: &Wait, time: Duration) -> String {
    let share = line.split(", ").next().unwrap_or(line);
    let who = &wait.who;
    match wait.busy {
        Some(busy) => format!("{share}, waiting: {who} is busy ({} s)", busy.as_secs()),
        None => format!("{share}, waiting for {who} for {} s", time.as_secs()),
    }
}

/// `moved`: bytes since it began, which took `time`.
fn line(what: &str, done: u64, total: Option<u64>, moved: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(0.001);
    let rate = moved as f64 / seconds;
    let speed = format!("{:.1} MiB/s", rate / f64::from(1 << 20));
    let Some(total) = total else {
        return format!("{what}: {}, {speed}", units::bytes(done));
    };
    let percent = (done * 100).checked_div(total).unwrap_or(100);
    let of = format!("{what}: {percent}% of {}, {speed}", units::bytes(total));
    if done >= total {
        return format!("{of}, {seconds:.1} s");
    }
    if rate < 1.0 {
        return of;
    }
    let left = (total - done) as f64 / rate;
    let (minutes, seconds) = (left / 60.0, left % 60.0);
    format!("{of}, {minutes:.0}:{seconds:02.0} left", minutes = minutes.floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_it_waits_for() {
        let ten = Duration::from_secs(10);
        let text = line("copied", 50 << 20, Some(200 << 20), 50 << 20, ten);
        let wait = |busy| Wait { who: "iscsi://a/b/0".to_owned(), busy };
        assert_eq!(
            standing(&text, &wait(None), ten),
            "copied: 25% of 200 MiB, waiting for iscsi://a/b/0 for 10 s"
        );
        assert_eq!(
            standing(&text, &wait(Some(Duration::from_secs(12))), ten),
            "copied: 25% of 200 MiB, waiting: iscsi://a/b/0 is busy (12 s)"
        );
    }

    #[test]
    fn a_measurement_tells_its_time_and_rate() {
        let time = Duration::from_secs;
        let tick = |still, busy| tick(time(10), time(600), 100.0, time(still), busy);
        assert_eq!(tick(0, None), "measured: 10 of 600 s, 100 commands/s");
        assert_eq!(tick(4, None), "measured: 10 of 600 s, no answer for 4 s");
        let busy = tick(4, Some(time(3)));
        assert_eq!(busy, "measured: 10 of 600 s, waiting: target is busy (3 s)");
    }

    /// An outage does not look like a target that becomes slower.
    #[test]
    fn a_rate_is_that_of_now() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut pace = Pace::new(begun);
        assert_eq!(pace.note(at(500), 50), Duration::ZERO);
        assert!((pace.rate - 100.0).abs() < 0.1, "{pace:?}");
        pace.note(at(10_000), 1000);
        assert!((pace.rate - 100.0).abs() < 0.1, "{pace:?}");
        pace.note(at(12_000), 1400);
        assert!((pace.rate - 200.0).abs() < 0.1, "{pace:?}");
        assert_eq!(pace.note(at(14_000), 1400), Duration::from_secs(2));
        assert!(pace.rate.abs() < 0.1, "{pace:?}");
    }

    #[test]
    fn lines_have_share_rate_and_time() {
        let ten = Duration::from_secs(10);
        assert_eq!(
            line("copied", 50 << 20, Some(200 << 20), 50 << 20, ten),
            "copied: 25% of 200 MiB, 5.0 MiB/s, 0:30 left"
        );
        assert_eq!(line("copied", 5 << 20, None, 5 << 20, ten), "copied: 5 MiB, 0.5 MiB/s");
        assert_eq!(line("read", 0, Some(0), 0, ten), "read: 100% of 0 B, 0.0 MiB/s, 10.0 s");
        assert_eq!(line("read", 0, Some(9), 0, ten), "read: 0% of 9 B, 0.0 MiB/s");
    }
}
