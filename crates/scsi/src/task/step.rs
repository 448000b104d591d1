// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes to and fro between a command under way and who runs it.

pub(crate) use wire::scsi::sam::ACA_ACTIVE;
pub(crate) use wire::scsi::sam::BUSY;
pub(crate) use wire::scsi::sam::CHECK_CONDITION;
pub(crate) use wire::scsi::sam::CONDITION_MET;
pub(crate) use wire::scsi::sam::GOOD;
pub(crate) use wire::scsi::sam::RESERVATION_CONFLICT;
pub(crate) use wire::scsi::sam::TASK_SET_FULL;

use super::Task;
use crate::kept::Keep;
use crate::kept::KeepFailed;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use buf::Slice;
use clock::Instant;
use store::Op;
use store::Outcome;
use store::device::Answer;
use store::foreign::Errand;
use wire::iscsi::Attribute;
use wire::iscsi::Cdb;
use wire::iscsi::LunField;
use wire::scsi::token::SECRET_LEN;

/// One command as SAM gives it (SAM-5 §5.4.2).
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The LUN bytes as they came.
    pub lun: LunField,
    /// The CDB as it came.
    pub cdb: Cdb,
    /// Task attribute.
    pub attribute: Attribute,
    /// Bytes that the initiator means to send.
    pub expected_out: u32,
    /// Bytes that the initiator has room for.
    pub expected_in: u32,
    /// Its initiator sent it before it could know that the LUN is another unit's now: it must not
    /// reach that one (3F/03).
    pub unaware: bool,
}

/// What must happen next.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the pump must know every one
pub enum Step {
    /// Receive Data-Out: resume with [`Input::DataOut`] when `length` bytes are there. Never more
    /// than [`Request::expected_out`].
    ReceiveDataOut {
        /// Bytes, from offset 0.
        length: u32,
    },
    /// Run on [`Task::store`]; resume with [`Input::Store`].
    Store(Op),
    /// Have the device of the unit carry this out; resume with [`Input::Device`].
    Device(Errand),
    /// Others must end first, on any reactor: resume with [`Input::Turn`] soon.
    Wait,
    /// Abort tasks of the unit, on any reactor, but not this one; resume with [`Input::Turn`] when
    /// none of their work is left.
    Abort {
        /// Whose.
        victims: Victims,
    },
    /// Say what time it is: resume with [`Input::Clock`].
    Clock,
    /// Give time and randomness: resume with [`Input::Drawn`].
    Draw,
    /// Keep this ([`Keep::run`]) where nobody else waits for it, then resume with [`Input::Kept`].
    /// A task that ends while that is under way is kept until its [`Task::kept_late`].
    Keep(Keep),
    /// Run this task, which belongs to no nexus, with [`Task::work`] and Turn first, until it is
    /// complete; what its completion says is for nobody.
    Spawn {
        /// The task.
        job: Box<Task>,
        /// Ends the command now; None: resume it with [`Input::Turn`] when the job is over.
        completion: Option<Completion>,
    },
    /// Over.
    Complete(Completion),
}

/// Whose tasks are to be aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // the pump must know every one
pub enum Victims {
    /// Of these initiator ports other than the own one: names as in
    /// [`NexusNames::initiator_port`](crate::NexusNames::initiator_port).
    Ports(Vec<String>),
    /// Of the nexus that the task belongs to.
    OwnNexus,
    /// Of every nexus.
    Everybody,
}

/// How a command ended.
#[derive(Debug)]
pub struct Completion {
    /// SAM status code.
    pub status: u8,
    /// Sense data; only with CHECK CONDITION.
    pub sense: Vec<u8>,
    /// Data for the initiator, of which the first [`Request::expected_in`] bytes travel. May be
    /// shorter than `presented` where the initiator has no room for more.
    pub data_in: Option<Slice>,
    /// Bytes that the command had for, or asked of, the initiator: the base of the residual (RFC
    /// 7143 §11.4.5).
    pub presented: u64,
    /// The initiator must see this end after all before it and before all after it (RFC 7143
    /// §4.2.2.3.4).
    pub fence: bool,
}

/// What a step gave.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums)] // the pump must know every one
pub enum Input {
    /// The bytes that were asked for.
    DataOut(Slice),
    /// How the store operation ended.
    Store(Outcome),
    /// What the device has answered.
    Device(Answer),
    /// After [`Step::Wait`], [`Step::Abort`] and [`Step::Spawn`].
    Turn,
    /// After [`Step::Clock`]: milliseconds since 1970-01-01 UTC.
    Clock(u64),
    /// After [`Step::Draw`].
    Drawn(Drawn),
    /// After [`Step::Keep`].
    Kept(Result<(), KeepFailed>),
}

/// What a task cannot know by itself.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// From the system's generator; None if it has nothing to give.
    pub random: Option<[u8; DRAWN_LEN]>,
    /// The time that counts tokens' lives.
    pub now: Instant,
}

/// Random bytes of one [`Step::Draw`]: the number and the secret of a ROD token.
pub const DRAWN_LEN: usize = 8 + SECRET_LEN;
