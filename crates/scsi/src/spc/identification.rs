// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT and SET IDENTIFYING INFORMATION (SPC-4 §6.32, §6.43): what an owner writes on a disk.
//!
//! It has to outlive a loss of power, so the commands exist only where a state can be kept:
//! `{ length:2 information }` for the unit, then for its text.

use crate::keeping::Change;
use crate::keeping::Keeping;
use crate::kept;
use crate::kept::Keep;
use crate::kept::KeepFailed;
use crate::kept::Keeper;
use crate::kept::Kept;
use crate::kept::RestoreError;
use crate::limits;
use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task;
use crate::task::Started;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wire::scsi::identification;
use wire::scsi::identification::Kind;

/// What is written on a unit, and who keeps it.
#[derive(Debug, Default)]
pub(crate) struct Identification {
    written: spin::Mutex<Written>,
    keeper: Option<Arc<dyn Keeper>>,
}

#[derive(Debug, Default)]
struct Written {
    texts: Texts,
    /// Others are on their way to stable storage.
    is_changing: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    /// Any bytes.
    unit: Vec<u8>,
    /// UTF-8 with a null at its end.
    text: Vec<u8>,
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
            let texts = parse(state, number)?;
            self.written = spin::Mutex::new(Written { texts, is_changing: false });
        }
        self.keeper = Some(keeper);
        Ok(())
    }

    /// `texts` are kept, and on the unit from now on; or not.
    pub(crate) fn finish(
        &self,
        texts: Texts,
        result: Result<(), KeepFailed>,
    ) -> Result<(), KeepFailed> {
        let mut written = self.written.lock();
        debug_assert!(written.is_changing, "it has begun");
        written.is_changing = false;
        result?;
        written.texts = texts;
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
            let length = u16::try_from(information.len()).unwrap_or(0);
            body.extend_from_slice(&length.to_be_bytes());
            body.extend_from_slice(information);
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
            let mut written = unit.identification().written.lock();
            identification::emit(written.texts.of(kind))
        }
        (_, None) => return Err(sense::invalid_bit(10, 7).into()),
    };
    Ok(task::data(bytes, cdb.u32_at(6)))
}

/// SET IDENTIFYING INFORMATION.
pub(crate) fn set(context: &Context<'_>) -> Result<Started, Fault> {
    let length = context.cdb.u32_at(6);
    let kind = kind(context)?;
    if usize::try_from(length).map_or(true, |length| length > limit(kind)) {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    // Nothing to write on it is to wipe it.
    parameters::receive(context, length, write)
}

fn kind(context: &Context<'_>) -> Result<Kind, Fault> {
    Kind::from_code(context.cdb.byte(10) >> 1).ok_or_else(|| sense::invalid_bit(10, 7).into())
}

/// Writes `list` on the unit, unless somebody else is writing on it.
fn write(context: &Context<'_>, list: &[u8]) -> Result<Started, Fault> {
    let (kind, unit) = (kind(context)?, context.unit);
    if !is_good(kind, list) {
        return Err(sense::invalid_parameter(0).into());
    }
    let identification = unit.identification();
    let keeper = identification.keeper.as_ref().ok_or(sense::INTERNAL)?;
    let mut written = identification.written.lock();
    if written.is_changing {
        return Ok(parameters::again());
    }
    let presented = u64::try_from(list.len()).unwrap_or(u64::MAX);
    let mut next = written.texts.clone();
    *next.of(kind) = list.to_vec();
    if next == written.texts {
        return Ok(task::good(presented));
    }
    written.is_changing = true;
    let keep = Keep::new(keeper, next.emit(unit.number()));
    Ok(Keeping::begin(Change::Identification(next), keep, presented))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_is_restored() {
        let texts = Texts { unit: vec![7; 512], text: b"database\0".to_vec() };
        assert_eq!(parse(&texts.emit(7), 7), Ok(texts));
        assert_eq!(parse(&Texts::default().emit(7), 7), Ok(Texts::default()));
    }

    proptest! {
        /// With a right checksum, so that what lies behind it is reached.
        #[test]
        fn hostile_bytes_are_refused_or_sound(
            unit in 0_u16..600, text in 0_u16..300, null: bool,
            bytes in proptest::collection::vec(any::<u8>(), 0..900),
        ) {
            let mut body = unit.to_be_bytes().to_vec();
            body.extend(&bytes);
            // Where the second length is, and the last byte of the text, so that some are sound.
            let at = 2 + usize::from(unit);
            if let Some(to) = body.get_mut(at..at + 2) {
                to.copy_from_slice(&text.to_be_bytes());
                body.truncate(at + 2 + usize::from(text));
            }
            if let Some(last) = body.last_mut().filter(|_| null) {
                *last = 0;
            }
            let state = kept::seal(Kept::Identification, 7, &body);
            if let Ok(mut texts) = parse(&state, 7) {
                for kind in Kind::ALL {
                    let bytes = texts.of(kind);
                    prop_assert!(bytes.len() <= limit(kind) && is_good(kind, bytes));
                }
                prop_assert_eq!(texts.emit(7), state);
            }
        }
    }
}
