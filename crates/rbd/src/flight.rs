// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations under way in the library, by numbers.
//!
//! The library is given a number and no pointer. What the operation needs stays in a table until
//! the library names that number, and nothing is there any more when it does so again: an end that
//! comes late, twice or never can harm nobody. What never ends keeps its memory for ever.

use crate::api::Raw;
use crate::error::of_operation;
use crate::flushes::Noted;
use crate::image::Core;
use crate::limits::FLIGHTS_MAX;
use crate::limits::SHARDS;
use buf::Slice;
use slots::Id;
use slots::Slots;
use std::ffi::c_void;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use store::Error;
use store::Outcome;
use store::foreign::Completer;

/// What an operation does; of which bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deed {
    pub(crate) what: What,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Deed {
    /// Which byte of it the library means. It counts from the beginning of the object, as if the
    /// operation began there (seen with Ceph 16.2.15); its header says, and a later one may do,
    /// from that of the image. In a range that begins at a multiple of its length both are told
    /// apart.
    fn place_of(&self, said: u64, stripe_unit: u64) -> Option<u64> {
        let at = said.checked_rem(stripe_unit).filter(|_| said != NOWHERE)?;
        let at = if at < self.length { at } else { at.checked_sub(self.offset % stripe_unit)? };
        (at < self.length).then_some(at)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    Write,
    Zero,
    Same,
    Compare,
    Flush,
}

impl What {
    /// Whether bytes may be others afterwards.
    pub(crate) const fn changes(self) -> bool {
        match self {
            Self::Write | Self::Zero | Self::Same | Self::Compare => true,
            Self::Read | Self::Flush => false,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Zero => "zero",
            Self::Same => "write same",
            Self::Compare => "compare and write",
            Self::Flush => "flush",
        }
    }
}

/// What the library works on, beside the buffer of a read.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What is written, and what is to be there.
    pub(crate) _data: [Slice; 2],
    /// Where it says what is not there. Shared, so that it may write while we have it, too.
    pub(crate) mismatch: Option<Arc<AtomicU64>>,
}

/// What stands there until the library has written something.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// An operation that the library has, with the memory that it works on.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) core: Arc<Core>,
    pub(crate) deed: Deed,
    pub(crate) noted: Option<Noted>,
    /// Has the buffer of a read. None: a flush, and those who wait for it are known elsewhere.
    pub(crate) completer: Option<Completer>,
    pub(crate) memory: Memory,
    pub(crate) counted: Counted,
}

/// One of those that the image waits for when it is closed.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(crate) fn new(under_way: &Arc<AtomicUsize>) -> Self {
        under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(under_way))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Names a flight: the number that the library gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId {
    shard: usize,
    entry: Entry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    index: u32,
    generation: u32,
}

impl Id for Entry {
    fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    fn index(self) -> u32 {
        self.index
    }

    fn generation(self) -> u32 {
        self.generation
    }
}

// The number has a shard, an entry and its generation.
const _: () = assert!((FLIGHTS_MAX as usize * SHARDS) as u64 <= 1 << 32);
const _: () = assert!(usize::BITS == 64);

impl FlightId {
    pub(crate) fn number(self) -> usize {
        let place = self.entry.index as usize * SHARDS + self.shard;
        (self.entry.generation as usize) << 32 | place
    }

    fn of_number(number: usize) -> Self {
        let place = number & u32::MAX as usize;
        let index = u32::try_from(place / SHARDS).unwrap_or(u32::MAX);
        let generation = u32::try_from(number >> 32).unwrap_or(u32::MAX);
        Self { shard: place % SHARDS, entry: Entry { index, generation } }
    }
}

type Shard = Mutex<Slots<Entry, Flight>>;
static FLIGHTS: [Shard; SHARDS] = [const { Mutex::new(Slots::new(FLIGHTS_MAX)) }; SHARDS];

fn shard(of: usize) -> MutexGuard<'static, Slots<Entry, Flight>> {
    // What the lock guards is whole between any two statements.
    FLIGHTS[of % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// The flight gets a number; it comes back if there is no room.
pub(crate) fn depart(flight: Flight) -> Option<FlightId> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    let entry = shard(number).try_insert_with(|_| flight)?;
    Some(FlightId { shard: number, entry })
}

/// The flight, for whoever asks first.
pub(crate) fn arrive(id: FlightId) -> Option<Flight> {
    shard(id.shard).remove(id.entry)
}

/// What the library calls at the end of an operation, from a thread of its own.
pub(crate) unsafe extern "C" fn completed(completion: Raw, argument: *mut c_void) {
    // Twice, or nobody's: there is nothing to do, and `completion` may be gone.
    let Some(flight) = arrive(FlightId::of_number(argument.addr())) else { return };
    // SAFETY: the flight was there, so this is the first end of the operation, and the completion
    // is the one that it was begun with, which nobody has released.
    let value = unsafe { (flight.core.api.rbd_aio_get_return_value)(completion) };
    // SAFETY: the same; whoever takes the flight out of the table releases the completion.
    unsafe { (flight.core.api.rbd_aio_release)(completion) };
    flight.end(value);
}

impl Flight {
    /// The operation has ended with `value`: the bytes that were read, or the negative of an errno.
    pub(crate) fn end(self, value: isize) {
        let Self { core, deed, noted, completer, counted, memory } = self;
        let result = outcome(deed, value);
        core.pulse.beat();
        if deed.what == What::Compare && value == -EILSEQ {
            let said = memory.mismatch.map_or(NOWHERE, |place| place.load(Ordering::Acquire));
            let at = deed.place_of(said, core.stripe_unit);
            completer.into_iter().for_each(|one| one.complete_with(Outcome::Miscompare(at)));
            return drop(counted);
        }
        match (result, noted) {
            (Ok(()), Some(noted)) => core.flushes.note_end(noted, deed.offset, deed.length),
            (Ok(()), None) => {}
            (Err((Error::Unsupported, _)), _) => core.tell_that_it_is_not_one(deed.length),
            (Err((error, errno)), _) => {
                tell(&core.name, deed, error, errno);
                if errno == ESHUTDOWN {
                    core.shut_out();
                }
            }
        }
        drop(memory);
        let result = result.map_err(|(error, _)| error);
        match completer {
            Some(completer) => completer.complete(result),
            None => core.flushed(result),
        }
        drop(counted);
    }
}

/// What `value` means, and the errno of a failure.
fn outcome(deed: Deed, value: isize) -> Result<(), (Error, i32)> {
    let failed = match deed.what {
        What::Read => Error::Read,
        _ => Error::Write,
    };
    match u64::try_from(value) {
        // The image has become smaller.
        Ok(read) if deed.what == What::Read && read != deed.length => Err((Error::Range, 0)),
        Ok(_) => Ok(()),
        Err(_) => {
            let errno = i32::try_from(value.saturating_neg()).unwrap_or(i32::MAX);
            if deed.what == What::Compare && errno == EINVAL {
                return Err((Error::Unsupported, errno));
            }
            Err((of_operation(errno, failed), errno))
        }
    }
}

#[cold]
fn tell(image: &str, deed: Deed, error: Error, errno: i32) {
    let Deed { what, offset, length } = deed;
    let cause = match errno {
        0 => "the image ends before that".to_owned(),
        ESHUTDOWN => "the cluster has shut this client out (blocklisted)".to_owned(),
        ENOENT => "the image is gone".to_owned(),
        errno => io::Error::from_raw_os_error(errno).to_string(),
    };
    let what = what.name();
    tracing::warn!(image, what, offset, length, %error, cause, "Ceph has not done it");
}

/// What was acknowledged may be lost.
#[cold]
pub(crate) fn tell_loss(image: &str) {
    tracing::error!(
        image,
        "Ceph has not kept what it had acknowledged: flushes and durable writes fail until it is \
         written again and flushed, or the LUN is removed and added"
    );
}

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const EILSEQ: isize = 84;
const ESHUTDOWN: i32 = 108;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        for id in [(0, 0, 0), (SHARDS - 1, FLIGHTS_MAX - 1, u32::MAX), (3, 70_000, 9)] {
            let (shard, index, generation) = id;
            let id = FlightId { shard, entry: Entry { index, generation } };
            assert_eq!(FlightId::of_number(id.number()), id);
        }
    }

    #[test]
    fn ends_are_what_they_mean() {
        let deed = |what| Deed { what, offset: 0, length: 4096 };
        assert_eq!(outcome(deed(What::Read), 4096), Ok(()));
        assert_eq!(outcome(deed(What::Read), 512), Err((Error::Range, 0)));
        assert_eq!(outcome(deed(What::Read), -5), Err((Error::Read, 5)));
        assert_eq!(outcome(deed(What::Write), 0), Ok(()));
        assert_eq!(outcome(deed(What::Write), -28), Err((Error::Space, 28)));
        assert_eq!(outcome(deed(What::Flush), isize::MIN), Err((Error::Write, i32::MAX)));
        assert_eq!(outcome(deed(What::Compare), -22), Err((Error::Unsupported, 22)));
        assert_eq!(outcome(deed(What::Compare), -5), Err((Error::Write, 5)));
        assert_eq!(outcome(deed(What::Same), -22), Err((Error::Range, 22)));
    }

    /// Covers-scsi: 89.
    #[test]
    fn differences_are_found_wherever_the_library_counts_from() {
        const UNIT: u64 = 4 << 20;
        let deed = |offset| Deed { what: What::Compare, offset, length: 512 };
        for offset in [0, 512, 8192, UNIT, UNIT + 4096, 3 * UNIT - 512] {
            let object = offset - offset % UNIT;
            for at in [0, 7, 511] {
                for from in [object, offset, 0] {
                    assert_eq!(deed(offset).place_of(from + at, UNIT), Some(at), "{offset}");
                }
            }
        }
        assert_eq!(deed(8192).place_of(NOWHERE, UNIT), None);
        assert_eq!(deed(8192).place_of(4096, UNIT), None);
        assert_eq!(deed(8192).place_of(8192 + 512, UNIT), None);
        assert_eq!(deed(8192).place_of(0, 0), None);
    }
}
