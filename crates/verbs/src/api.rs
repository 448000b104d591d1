// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of libibverbs and librdmacm that are used, found when they are needed first.
//!
//! Nothing of rdma-core is needed to build, and where it is missing only adapters do not work.

use crate::abi::CmEvent;
use crate::abi::CmId;
use crate::abi::CompChannel;
use crate::abi::ConnParam;
use crate::abi::Context;
use crate::abi::Cq;
use crate::abi::Device;
use crate::abi::DeviceAttr;
use crate::abi::EventChannel;
use crate::abi::Mr;
use crate::abi::Pd;
use crate::abi::QpInitAttr;
use crate::abi::SocketAddress;
use crate::error::LibraryError;
use libloading::Library;
use rustix::process::Resource;
use rustix::process::Rlimit;
use std::error::Error as _;
use std::ffi::c_int;
use std::ffi::c_uint;
use std::ffi::c_void;
use std::fmt;
use std::sync::OnceLock;

macro_rules! functions {
    ($($library:ident { $(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// All of them.
        pub(crate) struct Api {
            $($(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Api {
            fn find(verbs: &Library, manager: &Library) -> Result<Self, LibraryError> {
                Ok(Self { $($($name: {
                    let (library, file) = $library(verbs, manager);
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the type is the one that the header of the library declares for this
                    // name, in the version that is found where none is named; the symbol is not
                    // used after the library, which is never closed.
                    let found = unsafe { library.get(name.as_bytes()) };
                    *found.map_err(|_| LibraryError::TooOld { file, name: stringify!($name) })?
                },)*)* })
            }
        }
    };
}

functions! {
    of_verbs {
        fn ibv_get_device_list(*mut c_int) -> *mut *mut Device;
        fn ibv_free_device_list(*mut *mut Device);
        fn ibv_query_device(*mut Context, *mut DeviceAttr) -> c_int;
        fn ibv_alloc_pd(*mut Context) -> *mut Pd;
        fn ibv_dealloc_pd(*mut Pd) -> c_int;
        fn ibv_reg_mr(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        fn ibv_dereg_mr(*mut Mr) -> c_int;
        fn ibv_create_comp_channel(*mut Context) -> *mut CompChannel;
        fn ibv_destroy_comp_channel(*mut CompChannel) -> c_int;
        fn ibv_create_cq(
            *mut Context, c_int, *mut c_void, *mut CompChannel, c_int
        ) -> *mut Cq;
        fn ibv_destroy_cq(*mut Cq) -> c_int;
        fn ibv_get_cq_event(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        fn ibv_ack_cq_events(*mut Cq, c_uint);
    }
    of_manager {
        fn rdma_create_event_channel() -> *mut EventChannel;
        fn rdma_destroy_event_channel(*mut EventChannel);
        fn rdma_create_id(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
        fn rdma_destroy_id(*mut CmId) -> c_int;
        fn rdma_migrate_id(*mut CmId, *mut EventChannel) -> c_int;
        fn rdma_set_option(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
        fn rdma_bind_addr(*mut CmId, *mut SocketAddress) -> c_int;
        fn rdma_listen(*mut CmId, c_int) -> c_int;
        fn rdma_resolve_addr(
            *mut CmId, *mut SocketAddress, *mut SocketAddress, c_int
        ) -> c_int;
        fn rdma_resolve_route(*mut CmId, c_int) -> c_int;
        fn rdma_connect(*mut CmId, *mut ConnParam) -> c_int;
        fn rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        fn rdma_ack_cm_event(*mut CmEvent) -> c_int;
        fn rdma_create_qp(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
        fn rdma_destroy_qp(*mut CmId);
        fn rdma_accept(*mut CmId, *mut ConnParam) -> c_int;
        fn rdma_reject(*mut CmId, *const c_void, u8) -> c_int;
        fn rdma_disconnect(*mut CmId) -> c_int;
    }
}

/// The files, by the names that rdma-core and what was before it have always given them.
const VERBS: &str = "libibverbs.so.1";
const MANAGER: &str = "librdmacm.so.1";

fn of_verbs<'a>(verbs: &'a Library, _: &Library) -> (&'a Library, &'static str) {
    (verbs, VERBS)
}

fn of_manager<'a>(_: &Library, manager: &'a Library) -> (&'a Library, &'static str) {
    (manager, MANAGER)
}

static LOADED: OnceLock<Api> = OnceLock::new();

impl Api {
    /// The functions; loads the libraries if nobody has.
    ///
    /// # Errors
    /// A library is missing, or too old. Who tries again later finds it if it has come.
    pub(crate) fn load() -> Result<&'static Self, LibraryError> {
        if let Some(api) = LOADED.get() {
            return Ok(api);
        }
        let (verbs, manager) = (open(VERBS)?, open(MANAGER)?);
        raise_limit();
        let api = Self::find(&verbs, &manager)?;
        // What they have given out is used until the process ends.
        std::mem::forget((verbs, manager));
        Ok(LOADED.get_or_init(|| api))
    }
}

/// Memory that adapters know stays where it is, which the system limits: raises that as far as this
/// process may.
fn raise_limit() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Memlock);
    let tried = [None, maximum].map(|most| Rlimit { current: most, maximum: most });
    let raised =
        tried.into_iter().any(|limit| rustix::process::setrlimit(Resource::Memlock, limit).is_ok());
    if !raised {
        tracing::info!("the limit of locked memory (ulimit -l) stays as it is");
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
