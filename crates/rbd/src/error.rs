// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fails, in words: what was done, with which image, why, and what to do about it.

use crate::keyring::ADMIN;
use std::fmt;
use std::io;
use std::path::Path;

/// Why Ceph's libraries cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// Not there.
    #[error(
        "rbd: needs {file}, which cannot be loaded: {said}; \
         try: install librbd1 (Debian, Ubuntu: apt-get install librbd1; \
         Fedora, RHEL, openSUSE: the package is librbd1, too)"
    )]
    Missing {
        /// The file that was looked for.
        file: &'static str,
        /// What the loader says.
        said: String,
    },
    /// There, and not to be loaded.
    #[error(
        "rbd: needs {file}, which is there and cannot be loaded: {said}; try: a librbd1 for this \
         machine, whole (Debian, Ubuntu: apt-get install --reinstall librbd1 librados2)"
    )]
    Broken {
        /// The file that was looked for.
        file: &'static str,
        /// What the loader says.
        said: String,
    },
    /// There, and of another time.
    #[error("rbd: needs {name}, which {file} does not have; try: librbd1 of Ceph 16 or newer")]
    TooOld {
        /// The file.
        file: &'static str,
        /// The function.
        name: &'static str,
    },
}

/// What was done when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// Setting up the library.
    Begin,
    /// Reading Ceph's configuration.
    Configuration,
    /// Changing an option of the library.
    Option(&'static str),
    /// Talking to the monitors.
    Connect,
    /// The same, and no file has the key for it.
    FindKey,
    /// The same, and a file that may have the key is not for us.
    ReadKey,
    /// Looking for the pool.
    Pool,
    /// Making the image.
    Create,
    /// Looking for the namespace.
    Namespace,
    /// Opening the image.
    Open,
    /// Looking for the snapshot of an image that is there.
    FindSnapshot,
    /// Asking for its size and what it is made of.
    Facts,
    /// Having its cache be one that tells of what it could not write.
    Cache,
    /// Having what is written be copied.
    Lend,
    /// Watching for another size.
    Watch,
    /// Giving it another size.
    Resize,
    /// Making a snapshot of it.
    Snapshot,
}

/// Why an image cannot be a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RbdError {
    /// There is no library for it.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// Ceph says no.
    #[error(
        "rbd:{place}: {}: {source}{}",
        InWords(*.doing),
        advice(*.doing, .source, .conf.as_deref(), .user.as_deref())
    )]
    Failed {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// The configuration, where one was named, by `conf=` or `CEPH_CONF`.
        conf: Option<String>,
        /// Without `client.`, where one was named.
        user: Option<String>,
        /// What was done.
        doing: Doing,
        /// What Ceph says.
        source: io::Error,
    },
    /// It says nothing.
    #[error(
        "rbd:{place}: the cluster does not answer within {seconds} s; \
         try: ceph health detail (OSDs that are down keep an image from being opened)"
    )]
    Silent {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// How long it had.
        seconds: u64,
    },
    /// It says nothing to an order.
    #[error(
        "rbd:{place}: the cluster has not answered within {seconds} s, and may still do it; \
         try: ceph health detail"
    )]
    Unanswered {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// How long it had.
        seconds: u64,
    },
    /// The file with the key of the user.
    #[error(
        "rbd:{place}: cannot read {path}: {source}; try: keyring=FILE with the key of client.{user}"
    )]
    Keyring {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// The file.
        path: String,
        /// Without `client.`.
        user: String,
        /// What the system says.
        source: io::Error,
    },
    /// A file with other keys.
    #[error("rbd:{place}: {path} has no key of client.{user}{}", OtherKeys(.has))]
    NoKey {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// The file.
        path: String,
        /// Without `client.`.
        user: String,
        /// Whose keys it has.
        has: Vec<String>,
    },
    /// It was asked for nothing, since it does not answer what was asked before.
    #[error(
        "rbd:{place}: the cluster has not answered what was asked before within {seconds} s: \
         nothing was done; try: ceph health detail"
    )]
    NotBegun {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// How long it had.
        seconds: u64,
    },
    /// It does not say what it has.
    #[error("rbd:{place}: the cluster does not answer within {seconds} s; try: ceph health detail")]
    NotSeen {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// How long it had.
        seconds: u64,
    },
    /// The cluster takes nothing from this client any more.
    #[error(
        "rbd:{place}: the cluster has shut this client out (blocklisted); try: lunwire lun remove \
         and lunwire lun add, when nobody else is to have the image"
    )]
    ShutOut {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
    },
    /// Who has asked is gone.
    #[error("rbd:{place}: nobody waits for it any more: nothing was done")]
    Unwanted {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
    },
    /// A name that no snapshot can have.
    #[error(
        "rbd:{place}: {name:?} is no name for a snapshot of an image; try: one without / and @, \
         such as monday"
    )]
    SnapshotName {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// The name.
        name: String,
    },
    /// The system has no thread for it.
    #[error("rbd:{place}: cannot start a thread: {source}")]
    Thread {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// It is a disk already.
    #[error("rbd:{place} is given twice: it is served already; try: once")]
    InUse {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
    },
    /// It was a disk until now.
    #[error(
        "rbd:{place}: the image is not closed yet by the LUN that it was until now, which waits \
         for the cluster; try: again later, or ceph health detail"
    )]
    Closing {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
    },
    /// An image that no disk can be made of.
    #[error(
        "rbd:{place}: {bytes} bytes is no size of a disk: it must be a multiple of 512, and not \
         zero; try: rbd resize --size {}B {place}",
        .bytes.next_multiple_of(512).max(512)
    )]
    Size {
        /// `POOL[/NAMESPACE]/IMAGE[@SNAP]`.
        place: String,
        /// Its size.
        bytes: u64,
    },
}

impl LibraryError {
    /// What the loader says of a library that it does not load.
    pub(crate) fn of_loader(file: &'static str, said: String) -> Self {
        // In the words of C: nobody has asked for another language.
        match said.contains("No such file or directory") {
            true => Self::Missing { file, said },
            false => Self::Broken { file, said },
        }
    }
}

impl RbdError {
    /// Whether it is the cluster that says nothing, to whoever asks for an image of it.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Failed { doing: Doing::Connect, source, .. } => {
                source.kind() == io::ErrorKind::TimedOut
            }
            _ => false,
        }
    }

    /// Whether the only thing that is wrong is that the image is not there.
    pub(crate) fn is_no_image(&self) -> bool {
        let Self::Failed { doing: Doing::Open, source, .. } = self else { return false };
        source.kind() == io::ErrorKind::NotFound
    }
}

struct OtherKeys<'a>(&'a [String]);

impl fmt::Display for OtherKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.0.iter().find_map(|owner| owner.strip_prefix("client."));
        match user {
            None => f.write_str("; try: keyring=FILE with that key"),
            Some(user) => write!(
                f,
                " but of {}; try: id={user}, or keyring=FILE with that key",
                self.0.join(", ")
            ),
        }
    }
}

struct InWords(Doing);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Doing::Begin => "cannot set up librados",
            Doing::Configuration => "cannot read Ceph's configuration",
            Doing::Option(name) => return write!(f, "cannot set {name}"),
            Doing::Connect | Doing::FindKey | Doing::ReadKey => "cannot connect to the cluster",
            Doing::Pool => "cannot use the pool",
            Doing::Create => "cannot create the image",
            Doing::Namespace => "cannot use the namespace",
            Doing::Open => "cannot open the image",
            Doing::FindSnapshot => "cannot open the snapshot",
            Doing::Facts => "cannot ask what the image is",
            Doing::Cache => "cannot trust its cache",
            Doing::Lend => "cannot have its writes copied",
            Doing::Watch => "cannot watch the image",
            Doing::Resize => "cannot give the image another size",
            Doing::Snapshot => "cannot make the snapshot",
        })
    }
}

/// Where Ceph looks first, if its configuration does not say so.
fn usual_keyring(conf: Option<&str>, user: &str) -> String {
    // The cluster is called as its configuration is.
    let name = conf.and_then(|conf| Path::new(conf).file_stem()?.to_str()).unwrap_or("ceph");
    format!("/etc/ceph/{name}.client.{user}.keyring")
}

/// What to try, if we know.
fn advice(doing: Doing, source: &io::Error, conf: Option<&str>, user: Option<&str>) -> String {
    let user = user.unwrap_or(ADMIN);
    let usual = usual_keyring(conf, user);
    let conf = conf.unwrap_or("the default one, /etc/ceph/ceph.conf");
    match (doing, source.kind()) {
        (Doing::Configuration, _) => {
            format!(
                " ({conf}); try: put that of the cluster there, readable for this account, or \
                 conf=FILE"
            )
        }
        (Doing::FindKey, _) => format!(
            "; no file has the key of client.{user} (it is looked for in {usual}, as a rule); \
             try: put there what ceph auth get client.{user} says, or keyring=FILE, or id=USER"
        ),
        (Doing::ReadKey, _) => format!(
            "; this account may not read the file with the key of client.{user} ({usual}, as a \
             rule); try: let it, or keyring=FILE, or id=USER"
        ),
        (Doing::Connect, io::ErrorKind::NotFound) => format!(
            "; try: conf=FILE with a configuration that names the monitors (now: {conf}), and \
             keyring=FILE with the key of the user"
        ),
        (Doing::Connect, io::ErrorKind::TimedOut) => {
            "; try: ceph status (no monitor answers; are they up, and is the network?)".to_owned()
        }
        (Doing::Connect, io::ErrorKind::PermissionDenied) => format!(
            "; the key is not that of client.{user}, or the cluster does not know that user; try: \
             ceph auth get client.{user}, and keyring=FILE with what it says, or id=USER"
        ),
        // What a key is that cannot be decoded.
        (Doing::Connect, _) if matches!(source.raw_os_error(), Some(EIO | EINVAL)) => format!(
            "; the key of client.{user} may be damaged; try: ceph auth get client.{user}, and \
             keyring=FILE with what it says"
        ),
        (Doing::Create, io::ErrorKind::StorageFull) => {
            "; the cluster, or the pool, is full; try: ceph df".to_owned()
        }
        (Doing::Create, io::ErrorKind::QuotaExceeded) => {
            "; the pool has a quota; try: ceph osd pool get-quota POOL".to_owned()
        }
        (Doing::Pool | Doing::Open | Doing::Create, io::ErrorKind::PermissionDenied) => {
            "; try: id=USER and keyring=FILE of a user with caps mon 'profile rbd' osd \
             'profile rbd pool=POOL'"
                .to_owned()
        }
        (Doing::Pool, io::ErrorKind::NotFound) => {
            "; there is no such pool; try: ceph osd pool ls".to_owned()
        }
        (Doing::Open, io::ErrorKind::NotFound) => {
            "; there is no such image; try: rbd ls POOL[/NAMESPACE], or create,size=SIZE for a new \
             one"
            .to_owned()
        }
        (Doing::Namespace, _) => {
            "; there is no such namespace; try: rbd namespace ls POOL".to_owned()
        }
        (Doing::FindSnapshot, _) => {
            "; the image is there, and has no such snapshot; try: rbd snap ls POOL/IMAGE".to_owned()
        }
        (Doing::Cache, _) => {
            "; the image or its pool insists on rbd_cache_policy writearound, which forgets writes \
             that fail; try: rbd config image rm POOL/IMAGE rbd_cache_policy, or \
             rbd config pool rm POOL rbd_cache_policy"
                .to_owned()
        }
        (Doing::Lend, _) => {
            "; the image or its pool insists on rbd_disable_zero_copy_writes false, with which \
             some writes never end; try: rbd config image rm POOL/IMAGE \
             rbd_disable_zero_copy_writes, or rbd config pool rm POOL rbd_disable_zero_copy_writes"
                .to_owned()
        }
        (Doing::Snapshot, io::ErrorKind::AlreadyExists) => {
            "; there is one of that name; try: rbd snap ls POOL/IMAGE".to_owned()
        }
        (Doing::Resize | Doing::Snapshot, io::ErrorKind::ReadOnlyFilesystem) => {
            "; another client has the image for itself; try: rbd lock ls POOL/IMAGE".to_owned()
        }
        (Doing::Open, io::ErrorKind::ReadOnlyFilesystem) => {
            "; the image is not to be written (a mirror that is not primary?); try: a snapshot of \
             it"
            .to_owned()
        }
        _ => String::new(),
    }
}

/// What an error of an operation means to hosts. `EBLOCKLISTED` is `ESHUTDOWN`: another client has
/// taken the image over.
pub(crate) fn of_operation(errno: i32, failed: store::Error) -> store::Error {
    match errno {
        ENOSPC | EDQUOT => store::Error::Space,
        EROFS => store::Error::ReadOnly,
        EINVAL => store::Error::Range,
        ENOENT | ESHUTDOWN | ETIMEDOUT | EPERM | EACCES => store::Error::Internal,
        _ => failed,
    }
}

// Linux.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ESHUTDOWN: i32 = 108;
const ETIMEDOUT: i32 = 110;
const EDQUOT: i32 = 122;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_image_and_what_to_try() {
        let failed = |doing, errno| {
            RbdError::Failed {
                place: "rbd/disk".to_owned(),
                conf: None,
                user: None,
                doing,
                source: io::Error::from_raw_os_error(errno),
            }
            .to_string()
        };
        let text = failed(Doing::Pool, ENOENT);
        assert!(text.starts_with("rbd:rbd/disk: cannot use the pool: No such file"), "{text}");
        assert!(text.ends_with("try: ceph osd pool ls"), "{text}");
        let text = failed(Doing::Connect, ETIMEDOUT);
        assert!(text.contains("ceph status"), "{text}");
        let text = failed(Doing::Connect, EACCES);
        for part in
            ["the key is not that of client.admin", "ceph auth get client.admin", "keyring="]
        {
            assert!(text.contains(part), "{text}");
        }
        for (doing, part) in [
            (Doing::FindKey, "no file has the key of client.admin"),
            (Doing::ReadKey, "may not read the file with the key of client.admin"),
        ] {
            let text = failed(doing, EACCES);
            assert!(text.contains("cannot connect to the cluster: Permission denied"), "{text}");
            assert!(text.contains(part), "{text}");
            assert!(text.contains("/etc/ceph/ceph.client.admin.keyring, as a rule"), "{text}");
        }
        assert!(failed(Doing::Connect, EIO).contains("the key of client.admin may be damaged"));
        let usual = usual_keyring(Some("/srv/ours.conf"), "lunwire");
        assert_eq!(usual, "/etc/ceph/ours.client.lunwire.keyring");
        for (errno, tried) in [
            (ENOSPC, "try: ceph df"),
            (EDQUOT, "get-quota POOL"),
            (EPERM, "with caps mon 'profile rbd' osd 'profile rbd pool=POOL'"),
            (EACCES, "with caps mon 'profile rbd' osd 'profile rbd pool=POOL'"),
        ] {
            let text = failed(Doing::Create, errno);
            assert!(text.starts_with("rbd:rbd/disk: cannot create the image: "), "{text}");
            assert!(text.ends_with(tried), "{text}");
        }
    }

    #[test]
    fn a_missing_library_is_told_with_its_file_and_its_package() {
        let text = |said: &str| LibraryError::of_loader("librbd.so.1", said.to_owned()).to_string();
        let missing = "librbd.so.1: cannot open shared object file: No such file or directory";
        for part in ["needs librbd.so.1", missing, "; try: install librbd1"] {
            assert!(text(missing).contains(part), "{part}");
        }
        let broken = "/opt/librbd.so.1: file too short";
        for part in ["needs librbd.so.1", broken, "--reinstall"] {
            assert!(text(broken).contains(part), "{part}");
        }
    }

    #[test]
    fn hosts_are_told_what_they_can_act_on() {
        use store::Error::*;
        for (errno, error) in
            [(ENOSPC, Space), (EDQUOT, Space), (EROFS, ReadOnly), (EINVAL, Range), (5, Write)]
        {
            assert_eq!(of_operation(errno, Write), error);
        }
        for errno in [ENOENT, ESHUTDOWN, ETIMEDOUT, EPERM, EACCES] {
            assert_eq!(of_operation(errno, Read), Internal, "{errno}");
        }
    }
}
