// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of fixed interval markers (RFC 3720 §A.3), which RFC 7143 §13.25 made obsolete: agreed
//! to where the node wants markers, else answered with Reject.

use wire::iscsi::keys;

use super::answers::Answers;
use super::error::LoginError;
use crate::datamover;
use crate::negotiate;
use crate::params::Id;

/// What has been agreed on.
#[derive(Debug)]
pub(super) struct Markers {
    /// The node wants them.
    allowed: bool,
    /// OFMarker: from the initiator to us.
    out: Direction,
    /// IFMarker: from us to the initiator.
    in_: Direction,
}

/// The markers of one direction.
#[derive(Clone, Copy, Debug)]
struct Direction {
    on: bool,
    /// Words from one marker to the next.
    words: u32,
}

/// The interval keys of one text: they are answered last, when it is known whether markers are on.
#[derive(Debug, Default)]
pub(super) struct Intervals<'a> {
    out: Option<&'a str>,
    in_: Option<&'a str>,
}

impl<'a> Intervals<'a> {
    /// Puts `value` aside if the key is an interval.
    pub(super) fn set(&mut self, id: Id, value: &'a str) -> bool {
        match id {
            Id::OfMarkInt => self.out = Some(value),
            Id::IfMarkInt => self.in_ = Some(value),
            _ => return false,
        }
        true
    }
}

impl Markers {
    pub(super) const fn new(allowed: bool) -> Self {
        let off = Direction { on: false, words: DEFAULT_WORDS };
        Self { allowed, out: off, in_: off }
    }

    /// Answers OFMarker or IFMarker (AND).
    pub(super) fn take(
        &mut self,
        id: Id,
        value: &str,
        answers: &mut Answers,
    ) -> Result<(), LoginError> {
        let offer = keys::boolean(value).filter(|_| self.allowed);
        let direction = if id == Id::OfMarker { &mut self.out } else { &mut self.in_ };
        direction.on = offer == Some(true);
        let answer = match offer {
            Some(true) => "Yes",
            Some(false) => "No",
            None => negotiate::REJECT,
        };
        answers.push(id.key().name, answer)
    }

    /// Answers OFMarkInt and IFMarkInt.
    pub(super) fn take_intervals(
        &mut self,
        intervals: &Intervals<'_>,
        answers: &mut Answers,
    ) -> Result<(), LoginError> {
        let Self { allowed, out, in_ } = self;
        let offers = [(Id::OfMarkInt, out, intervals.out), (Id::IfMarkInt, in_, intervals.in_)];
        for (id, direction, offer) in offers {
            let Some(offer) = offer else { continue };
            let name = id.key().name;
            match range(offer) {
                _ if !*allowed => answers.push(name, negotiate::REJECT)?,
                _ if !direction.on => answers.push(name, negotiate::IRRELEVANT)?,
                Some((least, most)) => {
                    direction.words = DEFAULT_WORDS.clamp(least, most);
                    answers.push_number(name, direction.words.into())?;
                }
                None => {
                    direction.on = false;
                    answers.push(name, negotiate::REJECT)?;
                }
            }
        }
        Ok(())
    }

    /// What the mover must know.
    pub(super) fn agreed(&self) -> datamover::Markers {
        let bytes = |direction: Direction| direction.on.then_some(direction.words * WORD);
        datamover::Markers { send: bytes(self.in_), receive: bytes(self.out) }
    }
}

/// Smallest and largest interval of an offer, words.
fn range(offer: &str) -> Option<(u32, u32)> {
    let single = || keys::numeric(offer).map(|words| (words, words));
    let (least, most) = keys::range(offer).or_else(single)?;
    let words = |count| u32::try_from(count).ok().filter(|words| WORDS.contains(words));
    Some((words(least)?, words(most)?))
}

/// Without OFMarkInt or IFMarkInt, and the wish where there is one.
const DEFAULT_WORDS: u32 = 2048;

/// Intervals that may be agreed on, words.
const WORDS: core::ops::RangeInclusive<u32> = 1..=65535;

/// Intervals count words of four bytes.
const WORD: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_of_intervals() {
        assert_eq!(range("2048"), Some((2048, 2048)));
        assert_eq!(range("1~65535"), Some((1, 65535)));
        assert_eq!(range("0x10~0x20"), Some((16, 32)));
        for bad in ["", "0", "65536", "0~5", "5~4", "5~65536", "~", "1~", "1~2~3", "Yes"] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }
}
