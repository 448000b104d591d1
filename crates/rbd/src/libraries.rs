// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files of Ceph are loaded, and of which version.

use crate::api::Api;
use crate::api::RADOS;
use crate::api::RBD;
use crate::error::LibraryError;
use std::ffi::c_int;
use std::fs;

/// A library of Ceph that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// `librbd` or `librados`.
    pub name: &'static str,
    /// As it says itself.
    pub version: String,
    /// Where it is; None: the system does not tell.
    pub file: Option<String>,
}

/// The libraries, which are loaded for that.
///
/// # Errors
/// One is missing, or too old.
pub fn libraries() -> Result<[Loaded; 2], LibraryError> {
    Ok(look(Api::load()?, &fs::read_to_string("/proc/self/maps").unwrap_or_default()))
}

fn look(api: &Api, maps: &str) -> [Loaded; 2] {
    let version = |version: unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int)| {
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: the places are ours.
        unsafe { version(&raw mut major, &raw mut minor, &raw mut extra) };
        format!("{major}.{minor}.{extra}")
    };
    let loaded = |name, called: &str, version| Loaded { name, version, file: file(maps, called) };
    [
        loaded("librbd", RBD, version(api.rbd_version)),
        loaded("librados", RADOS, version(api.rados_version)),
    ]
}

/// The file that is mapped of a library; its name has more behind that by which it is looked for.
fn file(maps: &str, called: &str) -> Option<String> {
    let paths = maps.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    let is_it = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with(called));
    paths.into_iter().find(is_it).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn the_files_are_those_that_are_mapped() {
        let maps = "7f00-7f10 r--p 00000000 08:01 42    /usr/lib/librados.so.2.0.0\n\
                    7f10-7f20 rw-p 00000000 00:00 0 \n\
                    7f20-7f30 r-xp 00001000 08:01 43    /opt/my libs/librbd.so.1.16.0\n";
        let [rbd, rados] = look(&fake::API, maps);
        assert_eq!((rbd.name, &*rbd.version), ("librbd", "1.16.0"));
        assert_eq!(rbd.file.as_deref(), Some("/opt/my libs/librbd.so.1.16.0"));
        assert_eq!(rados.file.as_deref(), Some("/usr/lib/librados.so.2.0.0"));
        assert_eq!(look(&fake::API, "")[0].file, None);
    }
}
