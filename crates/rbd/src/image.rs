// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open image: what it is, and what is asked of it whole.

mod names;
mod operations;

use crate::api::Api;
use crate::api::ConfigOption;
use crate::api::Info;
use crate::api::Raw;
use crate::api::Watcher;
use crate::cache::Options;
use crate::claims::Claim;
use crate::cluster::Handle;
use crate::cluster::IoContext;
use crate::cluster::Refused;
use crate::cluster::argument;
use crate::cluster::check;
use crate::cluster::pointer;
use crate::cluster::text;
use crate::cluster::until_zero;
use crate::error::Doing;
use crate::error::of_operation;
use crate::flight::Counted;
use crate::flushes::Flushes;
use crate::limits::LINGER_LOOK;
use crate::limits::LINGER_MAX;
use crate::limits::OPTIONS_MAX;
use crate::limits::PHYSICAL_BLOCK;
use crate::limits::PIECE_LEN_MAX;
use crate::limits::ROWS_MAX;
use crate::limits::WATCHERS_MAX;
use crate::look::Look;
use crate::look::extent;
use crate::pulse::Pulse;
use std::ffi::CStr;
use std::ffi::CString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::null;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;
use store::Error;
use store::Run;
use store::spec::RbdSpec;

/// An open image. One that was not closed when it is dropped, and cannot be, stays open for ever.
#[derive(Debug)]
pub(crate) struct Image {
    core: Arc<Core>,
    /// Open as long as the image is.
    context: ManuallyDrop<IoContext>,
    /// Nothing begins any more.
    is_closed: AtomicBool,
    /// The library has it no more.
    is_gone: AtomicBool,
    watch: Option<u64>,
    /// An object that an image of this name may have; that there is none is an answer, too.
    object: CString,
    /// The cluster was asked whether it answers at all, and has not.
    is_asked: AtomicBool,
    /// The right to serve it, until it is closed.
    claim: Mutex<Option<Claim>>,
}

/// How an image is opened.
type Open = unsafe extern "C" fn(Raw, *const c_char, *mut Raw, *const c_char) -> c_int;

/// What operations need of their image until they end.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) api: &'static Api,
    /// Open while anything is under way.
    handle: Handle,
    /// `POOL/IMAGE`.
    pub(crate) name: Arc<str>,
    /// Operations, and calls that begin them.
    under_way: Arc<AtomicUsize>,
    pub(crate) flushes: Flushes,
    pub(crate) pulse: Pulse,
    is_shut_out: AtomicBool,
    /// Bytes that lie together in one object, before others of the image come in another one.
    pub(crate) stripe_unit: u64,
    /// It was told that the client does not compare and write what it was asked to.
    is_told: AtomicBool,
}

/// What has become of an image by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is found.
    #[default]
    Kept,
    /// It, or the snapshot, has another name, or lies in the trash.
    Moved,
    /// Another one has the name.
    Replaced,
    /// The snapshot is no more.
    Removed,
}

impl Fate {
    /// In a word, if it is lost.
    pub(crate) const fn word(self) -> Option<&'static str> {
        match self {
            Self::Kept => None,
            Self::Moved => Some("moved"),
            Self::Replaced => Some("replaced"),
            Self::Removed => Some("removed"),
        }
    }
}

/// A snapshot as it was opened.
#[derive(Clone, Debug)]
pub(crate) struct Snap {
    pub(crate) name: String,
    /// Which its name does not change.
    pub(crate) number: u64,
}

/// What an image is made of.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) bytes: u64,
    /// Bytes of one object.
    pub(crate) object_size: u64,
    /// A bit for each feature.
    pub(crate) features: u64,
    /// Bytes that lie in one object, or in one row of objects.
    pub(crate) row: u64,
    /// Bytes that lie together in one object.
    pub(crate) stripe_unit: u64,
    pub(crate) options: Options,
    /// The number of the image, which its name does not change.
    pub(crate) id: Option<String>,
    pub(crate) snapshot: Option<Snap>,
    /// Which image it is, wherever it is served and whatever it is called.
    pub(crate) identity: String,
}

impl Facts {
    /// Bytes that one call is about at most.
    pub(crate) fn piece_len(&self) -> u64 {
        self.row.saturating_mul(ROWS_MAX).min(PIECE_LEN_MAX)
    }
}

impl Image {
    /// Opens the image, or the snapshot, of `spec`.
    pub(crate) fn open(context: IoContext, spec: &RbdSpec) -> Result<Self, Refused> {
        let api = context.api();
        // One that is opened to be read alone is not watched: a snapshot that is removed would be
        // read as zeroes from then on.
        Self::open_by(api.rbd_open, context, spec)
    }

    /// The same to look at it.
    pub(crate) fn open_read_only(context: IoContext, spec: &RbdSpec) -> Result<Self, Refused> {
        Self::open_by(context.api().rbd_open_read_only, context, spec)
    }

    fn open_by(open: Open, context: IoContext, spec: &RbdSpec) -> Result<Self, Refused> {
        let api = context.api();
        let name = text(Doing::Open, &spec.image)?;
        let snapshot = spec.snapshot.as_deref().map(|name| text(Doing::Open, name)).transpose()?;
        let object = text(Doing::Open, &format!("rbd_id.{}", spec.image))?;
        let mut raw = null_mut();
        // SAFETY: the context is open and stays so; names are null or end with a zero; the place is
        // ours.
        let result = unsafe {
            open(context.handle.0, name.as_ptr(), &raw mut raw, pointer(snapshot.as_ref()))
        };
        check(Doing::Open, result)?;
        Ok(Self {
            core: Arc::new(Core {
                api,
                handle: Handle(raw),
                name: spec.place().to_string().into(),
                under_way: Arc::default(),
                flushes: Flushes::new(0, PHYSICAL_BLOCK, true),
                pulse: Pulse::new(),
                is_shut_out: AtomicBool::new(false),
                stripe_unit: 0,
                is_told: AtomicBool::new(false),
            }),
            context: ManuallyDrop::new(context),
            is_closed: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            watch: None,
            object,
            is_asked: AtomicBool::new(false),
            claim: Mutex::default(),
        })
    }

    /// It is what `facts` say. Before anything is under way.
    pub(crate) fn prepare(&mut self, facts: &Facts, is_snapshot: bool) {
        if let Some(core) = Arc::get_mut(&mut self.core) {
            // What nobody writes to loses nothing, whatever its cache is for.
            let volatile = !is_snapshot && facts.options.may_lose_acknowledged();
            core.flushes = Flushes::new(facts.bytes, PHYSICAL_BLOCK, volatile);
            core.stripe_unit = facts.stripe_unit;
        }
    }

    fn api(&self) -> &'static Api {
        self.core.api
    }

    fn claim(&self) -> MutexGuard<'_, Option<Claim>> {
        // What the lock guards is whole between any two statements.
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is to be served: nobody else does so until it is closed.
    pub(crate) fn keep(&self, claim: Claim) {
        *self.claim() = Some(claim);
    }

    /// It is not served any more.
    pub(crate) fn let_go(&self) {
        self.claim().iter().for_each(Claim::begin_to_close);
    }

    /// What is asked of the thread of the image is under way as operations are.
    pub(crate) fn count(&self) -> Counted {
        self.core.count()
    }

    /// Such a thing has ended.
    pub(crate) fn beat(&self) {
        self.core.pulse.beat();
    }

    pub(crate) fn facts(&self, spec: &RbdSpec) -> Result<Facts, Refused> {
        let mut info = Info {
            size: 0,
            object_size: 0,
            objects: 0,
            order: 0,
            prefix: [0; 24],
            parent_pool: 0,
            parent_name: [0; 96],
        };
        // SAFETY: the image is open, and the place has the length that is said.
        let result =
            unsafe { (self.api().rbd_stat)(self.core.handle.0, &raw mut info, size_of::<Info>()) };
        check(Doing::Facts, result)?;
        let (mut stripes, mut stripe_unit) = (1_u64, 0_u64);
        // SAFETY: the image is open, and the place is ours.
        let result =
            unsafe { (self.api().rbd_get_stripe_count)(self.core.handle.0, &raw mut stripes) };
        check(Doing::Facts, result)?;
        // SAFETY: the same.
        let result =
            unsafe { (self.api().rbd_get_stripe_unit)(self.core.handle.0, &raw mut stripe_unit) };
        check(Doing::Facts, result)?;
        let mut features = 0_u64;
        // SAFETY: the same.
        let result =
            unsafe { (self.api().rbd_get_features)(self.core.handle.0, &raw mut features) };
        check(Doing::Facts, result)?;
        let object_size = info.object_size;
        let row = object_size.saturating_mul(stripes.max(1));
        let fsid = self.context.cluster.fsid();
        let (pool, id) = (self.context.pool_number(), self.id());
        let named = id.as_deref().unwrap_or(&spec.image);
        let identity = format!(
            "{fsid}/{pool}/{}/{named}@{}",
            spec.namespace.as_deref().unwrap_or_default(),
            spec.snapshot.as_deref().unwrap_or_default()
        );
        let snap = |name: &String| match self.snapshot_number(name)? {
            Some(number) => Ok(Snap { name: name.clone(), number }),
            None => Err(Refused { doing: Doing::FindSnapshot, errno: ENOENT }),
        };
        let snapshot = spec.snapshot.as_ref().map(snap).transpose()?;
        let options = self.options();
        Ok(Facts {
            bytes: info.size,
            object_size,
            features,
            row,
            stripe_unit,
            options,
            id,
            snapshot,
            identity,
        })
    }

    /// The number of the image, which its name does not change. Images of old form have none.
    fn id(&self) -> Option<String> {
        let mut buffer = [0_u8; 128];
        let to = buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: the image is open, and as many bytes as are said are there.
        let result = unsafe { (self.api().rbd_get_id)(self.core.handle.0, to, buffer.len()) };
        (result >= 0).then(|| until_zero(&buffer)).filter(|id| !id.is_empty())
    }

    /// The options that are in force; none if they are not told.
    fn options(&self) -> Options {
        let mut count: c_int = 0;
        // SAFETY: the image is open; there is room for no option, which is said.
        unsafe {
            (self.api().rbd_config_image_list)(self.core.handle.0, null_mut(), &raw mut count)
        };
        let room = usize::try_from(count).unwrap_or(0).min(OPTIONS_MAX);
        let empty = ConfigOption { name: null_mut(), value: null_mut(), source: 0 };
        let mut list = vec![empty; room];
        let mut count = c_int::try_from(room).unwrap_or(0);
        // SAFETY: the image is open, and there is room for as many options as are said.
        let result = unsafe {
            (self.api().rbd_config_image_list)(
                self.core.handle.0,
                list.as_mut_ptr(),
                &raw mut count,
            )
        };
        if result < 0 {
            return Options::default();
        }
        let given = usize::try_from(count).unwrap_or(0).min(room);
        let option = |option: &ConfigOption| Some((owned(option.name)?, owned(option.value)?));
        let options = list.iter().take(given).filter_map(option).collect();
        // SAFETY: the list is the one that the library has filled, with as many options as it said.
        unsafe { (self.api().rbd_config_image_list_cleanup)(list.as_mut_ptr(), count) };
        Options::new(options)
    }

    /// Addresses of the other clients that have it open.
    pub(crate) fn others(&self) -> Result<Vec<String>, Refused> {
        let empty = Watcher { address: null_mut(), client: 0, cookie: 0 };
        let mut list = vec![empty; WATCHERS_MAX];
        let mut count = list.len();
        // SAFETY: the image is open, and there is room for as many clients as are said.
        let result = unsafe {
            let ask = self.api().rbd_watchers_list;
            ask(self.core.handle.0, list.as_mut_ptr(), &raw mut count)
        };
        check(Doing::Watch, result)?;
        let own = self.context.cluster.number();
        let others = list.iter().take(count).filter(|one| u64::try_from(one.client) != Ok(own));
        let others = others.filter_map(|one| owned(one.address)).collect();
        // SAFETY: the list is the one that the library has filled, with as many clients as it said.
        unsafe { (self.api().rbd_watchers_list_cleanup)(list.as_mut_ptr(), count) };
        Ok(others)
    }

    /// Its size now, bytes.
    pub(crate) fn bytes(&self) -> Result<u64, Refused> {
        let mut bytes = 0;
        // SAFETY: the image is open, and the place is ours.
        let result = unsafe { (self.api().rbd_get_size)(self.core.handle.0, &raw mut bytes) };
        check(Doing::Facts, result)?;
        Ok(bytes)
    }

    /// From now on `updated` is called with `number` when the image may have changed.
    pub(crate) fn watch(
        &mut self,
        updated: unsafe extern "C" fn(*mut c_void),
        number: usize,
    ) -> Result<(), Refused> {
        let mut watch = 0;
        // SAFETY: the image is open, the place is ours, and the argument is a number, no place.
        let result = unsafe {
            let update = self.api().rbd_update_watch;
            update(self.core.handle.0, &raw mut watch, updated, argument(number))
        };
        check(Doing::Watch, result)?;
        self.watch = Some(watch);
        Ok(())
    }

    /// `POOL/IMAGE`.
    pub(crate) fn name(&self) -> &str {
        &self.core.name
    }

    /// Whether the cluster takes nothing from us any more.
    pub(crate) fn is_shut_out(&self) -> bool {
        self.core.is_shut_out.load(Ordering::Relaxed)
    }

    pub(crate) fn lose_unknown(&self) {
        self.core.flushes.lose_unknown();
    }

    pub(crate) fn may_have_lost(&self) -> bool {
        self.core.flushes.may_have_lost()
    }

    /// Something was asked of the cluster, and this is what it refused it for.
    pub(crate) fn heed(&self, errno: i32) {
        if errno == ESHUTDOWN {
            self.core.shut_out();
        }
    }

    /// Whether operations are under way, and none of them has ended for `limit`.
    pub(crate) fn is_silent(&self, limit: Duration) -> bool {
        let core = &self.core;
        core.under_way.load(Ordering::SeqCst) > 0 && core.pulse.is_silent(limit)
    }

    /// Whether somebody is to call `ask`, which nobody else does yet.
    pub(crate) fn is_to_ask(&self) -> bool {
        !self.is_asked.swap(true, Ordering::SeqCst)
    }

    /// Has an OSD say anything at all. One operation that never ends is not a cluster that does
    /// not answer: librbd has such for bytes that went with the end of the image. Waits for the
    /// cluster.
    pub(crate) fn ask(&self) {
        let (mut bytes, mut changed) = (0, 0);
        // SAFETY: the context is open, the name ends with a zero, the places are ours.
        let result = unsafe {
            let stat = self.api().rados_stat;
            stat(self.context.handle.0, self.object.as_ptr(), &raw mut bytes, &raw mut changed)
        };
        self.heed(result.saturating_neg());
        self.core.pulse.beat();
        self.is_asked.store(false, Ordering::SeqCst);
    }

    /// Gives it another size. Waits for the cluster.
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), Refused> {
        // SAFETY: the image is open.
        let result = unsafe { (self.api().rbd_resize)(self.core.handle.0, bytes) };
        check(Doing::Resize, result)
    }

    /// Makes a snapshot of it. Waits for the cluster.
    pub(crate) fn snapshot(&self, name: &str) -> Result<(), Refused> {
        let name = text(Doing::Snapshot, name)?;
        // SAFETY: the image is open, and the name ends with a zero.
        let result = unsafe { (self.api().rbd_snap_create)(self.core.handle.0, name.as_ptr()) };
        check(Doing::Snapshot, result)
    }

    /// What stands behind the bytes at `offset`. Waits for the cluster.
    pub(crate) fn status(&self, offset: u64, length: u64) -> Result<Run, Error> {
        let mut look = Look::at(offset);
        let (parents, whole_objects) = (1, 1);
        // SAFETY: the image is open; `extent` is called before this returns only, with `look`,
        // which outlives the call.
        let result = unsafe {
            (self.api().rbd_diff_iterate2)(
                self.core.handle.0,
                null(),
                offset,
                length,
                parents,
                whole_objects,
                extent,
                (&raw mut look).cast(),
            )
        };
        if result < 0 {
            self.heed(result.saturating_neg());
            return Err(of_operation(result.saturating_neg(), Error::Read));
        }
        Ok(look.run(length))
    }
}

/// The text that the library points to; None if it points nowhere.
fn owned(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library gives texts that end with a zero and are valid until the list that they
    // are in is cleaned up, which is after this.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

impl Image {
    /// Closes it, once, when all that is under way has ended; the errno if what was written last
    /// may be lost. Only the thread of the image calls it, or whoever drops it.
    pub(crate) fn close(&self) -> Result<(), i32> {
        self.is_closed.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        while self.core.under_way.load(Ordering::SeqCst) > 0 {
            if begin.elapsed() > LINGER_MAX {
                let (image, left) = (&*self.core.name, self.core.under_way.load(Ordering::Relaxed));
                tracing::error!(image, left, "stays open: operations have not ended");
                return Err(ETIMEDOUT);
            }
            std::thread::sleep(LINGER_LOOK);
        }
        if self.is_gone.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        if let Some(watch) = self.watch {
            // SAFETY: the image is open, and this is its watch.
            unsafe { (self.api().rbd_update_unwatch)(self.core.handle.0, watch) };
        }
        // SAFETY: the image is open, nothing is under way, and nobody else has its handle.
        let result = unsafe { (self.api().rbd_close)(self.core.handle.0) };
        drop(self.claim().take());
        if result < 0 {
            let (image, errno) = (&*self.core.name, result.saturating_neg());
            tracing::error!(image, errno, "closed, but what was written last may be lost");
            return Err(errno);
        }
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Without waiting: who can wait has closed it before. An error was told.
        if self.core.under_way.load(Ordering::SeqCst) == 0 {
            let _ = self.close();
        }
        if self.is_gone.load(Ordering::SeqCst) {
            // SAFETY: dropped once, here, and not used any more: the image is closed.
            unsafe { ManuallyDrop::drop(&mut self.context) };
        } else {
            // What is under way may change the image at any time.
            std::mem::forget(self.claim().take());
        }
    }
}

// Linux.
const ENOENT: i32 = 2;
const ESHUTDOWN: i32 = 108;
const ETIMEDOUT: i32 = 110;
