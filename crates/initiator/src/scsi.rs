// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCSI commands as functions, over whatever carries them out.

use buf::Buf;
use buf::Slice;
use wire::iscsi::Cdb;
use wire::scsi::Lun;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::luns;
use wire::scsi::mode;
use wire::scsi::mode::ModeData;
use wire::scsi::persistent;
use wire::scsi::persistent::Type;
use wire::scsi::reservations;
use wire::scsi::rsoc;
use wire::scsi::sam;
use wire::scsi::unmap;
use wire::scsi::unmap::Range;
use wire::scsi::vpd;

use crate::Data;
use crate::Done;
use crate::Error;
use crate::Flushed;
use crate::Geometry;
use crate::Kind;
use crate::Ledger;
use crate::Retry;
use crate::flush::Flush;
use crate::survey::Survey;

// What the functions below give, and what commands of one's own are made of.
pub use wire::scsi::capacity::Capacity;
pub use wire::scsi::capacity::Provisioning;
pub use wire::scsi::cdb::BlockCommand;
pub use wire::scsi::command;
pub use wire::scsi::inquiry::PortGroups;
pub use wire::scsi::inquiry::Standard;
pub use wire::scsi::opcode::Opcode;
pub use wire::scsi::persistent::Type as ReservationType;
pub use wire::scsi::rsoc::Command as SupportedCommand;
pub use wire::scsi::sam as status;
pub use wire::scsi::status as lba_status;
pub use wire::scsi::vpd::Association;
pub use wire::scsi::vpd::Designator;
pub use wire::scsi::vpd::GATEWAYS;
pub use wire::scsi::vpd::content as page_content;
pub use wire::scsi::vpd::gateways;

/// Carries out commands on one logical unit.
pub trait Execute {
    /// Sends a command and waits for its end.
    ///
    /// # Errors
    /// However it fails.
    fn execute(&mut self, cdb: Cdb, data: Data, retry: Retry) -> Result<Done, Error>;
}

/// Allocation length of parameter data whose length is not known before, bytes.
const PARAMETERS: u16 = 8192;

fn ask(unit: &mut impl Execute, cdb: Cdb, room: u32) -> Result<Buf, Error> {
    let done = unit.execute(cdb, Data::In(room), Retry::Always)?;
    done.data.ok_or_else(|| Error::new(Kind::Malformed("answer")))
}

fn malformed(what: &'static str) -> impl Fn() -> Error {
    move || Error::new(Kind::Malformed(what))
}

/// Whether the unit does not know the command or the page.
#[must_use]
pub fn is_unsupported(error: &Error) -> bool {
    error.sense().is_some_and(|sense| {
        let about_it = sense.key == SenseKey::IllegalRequest && !sense.deferred;
        about_it && matches!(sense.asc, 0x20 | 0x24)
    })
}

/// Whether a reservation of another initiator keeps us out.
#[must_use]
pub fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), Kind::Status { status: sam::RESERVATION_CONFLICT, .. })
}

/// LOGICAL UNIT IS IN PROCESS OF BECOMING READY: nobody has to do anything for it.
pub(crate) fn is_becoming_ready(sense: Sense) -> bool {
    (sense.key, sense.asc, sense.ascq) == (SenseKey::NotReady, 0x04, 0x01)
}

/// TEST UNIT READY.
///
/// # Errors
/// Why the unit is not.
pub fn test_unit_ready(unit: &mut impl Execute) -> Result<(), Error> {
    unit.execute(command::plain(Opcode::TEST_UNIT_READY), Data::None, Retry::Always).map(drop)
}

/// Standard INQUIRY data.
///
/// # Errors
/// However the command fails, or malformed data.
pub fn inquiry(unit: &mut impl Execute) -> Result<Standard, Error> {
    let data = ask(unit, command::inquiry(None, 255), 255)?;
    Standard::parse(&data).ok_or_else(malformed("INQUIRY data"))
}

/// The content of a VPD page.
///
/// # Errors
/// However the command fails, or malformed data.
pub fn vpd(unit: &mut impl Execute, page: u8) -> Result<Vec<u8>, Error> {
    let data = ask(unit, command::inquiry(Some(page), 4096), 4096)?;
    vpd::content(&data, page).map(<[u8]>::to_vec).ok_or_else(malformed("VPD page"))
}

/// What names the unit, if it tells.
///
/// # Errors
/// However a command fails.
pub fn designators(unit: &mut impl Execute) -> Result<Vec<Designator>, Error> {
    let pages = optional(vpd(unit, vpd::SUPPORTED_PAGES))?.unwrap_or_default();
    if !pages.contains(&vpd::DEVICE_IDENTIFICATION) {
        return Ok(Vec::new());
    }
    let content = optional(vpd(unit, vpd::DEVICE_IDENTIFICATION))?;
    Ok(content.map(|content| vpd::designators(&content)).unwrap_or_default())
}

/// Has the unit say who it is. From then on its session asks that again whenever another disk may
/// have come in its place, as after a reconnect, and ends what is meant for this one with
/// [`Kind::OtherDisk`]. [`geometry`] does it, too.
///
/// # Errors
/// However a command fails.
pub fn identify(unit: &mut impl Execute) -> Result<(), Error> {
    inquiry(unit)?;
    let pages = optional(vpd(unit, vpd::SUPPORTED_PAGES))?.unwrap_or_default();
    for page in [vpd::DEVICE_IDENTIFICATION, vpd::UNIT_SERIAL_NUMBER] {
        if pages.contains(&page) {
            optional(vpd(unit, page))?;
        }
    }
    Ok(())
}

/// READ CAPACITY(16), or (10) where the unit has no other.
///
/// # Errors
/// However the command fails, or malformed data.
pub fn capacity(unit: &mut impl Execute) -> Result<Capacity, Error> {
    match ask(unit, command::read_capacity_16(32), 32) {
        Ok(data) => Capacity::parse_16(&data).ok_or_else(malformed("capacity")),
        Err(error) if is_unsupported(&error) => {
            let data = ask(unit, command::plain(Opcode::READ_CAPACITY_10), 8)?;
            let (last, block) = Capacity::parse_10(&data).ok_or_else(malformed("capacity"))?;
            Ok(capacity_of_10(last, block))
        }
        Err(error) => Err(error),
    }
}

/// What READ CAPACITY(10) says.
pub(crate) fn capacity_of_10(last: u32, block_length: u32) -> Capacity {
    Capacity {
        last_lba: last.into(),
        block_length,
        protection: None,
        physical_exponent: 0,
        provisioning: Provisioning::Full,
        lowest_aligned_lba: 0,
    }
}

/// The numbers of the units of a target.
///
/// # Errors
/// However the command fails, or malformed data.
pub fn report_luns(unit: &mut impl Execute) -> Result<Vec<u16>, Error> {
    let room = u32::from(PARAMETERS);
    let data = ask(unit, command::report_luns(room), room)?;
    let list = luns::parse(&data).ok_or_else(malformed("list of LUNs"))?;
    let units = list.filter_map(|field| match Lun::parse(field) {
        Some(Lun::Unit(number)) => Some(number),
        _ => None,
    });
    Ok(units.collect())
}

/// What MODE SENSE says: header and one page, or all of them.
///
/// # Errors
/// However the command fails.
pub fn mode_sense(unit: &mut impl Execute, page: u8) -> Result<Vec<u8>, Error> {
    Ok(ask(unit, command::mode_sense_6(page, 255), 255)?.to_vec())
}

/// All commands of a unit.
///
/// # Errors
/// However the command fails, or malformed data.
pub fn supported_commands(unit: &mut impl Execute) -> Result<Vec<rsoc::Command>, Error> {
    let room = u32::from(PARAMETERS);
    let data = ask(unit, command::supported_operation_codes(room), room)?;
    rsoc::parse_all(&data).ok_or_else(malformed("list of commands"))
}

/// Keys that are registered with a unit, and the reservation if there is one.
///
/// # Errors
/// However the command fails, or malformed data.
#[allow(clippy::type_complexity)] // two facts, each with its parts
pub fn reservations(unit: &mut impl Execute) -> Result<(Vec<u64>, Option<(u64, Type)>), Error> {
    let room = PARAMETERS;
    let cdb = command::persistent_reserve_in(persistent::READ_KEYS, room);
    let data = ask(unit, cdb, room.into())?;
    let (_, keys) = reservations::parse_keys(&data).ok_or_else(malformed("list of keys"))?;
    let cdb = command::persistent_reserve_in(persistent::READ_RESERVATION, room);
    let data = ask(unit, cdb, room.into())?;
    Ok((keys, reservations::parse_reservation(&data)))
}

/// SYNCHRONIZE CACHE of the whole unit. Without effect where there is no cache. It does not tell
/// whether something was lost before: see [`flush_writes`].
///
/// # Errors
/// However the command fails. [`Kind::CannotFlush`] where the unit says that it has a volatile
/// cache, and has no such command.
pub fn flush(unit: &mut impl Execute) -> Result<Flushed, Error> {
    match unit.execute(command::synchronize_cache(), Data::None, Retry::Always) {
        Ok(_) => Ok(Flushed::Done),
        Err(error) if is_unsupported(&error) => {
            let mode = optional(mode_sense(unit, mode::ALL_PAGES))?;
            match mode.as_deref().and_then(caching).is_some_and(|caching| caching.write_cache) {
                true => Err(Error::new(Kind::CannotFlush)),
                false => Ok(Flushed::Nothing),
            }
        }
        Err(error) => Err(error),
    }
}

/// A flush that stands for the writes in `ledger`: it fails if some of them may be lost, until
/// [`Ledger::forget`]. `geometry`: how the unit was found to be when they were written, if that was
/// asked. No flush brings back what another one has failed to keep.
///
/// # Errors
/// However a command fails. [`Kind::WritesLost`]; [`Kind::CannotFlush`] as for [`flush`], unless
/// all of them are [durable](Ledger::wrote_durably).
pub fn flush_writes(
    unit: &mut impl Execute,
    geometry: Option<&Geometry>,
    ledger: &mut Ledger,
) -> Result<Flushed, Error> {
    let mut flush = Flush::new(ledger);
    loop {
        let (cdb, data) = flush.question();
        let result = unit.execute(cdb, data, Retry::Always);
        if let Some(end) = flush.answer(result, geometry, ledger) {
            return end;
        }
    }
}

pub(crate) fn writes_back(bytes: &[u8]) -> bool {
    caching(bytes).is_none_or(|caching| caching.write_cache)
}

pub(crate) fn caching(bytes: &[u8]) -> Option<mode::Caching> {
    let data = ModeData::parse(mode::Header::Six, bytes);
    data.and_then(|data| data.page(mode::CACHING).and_then(mode::Caching::parse))
}

/// UNMAP of one range.
///
/// # Errors
/// However the command fails.
pub fn unmap(unit: &mut impl Execute, lba: u64, blocks: u32) -> Result<(), Error> {
    let (cdb, list) = unmap_command(lba, blocks);
    unit.execute(cdb, Data::Out(list), Retry::Always).map(drop)
}

/// UNMAP of one range, with its parameter list.
#[must_use]
pub fn unmap_command(lba: u64, blocks: u32) -> (Cdb, Slice) {
    let list = unmap::emit(&[Range { lba, blocks }]).expect("one range fits");
    let length = u16::try_from(list.len()).expect("one range is short");
    (command::unmap(length), Slice::from(list))
}

/// Waits until a disk is ready, and learns its size and limits.
///
/// # Errors
/// However a command fails; [`Kind::NotADisk`] if there is no disk behind the number.
pub fn geometry(unit: &mut impl Execute) -> Result<Geometry, Error> {
    survey(unit)?.geometry()
}

/// All that a disk tells of itself.
pub(crate) fn survey(unit: &mut impl Execute) -> Result<Survey, Error> {
    let mut survey = Survey::default();
    while let Some((cdb, data)) = survey.question() {
        survey.answer(unit.execute(cdb, data, Retry::Always))?;
    }
    Ok(survey)
}

/// Nothing, where the unit does not have it.
fn optional<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_unsupported(&error) => Ok(None),
        Err(error) if matches!(error.kind(), Kind::Malformed(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;
    use buf::Pool;

    /// A disk of 2048 blocks that has these pages and ends the session over any other.
    struct Picky {
        pages: Vec<u8>,
        asked: Vec<u8>,
    }

    impl Picky {
        fn answer(&mut self, cdb: &[u8]) -> Vec<u8> {
            match cdb {
                [0x12, 0, ..] => [&[0, 0, 5, 2, 31][..], &[0; 31]].concat(),
                [0x12, 1, page, ..] => {
                    self.asked.push(*page);
                    assert!(self.pages.contains(page), "page {page:#x} was never listed");
                    let content = if *page == 0 { self.pages.clone() } else { vec![0; 60] };
                    vpd::page(0, *page, &content)
                }
                [0x9e, 0x10, ..] => {
                    [&2047u64.to_be_bytes()[..], &512u32.to_be_bytes(), &[0; 20]].concat()
                }
                [0x1a, ..] => vec![3, 0, 0, 0],
                _ => Vec::new(),
            }
        }
    }

    impl Execute for Picky {
        fn execute(&mut self, cdb: Cdb, data: Data, _: Retry) -> Result<Done, Error> {
            let answer = self.answer(&cdb.bytes);
            let Data::In(_) = data else {
                return Ok(Done { data: None, generation: Generation::default() });
            };
            let pool = Pool::new(1 << 20).expect("room");
            let mut buf = pool.take(answer.len()).expect("a small buffer");
            buf.copy_from_slice(&answer);
            Ok(Done { data: Some(buf), generation: Generation::default() })
        }
    }

    #[test]
    fn only_pages_that_are_listed_are_asked_for() {
        for pages in [vec![0, 0x83], vec![0, 0xb0], vec![0, 0xb0, 0xb2]] {
            let mut unit = Picky { pages: pages.clone(), asked: Vec::new() };
            assert_eq!(geometry(&mut unit).expect("a disk").blocks, 2048);
            assert_eq!(unit.asked, pages);
            let mut unit = Picky { pages: pages.clone(), asked: Vec::new() };
            identify(&mut unit).expect("it says who it is");
            let wanted = |page: &u8| matches!(page, 0 | 0x80 | 0x83);
            assert_eq!(unit.asked, pages.into_iter().filter(wanted).collect::<Vec<u8>>());
        }
    }
}
