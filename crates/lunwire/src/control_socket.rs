// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket: the file by which a process is found that can be asked, for its owner and
//! root only.

pub(crate) mod advice;
pub(crate) mod asking;

use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

/// The file by which a process is found that can be asked.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    /// Device and inode: which of the files of that name it is.
    identity: (u64, u64),
    /// As long as somebody listens, no other file gets that inode.
    listener: UnixListener,
    /// Another process listens at it.
    is_handed_over: bool,
}

impl Socket {
    /// `path`: where `listener` is bound.
    pub(crate) fn of(path: PathBuf, listener: &UnixListener) -> Result<Self> {
        let known = identity(&path).and_then(|known| Ok((known, listener.try_clone()?)));
        let (identity, listener) = known.with_context(|| path.display().to_string())?;
        Ok(Self { path, identity, listener, is_handed_over: false })
    }

    /// Where it listens.
    pub(crate) const fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Leaves it to the process that listens at it next.
    pub(crate) const fn hand_over(&mut self) {
        self.is_handed_over = true;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Somebody may have removed it, and another process may have its own there.
        if !self.is_handed_over && identity(&self.path).is_ok_and(|there| there == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of what is at `path`.
pub(crate) fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|facts| (facts.dev(), facts.ino()))
}

/// `lunwire.sock` in the user's runtime folder, or in /run for root.
pub(crate) fn default_path() -> Option<PathBuf> {
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
        _ => return None,
    };
    Some(folder.join("lunwire.sock"))
}

/// Binds `path` for its owner only; a socket that nobody answers on is left over and replaced.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        let path = path.display();
        bail!("{path} belongs to a running daemon; try: --control-socket with another path");
    }
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|facts| facts.file_type().is_socket());
    if is_socket {
        // If it cannot be removed, binding says so.
        let _ = std::fs::remove_file(path);
    } else if let Ok(facts) = std::fs::symlink_metadata(path) {
        let what = match facts.file_type() {
            kind if kind.is_dir() => "a folder",
            kind if kind.is_file() => "a file",
            _ => "there, and no socket",
        };
        bail!("{} is {what}; try: --control-socket with another path", path.display());
    }
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener.with_context(|| match path.parent().filter(|path| !path.exists()) {
        Some(folder) if folder != Path::new("") => {
            let (path, folder) = (path.display(), folder.display());
            format!("cannot make {path}: the folder {folder} is missing; try: mkdir -p {folder}")
        }
        _ => format!("cannot make {}; try: --control-socket with another path", path.display()),
    })?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
