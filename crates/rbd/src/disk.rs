// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An image as a store: `rbd:POOL/IMAGE`.
#![forbid(unsafe_code)]

use crate::api::Api;
use crate::claims::Claim;
use crate::claims::Claimed;
use crate::claims::Owner;
use crate::error::RbdError;
use crate::image::Facts;
use crate::image::Image;
use crate::keyring;
use crate::limits::BUSY_AFTER;
use crate::limits::CLOSE_MAX;
use crate::limits::CLOSE_SILENT_MAX;
use crate::limits::CLOSE_WELL_MAX;
use crate::limits::PHYSICAL_BLOCK;
use crate::limits::REPEATED_LEN;
use crate::limits::SILENT_AFTER;
use crate::worker;
use crate::worker::Chore;
use crate::worker::Opened;
use crate::worker::Order;
use buf::Slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Elsewhere;
use store::Error;
use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Outcome;
use store::Space;
use store::Store;
use store::Submitted;
use store::foreign;
use store::foreign::Completer;
use store::foreign::Errand;
use store::foreign::Foreign;
use store::spec::RbdSpec;

/// An image of Ceph.
#[derive(Debug)]
pub struct Rbd {
    opened: Arc<Opened>,
    /// All but the size.
    geometry: Geometry,
    bytes: AtomicU64,
    compare_unit: Option<u32>,
    /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
    place: String,
    /// New operations fail when the cluster has not answered for so long.
    busy: Duration,
}

/// What an image is, without being served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Its size.
    pub bytes: u64,
    /// More of one that is there; None: it would be made.
    pub made_of: Option<MadeOf>,
}

/// What an image that is there is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MadeOf {
    /// Bytes of one object.
    pub object_bytes: u64,
    /// Its features, in Ceph's words.
    pub features: Vec<String>,
    /// Its cache as it is served: `none`, `writethrough`, `writeback` or `persistent`.
    pub cache: &'static str,
}

/// The features of images, by their bits (`rbd/features.h`).
const FEATURES: [&str; 12] = [
    "layering",
    "striping",
    "exclusive-lock",
    "object-map",
    "fast-diff",
    "deep-flatten",
    "journaling",
    "data-pool",
    "operations",
    "migrating",
    "non-primary",
    "dirty-cache",
];

/// The names of the features whose bits are set; of one without a name its bit.
fn features(bits: u64) -> Vec<String> {
    let set = (0..u64::BITS).filter(|bit| bits >> bit & 1 == 1);
    let name = |bit: u32| match FEATURES.get(bit as usize) {
        Some(name) => (*name).to_owned(),
        None => format!("bit {bit}"),
    };
    set.map(name).collect()
}

impl Seen {
    pub(crate) fn of(image: &Rbd) -> Self {
        let facts = &image.opened.facts;
        let made_of = MadeOf {
            object_bytes: facts.object_size,
            features: features(facts.features),
            cache: facts.options.cache(),
        };
        Self { bytes: image.geometry().bytes, made_of: Some(made_of) }
    }
}

/// Looks at the image of `spec`, or at what would be made.
///
/// # Errors
/// It cannot be served.
pub fn examine(spec: &RbdSpec) -> Result<Seen, RbdError> {
    let size = spec.size.filter(|_| spec.create);
    let spec = RbdSpec { create: false, ..spec.clone() };
    match (Rbd::open_by(Api::load()?, &spec, Use::Look), size) {
        (Ok(image), _) => Ok(Seen::of(&image)),
        (Err(error), Some(bytes)) if error.is_no_image() => Ok(Seen { bytes, made_of: None }),
        (Err(error), _) => Err(error),
    }
}

/// What an image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Serve,
    Look,
}

impl Rbd {
    /// Opens the image of `spec`, or makes it. Waits for the cluster.
    ///
    /// # Errors
    /// There is no library, no cluster, no image, or it is not for us; the text says what to do.
    pub fn open(spec: &RbdSpec) -> Result<Self, RbdError> {
        Self::open_by(Api::load()?, spec, Use::Serve)
    }

    /// The same by functions that are not the library's: tests have some.
    pub(crate) fn open_by(api: &'static Api, spec: &RbdSpec, to: Use) -> Result<Self, RbdError> {
        keyring::check(spec)?;
        let opened = worker::open(api, spec)?;
        let facts = &opened.facts;
        let (bytes, place) = (facts.bytes, spec.place().to_string());
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_MIN) {
            return Err(RbdError::Size { place, bytes });
        }
        let read_only = spec.snapshot.is_some();
        let volatile_cache = !read_only && facts.options.may_lose_acknowledged();
        if to == Use::Serve {
            let what = Claimed::new(place.clone(), volatile_cache);
            let claim = Claim::of(&facts.identity, what, CLOSE_WELL_MAX);
            opened.image.keep(claim.map_err(|owner| match owner {
                Owner::Disk => RbdError::InUse { place: place.clone() },
                Owner::Closing => RbdError::Closing { place: place.clone() },
            })?);
            let cache = facts.options.cache();
            tracing::info!(image = place, bytes, cache, "an image of Ceph is open");
        }
        let geometry = Geometry {
            bytes,
            read_only,
            discard_granularity: (!read_only).then(|| facts.options.discard_granularity()),
            anchors: false,
            volatile_cache,
            physical_block: PHYSICAL_BLOCK,
            rotational: false,
        };
        let compare_unit = if read_only { None } else { compare_unit(facts) };
        let (bytes, busy) = (AtomicU64::new(bytes), spec.busy.unwrap_or(BUSY_AFTER));
        let opened = Arc::new(opened);
        Ok(Self { opened, geometry, bytes, compare_unit, place, busy })
    }

    /// Which image of which cluster this is, whoever serves it and whatever it is called.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.opened.facts.identity
    }

    /// Whether the image was made when it was opened.
    #[must_use]
    pub fn was_made(&self) -> bool {
        self.opened.made
    }

    fn make_snapshot(&self, name: &str, is_wanted: &dyn Fn() -> bool) -> Result<String, RbdError> {
        let (place, name) = (&self.place, name.to_owned());
        if name.is_empty() || name.contains(['/', '@', '\0']) {
            return Err(RbdError::SnapshotName { place: place.clone(), name });
        }
        let whole = format!("{place}@{name}");
        self.order(Order::Snapshot(name), is_wanted)?;
        Ok(whole)
    }

    /// Has something done by the cluster.
    fn order(&self, order: Order, is_wanted: &dyn Fn() -> bool) -> Result<(), RbdError> {
        self.serves()?;
        let done = self.opened.worker.order(&self.place, order, is_wanted);
        // It may be what this has shown.
        done.or_else(|error| self.serves().and(Err(error)))
    }

    fn serves(&self) -> Result<(), RbdError> {
        match self.opened.image.is_shut_out() {
            true => Err(RbdError::ShutOut { place: self.place.clone() }),
            false => Ok(()),
        }
    }

    fn ask(&self, deed: Deed, room: u32, step: u64) -> Submitted {
        let work = Arc::new(Piece { opened: Arc::clone(&self.opened), deed });
        Submitted::Io(Io::Foreign(Errand::reading(work, room).at_step(step)))
    }

    /// Whether it may be asked of the image: the library drops what lies behind an end that
    /// somebody else has moved, and says that all went well.
    fn check(&self, op: &Op) -> Result<(), Error> {
        let mut geometry = self.geometry();
        geometry.bytes = geometry.bytes.min(self.opened.watched.bytes().unwrap_or(u64::MAX));
        geometry.check(op)
    }

    /// The piece of a Clear or WriteSame that begins `done` bytes behind its first one; over if
    /// there is none.
    fn piece(&self, op: &Op, done: u64) -> Submitted {
        let (offset, length) = op.range();
        let (offset, length) = (offset + done, length.saturating_sub(done).min(self.piece_max(op)));
        let deed = match op {
            _ if length == 0 => return over(),
            Op::Clear { leave, .. } => Deed::Zero { offset, length, leave: *leave },
            Op::WriteSame { data, .. } => {
                Deed::Same { offset, length, data: repeated(data, offset, length) }
            }
            _ => return over(),
        };
        self.ask(deed, 0, done)
    }

    /// The longest piece of an operation on a range, bytes: so many that what is repeated is whole.
    fn piece_max(&self, op: &Op) -> u64 {
        let most = self.opened.facts.piece_len();
        match op {
            Op::WriteSame { data, .. } if !data.is_empty() => {
                most.next_multiple_of(data.len() as u64)
            }
            _ => most,
        }
    }

    /// Whether the cluster compares and writes these bytes as one.
    fn is_one(&self, offset: u64, length: u64) -> bool {
        let unit = self.compare_unit.map(u64::from);
        unit.is_some_and(|unit| offset % unit + length <= unit)
    }
}

/// `data` as often as the library can repeat it in the range without cutting it.
fn repeated(data: &Slice, offset: u64, length: u64) -> Slice {
    let each = data.len() as u64;
    let fits = |count: &usize| {
        let wide = each * *count as u64;
        wide <= REPEATED_LEN && offset.is_multiple_of(wide) && length.is_multiple_of(wide)
    };
    let doubled = std::iter::successors(Some(1_usize), |count| count.checked_mul(2));
    let count = doubled.skip(1).take_while(fits).last();
    count.map_or_else(|| data.clone(), |count| Slice::from(data.bytes().repeat(count)))
}

/// Half of a stripe unit: from where the client looks for the byte that differs
/// ([`place_of`](crate::flight)) as many bytes as are compared must lie in one stripe unit, or it
/// aborts.
fn compare_unit(facts: &Facts) -> Option<u32> {
    let half = u32::try_from(facts.stripe_unit / 2).unwrap_or(1 << 31);
    let fits = half.is_power_of_two() && u64::from(half) >= BLOCK_MIN;
    let options = &facts.options;
    (fits && options.has_no_cache() && options.has_room_in_journals()).then_some(half)
}

const fn over() -> Submitted {
    Submitted::Done(Outcome::Done)
}

/// A step of a Write: the second one is the flush that makes it last.
const FLUSH: u64 = 1;

impl Drop for Rbd {
    fn drop(&mut self) {
        self.opened.image.let_go();
    }
}

impl Store for Rbd {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes.load(Ordering::Acquire), ..self.geometry.clone() }
    }

    fn set_bytes(&self, bytes: u64) -> bool {
        self.bytes.store(bytes, Ordering::Release);
        true
    }

    fn optimal_io(&self) -> Option<u32> {
        u32::try_from(self.opened.facts.row).ok()
    }

    fn compare_unit(&self) -> Option<u32> {
        self.compare_unit
    }

    fn writes_same(&self) -> bool {
        self.opened.facts.options.has_room_in_journals()
    }

    fn lose_unknown(&self) {
        self.opened.image.lose_unknown();
    }

    fn may_have_lost(&self) -> bool {
        self.opened.image.may_have_lost()
    }

    fn bytes_behind(&self) -> Option<u64> {
        self.opened.watched.bytes()
    }

    fn begin_look(&self) {
        self.opened.worker.begin_look();
    }

    fn look_behind(&self) -> Option<Result<(), String>> {
        let Opened { image, worker, .. } = &*self.opened;
        // It may be what this has shown.
        let looked = self.serves().and_then(|()| worker.look(&self.place));
        let looked = if image.is_shut_out() { self.serves() } else { looked };
        Some(looked.map_err(|error| error.to_string()))
    }

    fn resize_behind(
        &self,
        bytes: u64,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Result<(), String>> {
        let done = self.order(Order::Resize(bytes), is_wanted);
        Some(done.map_err(|error| error.to_string()))
    }

    fn snapshot_behind(
        &self,
        name: &str,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Result<String, String>> {
        Some(self.make_snapshot(name, is_wanted).map_err(|error| error.to_string()))
    }

    fn elsewhere(&self) -> Option<Elsewhere> {
        let Opened { image, facts, watched, .. } = &*self.opened;
        Some(Elsewhere {
            who: "cluster",
            advice: "ceph health detail",
            busy_after: self.busy,
            is_busy: image.is_silent(self.busy),
            cache: facts.options.cache(),
            others: watched.others(),
            shut_out: image.is_shut_out(),
            lost: watched.fate().word(),
        })
    }

    fn begin_finish(&self) {
        self.opened.image.let_go();
        self.opened.worker.begin_close();
    }

    fn finish(&self) -> Result<(), Error> {
        self.begin_finish();
        let Opened { image, worker, .. } = &*self.opened;
        let keeps_writes = self.geometry.volatile_cache;
        let patience = match keeps_writes {
            true => CLOSE_MAX,
            false if image.is_silent(SILENT_AFTER) => CLOSE_SILENT_MAX,
            false => CLOSE_WELL_MAX,
        };
        let closed = worker.close(patience);
        // A flush has heard before what is lost: the end of the image does not say it again.
        let closed = if keeps_writes && image.may_have_lost() { Err(Error::Write) } else { closed };
        closed.map_err(|error| if keeps_writes { Error::Write } else { error })
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        if self.opened.image.is_shut_out() {
            // Librbd would keep it for ever, waiting for the right to write.
            let error = if matches!(op, Op::Flush) { Error::Write } else { Error::Internal };
            return Submitted::Done(Outcome::Failed(error));
        }
        if self.opened.image.is_silent(self.busy) {
            if self.opened.image.is_to_ask() {
                self.opened.worker.ask(Chore::Ask);
            }
            return Submitted::Done(Outcome::Failed(Error::Silent));
        }
        match op {
            Op::Read { length: 0, .. } => Submitted::Done(Outcome::Data(Slice::empty())),
            Op::Read { offset, length } => self.ask(Deed::Read { offset: *offset }, *length, 0),
            Op::Write { data, .. } if data.is_empty() => over(),
            Op::Write { offset, data, .. } => {
                self.ask(Deed::Write { offset: *offset, data: data.clone() }, 0, 0)
            }
            Op::Flush => self.ask(Deed::Flush, 0, 0),
            Op::Clear { .. } | Op::WriteSame { .. } => self.piece(op, 0),
            Op::CompareAndWrite { new, .. } if new.is_empty() => over(),
            Op::CompareAndWrite { offset, old, new, .. } => {
                if !self.is_one(*offset, new.len() as u64) {
                    return Submitted::Done(Outcome::Failed(Error::Unsupported));
                }
                let deed = Deed::Compare { offset: *offset, old: old.clone(), new: new.clone() };
                self.ask(deed, 0, 0)
            }
            Op::ProvisioningStatus { offset, length } => {
                self.ask(Deed::Status { offset: *offset, length: *length }, 0, 0)
            }
        }
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        let step = if let Io::Foreign(errand) = io { errand.step() } else { 0 };
        match (op, foreign::ended(result)) {
            // The end may have moved meanwhile.
            (op, Submitted::Done(Outcome::Done))
                if op.changes()
                    && let Err(error) = self.check(op) =>
            {
                Submitted::Done(Outcome::Failed(error))
            }
            // Without a volatile cache what is written lasts; so does what was compared.
            (Op::Write { durable: true, .. }, Submitted::Done(Outcome::Done))
                if step != FLUSH && self.geometry.volatile_cache =>
            {
                self.ask(Deed::Flush, 0, FLUSH)
            }
            (Op::Clear { .. } | Op::WriteSame { .. }, Submitted::Done(Outcome::Done)) => {
                self.piece(op, step.saturating_add(self.piece_max(op)))
            }
            (_, ended) => ended,
        }
    }
}

/// What the library is asked for.
#[derive(Debug)]
enum Deed {
    Read { offset: u64 },
    Write { offset: u64, data: Slice },
    Zero { offset: u64, length: u64, leave: Space },
    Same { offset: u64, length: u64, data: Slice },
    Compare { offset: u64, old: Slice, new: Slice },
    Flush,
    Status { offset: u64, length: u64 },
}

/// One operation on its way to the library, which cannot be told that nobody waits any more.
#[derive(Debug)]
struct Piece {
    opened: Arc<Opened>,
    deed: Deed,
}

impl Foreign for Piece {
    fn begin(&self, completer: Completer) {
        let Opened { image, worker, .. } = &*self.opened;
        let image: &Image = image;
        worker.serve();
        match &self.deed {
            Deed::Read { offset } => image.read(*offset, completer),
            Deed::Write { offset, data } => image.write(*offset, data.clone(), completer),
            Deed::Zero { offset, length, leave } => image.zero(*offset, *length, *leave, completer),
            Deed::Same { offset, length, data } => {
                image.write_same(*offset, *length, data.clone(), completer);
            }
            Deed::Compare { offset, old, new } => {
                image.compare_and_write(*offset, (old.clone(), new.clone()), completer);
            }
            Deed::Flush => image.flush(completer),
            Deed::Status { offset, length } => {
                let counted = image.count();
                worker.ask(Chore::Status { offset: *offset, length: *length, completer, counted });
            }
        }
    }
}

/// Sizes of stores are multiples of it, bytes.
const BLOCK_MIN: u64 = 512;
