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

/// Without progress for so long, it says what it waits for.
const STANDSTILL: Duration = Duration::from_secs(3);

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

    /// `done` bytes are done; `waits_for`: who is to answer next.
    pub(crate) fn show(&mut self, done: u64, waits_for: impl FnOnce() -> Option<String>) {
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
            && let Some(who) = waits_for()
        {
            text = standing(&text, &who, still);
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
}

impl Ticker {
    pub(crate) fn new(begun: Instant, whole: Duration) -> Self {
        Self { terminal: std::io::stderr().is_terminal(), begun, shown: begun, whole }
    }

    /// `commands` have ended.
    pub(crate) fn show(&mut self, now: Instant, commands: u64) {
        let pause = if self.terminal { ON_TERMINAL } else { ELSEWHERE };
        if now.saturating_duration_since(self.shown) < pause {
            return;
        }
        self.shown = now;
        let text = tick(now.saturating_duration_since(self.begun), self.whole, commands);
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

fn tick(time: Duration, whole: Duration, commands: u64) -> String {
    let rate = commands as f64 / time.as_secs_f64().max(0.001);
    format!("measured: {} of {} s, {rate:.0} commands/s", time.as_secs(), whole.as_secs())
}

/// What nothing comes of is no matter of speed.
fn standing(line: &str, who: &str, time: Duration) -> String {
    let share = line.split(", ").next().unwrap_or(line);
    format!("{share}, waiting for {who} for {} s", time.as_secs())
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
        assert_eq!(
            standing(&text, "iscsi://a/b/0", ten),
            "copied: 25% of 200 MiB, waiting for iscsi://a/b/0 for 10 s"
        );
    }

    #[test]
    fn a_measurement_tells_its_time_and_rate() {
        let time = Duration::from_secs;
        assert_eq!(tick(time(10), time(600), 1000), "measured: 10 of 600 s, 100 commands/s");
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
