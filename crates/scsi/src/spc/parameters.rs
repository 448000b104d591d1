// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that are decided when their parameter list is there.

use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Request;
use crate::task::Started;
use crate::task::Step;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::scsi::cdb::CdbView;

/// What makes something of a list.
type Handler = fn(&Context<'_>, &[u8]) -> Result<Started, Fault>;

/// A command that awaits its parameter list, or its turn to do what the list says.
#[derive(Debug)]
pub(crate) struct Parameters {
    request: Request,
    length: u32,
    /// The list, while somebody else is changing what it changes.
    list: Option<Vec<u8>>,
    then: Handler,
}

/// Asks for the `length` bytes of a list, and hands a copy that nobody can change to `then`; at
/// once if it is empty. A handler that gives [`again`] gets the same list once more later.
pub(crate) fn receive(context: &Context<'_>, length: u32, then: Handler) -> Result<Started, Fault> {
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    let mut parameters = Parameters { request: *context.request, length, list: None, then };
    if length != 0 {
        return Ok((Machine::Parameters(Box::new(parameters)), Step::ReceiveDataOut { length }));
    }
    match parameters.attempt(context, Vec::new())? {
        Some(started) => Ok(started),
        None => Ok((Machine::Parameters(Box::new(parameters)), Step::Wait)),
    }
}

/// What a handler gives that finds somebody else at work.
pub(crate) const fn again() -> Started {
    (Machine::Done, Step::Wait)
}

impl Parameters {
    /// What the command becomes; None if it has to wait for others.
    pub(crate) fn resume(
        &mut self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Option<Started>, Fault> {
        let list = match (self.list.take(), input) {
            (None, input @ Input::DataOut(_)) => task::data_out(input, self.length)?.to_vec(),
            (Some(list), Input::Turn) => list,
            _ => return Err(sense::INTERNAL.into()),
        };
        let nexus_state = nexus.state_at(unit).ok_or(sense::UNIT_NOT_SUPPORTED)?;
        let request = self.request;
        let context = Context {
            nexus,
            unit,
            nexus_state,
            request: &request,
            cdb: CdbView::new(&request.cdb),
        };
        self.attempt(&context, list)
    }

    fn attempt(&mut self, context: &Context<'_>, list: Vec<u8>) -> Result<Option<Started>, Fault> {
        match (self.then)(context, &list)? {
            (Machine::Done, Step::Wait) => {
                self.list = Some(list);
                Ok(None)
            }
            started => Ok(Some(started)),
        }
    }
}
