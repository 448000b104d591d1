// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder by which attachments are found: of each a socket, which its process listens on as
//! long as it lives, and a file that says what it is, also when the process is gone.

use std::fs;
use std::fs::DirBuilder;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
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
use control::admin::Attachment;
use engine::loops::LoopDevice;
use rustix::fs::FlockOperation;

use crate::args::AttachedPlace;
use crate::args::Usage;
use crate::control_socket;
use crate::control_socket::Socket;

/// Attachments of one name: `disk-0`, `disk-0-2` and so on.
const ALIKE_MAX: u32 = 1000;

/// Where the book cannot be.
const ELSEWHERE: &str = "try: --state-dir PATH";

/// Longest name that is made of a URL; names of sockets may have a hundred bytes with their folder.
const NAME_MAX: usize = 32;

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Book {
    folder: PathBuf,
}

/// A name that is taken as long as this lives, and the socket that shows it.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) name: String,
    pub(super) listener: UnixListener,
    pub(super) socket: Socket,
}

/// An attachment in the book.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) attachment: Attachment,
    pub(super) alive: bool,
}

impl Book {
    /// The one that the user names, else that of the user; None: there is no place for one.
    pub(super) fn of(place: &AttachedPlace) -> Option<Self> {
        let folder = place.state_dir.clone().or_else(|| {
            match std::env::var_os("XDG_RUNTIME_DIR") {
                Some(folder) if !folder.is_empty() => Some(PathBuf::from(folder).join("lunwire")),
                // That of a daemon, /run/lunwire, belongs to its user and goes with it.
                _ if rustix::process::geteuid().is_root() => {
                    Some(PathBuf::from("/run/lunwire-attached"))
                }
                _ => None,
            }
        })?;
        Some(Self { folder })
    }

    /// The same where there must be one.
    pub(super) fn required(place: &AttachedPlace) -> Result<Self> {
        let message = "no place for attachments: XDG_RUNTIME_DIR is not set; try: --state-dir PATH";
        Self::of(place).with_context(|| message)
    }

    /// Makes the folder, for its user alone.
    pub(super) fn make(&self) -> Result<()> {
        let shown = self.folder.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .with_context(|| format!("cannot make {shown}; {ELSEWHERE}"))?;
        let facts = fs::metadata(&self.folder).with_context(|| format!("cannot use {shown}"))?;
        // Who may write there could have us write elsewhere, by links.
        if facts.uid() != rustix::process::geteuid().as_raw() {
            let user = facts.uid();
            bail!("{shown} belongs to user {user}; try: --state-dir with a folder of your own");
        }
        if facts.mode() & 0o022 != 0 {
            bail!("others may write to {shown}; try: chmod go-w {shown}, or --state-dir PATH");
        }
        Ok(())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// By which its process is asked.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.sock"))
    }

    fn facts(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// What a process says that runs in the background.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn mount(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.mount"))
    }

    /// Makes the directory where a disk is mounted that is to be a loop device.
    pub(super) fn make_mount(&self, name: &str) -> Result<PathBuf> {
        let folder = self.mount(name);
        // A process that was killed before the attachment was written down has left it.
        let left = take_away(&folder);
        left.with_context(|| format!("cannot take away what is left of {name}"))?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make {}; {ELSEWHERE}", folder.display()))?;
        Ok(folder)
    }

    /// Takes the wanted name, or one made of `url` that no other attachment has.
    pub(super) fn reserve(&self, wanted: Option<&str>, url: &initiator::Url) -> Result<Reserved> {
        let _alone = self.lock()?;
        if let Some(name) = wanted {
            check(name)?;
            if self.is_taken(name) {
                bail!(
                    "a disk is attached as {name} already; try: another --as, or lunwire attached"
                );
            }
            return self.take(name.to_owned());
        }
        let base = name_of(url);
        let others = (2..ALIKE_MAX).map(|number| format!("{base}-{number}"));
        for name in std::iter::once(base.clone()).chain(others) {
            if self.is_taken(&name) {
                continue;
            }
            match self.take(name.clone()) {
                // Somebody else was quicker.
                Err(_) if self.is_taken(&name) => {}
                result => return result,
            }
        }
        bail!("{ALIKE_MAX} disks are attached as {base}; try: --as NAME");
    }

    /// Takes the name of an attachment whose process is gone, which stays in the book until another
    /// one is entered.
    pub(super) fn reserve_again(&self, name: &str) -> Result<Reserved> {
        let _alone = self.lock()?;
        if self.is_alive(name) {
            bail!("another process attaches {name} already; try: lunwire attached");
        }
        self.take(name.to_owned())
    }

    /// Nobody takes the name of `gone`, whose process has left it, as long as this is there; None:
    /// somebody has done so, or has struck it out.
    pub(super) fn hold(&self, gone: &Attachment) -> Result<Option<File>> {
        let alone = self.lock()?;
        let now = self.read(&self.facts(&gone.name));
        let is_same = now.is_some_and(|now| !now.alive && now.attachment.pid == gone.pid);
        Ok(is_same.then_some(alone))
    }

    /// Nobody else chooses a name as long as this is there: a socket that is bound and does not
    /// listen yet looks as one that a killed process has left.
    fn lock(&self) -> Result<File> {
        let shown = self.folder.display();
        let folder = File::open(&self.folder).with_context(|| format!("cannot open {shown}"))?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {shown}"))?;
        Ok(folder)
    }

    fn take(&self, name: String) -> Result<Reserved> {
        let path = self.socket(&name);
        if fs::symlink_metadata(&path).is_ok_and(|there| !there.file_type().is_socket()) {
            bail!("{} is there and is no socket; try: another --as", path.display());
        }
        let listener = control_socket::bind(&path)?;
        let socket = Socket::of(path, &listener)?;
        Ok(Reserved { name, listener, socket })
    }

    fn is_taken(&self, name: &str) -> bool {
        // What nobody can read is nobody's: a full disk has left it, or a loss of power.
        self.is_alive(name) || self.read(&self.facts(name)).is_some()
    }

    /// Whether a process listens there.
    fn is_alive(&self, name: &str) -> bool {
        UnixStream::connect(self.socket(name)).is_ok()
    }

    /// Writes down what is attached.
    pub(super) fn enter(&self, attachment: &Attachment) -> Result<()> {
        let path = self.facts(&attachment.name);
        let text = serde_json::to_vec(attachment)?;
        let new = path.with_extension("new");
        let written = fs::write(&new, text)
            .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o600)))
            .and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            // It may be a part of it.
            let _ = fs::remove_file(&new);
        }
        written.with_context(|| format!("cannot write {}; {ELSEWHERE}", path.display()))
    }

    /// Writes it down if somebody has removed that.
    pub(super) fn enter_again(&self, attachment: &Attachment) {
        if !self.facts(&attachment.name).exists() {
            // What cannot be written now can be at the next look.
            let _ = self.enter(attachment);
        }
    }

    /// Strikes an attachment out; its socket goes with its process.
    pub(super) fn strike(&self, name: &str) {
        // What is not there is gone.
        let _ = fs::remove_file(self.facts(name));
        let _ = fs::remove_dir(self.mount(name));
    }

    /// Strikes out what a process has left behind that is gone.
    pub(super) fn clean(&self, name: &str) {
        let _ = fs::remove_file(self.socket(name));
        let _ = fs::remove_file(self.log(name));
        self.strike(name);
    }

    /// All attachments, by name.
    pub(super) fn entries(&self) -> Result<Vec<Entry>> {
        let shown = self.folder.display();
        let listing = match fs::read_dir(&self.folder) {
            Ok(listing) => listing,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
        };
        let mut entries = Vec::new();
        for found in listing {
            let path = found.with_context(|| format!("cannot read {shown}"))?.path();
            if path.extension().is_some_and(|kind| kind == "json")
                && let Some(entry) = self.read(&path)
            {
                entries.push(entry);
            }
        }
        entries.sort_by(|one, other| one.attachment.name.cmp(&other.attachment.name));
        Ok(entries)
    }

    /// None: it has gone meanwhile, or is none of ours.
    fn read(&self, path: &Path) -> Option<Entry> {
        let attachment: Attachment = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let named = path.file_stem().is_some_and(|stem| stem == &*attachment.name);
        let folder = attachment.folder.as_deref().map(Path::new);
        // Somebody may have removed its socket; and its directory may be another one's by now.
        let alive = self.is_alive(&attachment.name)
            || folder.is_some_and(attach::is_served) && is_ours(attachment.pid);
        // One that has just ended has struck itself out.
        (named && (alive || path.exists())).then_some(Entry { attachment, alive })
    }
}

/// Takes away what a process that is gone has left at `folder`, where it had mounted the disk.
pub(super) fn take_away(folder: &Path) -> Result<()> {
    // Another process has it by now.
    if attach::is_served(folder) {
        return Ok(());
    }
    for device in LoopDevice::of(&folder.join("disk")) {
        let shown = device.path().display();
        device.clear().with_context(|| format!("cannot take {shown} away"))?;
    }
    attach::forget(folder).with_context(|| format!("cannot unmount {}", folder.display()))
}

/// Whether a process is there, and one of this program.
fn is_ours(pid: u32) -> bool {
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    // One that has ended, and whose parent has not heard of it, runs nothing.
    let runs = fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    runs && name(&pid.to_string()).is_some_and(|it| Some(it) == name("self"))
}

/// Whether a name may be that of a file.
fn check(name: &str) -> Result<()> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.is_empty()
        || name.len() > NAME_MAX
        || name.starts_with(['.', '-'])
        || !name.chars().all(allowed)
    {
        let right = format!(
            "letters, digits, '-', '_' and '.' are right, {NAME_MAX} at most, and neither '-' nor \
             '.' is the first"
        );
        return Err(Usage(format!("--as {name}: {right}")).into());
    }
    Ok(())
}

/// What stands behind the last colon of the target's name, and the LUN.
fn name_of(url: &initiator::Url) -> String {
    let target = url.target.as_deref().unwrap_or("disk");
    let last = target.rsplit(':').next().unwrap_or(target);
    let letters = last.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-');
    let word: String = letters.take(NAME_MAX - 8).collect();
    let word = word.trim_start_matches('-');
    let word = if word.is_empty() { "disk" } else { word };
    format!("{word}-{}", url.lun.unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use control::admin::AttachmentState;

    use super::*;

    fn book() -> (Book, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let place = AttachedPlace { state_dir: Some(folder.path().join("a/b")) };
        let book = Book::of(&place).unwrap();
        book.make().unwrap();
        (book, folder)
    }

    fn attachment(name: &str) -> Attachment {
        Attachment {
            name: name.into(),
            url: "iscsi://host/iqn.x:disk/0".into(),
            kind: "file".into(),
            place: "/mnt/disk".into(),
            folder: Some("/mnt".into()),
            bytes: 1 << 20,
            read_only: false,
            pid: 7,
            state: AttachmentState::Works,
        }
    }

    #[test]
    fn who_leaves_late_takes_no_socket_of_others_along() {
        let (book, _folder) = book();
        let url = initiator::Url::parse("iscsi://host/iqn.x:disk/0").unwrap();
        // A file system may use an inode again at once, if nobody has it.
        for _ in 0..100 {
            let Reserved { name, listener, socket } = book.reserve(None, &url).unwrap();
            drop(listener);
            fs::remove_file(book.socket(&name)).unwrap();
            let next = book.reserve(None, &url).unwrap();
            assert_eq!(next.name, name);
            drop(socket);
            assert!(book.is_alive(&name), "its socket is gone");
        }
    }

    #[test]
    fn names_follow_from_urls_and_differ() {
        let (book, _folder) = book();
        let url = "iscsi://host/iqn.2026-01.com.example:web.data_1/3";
        let url = initiator::Url::parse(url).unwrap();
        let first = book.reserve(None, &url).unwrap();
        assert_eq!(first.name, "webdata1-3");
        assert_eq!(book.reserve(None, &url).unwrap().name, "webdata1-3-2");
        drop(first);
        assert_eq!(book.reserve(None, &url).unwrap().name, "webdata1-3");
        book.enter(&attachment("webdata1-3")).unwrap();
        assert_eq!(book.reserve(None, &url).unwrap().name, "webdata1-3-2");
        assert!(book.reserve(Some("webdata1-3"), &url).is_err());
        assert_eq!(book.reserve(Some("a.b"), &url).unwrap().name, "a.b");
        for odd in ["", "../x", ".x", "-x", "a/b", "a b", &"x".repeat(33)] {
            assert!(book.reserve(Some(odd), &url).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_folder_of_others_is_not_used() {
        let (book, _folder) = book();
        let mode = |mode| fs::set_permissions(&book.folder, fs::Permissions::from_mode(mode));
        for open in [0o777, 0o1777, 0o720] {
            mode(open).unwrap();
            assert!(book.make().unwrap_err().to_string().contains("chmod go-w"), "{open:o}");
        }
        mode(0o755).unwrap();
        book.make().unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&book.folder, Some(65534), None).unwrap();
            assert!(book.make().unwrap_err().to_string().contains("user 65534"));
        }
    }

    #[test]
    fn who_listens_is_alive() {
        let (book, _folder) = book();
        assert!(book.entries().unwrap().is_empty());
        let listener = UnixListener::bind(book.socket("b")).unwrap();
        book.enter(&attachment("b")).unwrap();
        book.enter(&attachment("a")).unwrap();
        fs::write(book.facts("broken"), "{").unwrap();
        let seen = || {
            let entries = book.entries().unwrap().into_iter();
            entries.map(|entry| (entry.attachment.name, entry.alive)).collect::<Vec<_>>()
        };
        assert_eq!(seen(), [("a".to_owned(), false), ("b".to_owned(), true)]);
        let url = initiator::Url::parse("iscsi://host/iqn.x:disk/0").unwrap();
        assert_eq!(book.reserve(Some("broken"), &url).unwrap().name, "broken");
        drop(listener);
        assert_eq!(seen(), [("a".to_owned(), false), ("b".to_owned(), false)]);
        book.clean("b");
        assert_eq!(seen(), [("a".to_owned(), false)]);
    }
}
