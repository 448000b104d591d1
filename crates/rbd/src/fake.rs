// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A library that behaves as badly as its images are named: `late`, `twice`, `never`, `other`
//! (threads), `ends-N` and `begins-N` (with errno N), `short`, `insists` and `lends` (on all
//! options), `caches` (insists on its cache), `stuck` (what is written never ends), `sector`
//! (compares no more than one), `narrow` (in its stripe units), `nowhere` (says nothing of what
//! differs), `journals` (in small entries), `blocked` (tells orders and questions that it is). The
//! name goes on behind a dot; one that ends with `.bare` has no cache of its own
//! accord.

mod functions;

use crate::api::Api;
use crate::api::Completed;
use crate::api::Raw;
use crate::api::Updated;
use functions::rados_cluster_fsid;
use functions::rados_conf_get;
use functions::rados_conf_read_file;
use functions::rados_conf_set;
use functions::rados_connect;
use functions::rados_create;
use functions::rados_get_instance_id;
use functions::rados_ioctx_create;
use functions::rados_ioctx_destroy;
use functions::rados_ioctx_get_id;
use functions::rados_ioctx_set_namespace;
use functions::rados_read;
use functions::rados_set_pool_full_try;
use functions::rados_shutdown;
use functions::rados_stat;
use functions::rbd_aio_compare_and_write;
use functions::rbd_aio_create_completion;
use functions::rbd_aio_flush;
use functions::rbd_aio_get_return_value;
use functions::rbd_aio_read;
use functions::rbd_aio_release;
use functions::rbd_aio_write;
use functions::rbd_aio_write_zeroes;
use functions::rbd_aio_writesame;
use functions::rbd_close;
use functions::rbd_config_image_list;
use functions::rbd_config_image_list_cleanup;
use functions::rbd_create;
use functions::rbd_diff_iterate2;
use functions::rbd_get_features;
use functions::rbd_get_id;
use functions::rbd_get_size;
use functions::rbd_get_stripe_count;
use functions::rbd_get_stripe_unit;
use functions::rbd_namespace_exists;
use functions::rbd_open;
use functions::rbd_resize;
use functions::rbd_snap_create;
use functions::rbd_snap_get_id;
use functions::rbd_snap_get_name;
use functions::rbd_stat;
use functions::rbd_update_unwatch;
use functions::rbd_update_watch;
use functions::rbd_watchers_list;
use functions::rbd_watchers_list_cleanup;
use functions::version;
use std::cell::Cell;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Bytes of an image that nobody has made.
pub(crate) const BYTES: u64 = 1 << 20;

/// Bytes of an entry of a journal, with its head.
const JOURNAL_ENTRY: usize = 16 << 10;

/// The number of this client.
const OWN: u64 = 4711;

/// Bytes of an object.
pub(crate) const OBJECT: u64 = 64 << 10;

pub(crate) static API: Api = Api {
    rados_version: version,
    rados_create,
    rados_conf_read_file,
    rados_conf_set,
    rados_conf_get,
    rados_connect,
    rados_shutdown,
    rados_get_instance_id,
    rados_cluster_fsid,
    rados_ioctx_create,
    rados_ioctx_set_namespace,
    rados_ioctx_get_id,
    rados_set_pool_full_try,
    rados_read,
    rados_stat,
    rados_ioctx_destroy,
    rbd_version: version,
    rbd_create,
    rbd_open,
    rbd_open_read_only: rbd_open,
    rbd_namespace_exists,
    rbd_watchers_list,
    rbd_watchers_list_cleanup,
    rbd_close,
    rbd_stat,
    rbd_get_size,
    rbd_resize,
    rbd_snap_get_id,
    rbd_snap_get_name,
    rbd_snap_create,
    rbd_get_stripe_unit,
    rbd_get_features,
    rbd_get_stripe_count,
    rbd_get_id,
    rbd_config_image_list,
    rbd_config_image_list_cleanup,
    rbd_update_watch,
    rbd_update_unwatch,
    rbd_diff_iterate2,
    rbd_aio_create_completion,
    rbd_aio_get_return_value,
    rbd_aio_release,
    rbd_aio_read,
    rbd_aio_write,
    rbd_aio_write_zeroes,
    rbd_aio_writesame,
    rbd_aio_compare_and_write,
    rbd_aio_flush,
};

thread_local! {
    /// What the cluster of this thread was told. An image called `insists` does not care, and one
    /// called `caches` does not when it is about its cache.
    static TOLD: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
    /// It takes this option no more.
    static IS_CONNECTED: Cell<bool> = const { Cell::new(false) };
}

/// What was done that no library would stand.
pub(crate) static MISUSES: AtomicUsize = AtomicUsize::new(0);

/// Images by their names; they stay.
static IMAGES: Mutex<BTreeMap<String, Arc<Fake>>> = Mutex::new(BTreeMap::new());

/// An image.
#[derive(Debug)]
pub(crate) struct Fake {
    manner: String,
    bytes: Mutex<Vec<u8>>,
    /// Ends that nobody was told.
    held: Mutex<Vec<End>>,
    /// What was done, by name.
    done: Mutex<Vec<&'static str>>,
    /// Bytes of what was to be repeated.
    repeated: Mutex<Vec<usize>>,
    watch: Mutex<Option<(Updated, usize)>>,
    /// What flushes end with, the next one first; then they end well.
    flush_ends: Mutex<VecDeque<i32>>,
    /// Open handles.
    handles: AtomicUsize,
    /// How many other clients have it open.
    others: AtomicUsize,
    /// What has become of its name.
    fate: Mutex<&'static str>,
    /// What is not begun to end later, such as orders, is held back as long as somebody has this.
    gate: Mutex<()>,
    options: Vec<(&'static str, &'static str)>,
}

/// What is called at the end, and with what.
#[derive(Clone, Copy, Debug)]
struct End {
    completion: usize,
    /// Which byte differs, and where that is to be written.
    mismatch: Option<(u64, usize)>,
}

#[derive(Debug)]
struct Completion {
    callback: Completed,
    argument: usize,
    value: Mutex<isize>,
    releases: AtomicUsize,
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("small")
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[track_caller]
fn misuse(holds: bool) {
    if !holds {
        eprintln!("misuse: {}", std::panic::Location::caller());
        MISUSES.fetch_add(1, Ordering::SeqCst);
    }
}

impl Fake {
    /// The image of this name, which is made if nobody has.
    pub(crate) fn of(name: &str) -> Arc<Self> {
        Arc::clone(locked(&IMAGES).entry(name.to_owned()).or_insert_with(|| Self::new(name, BYTES)))
    }

    fn new(name: &str, bytes: u64) -> Arc<Self> {
        let manner = name.split('.').next().unwrap_or_default().to_owned();
        let lends = manner == "lends";
        let journals = manner == "journals";
        let is_bare = manner == "safe" || lends || name.ends_with(".bare");
        let cache = if is_bare { "false" } else { "true" };
        Arc::new(Self {
            manner,
            bytes: Mutex::new(vec![0; size(bytes)]),
            held: Mutex::default(),
            done: Mutex::default(),
            repeated: Mutex::default(),
            watch: Mutex::default(),
            flush_ends: Mutex::default(),
            handles: AtomicUsize::new(0),
            others: AtomicUsize::new(0),
            fate: Mutex::default(),
            gate: Mutex::default(),
            options: vec![
                ("rbd_cache", cache),
                // Ceph's default.
                ("rbd_cache_policy", "writearound"),
                ("rbd_disable_zero_copy_writes", if lends { "false" } else { "true" }),
                ("rbd_discard_granularity_bytes", "65536"),
                ("rbd_journal_max_payload_bytes", if journals { "8192" } else { "16384" }),
            ],
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.handles.load(Ordering::SeqCst) > 0
    }

    /// So many others have it open.
    pub(crate) fn set_others(&self, count: usize) {
        self.others.store(count, Ordering::SeqCst);
    }

    /// Its name is as it was, or it is `moved` or `replaced`, or its snapshots are `removed`; or
    /// the client is `blocked`.
    pub(crate) fn set_fate(&self, fate: &'static str) {
        *locked(&self.fate) = fate;
    }

    fn id(&self) -> String {
        format!("{self:p}")
    }

    /// No order, no look at what stands behind bytes and no close ends before this is dropped.
    pub(crate) fn hold_orders(&self) -> MutexGuard<'_, ()> {
        locked(&self.gate)
    }

    pub(crate) fn done(&self) -> Vec<&'static str> {
        locked(&self.done).clone()
    }

    pub(crate) fn repeated(&self) -> Vec<usize> {
        locked(&self.repeated).clone()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        locked(&self.bytes).clone()
    }

    /// Somebody else gives it another size; who watches is told by another thread.
    pub(crate) fn resize(&self, bytes: usize) {
        locked(&self.bytes).resize(bytes, 0);
        let Some((updated, argument)) = *locked(&self.watch) else { return };
        let told = thread::spawn(move || {
            // SAFETY: as the library does it: with the argument of the watch.
            unsafe { updated(crate::cluster::argument(argument)) }
        });
        told.join().expect("no panic");
    }

    /// The next flush fails so: that is how the library tells, once, that it has lost writes.
    pub(crate) fn fail_flush(&self, errno: i32) {
        locked(&self.flush_ends).push_back(-errno);
    }

    /// Ends that are held back.
    pub(crate) fn held(&self) -> usize {
        locked(&self.held).len()
    }

    /// What was held back ends after all.
    pub(crate) fn end_all(&self) {
        let held = std::mem::take(&mut *locked(&self.held));
        held.into_iter().for_each(End::tell);
    }

    /// Ends the operation of `completion`, whose result is `value`, as is the manner.
    fn end(&self, what: &'static str, completion: Raw, value: isize) -> c_int {
        self.end_with(what, completion, value, None)
    }

    fn end_with(
        &self,
        what: &'static str,
        completion: Raw,
        value: isize,
        mismatch: Option<(u64, usize)>,
    ) -> c_int {
        let number = |manner: &str| self.manner.strip_prefix(manner).map(|n| n.parse::<i32>());
        if let Some(errno) = number("begins-") {
            return -errno.expect("a number");
        }
        let value = match number("ends-") {
            Some(errno) => -errno.expect("a number") as isize,
            None if self.manner == "short" => value / 2,
            None => value,
        };
        locked(&self.done).push(what);
        *locked(&of_completion(completion).value) = value;
        let end = End { completion: completion.addr(), mismatch };
        match &*self.manner {
            "never" => locked(&self.held).push(end),
            "stuck" if what == "write" => locked(&self.held).push(end),
            "late" => drop(thread::spawn(move || {
                thread::sleep(Duration::from_millis(end.completion as u64 / 64 % 3));
                end.tell();
            })),
            "other" => drop(thread::spawn(move || end.tell())),
            "twice" => {
                end.tell();
                let again = End { mismatch: None, ..end };
                thread::spawn(move || again.tell());
                again.tell();
            }
            _ => end.tell(),
        }
        0
    }
}

impl End {
    fn tell(self) {
        if let Some((at, place)) = self.mismatch {
            // SAFETY: who calls gives a place that stays until the end is told.
            unsafe { std::ptr::with_exposed_provenance_mut::<u64>(place).write(at) };
        }
        let completion = std::ptr::with_exposed_provenance_mut(self.completion);
        let Completion { callback, argument, .. } = of_completion(completion);
        // SAFETY: as the library does it: with the argument of the completion.
        unsafe { callback(completion, crate::cluster::argument(*argument)) };
    }
}

/// Completions are never freed, so that a second end can be looked at.
fn of_completion(raw: Raw) -> &'static Completion {
    // SAFETY: made by `rbd_aio_create_completion` below, and never freed.
    unsafe { &*raw.cast::<Completion>() }
}

#[track_caller]
fn of_image(raw: Raw) -> &'static Fake {
    // SAFETY: made by `rbd_open` below, and never freed.
    let image = unsafe { &*raw.cast::<Fake>() };
    misuse(image.is_open());
    image
}

fn name_of(text: *const c_char) -> String {
    // SAFETY: who calls gives a text that ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_owned()
}

/// Handles that are not looked into.
fn put(place: *mut Raw) -> c_int {
    // SAFETY: who calls gives a place for a handle.
    unsafe { *place = std::ptr::dangling_mut() };
    0
}

#[test]
fn handles_are_null_until_they_are_there() {
    let mut place = null_mut();
    assert_eq!(put(&raw mut place), 0);
    assert!(!place.is_null());
}
