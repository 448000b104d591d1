// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several stores as one: `stripe:CHUNK(S1;S2;...)`, RAID-0.
//!
//! Where its bytes lie is told by [`Layout`]. The parts of one operation are done one after the
//! other; operations run side by side. Without redundancy: if one store fails, what is on it is
//! lost.

use crate::health::Health;
use crate::limits::SIZE_MAX;
use crate::{
    Elsewhere, Error, FileId, Geometry, Io, IoResult, Op, Outcome, Part, Store, Submitted, Usage,
    contradiction,
};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use buf::{PAGE, Slice};
use medium::stripe::{Layout, MEMBERS_MAX, Misfit, Piece};

/// Stores side by side.
#[derive(Debug)]
pub struct Stripe {
    layout: Layout,
    stores: Vec<Arc<dyn Store>>,
    geometry: Geometry,
}

/// Why stores are no stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StripeError {
    /// One, or too many.
    #[error("a stripe has 2 to {MEMBERS_MAX} stores, not {0}")]
    Stores(usize),
    /// Not a power of two, too small or too large.
    #[error("{0} bytes is no chunk: a power of two from 4K to 4M is right")]
    Chunk(u64),
    /// More than a file can have.
    #[error("a stripe of these stores would have more than {SIZE_MAX} bytes")]
    TooLarge,
    /// A store has no room for one chunk.
    #[error("store {index} has {bytes} bytes, less than a chunk of {chunk}")]
    Small {
        /// Which, from 0.
        index: usize,
        /// Its size.
        bytes: u64,
        /// A chunk.
        chunk: u64,
    },
}

/// Whether `stores` stores with chunks of `chunk` bytes can be a stripe.
///
/// # Errors
/// What is wrong.
pub fn check(chunk: u64, stores: usize) -> Result<Layout, StripeError> {
    Layout::new(chunk, stores).map_err(|misfit| match misfit {
        Misfit::Members(stores) => StripeError::Stores(stores),
        Misfit::Chunk(chunk) => StripeError::Chunk(chunk),
    })
}

/// Bytes of a stripe of stores of these `sizes`: of each as many whole chunks count as the smallest
/// one has.
///
/// # Errors
/// What is wrong with them, or with the chunk.
pub fn bytes_of(chunk: u64, sizes: &[u64]) -> Result<u64, StripeError> {
    let layout = check(chunk, sizes.len())?;
    if let Some((index, bytes)) = sizes.iter().enumerate().find(|(_, bytes)| **bytes < chunk) {
        return Err(StripeError::Small { index, bytes: *bytes, chunk });
    }
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    layout.bytes(smallest).filter(|bytes| *bytes <= SIZE_MAX).ok_or(StripeError::TooLarge)
}

impl Stripe {
    /// `stores` as one. Of each as many whole chunks count as the smallest one has.
    ///
    /// # Errors
    /// If `chunk` is no size for a chunk, or there are too few stores, too many, or too small ones.
    pub fn new(chunk: u64, stores: Vec<Arc<dyn Store>>) -> Result<Self, StripeError> {
        let all: Vec<Geometry> = stores.iter().map(|store| store.geometry()).collect();
        let sizes: Vec<u64> = all.iter().map(|one| one.bytes).collect();
        let layout = check(chunk, stores.len())?;
        let bytes = bytes_of(chunk, &sizes)?;
        // A discard must not be cut by the end of a chunk.
        let chunk_u32 = u32::try_from(chunk).unwrap_or(u32::MAX);
        let granularities: Option<Vec<u32>> =
            all.iter().map(|one| one.discard_granularity).collect();
        let geometry = Geometry {
            bytes,
            read_only: all.iter().any(|one| one.read_only),
            discard_granularity: granularities
                .and_then(|all| all.into_iter().max())
                .map(|largest| if chunk_u32.is_multiple_of(largest) { largest } else { chunk_u32 }),
            anchors: all.iter().all(|one| one.anchors),
            volatile_cache: all.iter().any(|one| one.volatile_cache),
            physical_block: all.iter().map(|one| one.physical_block).max().unwrap_or(512),
            rotational: all.iter().any(|one| one.rotational),
        };
        Ok(Self { layout, stores, geometry })
    }

    /// The part of `op` that begins at `step` of it, the store that has it, and where the next part
    /// begins; None at the end. Steps are bytes for what has data, stores for what has none.
    fn part(&self, op: &Op, step: u64) -> Option<(&Arc<dyn Store>, Op, u64)> {
        match op {
            Op::Flush => {
                let store = self.stores.get(usize::try_from(step).ok()?)?;
                Some((store, Op::Flush, step + 1))
            }
            Op::Clear { offset, length, .. } | Op::WriteSame { offset, length, .. } => {
                let mut step = step;
                loop {
                    let number = usize::try_from(step).ok()?;
                    let store = self.stores.get(number)?;
                    let share = self.layout.share(number, *offset, *length);
                    step += 1;
                    let Some(Piece { offset, length, .. }) = share else { continue };
                    let part = match op {
                        Op::Clear { leave, .. } => Op::Clear { offset, length, leave: *leave },
                        Op::WriteSame { data, .. } => {
                            Op::WriteSame { offset, length, data: data.clone() }
                        }
                        _ => return None,
                    };
                    return Some((store, part, step));
                }
            }
            Op::Read { .. }
            | Op::Write { .. }
            | Op::ProvisioningStatus { .. }
            | Op::CompareAndWrite { .. } => {
                let (start, length) = op.range();
                let left = length.checked_sub(step).filter(|left| *left > 0)?;
                let at = start.checked_add(step)?;
                let Piece { member, offset, length } = self.layout.first(at, left);
                let store = self.stores.get(member)?;
                let next = step + length;
                let part = match op {
                    Op::Write { data, durable, .. } => {
                        let range = usize::try_from(step).ok()?..usize::try_from(next).ok()?;
                        let data = data.part(range)?;
                        Op::Write { offset, data, durable: *durable }
                    }
                    Op::Read { .. } => Op::Read { offset, length: u32::try_from(length).ok()? },
                    Op::CompareAndWrite { old, new, durable, .. } => {
                        let (old, new) = (old.clone(), new.clone());
                        Op::CompareAndWrite { offset, old, new, durable: *durable }
                    }
                    _ => Op::ProvisioningStatus { offset, length },
                };
                Some((store, part, next))
            }
        }
    }

    /// What is one operation is not cut by the end of a chunk, nor are bytes that are repeated.
    fn refused(&self, op: &Op) -> Option<Error> {
        let (offset, length) = op.range();
        let is_whole = match op {
            Op::CompareAndWrite { .. } => self.layout.is_whole(offset, length),
            Op::WriteSame { data, .. } => [offset, self.layout.chunk()]
                .into_iter()
                .all(|at| at.checked_rem(data.len() as u64) == Some(0)),
            _ => true,
        };
        (!is_whole).then_some(Error::Unsupported)
    }

    /// Runs parts of `op` from the one that `step` begins and whose answer is `answer`, until one
    /// needs the driver.
    fn go_on(&self, op: &Op, state: State, answer: Submitted) -> Submitted {
        let State { mut step, mut read } = state;
        let mut answer = answer;
        loop {
            match answer {
                Submitted::Io(io) => {
                    return Submitted::Io(Io::Part(Box::new(Part { step, read, io })));
                }
                Submitted::Done(Outcome::Data(data)) => read.push(data),
                Submitted::Done(Outcome::Done) => {}
                Submitted::Done(end) => return Submitted::Done(end),
            }
            let Some((_, _, next)) = self.part(op, step) else { return contradiction() };
            let Some((store, part, _)) = self.part(op, next) else {
                return Submitted::Done(ended(op, read));
            };
            step = next;
            answer = store.submit(&part);
        }
    }
}

/// How far an operation has come.
struct State {
    step: u64,
    read: Vec<Slice>,
}

fn ended(op: &Op, read: Vec<Slice>) -> Outcome {
    if matches!(op, Op::Read { .. }) { Outcome::Data(joined(read)) } else { Outcome::Done }
}

/// All bytes of `parts` in a row, at an aligned address.
fn joined(mut parts: Vec<Slice>) -> Slice {
    if parts.len() <= 1 {
        return parts.pop().unwrap_or_default();
    }
    let length: usize = parts.iter().map(Slice::len).sum();
    let mut bytes: Vec<u8> = Vec::with_capacity(length + PAGE);
    let skip = bytes.as_ptr().align_offset(PAGE).min(PAGE);
    bytes.resize(skip + length, 0);
    let mut at = skip;
    for part in &parts {
        if let Some(to) = bytes.get_mut(at..at + part.len()) {
            part.copy_to(to);
        }
        at += part.len();
    }
    Slice::from(bytes).part(skip..skip + length).unwrap_or_default()
}

impl Store for Stripe {
    fn geometry(&self) -> Geometry {
        self.geometry.clone()
    }

    fn files(&self) -> Vec<FileId> {
        self.stores.iter().flat_map(|store| store.files()).collect()
    }

    fn health(&self, file: FileId) -> Option<Arc<Health>> {
        self.stores.iter().find_map(|store| store.health(file))
    }

    fn usage(&self) -> Option<Usage> {
        let mut whole = Usage { used: 0, available: 0, shared: false };
        for store in &self.stores {
            let usage = store.usage()?;
            whole.used = whole.used.saturating_add(usage.used);
            whole.available = whole.available.saturating_add(usage.available);
            whole.shared |= usage.shared;
        }
        Some(whole)
    }

    fn lose_unknown(&self) {
        self.stores.iter().for_each(|store| store.lose_unknown());
    }

    fn may_have_lost(&self) -> bool {
        self.stores.iter().any(|store| store.may_have_lost())
    }

    /// Less than there was, if there is less behind one of them: a stripe does not grow.
    fn bytes_behind(&self) -> Option<u64> {
        let behind: Vec<Option<u64>> =
            self.stores.iter().map(|store| store.bytes_behind()).collect();
        behind.iter().any(Option::is_some).then(|| {
            let sizes = behind.iter().zip(&self.stores);
            let each = sizes.map(|(bytes, store)| bytes.unwrap_or_else(|| store.geometry().bytes));
            let bytes = self.layout.bytes(each.min().unwrap_or(0)).unwrap_or(u64::MAX);
            bytes.min(self.geometry.bytes)
        })
    }

    fn begin_look(&self) {
        self.stores.iter().for_each(|store| store.begin_look());
    }

    /// Each of them, and the first thing that is wrong.
    fn look_behind(&self) -> Option<Result<(), String>> {
        self.begin_look();
        let looks: Vec<_> = self.stores.iter().filter_map(|store| store.look_behind()).collect();
        looks.into_iter().reduce(Result::and)
    }

    fn elsewhere(&self) -> Option<Elsewhere> {
        self.stores.iter().filter_map(|store| store.elsewhere()).reduce(Elsewhere::joined)
    }

    fn gateways(&self) -> Vec<u64> {
        self.stores.iter().flat_map(|store| store.gateways()).collect()
    }

    fn has_data_in_memory(&self) -> bool {
        self.stores.iter().any(|store| store.has_data_in_memory())
    }

    fn hold_back(&self) {
        self.stores.iter().for_each(|store| store.hold_back());
    }

    fn let_on(&self) {
        self.stores.iter().for_each(|store| store.let_on());
    }

    fn is_held_back(&self) -> bool {
        self.stores.iter().any(|store| store.is_held_back())
    }

    fn begin_finish(&self) {
        self.stores.iter().for_each(|store| store.begin_finish());
    }

    /// Each of them, and the error that matters most: who is silent has lost nothing.
    fn finish(&self) -> Result<(), Error> {
        self.begin_finish();
        let errors = self.stores.iter().filter_map(|store| store.finish().err());
        let worst = errors.min_by_key(|error| matches!(error, Error::Silent));
        worst.map_or(Ok(()), Err)
    }

    /// What lies in one chunk lies in one store.
    fn compare_unit(&self) -> Option<u32> {
        let units = self.stores.iter().map(|store| store.compare_unit());
        let smallest = units.reduce(|all, one| Some(all?.min(one?)))??;
        Some(smallest.min(u32::try_from(self.layout.chunk()).unwrap_or(u32::MAX)))
    }

    fn writes_same(&self) -> bool {
        self.stores.iter().all(|store| store.writes_same())
    }

    fn submit(&self, op: &Op) -> Submitted {
        let refused = self.geometry.check(op).err().or_else(|| self.refused(op));
        if let Some(error) = refused {
            return Submitted::Done(Outcome::Failed(error));
        }
        let Some((store, part, _)) = self.part(op, 0) else {
            return Submitted::Done(ended(op, Vec::new()));
        };
        self.go_on(op, State { step: 0, read: Vec::new() }, store.submit(&part))
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        let Io::Part(under_way) = io else { return contradiction() };
        let Part { step, read, io } = &**under_way;
        let Some((store, part, _)) = self.part(op, *step) else { return contradiction() };
        let state = State { step: *step, read: read.clone() };
        self.go_on(op, state, store.complete(&part, io, result))
    }

    fn give_up(&self, op: &Op, io: &Io) {
        if let Io::Part(under_way) = io
            && let Some((store, part, _)) = self.part(op, under_way.step)
        {
            store.give_up(&part, &under_way.io);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::Null;
    use alloc::vec;
    use core::sync::atomic::AtomicUsize;
    use core::sync::atomic::Ordering;
    use core::time::Duration;
    use proptest::prelude::*;

    fn null(bytes: u64) -> Arc<dyn Store> {
        Arc::new(Null::new(bytes).expect("room"))
    }

    #[test]
    fn useless_stripes_are_refused() {
        let refused = |chunk, sizes: &[u64]| {
            Stripe::new(chunk, sizes.iter().map(|bytes| null(*bytes)).collect()).err()
        };
        assert_eq!(refused(65_536, &[1 << 20]), Some(StripeError::Stores(1)));
        assert_eq!(refused(65_536, &[1 << 20; 65]), Some(StripeError::Stores(65)));
        for chunk in [0, 512, 12_288, 8 << 20] {
            assert_eq!(refused(chunk, &[16 << 20; 2]), Some(StripeError::Chunk(chunk)));
        }
        let small = StripeError::Small { index: 1, bytes: 4096, chunk: 65_536 };
        assert_eq!(refused(65_536, &[1 << 20, 4096]), Some(small));
        assert_eq!(refused(65_536, &[1 << 62; 2]), Some(StripeError::TooLarge));
        assert_eq!(refused(65_536, &[(1 << 63) - 512; 3]), Some(StripeError::TooLarge));
        let uneven = Stripe::new(65_536, vec![null(1 << 20), null((1 << 20) - 512)]);
        assert_eq!(uneven.expect("legal").geometry().bytes, 2 * 15 * 65_536);
    }

    /// A store whose work is done elsewhere.
    #[derive(Debug)]
    struct Far {
        behind: Null,
        told: Elsewhere,
        bytes: Option<u64>,
        begun: Arc<AtomicUsize>,
        said: Option<&'static str>,
    }

    impl Far {
        fn new(cache: &'static str, lost: Option<&'static str>) -> Self {
            let told = Elsewhere {
                who: "cluster",
                advice: "look",
                busy_after: Duration::from_secs(9),
                is_busy: false,
                cache,
                others: None,
                shut_out: false,
                lost,
            };
            let behind = Null::new(1 << 20).expect("room");
            Self { behind, told, bytes: None, begun: Arc::default(), said: None }
        }
    }

    impl Store for Far {
        fn geometry(&self) -> Geometry {
            self.behind.geometry()
        }

        fn bytes_behind(&self) -> Option<u64> {
            self.bytes
        }

        fn begin_look(&self) {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }

        fn look_behind(&self) -> Option<Result<(), String>> {
            Some(self.said.map_or(Ok(()), |said| Err(said.into())))
        }

        fn elsewhere(&self) -> Option<Elsewhere> {
            Some(self.told)
        }

        fn submit(&self, op: &Op) -> Submitted {
            self.behind.submit(op)
        }

        fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
            self.behind.complete(op, io, result)
        }
    }

    fn stripe_of(stores: impl IntoIterator<Item = Far>) -> Stripe {
        let far = stores.into_iter().map(|far| Arc::new(far) as Arc<dyn Store>);
        Stripe::new(65_536, far.chain([null(1 << 20)]).collect()).expect("legal")
    }

    #[test]
    fn what_is_elsewhere_is_told_of_all_stores_as_one() {
        let none = Stripe::new(65_536, vec![null(1 << 20), null(1 << 20)]).expect("legal");
        assert!(none.elsewhere().is_none() && none.look_behind().is_none());
        assert_eq!(none.bytes_behind(), None);
        let mut busy = Far::new("writethrough", Some("moved"));
        (busy.told.is_busy, busy.told.others) = (true, Some(1));
        busy.told.busy_after = Duration::from_secs(3);
        let mut shut_out = Far::new("none", Some("replaced"));
        shut_out.told.shut_out = true;
        let told = stripe_of([Far::new("none", None), busy, shut_out]).elsewhere().expect("told");
        assert_eq!(
            (told.who, told.cache, told.lost),
            ("cluster", "writethrough", Some("replaced"))
        );
        assert_eq!((told.is_busy, told.shut_out, told.others), (true, true, Some(1)));
        assert_eq!(told.busy_after, Duration::from_secs(3));
        let told = stripe_of([Far::new("writeback", Some("removed")), Far::new("none", None)]);
        let told = told.elsewhere().expect("told");
        assert_eq!((told.cache, told.lost, told.is_busy), ("writeback", Some("removed"), false));
    }

    #[test]
    fn all_stores_are_looked_at_and_the_first_failure_is_told() {
        let said = |said: [Option<&'static str>; 3]| {
            let far = said.map(|said| Far { said, ..Far::new("none", None) });
            let begun: Vec<_> = far.iter().map(|far| Arc::clone(&far.begun)).collect();
            let looked = stripe_of(far).look_behind().expect("they are asked");
            assert!(begun.iter().all(|begun| begun.load(Ordering::Relaxed) == 1));
            looked
        };
        assert_eq!(said([None, None, None]), Ok(()));
        assert_eq!(said([None, Some("silent"), Some("gone")]), Err("silent".into()));
    }

    #[test]
    fn what_is_left_of_the_smallest_store_counts() {
        let left = |bytes: [Option<u64>; 2]| {
            let far = bytes.map(|bytes| Far { bytes, ..Far::new("none", None) });
            stripe_of(far).bytes_behind()
        };
        assert_eq!(left([None, None]), None);
        assert_eq!(left([Some(1 << 20), None]), Some(3 << 20));
        assert_eq!(left([Some(4 << 20), Some(2 << 20)]), Some(3 << 20), "it does not grow");
        assert_eq!(left([Some(4 << 20), Some(200_000)]), Some(3 * 3 * 65_536));
        assert_eq!(left([Some(512), None]), Some(0));
    }

    proptest! {
        /// The shares of all stores are what the bytes one by one say.
        #[test]
        fn shares_are_the_bytes(
            offset in 0_u64..50_000, length in 0_u64..50_000, count in 2_usize..5,
        ) {
            let stripe = Stripe::new(4096, vec![null(1 << 20); count]).expect("legal");
            let count = count as u64;
            for index in 0..count {
                let own = || (offset..offset + length).filter(|at| at / 4096 % count == index);
                let expected = own().next().map(|at| {
                    (at / 4096 / count * 4096 + at % 4096, own().count() as u64)
                });
                let number = usize::try_from(index).expect("a few");
                let share = stripe.layout.share(number, offset, length);
                prop_assert_eq!(share.map(|piece| (piece.offset, piece.length)), expected);
            }
        }
    }
}
