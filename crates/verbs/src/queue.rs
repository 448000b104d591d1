// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue pair with the queue of its completions.

use crate::abi;
use crate::abi::CompChannel;
use crate::abi::Cq;
use crate::abi::Ops;
use crate::abi::Qp;
use crate::abi::QpCap;
use crate::abi::QpInitAttr;
use crate::abi::RecvWr;
use crate::abi::SendWr;
use crate::abi::Sge;
use crate::abi::Wc;
use crate::api::Api;
use crate::domain::Domain;
use crate::error::Doing;
use crate::error::VerbsError;
use crate::limits::COMPLETIONS;
use crate::limits::INLINE_LENS;
use crate::limits::PIECES;
use crate::manager::Id;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::ptr::null_mut;

/// Completions of one queue pair, and the descriptor that tells of them.
#[derive(Debug)]
pub(crate) struct Completions {
    api: &'static Api,
    channel: NonNull<CompChannel>,
    cq: NonNull<Cq>,
    poll: abi::PollCq,
    notify: abi::ReqNotifyCq,
}

// SAFETY: the library locks what it has for itself; each queue has one owner.
unsafe impl Send for Completions {}

impl Completions {
    pub(crate) fn new(
        api: &'static Api,
        domain: &Domain,
        entries: usize,
    ) -> Result<Self, VerbsError> {
        let context = domain.context().as_ptr();
        let Ops { poll_cq: Some(poll), req_notify_cq: Some(notify), .. } = domain.facts.ops else {
            return Err(VerbsError::of(Doing::CompletionQueue, UNSUPPORTED));
        };
        // SAFETY: the device is open.
        let channel = unsafe { (api.ibv_create_comp_channel)(context) };
        let channel =
            NonNull::new(channel).ok_or_else(|| VerbsError::last(Doing::CompletionQueue))?;
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: the device is open, and the channel is one of it.
        let cq = unsafe { (api.ibv_create_cq)(context, entries, null_mut(), channel.as_ptr(), 0) };
        let Some(cq) = NonNull::new(cq) else {
            let error = VerbsError::last(Doing::CompletionQueue);
            // SAFETY: it was made just now, and has no queue.
            unsafe { (api.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let completions = Self { api, channel, cq, poll, notify };
        let failed =
            |errno: rustix::io::Errno| VerbsError::of(Doing::CompletionQueue, errno.raw_os_error());
        rustix::io::ioctl_fionbio(completions.fd(), true).map_err(failed)?;
        completions.ask_to_be_told()?;
        Ok(completions)
    }

    /// Can be read when there are completions, if that was asked for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is there, and its descriptor does not change.
        let fd = unsafe { self.channel.as_ref() }.fd;
        // SAFETY: it is open as long as the channel is there.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// What was told is heard; whatever comes from now on is told again.
    pub(crate) fn rearm(&self) -> Result<(), VerbsError> {
        let (mut cq, mut context) = (null_mut(), null_mut());
        let mut heard = 0;
        loop {
            let (cq, context) = (&raw mut cq, &raw mut context);
            // SAFETY: the channel is there, and the places are ours.
            if unsafe { (self.api.ibv_get_cq_event)(self.channel.as_ptr(), cq, context) } != 0 {
                break;
            }
            heard += 1;
        }
        if heard > 0 {
            // SAFETY: so many events of the one queue of the channel were taken just now.
            unsafe { (self.api.ibv_ack_cq_events)(self.cq.as_ptr(), heard) };
        }
        self.ask_to_be_told()
    }

    fn ask_to_be_told(&self) -> Result<(), VerbsError> {
        // SAFETY: the queue is there, and the function is its device's.
        match unsafe { (self.notify)(self.cq.as_ptr(), 0) } {
            0 => Ok(()),
            errno => Err(VerbsError::of(Doing::CompletionQueue, errno.abs())),
        }
    }

    /// The next completions, if any.
    pub(crate) fn take(&self, into: &mut [Wc; COMPLETIONS]) -> Result<usize, VerbsError> {
        let most = c_int::try_from(COMPLETIONS).unwrap_or(c_int::MAX);
        // SAFETY: the queue is there, the function is its device's, and there is room for so many.
        let count = unsafe { (self.poll)(self.cq.as_ptr(), most, into.as_mut_ptr()) };
        let failed = |_| VerbsError::of(Doing::CompletionQueue, count.saturating_abs());
        usize::try_from(count).map(|count| count.min(COMPLETIONS)).map_err(failed)
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: the queue pair is gone: who has one drops it first. All events were acknowledged.
        unsafe { (self.api.ibv_destroy_cq)(self.cq.as_ptr()) };
        // SAFETY: its one queue is gone.
        unsafe { (self.api.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

/// The queue pair of an identifier. Destroyed by `destroy` alone, while the identifier is there.
#[derive(Debug)]
pub(crate) struct Pair {
    qp: NonNull<Qp>,
    send: abi::PostSend,
    receive: abi::PostRecv,
    /// Bytes that may go by value.
    pub(crate) inline_max: usize,
}

// SAFETY: as for `Completions`.
unsafe impl Send for Pair {}

/// What is said of an operation that sends, or reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) opcode: c_int,
    pub(crate) flags: u32,
    /// The peer's key that ends with it.
    pub(crate) invalidate: u32,
    pub(crate) remote_address: u64,
    pub(crate) rkey: u32,
}

impl Pair {
    pub(crate) fn new(
        api: &'static Api,
        (id, domain): (&Id, &Domain),
        completions: &Completions,
        (sends, receives): (usize, usize),
    ) -> Result<Self, VerbsError> {
        let Ops { post_send: Some(send), post_recv: Some(receive), .. } = domain.facts.ops else {
            return Err(VerbsError::of(Doing::QueuePair, UNSUPPORTED));
        };
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut last = VerbsError::of(Doing::QueuePair, UNSUPPORTED);
        for max_inline_data in INLINE_LENS {
            let mut attr = QpInitAttr {
                context: null_mut(),
                send_cq: completions.cq.as_ptr(),
                recv_cq: completions.cq.as_ptr(),
                srq: null_mut(),
                cap: QpCap {
                    max_send_wr: count(sends),
                    max_recv_wr: count(receives),
                    max_send_sge: count(PIECES),
                    max_recv_sge: 1,
                    max_inline_data,
                },
                qp_type: abi::RELIABLE,
                sq_sig_all: 0,
            };
            let (raw, pd) = (id.raw().as_ptr(), domain.pd().as_ptr());
            // SAFETY: identifier, domain and queue are of one device, and there.
            let failed = unsafe { (api.rdma_create_qp)(raw, pd, &raw mut attr) };
            if failed == 0 {
                // SAFETY: the identifier is there; the library has just set this.
                let qp = unsafe { id.raw().as_ref() }.qp;
                let qp = NonNull::new(qp).ok_or(last)?;
                let inline_max = usize::try_from(attr.cap.max_inline_data).unwrap_or(0);
                return Ok(Self { qp, send, receive, inline_max });
            }
            last = VerbsError::last(Doing::QueuePair);
        }
        Err(last)
    }

    /// Posts a buffer for one message.
    ///
    /// # Safety
    /// The bytes of the piece are the adapter's to write to until the operation is complete or the
    /// pair is destroyed.
    pub(crate) unsafe fn receive(&self, id: u64, mut piece: Sge) -> Result<(), i32> {
        let mut order = RecvWr { id, next: null_mut(), sges: &raw mut piece, sge_count: 1 };
        let mut bad = null_mut();
        // SAFETY: the pair is there, the function is its device's, order and piece are whole and
        // read before it returns; the rest is the caller's promise.
        match unsafe { (self.receive)(self.qp.as_ptr(), &raw mut order, &raw mut bad) } {
            0 => Ok(()),
            errno => Err(errno.abs()),
        }
    }

    /// Posts an operation that sends, or reads.
    ///
    /// # Safety
    /// The bytes of the pieces do not change, and of a Read are the adapter's to write to, until
    /// the operation is complete or the pair is destroyed.
    pub(crate) unsafe fn send(&self, order: Order, pieces: &mut [Sge]) -> Result<(), i32> {
        let mut order = SendWr {
            id: order.id,
            next: null_mut(),
            sges: pieces.as_mut_ptr(),
            sge_count: c_int::try_from(pieces.len()).unwrap_or(c_int::MAX),
            opcode: order.opcode,
            flags: order.flags,
            invalidate: order.invalidate,
            remote_address: order.remote_address,
            rkey: order.rkey,
            behind: [0; 9],
        };
        let mut bad = null_mut();
        // SAFETY: as in `receive`.
        match unsafe { (self.send)(self.qp.as_ptr(), &raw mut order, &raw mut bad) } {
            0 => Ok(()),
            errno => Err(errno.abs()),
        }
    }

    /// Ends all that is under way: the adapter touches none of its memory any more.
    pub(crate) fn destroy(self, api: &Api, id: &Id) {
        // SAFETY: the identifier is there and has a queue pair, which nobody uses any more.
        unsafe { (api.rdma_destroy_qp)(id.raw().as_ptr()) };
    }
}

/// `EOPNOTSUPP`.
const UNSUPPORTED: i32 = 95;
