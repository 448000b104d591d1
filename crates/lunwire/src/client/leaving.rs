// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a client comes to its end, whatever the cause: its work is done, it has failed, or somebody
//! wants an end (Ctrl-C, SIGTERM, the terminal is gone).
//!
//! ```text
//! signal --> blocking calls end --> what is under way has FAREWELL --+
//! error, end -------------------------------------------------------+--> leave
//! ```
//!
//! What was sent may be on a slow line when the program is gone, and come over what others write
//! to the disk next. [`leave`] rules that out, or says that it could not, with an exit status that
//! is not 0. A second signal ends the process at once, which says the same.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use initiator::Event;
use initiator::Queue;
use initiator::SessionId;
use initiator::Url;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::fs::Timespec;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::LOOK;
use super::tell;
use crate::inherited;
use crate::output;

/// How long what is under way may take once the user wants an end: a target that is well answers in
/// far less.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);

/// So long after that the process leaves, whatever it waits for: enough to say what was done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long the logouts of a command may take that nobody has ended; else [`LOOK`].
const LOGOUTS: Duration = Duration::from_secs(2);

/// How long a user waits without a word for other sessions to take the place of those that have
/// something under way.
const REPLACED: Duration = Duration::from_secs(3);

/// And for how long with one, if their logins have begun: they wait behind what is on the line.
const REPLACED_AT_LAST: Duration = Duration::from_secs(7);

/// Set once the user wants an end.
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// When that was noticed.
static NOTICED: OnceLock<Instant> = OnceLock::new();

/// What a process that has to leave has to say besides.
static GOODBYE: Mutex<String> = Mutex::new(String::new());

/// Until when [`leave`] may take.
static LEAVING: Mutex<Option<Instant>> = Mutex::new(None);

/// The disks of sessions.
static DISKS: Mutex<Vec<(SessionId, String)>> = Mutex::new(Vec::new());

/// Disks to which something may be under way.
static IN_DOUBT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Something may still be written though the command is over.
static LEFT: AtomicBool = AtomicBool::new(false);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the user wants an end.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Whether nobody wants any more what is not ready yet: the user wants an end, or who has called
/// this process and waits for it is gone.
pub(crate) fn is_given_up() -> bool {
    is_interrupted() || is_forsaken()
}

/// Who has called this process and waits for it is gone, so that its standard input has ended.
pub(crate) fn is_forsaken() -> bool {
    let stdin = rustix::stdio::stdin();
    let mut ends = [PollFd::new(&stdin, PollFlags::RDHUP)];
    IS_WAITED_FOR.load(Ordering::SeqCst)
        && rustix::event::poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
}

/// Whether somebody waits for this process at the other end of its standard input, a socket.
pub(crate) fn set_waited_for(is_waited_for: bool) {
    IS_WAITED_FOR.store(is_waited_for, Ordering::SeqCst);
}

static IS_WAITED_FOR: AtomicBool = AtomicBool::new(false);

/// What is left of the time for what is under way, which begins when the user wants an end.
pub(crate) fn farewell_left() -> Duration {
    match is_interrupted() {
        true => FAREWELL.saturating_sub(NOTICED.get_or_init(Instant::now).elapsed()),
        false => FAREWELL,
    }
}

/// Whether the user wants an end, and there is nothing to wait for: none of `sessions` is up, or
/// what is under way has had its time.
pub(crate) fn is_to_leave(queue: &Queue, sessions: &[SessionId]) -> bool {
    is_interrupted()
        && (farewell_left().is_zero() || !sessions.iter().any(|session| queue.is_up(*session)))
}

/// `words` are said if what is under way does not end when the user wants an end.
pub(crate) fn set_last_words(words: String) {
    *lock(&GOODBYE) = words;
}

/// `session` leads to the disk of `url`.
pub(super) fn leads_to(session: SessionId, url: &Url) {
    lock(&DISKS).push((session, url.to_string()));
}

/// From now on something may be under way to these disks.
pub(crate) fn set_in_doubt(urls: Vec<String>) {
    *lock(&IN_DOUBT) = urls;
}

/// From now on something may be under way to the disks of which `queue` says so.
pub(crate) fn note_doubt(queue: &Queue) {
    set_sessions_in_doubt(&queue.in_doubt());
}

fn set_sessions_in_doubt(sessions: &[SessionId]) {
    let disks = lock(&DISKS);
    let of = |session: &SessionId| disks.iter().find(|(of, _)| of == session);
    let mut urls: Vec<String> =
        sessions.iter().filter_map(of).map(|(_, url)| url.clone()).collect();
    urls.sort_unstable();
    urls.dedup();
    set_in_doubt(urls);
}

/// Whether something that this process has sent may still be written to a disk.
pub(crate) fn has_left_something() -> bool {
    LEFT.load(Ordering::Relaxed)
}

/// Passes on at once what happens while a command waits for one answer; what it does not deal with
/// is for who reaps it.
pub(super) fn tell_meanwhile(event: &Event) -> bool {
    let is_news = matches!(
        event,
        Event::Down { .. } | Event::Overdue { .. } | Event::Elsewhere { .. } | Event::Again { .. }
    );
    if is_news && !is_interrupted() {
        tell(event);
    }
    is_news
}

/// Ends all sessions. Nothing that is under way must reach a disk when this process is gone, or
/// the user is told.
pub(super) fn leave(queue: &mut Queue) {
    let most = REPLACED + REPLACED_AT_LAST;
    set_most(most);
    note_doubt(queue);
    let logouts = if is_interrupted() { LOOK } else { LOGOUTS };
    let mut left = queue.leave(logouts, REPLACED);
    set_sessions_in_doubt(&left);
    if left.iter().any(|session| queue.is_being_replaced(*session)) {
        let disks = lock(&IN_DOUBT).join(", ");
        output::say(format_args!(
            "{disks}: waiting for what is still on its way there; Ctrl-C to leave at once"
        ));
        left = queue.leave(LOOK, REPLACED_AT_LAST);
        set_sessions_in_doubt(&left);
    }
    LEFT.store(!left.is_empty(), Ordering::Relaxed);
    warn_of_doubt();
}

/// Says to which disks something may still be on its way.
fn warn_of_doubt() {
    let urls = std::mem::take(&mut *lock(&IN_DOUBT));
    for url in urls {
        output::say(format_args!(
            "warning: {url}: some of what was under way may still be written to this disk, over \
             what is written there next: it could not be called back; try: wait until the network \
             and the target have settled, or end the session of this initiator at the target, \
             before anybody writes there"
        ));
    }
}

/// The command leaves by itself, which may take `most`.
pub(crate) fn set_most(most: Duration) {
    *lock(&LEAVING) = Some(Instant::now() + most + LAST_WORDS);
}

/// SIGHUP asks for no end: who goes on in the background has no terminal that could go.
pub(crate) fn outlive_hangups() -> Result<()> {
    OUTLIVES_HANGUPS.store(true, Ordering::SeqCst);
    // Whoever is not told of a signal ends by it.
    signal_hook::flag::register(SIGHUP, Arc::default()).context("cannot catch signals")?;
    Ok(())
}

static OUTLIVES_HANGUPS: AtomicBool = AtomicBool::new(false);

/// From now on a signal that was not ignored asks for an end, and has `interrupt` called, which
/// ends calls that wait; a second one ends the process at once.
pub(crate) fn catch_signals(interrupt: impl FnOnce() + Send + 'static) -> Result<()> {
    const CANNOT: &str = "cannot catch signals";
    let flag = Arc::clone(INTERRUPTED.get_or_init(Arc::default));
    let speaking = Arc::new(AtomicBool::new(false));
    let mut signals = inherited::not_ignored(&[SIGINT, SIGTERM, SIGHUP]);
    if OUTLIVES_HANGUPS.load(Ordering::SeqCst) {
        signals.retain(|signal| *signal != SIGHUP);
    }
    for signal in &signals {
        // Who hears of signals may wait for somebody to read what it says.
        signal_hook::flag::register_conditional_shutdown(*signal, 1, Arc::clone(&speaking))
            .context(CANNOT)?;
        signal_hook::flag::register(*signal, Arc::clone(&flag)).context(CANNOT)?;
    }
    let mut signals = Signals::new(&signals).context(CANNOT)?;
    let told = std::thread::Builder::new().name("signals".into()).spawn(move || {
        let say = |words: std::fmt::Arguments<'_>| {
            speaking.store(true, Ordering::SeqCst);
            output::say(words);
            speaking.store(false, Ordering::SeqCst);
        };
        let mut signals = signals.forever();
        if signals.next().is_none() {
            return;
        }
        NOTICED.get_or_init(Instant::now);
        say(format_args!("coming to an end; once more to leave at once"));
        interrupt();
        let late = std::thread::Builder::new().name("farewell".into()).spawn(end_when_late);
        // Without it the main thread leaves by itself, unless it waits for something else.
        drop(late);
        if signals.next().is_some() {
            speaking.store(true, Ordering::SeqCst);
            end_at_once("leaving at once");
        }
    });
    told.map(drop).context(CANNOT)
}

/// Ends a process that does not come to its end.
fn end_when_late() {
    std::thread::sleep(FAREWELL + LAST_WORDS);
    while let Some(left) = time_to_leave() {
        std::thread::sleep(left);
    }
    end_at_once("what is under way does not end; leaving");
}

/// What is left of the time for [`leave`]; None: it is over, or nobody leaves.
fn time_to_leave() -> Option<Duration> {
    let until = *lock(&LEAVING);
    until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

fn end_at_once(why: &str) -> ! {
    let words = lock(&GOODBYE).clone();
    let colon = if words.is_empty() { "" } else { "; " };
    output::say(format_args!("{why}{colon}{words}"));
    warn_of_doubt();
    std::process::exit(1);
}
