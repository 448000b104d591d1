// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection to a cluster, and a pool of it.
//!
//! JUSTIFICATION: there is no protocol to speak but that of the libraries, and what there is in
//! safe Rust around them wants their headers and their link at build time.

use crate::api::Api;
use crate::api::Raw;
use crate::cache::COPIES;
use crate::error::Doing;
use crate::keyring;
use crate::keyring::ADMIN;
use crate::keyring::Keys;
use crate::limits::CONNECT_SECONDS_MAX;
use crate::limits::OPTION_LEN_MAX;
use std::ffi::CString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::ptr::null;
use std::ptr::null_mut;
use std::sync::Arc;
use store::spec::RbdSpec;

/// What the library says no to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) doing: Doing,
    pub(crate) errno: i32,
}

/// A pointer of the libraries, which take every handle from any thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle(pub(crate) Raw);

// SAFETY: librados and librbd promise that their handles may be used from any thread; how long one
// is valid its owner says.
unsafe impl Send for Handle {}
// SAFETY: the same, and by several threads at once.
unsafe impl Sync for Handle {}

/// A connection; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    api: &'static Api,
    handle: Handle,
}

impl Cluster {
    /// Connects as the user of `spec`, with more options than the configuration has.
    pub(crate) fn connect(
        api: &'static Api,
        spec: &RbdSpec,
        options: &[(&'static str, &'static str)],
    ) -> Result<Self, Refused> {
        let user = spec.user.as_deref().map(|user| text(Doing::Begin, user)).transpose()?;
        let mut raw = null_mut();
        // SAFETY: the place for the handle is ours; the name is null or ends with a zero.
        let result = unsafe { (api.rados_create)(&raw mut raw, pointer(user.as_ref())) };
        check(Doing::Begin, result)?;
        let cluster = Self { api, handle: Handle(raw) };
        let conf = spec.conf.as_deref().map(|file| text(Doing::Configuration, file)).transpose()?;
        // SAFETY: the handle is the one that was just made; the name is null, which means the
        // usual places, or ends with a zero.
        let result = unsafe { (api.rados_conf_read_file)(raw, pointer(conf.as_ref())) };
        check(Doing::Configuration, result)?;
        if let Some(keyring) = &spec.keyring {
            cluster.set("keyring", keyring)?;
        }
        cluster.set("client_mount_timeout", CONNECT_SECONDS_MAX)?;
        let options = [COPIES].into_iter().chain(options.iter().copied());
        options.into_iter().try_for_each(|(option, value)| cluster.set(option, value))?;
        // SAFETY: the handle is not connected yet.
        let result = unsafe { (api.rados_connect)(raw) };
        match check(Doing::Connect, result) {
            Err(Refused { errno: errno @ (EPERM | EACCES), .. }) => {
                let user = spec.user.as_deref().unwrap_or(ADMIN);
                Err(Refused { doing: cluster.not_let_in(user)?, errno })
            }
            connected => connected.map(|()| cluster),
        }
    }

    /// What was done when the cluster did not let `user` in.
    fn not_let_in(&self, user: &str) -> Result<Doing, Refused> {
        let has_own = !self.option("key")?.is_empty() || !self.option("keyfile")?.is_empty();
        let keys =
            if has_own { Keys::There } else { keyring::look(&self.option("keyring")?, user) };
        Ok(match keys {
            Keys::There => Doing::Connect,
            Keys::Missing => Doing::FindKey,
            Keys::Unreadable => Doing::ReadKey,
        })
    }

    /// What is set.
    fn option(&self, name: &'static str) -> Result<String, Refused> {
        let doing = Doing::Connect;
        let (name, mut buffer) = (text(doing, name)?, [0_u8; OPTION_LEN_MAX]);
        let (to, length) = (buffer.as_mut_ptr().cast::<c_char>(), buffer.len());
        // SAFETY: the handle is ours, the name ends with a zero, and as many bytes as are said are
        // there.
        let result = unsafe { (self.api.rados_conf_get)(self.handle.0, name.as_ptr(), to, length) };
        check(doing, result)?;
        Ok(until_zero(&buffer))
    }

    fn set(&self, option: &'static str, value: &str) -> Result<(), Refused> {
        let doing = Doing::Option(option);
        let (option, value) = (text(doing, option)?, text(doing, value)?);
        // SAFETY: the handle is ours and both texts end with a zero.
        let result =
            unsafe { (self.api.rados_conf_set)(self.handle.0, option.as_ptr(), value.as_ptr()) };
        check(doing, result)
    }

    /// The number of this client.
    pub(crate) fn number(&self) -> u64 {
        // SAFETY: the handle is connected.
        unsafe { (self.api.rados_get_instance_id)(self.handle.0) }
    }

    /// The number of the cluster; empty if it does not tell.
    pub(crate) fn fsid(&self) -> String {
        let mut buffer = [0_u8; 64];
        let to = buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: the handle is connected, and as many bytes as are said are there.
        let length = unsafe { (self.api.rados_cluster_fsid)(self.handle.0, to, buffer.len()) };
        usize::try_from(length).map_or_else(|_| String::new(), |_| until_zero(&buffer))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: whoever has a handle below this one holds the cluster by its count, so that there
        // is none any more.
        unsafe { (self.api.rados_shutdown)(self.handle.0) };
    }
}

/// A pool, or a namespace of it.
#[derive(Debug)]
pub(crate) struct IoContext {
    pub(crate) handle: Handle,
    pub(crate) cluster: Arc<Cluster>,
}

impl IoContext {
    pub(crate) fn open(cluster: &Arc<Cluster>, spec: &RbdSpec) -> Result<Self, Refused> {
        let api = cluster.api;
        let pool = text(Doing::Pool, &spec.pool)?;
        let mut raw = null_mut();
        // SAFETY: the cluster is connected, the name ends with a zero, the place is ours.
        let result =
            unsafe { (api.rados_ioctx_create)(cluster.handle.0, pool.as_ptr(), &raw mut raw) };
        check(Doing::Pool, result)?;
        let context = Self { handle: Handle(raw), cluster: Arc::clone(cluster) };
        if let Some(namespace) = &spec.namespace {
            let namespace = text(Doing::Pool, namespace)?;
            // SAFETY: the handle was just made, and the name ends with a zero.
            unsafe { (api.rados_ioctx_set_namespace)(raw, namespace.as_ptr()) };
        }
        // Else who writes to a full pool waits until it is not, and its host gives up before that.
        // SAFETY: the handle was just made.
        unsafe { (api.rados_set_pool_full_try)(raw) };
        Ok(context)
    }

    pub(crate) fn api(&self) -> &'static Api {
        self.cluster.api
    }

    /// The number of the pool.
    pub(crate) fn pool_number(&self) -> i64 {
        // SAFETY: the handle is open.
        unsafe { (self.api().rados_ioctx_get_id)(self.handle.0) }
    }

    /// Whether the pool has a namespace; one that does not tell may have it.
    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        let Ok(name) = text(Doing::Pool, name) else { return false };
        let mut exists = true;
        // SAFETY: the handle is open, the name ends with a zero, the place is ours.
        let result = unsafe {
            (self.api().rbd_namespace_exists)(self.handle.0, name.as_ptr(), &raw mut exists)
        };
        result < 0 || exists
    }

    /// Makes an image, with the features and the objects that the configuration says.
    pub(crate) fn create(&self, image: &str, bytes: u64) -> Result<(), Refused> {
        let name = text(Doing::Create, image)?;
        let mut order: c_int = 0;
        // SAFETY: the handle is open, the name ends with a zero, the place is ours.
        let result =
            unsafe { (self.api().rbd_create)(self.handle.0, name.as_ptr(), bytes, &raw mut order) };
        check(Doing::Create, result)
    }
}

impl Drop for IoContext {
    fn drop(&mut self) {
        // SAFETY: images hold the context while they are open.
        unsafe { (self.api().rados_ioctx_destroy)(self.handle.0) };
    }
}

/// A text for the library.
pub(crate) fn text(doing: Doing, text: &str) -> Result<CString, Refused> {
    CString::new(text).map_err(|_| Refused { doing, errno: EINVAL })
}

pub(crate) fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(null(), |text| text.as_ptr())
}

pub(crate) fn check(doing: Doing, result: c_int) -> Result<(), Refused> {
    if result < 0 { Err(Refused { doing, errno: result.saturating_neg() }) } else { Ok(()) }
}

/// The text that a library has written.
pub(crate) fn until_zero(buffer: &[u8]) -> String {
    let text = buffer.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// A number as the argument of a call back: nothing is ever read there.
pub(crate) fn argument(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
