// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An interface as users name it: `eth1`, or with how frames go, `eth1,frames=xdp`.

use std::fmt;
use std::str::FromStr;

/// An interface of ours, and how frames come and go there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_structs)] // both are needed, and nothing else
pub struct Interface {
    /// Its name.
    pub name: String,
    /// How.
    pub way: Way,
}

/// How frames come and go at an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum Way {
    /// By the network stack (AF_PACKET).
    #[default]
    Packet,
    /// Past it (AF_XDP), or not at all.
    Xdp,
    /// By AF_XDP where the driver reads and writes our memory itself, or runs our program and a
    /// frame lies in one piece; else by AF_PACKET, as where interfaces are made of others.
    Auto,
}

/// Why a text is no interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // it has two parts
pub enum InterfaceError {
    /// The name.
    Name,
    /// What follows it.
    Way,
}

/// Longest name of an interface (IFNAMSIZ with its end).
const NAME_LEN_MAX: usize = 15;

/// Before the way.
const OPTION: &str = "frames=";

impl From<&str> for Interface {
    /// The one of this name, in the usual way.
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), way: Way::default() }
    }
}

impl Way {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Auto => "auto",
        }
    }
}

impl FromStr for Interface {
    type Err = InterfaceError;

    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        let (name, option) = match text.split_once(',') {
            Some((name, option)) => (name, Some(option)),
            None => (text, None),
        };
        let good = |letter: char| letter.is_ascii_graphic() && !"/:%?@".contains(letter);
        if !(1..=NAME_LEN_MAX).contains(&name.len()) || !name.chars().all(good) {
            return Err(InterfaceError::Name);
        }
        let way = match option.map(|option| option.strip_prefix(OPTION)) {
            None => Way::default(),
            Some(word) => [Way::Packet, Way::Xdp, Way::Auto]
                .into_iter()
                .find(|way| word == Some(way.name()))
                .ok_or(InterfaceError::Way)?,
        };
        Ok(Self { name: name.to_owned(), way })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.way {
            Way::Packet => Ok(()),
            way => write!(f, ",{OPTION}{}", way.name()),
        }
    }
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the name of a network interface is right, as in eth1",
            Self::Way => "frames=packet, frames=xdp or frames=auto may follow the interface",
        })
    }
}

impl std::error::Error for InterfaceError {}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_and_shown() {
        for (text, way) in [
            ("enp3s0.7", Way::Packet),
            ("eth1,frames=xdp", Way::Xdp),
            ("eth1,frames=auto", Way::Auto),
        ] {
            let interface: Interface = text.parse().unwrap();
            assert_eq!((interface.way, interface.to_string()), (way, text.to_owned()));
        }
        let usual: Interface = "eth1,frames=packet".parse().unwrap();
        assert_eq!(usual, Interface::from("eth1"));
        for (text, error) in [
            ("", InterfaceError::Name),
            (",frames=xdp", InterfaceError::Name),
            ("../etc", InterfaceError::Name),
            ("0123456789abcdef", InterfaceError::Name),
            ("eth1,", InterfaceError::Way),
            ("eth1,xdp", InterfaceError::Way),
            ("eth1,frames=XDP", InterfaceError::Way),
            ("eth1,frames=xdp,frames=xdp", InterfaceError::Way),
        ] {
            assert_eq!(text.parse::<Interface>(), Err(error), "{text}");
        }
    }
}
