// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of librados and librbd that are used, found when they are needed first.
//!
//! Nothing of Ceph is needed to build, and where it is missing only `rbd:` does not work. The types
//! are those of `rados/librados.h` and `rbd/librbd.h` of Ceph 16; both promise that they stay.

use crate::error::LibraryError;
use libloading::Library;
use std::error::Error as _;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::fmt;
use std::sync::OnceLock;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t` and `rbd_completion_t`, which are all `void *`.
pub(crate) type Raw = *mut c_void;

/// `rbd_callback_t`.
pub(crate) type Completed = unsafe extern "C" fn(Raw, *mut c_void);
/// `rbd_update_callback_t`.
pub(crate) type Updated = unsafe extern "C" fn(*mut c_void);
/// What `rbd_diff_iterate2` calls for each extent.
pub(crate) type Extent = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// `rbd_image_info_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Info {
    pub(crate) size: u64,
    pub(crate) object_size: u64,
    pub(crate) objects: u64,
    pub(crate) order: c_int,
    pub(crate) prefix: [c_char; 24],
    pub(crate) parent_pool: i64,
    pub(crate) parent_name: [c_char; 96],
}

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watcher {
    pub(crate) address: *mut c_char,
    pub(crate) client: i64,
    pub(crate) cookie: u64,
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigOption {
    pub(crate) name: *mut c_char,
    pub(crate) value: *mut c_char,
    pub(crate) source: c_int,
}

/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`.
pub(crate) const THICK: c_int = 1;

macro_rules! functions {
    ($($library:ident { $(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// All of them.
        pub(crate) struct Api {
            $($(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Api {
            fn find(rados: &Library, rbd: &Library) -> Result<Self, LibraryError> {
                Ok(Self { $($($name: {
                    let (library, file) = $library(rados, rbd);
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the type is the one that the header of the library declares for this
                    // name; the symbol is not used after the library, which is never closed.
                    let found = unsafe { library.get(name.as_bytes()) };
                    *found.map_err(|_| LibraryError::TooOld { file, name: stringify!($name) })?
                },)*)* })
            }
        }
    };
}

functions! {
    of_rados {
        fn rados_version(*mut c_int, *mut c_int, *mut c_int);
        fn rados_create(*mut Raw, *const c_char) -> c_int;
        fn rados_conf_read_file(Raw, *const c_char) -> c_int;
        fn rados_conf_set(Raw, *const c_char, *const c_char) -> c_int;
        fn rados_conf_get(Raw, *const c_char, *mut c_char, usize) -> c_int;
        fn rados_connect(Raw) -> c_int;
        fn rados_shutdown(Raw);
        fn rados_get_instance_id(Raw) -> u64;
        fn rados_cluster_fsid(Raw, *mut c_char, usize) -> c_int;
        fn rados_ioctx_create(Raw, *const c_char, *mut Raw) -> c_int;
        fn rados_ioctx_set_namespace(Raw, *const c_char);
        fn rados_ioctx_get_id(Raw) -> i64;
        fn rados_set_pool_full_try(Raw);
        fn rados_read(Raw, *const c_char, *mut c_char, usize, u64) -> c_int;
        fn rados_stat(Raw, *const c_char, *mut u64, *mut i64) -> c_int;
        fn rados_ioctx_destroy(Raw);
    }
    of_rbd {
        fn rbd_version(*mut c_int, *mut c_int, *mut c_int);
        fn rbd_create(Raw, *const c_char, u64, *mut c_int) -> c_int;
        fn rbd_open(Raw, *const c_char, *mut Raw, *const c_char) -> c_int;
        fn rbd_open_read_only(Raw, *const c_char, *mut Raw, *const c_char) -> c_int;
        fn rbd_close(Raw) -> c_int;
        fn rbd_stat(Raw, *mut Info, usize) -> c_int;
        fn rbd_get_size(Raw, *mut u64) -> c_int;
        fn rbd_resize(Raw, u64) -> c_int;
        fn rbd_snap_get_id(Raw, *const c_char, *mut u64) -> c_int;
        fn rbd_snap_get_name(Raw, u64, *mut c_char, *mut usize) -> c_int;
        fn rbd_snap_create(Raw, *const c_char) -> c_int;
        fn rbd_get_features(Raw, *mut u64) -> c_int;
        fn rbd_get_stripe_unit(Raw, *mut u64) -> c_int;
        fn rbd_get_stripe_count(Raw, *mut u64) -> c_int;
        fn rbd_namespace_exists(Raw, *const c_char, *mut bool) -> c_int;
        fn rbd_watchers_list(Raw, *mut Watcher, *mut usize) -> c_int;
        fn rbd_watchers_list_cleanup(*mut Watcher, usize);
        fn rbd_get_id(Raw, *mut c_char, usize) -> c_int;
        fn rbd_config_image_list(Raw, *mut ConfigOption, *mut c_int) -> c_int;
        fn rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
        fn rbd_update_watch(Raw, *mut u64, Updated, *mut c_void) -> c_int;
        fn rbd_update_unwatch(Raw, u64) -> c_int;
        fn rbd_diff_iterate2(Raw, *const c_char, u64, u64, u8, u8, Extent, *mut c_void) -> c_int;
        fn rbd_aio_create_completion(*mut c_void, Completed, *mut Raw) -> c_int;
        fn rbd_aio_get_return_value(Raw) -> isize;
        fn rbd_aio_release(Raw);
        fn rbd_aio_read(Raw, u64, usize, *mut c_char, Raw) -> c_int;
        fn rbd_aio_write(Raw, u64, usize, *const c_char, Raw) -> c_int;
        fn rbd_aio_write_zeroes(Raw, u64, usize, Raw, c_int, c_int) -> c_int;
        fn rbd_aio_writesame(Raw, u64, usize, *const c_char, usize, Raw, c_int) -> c_int;
        fn rbd_aio_compare_and_write(
            Raw, u64, usize, *const c_char, *const c_char, Raw, *mut u64, c_int
        ) -> c_int;
        fn rbd_aio_flush(Raw, Raw) -> c_int;
    }
}

/// The files, by the names that all releases of Ceph since Luminous have given them.
pub(crate) const RADOS: &str = "librados.so.2";
pub(crate) const RBD: &str = "librbd.so.1";

fn of_rados<'a>(rados: &'a Library, _: &Library) -> (&'a Library, &'static str) {
    (rados, RADOS)
}

fn of_rbd<'a>(_: &Library, rbd: &'a Library) -> (&'a Library, &'static str) {
    (rbd, RBD)
}

static LOADED: OnceLock<Api> = OnceLock::new();

/// Whether the library is in this process, with threads of its own: some may wait for a cluster for
/// ever, and use what the hooks of a process's end take away.
#[must_use]
pub fn is_loaded() -> bool {
    LOADED.get().is_some()
}

impl Api {
    /// The functions; loads the libraries if nobody has.
    ///
    /// # Errors
    /// A library is missing, or older than Ceph 16. Who tries again later finds it if it has come.
    pub(crate) fn load() -> Result<&'static Self, LibraryError> {
        if let Some(api) = LOADED.get() {
            return Ok(api);
        }
        let (rados, rbd) = (open(RADOS)?, open(RBD)?);
        let api = Self::find(&rados, &rbd)?;
        // They have threads of their own, which outlive every handle.
        std::mem::forget((rados, rbd));
        Ok(LOADED.get_or_init(|| api))
    }
}

fn open(file: &'static str) -> Result<Library, LibraryError> {
    // SAFETY: what the libraries do when they are loaded is what every program does that is linked
    // with them: they set up tables of their own.
    let library = unsafe { Library::new(file) };
    library.map_err(|error| {
        // What the loader says is below: the error itself says that it has failed.
        let said = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        LibraryError::of_loader(file, said)
    })
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Api")
    }
}
