// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of logical units, as far as there are not too many.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;
use target::Failure;
use target::LunSnapshot;
use target::Totals;
use wire::scsi::SenseKey;
use wire::scsi::asc;
use wire::scsi::sam;

use super::table::Column;
use super::table::Family;
use super::table::In;
use super::table::Labels;
use super::table::Table;
use super::table::Value;
use super::table::number;
use super::table::with;
use super::times::Times;
use crate::limits::LUNS_MAX;
use crate::limits::TIMED_LUNS_MAX;
use crate::looks::About;
use crate::looks::Serving;

pub(super) const ABOUT: Table<()> = Table {
    labels: &["target", "lun", "serial", "store"],
    columns: &[Column::new(
        Family::info("lunwire_lun", "What the LUN is: its serial number, and what backs it"),
        |()| Some(Value::Known),
    )],
};

pub(super) const EACH: Table<LunSnapshot> = Table {
    labels: &["target", "lun"],
    columns: &[
        Column::new(
            Family::gauge("lunwire_lun_size", Some(In::Bytes), "Size that hosts see"),
            |lun| number(lun.bytes),
        ),
        Column::new(
            Family::gauge("lunwire_lun_block", Some(In::Bytes), "Logical block length"),
            |lun| number(lun.block),
        ),
        Column::new(
            Family::gauge("lunwire_lun_read_only", None, "1 if writes are refused, else 0"),
            |lun| number(u64::from(lun.read_only)),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_lost_writes",
                None,
                "1 if blocks that were acknowledged may be lost, and flushes fail, else 0",
            ),
            |lun| number(u64::from(lun.lost_writes)),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_file_lost",
                None,
                "1 if its file is not found by its path any more, else 0",
            ),
            |lun| number(u64::from(lun.astray.is_some())),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_left",
                Some(In::Bytes),
                "What is left behind a LUN whose file has become smaller than hosts see",
            ),
            |lun| lun.shrunk.map(Value::Number),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_used",
                Some(In::Bytes),
                "Space that its store takes: of a thin file that of its blocks",
            ),
            |lun| lun.usage.and_then(|usage| number(usage.used)),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_available",
                Some(In::Bytes),
                "Space that is left for it, which others may take, too: that of the file system",
            ),
            |lun| lun.usage.and_then(|usage| number(usage.available)),
        ),
        Column::new(
            Family::gauge("lunwire_lun_busy", None, "1 if commands are told BUSY, else 0"),
            |lun| {
                let elsewhere = lun.elsewhere.is_some_and(|elsewhere| elsewhere.is_busy);
                number(u64::from(lun.is_fenced || elsewhere))
            },
        ),
    ],
};

/// What waits for the store of a LUN, for a second and longer.
pub(super) const WAITING: Table<(usize, Duration)> = Table {
    labels: &["target", "lun"],
    columns: &[
        Column::new(
            Family::gauge(
                "lunwire_lun_waiting_commands",
                None,
                "Commands that wait for the LUN's store for a second and longer",
            ),
            |(commands, _)| number(*commands),
        ),
        Column::new(
            Family::gauge(
                "lunwire_lun_waiting",
                Some(In::Seconds),
                "How long the oldest of these commands waits",
            ),
            |(_, oldest)| Some(Value::Seconds(oldest.as_secs_f64())),
        ),
    ],
};

/// Reads or writes of a LUN: how many, and bytes.
pub(super) const TRAFFIC: Table<(u64, u64)> = Table {
    labels: &["target", "lun", "operation"],
    columns: &[
        Column::new(
            Family::counter("lunwire_lun_operations", None, "Reads and writes that ended well"),
            |(operations, _)| number(*operations),
        ),
        Column::new(
            Family::counter("lunwire_lun_data", Some(In::Bytes), "Data of these reads and writes"),
            |(_, bytes)| number(*bytes),
        ),
    ],
};

pub(super) const ERRORS: Table<u64> = Table {
    labels: &["target", "lun", "operation"],
    columns: &[Column::new(
        Family::counter(
            "lunwire_lun_medium_errors",
            None,
            "Commands that failed since blocks could not be read or written, or were not what \
             they were compared with (verify)",
        ),
        |count| number(*count),
    )],
};

/// Whose times are told.
pub(super) const TIMES: Table<Times> = Table {
    labels: &["target", "lun", "operation", "reactor"],
    columns: &[Column::new(
        Family::seconds(
            "lunwire_lun_command",
            "How long commands took in the device server and its store, from when all of the \
             command was there to when its answer was; of those that came in a turn that was \
             timed: one in 127",
        ),
        |times| Some(times.histogram()),
    )],
};

pub(super) const FAILURES: Table<u64> = Table {
    labels: &["target", "lun", "status", "sense", "reactor"],
    columns: &[Column::new(
        Family::counter(
            "lunwire_lun_failures",
            None,
            "Commands that ended with another status than GOOD and CONDITION MET, by status and \
             sense key; without target and LUN: commands for a LUN that is not there, or refused \
             before it was known",
        ),
        |count| number(*count),
    )],
};

/// How many have no metrics of their own.
pub(super) fn left_out(serving: &Serving) -> usize {
    all(serving).count().saturating_sub(LUNS_MAX)
}

fn all(serving: &Serving) -> impl Iterator<Item = (&str, &LunSnapshot)> {
    let targets = serving.targets.iter();
    targets.flat_map(|target| target.luns.iter().map(|lun| (target.name.as_str(), lun)))
}

/// How many LUNs have times that are not told.
pub(super) fn untimed(serving: &Serving) -> usize {
    all(serving).count().saturating_sub(TIMED_LUNS_MAX)
}

pub(super) fn encode(
    about: About,
    serving: &Serving,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let told: Vec<(&str, &LunSnapshot)> = all(serving).take(LUNS_MAX).collect();
    let each = || told.iter().map(|(target, lun)| (labels(target, lun), *lun));
    let infos: Vec<_> = each()
        .map(|(mut labels, lun)| {
            labels.extend([lun.serial.clone(), lun.label.clone()]);
            (labels, ())
        })
        .collect();
    ABOUT.encode(encoder, &infos)?;
    EACH.encode(encoder, &each().collect::<Vec<_>>())?;
    let waiting = each().filter_map(|(labels, lun)| Some((labels, waits(serving, lun)?)));
    WAITING.encode(encoder, &waiting.collect::<Vec<_>>())?;
    let traffic = each().flat_map(|(of, lun)| {
        let Totals { reads, writes, bytes_read, bytes_written, .. } = lun.totals;
        let kinds = [("read", (reads, bytes_read)), ("write", (writes, bytes_written))];
        kinds.map(|(kind, row)| (with(&of, kind), row))
    });
    TRAFFIC.encode(encoder, &traffic.collect::<Vec<_>>())?;
    let errors = each().flat_map(|(of, lun)| {
        let Totals { read_errors, write_errors, verify_errors, .. } = lun.totals;
        let kinds = [("read", read_errors), ("write", write_errors), ("verify", verify_errors)];
        kinds.map(|(kind, count)| (with(&of, kind), count))
    });
    ERRORS.encode(encoder, &errors.collect::<Vec<_>>())?;
    encode_commands(about, serving, &told, encoder)
}

/// What reactors have counted of the commands of these LUNs.
fn encode_commands(
    about: About,
    serving: &Serving,
    told: &[(&str, &LunSnapshot)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let places = told.iter().enumerate();
    let by_disk: BTreeMap<&str, (usize, Labels)> = places
        .map(|(place, (target, lun))| (lun.serial.as_str(), (place, labels(target, lun))))
        .collect();
    let nowhere = (usize::MAX, vec![String::new(); 2]);
    let (mut times, mut failures) = (Vec::new(), Vec::new());
    for figures in &serving.figures {
        for disk in &figures.disks {
            let place = disk.disk.as_deref().map_or(Some(&nowhere), |disk| by_disk.get(disk));
            let Some((place, of)) = place else { continue };
            let labelled = |words: &[&str]| {
                let words = words.iter().map(|word| (*word).to_owned());
                of.iter().cloned().chain(words).chain([figures.reactor.to_string()]).collect()
            };
            for (operation, took) in disk.took.iter().filter(|_| *place < TIMED_LUNS_MAX) {
                let labels: Labels = labelled(&[operation.name()]);
                times.push((labels, Times::new(about, took)));
            }
            for (Failure { status, sense_key, .. }, count) in &disk.failures {
                let name = sam::name(*status);
                let status = name.map_or_else(|| format!("{status:02x}h"), str::to_owned);
                let sense = sense_key.map_or("", |key| asc::key_name(SenseKey::from_code(key)));
                failures.push((labelled(&[&status, sense]), *count));
            }
        }
    }
    TIMES.encode(encoder, &times)?;
    FAILURES.encode(encoder, &failures)
}

fn labels(target: &str, lun: &LunSnapshot) -> Labels {
    vec![target.to_owned(), lun.number.to_string()]
}

/// What waits for its store on all reactors: how many commands, and the oldest one.
fn waits(serving: &Serving, lun: &LunSnapshot) -> Option<(usize, Duration)> {
    let waits = serving.figures.iter().flat_map(|figures| &figures.waits);
    let its = waits.filter(|wait| wait.disk == lun.serial);
    its.map(|wait| (wait.commands, wait.oldest))
        .reduce(|(sum, longest), (commands, oldest)| (sum + commands, longest.max(oldest)))
}
