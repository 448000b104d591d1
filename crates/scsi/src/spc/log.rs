// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LOG SENSE (SPC-4 §6.8, §7.3): what pages there are, error counters, informational exceptions.

use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use alloc::vec;
use alloc::vec::Vec;
use wire::scsi::log;
use wire::scsi::log::Format;

/// Pages, ascending, as page 00 lists them.
const PAGES: [u8; 4] =
    [log::SUPPORTED_PAGES, log::WRITE_ERRORS, log::READ_ERRORS, log::INFORMATIONAL_EXCEPTIONS];

/// TOTAL UNCORRECTED ERRORS, parameter of the error counter pages.
const UNCORRECTED: u16 = 0x0006;

/// Reads without data: the temperature is not known.
const TEMPERATURE_UNKNOWN: u8 = 0xff;

/// LOG SENSE. Counters only grow, so cumulative values are the only ones; defaults are zero.
pub(crate) fn log_sense(context: &Context<'_>) -> Result<Started, Fault> {
    let (cdb, unit) = (&context.cdb, context.unit);
    let (code, subpage, pointer) = (cdb.byte(2) & 0x3f, cdb.byte(3), cdb.u16_at(5));
    let is_default = match cdb.byte(2) >> 6 {
        1 => false,
        3 => true,
        // Thresholds: there are none.
        _ => return Err(sense::invalid_bit(2, 7).into()),
    };
    let all_subpages = code == log::SUPPORTED_PAGES && subpage == log::ALL_SUBPAGES;
    if subpage != 0 && !all_subpages {
        return Err(sense::invalid_field(3).into());
    }
    let counter = |count: u64| {
        let count = if is_default { 0 } else { count };
        (UNCORRECTED, Format::Counter, count.to_be_bytes().to_vec())
    };
    let parameters = match code {
        log::SUPPORTED_PAGES => {
            let list: Vec<u8> = if all_subpages {
                PAGES.into_iter().flat_map(|page| [page, 0]).chain([0, 0xff]).collect()
            } else {
                PAGES.to_vec()
            };
            return Ok(data(log::page(code, subpage, &list), u32::from(cdb.u16_at(7))));
        }
        log::WRITE_ERRORS => vec![counter(unit.errors().written())],
        log::READ_ERRORS => vec![counter(unit.errors().read())],
        log::INFORMATIONAL_EXCEPTIONS => {
            vec![(0, Format::List, vec![0, 0, TEMPERATURE_UNKNOWN, 0])]
        }
        _ => return Err(sense::invalid_bit(2, 5).into()),
    };
    if parameters.last().is_some_and(|(last, ..)| pointer > *last) {
        return Err(sense::invalid_field(5).into());
    }
    let shown = parameters.into_iter().filter(|(code, ..)| *code >= pointer);
    let bytes: Vec<u8> =
        shown.flat_map(|(code, format, value)| log::parameter(code, format, &value)).collect();
    Ok(data(log::page(code, subpage, &bytes), u32::from(cdb.u16_at(7))))
}
