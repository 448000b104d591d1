// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has happened, for who asks: the lines of the log that tell of it, as values in a bounded
//! store.
//!
//! ```text
//! reactors, orders --tracing--> Keeper --bounded queue--> thread --> Events <-- who asks
//!                            (moderated)
//! ```
//!
//! Who tells of something never waits. Of each kind so many are kept ([`KEPT_MAX`]); where there
//! are more, the oldest one goes of whoever has most of them: who makes many pushes out his own.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;

use anyhow::Context as _;
use anyhow::Result;
use control::admin;
use control::admin::EventKind;
use control::admin::EventLevel;
use control::words;
use tracing::Level;
use tracing::Metadata;
use tracing::Subscriber;
use tracing::field::Field;
use tracing::field::Visit;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterExt;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::log::LEFT_OUT;
use super::moderation::Moderation;

/// Events of each kind that are kept: of some hosts what they did in the last days, and of all
/// kinds together 3 MiB at most.
const KEPT_MAX: usize = 256;

/// Events that wait for the thread: more than all hosts together have told in a second.
const QUEUE_LEN: usize = 1024;

/// Events in one answer.
const TOLD_MAX: usize = 512;

/// Characters of a text, and of the value of a field: an iSCSI name has 223 bytes at most.
const TEXT_MAX: usize = 256;

/// Further fields of an event.
const DETAILS_MAX: usize = 16;

/// How long what was told just now may take to be among the others.
const SETTLE_MAX: Duration = Duration::from_secs(1);
const SETTLE_PAUSE: Duration = Duration::from_millis(2);

/// How often who is quiet is forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The events of this process.
#[derive(Clone, Debug)]
pub(crate) struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    since_ms: AtomicU64,
    kept: Mutex<Kept>,
    /// Those that were handed to the thread.
    told: AtomicU64,
    left_out: AtomicU64,
    moderation: Moderation,
}

/// What is kept, of each kind.
#[derive(Debug, Default)]
struct Kept {
    last: u64,
    /// Those that the thread has taken.
    taken: u64,
    forgotten: u64,
    kinds: HashMap<EventKind, VecDeque<Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// Who made it: his address, or his name, or a disk; nobody for what is ours.
    whom: String,
    event: admin::Event,
}

impl Entry {
    fn of(event: admin::Event) -> Self {
        // Each connection has another port.
        let address = event.peer.as_ref().map(|peer| match peer.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_string(),
            Err(_) => peer.clone(),
        });
        let disk = || {
            let disk = event.details.iter().find(|(name, _)| name == "disk");
            disk.map(|(_, value)| value.clone())
        };
        let whom = address.or_else(|| event.initiator.clone()).or_else(disk).unwrap_or_default();
        Self { whom, event }
    }
}

impl Events {
    /// A thread keeps what is told from now on by the layer.
    pub(crate) fn start<S>() -> Result<(Self, impl Layer<S> + Send + Sync + 'static)>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let events = Self::new();
        let (told, queue) = mpsc::sync_channel(QUEUE_LEN);
        let (keeper, moderation) = (events.clone(), events.0.moderation.clone());
        let keep = move || loop {
            let next = if keeper.0.moderation.is_quiet() {
                // An idle daemon sleeps.
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(SWEEP_EVERY)
            };
            let is_last = matches!(next, Err(RecvTimeoutError::Disconnected));
            if let Ok(entry) = next {
                let mut kept = keeper.kept();
                kept.keep(entry);
                kept.taken += 1;
            }
            keeper.count_left_out();
            if is_last {
                return;
            }
        };
        std::thread::Builder::new()
            .name("events".into())
            .spawn(keep)
            .context("cannot start the thread that keeps events")?;
        let layer = Teller { told, events: events.clone() };
        let filter = FilterFn::new(|metadata| kind(metadata).is_some());
        Ok((events, layer.with_filter(filter.and(moderation))))
    }

    fn new() -> Self {
        let (since_ms, told, left_out) = (now_ms().into(), 0.into(), 0.into());
        let (kept, moderation) = (Mutex::default(), Moderation::default());
        Self(Arc::new(Shared { since_ms, kept, told, left_out, moderation }))
    }

    fn count_left_out(&self) {
        let left_out = self.0.moderation.take_left_out().iter().map(|left| left.lines).sum();
        self.0.left_out.fetch_add(left_out, Ordering::Relaxed);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Whole between any two statements.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those behind the one with the number `after`.
    pub(crate) fn after(&self, after: u64) -> admin::Events {
        self.told(after, TOLD_MAX)
    }

    /// All of them, with what was told just now, for the process that serves next.
    pub(crate) fn all(&self) -> admin::Events {
        let patience = Instant::now() + SETTLE_MAX;
        while self.kept().taken < self.0.told.load(Ordering::SeqCst) && Instant::now() < patience {
            std::thread::sleep(SETTLE_PAUSE);
        }
        self.told(0, usize::MAX)
    }

    /// Goes on with those of the process before, which it has not told of anybody since; what this
    /// one has told comes behind them. Nobody has asked for any yet.
    pub(crate) fn carry_on(&self, before: admin::Events) {
        let admin::Events { since_ms, events, last, forgotten, left_out, .. } = before;
        let mut kept = self.kept();
        let ours = std::mem::take(&mut *kept);
        for event in events {
            kept.last = event.number.saturating_sub(1);
            kept.keep(Entry::of(event));
        }
        kept.last = kept.last.max(last);
        kept.forgotten = forgotten;
        let mut own: Vec<Entry> = ours.kinds.into_values().flatten().collect();
        own.sort_unstable_by_key(|entry| entry.event.number);
        own.into_iter().for_each(|entry| kept.keep(entry));
        kept.taken = ours.taken;
        self.0.since_ms.store(since_ms, Ordering::Relaxed);
        self.0.left_out.fetch_add(left_out, Ordering::Relaxed);
    }

    fn told(&self, after: u64, most: usize) -> admin::Events {
        self.count_left_out();
        let left_out = self.0.left_out.load(Ordering::Relaxed);
        let kept = self.kept();
        let all = kept.kinds.values().flatten().map(|entry| &entry.event);
        let mut events: Vec<&admin::Event> = all.filter(|event| event.number > after).collect();
        events.sort_unstable_by_key(|event| event.number);
        let more = events.len() > most;
        events.truncate(most);
        let last = events.last().map_or(kept.last, |event| event.number);
        let events = events.into_iter().cloned().collect();
        let since_ms = self.0.since_ms.load(Ordering::Relaxed);
        let forgotten = kept.forgotten;
        admin::Events { since_ms, events, last, more, forgotten, left_out }
    }
}

impl Kept {
    fn keep(&mut self, mut entry: Entry) {
        self.last += 1;
        entry.event.number = self.last;
        let kept = self.kinds.entry(entry.event.kind).or_default();
        if kept.len() >= KEPT_MAX {
            let mut counts: HashMap<&str, usize> = HashMap::new();
            for entry in &*kept {
                *counts.entry(&entry.whom).or_default() += 1;
            }
            let most = counts.values().copied().max();
            let goes = kept.iter().position(|entry| counts.get(&*entry.whom).copied() == most);
            kept.remove(goes.unwrap_or(0));
            self.forgotten += 1;
        }
        kept.push_back(entry);
    }
}

/// What a line is about; None: it tells of no event.
fn kind(metadata: &Metadata<'_>) -> Option<EventKind> {
    if let Some(event) = target::Event::of_name(metadata.name()) {
        return Some(match event {
            target::Event::Login => EventKind::Login,
            target::Event::Refusal => EventKind::Refusal,
            target::Event::Logout => EventKind::Logout,
            target::Event::Loss => EventKind::Loss,
            target::Event::Abort => EventKind::Abort,
            target::Event::Reset => EventKind::Reset,
            target::Event::Reservation => EventKind::Reservation,
            target::Event::Lun => EventKind::Lun,
            target::Event::Limit => EventKind::Limit,
            target::Event::Change => EventKind::Change,
            target::Event::TakeOver => EventKind::TakeOver,
        });
    }
    let is_trouble = *metadata.level() <= Level::WARN && metadata.name() != LEFT_OUT;
    is_trouble.then_some(EventKind::Trouble)
}

/// Hands over what is told.
struct Teller {
    told: SyncSender<Entry>,
    events: Events,
}

impl<S: Subscriber> Layer<S> for Teller {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let Some(kind) = kind(metadata) else { return };
        let level = match *metadata.level() {
            Level::ERROR => EventLevel::Error,
            Level::WARN => EventLevel::Warning,
            _ => EventLevel::Info,
        };
        let mut reading = Reading::new(kind, level);
        event.record(&mut reading);
        let shared = &self.events.0;
        shared.told.fetch_add(1, Ordering::SeqCst);
        if self.told.try_send(Entry::of(reading.event)).is_err() {
            shared.told.fetch_sub(1, Ordering::SeqCst);
            shared.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reads the fields of a line.
struct Reading {
    event: admin::Event,
}

impl Reading {
    fn new(kind: EventKind, level: EventLevel) -> Self {
        let event = admin::Event {
            number: 0,
            time_ms: now_ms(),
            kind,
            level,
            text: String::new(),
            peer: None,
            initiator: None,
            tsih: None,
            target: None,
            lun: None,
            details: Vec::new(),
        };
        Self { event }
    }

    fn take(&mut self, name: &str, value: &dyn fmt::Display) {
        let text = shown(value);
        match name {
            "message" => self.event.text = text,
            "peer" => self.event.peer = Some(text),
            "initiator" => self.event.initiator = Some(text),
            "target" => self.event.target = Some(text),
            "tsih" => self.event.tsih = text.parse().ok(),
            "lun" => self.event.lun = text.parse().ok(),
            name => {
                if self.event.details.len() < DETAILS_MAX {
                    self.event.details.push((name.to_owned(), text));
                }
            }
        }
    }
}

impl Visit for Reading {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field.name(), &format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field.name(), &value);
    }
}

/// On one line, without what would tell a terminal or a browser what to do, and not longer than
/// anybody wants to read: names are chosen by others.
fn shown(value: &dyn fmt::Display) -> String {
    let mut bounded = Bounded { text: String::new(), left: TEXT_MAX };
    // It ends at the bound.
    let _ = write!(bounded, "{value}");
    bounded.text
}

struct Bounded {
    text: String,
    left: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for letter in part.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            match words::is_hidden(letter) {
                true => self.text.extend(letter.escape_default()),
                false => self.text.push(letter),
            }
        }
        Ok(())
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    fn of(kind: EventKind, whom: &str) -> Entry {
        let mut reading = Reading::new(kind, EventLevel::Info);
        reading.event.peer = Some(whom.to_owned());
        Entry::of(reading.event)
    }

    /// Who follows them hears of the last ones of the process before, and none twice.
    #[test]
    fn another_process_counts_on() {
        let before = Events::new();
        for number in 0..600 {
            before.kept().keep(of(EventKind::Login, &format!("192.0.2.{}:1", number % 200)));
        }
        before.kept().keep(of(EventKind::Logout, "192.0.2.1:1"));
        let now = Events::new();
        now.kept().keep(of(EventKind::TakeOver, ""));
        now.carry_on(before.all());
        let (all, wanted) = (now.all(), before.all());
        assert_eq!((all.since_ms, all.forgotten), (wanted.since_ms, 600 - KEPT_MAX as u64));
        assert_eq!(all.events[..KEPT_MAX + 1], wanted.events[..]);
        let [.., last, ours] = &all.events[..] else { panic!("{all:?}") };
        assert_eq!((last.number, last.kind), (601, EventKind::Logout));
        assert_eq!((ours.number, ours.kind, all.last), (602, EventKind::TakeOver, 602));
        now.kept().keep(of(EventKind::Login, "192.0.2.1:1"));
        assert_eq!(now.after(602).events.len(), 1);
        // It had none.
        let none = Events::new();
        none.carry_on(admin::Events::default());
        assert_eq!(none.after(0), admin::Events::default());
    }

    #[test]
    fn what_was_told_just_now_is_among_all() {
        let (events, layer) = Events::start().expect("a thread");
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for number in 1..50_u64 {
                tracing::info!(name: target::Event::Change.name(), number, "changed");
                assert_eq!(events.all().last, number);
            }
        });
    }

    #[test]
    fn what_was_left_out_just_now_is_among_all() {
        let (events, layer) = Events::start().expect("a thread");
        let subscriber = tracing_subscriber::registry().with(layer);
        let abort = || {
            tracing::warn!(name: target::Event::Abort.name(), peer = "192.0.2.1:1", "abort");
        };
        tracing::subscriber::with_default(subscriber, || {
            abort();
            assert_eq!(events.all().events.len(), 1);
            // The thread has looked, and waits.
            std::thread::sleep(Duration::from_millis(100));
            (1..100).for_each(|_| abort());
        });
        let all = events.all();
        assert_eq!(all.events.len() as u64 + all.left_out, 100);
    }

    #[test]
    fn who_makes_many_pushes_out_his_own() {
        let events = Events::new();
        let keep = |entry| events.kept().keep(entry);
        keep(of(EventKind::Reservation, "192.0.2.1:1"));
        keep(of(EventKind::Login, "192.0.2.1:1"));
        for port in 0..2 * KEPT_MAX {
            keep(of(EventKind::Login, &format!("198.51.100.1:{port}")));
        }
        for peer in ["192.0.2.2:7", "192.0.2.3:7"] {
            keep(of(EventKind::Login, peer));
        }
        let mut told = Vec::new();
        let mut after = 0;
        loop {
            let said = events.after(after);
            told.extend(said.events);
            after = said.last;
            if !said.more {
                assert_eq!(said.forgotten, KEPT_MAX as u64 + 3);
                break;
            }
        }
        assert_eq!(told.len(), KEPT_MAX + 1);
        assert!(told.is_sorted_by_key(|event| event.number));
        let of = |peer: &str| told.iter().filter(|one| one.peer.as_deref() == Some(peer)).count();
        assert_eq!((of("192.0.2.1:1"), of("192.0.2.2:7"), of("192.0.2.3:7")), (2, 1, 1));
        assert_eq!(after, events.kept().last);
        assert!(events.after(after).events.is_empty());
    }

    #[test]
    fn lines_with_a_name_become_events_and_others_do_not() {
        let (events, layer) = Events::start().expect("a thread");
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let (initiator, tsih) = ("iqn.a\n\u{202e}b", 7_u16);
            let peer = tracing::field::display("192.0.2.1:3260");
            tracing::info!("nothing");
            tracing::info!(name: target::Event::Login.name(), peer, initiator, tsih, lun = 3, "in");
            tracing::warn!(file = %"x".repeat(1000), "odd");
            tracing::warn!(name: LEFT_OUT, "some lines");
        });
        let begun = Instant::now();
        let said = loop {
            let said = events.after(0);
            if said.events.len() >= 2 || begun.elapsed() > Duration::from_secs(20) {
                break said;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let [login, trouble] = &said.events[..] else { panic!("{said:?}") };
        assert_eq!(
            (login.kind, login.level, &*login.text),
            (EventKind::Login, EventLevel::Info, "in")
        );
        assert_eq!((login.tsih, login.lun), (Some(7), Some(3)));
        assert_eq!(login.peer.as_deref(), Some("192.0.2.1:3260"));
        assert_eq!(login.initiator.as_deref(), Some("iqn.a\\n\\u{202e}b"));
        assert_eq!((trouble.kind, trouble.level), (EventKind::Trouble, EventLevel::Warning));
        assert_eq!(trouble.details, [("file".to_owned(), "x".repeat(TEXT_MAX))]);
        assert!(login.number < trouble.number && login.time_ms >= said.since_ms);
    }

    #[test]
    fn one_host_cannot_have_all_kept() {
        let (events, layer) = Events::start().expect("a thread");
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..1000 {
                tracing::warn!(name: target::Event::Abort.name(), peer = "192.0.2.1:1", "abort");
            }
        });
        let begun = Instant::now();
        let mut said = events.after(0);
        while said.events.len() as u64 + said.left_out < 1000
            && begun.elapsed() < Duration::from_secs(20)
        {
            std::thread::sleep(Duration::from_millis(5));
            said = events.after(0);
        }
        assert!(!said.events.is_empty() && said.events.len() <= 10, "{}", said.events.len());
        assert_eq!(said.events.len() as u64 + said.left_out, 1000);
    }
}
