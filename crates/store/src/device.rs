// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices that carry out SCSI commands themselves. One stands where a store has its blocks: a
//! [`Passage`] holds no blocks and refuses every block operation.
//!
//! ```text
//! scsi --Command--> Device::carry_out --> Errand --> driver --> Completer::answer --> Answer
//! ```
//!
//! A device sees one I_T nexus, whoever sends its commands: what each initiator must be told, and
//! who may do what under a reservation, `scsi` knows.

use crate::foreign::Errand;
use crate::{Error, Geometry, Io, IoResult, Op, Outcome, Store, Submitted, contradiction};
use alloc::sync::Arc;
use alloc::vec::Vec;
use buf::Slice;
use core::fmt;

/// Bytes of the longest CDB that is passed on.
pub const CDB_LEN_MAX: usize = 32;

/// A command for a device.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs)] // what SAM-5 §5.4.2 gives a device server
pub struct Command {
    /// The CDB, with zeroes behind its end.
    pub cdb: [u8; CDB_LEN_MAX],
    /// Its length, bytes; at most [`CDB_LEN_MAX`].
    pub cdb_len: u8,
    /// What is transferred.
    pub transfer: Transfer,
    /// How long it may take.
    pub pace: Pace,
}

/// The data of a command.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // SAM-5 knows both ways at once, which Linux passes no more
pub enum Transfer {
    /// None.
    Nothing,
    /// To the device: all of it.
    Out(Slice),
    /// From the device: at most so many bytes, more than none.
    In(u32),
}

/// How long a command may take before the system of the device gives it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a third one would be a guess
pub enum Pace {
    /// As reading and writing.
    Usual,
    /// As erasing, formatting or winding: hours.
    Long,
}

/// How a command ended.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums)] // `scsi` must know every one
pub enum Answer {
    /// The device has ended it.
    Ended {
        /// SAM status code.
        status: u8,
        /// Sense data as the device has written them; empty if there are none.
        sense: Vec<u8>,
        /// Bytes that were transferred.
        moved: u32,
        /// Those of them that came from the device.
        data: Option<Slice>,
    },
    /// It has not reached the device, or nobody knows what became of it.
    Failed(Failure),
}

/// Why a device has not ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(clippy::exhaustive_enums)] // `scsi` says for each what hosts are told
pub enum Failure {
    /// Nobody answers under its address any more.
    #[error("the device is gone")]
    Gone,
    /// Its host adapter, or our queue, takes no command now.
    #[error("the device takes no command now")]
    Busy,
    /// It did not answer in time, and the system has given the command up.
    #[error("the device did not answer in time")]
    TimedOut,
    /// The device, or its bus, was reset meanwhile.
    #[error("the device was reset")]
    Reset,
    /// It was ended before the device had it, or by the system.
    #[error("the command was aborted")]
    Aborted,
    /// The system does not let this process send that command.
    #[error("the command is not permitted")]
    NotPermitted,
    /// The system cannot send that command as it is: its data are too long, or its CDB.
    #[error("the command does not fit the host adapter")]
    DoesNotFit,
    /// Anything else between here and there.
    #[error("the way to the device has failed")]
    Transport,
}

/// Facts about a device, which it keeps as long as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // whoever opens one knows all of them
pub struct Facts {
    /// PERIPHERAL DEVICE TYPE.
    pub kind: u8,
    /// Its medium can be taken out (RMB).
    pub removable: bool,
    /// Bytes of the longest transfer that its host adapter takes.
    pub transfer_max: u32,
    /// Logical block length, bytes, and number of blocks, of a device that has said so.
    pub capacity: Option<(u32, u64)>,
}

/// A device, shared by all reactors.
pub trait Device: Send + Sync + fmt::Debug {
    /// Facts about it.
    fn facts(&self) -> &Facts;

    /// A command, as work for the driver; it begins when that is begun. Its outcome is an
    /// [`Outcome::Answered`].
    fn carry_out(&self, command: Command) -> Errand;

    /// LOGICAL UNIT RESET, as work for the driver: no command that was sent before is still under
    /// way when it is done. Its outcome is an [`Outcome::Answered`] whose status says whether the
    /// device was reset.
    fn reset(&self) -> Errand;

    /// A command whose end nobody waits for. Takes a moment.
    fn send(&self, command: Command);

    /// Nothing is sent any more; waits a moment for what is under way.
    ///
    /// # Errors
    /// It has not ended.
    fn close(&self) -> Result<(), Error>;
}

/// A device in the place of a store.
#[derive(Debug)]
pub struct Passage(Arc<dyn Device>);

impl Passage {
    /// To `device`.
    pub const fn new(device: Arc<dyn Device>) -> Self {
        Self(device)
    }
}

impl Store for Passage {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: 0,
            read_only: false,
            discard_granularity: None,
            anchors: false,
            volatile_cache: false,
            physical_block: 512,
            rotational: false,
        }
    }

    fn submit(&self, _: &Op) -> Submitted {
        contradiction()
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        contradiction()
    }

    fn device(&self) -> Option<&Arc<dyn Device>> {
        Some(&self.0)
    }

    fn finish(&self) -> Result<(), Error> {
        self.0.close()
    }
}

/// The answer that an outcome is; anything else is none of a device.
#[must_use]
pub fn answer_of(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Answered(answer) => *answer,
        _ => Answer::Failed(Failure::Transport),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing(Facts);

    impl Device for Nothing {
        fn facts(&self) -> &Facts {
            &self.0
        }

        fn carry_out(&self, _: Command) -> Errand {
            unreachable!("nobody sends a command")
        }

        fn reset(&self) -> Errand {
            unreachable!("nobody resets it")
        }

        fn send(&self, _: Command) {}

        fn close(&self) -> Result<(), Error> {
            Err(Error::Silent)
        }
    }

    #[test]
    fn a_passage_has_no_blocks() {
        let facts = Facts { kind: 1, removable: true, transfer_max: 4096, capacity: None };
        let passage = Passage::new(Arc::new(Nothing(facts.clone())));
        assert_eq!(passage.device().map(|device| device.facts()), Some(&facts));
        for op in [Op::Flush, Op::Read { offset: 0, length: 512 }] {
            let refused = passage.submit(&op);
            assert!(matches!(refused, Submitted::Done(Outcome::Failed(Error::Internal))));
        }
        assert_eq!((passage.geometry().bytes, passage.files().len()), (0, 0));
        assert_eq!(passage.finish(), Err(Error::Silent), "what is under way is the device's");
    }

    #[test]
    fn what_is_no_answer_of_a_device_is_a_failure_on_the_way() {
        let failed = answer_of(Outcome::Failed(Error::Internal));
        assert!(matches!(failed, Answer::Failed(Failure::Transport)));
        let told =
            answer_of(Outcome::Answered(alloc::boxed::Box::new(Answer::Failed(Failure::Gone))));
        assert!(matches!(told, Answer::Failed(Failure::Gone)));
    }
}
