// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tokens: who has one may do what the file says of it. The file is read whenever somebody shows a
//! token, so that a line that goes is good for nothing at once.

use std::fmt;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use subtle::Choice;
use subtle::ConditionallySelectable;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::kept;
use crate::kept::Unkept;
use crate::limits::TOKEN_LEN_MAX;
use crate::limits::TOKEN_LEN_MIN;
use crate::limits::TOKENS_LEN_MAX;

/// What is wrong with a file of tokens. No text of it is in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// It cannot be read.
    #[error("cannot read the tokens: {0}")]
    Read(io::Error),
    /// Others can read it.
    #[error("the file of tokens is open to others than its owner (mode {0:04o}); try: chmod 600")]
    Open(u32),
    /// It is longer than anybody's tokens.
    #[error("the file of tokens has more than {TOKENS_LEN_MAX} bytes")]
    Long,
    /// There is none in it.
    #[error("the file has no token; a line of it is: change TOKEN")]
    None,
    /// A line is none.
    #[error("line {line} of the file of tokens: {why}")]
    Line {
        /// From 1.
        line: u32,
        /// What is right.
        why: &'static str,
    },
}

/// What a token lets its owner do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// Read, which at a port of this machine alone everybody may.
    Read,
    /// Change what is served, too.
    Change,
}

impl Right {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Change => "change",
        }
    }
}

/// Which token it is: what it lets its owner do, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) right: Right,
    /// From 1.
    pub(crate) line: u32,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.right.name(), self.line)
    }
}

/// A file of tokens.
#[derive(Clone, Debug)]
pub struct Tokens {
    path: PathBuf,
}

impl Tokens {
    /// The tokens in the file: a line each, `change TOKEN` or `read TOKEN`.
    ///
    /// # Errors
    /// See [`TokensError`].
    pub fn of(path: &Path) -> Result<Self, TokensError> {
        let tokens = Self { path: path.to_owned() };
        let text = tokens.read()?;
        match lines(&text).try_fold(0, |count, line| line.map(|_| count + 1))? {
            0 => Err(TokensError::None),
            _ => Ok(tokens),
        }
    }

    /// What `given` lets its owner do; None: it is no token.
    pub(crate) fn right_of(&self, given: &[u8]) -> Result<Option<Shown>, TokensError> {
        let text = self.read()?;
        let (mut reads, mut changes) = ((Choice::from(0), 0), (Choice::from(0), 0));
        // All are compared, whichever it is.
        for line in lines(&text) {
            let (right, token, line) = line?;
            let is_it = token.ct_eq(given);
            let (known, at) = match right {
                Right::Read => &mut reads,
                Right::Change => &mut changes,
            };
            *known |= is_it;
            at.conditional_assign(&line, is_it);
        }
        Ok(match (bool::from(changes.0), bool::from(reads.0)) {
            (true, _) => Some(Shown { right: Right::Change, line: changes.1 }),
            (false, true) => Some(Shown { right: Right::Read, line: reads.1 }),
            (false, false) => None,
        })
    }

    fn read(&self) -> Result<Zeroizing<Vec<u8>>, TokensError> {
        kept::read(&self.path, TOKENS_LEN_MAX).map_err(|unkept| match unkept {
            Unkept::Read(error) => TokensError::Read(error),
            Unkept::Open(mode) => TokensError::Open(mode),
            Unkept::Long => TokensError::Long,
        })
    }
}

/// What each line lets whom do; empty ones and those that begin with `#` are none.
fn lines(text: &[u8]) -> impl Iterator<Item = Result<(Right, &[u8], u32), TokensError>> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).zip(1..);
    let lines = lines.filter(|(text, _)| !text.is_empty() && !text.starts_with(b"#"));
    lines.map(|(text, line)| match parsed(text) {
        Ok((right, token)) => Ok((right, token, line)),
        Err(why) => Err(TokensError::Line { line, why }),
    })
}

fn parsed(line: &[u8]) -> Result<(Right, &[u8]), &'static str> {
    const SHAPE: &str = "read TOKEN or change TOKEN is right";
    let end = line.iter().position(u8::is_ascii_whitespace).ok_or(SHAPE)?;
    let (word, token) = line.split_at_checked(end).ok_or(SHAPE)?;
    let right = match word {
        b"read" => Right::Read,
        b"change" => Right::Change,
        _ => return Err(SHAPE),
    };
    let token = token.trim_ascii_start();
    if !(TOKEN_LEN_MIN..=TOKEN_LEN_MAX).contains(&token.len()) {
        return Err("a token has 32 to 256 characters; try: openssl rand -hex 32");
    }
    // What a header can carry (RFC 6750 section 2.1).
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    match token.iter().all(is_fine) {
        true => Ok((right, token)),
        false => Err("a token has letters, digits and - . _ ~ + / = alone"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    pub(crate) const CHANGE: &str = "0123456789abcdef0123456789abcdef";
    const READ: &str = "fedcba9876543210fedcba9876543210+/=";

    /// A file of its own that goes with what is returned.
    pub(crate) fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_token_has_the_right_of_its_line() {
        let text = format!("# for scripts\n\n change  {CHANGE} \r\nread\t{READ}\n");
        let file = file(&text, 0o600);
        let tokens = Tokens::of(file.path()).unwrap();
        let shown = |given: &str| tokens.right_of(given.as_bytes()).unwrap();
        let right = |given: &str| shown(given).map(|shown| shown.right);
        assert_eq!(shown(CHANGE).unwrap().to_string(), "change, line 3");
        assert_eq!(shown(READ).unwrap().to_string(), "read, line 4");
        assert_eq!(right(CHANGE), Some(Right::Change));
        assert_eq!(right(READ), Some(Right::Read));
        for none in ["", &CHANGE[1..], &CHANGE.to_uppercase(), &format!("{CHANGE}0"), "#", "change"]
        {
            assert_eq!(right(none), None, "{none}");
        }
        std::fs::write(file.path(), format!("read {CHANGE}\n")).unwrap();
        assert_eq!(right(CHANGE), Some(Right::Read), "it is read anew");
        std::fs::write(file.path(), "").unwrap();
        assert_eq!(right(CHANGE), None);
    }

    #[test]
    fn a_file_that_is_wrong_is_told_and_not_repeated() {
        let said = |text: &str, mode: u32| {
            let file = file(text, mode);
            Tokens::of(file.path()).map(drop).map_err(|error| error.to_string()).unwrap_err()
        };
        let good = format!("change {CHANGE}\n");
        for mode in [0o644, 0o604, 0o660, 0o601] {
            let said = said(&good, mode);
            assert!(said.contains("chmod 600") && said.contains(&format!("{mode:04o}")), "{said}");
        }
        for (text, wanted) in [
            (CHANGE.to_owned(), "line 1 of the file of tokens: read TOKEN or change"),
            (format!("{good}\nwrite {CHANGE}"), "line 3 of"),
            (format!("change {}", &CHANGE[1..]), "openssl rand"),
            (format!("change {}", "a".repeat(257)), "32 to 256"),
            (format!("change {CHANGE} {CHANGE}"), "alone"),
            (format!("change {CHANGE}\u{e9}"), "alone"),
            ("# nothing\n".into(), "no token"),
            ("#".repeat(TOKENS_LEN_MAX + 1), "more than 65536 bytes"),
        ] {
            let said = said(&text, 0o600);
            assert!(said.contains(wanted) && !said.contains(&CHANGE[..8]), "{wanted}: {said}");
        }
        let nowhere = Tokens::of(Path::new("/nowhere/tokens")).unwrap_err();
        assert!(nowhere.to_string().contains("cannot read the tokens: No such file"), "{nowhere}");
        assert!(matches!(Tokens::of(Path::new("/dev/zero")), Err(TokensError::Read(_))));
    }
}
