// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of fixed interval markers (RFC 3720 §A.3), which RFC 7143 §13.25 made obsolete: asked
//! for where the settings say so, and a target that rejects them goes without.

use wire::iscsi::keys;
use wire::iscsi::keys::TextWriter;

use super::LoginError;
use super::negotiation::push;
use super::negotiation::wrong;
use crate::datamover::Markers;
use crate::negotiate;
use crate::params::Id;
use crate::params::Key;

/// What is offered and agreed of markers.
#[derive(Debug)]
pub(super) struct OwnMarkers {
    wanted: bool,
    /// OFMarker, OFMarkInt: in what we send.
    send: Direction,
    /// IFMarker, IFMarkInt: in what we receive.
    receive: Direction,
}

/// The markers of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    on: bool,
    /// Words from one marker to the next.
    words: Option<u32>,
}

impl OwnMarkers {
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, send: Direction::default(), receive: Direction::default() }
    }

    pub(super) const fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// Asks for both directions, and for the interval that holds without the keys.
    pub(super) fn offer(&self, text: &mut TextWriter) -> Result<(), LoginError> {
        if !self.wanted {
            return Ok(());
        }
        for id in [Id::OfMarker, Id::IfMarker] {
            push(text, id.key().name, "Yes")?;
        }
        for id in [Id::OfMarkInt, Id::IfMarkInt] {
            push(text, id.key().name, OFFER)?;
        }
        Ok(())
    }

    /// The answer to one of the keys.
    pub(super) fn conclude(&mut self, key: &'static Key, value: &str) -> Result<(), LoginError> {
        if negotiate::RESERVED.contains(&value) {
            return Ok(());
        }
        let direction = match key.id {
            Id::OfMarker | Id::OfMarkInt => &mut self.send,
            _ => &mut self.receive,
        };
        if matches!(key.id, Id::OfMarker | Id::IfMarker) {
            direction.on = keys::boolean(value).ok_or_else(|| wrong(key, value))?;
            return Ok(());
        }
        let words = keys::numeric(value).and_then(|words| u32::try_from(words).ok());
        let words = words.filter(|words| WORDS.contains(words));
        direction.words = Some(words.ok_or_else(|| wrong(key, value))?);
        Ok(())
    }

    /// What the mover must know.
    pub(super) fn agreed(&self) -> Markers {
        let bytes = |at: Direction| at.on.then(|| at.words.unwrap_or(DEFAULT_WORDS) * WORD);
        Markers { send: bytes(self.send), receive: bytes(self.receive) }
    }
}

/// Without OFMarkInt or IFMarkInt.
const DEFAULT_WORDS: u32 = 2048;

/// Intervals that we take, words: shorter ones cost more than they carry.
const WORDS: core::ops::RangeInclusive<u32> = 64..=65535;
const OFFER: &str = "64~65535";

/// Intervals count words of four bytes.
const WORD: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn concluded(answers: &[(Id, &str)]) -> Result<Markers, LoginError> {
        let mut markers = OwnMarkers::new(true);
        for (id, value) in answers {
            markers.conclude(id.key(), value)?;
        }
        Ok(markers.agreed())
    }

    #[test]
    fn each_direction_is_agreed_on_for_itself() {
        let both = [(Id::OfMarker, "Yes"), (Id::IfMarker, "Yes"), (Id::IfMarkInt, "512")];
        let both = concluded(&both).unwrap();
        assert_eq!(both, Markers { send: Some(8192), receive: Some(2048) });
        let one = [(Id::OfMarker, "No"), (Id::OfMarkInt, "Irrelevant"), (Id::IfMarker, "Yes")];
        assert_eq!(concluded(&one).unwrap(), Markers { send: None, receive: Some(8192) });
        let none = [(Id::OfMarker, "Reject"), (Id::IfMarker, "Reject")];
        assert_eq!(concluded(&none).unwrap(), Markers::default());
        for bad in [(Id::OfMarker, "Maybe"), (Id::IfMarkInt, "63"), (Id::IfMarkInt, "1~70")] {
            assert!(concluded(&[bad]).is_err(), "{bad:?}");
        }
    }
}
