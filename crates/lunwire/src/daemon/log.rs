// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log of the daemon. Whoever writes to it never waits: lines go through a bounded queue to a
//! thread of their own, and what does not fit, or cannot be written, is counted.

use std::borrow::Cow;
use std::io;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::TrySendError;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use control::words;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::events::Events;
use super::moderation::LeftOut;
use super::moderation::Moderation;

/// The name of the lines that tell how many were left out.
pub(super) const LEFT_OUT: &str = "lunwire left out";

/// Lines that wait for a slow reader: a second of a busy log, some hundred KiB.
const LINES_MAX: usize = 4096;

/// How often what was left out is told.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The end of the daemon waits so long for the reader of the log.
const FLUSH_MAX: Duration = Duration::from_millis(500);

/// Between two looks whether there is room for the last word.
const LOOK: Duration = Duration::from_millis(5);

/// What the program tells, and what becomes of that.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    pub(crate) log: Log,
    pub(crate) events: Events,
}

/// The way to the thread that writes.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    lines: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// All before this is written: say so.
    Flush(mpsc::Sender<()>),
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Json,
    Text { colours: bool },
}

/// Sends what the program tells to stderr from now on, and keeps the events among it.
pub(crate) fn start(level: &str, style: Style) -> Result<Telling> {
    let moderation = Moderation::default();
    let log = Log::new(io::stderr(), moderation.clone(), style)?;
    let format = tracing_subscriber::fmt::layer().with_writer(log.clone()).with_target(false);
    // Events are kept whatever the log tells.
    let filter = EnvFilter::new(level).and(moderation);
    let (events, keeping) = Events::start()?;
    let registry = tracing_subscriber::registry().with(keeping);
    match style {
        Style::Json => registry.with(format.json().with_filter(filter)).init(),
        Style::Text { colours } => {
            registry.with(format.with_ansi(colours).with_filter(filter)).init();
        }
    }
    Ok(Telling { log, events })
}

impl Log {
    fn new(to: impl Write + Send + 'static, moderation: Moderation, style: Style) -> Result<Self> {
        let (lines, queue) = mpsc::sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let told = Instant::now();
        let writer = Writer { to, style, lost: Arc::clone(&lost), moderation, told };
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || writer.serve(&queue))
            .context("cannot start the thread that writes the log")?;
        Ok(Self { lines, lost })
    }

    /// Waits until all that was told is written, but not long.
    pub(crate) fn flush(&self) {
        let deadline = Instant::now() + FLUSH_MAX;
        let (done, written) = mpsc::channel();
        let mut entry = Entry::Flush(done);
        while let Err(TrySendError::Full(back)) = self.lines.try_send(entry) {
            if Instant::now() >= deadline {
                return;
            }
            entry = back;
            std::thread::sleep(LOOK);
        }
        // A reader that does not read is no reason to stay.
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// One event is one call.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Entry::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What the thread has.
struct Writer<W> {
    to: W,
    style: Style,
    lost: Arc<AtomicU64>,
    moderation: Moderation,
    told: Instant,
}

impl<W: Write> Writer<W> {
    /// Until nobody can write to the log any more.
    fn serve(mut self, queue: &mpsc::Receiver<Entry>) {
        loop {
            let next = if self.has_to_tell() {
                queue.recv_timeout(TELL_EVERY)
            } else {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match next {
                Ok(Entry::Line(line)) => self.write(&line),
                Ok(Entry::Flush(done)) => {
                    self.tell();
                    while let Ok(Entry::Line(line)) = queue.try_recv() {
                        self.write(&line);
                    }
                    // Who asked may have given up.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.told.elapsed() >= TELL_EVERY {
                self.tell();
            }
        }
    }

    /// Lines were left out, or may be without another one being told. An idle daemon sleeps.
    fn has_to_tell(&self) -> bool {
        self.lost.load(Ordering::Relaxed) > 0 || !self.moderation.is_quiet()
    }

    fn write(&mut self, line: &[u8]) {
        let line = match self.style {
            Style::Text { .. } => tamed(line),
            // A program reads it.
            Style::Json => Cow::Borrowed(line),
        };
        if self.to.write_all(&line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts what was left out into the queue, as a part of the log like all others.
    fn tell(&mut self) {
        self.told = Instant::now();
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(
                name: LEFT_OUT, left_out = lost,
                "lines left out: the log is not read fast enough"
            );
        }
        for LeftOut { kind, whom, lines } in self.moderation.take_left_out() {
            tracing::warn!(
                name: LEFT_OUT, about = whom, left_out = lines, "{}", kind.left_out()
            );
        }
    }
}

/// A line in which everything is seen that others have chosen. Their control characters are no
/// longer in it; those that are there are ours.
fn tamed(line: &[u8]) -> Cow<'_, [u8]> {
    let text = match std::str::from_utf8(line) {
        Ok(text) if !text.is_ascii() => text,
        _ => return Cow::Borrowed(line),
    };
    let mut shown = String::new();
    for letter in text.chars() {
        match words::is_hidden(letter) && !letter.is_ascii() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Takes lines while a test holds it open.
    #[derive(Clone)]
    struct Gate(Arc<Mutex<Vec<u8>>>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("sound").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_and_the_rest_is_counted() {
        let gate = Gate(Arc::default());
        let style = Style::Json;
        let mut log = Log::new(gate.clone(), Moderation::default(), style).expect("a thread");
        let shut = gate.0.lock().expect("sound");
        for _ in 0..LINES_MAX * 2 {
            log.write_all(b"line\n").expect("it never fails");
        }
        let begun = Instant::now();
        Log::flush(&log);
        assert!(begun.elapsed() >= FLUSH_MAX);
        let lost = usize::try_from(log.lost.load(Ordering::Relaxed)).expect("few");
        assert!((LINES_MAX - 1..=LINES_MAX).contains(&lost), "{lost}");
        drop(shut);
        Log::flush(&log);
        let written = gate.0.lock().expect("sound").len() / b"line\n".len();
        assert_eq!(written + lost, LINES_MAX * 2);
    }

    /// What the log itself writes to a terminal stays: its colours, and where a line ends.
    #[test]
    fn what_is_not_seen_is_shown() {
        let line = "\u{1b}[1mname\u{200b}\u{3164} \u{e9}\u{202e}\u{1b}[0m\n";
        let shown = "\u{1b}[1mname\\u{200b}\\u{3164} \u{e9}\\u{202e}\u{1b}[0m\n";
        for (style, wanted) in [(Style::Text { colours: true }, shown), (Style::Json, line)] {
            let gate = Gate(Arc::default());
            let moderation = Moderation::default();
            let mut log = Log::new(gate.clone(), moderation, style).expect("a thread");
            log.write_all(line.as_bytes()).expect("it never fails");
            Log::flush(&log);
            let written = gate.0.lock().expect("sound").clone();
            assert_eq!(String::from_utf8_lossy(&written), wanted);
        }
    }
}
