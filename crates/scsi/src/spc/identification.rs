// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT and SET IDENTIFYING INFORMATION (SPC-4 §6.32, §6.43): what an owner writes on a disk.
//!
//! It has to outlive a loss of power, so the commands exist only where a state can be kept:
//! `{ length:2 information }` for the unit, then for its text.

use crate::attention::Attention;
use crate::kept;
use crate::kept::KeepFailed;
use crate::kept::Keeper;
use crate::kept::Kept;
use crate::kept::RestoreError;
use crate::limits;
use crate::lun::Context;
use crate::lun::Link;
use crate::lun::LogicalUnit;
use crate::nexus::Nexus;
use crate::sense;
use crate::sense::Fault;
use crate::task;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::sync::Arc;
use alloc::vec::Vec;
use buf::Slice;
use wire::scsi::identification;
use wire::scsi::identification::Kind;

/// What is written on a unit, and who keeps it.
#[derive(Debug, Default)]
pub(crate) struct Identification {
    texts: spin::Mutex<Texts>,
    keeper: Option<Arc<dyn Keeper>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Texts {
    /// Any bytes.
    unit: Vec<u8>,
    /// UTF-8 with a null at its end.
    text: Vec<u8>,
}

/// A SET IDENTIFYING INFORMATION under way.
#[derive(Debug)]
pub(crate) struct SetIdentification {
    kind: Kind,
    length: u32,
    /// The list, while somebody else is changing it.
    list: Option<Slice>,
}

impl Identification {
    /// With somebody who keeps it, and what was kept of the unit `number` last.
    pub(crate) fn keep(
        &mut self,
        keeper: Arc<dyn Keeper>,
        state: Option<&[u8]>,
        number: u64,
    ) -> Result<(), RestoreError> {
        if let Some(state) = state {
            self.texts = spin::Mutex::new(parse(state, number)?);
        }
        self.keeper = Some(keeper);
        Ok(())
    }

    /// True if it can be set.
    pub(crate) const fn is_kept(&self) -> bool {
        self.keeper.is_some()
    }
}

impl Texts {
    fn of(&mut self, kind: Kind) -> &mut Vec<u8> {
        match kind {
            Kind::Unit => &mut self.unit,
            Kind::Text => &mut self.text,
        }
    }

    fn emit(&self, number: u64) -> Vec<u8> {
        let mut body = Vec::new();
        for information in [&self.unit, &self.text] {
            body.extend_from_slice(&identification::emit(information)[2..]);
        }
        kept::seal(Kept::Identification, number, &body)
    }
}

fn parse(state: &[u8], number: u64) -> Result<Texts, RestoreError> {
    let mut rest = kept::open(Kept::Identification, number, state)?;
    let mut texts = Texts::default();
    for kind in Kind::ALL {
        let length = usize::from(u16::from_be_bytes(rest.take()?));
        let bytes = rest.bytes(length)?;
        if length > limit(kind) || !is_good(kind, bytes) {
            return Err(RestoreError::Damaged);
        }
        texts.of(kind).extend_from_slice(bytes);
    }
    rest.end()?;
    Ok(texts)
}

const fn limit(kind: Kind) -> usize {
    match kind {
        Kind::Unit => limits::IDENTIFICATION_LEN_MAX,
        Kind::Text => limits::IDENTIFICATION_TEXT_LEN_MAX,
    }
}

/// Text is UTF-8 with one null, at its end (SPC-4 §5.7).
fn is_good(kind: Kind, bytes: &[u8]) -> bool {
    match (kind, bytes.split_last()) {
        (Kind::Unit, _) | (_, None) => true,
        (Kind::Text, Some((last, text))) => {
            *last == 0 && !text.contains(&0) && core::str::from_utf8(text).is_ok()
        }
    }
}

/// REPORT IDENTIFYING INFORMATION.
pub(crate) fn report(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let bytes = match (identification::SUPPORTED, Kind::from_code(cdb.byte(10) >> 1)) {
        (supported, _) if cdb.byte(10) >> 1 == supported => {
            identification::emit_supported(Kind::ALL.map(|kind| (kind, limit(kind))))
        }
        (_, Some(kind)) => {
            let mut texts = unit.identification().texts.try_lock().ok_or(Fault::BUSY)?;
            identification::emit(texts.of(kind))
        }
        (_, None) => return Err(sense::invalid_bit(10, 7).into()),
    };
    Ok(task::data(bytes, cdb.u32_at(6)))
}

/// SET IDENTIFYING INFORMATION.
pub(crate) fn set(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, length) = (&context.cdb, context.cdb.u32_at(6));
    let kind = Kind::from_code(cdb.byte(10) >> 1).ok_or_else(|| sense::invalid_bit(10, 7))?;
    if usize::try_from(length).map_or(true, |length| length > limit(kind)) {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    if context.request.expected_out < length {
        return Err(sense::short_data_out(u64::from(length)));
    }
    let mut set = SetIdentification { kind, length, list: None };
    if length != 0 {
        return Ok((Machine::Identification(set), Step::ReceiveDataOut { length }));
    }
    // Nothing to write on it is to wipe it.
    let step = set.attempt(context.nexus, context.unit, Slice::empty())?;
    Ok((Machine::Identification(set), step))
}

impl SetIdentification {
    pub(crate) fn resume(
        &mut self,
        nexus: &Nexus,
        unit: &LogicalUnit,
        input: Input,
    ) -> Result<Step, Fault> {
        let list = match (self.list.take(), input) {
            (None, input @ Input::DataOut(_)) => {
                // A copy of its own, that nobody can change.
                Slice::from(task::data_out(input, self.length)?.to_vec())
            }
            (Some(list), Input::Turn) => list,
            _ => return Err(sense::INTERNAL.into()),
        };
        self.attempt(nexus, unit, list)
    }

    fn attempt(&mut self, nexus: &Nexus, unit: &LogicalUnit, list: Slice) -> Result<Step, Fault> {
        let bytes = list.bytes().unwrap_or_default();
        if !is_good(self.kind, bytes) {
            return Err(sense::invalid_parameter(0).into());
        }
        let identification = unit.identification();
        let keeper = identification.keeper.as_ref().ok_or(sense::INTERNAL)?;
        let Some(mut texts) = identification.texts.try_lock() else {
            self.list = Some(list);
            return Ok(Step::Wait);
        };
        let mut next = texts.clone();
        *next.of(self.kind) = bytes.to_vec();
        if next != *texts {
            keeper.keep(&next.emit(unit.number())).map_err(|KeepFailed| sense::INTERNAL)?;
            *texts = next;
            let own = nexus.link_to(unit).map(core::ptr::from_ref::<Link>);
            unit.establish_at_others(own, Attention::IdentifierChanged);
        }
        Ok(Step::Complete(sense::good(u64::from(self.length))))
    }
}
