// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of the library.

use super::Completion;
use super::Fake;
use super::IMAGES;
use super::IS_CONNECTED;
use super::JOURNAL_ENTRY;
use super::OBJECT;
use super::OWN;
use super::TOLD;
use super::locked;
use super::misuse;
use super::name_of;
use super::of_completion;
use super::of_image;
use super::put;
use super::size;
use crate::api::Completed;
use crate::api::ConfigOption;
use crate::api::Extent;
use crate::api::Info;
use crate::api::Raw;
use crate::api::THICK;
use crate::api::Updated;
use crate::api::Watcher;
use std::ffi::CString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

pub(super) unsafe extern "C" fn rados_create(place: *mut Raw, user: *const c_char) -> c_int {
    TOLD.take();
    IS_CONNECTED.set(false);
    let user = if user.is_null() { String::new() } else { name_of(user) };
    // Whom the cluster does not let in.
    if user.starts_with("stranger") {
        let keyring = String::from("/nonexistent/keyring,");
        let key = String::from(if user == "stranger" { "" } else { "AQ==" });
        TOLD.set([("keyring".into(), keyring), ("key".into(), key)].into());
    }
    if user == "nobody" { -22 } else { put(place) }
}

pub(super) unsafe extern "C" fn rados_conf_read_file(_: Raw, file: *const c_char) -> c_int {
    if !file.is_null() && name_of(file) == "missing.conf" { -2 } else { 0 }
}

pub(super) unsafe extern "C" fn rados_conf_set(
    _: Raw,
    option: *const c_char,
    value: *const c_char,
) -> c_int {
    let (option, value) = (name_of(option), name_of(value));
    let is_refused = option == "keyring" && value.ends_with("refused");
    if option.starts_with("rbd_") && IS_CONNECTED.get() {
        return -1;
    }
    TOLD.with_borrow_mut(|told| told.insert(option, value));
    if is_refused { -22 } else { 0 }
}

/// Whatever was not told is empty.
pub(super) unsafe extern "C" fn rados_conf_get(
    _: Raw,
    option: *const c_char,
    to: *mut c_char,
    length: usize,
) -> c_int {
    let told = TOLD.with_borrow(|told| told.get(&name_of(option)).cloned());
    write(to, length, &told.unwrap_or_default());
    0
}

pub(super) unsafe extern "C" fn rados_connect(_: Raw) -> c_int {
    IS_CONNECTED.set(true);
    if TOLD.with_borrow(|told| told.contains_key("key")) { -13 } else { 0 }
}

pub(super) unsafe extern "C" fn rados_shutdown(_: Raw) {}

pub(super) unsafe extern "C" fn rados_get_instance_id(_: Raw) -> u64 {
    OWN
}

pub(super) unsafe extern "C" fn rados_cluster_fsid(
    _: Raw,
    to: *mut c_char,
    length: usize,
) -> c_int {
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

pub(super) unsafe extern "C" fn rados_ioctx_create(
    _: Raw,
    pool: *const c_char,
    place: *mut Raw,
) -> c_int {
    match &*name_of(pool) {
        "missing" => -2,
        "forbidden" => -1,
        _ => put(place),
    }
}

pub(super) unsafe extern "C" fn rados_ioctx_set_namespace(_: Raw, _: *const c_char) {}

pub(super) unsafe extern "C" fn rados_ioctx_get_id(_: Raw) -> i64 {
    3
}

pub(super) unsafe extern "C" fn rados_set_pool_full_try(_: Raw) {}

/// What an object of names says: four bytes, and a number.
pub(super) unsafe extern "C" fn rados_read(
    _: Raw,
    name: *const c_char,
    to: *mut c_char,
    length: usize,
    _: u64,
) -> c_int {
    let image = name_of(name).strip_prefix("rbd_id.").map(Fake::of).expect("the name of an image");
    match *locked(&image.fate) {
        "moved" => -2,
        "blocked" => -108,
        "replaced" => write(to, length, "....other"),
        _ => write(to, length, &format!("....{}", image.id())),
    }
}

/// An OSD answers this as long as nothing is held back by the manner `never`.
pub(super) unsafe extern "C" fn rados_stat(
    _: Raw,
    name: *const c_char,
    _: *mut u64,
    _: *mut i64,
) -> c_int {
    let image = name_of(name).strip_prefix("rbd_id.").map(Fake::of).expect("the name of an image");
    while image.manner == "never" && image.held() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    -2
}

pub(super) unsafe extern "C" fn rados_ioctx_destroy(_: Raw) {}

pub(super) unsafe extern "C" fn rbd_create(
    _: Raw,
    name: *const c_char,
    bytes: u64,
    _: *mut c_int,
) -> c_int {
    let name = name_of(name);
    locked(&IMAGES).insert(name.clone(), Fake::new(&name, bytes));
    0
}

pub(super) unsafe extern "C" fn rbd_open(
    _: Raw,
    name: *const c_char,
    place: *mut Raw,
    snapshot: *const c_char,
) -> c_int {
    let name = name_of(name);
    if !snapshot.is_null() && name_of(snapshot) == "missing" {
        return -2;
    }
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

pub(super) unsafe extern "C" fn rbd_close(image: Raw) -> c_int {
    let image = of_image(image);
    drop(locked(&image.gate));
    misuse(locked(&image.held).is_empty());
    image.handles.fetch_sub(1, Ordering::SeqCst);
    0
}

pub(super) unsafe extern "C" fn rbd_stat(image: Raw, info: *mut Info, length: usize) -> c_int {
    assert_eq!(length, 160, "as Ceph 16 has it");
    // SAFETY: who calls gives a place for it.
    let info = unsafe { &mut *info };
    info.size = locked(&of_image(image).bytes).len() as u64;
    info.object_size = OBJECT;
    0
}

pub(super) unsafe extern "C" fn rbd_get_size(image: Raw, place: *mut u64) -> c_int {
    // SAFETY: who calls gives a place for it.
    unsafe { *place = locked(&of_image(image).bytes).len() as u64 };
    0
}

pub(super) unsafe extern "C" fn rbd_resize(image: Raw, bytes: u64) -> c_int {
    let image = of_image(image);
    drop(locked(&image.gate));
    match &*image.manner {
        "forbidden" => return -1,
        "blocked" => return -108,
        _ => {}
    }
    image.resize(size(bytes));
    0
}

/// The snapshot of an image that is `removed` is not there, and one that was `remade` has another
/// number; one that has `another` name has left its own to none, and one that has `given` it away
/// to another one.
pub(super) unsafe extern "C" fn rbd_snap_get_id(
    image: Raw,
    _: *const c_char,
    place: *mut u64,
) -> c_int {
    let number = match *locked(&of_image(image).fate) {
        "removed" | "another" => return -2,
        "remade" | "given" => 2,
        _ => 1,
    };
    // SAFETY: who calls gives a place for it.
    unsafe { *place = number };
    0
}

pub(super) unsafe extern "C" fn rbd_snap_get_name(
    image: Raw,
    number: u64,
    to: *mut c_char,
    room: *mut usize,
) -> c_int {
    misuse(number == 1);
    let name = match *locked(&of_image(image).fate) {
        "removed" | "remade" => return -2,
        "another" | "given" => "tuesday",
        _ => "then",
    };
    // SAFETY: who calls gives a place for it.
    let room = unsafe { &mut *room };
    write(to, *room + 1, name);
    *room = name.len();
    0
}

pub(super) unsafe extern "C" fn rbd_snap_create(image: Raw, name: *const c_char) -> c_int {
    let image = of_image(image);
    match name_of(name).as_str() {
        _ if image.manner == "blocked" => return -108,
        "there" => return -17,
        _ => {}
    }
    locked(&image.done).push("snapshot");
    0
}

pub(super) unsafe extern "C" fn rbd_get_stripe_unit(image: Raw, place: *mut u64) -> c_int {
    let image = of_image(image);
    // SAFETY: who calls gives a place for it.
    unsafe { *place = if image.manner == "narrow" { 512 } else { OBJECT } };
    0
}

/// Layering, exclusive-lock, and one that nobody has a name for.
pub(super) unsafe extern "C" fn rbd_get_features(image: Raw, place: *mut u64) -> c_int {
    of_image(image);
    // SAFETY: who calls gives a place for it.
    unsafe { *place = 1 | 1 << 2 | 1 << 40 };
    0
}

/// A version, for either library.
pub(super) unsafe extern "C" fn version(major: *mut c_int, minor: *mut c_int, extra: *mut c_int) {
    for (place, number) in [(major, 1), (minor, 16), (extra, 0)] {
        // SAFETY: who calls gives places for all three.
        unsafe { *place = number };
    }
}

pub(super) unsafe extern "C" fn rbd_get_stripe_count(image: Raw, place: *mut u64) -> c_int {
    of_image(image);
    // SAFETY: who calls gives a place for it.
    unsafe { *place = 2 };
    0
}

pub(super) unsafe extern "C" fn rbd_namespace_exists(
    _: Raw,
    name: *const c_char,
    place: *mut bool,
) -> c_int {
    // SAFETY: who calls gives a place for it.
    unsafe { *place = name_of(name) != "missing" };
    0
}

pub(super) unsafe extern "C" fn rbd_watchers_list(
    image: Raw,
    list: *mut Watcher,
    count: *mut usize,
) -> c_int {
    let all = of_image(image).others.load(Ordering::SeqCst) + 1;
    // SAFETY: who calls gives a place for it.
    let count = unsafe { &mut *count };
    let room = std::mem::replace(count, all);
    if room < all {
        return -34;
    }
    // SAFETY: who calls has said that there is room for so many.
    let list = unsafe { std::slice::from_raw_parts_mut(list, all) };
    for (place, client) in list.iter_mut().zip(i64::try_from(OWN).expect("small")..) {
        let address = CString::new(format!("host-{client}")).expect("no zero").into_raw();
        *place = Watcher { address, client, cookie: 1 };
    }
    0
}

pub(super) unsafe extern "C" fn rbd_watchers_list_cleanup(list: *mut Watcher, count: usize) {
    // SAFETY: who calls gives the list that was filled above.
    for watcher in unsafe { std::slice::from_raw_parts(list, count) } {
        // SAFETY: made by `into_raw` above.
        drop(unsafe { CString::from_raw(watcher.address) });
    }
}

pub(super) unsafe extern "C" fn rbd_get_id(image: Raw, to: *mut c_char, length: usize) -> c_int {
    write(to, length, &of_image(image).id());
    0
}

pub(super) unsafe extern "C" fn rbd_config_image_list(
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

pub(super) unsafe extern "C" fn rbd_config_image_list_cleanup(
    list: *mut ConfigOption,
    count: c_int,
) {
    // SAFETY: who calls gives the list that was filled above.
    let list = unsafe { std::slice::from_raw_parts(list, usize::try_from(count).expect("some")) };
    for option in list {
        for text in [option.name, option.value] {
            // SAFETY: made by `into_raw` above.
            drop(unsafe { CString::from_raw(text) });
        }
    }
}

pub(super) unsafe extern "C" fn rbd_update_watch(
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
pub(super) unsafe extern "C" fn rbd_update_unwatch(image: Raw, watch: u64) -> c_int {
    of_image(image);
    misuse(watch == 5);
    0
}

pub(super) unsafe extern "C" fn rbd_diff_iterate2(
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
    drop(locked(&of_image(image).gate));
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

pub(super) unsafe extern "C" fn rbd_aio_create_completion(
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

pub(super) unsafe extern "C" fn rbd_aio_get_return_value(completion: Raw) -> isize {
    let completion = of_completion(completion);
    misuse(completion.releases.load(Ordering::SeqCst) == 0);
    *locked(&completion.value)
}

pub(super) unsafe extern "C" fn rbd_aio_release(completion: Raw) {
    let before = of_completion(completion).releases.fetch_add(1, Ordering::SeqCst);
    misuse(before == 0);
}

pub(super) unsafe extern "C" fn rbd_aio_read(
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

pub(super) unsafe extern "C" fn rbd_aio_write(
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

pub(super) unsafe extern "C" fn rbd_aio_write_zeroes(
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

pub(super) unsafe extern "C" fn rbd_aio_writesame(
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
pub(super) unsafe extern "C" fn rbd_aio_compare_and_write(
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

pub(super) unsafe extern "C" fn rbd_aio_flush(image: Raw, completion: Raw) -> c_int {
    let image = of_image(image);
    let value = locked(&image.flush_ends).pop_front().unwrap_or(0);
    image.end("flush", completion, value as isize)
}
