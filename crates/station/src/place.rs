// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a station is, as URLs have it: `02:00:5e:10:00:01%eth1`.

use std::fmt;
use std::str::FromStr;

use wire::ether::Mac;

use crate::Interface;
use crate::InterfaceError;

/// A station, and the interface of ours that leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // both are needed, and nothing else
pub struct Place {
    /// Its address.
    pub mac: Mac,
    /// Our interface.
    pub interface: Interface,
}

/// Why a text is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // it has two parts
pub enum PlaceError {
    /// The address.
    Mac,
    /// The interface is missing.
    Missing,
    /// The interface.
    Interface(InterfaceError),
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (mac, interface) = text.split_once('%').ok_or(PlaceError::Missing)?;
        let mac: Mac = mac.parse().map_err(|_| PlaceError::Mac)?;
        if !mac.is_of_one() {
            return Err(PlaceError::Mac);
        }
        let interface = interface.parse().map_err(PlaceError::Interface)?;
        Ok(Self { mac, interface })
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
            Self::Missing | Self::Interface(InterfaceError::Name) => {
                "'%' and the name of an interface belong behind the address"
            }
            Self::Interface(error) => return error.fmt(f),
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
        let text = "02:00:5e:10:00:01%eth0,frames=xdp";
        assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        for (text, error) in [
            ("02:00:5e:10:00:01", PlaceError::Missing),
            ("02:00:5e:10:00:01%", PlaceError::Interface(InterfaceError::Name)),
            ("02:00:5e:10:00:01%eth0,xdp", PlaceError::Interface(InterfaceError::Way)),
            ("02:00:5e:10:00%eth0", PlaceError::Mac),
            ("ff:ff:ff:ff:ff:ff%eth0", PlaceError::Mac),
        ] {
            assert_eq!(text.parse::<Place>(), Err(error), "{text}");
        }
    }
}
