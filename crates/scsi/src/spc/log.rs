// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LOG SENSE and LOG SELECT (SPC-4 §6.7, §6.8, §7.3): what pages there are, error counters,
//! temperature, general statistics, informational exceptions.

use crate::attention::Attention;
use crate::limits;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::statistics::Counter;
use crate::statistics::Totals;
use crate::task;
use crate::task::Started;
use crate::task::data;
use alloc::vec;
use alloc::vec::Vec;
use wire::scsi::copy::Malformed;
use wire::scsi::log;
use wire::scsi::log::Format;
use wire::scsi::log::Select;
use wire::scsi::log::Sense;
use wire::scsi::log::Values;
use wire::scsi::provisioning;

/// Pages, ascending, as page 00 lists them.
const PAGES: [u8; 8] = [
    log::SUPPORTED_PAGES,
    log::WRITE_ERRORS,
    log::READ_ERRORS,
    log::VERIFY_ERRORS,
    provisioning::LOG_PAGE,
    log::TEMPERATURE,
    log::GENERAL_STATISTICS,
    log::INFORMATIONAL_EXCEPTIONS,
];

/// A parameter: code, format, value.
type Parameter = (u16, Format, Vec<u8>);

/// True for default values, which are zero, and false for cumulative ones. Thresholds are refused:
/// there are none.
fn are_default(values: Values) -> Result<bool, Fault> {
    match values {
        Values::Cumulative => Ok(false),
        Values::DefaultCumulative => Ok(true),
        Values::Threshold | Values::DefaultThreshold => Err(sense::invalid_bit(2, 7).into()),
    }
}

/// LOG SENSE.
pub(crate) fn log_sense(context: &Context<'_>) -> Result<Started, Fault> {
    let unit = context.unit;
    let Sense { values, code, subpage, pointer, allocation } = Sense::parse(&context.cdb);
    let allocation = u32::from(allocation);
    let totals = if are_default(values)? { Totals::default() } else { unit.totals() };
    let all_subpages = code == log::SUPPORTED_PAGES && subpage == log::ALL_SUBPAGES;
    // What nobody knows of the space of a unit is not told.
    let known = unit.resources().is_some();
    let pages = || PAGES.into_iter().filter(|page| known || *page != provisioning::LOG_PAGE);
    if !pages().any(|page| page == code) {
        return Err(sense::invalid_bit(2, 5).into());
    }
    if subpage != 0 && !all_subpages {
        return Err(sense::invalid_field(3).into());
    }
    if code == log::SUPPORTED_PAGES {
        return Ok(data(log::supported(pages(), subpage), allocation));
    }
    let parameters = parameters(unit, code, &totals);
    if parameters.last().is_some_and(|(last, ..)| pointer > *last) {
        return Err(sense::invalid_field(5).into());
    }
    let shown = parameters.into_iter().filter(|(code, ..)| *code >= pointer);
    let bytes: Vec<u8> =
        shown.flat_map(|(code, format, value)| log::parameter(code, format, &value)).collect();
    Ok(data(log::page(code, subpage, &bytes), allocation))
}

fn parameters(unit: &LogicalUnit, code: u8, totals: &Totals) -> Vec<Parameter> {
    let counter = |count: u64| vec![(log::UNCORRECTED, Format::Counter, log::counter(count))];
    match code {
        log::WRITE_ERRORS => counter(totals.write_errors),
        log::READ_ERRORS => counter(totals.read_errors),
        log::VERIFY_ERRORS => counter(totals.verify_errors),
        provisioning::LOG_PAGE => {
            let codes = [provisioning::AVAILABLE_RESOURCES, provisioning::USED_RESOURCES];
            let resources = unit.resources().into_iter().flatten();
            let pairs = codes.into_iter().zip(resources);
            pairs.map(|(code, count)| (code, Format::List, count.emit().to_vec())).collect()
        }
        log::TEMPERATURE => {
            vec![(0, Format::List, log::temperature()), (1, Format::List, log::temperature())]
        }
        log::GENERAL_STATISTICS => {
            let blocks = |bytes: u64| bytes / u64::from(unit.block());
            let statistics = log::GeneralStatistics {
                reads: totals.reads,
                writes: totals.writes,
                blocks_received: blocks(totals.bytes_written),
                blocks_transmitted: blocks(totals.bytes_read),
            };
            vec![(1, Format::List, statistics.emit().to_vec())]
        }
        _ => vec![(0, Format::List, log::no_exception())],
    }
}

/// What a page counts that can begin anew.
fn counters(code: u8) -> Option<&'static [Counter]> {
    Some(match code {
        log::SUPPORTED_PAGES => &Counter::ALL,
        log::WRITE_ERRORS => &[Counter::WriteErrors],
        log::READ_ERRORS => &[Counter::ReadErrors],
        log::VERIFY_ERRORS => &[Counter::VerifyErrors],
        log::GENERAL_STATISTICS => &[Counter::Traffic],
        provisioning::LOG_PAGE | log::TEMPERATURE | log::INFORMATIONAL_EXCEPTIONS => &[],
        _ => return None,
    })
}

/// LOG SELECT: without a list counters begin anew, those of one page or of all; with one, single
/// counters are set (SPC-4 §6.7). SP is refused, for the counters are not kept.
pub(crate) fn log_select(context: &Context<'_>) -> Result<Started, Fault> {
    let select = Select::parse(&context.cdb);
    if select.length != 0 {
        return receive_list(context, &select);
    }
    let Select { code, subpage, .. } = select;
    // With PCR the PC field means nothing; without, values are set to those of PC.
    let begins_anew = select.resets || are_default(select.values)?;
    let counters = counters(code).ok_or_else(|| sense::invalid_bit(2, 5))?;
    if subpage != 0 && (code, subpage) != (log::SUPPORTED_PAGES, log::ALL_SUBPAGES) {
        return Err(sense::invalid_field(3).into());
    }
    if begins_anew {
        context.unit.reset_statistics(counters);
        tell_others(context);
    }
    Ok(task::good(0))
}

fn tell_others(context: &Context<'_>) {
    context.nexus.tell_others(context.unit, Attention::LogChanged);
}

/// The pages stand in the list, so the CDB names none, and nothing is reset besides.
fn receive_list(context: &Context<'_>, select: &Select) -> Result<Started, Fault> {
    if select.resets {
        return Err(sense::invalid_bit(1, 1).into());
    }
    if are_default(select.values)? {
        return Err(sense::invalid_bit(2, 7).into());
    }
    if select.code != 0 {
        return Err(sense::invalid_bit(2, 5).into());
    }
    if select.subpage != 0 {
        return Err(sense::invalid_field(3).into());
    }
    if select.length > limits::LOG_LIST_LEN_MAX {
        return Err(sense::invalid_field(7).into());
    }
    parameters::receive(context, u32::from(select.length), |context, list| {
        let wanted = settings(list)?;
        for (counter, count) in &wanted {
            context.unit.set_statistic(*counter, *count);
        }
        if !wanted.is_empty() {
            tell_others(context);
        }
        Ok(task::good(u64::try_from(list.len()).unwrap_or(u64::MAX)))
    })
}

/// What a list sets; nothing is set if one parameter of it cannot be.
fn settings(list: &[u8]) -> Result<Vec<(Counter, u64)>, Fault> {
    let refused = |malformed| match malformed {
        Malformed::Field(at) => sense::invalid_parameter(at),
        _ => sense::PARAMETER_LIST_LENGTH,
    };
    let mut wanted = Vec::new();
    for page in log::parse_pages(list).map_err(refused)? {
        let counter = match (page.code, page.subpage) {
            (log::WRITE_ERRORS, 0) => Counter::WriteErrors,
            (log::READ_ERRORS, 0) => Counter::ReadErrors,
            (log::VERIFY_ERRORS, 0) => Counter::VerifyErrors,
            // Not there, or what it says is measured.
            _ => return Err(sense::invalid_parameter(page.at).into()),
        };
        for parameter in page.parameters().map_err(refused)? {
            if parameter.code != log::UNCORRECTED {
                return Err(sense::invalid_parameter(parameter.at).into());
            }
            let at = parameter.at.saturating_add(3);
            let count = parameter.count().ok_or_else(|| sense::invalid_parameter(at))?;
            wanted.push((counter, count));
        }
    }
    Ok(wanted)
}
