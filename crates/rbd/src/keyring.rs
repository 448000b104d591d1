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
const ADMIN: &str = "admin";

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
