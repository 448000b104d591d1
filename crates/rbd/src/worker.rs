// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread of an image, for what makes it wait for the cluster: opening and closing, its size
//! after a change, what stands behind its bytes. Reads and writes never meet it.
#![forbid(unsafe_code)]

use crate::api::Api;
use crate::cache::WITHOUT_CACHE;
use crate::cluster::Cluster;
use crate::cluster::IoContext;
use crate::cluster::Refused;
use crate::error::Doing;
use crate::error::RbdError;
use crate::flight::Counted;
use crate::image::Facts;
use crate::image::Image;
use crate::limits::BEHIND_UNANSWERED_MAX;
use crate::limits::CHORE_MAX;
use crate::limits::CLOSE_MAX;
use crate::limits::LOOK_MAX;
use crate::limits::OPEN_MAX;
use crate::limits::OPEN_NOTICE;
use crate::limits::WANTED_LOOK;
use crate::rounds::Rounds;
use crate::watches;
use crate::watches::Watched;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::SendError;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use store::Error;
use store::Outcome;
use store::foreign::Completer;
use store::spec::Exactly;
use store::spec::RbdSpec;

/// What the thread is asked for.
#[derive(Debug)]
pub(crate) enum Chore {
    /// What stands behind these bytes.
    Status { offset: u64, length: u64, completer: Completer, counted: Counted },
    /// What somebody has ordered and waits for.
    Order { order: Order, turn: Arc<Turn>, tell: Sender<Result<(), Refused>> },
    /// The image may have another size: who does the chores sees that by itself.
    Look,
    /// Somebody wants to know its size, and waits for that.
    Size { turn: Arc<Turn>, tell: Sender<()> },
    /// What is under way does not end: does the cluster answer others?
    Ask,
    /// Nobody has the image any more.
    Close,
}

/// What is ordered.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Another size, bytes.
    Resize(u64),
    /// A snapshot of this name.
    Snapshot(String),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resize(bytes) => write!(f, "resize to {bytes} bytes"),
            Self::Snapshot(name) => write!(f, "snapshot {name}"),
        }
    }
}

/// Whose turn it is with an order: it is begun, or given up before that.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    is_taken: AtomicBool,
    is_over: AtomicBool,
}

impl Turn {
    /// The first one to call it has the order.
    fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::SeqCst)
    }
}

/// An image that was opened, and its thread.
#[derive(Debug)]
pub(crate) struct Opened {
    // Let go before the worker is told to close it.
    pub(crate) image: Arc<Image>,
    pub(crate) worker: Worker,
    pub(crate) facts: Facts,
    pub(crate) watched: Arc<Watched>,
    /// The image was made.
    pub(crate) made: bool,
}

/// A question for the size of an image: since when, and what tells that it is answered.
type Look = (Instant, Arc<Turn>, Receiver<()>);

/// The end of a thread that does chores.
#[derive(Debug)]
pub(crate) struct Worker {
    /// `POOL/IMAGE`.
    name: Arc<str>,
    chores: Sender<Chore>,
    closed: Mutex<Receiver<Result<(), i32>>>,
    /// An order that nobody waits for any more and that is not over, and since when it waits.
    unanswered: Mutex<Option<(Instant, Arc<Turn>)>>,
    /// For whoever looks next.
    look_begun: Mutex<Option<Look>>,
    /// When it was told to close the image.
    told: OnceLock<Instant>,
    /// Somebody has waited for the end in vain: nobody does so again.
    is_given_up: AtomicBool,
    /// Somebody serves it: a reactor may be the last one who has it.
    is_served: AtomicBool,
}

impl Worker {
    pub(crate) fn ask(&self, chore: Chore) {
        // A thread that is gone lets the completer fall, which says that it has failed.
        let _ = self.chores.send(chore);
    }

    /// From now on who lets it go does not wait until it is closed.
    pub(crate) fn serve(&self) {
        self.is_served.store(true, Ordering::Relaxed);
    }
}

impl Worker {
    /// Has something done for somebody who waits for it.
    ///
    /// # Errors
    /// Why it is not done, or nobody knows whether it is. What was given up, or is not wanted any
    /// more, before it has begun does not begin.
    pub(crate) fn order(
        &self,
        place: &str,
        order: Order,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), RbdError> {
        let (tell, told) = mpsc::channel();
        let (begun, turn) = (Instant::now(), Arc::new(Turn::default()));
        let before = self.unanswered_since();
        let patience = if before.is_some() { BEHIND_UNANSWERED_MAX } else { CHORE_MAX };
        self.ask(Chore::Order { order, turn: Arc::clone(&turn), tell });
        let mut is_unwanted = false;
        let mut done = wait_while(&told, patience, || {
            is_unwanted = !is_wanted() && turn.take();
            !is_unwanted
        });
        if is_unwanted {
            return Err(RbdError::Unwanted { place: place.to_owned() });
        }
        let is_given_up = done.is_err() && turn.take();
        if done.is_err() && !is_given_up && before.is_some() {
            // What it was behind is over.
            done = told.recv_timeout(CHORE_MAX);
        }
        let place = place.to_owned();
        if let Ok(done) = done {
            return done.map_err(|refused| failed(place, (None, None), refused));
        }
        self.unanswered().get_or_insert((begun, turn));
        let seconds = before.unwrap_or(begun).elapsed().as_secs();
        match is_given_up {
            true => Err(RbdError::NotBegun { place, seconds }),
            false => Err(RbdError::Unanswered { place, seconds }),
        }
    }

    fn unanswered(&self) -> MutexGuard<'_, Option<(Instant, Arc<Turn>)>> {
        // What the lock guards is whole between any two statements.
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when an order waits that nobody waits for any more; None: there is none.
    fn unanswered_since(&self) -> Option<Instant> {
        let mut unanswered = self.unanswered();
        unanswered.take_if(|(_, turn)| turn.is_over.load(Ordering::SeqCst));
        unanswered.as_ref().map(|(since, _)| *since)
    }

    /// Has the image closed. Gives since when.
    pub(crate) fn begin_close(&self) -> Instant {
        *self.told.get_or_init(|| {
            self.ask(Chore::Close);
            Instant::now()
        })
    }

    /// Has the cluster asked for the size of the image.
    fn start_look(&self) -> Look {
        let (tell, told) = mpsc::channel();
        let turn = Arc::new(Turn::default());
        self.ask(Chore::Size { turn: Arc::clone(&turn), tell });
        (Instant::now(), turn, told)
    }

    /// The same, for whoever waits for it next.
    pub(crate) fn begin_look(&self) {
        if let Some((_, turn, _)) = self.look_begun().replace(self.start_look()) {
            // Nobody has waited for that one.
            turn.take();
        }
    }

    /// Waits until the cluster has said the size of the image.
    ///
    /// # Errors
    /// It does not say.
    pub(crate) fn look(&self, place: &str) -> Result<(), RbdError> {
        // Whoever has begun it with others may have waited for one of these all the time.
        let is_new = |(begun, ..): &Look| begun.elapsed() < 2 * LOOK_MAX;
        let before = self.look_begun().take().filter(is_new);
        let (begun, turn, told) = before.unwrap_or_else(|| self.start_look());
        told.recv_timeout(LOOK_MAX.saturating_sub(begun.elapsed())).map_err(|_| {
            turn.take();
            RbdError::NotSeen { place: place.to_owned(), seconds: LOOK_MAX.as_secs() }
        })
    }

    fn look_begun(&self) -> MutexGuard<'_, Option<Look>> {
        // What the lock guards is whole between any two statements.
        self.look_begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the image is closed, if that does not take too long: the next one who opens it
    /// may have to wait for our lock otherwise. The second time there is nothing to do.
    ///
    /// # Errors
    /// What was acknowledged may be lost, or nobody can tell.
    pub(crate) fn close(&self, patience: Duration) -> Result<(), Error> {
        let since = self.begin_close();
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_given_up = self.is_given_up.load(Ordering::Relaxed);
        let patience = if is_given_up { Duration::ZERO } else { patience };
        let patience = patience.saturating_sub(since.elapsed());
        match closed.recv_timeout(patience) {
            // It was closed before when nobody is there any more.
            Ok(Ok(())) | Err(RecvTimeoutError::Disconnected) => Ok(()),
            // Operations have not ended.
            Ok(Err(ETIMEDOUT)) => Err(Error::Silent),
            Ok(Err(_)) => Err(Error::Write),
            Err(RecvTimeoutError::Timeout) => {
                if !self.is_given_up.swap(true, Ordering::Relaxed) {
                    let image = &*self.name;
                    tracing::warn!(image, "not closed: the cluster does not answer");
                }
                Err(Error::Silent)
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Who wants to know has closed it before. A reactor that has the last of what did not end
        // in time goes on: others wait for it.
        match self.is_served.load(Ordering::Relaxed) {
            true => _ = self.begin_close(),
            false => _ = self.close(CLOSE_MAX),
        }
    }
}

/// Opens the image of `spec`.
pub(crate) fn open(api: &'static Api, spec: &RbdSpec) -> Result<Opened, RbdError> {
    let place = spec.place().to_string();
    let (chores, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let (end, closed) = mpsc::channel();
    let watched = Watched::new(chores.clone());
    let turn = Arc::new(Turn::default());
    let spawned = {
        let (spec, watched, turn) = (spec.clone(), Arc::clone(&watched), Arc::clone(&turn));
        thread::Builder::new().name("rbd".into()).spawn(move || {
            let opened = begin(api, &spec, &watched, &turn);
            let image = opened.as_ref().ok().map(|(image, ..)| Arc::clone(image));
            let piece_len = opened.as_ref().ok().map(|(_, facts, _)| facts.piece_len());
            let rounds = opened.as_ref().ok().map(|(_, facts, _)| Rounds::of(&spec, facts));
            if tell.send(opened).is_ok()
                && let (Some(image), Some(piece_len), Some(rounds)) = (&image, piece_len, rounds)
            {
                serve(image, &watched, piece_len, &asked, rounds);
            }
            watches::forget(&watched);
            // The image is closed when nothing is under way: what waits here does not begin.
            drop(asked);
            let closed = image.as_ref().map_or(Ok(()), |image| image.close());
            if let (Err(SendError(Ok(()))), Some(image)) = (end.send(closed), image) {
                // Who waited for it has given up, and may have said that it is not closed.
                let image = image.name();
                tracing::info!(image, "closed, when nobody waited for it any more");
            }
        })
    };
    spawned.map_err(|source| RbdError::Thread { place: place.clone(), source })?;
    let opened = wait_for(&told, &place).ok_or_else(|| {
        // Nobody wants it to be made any more.
        turn.take();
        RbdError::Silent { place: place.clone(), seconds: OPEN_MAX.as_secs() }
    })?;
    let (image, facts, made) =
        opened.map_err(|refused| failed(place, (conf(spec), spec.user.clone()), refused))?;
    let worker = Worker {
        name: image.name().into(),
        chores,
        closed: closed.into(),
        unanswered: Mutex::default(),
        look_begun: Mutex::default(),
        told: OnceLock::new(),
        is_given_up: AtomicBool::new(false),
        is_served: AtomicBool::new(false),
    };
    Ok(Opened { image, worker, facts, watched, made })
}

/// What comes in time, and before it `is_wanted` no more.
fn wait_while<T>(
    told: &Receiver<T>,
    patience: Duration,
    mut is_wanted: impl FnMut() -> bool,
) -> Result<T, RecvTimeoutError> {
    let begun = Instant::now();
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        match told.recv_timeout(left.min(WANTED_LOOK)) {
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < patience && is_wanted() => {}
            ended => return ended,
        }
    }
}

/// What comes in time; says meanwhile what it waits for.
fn wait_for<T>(told: &Receiver<T>, place: &str) -> Option<T> {
    let begun = Instant::now();
    loop {
        let left = OPEN_MAX.saturating_sub(begun.elapsed());
        match told.recv_timeout(left.min(OPEN_NOTICE)) {
            Ok(opened) => return Some(opened),
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < OPEN_MAX => {
                let waited = begun.elapsed().as_secs();
                tracing::info!(image = place, waited_s = waited, "waiting for the cluster of Ceph");
            }
            Err(_) => return None,
        }
    }
}

/// `by`: which configuration and whom, where they were named.
fn failed(
    place: String,
    by: (Option<String>, Option<String>),
    Refused { doing, errno }: Refused,
) -> RbdError {
    let ((conf, user), source) = (by, io::Error::from_raw_os_error(errno));
    RbdError::Failed { place, conf, user, doing, source }
}

/// The configuration that is read for an image, where it is named.
fn conf(spec: &RbdSpec) -> Option<String> {
    spec.conf.clone().or_else(|| std::env::var("CEPH_CONF").ok())
}

fn begin(
    api: &'static Api,
    spec: &RbdSpec,
    watched: &Arc<Watched>,
    turn: &Turn,
) -> Result<(Arc<Image>, Facts, bool), Refused> {
    let (mut image, mut facts, made) = connect(api, spec, &[], turn)?;
    if spec.snapshot.is_none() && facts.options.forgets_failures() {
        // The library takes these options before it has connected only.
        close(&image)?;
        (image, facts, _) = connect(api, spec, &WITHOUT_CACHE, turn)?;
    }
    // What the image or its pool says of its own goes before what we say.
    let refused = match (facts.options.forgets_failures(), facts.options.copies_writes()) {
        _ if spec.snapshot.is_some() => None,
        (true, _) => Some(Doing::Cache),
        (_, false) => Some(Doing::Lend),
        (false, true) => None,
    };
    if let Some(doing) = refused {
        close(&image)?;
        return Err(Refused { doing, errno: EOPNOTSUPP });
    }
    image.watch(watches::updated, watches::remember(watched))?;
    image.prepare(&facts, spec.snapshot.is_some());
    Ok((Arc::new(image), facts, made))
}

/// Opens the image by a connection of its own; whether it was made for that, which is not begun
/// when it is not its `turn` any more.
fn connect(
    api: &'static Api,
    spec: &RbdSpec,
    options: &[(&'static str, &'static str)],
    turn: &Turn,
) -> Result<(Image, Facts, bool), Refused> {
    let cluster = Arc::new(Cluster::connect(api, spec, options)?);
    let open = || match Image::open(IoContext::open(&cluster, spec)?, spec) {
        Err(Refused { doing: Doing::Open, errno: EPERM | EACCES | EROFS })
            if spec.snapshot.is_some() =>
        {
            let image = Image::open_read_only(IoContext::open(&cluster, spec)?, spec)?;
            tracing::warn!(
                image = image.name(),
                "the user may not watch the snapshot: if it is removed while it is served, hosts \
                 read zeroes; try: rbd snap protect"
            );
            Ok(image)
        }
        opened => opened,
    };
    let (image, made) = match (open(), spec.size.filter(|_| spec.create)) {
        (Err(Refused { doing: Doing::Open, errno: ENOENT }), bytes) => {
            let context = IoContext::open(&cluster, spec)?;
            if let Some(namespace) = &spec.namespace
                && !context.has_namespace(namespace)
            {
                return Err(Refused { doing: Doing::Namespace, errno: ENOENT });
            }
            if bytes.is_some() && !turn.take() {
                return Err(Refused { doing: Doing::Create, errno: ETIMEDOUT });
            }
            match bytes.map(|bytes| create(&context, spec, bytes)) {
                None if spec.snapshot.is_some() && is_there(context, spec) => {
                    return Err(Refused { doing: Doing::FindSnapshot, errno: ENOENT });
                }
                None => return Err(Refused { doing: Doing::Open, errno: ENOENT }),
                Some(made) => {
                    let made = made?;
                    (open()?, made)
                }
            }
        }
        (opened, _) => (opened?, false),
    };
    let facts = image.facts(spec)?;
    Ok((image, facts, made))
}

/// Makes the image; false if somebody else has done so meanwhile.
fn create(context: &IoContext, spec: &RbdSpec, bytes: u64) -> Result<bool, Refused> {
    match context.create(&spec.image, bytes) {
        Err(Refused { errno: EEXIST, .. }) => Ok(false),
        made => made.map(|()| {
            // Who has renamed the one that had this name learns it here.
            tracing::warn!(
                "made a new, empty image {} of {} (create)",
                spec.place(),
                Exactly(bytes)
            );
            true
        }),
    }
}

/// Whether the image of a snapshot that is missing is there.
fn is_there(context: IoContext, spec: &RbdSpec) -> bool {
    let image = RbdSpec { snapshot: None, ..spec.clone() };
    Image::open_read_only(context, &image).is_ok_and(|image| close(&image).is_ok())
}

fn close(image: &Image) -> Result<(), Refused> {
    image.close().map_err(|errno| Refused { doing: Doing::Open, errno })
}

fn serve(
    image: &Image,
    watched: &Watched,
    piece_len: u64,
    asked: &Receiver<Chore>,
    mut rounds: Rounds,
) {
    loop {
        let chore = match asked.recv_timeout(rounds.pause()) {
            Ok(chore) => chore,
            Err(RecvTimeoutError::Timeout) => {
                rounds.go(image, watched);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // Writes are checked against what is known of the end: that goes before all that is asked.
        if watched.is_in_doubt() {
            look(image, watched);
        }
        match chore {
            Chore::Status { offset, length, completer, counted } => {
                let run = image.status(offset, length.min(piece_len));
                image.beat();
                completer.complete_with(match run {
                    Ok(run) => Outcome::ProvisioningStatus(run),
                    Err(error) => Outcome::Failed(error),
                });
                drop(counted);
            }
            Chore::Order { order, turn, tell } if turn.take() => {
                let result = match &order {
                    Order::Resize(bytes) => image.resize(*bytes).inspect(|()| watched.note(*bytes)),
                    Order::Snapshot(name) => image.snapshot(name),
                };
                turn.is_over.store(true, Ordering::SeqCst);
                if let Err(SendError(done)) = tell.send(heeded(image, result)) {
                    tell_log(image, &order, done);
                }
            }
            Chore::Order { order, turn, .. } => {
                turn.is_over.store(true, Ordering::SeqCst);
                let image = image.name();
                tracing::info!(image, %order, "not done: nobody waits for it any more");
            }
            Chore::Look => rounds.look_at_name(image, watched),
            Chore::Size { turn, tell } if turn.take() => {
                // The library knows a size without the cluster.
                image.ask();
                look(image, watched);
                // Who has asked may have given up meanwhile.
                let _ = tell.send(());
            }
            Chore::Size { .. } => {}
            Chore::Ask => image.ask(),
            Chore::Close => return,
        }
    }
}

/// What has become of what somebody has ordered who has given up waiting.
fn tell_log(image: &Image, order: &Order, done: Result<(), Refused>) {
    let image = image.name();
    match done {
        Ok(()) => tracing::info!(image, %order, "done, for somebody who waits no more"),
        Err(Refused { errno, .. }) => {
            let error = io::Error::from_raw_os_error(errno);
            tracing::warn!(image, %order, %error, "failed, for somebody who waits no more");
        }
    }
}

/// What this is refused for may be what all is refused for.
fn heeded(image: &Image, result: Result<(), Refused>) -> Result<(), Refused> {
    result.inspect_err(|refused| image.heed(refused.errno))
}

/// Asks for the size of the image.
fn look(image: &Image, watched: &Watched) {
    match image.bytes() {
        Ok(bytes) => watched.note(bytes),
        // The snapshot is gone, which is told.
        Err(Refused { errno: ENOENT, .. }) => {}
        Err(Refused { errno, .. }) => {
            image.heed(errno);
            let (image, error) = (image.name(), io::Error::from_raw_os_error(errno));
            tracing::warn!(image, %error, "cannot ask for the size of an image of Ceph");
        }
    }
}

// Linux.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;
    use store::spec::Spec;

    #[test]
    fn an_image_that_nobody_waits_for_any_more_is_not_made() {
        let word = "rbd:pool/missing.given-up,create,size=1M";
        let Ok(Spec::Rbd(spec)) = word.parse() else { panic!("{word}") };
        let turn = Turn::default();
        assert!(turn.take());
        let refused = connect(&fake::API, &spec, &[], &turn).expect_err("it is given up");
        assert_eq!((refused.doing, refused.errno), (Doing::Create, ETIMEDOUT));
        let missing = connect(&fake::API, &RbdSpec { create: false, ..spec.clone() }, &[], &turn);
        assert_eq!(missing.err().map(|refused| refused.errno), Some(ENOENT), "it was made");
        let (image, _, made) = connect(&fake::API, &spec, &[], &Turn::default()).expect("made");
        assert!(made && image.close().is_ok());
    }
}
