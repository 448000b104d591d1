// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values of mode parameters that can be changed: in force, saved and by default (SPC-4
//! §5.13).
//!
//! Kept over a loss of power are the saved ones, as `{ code:1 subpage:1 length:2 page }*`: each
//! page with only those bits that can be changed.

use crate::kept;
use crate::kept::Keep;
use crate::kept::KeepFailed;
use crate::kept::Keeper;
use crate::kept::Kept;
use crate::kept::RestoreError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;
use wire::scsi::mode;
use wire::scsi::mode::Caching;
use wire::scsi::mode::Control;
use wire::scsi::mode::QueueError;

/// What MODE SELECT can change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) control: Control,
    pub(crate) caching: Caching,
}

/// The parameters of one unit. What is in force can be read at any time without a lock.
#[derive(Debug)]
pub(crate) struct Modes {
    word: AtomicU32,
    default: Parameters,
    /// Whoever changes anything has it locked, and nobody for long.
    saved: spin::Mutex<Saved>,
    keeper: Option<Arc<dyn Keeper>>,
    /// The bits of the control page that can be changed.
    control_mask: [u8; 12],
}

/// The saved ones.
#[derive(Debug, Default)]
struct Saved {
    values: Option<Parameters>,
    /// Others are on their way to stable storage.
    is_changing: bool,
}

/// What a change led to.
#[derive(Debug)]
pub(crate) enum Changed {
    /// Somebody else is changing them: try again.
    Busy,
    /// They are in force when this is kept: then [`Modes::finish`].
    Keep(Keep),
    /// Done; whether anything in force or saved is new.
    Done { differs: bool },
}

/// SP: whether the values are kept over a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    UntilReset,
    Saved,
}

impl Parameters {
    fn pack(self) -> u32 {
        let control = self.control;
        u32::from(control.task_set_each_nexus)
            | u32::from(control.descriptor_sense) << 1
            | u32::from(control.software_write_protect) << 2
            | u32::from(control.task_aborted_status) << 3
            | u32::from(self.caching.write_cache) << 4
            | u32::from(control.queue_error as u8) << 5
            | u32::from(control.application_tag_owner) << 7
            | u32::from(control.protection_unchecked_if_zero) << 8
    }

    fn unpack(word: u32) -> Self {
        let bit = |bit: u32| word >> bit & 1 != 0;
        let code = u8::try_from(word >> 5 & 3).unwrap_or(0);
        let control = Control {
            task_set_each_nexus: bit(0),
            descriptor_sense: bit(1),
            software_write_protect: bit(2),
            task_aborted_status: bit(3),
            queue_error: QueueError::from_code(code).unwrap_or_default(),
            application_tag_owner: bit(7),
            protection_unchecked_if_zero: bit(8),
        };
        Self { control, caching: Caching { write_cache: bit(4) } }
    }
}

impl Modes {
    /// With default values. `volatile`: the store has a cache that WCE speaks of. TAS is set: a
    /// host whose command another one aborts is told at once; it would have to wait for its own
    /// time-out otherwise.
    pub(crate) fn new(volatile: bool) -> Self {
        let default = Parameters {
            control: Control { task_aborted_status: true, ..Control::default() },
            caching: Caching { write_cache: volatile },
        };
        Self {
            word: AtomicU32::new(default.pack()),
            default,
            saved: spin::Mutex::default(),
            keeper: None,
            control_mask: Control::CHANGEABLE,
        }
    }

    /// Of a unit that can be formatted with protection information.
    pub(crate) const fn protect(&mut self) {
        self.control_mask = Control::PROTECTED_CHANGEABLE;
    }

    /// With somebody who keeps saved values, and what was kept of the unit `number` last.
    pub(crate) fn keep(
        &mut self,
        keeper: Arc<dyn Keeper>,
        state: Option<&[u8]>,
        number: u64,
    ) -> Result<(), RestoreError> {
        if let Some(state) = state {
            let saved = self.parse(state, number)?;
            self.word.store(saved.pack(), Ordering::Release);
            self.saved = spin::Mutex::new(Saved { values: Some(saved), is_changing: false });
        }
        self.keeper = Some(keeper);
        Ok(())
    }

    /// The values in force.
    pub(crate) fn current(&self) -> Parameters {
        Parameters::unpack(self.word.load(Ordering::Acquire))
    }

    /// The values without saved ones.
    pub(crate) const fn default(&self) -> Parameters {
        self.default
    }

    /// The saved values, or the default ones where none were saved.
    pub(crate) fn saved(&self) -> Parameters {
        self.saved.lock().values.unwrap_or(self.default)
    }

    /// True if values can be saved.
    pub(crate) const fn can_save(&self) -> bool {
        self.keeper.is_some()
    }

    /// True if WCE can be changed: only where there is a cache.
    pub(crate) const fn has_cache(&self) -> bool {
        self.default.caching.write_cache
    }

    /// Puts `wanted` in force; with [`Lasting::Saved`] only after it was kept, if it is new.
    pub(crate) fn change(
        &self,
        wanted: Parameters,
        lasting: Lasting,
        number: u64,
    ) -> Result<Changed, KeepFailed> {
        let mut saved = self.saved.lock();
        if saved.is_changing {
            return Ok(Changed::Busy);
        }
        let differs = self.current() != wanted;
        if lasting == Lasting::Saved {
            let keeper = self.keeper.as_ref().ok_or(KeepFailed)?;
            if saved.values != Some(wanted) {
                saved.is_changing = true;
                return Ok(Changed::Keep(Keep::new(keeper, self.emit(wanted, number))));
            }
        }
        self.word.store(wanted.pack(), Ordering::Release);
        Ok(Changed::Done { differs })
    }

    /// `wanted` is kept, and in force from now on; or not. A reset meanwhile came before it.
    pub(crate) fn finish(
        &self,
        wanted: Parameters,
        result: Result<(), KeepFailed>,
    ) -> Result<(), KeepFailed> {
        let mut saved = self.saved.lock();
        debug_assert!(saved.is_changing, "it has begun");
        saved.is_changing = false;
        result?;
        saved.values = Some(wanted);
        self.word.store(wanted.pack(), Ordering::Release);
        Ok(())
    }

    /// After a reset: the saved values, else the default ones (SPC-4 §5.13.3).
    pub(crate) fn revert(&self) {
        let saved = self.saved.lock();
        self.word.store(saved.values.unwrap_or(self.default).pack(), Ordering::Release);
    }

    fn emit(&self, values: Parameters, number: u64) -> Vec<u8> {
        let mut body = Vec::new();
        let control = values.control.emit();
        push(&mut body, &control, &self.control_mask);
        push(&mut body, &values.caching.emit(), &self.caching_mask());
        kept::seal(Kept::ModeParameters, number, &body)
    }

    /// What of the control page can be changed.
    pub(crate) const fn control_mask(&self) -> &[u8; 12] {
        &self.control_mask
    }

    /// What of the caching page can be changed.
    pub(crate) fn caching_mask(&self) -> [u8; 20] {
        Caching { write_cache: self.has_cache() }.emit()
    }

    fn parse(&self, state: &[u8], number: u64) -> Result<Parameters, RestoreError> {
        let mut rest = kept::open(Kept::ModeParameters, number, state)?;
        let mut values = self.default;
        for page in [mode::CONTROL, mode::CACHING] {
            let [code, subpage] = rest.take()?;
            let length = usize::from(u16::from_be_bytes(rest.take()?));
            let bytes = rest.bytes(length)?;
            let whole = if page == mode::CONTROL {
                self.control_mask.len()
            } else {
                self.caching_mask().len()
            };
            if (code, subpage, length) != (page, 0, whole) {
                return Err(RestoreError::Damaged);
            }
            match page {
                mode::CONTROL => {
                    values.control = Control::parse(bytes).ok_or(RestoreError::Damaged)?;
                    if self.control_mask == Control::CHANGEABLE {
                        // A unit that is no longer to be protected.
                        values.control.application_tag_owner = false;
                        values.control.protection_unchecked_if_zero = false;
                    }
                }
                // A store that has lost its cache since then has none to be switched.
                _ if self.has_cache() => {
                    values.caching = Caching::parse(bytes).ok_or(RestoreError::Damaged)?;
                }
                _ => {}
            }
        }
        rest.end()?;
        Ok(values)
    }
}

fn push(body: &mut Vec<u8>, page: &[u8], mask: &[u8]) {
    let [high, low] = u16::try_from(page.len()).unwrap_or(0).to_be_bytes();
    let code = page.first().copied().unwrap_or(0);
    body.extend_from_slice(&[code, 0, high, low]);
    body.extend(page.iter().zip(mask).enumerate().map(|(at, (byte, mask))| match at {
        0 | 1 => *byte,
        _ => byte & mask,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Default)]
    struct Shelf(spin::Mutex<Vec<u8>>);

    impl Keeper for Shelf {
        fn keep(&self, state: &[u8]) -> Result<(), KeepFailed> {
            *self.0.lock() = state.to_vec();
            Ok(())
        }
    }

    fn any_parameters() -> impl Strategy<Value = Parameters> {
        (any::<[bool; 7]>(), prop::sample::select(alloc::vec![0_u8, 1, 3])).prop_map(
            |([tst, sense, swp, tas, cache, ato, dpicz], code)| Parameters {
                control: Control {
                    task_set_each_nexus: tst,
                    descriptor_sense: sense,
                    software_write_protect: swp,
                    task_aborted_status: tas,
                    queue_error: QueueError::from_code(code).expect("legal"),
                    application_tag_owner: ato,
                    protection_unchecked_if_zero: dpicz,
                },
                caching: Caching { write_cache: cache },
            },
        )
    }

    /// Saves `wanted`, as a command would.
    fn save(modes: &Modes, wanted: Parameters) {
        match modes.change(wanted, Lasting::Saved, 7).expect("there is a keeper") {
            Changed::Keep(keep) => modes.finish(wanted, keep.run()).expect("kept"),
            other => assert!(matches!(other, Changed::Done { .. }), "{other:?}"),
        }
    }

    fn kept() -> (Modes, Arc<Shelf>) {
        let shelf = Arc::new(Shelf::default());
        let mut modes = Modes::new(true);
        modes.protect();
        modes.keep(Arc::<Shelf>::clone(&shelf), None, 7).expect("nothing was kept");
        (modes, shelf)
    }

    fn again(state: &[u8], volatile: bool) -> Result<Modes, RestoreError> {
        let mut modes = Modes::new(volatile);
        modes.protect();
        modes.keep(Arc::new(Shelf::default()), Some(state), 7).map(|()| modes)
    }

    #[test]
    fn a_store_without_a_cache_forgets_the_switch_of_it() {
        let (modes, shelf) = kept();
        let mut wanted = modes.default();
        wanted.caching.write_cache = true;
        wanted.control.descriptor_sense = true;
        save(&modes, wanted);
        let state = shelf.0.lock().clone();
        let calm = again(&state, false).expect("ours").current();
        assert!(!calm.caching.write_cache && calm.control.descriptor_sense);
    }

    #[test]
    fn values_without_a_keeper_last_until_a_reset() {
        let modes = Modes::new(true);
        let mut wanted = modes.default();
        wanted.control.task_aborted_status = false;
        assert_eq!(modes.change(wanted, Lasting::Saved, 7).err(), Some(KeepFailed));
        assert_eq!(modes.current(), modes.default());
        let done = modes.change(wanted, Lasting::UntilReset, 7);
        assert!(matches!(done, Ok(Changed::Done { differs: true })));
        assert_eq!(modes.current(), wanted);
        modes.revert();
        assert_eq!(modes.current(), modes.default());
    }

    proptest! {
        #[test]
        fn what_was_saved_is_in_force_again(wanted in any_parameters(), other in any_parameters()) {
            let (modes, shelf) = kept();
            save(&modes, wanted);
            modes.change(other, Lasting::UntilReset, 7).expect("no need to keep");
            prop_assert_eq!(modes.current(), other);
            prop_assert_eq!(modes.saved(), wanted);
            let state = shelf.0.lock().clone();
            prop_assert_eq!(again(&state, true).expect("ours").current(), wanted);
            modes.revert();
            prop_assert_eq!(modes.current(), wanted);
        }

        /// With a right checksum, so that what lies behind it is reached.
        #[test]
        fn hostile_bytes_are_refused_or_sound(
            body in proptest::collection::vec(any::<u8>(), 0..60), at in 0_usize..50, byte: u8,
        ) {
            let _ = again(&kept::seal(Kept::ModeParameters, 7, &body), true);
            let (modes, shelf) = kept();
            save(&modes, modes.default());
            let mut body = shelf.0.lock().clone();
            body.truncate(body.len() - 4);
            let mut body = body.split_off(16);
            if let Some(to) = body.get_mut(at) {
                *to = byte;
            }
            if let Ok(modes) = again(&kept::seal(Kept::ModeParameters, 7, &body), true) {
                let values = modes.current();
                prop_assert_eq!(Parameters::unpack(values.pack()), values);
            }
        }
    }
}
