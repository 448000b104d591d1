// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a path is asked before it carries anything, and what follows from its answers
//! (`path.rs` has the order).

use clock::Instant;
use wire::scsi::alua::AccessState;

use super::Bundle;
use super::Name;
use super::Output;
use super::PathChange;
use super::QUESTION;
use super::jobs;
use super::path;
use super::path::Question;
use super::path::Size;
use super::path::State;
use crate::Done;
use crate::Error;
use crate::Event;
use crate::Fate;
use crate::Generation;
use crate::Kind;
use crate::Request;
use crate::Retry;
use crate::limits;
use crate::modes::Mode;
use crate::scsi;

impl Bundle {
    pub(super) fn put_question(&mut self, at: usize) {
        let Some(path) = self.paths.get_mut(at) else { return };
        let State::Asking(question) = path.state else { return };
        path.due = None;
        if std::mem::replace(&mut path.is_asked, true) {
            return;
        }
        let (cdb, data) = question.command();
        let request = Request { lun: path.lun, cdb, data, retry: Retry::Always };
        self.outputs.push_back(Output::Post { path: at, tag: QUESTION, request });
    }

    /// Other paths that are used are asked something.
    pub(super) fn ask_others(&mut self, path: usize, question: Question, now: Instant) {
        let others = self.paths.iter_mut().enumerate().filter(|(at, _)| *at != path);
        for (_, other) in others {
            if matches!(other.state, State::Usable) {
                other.ask(question, now);
            }
        }
    }

    /// A path has answered what it was asked.
    pub(super) fn answered(&mut self, at: usize, result: Result<Done, Error>, now: Instant) {
        let Some(path) = self.paths.get_mut(at) else { return };
        let State::Asking(question) = path.state else { return };
        if !std::mem::take(&mut path.is_asked) {
            return;
        }
        if let Err(error) = &result
            && jobs::is_lost(error).is_some()
        {
            return self.lose(at, error.clone(), now);
        }
        match &result {
            Err(error) if matches!(error.kind(), Kind::OtherDisk { .. }) => {
                return self.refuse(at, error.clone(), now);
            }
            Err(error) if path::is_gone(error) => return self.vanish(at, error.clone(), now),
            _ => {}
        }
        let data = result.as_ref().ok().and_then(|done| done.data.as_deref());
        match question {
            Question::Make => {
                if !path.hear_make(data.unwrap_or_default()) {
                    return self.vanish(at, path::gone(), now);
                }
                path.ask(Question::Names, now);
            }
            Question::Names => match result {
                Err(error) if !scsi::is_unsupported(&error) => {
                    // It may be able to tell later.
                    path.error = Some(error);
                    path.ask(Question::Make, now + limits::PATH_ACCESS_AGAIN);
                }
                _ => {
                    let data = data.unwrap_or_default().to_vec();
                    self.named(at, &data, now);
                }
            },
            Question::Groups => {
                let before = path.access;
                match (data, &result) {
                    (Some(data), _) => path.hear_groups(data),
                    (None, Err(error)) if scsi::is_unsupported(error) => path.forget_groups(),
                    _ => {}
                }
                let after = path.access;
                path.ask(Question::Ready, now);
                if before != after {
                    self.tell_of(at, PathChange::Access(after));
                    self.ask_others_for_groups(at, now);
                }
            }
            Question::Ready => self.is_ready(at, result, now),
            Question::Size if result.as_ref().is_err_and(scsi::is_unsupported) => {
                path.ask(Question::ShortSize, now);
            }
            Question::Size | Question::ShortSize => {
                let size = data.and_then(|data| Size::of(question, data));
                match result {
                    Err(error) if !scsi::is_conflict(&error) => self.hold_back(at, error, now),
                    _ => self.is_measured(at, size, now),
                }
            }
            // Also of one that is kept out by a reservation, which tells nothing.
            Question::Mode => self.has_modes(at, data.map_or(Mode::SILENT, Mode::of), now),
        }
    }

    /// A path has told its size, unless it cannot now. Another number of blocks is no other disk
    /// later: it may have been given some.
    fn is_measured(&mut self, at: usize, size: Option<Size>, now: Instant) {
        if let (Some(known), Some(size)) = (self.size, size) {
            let is_other =
                known.block != size.block || known.blocks != size.blocks && self.stage.is_opening();
            if is_other {
                let (first, other) = (known.to_string(), size.to_string());
                return self.refuse(at, Error::new(Kind::OtherSize { first, other }), now);
            }
        }
        self.size = size.or(self.size);
        if let Some(path) = self.paths.get_mut(at) {
            path.ask(Question::Mode, now);
        }
    }

    /// A path has told its modes. A volatile cache over one of them is one of the disk. One that
    /// comes to others has their protection; those that are used tell a new one as one disk does.
    fn has_modes(&mut self, at: usize, mode: Mode, now: Instant) {
        let Some(path) = self.paths.get(at) else { return };
        let other = self.paths.iter().position(|other| {
            let differs = other.mode.and_then(|mode| mode.read_only).zip(mode.read_only);
            let is_known = other.was_usable && other.is_measured;
            is_known && differs.is_some_and(|(theirs, own)| theirs != own)
        });
        if let Some(other) = other.filter(|_| !path.was_usable) {
            let (protected, writable) = match mode.read_only {
                Some(true) => (at, other),
                _ => (other, at),
            };
            let (protected, writable) = (self.place_of(protected), self.place_of(writable));
            let kind = Kind::OtherProtection { protected, writable };
            return self.refuse(at, Error::new(kind), now);
        }
        let was_volatile = self.mode().volatile_cache;
        if let Some(path) = self.paths.get_mut(at) {
            (path.mode, path.is_measured) = (Some(mode), true);
        }
        if !was_volatile && self.mode().volatile_cache && self.stage.is_up() {
            // Whoever has been told of none asks again, and keeps what is written from now on.
            self.generation.reset();
            self.tell(Event::MayHaveLost { session: self.id, lun: self.lun, fate: Fate::Reset });
        }
        self.use_path(at, now);
    }

    /// What holds over all paths that have told.
    pub(super) fn mode(&self) -> Mode {
        let told = self.paths.iter().filter_map(|path| path.mode);
        told.reduce(Mode::and).unwrap_or(Mode::SILENT)
    }

    /// A path as people know it.
    fn place_of(&self, at: usize) -> String {
        let peer = self.paths.get(at).and_then(|path| path.peer);
        let peer = peer.map_or_else(String::new, |peer| format!(" ({peer})"));
        format!("path {}{peer}", at + 1)
    }

    fn ask_others_for_groups(&mut self, at: usize, now: Instant) {
        for (other, path) in self.paths.iter_mut().enumerate() {
            if other != at && path.has_groups() && matches!(path.state, State::Usable) {
                path.ask(Question::Groups, now);
            }
        }
    }

    fn named(&mut self, at: usize, data: &[u8], now: Instant) {
        let Some(path) = self.paths.get_mut(at) else { return };
        let names = path.hear_names(data);
        let own = Name::best_of(&names);
        let kind = match (&self.name, own) {
            (_, None) => Some(Kind::Nameless),
            (_, Some(own)) if self.spans_targets && own.is_counted() => {
                Some(Kind::LocalName { name: own.to_string() })
            }
            (None, own) => {
                self.name = own;
                None
            }
            (Some(name), _) if name.is_among(&names) => None,
            (Some(name), Some(own)) => {
                Some(Kind::OtherPath { first: name.to_string(), other: own.to_string() })
            }
        };
        match kind {
            None if path.has_groups() => path.ask(Question::Groups, now),
            None => path.ask(Question::Ready, now),
            Some(kind) => {
                self.refuse(at, Error::new(kind), now);
            }
        }
    }

    /// Unit attentions are gone, and the path may be used as its access allows.
    fn is_ready(&mut self, at: usize, result: Result<Done, Error>, now: Instant) {
        let others = self.paths.iter().enumerate().filter(|(other, _)| *other != at);
        let are_asked = others
            .map(|(_, other)| other)
            .any(|other| other.was_usable && matches!(other.state, State::Asking(_)));
        let Some(path) = self.paths.get_mut(at) else { return };
        if are_asked && !path.was_usable {
            // They have been there all the time: what they tell comes first.
            return path.ask(Question::Ready, now + limits::PATH_ASK_AGAIN);
        }
        // One that has never heard of the unit knows of nothing that it may have missed.
        let is_unheard = !std::mem::replace(&mut path.has_heard, true);
        if is_unheard && self.has_gap && self.stage.is_up() {
            self.generation.reset();
            self.tell(Event::MayHaveLost { session: self.id, lun: self.lun, fate: Fate::Reset });
        }
        let Some(path) = self.paths.get_mut(at) else { return };
        match result {
            Ok(done) => {
                let is_news = !is_unheard && (self.has_gap || path.was_usable);
                let before = std::mem::replace(&mut path.seen, done.generation);
                let is_to_measure = !path.is_measured;
                if !path.has_groups() {
                    // It has nothing else to say of it.
                    path.access = AccessState::ActiveOptimized;
                }
                if is_to_measure {
                    path.ask(Question::Size, now);
                }
                if is_news {
                    self.note_generation(before, done.generation);
                }
                if is_to_measure {
                    return;
                }
            }
            Err(error) => match path::access_of(&error) {
                Some(access) => {
                    path.access = access;
                    path.error = Some(error);
                }
                None if path::is_busy(&error, Retry::Always) => {
                    return self.hold_back(at, error, now);
                }
                None if path.is_measured => path.error = Some(error),
                // Whom a reservation keeps out may ask for the size.
                None if scsi::is_conflict(&error) => return path.ask(Question::Size, now),
                None => return self.hold_back(at, error, now),
            },
        }
        self.use_path(at, now);
    }

    fn use_path(&mut self, at: usize, now: Instant) {
        let Some(path) = self.paths.get_mut(at) else { return };
        path.state = State::Usable;
        let is_used = path.rank().is_some();
        let again = if is_used { limits::PATH_ACCESS_INTERVAL } else { limits::PATH_ACCESS_AGAIN };
        path.due = (path.has_groups() || !is_used).then(|| now + again);
        let is_back = is_used && !std::mem::replace(&mut path.was_usable, true);
        if is_used {
            (path.error, path.is_told) = (None, false);
            self.has_gap = false;
        }
        self.note_use(now);
        if self.stage.is_up() {
            if is_back {
                self.tell_of(at, PathChange::Back);
            }
            if is_used && self.is_down {
                self.tell_up();
            }
        }
    }

    /// A nexus that has been there all the time tells by `after` what became of the unit.
    pub(super) fn note_generation(&mut self, before: Generation, after: Generation) {
        if after.is_reset_since(before) {
            self.generation.reset();
        }
        if after.has_failed_since(before) {
            self.generation.failed();
        }
    }
}
