// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log of the daemon. Whoever writes to it never waits: lines go through a bounded queue to a
//! thread of their own, and what does not fit, or cannot be written, is counted.

use std::borrow::Cow;
use std::cell::Cell;
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
    Line(Line),
    /// All before this is written: say so.
    Flush(mpsc::Sender<()>),
    /// Look what is to be told.
    Look,
}

#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    /// Nobody hears of so many if this one is lost: more than of itself if it tells of others.
    lines: u64,
}

thread_local! {
    /// Of so many lost lines what this thread writes now tells.
    static TELLS_OF: Cell<u64> = const { Cell::new(0) };
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
        let (log, queue, writer) = Self::parts(to, moderation, style);
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || writer.serve(&queue))
            .context("cannot start the thread that writes the log")?;
        Ok(log)
    }

    fn parts<W: Write>(
        to: W,
        moderation: Moderation,
        style: Style,
    ) -> (Self, mpsc::Receiver<Entry>, Writer<W>) {
        let (lines, queue) = mpsc::sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let told = Instant::now();
        let lost_there = Arc::clone(&lost);
        let writer = Writer { to, is_torn: false, style, lost: lost_there, moderation, told };
        (Self { lines, lost }, queue, writer)
    }

    /// Lines find no room. There may be some again, and the thread may have seen nothing to tell.
    fn lose(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::SeqCst);
        // Where there is no room it looks after what is there.
        let _ = self.lines.try_send(Entry::Look);
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
        let lines = TELLS_OF.get().max(1);
        if self.lines.try_send(Entry::Line(Line { text: line.to_vec(), lines })).is_err() {
            self.lose(lines);
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
    /// Of the last line a part was written.
    is_torn: bool,
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
                    self.take_all(queue);
                    self.tell();
                    self.take_all(queue);
                    // Who asked may have given up.
                    let _ = done.send(());
                }
                Ok(Entry::Look) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.told.elapsed() >= TELL_EVERY {
                self.tell();
            }
        }
    }

    /// Writes what there is. Who else asks for that need not wait either.
    fn take_all(&mut self, queue: &mpsc::Receiver<Entry>) {
        while let Ok(entry) = queue.try_recv() {
            if let Entry::Line(line) = entry {
                self.write(&line);
            }
        }
    }

    /// Lines were left out, or may be without another one being told. An idle daemon sleeps.
    fn has_to_tell(&self) -> bool {
        self.lost.load(Ordering::SeqCst) > 0 || !self.moderation.is_quiet()
    }

    fn write(&mut self, line: &Line) {
        let text = match self.style {
            Style::Text { .. } => tamed(&line.text),
            // A program reads it.
            Style::Json => Cow::Borrowed(&*line.text),
        };
        if !self.put(&text) {
            self.lost.fetch_add(line.lines, Ordering::SeqCst);
        }
    }

    /// False: not all of it could be written.
    fn put(&mut self, text: &[u8]) -> bool {
        if self.is_torn && self.to.write_all(b"\n").is_err() {
            return false;
        }
        let mut rest = text;
        while !rest.is_empty() {
            match self.to.write(rest) {
                Ok(length @ 1..) => rest = rest.get(length..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        self.is_torn = (1..text.len()).contains(&rest.len());
        rest.is_empty()
    }

    /// Puts what was left out into the queue, as a part of the log like all others.
    fn tell(&mut self) {
        self.told = Instant::now();
        let lost = self.lost.swap(0, Ordering::SeqCst);
        if lost > 0 {
            TELLS_OF.set(lost);
            tracing::warn!(
                name: LEFT_OUT, left_out = lost,
                "lines left out: the log is not read fast enough"
            );
            TELLS_OF.set(0);
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
        let lost = usize::try_from(log.lost.load(Ordering::SeqCst)).expect("few");
        assert!((LINES_MAX - 1..=LINES_MAX).contains(&lost), "{lost}");
        drop(shut);
        Log::flush(&log);
        let written = gate.0.lock().expect("sound").len() / b"line\n".len();
        assert_eq!(written + lost, LINES_MAX * 2);
    }

    /// A disk that has room for so many bytes more.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Disk {
        fn has_room(&self, bytes: usize) {
            self.0.lock().expect("sound").0 = bytes;
        }

        fn text(&self) -> String {
            String::from_utf8_lossy(&self.0.lock().expect("sound").1).into_owned()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().expect("sound");
            let length = bytes.len().min(disk.0);
            if length == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0 -= length;
            disk.1.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Not only the line that was to tell of it last.
    #[test]
    fn what_was_lost_is_told_however_often_that_fails() {
        let disk = Disk::default();
        let (log, queue, mut writer) = Log::parts(disk.clone(), Moderation::default(), Style::Json);
        let layer = tracing_subscriber::fmt::layer().with_writer(log).json();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..5 {
                tracing::info!("no room");
            }
            writer.take_all(&queue);
            for _ in 0..3 {
                writer.tell();
                writer.take_all(&queue);
            }
            // Nor if it finds the queue full.
            for _ in 0..LINES_MAX {
                tracing::info!("no room");
            }
            writer.tell();
            disk.has_room(usize::MAX);
            writer.take_all(&queue);
            writer.tell();
            writer.take_all(&queue);
        });
        let text = disk.text();
        assert_eq!(text.lines().count(), LINES_MAX + 1);
        assert!(text.contains("\"left_out\":5}"), "{:?}", text.lines().last());
        assert!(!writer.has_to_tell());
    }

    #[test]
    fn a_line_that_was_written_in_part_does_not_spoil_the_next_one() {
        let disk = Disk::default();
        let (mut log, queue, mut writer) =
            Log::parts(disk.clone(), Moderation::default(), Style::Json);
        for (room, line) in [(4, "first\n"), (0, "second\n"), (6, "third\n"), (99, "fourth\n")] {
            disk.has_room(room);
            log.write_all(line.as_bytes()).expect("it never fails");
            writer.take_all(&queue);
        }
        assert_eq!(disk.text(), "firs\nthird\nfourth\n");
        assert_eq!(writer.lost.load(Ordering::SeqCst), 3);
    }

    /// The queue was full, and was empty again before that was known.
    #[test]
    fn what_is_lost_wakes_who_tells() {
        let log = Log::new(Gate(Arc::default()), Moderation::default(), Style::Json);
        let log = log.expect("a thread");
        std::thread::sleep(2 * TELL_EVERY);
        log.lose(1);
        let begun = Instant::now();
        while log.lost.load(Ordering::SeqCst) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it sleeps");
            std::thread::sleep(LOOK);
        }
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
