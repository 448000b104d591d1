// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RECEIVE COPY STATUS, DATA, OPERATING PARAMETERS and ROD TOKEN INFORMATION (SPC-4 §6.17-§6.28).

use crate::limits;
use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use alloc::vec::Vec;
use wire::scsi::copy;
use wire::scsi::copy::Operating;
use wire::scsi::token;

/// RECEIVE COPY OPERATING PARAMETERS.
pub(crate) fn operating_parameters(context: &Context<'_>) -> Result<Started, Fault> {
    let parameters = Operating {
        cscds_max: limits::CSCDS_MAX,
        segments_max: limits::COPY_SEGMENTS_MAX,
        descriptors_len_max: limits::COPY_DESCRIPTORS_LEN_MAX,
        segment_max: limits::COPY_SEGMENT_MAX,
        copies_total: u16::try_from(limits::COPIES_MAX).unwrap_or(u16::MAX),
        copies_max: u8::try_from(limits::COPIES_MAX).unwrap_or(u8::MAX),
        granularity: u8::try_from(context.unit.block().ilog2()).unwrap_or(0),
    };
    answer(context, parameters.emit())
}

/// RECEIVE COPY STATUS and DATA with a one-byte list identifier. There never are held data.
pub(crate) fn lid1(context: &Context<'_>) -> Result<Started, Fault> {
    let status = context.cdb.service_action() == copy::COPY_STATUS_LID1;
    report(context, u32::from(context.cdb.byte(2)), status)
}

/// The same with a list identifier of four bytes.
pub(crate) fn lid4(context: &Context<'_>) -> Result<Started, Fault> {
    let status = context.cdb.service_action() == copy::COPY_STATUS_LID4;
    report(context, context.cdb.u32_at(2), status)
}

fn report(context: &Context<'_>, id: u32, status: bool) -> Result<Started, Fault> {
    let record = context.nexus_state.copies.find(id).ok_or_else(|| sense::invalid_field(2))?;
    let long = context.cdb.service_action() >= copy::COPY_STATUS_LID4;
    let bytes = record.show(|progress, _| match (status, long) {
        (true, false) => progress.emit_lid1().to_vec(),
        (true, true) => progress.emit_lid4(),
        (false, false) => Vec::from([0; 4]),
        // The same head, then the length of the held data.
        (false, true) => token::emit_information(progress, None),
    });
    answer(context, bytes)
}

/// RECEIVE ROD TOKEN INFORMATION.
pub(crate) fn token_information(context: &Context<'_>) -> Result<Started, Fault> {
    let record = context.nexus_state.copies.find(context.cdb.u32_at(2));
    let record = record.ok_or_else(|| sense::invalid_field(2))?;
    answer(context, record.show(token::emit_information))
}

fn answer(context: &Context<'_>, bytes: Vec<u8>) -> Result<Started, Fault> {
    Ok(data(bytes, context.cdb.u32_at(10)))
}
