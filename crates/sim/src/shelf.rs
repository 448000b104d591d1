// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder in which a target keeps the states of its units: slow, failing, and torn when the
//! power goes.
//!
//! As on any file system, what was written is there after a loss of power only if it was synced,
//! and a file has its new name only if the folder was. Each file of a state has a cell of its own
//! here, with its draft: what another one syncs does it no good.
//!
//! The work of keeping is done at one moment, and ends later. Where a crash comes between, it finds
//! the cell as it was before any of the steps of that work, which is drawn.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use scsi::Identity;
use scsi::KeepFailed;
use scsi::Keeper;
use scsi::Kept;
use target::Draft;
use target::Shelf;
use target::StateFile;

use crate::disk::EIO;
use crate::disk::ENOSPC;
use crate::rng::Rng;

/// Unit, and kind of state.
pub(crate) type Place = (u16, usize);

/// A file: what is read of it, and what is on the medium.
#[derive(Clone, Debug, Default)]
struct Content {
    seen: Vec<u8>,
    stable: Vec<u8>,
    /// Any part of what is read may be on the medium.
    dirty: bool,
}

/// A change of names that may not be on the medium.
#[derive(Clone, Debug)]
enum Change {
    Made(String, usize),
    Renamed(String, String),
    Exchanged(String, String),
    Removed(String),
}

/// Files by name.
type Names = BTreeMap<String, usize>;

fn change(names: &mut Names, change: &Change) {
    match change {
        Change::Made(name, file) => drop(names.insert(name.clone(), *file)),
        Change::Renamed(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Change::Exchanged(one, other) => {
            let files = (names.remove(one), names.remove(other));
            names.extend(files.0.map(|file| (other.clone(), file)));
            names.extend(files.1.map(|file| (one.clone(), file)));
        }
        Change::Removed(name) => drop(names.remove(name)),
    }
}

/// The files of one state.
#[derive(Clone, Debug, Default)]
struct Cell {
    files: Vec<Content>,
    seen: Names,
    stable: Names,
    changes: Vec<Change>,
}

impl Cell {
    /// What is left when the power goes.
    fn lose_power(&mut self, rng: &mut Rng) {
        let changes = mem::take(&mut self.changes);
        let kept = rng.index(changes.len() + 1);
        changes[..kept].iter().for_each(|one| change(&mut self.stable, one));
        self.seen.clone_from(&self.stable);
        for file in self.files.iter_mut().filter(|file| file.dirty) {
            let Content { seen, stable, .. } = file;
            let (from, to) = (rng.index(seen.len() + 1), rng.pick(&[seen.len(), stable.len()]));
            // A part of the new over what was there, of either length.
            let torn = seen[..from].iter().chain(stable.iter().skip(from)).take(to);
            *stable = match rng.below(3) {
                0 => mem::take(stable),
                1 => torn.copied().collect(),
                _ => mem::take(seen),
            };
            file.dirty = false;
            file.seen.clone_from(&file.stable);
        }
    }
}

/// What may be found of a state when the target starts.
#[derive(Debug, Default)]
struct Promise {
    /// What was kept last, and what is not certain since then.
    states: Vec<Option<Vec<u8>>>,
}

#[derive(Debug)]
struct Inner {
    cells: BTreeMap<Place, Cell>,
    promises: BTreeMap<Place, Promise>,
    /// Of work that has not ended: the cell as it was before each of its steps.
    history: BTreeMap<Place, Vec<Cell>>,
    /// Of work that has not ended: what may be found once it has, and what it keeps.
    pending: BTreeMap<Place, (Promise, Vec<u8>)>,
    /// Steps that failed since the last work began.
    failed: u32,
    /// So many of a thousand steps fail.
    errors: u64,
    /// A thread that may wait is at work.
    is_chore: bool,
    /// The work that is being done is about this.
    current: Option<Place>,
    broken: Option<String>,
    rng: Rng,
}

/// What one target keeps, through all its lives.
#[derive(Clone, Debug)]
pub(crate) struct Cupboard(Arc<Mutex<Inner>>);

/// One state of it.
#[derive(Debug)]
struct Drawer {
    cupboard: Cupboard,
    place: Place,
}

/// Keeps a state, and notes what that promises.
#[derive(Debug)]
struct Watched {
    file: StateFile,
    cupboard: Cupboard,
    place: Place,
}

impl Cupboard {
    /// `errors`: so many of a thousand steps fail.
    pub(crate) fn new(errors: u64, rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            cells: BTreeMap::new(),
            promises: BTreeMap::new(),
            history: BTreeMap::new(),
            pending: BTreeMap::new(),
            failed: 0,
            errors,
            is_chore: false,
            current: None,
            broken: None,
            rng,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No step fails any more.
    pub(crate) fn mend(&self) {
        self.lock().errors = 0;
    }

    /// Does the work of a chore. What it was about, if it kept something: then
    /// [`Cupboard::end`] follows.
    pub(crate) fn work<T>(&self, chore: impl FnOnce() -> T) -> (T, Option<Place>) {
        self.lock().is_chore = true;
        let result = chore();
        let mut inner = self.lock();
        inner.is_chore = false;
        (result, inner.current.take())
    }

    /// The work is over, and whoever waits for it is told.
    pub(crate) fn end(&self, place: Place) {
        let mut inner = self.lock();
        inner.history.remove(&place);
        if let Some((promise, _)) = inner.pending.remove(&place) {
            inner.promises.insert(place, promise);
        }
    }

    /// The process is gone, with `dark` the power too.
    pub(crate) fn crash(&self, dark: bool) {
        let mut inner = self.lock();
        let Inner { cells, promises, history, pending, rng, .. } = &mut *inner;
        for (place, mut steps) in mem::take(history) {
            // As it was before one of its steps, or after all.
            let at = rng.index(steps.len() + 1);
            if at < steps.len() {
                cells.insert(place, steps.swap_remove(at));
            }
        }
        for (place, (promise, state)) in mem::take(pending) {
            // Nobody was told: either is right, even if it was about to be taken back.
            let before = promises.entry(place).or_default();
            before.states.extend(promise.states);
            before.states.push(Some(state));
        }
        if dark {
            cells.values_mut().for_each(|cell| cell.lose_power(rng));
        }
    }

    /// What is wrong, once.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.take()
    }

    /// The keeper of a state, and what is there.
    pub(crate) fn open(
        &self,
        unit: u16,
        identity: &Identity,
        kept: Kept,
    ) -> (Arc<dyn Keeper>, Option<Vec<u8>>) {
        let kind = Kept::ALL.iter().position(|one| *one == kept).unwrap_or(0);
        let place = (unit, kind);
        let drawer = Drawer { cupboard: self.clone(), place };
        self.lock().failed = 0;
        let (file, state) =
            StateFile::on(Box::new(drawer), identity, kept).expect("reading does not fail");
        let mut inner = self.lock();
        let name = kept.name();
        let promise = inner.promises.entry(place).or_default();
        if promise.states.is_empty() {
            promise.states.push(None);
        }
        if !promise.states.contains(&state) {
            let text = format!("{name} of unit {unit} are neither the last that were kept nor new");
            inner.broken.get_or_insert(text);
        }
        // Where it could not be synced, it is not certain yet.
        let mut states = match inner.failed {
            0 => Vec::new(),
            _ => inner.promises.remove(&place).unwrap_or_default().states,
        };
        states.push(state.clone());
        inner.promises.insert(place, Promise { states });
        drop(inner);
        let keeper = Watched { file, cupboard: self.clone(), place };
        (Arc::new(keeper), state)
    }
}

impl Keeper for Watched {
    fn keep(&self, state: &[u8]) -> Result<(), KeepFailed> {
        {
            let mut inner = self.cupboard.lock();
            if !inner.is_chore {
                let text = "a reactor waits for what it keeps";
                inner.broken.get_or_insert_with(|| text.to_owned());
            }
            let cell = inner.cells.entry(self.place).or_default().clone();
            inner.history.insert(self.place, vec![cell]);
            inner.current = Some(self.place);
            inner.failed = 0;
        }
        let result = self.file.keep(state);
        let mut inner = self.cupboard.lock();
        let mut states = match &result {
            Ok(()) => Vec::new(),
            Err(KeepFailed) => {
                let before = inner.promises.get(&self.place);
                before.map(|before| before.states.clone()).unwrap_or_default()
            }
        };
        // It may be that it could not be taken back.
        if result.is_ok() || inner.failed > 1 {
            states.push(Some(state.to_vec()));
        }
        inner.pending.insert(self.place, (Promise { states }, state.to_vec()));
        result
    }
}

impl Drawer {
    /// A step begins; the error that it ends with.
    fn step(&self, inner: &mut Inner, errno: i32) -> io::Result<()> {
        let cell = inner.cells.entry(self.place).or_default().clone();
        if let Some(history) = inner.history.get_mut(&self.place) {
            history.push(cell);
        }
        let errors = inner.errors;
        if errors > 0 && inner.rng.chance(errors) {
            inner.failed += 1;
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(())
    }

    /// Changes names.
    fn name(&self, made: Change) -> io::Result<()> {
        let mut inner = self.cupboard.lock();
        self.step(&mut inner, EIO)?;
        let cell = inner.cells.entry(self.place).or_default();
        change(&mut cell.seen, &made);
        cell.changes.push(made);
        Ok(())
    }
}

impl Shelf for Drawer {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let inner = self.cupboard.lock();
        let Some(cell) = inner.cells.get(&self.place) else { return Ok(None) };
        Ok(cell.seen.get(name).map(|file| cell.files[*file].seen.clone()))
    }

    fn set_aside(&self, name: &str, _length: usize) -> io::Result<bool> {
        let mut inner = self.cupboard.lock();
        self.step(&mut inner, ENOSPC)?;
        Ok(inner.cells.get(&self.place).is_some_and(|cell| cell.seen.contains_key(name)))
    }

    fn open(&self, name: &str, _length: usize) -> io::Result<Box<dyn Draft>> {
        let mut inner = self.cupboard.lock();
        self.step(&mut inner, ENOSPC)?;
        let cell = inner.cells.entry(self.place).or_default();
        let file = match cell.seen.get(name) {
            Some(file) => *file,
            None => {
                cell.files.push(Content::default());
                let file = cell.files.len() - 1;
                let made = Change::Made(name.to_owned(), file);
                change(&mut cell.seen, &made);
                cell.changes.push(made);
                file
            }
        };
        let (cupboard, place) = (self.cupboard.clone(), self.place);
        Ok(Box::new(Written { drawer: Self { cupboard, place }, file }))
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<bool> {
        self.name(Change::Exchanged(one.to_owned(), other.to_owned())).map(|()| true)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.name(Change::Renamed(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.name(Change::Removed(name.to_owned()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.cupboard.lock();
        self.step(&mut inner, EIO)?;
        let cell = inner.cells.entry(self.place).or_default();
        cell.stable.clone_from(&cell.seen);
        cell.changes.clear();
        Ok(())
    }
}

/// A file that was written.
#[derive(Debug)]
struct Written {
    drawer: Drawer,
    file: usize,
}

impl Draft for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.drawer.cupboard.lock();
        let failed = self.drawer.step(&mut inner, ENOSPC);
        let part = if failed.is_ok() { bytes.len() } else { inner.rng.index(bytes.len() + 1) };
        let cell = inner.cells.entry(self.drawer.place).or_default();
        let content = &mut cell.files[self.file];
        let rest = content.seen.split_off(part.min(content.seen.len()));
        content.seen = bytes[..part].to_vec();
        if failed.is_err() {
            content.seen.extend(rest);
        }
        content.dirty = true;
        failed
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.drawer.cupboard.lock();
        self.drawer.step(&mut inner, EIO)?;
        let cell = inner.cells.entry(self.drawer.place).or_default();
        let content = &mut cell.files[self.file];
        content.stable.clone_from(&content.seen);
        content.dirty = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cupboard(errors: u64, seed: u64) -> Cupboard {
        Cupboard::new(errors, Rng::new(seed))
    }

    /// What is found, and how it is kept from then on.
    fn open(cupboard: &Cupboard) -> (Arc<dyn Keeper>, Option<Vec<u8>>) {
        let identity = Identity::derive("iqn.a", 0, "LUNWIRE", "disk");
        let opened = cupboard.open(0, &identity, Kept::Reservations);
        assert_eq!(cupboard.broken(), None);
        opened
    }

    fn keep(cupboard: &Cupboard, state: &[u8]) -> (Result<(), KeepFailed>, Place) {
        let (keeper, _) = open(cupboard);
        let (result, place) = cupboard.work(|| keeper.keep(state));
        (result, place.expect("something was kept"))
    }

    #[test]
    fn what_ended_is_there_and_what_did_not_may_be() {
        let mut found = [0; 2];
        for seed in 0..300 {
            let cupboard = cupboard(0, seed);
            let (kept, place) = keep(&cupboard, b"old");
            assert_eq!(kept, Ok(()));
            cupboard.end(place);
            assert_eq!(keep(&cupboard, b"new").0, Ok(()));
            cupboard.crash(true);
            let (_, state) = open(&cupboard);
            found[usize::from(state.as_deref() == Some(b"new"))] += 1;
        }
        assert!(found.iter().all(|times| *times > 5), "{found:?}");
    }

    #[test]
    fn what_a_start_has_found_stays() {
        for seed in 0..300 {
            let cupboard = cupboard(0, seed);
            let (_, place) = keep(&cupboard, b"old");
            cupboard.end(place);
            assert_eq!(keep(&cupboard, b"new").0, Ok(()));
            cupboard.crash(false);
            open(&cupboard);
            cupboard.crash(true);
            open(&cupboard);
        }
    }

    #[test]
    fn failures_leave_one_of_both() {
        for seed in 0..2000 {
            let cupboard = cupboard(250, seed);
            let (keeper, _) = open(&cupboard);
            for state in [&b"one"[..], b"and two", b"3", b"four"] {
                let (_, place) = cupboard.work(|| keeper.keep(state));
                if state != b"four" {
                    cupboard.end(place.expect("something was kept"));
                }
            }
            cupboard.crash(true);
            open(&cupboard);
        }
    }

    #[test]
    fn nobody_keeps_where_others_wait() {
        let cupboard = cupboard(0, 1);
        let (keeper, _) = open(&cupboard);
        assert_eq!(keeper.keep(b"state"), Ok(()));
        assert!(cupboard.broken().is_some());
    }

    #[test]
    fn what_was_not_synced_is_torn() {
        let mut torn = 0;
        for seed in 0..50 {
            let cupboard = cupboard(0, seed);
            let drawer = Drawer { cupboard: cupboard.clone(), place: (0, 0) };
            let mut draft = drawer.open("state", 9).expect("room");
            draft.write(b"all of it").expect("room");
            drawer.sync().expect("nothing fails");
            cupboard.crash(true);
            let state = drawer.read("state").expect("readable");
            torn += usize::from(state.as_deref() != Some(b"all of it"));
        }
        assert!(torn > 10, "{torn}");
    }
}
