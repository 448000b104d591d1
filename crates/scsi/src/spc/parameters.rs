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
use wire::scsi::cdb::CdbView;

/// What makes something of a list.
type Handler = fn(&Context<'_>, &[u8]) -> Result<Started, Fault>;

/// A command that awaits its parameter list.
#[derive(Debug)]
pub(crate) struct Parameters {
    request: Request,
    length: u32,
    then: Handler,
}

/// Asks for the `length` bytes of a list, of which there are some, and hands a copy that nobody can
/// change to `then`.
pub(crate) fn receive(context: &Context<'_>, length: u32, then: Handler) -> Result<Started, Fault> {
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    let parameters = Parameters { request: *context.request, length, then };
    Ok((Machine::Parameters(Box::new(parameters)), Step::ReceiveDataOut { length }))
}

impl Parameters {
    pub(crate) fn resume(
        &self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Started, Fault> {
        let list = task::data_out(input, self.length)?.to_vec();
        let link = nexus.link_to(unit).ok_or(sense::UNIT_NOT_SUPPORTED)?;
        let request = &self.request;
        let context = Context { nexus, unit, link, request, cdb: CdbView::new(&request.cdb) };
        (self.then)(&context, &list)
    }
}
