// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that a device carries out ([`store::device`]): work under way like that of a store, by
//! an errand of its own.

use std::sync::Arc;

use engine::Port;
use iscsi::datamover::TaskId;
use iscsi::service::Function;
use scsi::Input;
use store::IoResult;
use store::Outcome;
use store::device::answer_of;
use store::foreign::Errand;

use super::Doing;
use super::PendingIo;
use super::Pump;
use super::awaiting_memory::Want;
use super::context::Context;
use super::letter::Units;
use super::storing::StoreUser;
use super::view::SessionView;
use crate::stopwatch::Layer;
use crate::table::Key;

impl<P: Port> SessionView<'_, P> {
    /// Has a device carry out a command, when there is room for what it sends.
    pub(super) fn send_to_device(&mut self, id: TaskId, errand: Errand) {
        let room = errand.room();
        let buf = match room {
            0 => None,
            _ => match self.take_to_read(id, room as usize) {
                Ok(buf) => Some(buf),
                Err(shortage) => {
                    return self.is_short(shortage, id, Want::Device(errand), room as usize);
                }
            },
        };
        let io = self.remember(id, Doing::Device(errand.clone()));
        self.context.errands += 1;
        errand.begin(Arc::clone(&self.context.inbox) as _, io.to_bits(), buf);
    }
}

impl<P: Port> Pump<P> {
    /// A device has answered a command of a session, if that is still there.
    pub(super) fn device_answered(&mut self, key: Key, id: TaskId, result: IoResult) {
        let outcome = match result {
            IoResult::Foreign(outcome) => outcome,
            _ => Outcome::Failed(store::Error::Internal),
        };
        let Some(mut view) = self.session(key) else { return };
        if view.session.closed {
            return self.vacate(key);
        }
        view.context.watch.laps.lap(Layer::Store);
        view.resume(id, Input::Device(answer_of(outcome)));
        self.settle(key);
    }
}

impl<P: Port> Context<P> {
    /// A function resets units: those that are devices are reset themselves. Until that is done it
    /// is work under way that the function waits for.
    pub(super) fn reset_devices(&mut self, function: Function, units: &Units) {
        let resets = matches!(
            function,
            Function::LogicalUnitReset | Function::TargetWarmReset | Function::TargetColdReset
        );
        for errand in units.iter().filter(|_| resets).filter_map(|unit| unit.reset_device()) {
            let nobody = TaskId { index: 0, generation: 0 };
            let doing = Doing::Reset(errand.clone());
            let io = self.remember((Key::NOBODY, nobody), doing, None);
            self.errands += 1;
            errand.begin(Arc::clone(&self.inbox) as _, io.to_bits(), None);
        }
    }
}

impl<P: Port> Context<P> {
    /// A task that has ended hears nothing of what its device says; those who use the device may
    /// have to.
    pub(super) fn tell_of_late_answer(&self, io: Key, result: &IoResult) {
        if let IoResult::Foreign(Outcome::Answered(answer)) = result
            && let Some(PendingIo { ended: Some(task), .. }) = self.ios.get(io)
        {
            task.answered_late(answer);
        }
    }
}

impl PendingIo {
    /// It is a reset of a device, which is nobody's task.
    pub(super) const fn is_reset(&self) -> bool {
        matches!(self.doing, Doing::Reset(_))
    }
}
