// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a station is, as URLs have it: `02:00:5e:10:00:01%eth1`.

use std::fmt;
use std::str::FromStr;

use wire::ether::Mac;

/// A station, and the interface of ours that leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // both are needed, and nothing else
pub struct Place {
    /// Its address.
    pub mac: Mac,
    /// Our interface.
    pub interface: String,
}

/// Why a text is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // it has two parts
pub enum PlaceError {
    /// The address.
    Mac,
    /// The interface.
    Interface,
}

/// Longest name of an interface (IFNAMSIZ with its end).
const INTERFACE_LEN_MAX: usize = 15;

/// Whether a text may name an interface.
#[must_use]
pub fn is_interface(text: &str) -> bool {
    let good = |letter: char| letter.is_ascii_graphic() && !"/:%?@".contains(letter);
    (1..=INTERFACE_LEN_MAX).contains(&text.len()) && text.chars().all(good)
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (mac, interface) = text.split_once('%').ok_or(PlaceError::Interface)?;
        let mac: Mac = mac.parse().map_err(|_| PlaceError::Mac)?;
        if !mac.is_of_one() {
            return Err(PlaceError::Mac);
        }
        if !is_interface(interface) {
            return Err(PlaceError::Interface);
        }
        Ok(Self { mac, interface: interface.to_owned() })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%{}", self.mac, self.interface)
    }
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mac => "the address of one station is right, as in 02:00:5e:10:00:01",
            Self::Interface => "'%' and the name of an interface belong behind the address",
        })
    }
}

impl std::error::Error for PlaceError {}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown() {
        let place: Place = "02:00:5E:10:00:01%enp3s0.7".parse().unwrap();
        assert_eq!(place.to_string(), "02:00:5e:10:00:01%enp3s0.7");
        for (text, error) in [
            ("02:00:5e:10:00:01", PlaceError::Interface),
            ("02:00:5e:10:00:01%", PlaceError::Interface),
            ("02:00:5e:10:00:01%../etc", PlaceError::Interface),
            ("02:00:5e:10:00:01%0123456789abcdef", PlaceError::Interface),
            ("02:00:5e:10:00%eth0", PlaceError::Mac),
            ("ff:ff:ff:ff:ff:ff%eth0", PlaceError::Mac),
        ] {
            assert_eq!(text.parse::<Place>(), Err(error), "{text}");
        }
    }
}
