// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often sessions were lost: tries to make one again that fail are no losses of it.

/// Of sessions, and which of them are not there.
#[derive(Debug)]
pub(super) struct Losses<S> {
    gone: Vec<S>,
    pub(super) count: u64,
}

impl<S: PartialEq> Losses<S> {
    pub(super) const fn new() -> Self {
        Self { gone: Vec::new(), count: 0 }
    }

    /// The session is not there, or could not be made again.
    pub(super) fn is_down(&mut self, session: S) {
        if !self.gone.contains(&session) {
            self.gone.push(session);
            self.count += 1;
        }
    }

    pub(super) fn is_up(&mut self, session: S) {
        self.gone.retain(|gone| *gone != session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_lost_once_until_it_is_there_again() {
        let mut losses = Losses::new();
        for session in [1, 1, 2, 1] {
            losses.is_down(session);
        }
        assert_eq!(losses.count, 2);
        losses.is_up(1);
        losses.is_down(2);
        losses.is_down(1);
        assert_eq!(losses.count, 3);
    }
}
