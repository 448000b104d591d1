// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A library that behaves as badly as its images are named: `late`, `twice`, `never`, `other`
//! (threads), `ends-N` and `begins-N` (with errno N), `short`, `insists` and `lends` (on all
//! options), `caches` (insists on its cache), `stuck` (what is written never ends), `sector`
//! (compares no more than one), `narrow` (in its stripe units), `nowhere` (says nothing of what
//! differs), `journals` (in small entries), `blocked` (tells orders and questions that it is). The
//! name goes on behind a dot; one that ends with `.bare` has no cache of its own
//! accord.

use crate::api::Api;
use crate::api::Completed;
use crate::api::ConfigOption;
use crate::api::Extent;
use crate::api::Info;
use crate::api::Raw;
use crate::api::THICK;
use crate::api::Updated;
use std::cell::Cell;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::ffi::CString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
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

/// Bytes of an object.
pub(crate) const OBJECT: u64 = 64 << 10;

pub(crate) static API: Api = Api {
    rados_create,
    rados_conf_read_file,
    rados_conf_set,
    rados_connect,
    rados_shutdown,
    rados_cluster_fsid,
    rados_ioctx_create,
    rados_ioctx_set_namespace,
    rados_ioctx_get_id,
    rados_set_pool_full_try,
    rados_stat,
    rados_ioctx_destroy,
    rbd_create,
    rbd_open,
    rbd_open_read_only: rbd_open,
    rbd_close,
    rbd_stat,
    rbd_get_size,
    rbd_resize,
    rbd_snap_create,
    rbd_get_stripe_unit,
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

unsafe extern "C" fn rados_create(place: *mut Raw, user: *const c_char) -> c_int {
    TOLD.take();
    IS_CONNECTED.set(false);
    if !user.is_null() && name_of(user) == "nobody" { -22 } else { put(place) }
}

unsafe extern "C" fn rados_conf_read_file(_: Raw, file: *const c_char) -> c_int {
    if !file.is_null() && name_of(file) == "missing.conf" { -2 } else { 0 }
}

unsafe extern "C" fn rados_conf_set(_: Raw, option: *const c_char, value: *const c_char) -> c_int {
    let (option, value) = (name_of(option), name_of(value));
    let is_refused = option == "keyring" && value == "bad";
    if option.starts_with("rbd_") && IS_CONNECTED.get() {
        return -1;
    }
    TOLD.with_borrow_mut(|told| told.insert(option, value));
    if is_refused { -22 } else { 0 }
}

unsafe extern "C" fn rados_connect(_: Raw) -> c_int {
    IS_CONNECTED.set(true);
    0
}

unsafe extern "C" fn rados_shutdown(_: Raw) {}

unsafe extern "C" fn rados_cluster_fsid(_: Raw, to: *mut c_char, length: usize) -> c_int {
    write(to, length, "f51d")
}

fn write(to: *mut c_char, length: usize, text: &str) -> c_int {
    assert!(text.len() < length);
    // SAFETY: who calls gives a place of `length` bytes.
    let place = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) };
    place[..text.len()].copy_from_slice(text.as_bytes());
    place[text.len()] = 0;
    c_int::try_from(text.len()).expect("short")
}

unsafe extern "C" fn rados_ioctx_create(_: Raw, pool: *const c_char, place: *mut Raw) -> c_int {
    match &*name_of(pool) {
        "missing" => -2,
        "forbidden" => -1,
        _ => put(place),
    }
}

unsafe extern "C" fn rados_ioctx_set_namespace(_: Raw, _: *const c_char) {}

unsafe extern "C" fn rados_ioctx_get_id(_: Raw) -> i64 {
    3
}

unsafe extern "C" fn rados_set_pool_full_try(_: Raw) {}

/// An OSD answers this as long as nothing is held back by the manner `never`.
unsafe extern "C" fn rados_stat(_: Raw, name: *const c_char, _: *mut u64, _: *mut i64) -> c_int {
    let image = name_of(name).strip_prefix("rbd_id.").map(Fake::of).expect("the name of an image");
    while image.manner == "never" && image.held() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    -2
}

unsafe extern "C" fn rados_ioctx_destroy(_: Raw) {}

unsafe extern "C" fn rbd_create(_: Raw, name: *const c_char, bytes: u64, _: *mut c_int) -> c_int {
    let name = name_of(name);
    locked(&IMAGES).insert(name.clone(), Fake::new(&name, bytes));
    0
}

unsafe extern "C" fn rbd_open(
    _: Raw,
    name: *const c_char,
    place: *mut Raw,
    _: *const c_char,
) -> c_int {
    let name = name_of(name);
    let known = locked(&IMAGES).contains_key(&name);
    if name.starts_with("missing") && !known {
        return -2;
    }
    let image = Fake::of(&name);
    image.handles.fetch_add(1, Ordering::SeqCst);
    // SAFETY: who calls gives a place for a handle.
    unsafe { *place = Arc::into_raw(image).cast_mut().cast() };
    0
}

unsafe extern "C" fn rbd_close(image: Raw) -> c_int {
    let image = of_image(image);
    misuse(locked(&image.held).is_empty());
    image.handles.fetch_sub(1, Ordering::SeqCst);
    0
}

unsafe extern "C" fn rbd_stat(image: Raw, info: *mut Info, length: usize) -> c_int {
    assert_eq!(length, 160, "as Ceph 16 has it");
    // SAFETY: who calls gives a place for it.
    let info = unsafe { &mut *info };
    info.size = locked(&of_image(image).bytes).len() as u64;
    info.object_size = OBJECT;
    0
}

unsafe extern "C" fn rbd_get_size(image: Raw, place: *mut u64) -> c_int {
    // SAFETY: who calls gives a place for it.
    unsafe { *place = locked(&of_image(image).bytes).len() as u64 };
    0
}

unsafe extern "C" fn rbd_resize(image: Raw, bytes: u64) -> c_int {
    let image = of_image(image);
    match &*image.manner {
        "forbidden" => return -1,
        "blocked" => return -108,
        _ => {}
    }
    image.resize(size(bytes));
    0
}

unsafe extern "C" fn rbd_snap_create(image: Raw, name: *const c_char) -> c_int {
    let image = of_image(image);
    match name_of(name).as_str() {
        _ if image.manner == "blocked" => return -108,
        "there" => return -17,
        _ => {}
    }
    locked(&image.done).push("snapshot");
    0
}

unsafe extern "C" fn rbd_get_stripe_unit(image: Raw, place: *mut u64) -> c_int {
    let image = of_image(image);
    // SAFETY: who calls gives a place for it.
    unsafe { *place = if image.manner == "narrow" { 512 } else { OBJECT } };
    0
}

unsafe extern "C" fn rbd_get_stripe_count(image: Raw, place: *mut u64) -> c_int {
    of_image(image);
    // SAFETY: who calls gives a place for it.
    unsafe { *place = 2 };
    0
}

unsafe extern "C" fn rbd_get_id(image: Raw, to: *mut c_char, length: usize) -> c_int {
    write(to, length, &format!("{image:p}"));
    0
}

unsafe extern "C" fn rbd_config_image_list(
    image: Raw,
    list: *mut ConfigOption,
    count: *mut c_int,
) -> c_int {
    let fake = of_image(image);
    let options = &fake.options;
    // SAFETY: who calls gives a place for it.
    let count = unsafe { &mut *count };
    let room = usize::try_from(*count).expect("no more than none");
    *count = c_int::try_from(options.len()).expect("few");
    if room < options.len() {
        return -34;
    }
    // SAFETY: who calls has said that there is room for so many.
    let list = unsafe { std::slice::from_raw_parts_mut(list, room) };
    for (place, (name, value)) in list.iter_mut().zip(options) {
        let text = |text: &str| CString::new(text).expect("no zero").into_raw();
        let insists = fake.manner == "insists"
            || (fake.manner == "caches" && *name == "rbd_cache")
            || fake.manner == "lends";
        let told = TOLD.with_borrow(|told| told.get(*name).filter(|_| !insists).cloned());
        let value = told.unwrap_or_else(|| (*value).to_owned());
        *place = ConfigOption { name: text(name), value: text(&value), source: 0 };
    }
    0
}

unsafe extern "C" fn rbd_config_image_list_cleanup(list: *mut ConfigOption, count: c_int) {
    // SAFETY: who calls gives the list that was filled above.
    let list = unsafe { std::slice::from_raw_parts(list, usize::try_from(count).expect("some")) };
    for option in list {
        for text in [option.name, option.value] {
            // SAFETY: made by `into_raw` above.
            drop(unsafe { CString::from_raw(text) });
        }
    }
}

unsafe extern "C" fn rbd_update_watch(
    image: Raw,
    watch: *mut u64,
    updated: Updated,
    argument: *mut c_void,
) -> c_int {
    *locked(&of_image(image).watch) = Some((updated, argument.addr()));
    // SAFETY: who calls gives a place for it.
    unsafe { *watch = 5 };
    0
}

/// The next change is told all the same: the library has a thread that is late.
unsafe extern "C" fn rbd_update_unwatch(image: Raw, watch: u64) -> c_int {
    of_image(image);
    misuse(watch == 5);
    0
}

unsafe extern "C" fn rbd_diff_iterate2(
    image: Raw,
    from: *const c_char,
    offset: u64,
    length: u64,
    _: u8,
    _: u8,
    extent: Extent,
    argument: *mut c_void,
) -> c_int {
    misuse(from.is_null());
    if of_image(image).manner == "blocked" {
        return -108;
    }
    let bytes = of_image(image).bytes();
    let objects = bytes.chunks(size(OBJECT)).zip(0_u64..);
    for (object, number) in objects {
        let begin = (number * OBJECT).max(offset);
        let end = (number * OBJECT + object.len() as u64).min(offset + length);
        if begin < end && object.iter().any(|byte| *byte != 0) {
            // SAFETY: with the argument of who calls, before this returns.
            unsafe { extent(begin, size(end - begin), 1, argument) };
        }
    }
    0
}

unsafe extern "C" fn rbd_aio_create_completion(
    argument: *mut c_void,
    callback: Completed,
    place: *mut Raw,
) -> c_int {
    let completion = Box::new(Completion {
        callback,
        argument: argument.addr(),
        value: Mutex::new(0),
        releases: AtomicUsize::new(0),
    });
    let raw: Raw = Box::into_raw(completion).cast();
    raw.expose_provenance();
    // SAFETY: who calls gives a place for a handle.
    unsafe { *place = raw };
    0
}

unsafe extern "C" fn rbd_aio_get_return_value(completion: Raw) -> isize {
    let completion = of_completion(completion);
    misuse(completion.releases.load(Ordering::SeqCst) == 0);
    *locked(&completion.value)
}

unsafe extern "C" fn rbd_aio_release(completion: Raw) {
    let before = of_completion(completion).releases.fetch_add(1, Ordering::SeqCst);
    misuse(before == 0);
}

unsafe extern "C" fn rbd_aio_read(
    image: Raw,
    offset: u64,
    length: usize,
    to: *mut c_char,
    completion: Raw,
) -> c_int {
    let image = of_image(image);
    let bytes = image.bytes();
    let from = bytes.get(size(offset)..).unwrap_or_default();
    let there = length.min(from.len());
    // SAFETY: who calls gives a place for so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.cast(), there) };
    image.end("read", completion, there as isize)
}

unsafe extern "C" fn rbd_aio_write(
    image: Raw,
    offset: u64,
    length: usize,
    from: *const c_char,
    completion: Raw,
) -> c_int {
    let image = of_image(image);
    // SAFETY: who calls gives so many bytes.
    let data = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
    change(image, offset, length, |bytes| bytes.copy_from_slice(&data[..bytes.len()]));
    image.end("write", completion, 0)
}

unsafe extern "C" fn rbd_aio_write_zeroes(
    image: Raw,
    offset: u64,
    length: usize,
    completion: Raw,
    flags: c_int,
    _: c_int,
) -> c_int {
    let image = of_image(image);
    change(image, offset, length, |bytes| bytes.fill(0));
    image.end(if flags == THICK { "zero" } else { "discard" }, completion, 0)
}

unsafe extern "C" fn rbd_aio_writesame(
    image: Raw,
    offset: u64,
    length: usize,
    from: *const c_char,
    each: usize,
    completion: Raw,
    _: c_int,
) -> c_int {
    let image = of_image(image);
    if each == 0 || !length.is_multiple_of(each) || c_int::try_from(length).is_err() {
        return -22;
    }
    // One that gets a journal aborts the process.
    misuse(each < JOURNAL_ENTRY);
    // SAFETY: who calls gives so many bytes.
    let data = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), each) };
    change(image, offset, length, |bytes| {
        bytes.chunks_mut(each).for_each(|place| place.copy_from_slice(&data[..place.len()]));
    });
    locked(&image.repeated).push(each);
    image.end("same", completion, 0)
}

/// Tells what differs as the library does: as if the object began where the operation does.
unsafe extern "C" fn rbd_aio_compare_and_write(
    image: Raw,
    offset: u64,
    length: usize,
    old: *const c_char,
    new: *const c_char,
    completion: Raw,
    mismatch: *mut u64,
    _: c_int,
) -> c_int {
    let image = of_image(image);
    misuse(2 * length < JOURNAL_ENTRY);
    // SAFETY: who calls gives so many bytes.
    let old = unsafe { std::slice::from_raw_parts(old.cast::<u8>(), length) };
    // SAFETY: the same.
    let new = unsafe { std::slice::from_raw_parts(new.cast::<u8>(), length) };
    let is_one = offset % OBJECT + length as u64 <= OBJECT;
    if !is_one || (image.manner == "sector" && length > 512) {
        return image.end("compare", completion, -22);
    }
    let mut differs = None;
    change(image, offset, length, |bytes| {
        differs = bytes.iter().zip(old).position(|(is, old)| is != old);
        if differs.is_none() {
            bytes.copy_from_slice(&new[..bytes.len()]);
        }
    });
    let Some(at) = differs else { return image.end("compare", completion, 0) };
    let said = offset - offset % OBJECT + at as u64;
    let mismatch = (image.manner != "nowhere").then(|| (said, mismatch.expose_provenance()));
    image.end_with("compare", completion, -84, mismatch)
}

fn change(image: &Fake, offset: u64, length: usize, change: impl FnOnce(&mut [u8])) {
    // What lies behind the end is dropped without a word.
    let (mut bytes, offset) = (locked(&image.bytes), size(offset));
    let end = bytes.len().min(offset + length);
    if let Some(place) = bytes.get_mut(offset..end) {
        change(place);
    }
}

unsafe extern "C" fn rbd_aio_flush(image: Raw, completion: Raw) -> c_int {
    let image = of_image(image);
    let value = locked(&image.flush_ends).pop_front().unwrap_or(0);
    image.end("flush", completion, value as isize)
}

#[test]
fn handles_are_null_until_they_are_there() {
    let mut place = null_mut();
    assert_eq!(put(&raw mut place), 0);
    assert!(!place.is_null());
}
