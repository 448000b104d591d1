// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units whose commands a device of the system carries out ([`store::device`]): disks, tapes,
//! changers, CD and DVD drives, anything with a SCSI device server of its own.
//!
//! ```text
//! gate --> pass::command --> ReceiveDataOut --> Device --> Complete
//!                 |                               ^
//!                 +---- reads, or moves nothing --+
//! ```
//!
//! The device knows one I_T nexus, that of the system, whoever sends its commands. So what there
//! is of each nexus is here, as for every other unit: the task set, ACA, reservations and
//! registrations, unit attentions ([`news`]), who prevents removal ([`removal`]). Who the unit is,
//! the device says, but for what it says of its own ports ([`inquiry`]). Which command is whose,
//! `table/passed.rs` says.

mod command;
pub(crate) mod inquiry;
pub(crate) mod news;
pub(crate) mod removal;
pub(crate) mod report;
#[cfg(test)]
pub(crate) mod tests;

use crate::attention::Attention;
use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::lun::NexusState;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::statistics::Traffic;
use crate::task::CHECK_CONDITION;
use crate::task::Completion;
use crate::task::GOOD;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use buf::Slice;
use store::device::Answer;
use store::device::Device;
use store::device::Facts;
use store::device::Failure;
use store::device::Transfer;
use wire::iscsi::Cdb;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::opcode::Opcode;

/// A command that a device carries out.
#[derive(Debug)]
pub(crate) struct Passing {
    cdb: Cdb,
    /// Bytes of Data-Out that it waits for.
    awaited: u32,
    /// What was transferred.
    moved: Moved,
    after: After,
}

/// What has been transferred, for the statistics of the unit.
#[derive(Clone, Copy, Debug)]
enum Moved {
    Nothing,
    Out(u32),
    In(u32),
}

/// What the end of a command means beyond what the device has said.
#[derive(Clone, Debug)]
pub(crate) enum After {
    /// Nothing.
    Nothing,
    /// Others hear of what this one has changed.
    Changed(Attention),
    /// It prevents removal from now on, or does so no longer.
    Removal { prevents: bool },
    /// INQUIRY: what the device says of itself is made to say what is true here.
    Inquiry(inquiry::Asked),
    /// REPORT SUPPORTED OPERATION CODES: without what is refused here.
    SupportedCommands,
    /// REQUEST SENSE: a unit attention that it takes from the device is news for the others.
    Sense,
}

/// A command that the device carries out as it is.
pub(crate) fn command(context: &Context<'_>) -> Result<Started, Fault> {
    let after = changes(context).map_or(After::Nothing, After::Changed);
    pass(context, context.request.cdb, context.request.expected_in, after)
}

/// A command that would have the device reach others, or decide for all initiators of this target
/// who may do what.
pub(crate) fn refused(_: &Context<'_>) -> Result<Started, Fault> {
    Err(sense::INVALID_OPCODE.into())
}

/// REQUEST SENSE: what the unit has to tell this nexus comes first; the rest the device knows.
pub(crate) fn request_sense(context: &Context<'_>) -> Result<Started, Fault> {
    if context.nexus_state.attentions.pending() {
        return crate::spc::misc::request_sense(context);
    }
    pass(context, context.request.cdb, context.request.expected_in, After::Sense)
}

/// Has the device carry out `cdb`. The direction and the length of its data are what the initiator
/// says: what an operation code moves that nobody here knows, only it can tell.
pub(crate) fn pass(
    context: &Context<'_>,
    cdb: Cdb,
    room: u32,
    after: After,
) -> Result<Started, Fault> {
    let device = device_of(context.unit)?;
    let awaited = context.request.expected_out;
    // Linux passes no command that moves data both ways.
    if awaited > 0 && context.request.expected_in > 0 {
        return Err(sense::INVALID_OPCODE.into());
    }
    if awaited.max(room) > transfer_max(device.facts()) {
        return Err(context.length_field().into());
    }
    let passing = Passing { cdb, awaited, moved: Moved::Nothing, after };
    let step = match (awaited, room) {
        (0, 0) => passing.send(device, Transfer::Nothing)?,
        (0, room) => passing.send(device, Transfer::In(room))?,
        (length, _) => Step::ReceiveDataOut { length },
    };
    Ok((Machine::Passing(Box::new(passing)), step))
}

/// Bytes of the longest command.
pub(crate) fn transfer_max(facts: &Facts) -> u32 {
    facts.transfer_max.min(limits::TRANSFER_MAX)
}

fn device_of(unit: &LogicalUnit) -> Result<&Arc<dyn Device>, Fault> {
    unit.device().ok_or_else(|| sense::INTERNAL.into())
}

/// What the device would tell its other nexuses if it knew of them.
fn changes(context: &Context<'_>) -> Option<Attention> {
    let cdb = &context.cdb;
    match cdb.opcode() {
        Opcode::MODE_SELECT_6 | Opcode::MODE_SELECT_10 => Some(Attention::ModeChanged),
        Opcode::LOG_SELECT => Some(Attention::LogChanged),
        Opcode::FORMAT_UNIT => Some(Attention::CapacityChanged),
        // With LOEJ a disk or a disc, on a tape drive whatever else it says, comes in.
        Opcode::START_STOP_UNIT => {
            let facts = context.unit.device().map(|device| device.facts())?;
            let loads = cdb.bit(4, 0) && (facts.kind == TYPE_TAPE || cdb.bit(4, 1));
            (loads && facts.removable).then_some(Attention::MediumChanged)
        }
        _ => None,
    }
}

/// PERIPHERAL DEVICE TYPE of a tape drive.
const TYPE_TAPE: u8 = 0x01;

impl Passing {
    fn send(&self, device: &Arc<dyn Device>, transfer: Transfer) -> Result<Step, Fault> {
        let command = command::command(&self.cdb, device.facts().kind, transfer);
        let command = command.ok_or(sense::INVALID_OPCODE)?;
        Ok(Step::Device(device.carry_out(command)))
    }

    pub(crate) fn resume(
        &mut self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Step, Fault> {
        match input {
            Input::DataOut(data) if self.awaited > 0 => {
                let data = crate::task::data_out(Input::DataOut(data), self.awaited)?;
                self.awaited = 0;
                self.moved = Moved::Out(0);
                self.send(device_of(unit)?, Transfer::Out(data))
            }
            Input::Device(answer) => self.answered(nexus, unit, answer).map(Step::Complete),
            _ => Err(sense::INTERNAL.into()),
        }
    }

    fn answered(
        &mut self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        answer: Answer,
    ) -> Result<Completion, Fault> {
        let own = nexus.state_at(unit);
        match answer {
            Answer::Ended { status, sense, moved, data } => {
                self.moved = match self.moved {
                    Moved::Nothing if data.is_some() => Moved::In(moved),
                    Moved::Out(_) => Moved::Out(moved),
                    other => other,
                };
                let completion = Completion {
                    status,
                    fence: false,
                    sense,
                    data_in: data,
                    presented: u64::from(moved),
                };
                self.ended(nexus, unit, completion)
            }
            Answer::Failed(failure) => {
                if failure == Failure::Reset {
                    news::spread(unit, own, &sense::RESET_OCCURRED_UNKNOWN);
                }
                Err(fault_of(failure))
            }
        }
    }

    /// The device has ended it.
    fn ended(
        &self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        mut completion: Completion,
    ) -> Result<Completion, Fault> {
        let own = nexus.state_at(unit);
        if completion.status == CHECK_CONDITION
            && let Some(sense) = Sense::parse(&completion.sense)
        {
            news::spread(unit, own, &sense);
            unit.count_failure(sense);
            completion.fence = Fault::from(sense).is_fenced();
        }
        let is_good = completion.status == GOOD;
        match &self.after {
            After::Changed(attention) if is_good => nexus.tell_others(unit, *attention),
            After::Removal { prevents } if is_good => {
                if let Some(own) = own {
                    own.medium.prevent_removal(*prevents);
                }
            }
            After::Inquiry(asked) => return inquiry::edited(asked, nexus, unit, completion),
            After::Sense if is_good => {
                if let Some(sense) = completion.data_in.as_ref().and_then(sense_in) {
                    news::spread(unit, own, &sense);
                }
            }
            After::SupportedCommands if is_good => {
                return Ok(with_data(completion, report::without_refused));
            }
            _ => {}
        }
        Ok(completion)
    }

    /// The device has ended it when its task was gone already: nobody is told how, but what it
    /// means for all who use the unit, they hear, whoever sent it among them. (What a device has
    /// not ended, since it was reset, it tells of itself.)
    pub(crate) fn answered_late(&self, unit: &LogicalUnit, answer: &Answer) {
        let Answer::Ended { status, sense, data, .. } = answer else { return };
        let status = *status;
        if status == CHECK_CONDITION
            && let Some(sense) = Sense::parse(sense)
        {
            news::spread(unit, None, &sense);
        }
        match &self.after {
            After::Changed(attention) if status == GOOD => unit.establish_everywhere(*attention),
            After::Removal { prevents: true } if status == GOOD => allow_unless_prevented(unit),
            After::Sense if status == GOOD => {
                if let Some(sense) = data.as_ref().and_then(sense_in) {
                    news::spread(unit, None, &sense);
                }
            }
            _ => {}
        }
    }

    /// True if it changes nothing and tells nothing of the medium: nobody need wait for it, and it
    /// need wait for nobody.
    pub(crate) fn only_asks(&self) -> bool {
        command::only_asks(self.cdb.bytes[0])
    }

    /// What it has moved, for the statistics of its nexus.
    pub(crate) fn count(&self, traffic: &Traffic) {
        match self.moved {
            Moved::Nothing => {}
            Moved::Out(bytes) => traffic.count_write(u64::from(bytes)),
            Moved::In(bytes) => traffic.count_read(u64::from(bytes)),
        }
    }
}

/// A completion with what `edit` makes of its data.
pub(crate) fn with_data(
    completion: Completion,
    edit: impl FnOnce(Vec<u8>) -> Vec<u8>,
) -> Completion {
    let Some(data) = &completion.data_in else { return completion };
    let data = edit(data.to_vec());
    let presented = u64::try_from(data.len()).unwrap_or(u64::MAX);
    Completion { data_in: Some(Slice::from(data)), presented, ..completion }
}

/// What hosts are told of a command that the device has not ended.
fn fault_of(failure: Failure) -> Fault {
    let sense = match failure {
        Failure::Busy => return Fault::BUSY,
        // LOGICAL UNIT DOES NOT RESPOND TO SELECTION.
        Failure::Gone => Sense::new(SenseKey::NotReady, 0x05, 0x00),
        // COMMAND TIMEOUT DURING PROCESSING.
        Failure::TimedOut => Sense::new(SenseKey::AbortedCommand, 0x2e, 0x02),
        Failure::Reset => sense::RESET_OCCURRED_UNKNOWN,
        Failure::Aborted => Sense::new(SenseKey::AbortedCommand, 0x00, 0x00),
        Failure::NotPermitted => sense::INVALID_OPCODE,
        Failure::DoesNotFit => sense::invalid_field(0),
        // LOGICAL UNIT COMMUNICATION FAILURE.
        Failure::Transport => Sense::new(SenseKey::AbortedCommand, 0x08, 0x00),
    };
    sense.into()
}

/// Whether nobody prevents removal any more who did before: the device hears it then.
pub(crate) fn allow_removal(unit: &LogicalUnit, nexus_state: &NexusState) {
    let prevented = nexus_state.medium.prevents();
    nexus_state.medium.allow_removal();
    if prevented {
        allow_unless_prevented(unit);
    }
}

fn allow_unless_prevented(unit: &LogicalUnit) {
    if let Some(device) = unit.device()
        && !unit.any_nexus(|other| other.medium.prevents())
    {
        device.send(command::allow_removal());
    }
}

/// Sense data that are the data of a command.
fn sense_in(data: &Slice) -> Option<Sense> {
    Sense::parse(&data.to_vec())
}
