// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file with the key of a user, before Ceph looks for it there: whatever is wrong with it, all
//! that Ceph says is that it cannot connect.
#![forbid(unsafe_code)]

use crate::error::RbdError;
use crate::limits::KEYRING_LEN_MAX;
use std::fs::File;
use std::io;
use std::io::Read;
use std::path::Path;
use store::spec::RbdSpec;

/// Whom Ceph takes where no user is named.
pub(crate) const ADMIN: &str = "admin";

/// In what Ceph takes for several files, or fills in by itself.
const NO_PATH: [char; 5] = ['$', ';', '=', ' ', '\t'];

/// Whether the file of `keyring=` has a key of the user, if one is named.
///
/// # Errors
/// It cannot be read, or has none.
pub(crate) fn check(spec: &RbdSpec) -> Result<(), RbdError> {
    let named = spec.keyring.as_deref().filter(|path| !path.contains(NO_PATH));
    let Some(path) = named else { return Ok(()) };
    let user = spec.user.as_deref().unwrap_or(ADMIN);
    let (place, path, user) = (spec.place().to_string(), path.to_owned(), user.to_owned());
    match read(path.as_ref()) {
        Err(source) => Err(RbdError::Keyring { place, path, user, source }),
        Ok(text) => match owners(&text) {
            owners if owners.iter().any(|owner| *owner == format!("client.{user}")) => Ok(()),
            owners => {
                let has = owners.into_iter().map(str::to_owned).collect();
                Err(RbdError::NoKey { place, path, user, has })
            }
        },
    }
}

/// What is known of a key, when the cluster does not let its user in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// It is there, and may be the wrong one.
    There,
    /// No file has it.
    Missing,
    /// A file that may have it cannot be read by this account.
    Unreadable,
}

/// Looks for the key of `user` in the files that Ceph looks in, which are named one behind the
/// other.
pub(crate) fn look(files: &str, user: &str) -> Keys {
    let owner = format!("client.{user}");
    let files = files.split(',').map(str::trim).filter(|path| !path.is_empty());
    let found = files.map(|path| found(read(path.as_ref()), &owner));
    found.fold(Keys::Missing, |known, next| match (known, next) {
        (Keys::There, _) | (_, Keys::Missing) => known,
        _ => next,
    })
}

/// What a file has of a key.
fn found(read: io::Result<String>, owner: &str) -> Keys {
    match read {
        Ok(text) if owners(&text).contains(&owner) => Keys::There,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Keys::Unreadable,
        _ => Keys::Missing,
    }
}

fn read(path: &Path) -> io::Result<String> {
    // Opening a pipe waits for somebody who writes to it.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(KEYRING_LEN_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whose keys a keyring has, as Ceph writes them: `[client.admin]`, and `key = ...` below it.
fn owners(text: &str) -> Vec<&str> {
    let (mut owners, mut section) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        let inside = line.strip_prefix('[').and_then(|rest| rest.split(']').next());
        if let Some(owner) = inside {
            section = Some(owner.trim());
        } else if let (Some(("key", _)), Some(owner)) =
            (line.split_once('=').map(|(key, value)| (key.trim(), value)), section)
        {
            owners.push(owner);
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::spec::Spec;

    fn checked(word: &str) -> String {
        let Ok(Spec::Rbd(spec)) = word.parse() else { panic!("{word}") };
        check(&spec).map_or_else(|error| error.to_string(), |()| "good".to_owned())
    }

    #[test]
    fn keys_are_looked_for_in_all_files() {
        let path = std::env::temp_dir().join(format!("lunwire-keys-{}", std::process::id()));
        std::fs::write(&path, "[client.lunwire]\nkey = AQ==\n").expect("written");
        let files = format!("/nonexistent/keyring, {},", path.display());
        assert_eq!(look(&files, "lunwire"), Keys::There);
        assert_eq!(look(&files, "admin"), Keys::Missing);
        std::fs::remove_file(path).expect("removed");
        assert_eq!(look(&files, "lunwire"), Keys::Missing);
        assert_eq!(look("", "lunwire"), Keys::Missing);
        let denied = Err(io::ErrorKind::PermissionDenied.into());
        assert_eq!(found(denied, "client.lunwire"), Keys::Unreadable);
    }

    #[test]
    fn a_keyring_has_the_key_of_the_user() {
        let path = std::env::temp_dir().join(format!("lunwire-keyring-{}", std::process::id()));
        let text = "# keys\n[client.lunwire]\n\tkey = AQ==\n\tcaps mon = \"profile rbd\"\n\
                    [ client.empty ]\n[mon.]\nkey=AQ==\n";
        std::fs::write(&path, text).expect("written");
        let path = path.to_str().expect("a name");
        assert_eq!(checked("rbd:p/i"), "good", "nothing is named");
        assert_eq!(checked("rbd:p/i,keyring=/nonexistent/$cluster.keyring"), "good");
        assert_eq!(checked(&format!("rbd:p/i,id=lunwire,keyring={path}")), "good");
        for (user, name) in [("", "admin"), ("id=empty,", "empty"), ("id=mon.,", "mon.")] {
            let said = checked(&format!("rbd:p/i,{user}keyring={path}"));
            let expected = format!(
                "rbd:p/i: {path} has no key of client.{name} but of client.lunwire, mon.; \
                 try: id=lunwire, or keyring=FILE with that key"
            );
            assert_eq!(said, expected);
        }
        std::fs::write(path, "").expect("written");
        let said = checked(&format!("rbd:p/i,keyring={path}"));
        assert!(said.ends_with("has no key of client.admin; try: keyring=FILE with that key"));
        std::fs::remove_file(path).expect("removed");
        let said = checked(&format!("rbd:p/i,keyring={path}"));
        assert!(said.contains(&format!("cannot read {path}")), "{said}");
        assert!(checked("rbd:p/i,keyring=/dev").contains("it is no file"));
    }
}
