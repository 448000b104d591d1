// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refuses what would make protection information wrong: a disk that has some, by whatever name,
//! and is to be written to without it.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use engine::files::COMPANION_ATTRIBUTE;
use engine::files::Companion;
use scsi::FormatError;
use scsi::PROTECTION_HEADER_LEN;
use scsi::ProtectionFormat;
use store::spec::FileSpec;

use super::ProtectionError;

/// What holds protection information of a disk.
struct Found {
    side: String,
    kind: u8,
    /// It stands beside the name that the disk is opened by.
    beside: bool,
}

/// A disk whose protection information is not where it was, nor beside it. It was removed, to give
/// it up, or will not fit what is written meanwhile. Shows a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astray {
    /// Where it was.
    side: String,
    /// The disk.
    path: String,
}

impl fmt::Display for Astray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, path } = self;
        write!(
            f,
            "{path} had protection information in {side}, which is not there: if it was moved, it \
             does not fit what is written from now on; try: stop, move it to {path}.pi, and serve \
             {path} with protection; if it was removed to give it up: setfattr -x \
             {COMPANION_ATTRIBUTE} {path}, and this is not said again"
        )
    }
}

/// All that is found of a disk.
struct Sides {
    found: Vec<Found>,
    astray: Option<Astray>,
    /// What can be served with protection: the disk, or the file behind a device.
    disk: PathBuf,
}

impl Sides {
    fn refusal(&self, found: &Found, path: &Path) -> ProtectionError {
        let Found { side, kind, .. } = found;
        let (side, path, disk, kind) = (side.clone(), text(path), text(&self.disk), *kind);
        match disk != path && side == side_of(&disk) {
            true => ProtectionError::Shown { side, path, disk, kind },
            false => ProtectionError::Elsewhere { side, path, disk, kind },
        }
    }
}

/// Refuses the file `path`, or the device in front of it, as one that is written to by others than
/// a daemon that keeps its protection information, or is made anew. Gives what is to be warned of.
///
/// # Errors
/// What holds its protection information, or that this cannot be seen.
pub fn expect_unprotected(path: &Path) -> Result<Option<Astray>, ProtectionError> {
    if !path.exists() {
        return refuse_missing(path).map(|()| None);
    }
    let Sides { found, astray, .. } = sides(path)?;
    match found.into_iter().next() {
        None => Ok(astray),
        Some(Found { side, kind, .. }) => {
            Err(ProtectionError::Overwritten { side, path: text(path), kind })
        }
    }
}

/// Refuses a disk that is to be served without protection information and has some. Gives what is
/// to be warned of.
pub(super) fn refuse_left_out(disk: &FileSpec) -> Result<Option<Astray>, ProtectionError> {
    refuse_orphan(disk)?;
    let path = disk.path.clone();
    let sides = sides(Path::new(&path))?;
    match sides.found.first() {
        None => Ok(sides.astray),
        Some(Found { side, kind, beside: true }) => {
            Err(ProtectionError::LeftOut { side: side.clone(), path, kind: *kind })
        }
        Some(found) => Err(sides.refusal(found, Path::new(&path))),
    }
}

/// Refuses a disk that is to be served with protection information and has some that is not beside
/// this name of it: two of them would each miss what is written with the other one.
pub(super) fn refuse_elsewhere(disk: &FileSpec) -> Result<(), ProtectionError> {
    let path = Path::new(&disk.path);
    let sides = sides(path)?;
    match sides.found.iter().find(|found| !found.beside) {
        None => Ok(()),
        Some(found) => Err(sides.refusal(found, path)),
    }
}

/// What was beside a file that is gone is of no other one.
pub(super) fn refuse_orphan(disk: &FileSpec) -> Result<(), ProtectionError> {
    let path = Path::new(&disk.path);
    if disk.size.is_none() || path.exists() { Ok(()) } else { refuse_missing(path) }
}

fn refuse_missing(path: &Path) -> Result<(), ProtectionError> {
    let side = beside(path);
    match kept(&side, path)? {
        None => Ok(()),
        Some(_) => Err(ProtectionError::Orphan { side: text(&side), path: text(path) }),
    }
}

/// What stands beside the file `path`.
pub(super) fn side_of(path: &str) -> String {
    format!("{path}.pi")
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".pi");
    name.into()
}

/// All protection information of the disk `path`: beside its name, beside the name that a link or
/// device leads to, and where it was when the disk was last served with it.
fn sides(path: &Path) -> Result<Sides, ProtectionError> {
    let own = beside(path);
    let place = |side: &Path| side.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let whole = engine::files::file_behind(&whole).unwrap_or(whole);
    let disk = if path.is_file() { path.to_owned() } else { whole.clone() };
    let (bound, astray) = match engine::files::companion(&whole, path) {
        Ok(Some(Companion::There(side))) => (Some(side), None),
        Ok(Some(Companion::Astray(side))) => {
            (None, Some(Astray { side: text(&side), path: text(&disk) }))
        }
        Ok(None) => (None, None),
        // Who opens it tells why not, or makes it.
        Err(error) if error.kind() != io::ErrorKind::InvalidData => (None, None),
        Err(source) => return Err(ProtectionError::Side { side: text(path), source }),
    };
    let mut found: Vec<Found> = Vec::new();
    for side in [Some(own.clone()), Some(beside(&whole)), bound].into_iter().flatten() {
        let beside = side == own || (place(&side).is_some() && place(&side) == place(&own));
        if found.iter().any(|found| found.beside && beside) {
            continue;
        }
        let format = kept(&side, path)?;
        if let Some(kind) = format.and_then(|format| format.kind) {
            found.push(Found { side: text(&side), kind: kind.number(), beside });
        }
    }
    Ok(Sides { found, astray, disk })
}

/// How the disk `path` is formatted by what `side` says; None if there is no such file, or it is
/// something else.
fn kept(side: &Path, path: &Path) -> Result<Option<ProtectionFormat>, ProtectionError> {
    let failed = |source| ProtectionError::Side { side: text(side), source };
    match side.metadata() {
        Ok(facts) if facts.is_file() => {}
        // A pipe would wait for its other end.
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A device has no folder that keeps files, and a name that is too long no file.
        Err(_) if !path.is_file() => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let mut header = [0; PROTECTION_HEADER_LEN];
    match File::open(side).map_err(failed)?.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    match ProtectionFormat::parse(&header) {
        Ok(format) => Ok(format),
        Err(FormatError::Foreign) => Ok(None),
        Err(problem) => {
            let (side, path) = (text(side), text(path));
            Err(ProtectionError::Header { side, path, problem })
        }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
