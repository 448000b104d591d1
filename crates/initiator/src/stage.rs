// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far sessions are that their user sees as one: paths to one disk (`multipath.rs`), or disks
//! side by side (`stripe.rs`).
//!
//! ```text
//! Opening --what must be known is--> Up --+
//!    |                                    |
//!    +------a wish, or an error-----------+--> Closing --all have ended--> Over
//! ```

use crate::Error;
use crate::Kind;

/// `T`: what is known of what is up.
#[derive(Debug)]
pub(crate) enum Stage<T = ()> {
    /// Nothing was told yet.
    Opening,
    Up(T),
    /// All sessions are to end; the error is the first reason.
    Closing(Option<Error>),
    Over(Error),
}

impl<T> Stage<T> {
    pub(crate) const fn is_opening(&self) -> bool {
        matches!(self, Self::Opening)
    }

    pub(crate) const fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }

    /// It is wanted no more, or failed.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self, Self::Closing(_) | Self::Over(_))
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self, Self::Over(_))
    }

    /// Why no request is taken; None: one is.
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self {
            Self::Opening | Self::Up(_) => None,
            Self::Closing(error) => Some(last_word(error.as_ref())),
            Self::Over(error) => Some(error.clone()),
        }
    }

    /// All sessions are to end. Gives the last word of requests; None: it was given.
    pub(crate) fn close(&mut self, error: Option<Error>) -> Option<Error> {
        if self.is_ending() {
            return None;
        }
        let last = last_word(error.as_ref());
        *self = Self::Closing(error);
        Some(last)
    }

    /// One of the sessions has ended; false: it was not to end.
    pub(crate) fn note_end(&mut self, error: Option<&Error>) -> bool {
        let Self::Closing(first) = self else { return false };
        *first = first.take().or_else(|| error.cloned());
        true
    }

    /// All sessions that were to end have. Gives the reason that is told.
    pub(crate) fn finish(&mut self) -> Option<Error> {
        let Self::Closing(error) = self else { return None };
        let error = error.take();
        *self = Self::Over(last_word(error.as_ref()));
        error
    }
}

fn last_word(error: Option<&Error>) -> Error {
    error.cloned().unwrap_or_else(|| Error::new(Kind::Closed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_told_to_all() {
        let mut stage = Stage::Up(());
        assert!(stage.refusal().is_none() && !stage.note_end(Some(&Error::new(Kind::Full))));
        assert!(stage.close(None).is_some_and(|last| matches!(last.kind(), Kind::Closed)));
        assert!(stage.note_end(Some(&Error::new(Kind::NoPath))));
        assert!(stage.note_end(Some(&Error::new(Kind::Full))));
        assert!(stage.close(Some(Error::new(Kind::Full))).is_none());
        assert!(stage.finish().is_some_and(|error| matches!(error.kind(), Kind::NoPath)));
        assert!(stage.is_over());
        assert!(stage.refusal().is_some_and(|error| matches!(error.kind(), Kind::NoPath)));
    }
}
