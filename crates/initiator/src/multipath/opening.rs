// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When paths are used first: as soon as one carries commands and the others are known, or have had
//! their time.

use clock::Instant;

use super::Bundle;
use super::PathChange;
use super::path::Path;
use super::path::State;
use crate::Error;
use crate::Event;
use crate::Kind;
use crate::limits;
use crate::stage::Stage;

impl Bundle {
    pub(super) fn look_whether_open(&mut self, now: Instant) {
        let Some(begun) = self.none_since else { return };
        let waited = now.since(begun);
        let is_decided = |path: &Path| path.rank().is_some() || path.error.is_some();
        let all = self.paths.iter().all(is_decided);
        let any = self.paths.iter().any(|path| path.rank().is_some());
        let mut inherited = self.paths.iter().filter(|path| path.is_inherited()).peekable();
        if inherited.peek().is_some() {
            let failed = inherited.find_map(|path| path.error.clone());
            if let Some(error) = failed.filter(|_| waited >= self.patience.connect) {
                self.end_all(Some(error));
            }
        } else if any && (all || waited >= limits::PATHS_OPEN_PATIENCE) {
            self.stage = Stage::Up(());
            self.none_since = None;
            self.tell_up();
            for at in 0..self.paths.len() {
                let Some(path) = self.paths.get_mut(at) else { continue };
                let Some(error) = path.error.clone() else { continue };
                let (is_usable, access) = (matches!(path.state, State::Usable), path.access);
                match is_usable {
                    // Of groups it has told.
                    true if path.has_groups() => {}
                    true => self.tell_of(at, PathChange::Access(access)),
                    false => self.tell_loss(at, false, &error),
                }
            }
        } else if all
            && !any
            && (waited >= self.patience.connect || self.paths.iter().all(|path| path.is_gone))
        {
            let error = self.first_error();
            self.end_all(Some(error));
        }
    }

    pub(super) fn tell_up(&mut self) {
        self.is_down = false;
        let usable = self.paths.iter().find(|path| path.rank().is_some());
        if let Some(peer) = usable.and_then(|path| path.peer) {
            self.tell(Event::Up { session: self.id, peer });
        }
    }

    pub(super) fn first_error(&self) -> Error {
        let errors = self.paths.iter().filter_map(|path| path.error.clone());
        errors.into_iter().next().unwrap_or_else(|| Error::new(Kind::NoPath))
    }
}
