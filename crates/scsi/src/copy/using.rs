// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POPULATE TOKEN and WRITE USING TOKEN (SBC-4 §5.9, §5.57).
//!
//! ```text
//! POPULATE TOKEN:    list --> draw --> look (no writer under way) --> Complete
//! WRITE USING TOKEN: list --> draw (for the time) --> copy
//! ```

use super::extended::start;
use super::machine::Copy;
use super::machine::Leg;
use super::place;
use super::records::Ground;
use super::records::Record;
use super::refused;
use super::tokens::RodToken;
use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::nexus::Mapped;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task;
use crate::task::Drawn;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Request;
use crate::task::Started;
use crate::task::Step;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use store::Op;
use store::Outcome;
use wire::scsi::cdb::CdbView;
use wire::scsi::copy::Cscd;
use wire::scsi::inquiry;
use wire::scsi::token;
use wire::scsi::token::Populate;
use wire::scsi::token::Range;
use wire::scsi::token::TOKEN_LEN;
use wire::scsi::token::Token;
use wire::scsi::token::WriteUsing;

/// A POPULATE TOKEN under way.
#[derive(Debug)]
pub(crate) struct Populating {
    record: Arc<Record>,
    runs: Vec<(u64, u64)>,
    inactivity: Duration,
    presented: u64,
    /// None until it was drawn.
    drawn: Option<Drawn>,
}

/// A WRITE USING TOKEN that awaits the time.
#[derive(Debug)]
pub(crate) struct Using {
    request: Request,
    list: WriteUsing,
    presented: u64,
}

/// A token and the unit that it is of.
type Source = (Arc<Mapped>, Arc<RodToken>);

/// POPULATE TOKEN.
pub(crate) fn populate_token(context: &Context<'_>) -> Result<Started, Fault> {
    receive(context, populate)
}

/// WRITE USING TOKEN.
pub(crate) fn write_using_token(context: &Context<'_>) -> Result<Started, Fault> {
    receive(context, using)
}

fn receive(
    context: &Context<'_>,
    then: fn(&Context<'_>, &[u8]) -> Result<Started, Fault>,
) -> Result<Started, Fault> {
    match context.cdb.u32_at(10) {
        0 => Ok(task::good(0)),
        length if length > limits::TOKEN_LIST_LEN_MAX => Err(sense::PARAMETER_LIST_LENGTH.into()),
        length => parameters::receive(context, length, then),
    }
}

/// A token costs nothing to make, so that IMMED makes no difference.
fn populate(context: &Context<'_>, bytes: &[u8]) -> Result<Started, Fault> {
    let list = Populate::parse(bytes).map_err(refused)?;
    if !matches!(list.rod_type, token::TYPE_ANY | token::TYPE_CHANGE_VULNERABLE) {
        return Err(sense::UNSUPPORTED_TOKEN_TYPE.into());
    }
    let inactivity = match Duration::from_secs(u64::from(list.inactivity_s)) {
        Duration::ZERO => limits::TOKEN_INACTIVITY,
        asked if asked > limits::TOKEN_INACTIVITY_MAX => {
            return Err(sense::invalid_parameter(4).into());
        }
        asked => asked,
    };
    let runs = extents(context.unit, &list.ranges, token::POPULATE_HEADER_LEN)?;
    let id = context.cdb.u32_at(6);
    let action = context.cdb.service_action();
    let record = context.nexus_state.copies.begin(id, action, Ground::Fore)?;
    let presented = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let populating = Populating { record, runs, inactivity, presented, drawn: None };
    Ok((Machine::Populating(Box::new(populating)), Step::Draw))
}

/// First byte and length of each range: within the unit, no block twice, not too many.
fn extents(unit: &LogicalUnit, ranges: &[Range], header: usize) -> Result<Vec<(u64, u64)>, Fault> {
    if ranges.len() > usize::from(limits::TOKEN_RANGES_MAX) {
        return Err(sense::TOO_MANY_SEGMENTS.into());
    }
    let mut total = 0_u64;
    let mut extents: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (range, at) in ranges.iter().zip((header..).step_by(token::RANGE_LEN)) {
        let extent = unit.extent(range.lba, u64::from(range.blocks))?;
        let (start, end) = (extent.offset, extent.offset + extent.length);
        let twice = extents.iter().any(|(other, length)| *other < end && start < other + length);
        total += extent.length;
        if twice || total > limits::TOKEN_BYTES_MAX {
            return Err(sense::invalid_parameter(place(at)).into());
        }
        extents.push((extent.offset, extent.length));
    }
    Ok(extents)
}

impl Populating {
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        match (input, self.drawn.take()) {
            (Input::Drawn(drawn), None) => {
                self.drawn = Some(drawn);
                // The question itself does not matter: it is asked while no writer is under way.
                Ok(Step::Store(Op::ProvisioningStatus {
                    offset: 0,
                    length: u64::from(unit.block()),
                }))
            }
            (Input::Store(Outcome::ProvisioningStatus(_)), Some(drawn)) => {
                self.make(unit, &drawn)?;
                Ok(Step::Complete(sense::good(self.presented)))
            }
            (Input::Store(Outcome::Failed(error)), _) => Err(sense::store_failed(error, 0)),
            _ => Err(sense::INTERNAL.into()),
        }
    }

    fn make(&mut self, unit: &LogicalUnit, drawn: &Drawn) -> Result<(), Fault> {
        let random = drawn.random.ok_or(sense::INTERNAL)?;
        let (id, secret) = random.split_first_chunk().ok_or(sense::INTERNAL)?;
        let secret = secret.first_chunk().ok_or(sense::INTERNAL)?;
        let block = unit.block();
        let creator =
            Cscd { device_type: inquiry::TYPE_DISK, naa: unit.identity().naa.clone(), block };
        let runs = core::mem::take(&mut self.runs);
        let bytes = Token {
            rod_type: token::TYPE_CHANGE_VULNERABLE,
            id: u64::from_be_bytes(*id),
            creator,
            bytes: runs.iter().map(|(_, length)| length).sum(),
            secret: *secret,
        }
        .emit();
        let made = RodToken::new(bytes, runs, self.inactivity, drawn.now);
        self.record.give(bytes, unit.lba_of(made.len()));
        unit.keep_token(made, drawn.now);
        // The unit may have become smaller since the ranges were looked at.
        unit.cut_off(unit.blocks() * u64::from(block));
        Ok(())
    }
}

impl Drop for Populating {
    fn drop(&mut self) {
        self.record.end(wire::scsi::copy::CopyStatus::Terminated, None);
    }
}

fn using(context: &Context<'_>, bytes: &[u8]) -> Result<Started, Fault> {
    let list = WriteUsing::parse(bytes).map_err(refused)?;
    let presented = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let using = Using { request: *context.request, list, presented };
    Ok((Machine::Using(Box::new(using)), Step::Draw))
}

impl Using {
    pub(crate) fn resume(
        &self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Started, Fault> {
        let Input::Drawn(drawn) = input else { return Err(sense::INTERNAL.into()) };
        let nexus_state = nexus.state_at(unit).ok_or(sense::UNIT_NOT_SUPPORTED)?;
        let request = &self.request;
        let context =
            Context { nexus, unit, nexus_state, request, cdb: CdbView::new(&request.cdb) };
        let destination = nexus.mapped_unit(unit).ok_or(sense::UNIT_NOT_SUPPORTED)?;
        let extents = extents(unit, &self.list.ranges, token::WRITE_HEADER_LEN)?;
        let offset = self.list.offset.checked_mul(u64::from(unit.block()));
        let offset = offset.ok_or_else(|| sense::invalid_parameter(8))?;
        let source = self.source(nexus, &drawn)?;
        let legs = match &source {
            None => zeros(destination, &extents),
            Some((mapped, token)) => self.legs(mapped, token, offset, destination, &extents)?,
        };
        let token = source.map(|(_, token)| token);
        let ground = if self.list.immediate { Ground::Back } else { Ground::Fore };
        let (id, action) = (context.cdb.u32_at(6), context.cdb.service_action());
        let record = nexus_state.copies.begin(id, action, ground)?;
        let port = nexus.names().relative_port;
        let copy = Copy::new(legs, Some(record), token, port, self.presented);
        let copy = if self.list.delete { copy.deleting() } else { copy };
        start(&context, copy, self.list.immediate, self.presented)
    }

    /// The unit that a token is of, in the LUN map of this nexus, and the token as it was given
    /// out; None for the token of zeros.
    fn source(&self, nexus: &Nexus, drawn: &Drawn) -> Result<Option<Source>, Fault> {
        let bytes: &[u8; TOKEN_LEN] = &self.list.token;
        match token::type_of(bytes) {
            token::TYPE_ZERO if *bytes == token::zero() => return Ok(None),
            token::TYPE_ZERO => return Err(sense::TOKEN_CORRUPT.into()),
            token::TYPE_CHANGE_VULNERABLE => {}
            _ => return Err(sense::UNSUPPORTED_TOKEN_TYPE.into()),
        }
        let token = Token::parse(bytes).map_err(|malformed| match malformed {
            wire::scsi::copy::Malformed::Length => sense::INVALID_TOKEN_LENGTH,
            _ => sense::TOKEN_CORRUPT,
        })?;
        // A unit that this host does not see has no tokens for it.
        let mapped = nexus.unit_named(&token.creator.naa).ok_or(sense::TOKEN_UNKNOWN)?;
        let found = mapped.unit.tokens().find(bytes, drawn.now)?;
        Ok(Some((Arc::clone(mapped), found)))
    }

    /// All of the ranges, filled from the token; a token that is too short fills none.
    fn legs(
        &self,
        source: &Arc<Mapped>,
        token: &RodToken,
        offset: u64,
        destination: &Arc<Mapped>,
        extents: &[(u64, u64)],
    ) -> Result<Vec<Leg>, Fault> {
        let wanted: u64 = extents.iter().map(|(_, length)| length).sum();
        if offset.checked_add(wanted).is_none_or(|end| end > token.len()) {
            return Err(sense::invalid_parameter(8).into());
        }
        let block = u64::from(source.unit.block());
        if !offset.is_multiple_of(block) || extents.iter().any(|(_, len)| len % block != 0) {
            return Err(sense::invalid_parameter(8).into());
        }
        let mut legs = Vec::new();
        let mut at = offset;
        for (to, length) in extents {
            let mut to = *to;
            for (from, length) in token.parts(at, *length) {
                let (source, destination) = (Some(Arc::clone(source)), Arc::clone(destination));
                legs.push(Leg { source, from, destination, to, length });
                to += length;
            }
            at += length;
        }
        Ok(legs)
    }
}

fn zeros(destination: &Arc<Mapped>, extents: &[(u64, u64)]) -> Vec<Leg> {
    let leg = |&(to, length): &(u64, u64)| Leg {
        source: None,
        from: 0,
        destination: Arc::clone(destination),
        to,
        length,
    };
    extents.iter().map(leg).collect()
}
