// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire inspect` of a target: which units it has for us.

use anyhow::Result;
use control::units;
use initiator::Error;
use initiator::Url;
use initiator::scsi;
use initiator::scsi::Execute;
use serde_json::Value;
use serde_json::json;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

use super::TYPE_MASK;
use super::designator;
use super::device_type;
use super::have;
use super::printable;
use super::size;
use crate::args::InspectOptions;
use crate::client;
use crate::output;

/// A unit, in short.
#[derive(Debug)]
struct Unit {
    vendor: String,
    product: String,
    /// PERIPHERAL DEVICE TYPE with its qualifier.
    peripheral: u8,
    bytes: Option<u64>,
    block: Option<u32>,
    read_only: Option<bool>,
    serial: Option<String>,
    /// By which hosts know it: NAA where there is one.
    name: Option<String>,
}

/// Shows the units of the target of `url`.
pub(super) fn run(options: &InspectOptions, url: &Url) -> Result<()> {
    let mut queue = client::queue(&options.disk.client)?;
    let session = client::login(&mut queue, &options.disk.client, url)?;
    // Any LUN takes it, also one that is not there (SPC-4 §6.33); 0 does at all targets.
    let told = scsi::report_luns(&mut queue.unit(session, 0));
    let mut luns = told.map_err(|error| client::advised(error, url))?;
    luns.sort_unstable();
    let units: Vec<_> =
        luns.into_iter().map(|lun| (lun, Unit::of(&mut queue.unit(session, lun)))).collect();
    queue.logout(session);
    if options.json {
        let units: Vec<Value> = units.iter().map(|(lun, unit)| as_json(*lun, unit)).collect();
        output::result(json!({ "target": url.target, "luns": units }));
        return Ok(());
    }
    if units.is_empty() {
        output::line("no LUNs for us");
        return Ok(());
    }
    let heading = ["LUN", "size", "type", "access", "product", "serial", "name"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    // A row with an error would widen the columns of the others.
    let failed = units.iter().filter_map(|(lun, unit)| Some((lun, unit.as_ref().err()?)));
    rows.extend(units.iter().filter_map(|(lun, unit)| Some(row(*lun, unit.as_ref().ok()?))));
    output::table(&rows);
    failed.for_each(|(lun, error)| output::warn(format_args!("LUN {lun}: {error}")));
    Ok(())
}

impl Unit {
    fn of(unit: &mut impl Execute) -> Result<Self, Error> {
        let standard = scsi::inquiry(unit)?;
        let (geometry, capacity) = size(unit, &standard)?;
        let blocks = match (&geometry, &capacity) {
            (Some(disk), _) => Some((disk.blocks, disk.block)),
            (None, Some(of)) => Some((of.last_lba.saturating_add(1), of.block_length)),
            (None, None) => None,
        };
        let serial = have(scsi::vpd(unit, vpd::UNIT_SERIAL_NUMBER))?;
        let named = have(scsi::vpd(unit, vpd::DEVICE_IDENTIFICATION))?;
        Ok(Self {
            vendor: printable(&standard.vendor),
            product: printable(&standard.product),
            peripheral: standard.peripheral,
            bytes: blocks.map(|(blocks, block)| blocks.saturating_mul(block.into())),
            block: blocks.map(|(_, block)| block),
            read_only: geometry.map(|geometry| geometry.read_only),
            serial: serial.map(|bytes| printable(&bytes)),
            name: named.and_then(|bytes| name(&vpd::designators(&bytes))),
        })
    }
}

/// The designator that hosts take for the name of a disk.
fn name(all: &[Designator]) -> Option<String> {
    let first = |is_it: fn(&Designator) -> bool| all.iter().find(|one| is_it(one));
    let best = first(|one| matches!(one, Designator::Naa(_)))
        .or_else(|| first(|one| matches!(one, Designator::Eui(_))))
        .or_else(|| first(|one| matches!(one, Designator::T10Vendor(_))));
    best.map(designator)
}

fn as_json(lun: u16, unit: &Result<Unit, Error>) -> Value {
    match unit {
        Ok(unit) => json!({
            "lun": lun,
            "vendor": unit.vendor,
            "product": unit.product,
            "device_type": unit.peripheral & TYPE_MASK,
            "bytes": unit.bytes,
            "block_bytes": unit.block,
            "read_only": unit.read_only,
            "serial": unit.serial,
            "designator": unit.name,
        }),
        Err(error) => json!({ "lun": lun, "error": error.to_string() }),
    }
}

fn row(lun: u16, unit: &Unit) -> Vec<String> {
    let told = |text: Option<&String>| text.cloned().unwrap_or_else(|| "-".to_owned());
    let access = match unit.read_only {
        Some(true) => "read only",
        Some(false) => "read, write",
        None => "-",
    };
    vec![
        lun.to_string(),
        unit.bytes.map_or_else(|| "-".to_owned(), units::bytes),
        device_type(unit.peripheral),
        access.to_owned(),
        format!("{} {}", unit.vendor, unit.product),
        told(unit.serial.as_ref()),
        told(unit.name.as_ref()),
    ]
}
