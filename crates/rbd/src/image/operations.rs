// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations of an open image: each becomes a flight and a call of the library.

use super::Core;
use super::Image;
use crate::api::Api;
use crate::api::Raw;
use crate::api::THICK;
use crate::cluster::argument;
use crate::flight;
use crate::flight::Counted;
use crate::flight::Deed;
use crate::flight::Flight;
use crate::flight::FlightId;
use crate::flight::Memory;
use crate::flight::NOWHERE;
use crate::flight::What;
use crate::flushes::Next;
use crate::flushes::Rider;
use buf::Slice;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use store::Error;
use store::Space;
use store::foreign::Completer;

impl Image {
    /// Begins to read as much as the buffer of `completer` has room for.
    pub(crate) fn read(&self, offset: u64, mut completer: Completer) {
        let room = completer.room();
        let (to, length) = (room.as_mut_ptr().cast::<c_char>(), room.len());
        let deed = Deed { what: What::Read, offset, length: length as u64 };
        self.begin(deed, completer, Memory::default(), |api, image, completion| {
            // SAFETY: the image is open. The buffer is that of the completer, which stays where it
            // is and whose only owner is the table of flights until the operation has ended.
            unsafe { (api.rbd_aio_read)(image, offset, length, to, completion) }
        });
    }

    pub(crate) fn write(&self, offset: u64, data: Slice, completer: Completer) {
        let (from, length) = (data.as_ptr().cast::<c_char>(), data.len());
        let deed = Deed { what: What::Write, offset, length: length as u64 };
        let memory = Memory { _data: [data, Slice::empty()], mismatch: None };
        self.begin(deed, completer, memory, |api, image, completion| {
            // SAFETY: the image is open. The bytes are those of the slice, which nobody changes and
            // which the table of flights keeps until the operation has ended.
            unsafe { (api.rbd_aio_write)(image, offset, length, from, completion) }
        });
    }

    /// Begins to write `data` over and over, `length` bytes.
    pub(crate) fn write_same(&self, offset: u64, length: u64, data: Slice, completer: Completer) {
        let (from, each) = (data.as_ptr().cast::<c_char>(), data.len());
        let deed = Deed { what: What::Same, offset, length };
        let Ok(length) = usize::try_from(length) else {
            return completer.complete(Err(Error::Range));
        };
        let memory = Memory { _data: [data, Slice::empty()], mismatch: None };
        self.begin(deed, completer, memory, |api, image, completion| {
            // SAFETY: as for `write`.
            unsafe { (api.rbd_aio_writesame)(image, offset, length, from, each, completion, 0) }
        });
    }

    /// Begins to write `new`, as one, if `old` is there, which is as long.
    pub(crate) fn compare_and_write(
        &self,
        offset: u64,
        (old, new): (Slice, Slice),
        completer: Completer,
    ) {
        if old.len() != new.len() {
            return completer.complete(Err(Error::Internal));
        }
        let mismatch = Arc::new(AtomicU64::new(NOWHERE));
        let (is, from, length) = (old.as_ptr().cast(), new.as_ptr().cast(), new.len());
        let to = mismatch.as_ptr();
        let deed = Deed { what: What::Compare, offset, length: length as u64 };
        let memory = Memory { _data: [new, old], mismatch: Some(mismatch) };
        self.begin(deed, completer, memory, |api, image, completion| {
            let compare_and_write = api.rbd_aio_compare_and_write;
            // SAFETY: the image is open. The bytes are those of the slices, which nobody changes,
            // and are as many as is said; the place is one that may be written to while others have
            // it. The table of flights keeps all of them until the operation has ended.
            unsafe { compare_and_write(image, offset, length, is, from, completion, to, 0) }
        });
    }

    /// Begins to zero; gives the space back, or keeps it.
    pub(crate) fn zero(&self, offset: u64, length: u64, leave: Space, completer: Completer) {
        let deed = Deed { what: What::Zero, offset, length };
        let flags = if leave == Space::Deallocated { 0 } else { THICK };
        let Ok(length) = usize::try_from(length) else {
            return completer.complete(Err(Error::Range));
        };
        self.begin(deed, completer, Memory::default(), |api, image, completion| {
            // SAFETY: the image is open.
            unsafe { (api.rbd_aio_write_zeroes)(image, offset, length, completion, flags, 0) }
        });
    }

    pub(crate) fn flush(&self, completer: Completer) {
        // The image is not closed before it has begun.
        let _called = self.core.count();
        let counted = Counted::new(&self.core.under_way);
        if self.is_closed.load(Ordering::SeqCst) {
            return completer.complete(Err(Error::Internal));
        }
        if self.core.flushes.join(Rider { completer, counted }) == Next::Begin {
            self.core.begin_flush();
        }
    }

    /// Lets `call` begin the operation with a completion of its own.
    fn begin(
        &self,
        deed: Deed,
        completer: Completer,
        memory: Memory,
        call: impl FnOnce(&'static Api, Raw, Raw) -> c_int,
    ) {
        // The image is not closed before both have gone: the operation may end before its call.
        let _called = self.core.count();
        let counted = Counted::new(&self.core.under_way);
        // In this order: `close` says that it is closed, and looks then.
        if self.is_closed.load(Ordering::SeqCst) {
            return completer.complete(Err(Error::Internal));
        }
        self.core.begin(deed, Some(completer), memory, counted, call);
    }
}

impl Core {
    /// The cluster takes nothing from us any more: another client has had us blocked.
    #[cold]
    pub(crate) fn shut_out(&self) {
        if self.is_shut_out.swap(true, Ordering::Relaxed) {
            return;
        }
        let image = &*self.name;
        tracing::error!(
            image,
            "the cluster has shut this client out (blocklisted): all commands fail; try: lunwire \
             lun remove and lunwire lun add, when nobody else is to have the image"
        );
        if self.flushes.lose_unknown() {
            tracing::error!(
                image,
                "what was acknowledged and not flushed may be lost: flushes and durable writes \
                 fail until the LUN is removed and added"
            );
        }
    }

    /// Gives the library the flush that is next. Whom it is for is counted, so the image is open.
    fn begin_flush(self: &Arc<Self>) {
        let deed = Deed { what: What::Flush, offset: 0, length: 0 };
        let counted = Counted::new(&self.under_way);
        let began = self.begin(deed, None, Memory::default(), counted, |api, image, completion| {
            // SAFETY: the image is open.
            unsafe { (api.rbd_aio_flush)(image, completion) }
        });
        if !began {
            self.flushed(Err(Error::Internal));
        }
    }

    /// It begins to be under way.
    pub(super) fn count(&self) -> Counted {
        if self.under_way.load(Ordering::SeqCst) == 0 {
            self.pulse.beat();
        }
        Counted::new(&self.under_way)
    }

    /// The client refuses to compare and write so many bytes as one.
    #[cold]
    pub(crate) fn tell_that_it_is_not_one(&self, length: u64) {
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let image = &*self.name;
        tracing::warn!(
            image,
            length,
            "this librbd does not compare and write so many bytes as one: COMPARE AND WRITE keeps \
             out nobody who comes by another daemon; try: blocks of 512 bytes, or a newer librbd"
        );
    }

    /// A flush that the library had has ended.
    pub(crate) fn flushed(self: &Arc<Self>, result: Result<(), Error>) {
        let (next, failed) = self.flushes.ended(result);
        if failed && !self.is_shut_out.load(Ordering::Relaxed) {
            flight::tell_loss(&self.name);
        }
        if next == Next::Begin {
            self.begin_flush();
        }
    }

    /// Lets `call` begin the operation. False if there is no room for it: then its completer was
    /// dropped, which says that it has failed.
    fn begin(
        self: &Arc<Self>,
        deed: Deed,
        completer: Option<Completer>,
        memory: Memory,
        counted: Counted,
        call: impl FnOnce(&'static Api, Raw, Raw) -> c_int,
    ) -> bool {
        let api = self.api;
        let noted = deed.what.changes().then(|| self.flushes.note_begin(deed.offset, deed.length));
        let core = Arc::clone(self);
        let flight = Flight { core, deed, noted, completer, memory, counted };
        let Some(id) = flight::depart(flight) else { return false };
        let mut completion = null_mut();
        // SAFETY: the argument is a number, no place; the place of the completion is ours.
        let result = unsafe {
            let create = api.rbd_aio_create_completion;
            create(argument(id.number()), flight::completed, &raw mut completion)
        };
        if result < 0 {
            fail(id, result);
            return true;
        }
        let result = call(api, self.handle.0, completion);
        if result < 0
            && let Some(flight) = flight::arrive(id)
        {
            // SAFETY: the operation has not begun, and whoever takes the flight out of the table
            // releases its completion.
            unsafe { (api.rbd_aio_release)(completion) };
            flight.end(result as isize);
        }
        true
    }
}

fn fail(id: FlightId, result: c_int) {
    if let Some(flight) = flight::arrive(id) {
        flight.end(result as isize);
    }
}
