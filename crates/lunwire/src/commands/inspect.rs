// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire inspect URL`.

mod list;

use anyhow::Result;
use control::units;
use initiator::Error;
use initiator::Geometry;
use initiator::Kind;
use initiator::scsi;
use initiator::scsi::Execute;
use serde_json::Value;
use serde_json::json;
use wire::scsi::capacity::Capacity;
use wire::scsi::inquiry::Standard;
use wire::scsi::mode;
use wire::scsi::mode::ModeData;
use wire::scsi::opcode::Opcode;
use wire::scsi::protection::ProtectionType;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

use crate::args::InspectOptions;
use crate::client;
use crate::output;

/// Identity, size, limits, pages, commands, reservations; of a target, which units it has.
pub(crate) fn run(options: &InspectOptions) -> Result<()> {
    let url = client::target_url(&options.disk.url)?;
    if url.lun.is_none() {
        return list::run(options, &url);
    }
    let mut queue = client::queue(&options.disk.client)?;
    let session = client::login(&mut queue, &options.disk.client, &url)?;
    let lun = url.lun.unwrap_or(0);
    let frames = url.frames().map(|frames| frames.by);
    let facts = Facts::gather(&mut queue.unit(session, lun))
        .map_err(|error| client::no_unit(&mut queue, session, error, &url));
    queue.logout(session);
    let facts = facts?;
    if options.json {
        output::result(facts.json(frames.as_deref()));
    } else {
        facts.print(frames.as_deref());
    }
    Ok(())
}

/// What a unit tells of itself. What it does not have is left out.
#[derive(Debug)]
struct Facts {
    standard: Standard,
    /// Of a disk.
    geometry: Option<Geometry>,
    /// Of what is none, where it has one.
    capacity: Option<Capacity>,
    luns: Vec<u16>,
    serial: Option<String>,
    designators: Vec<Designator>,
    pages: Vec<u8>,
    limits: Option<vpd::BlockLimits>,
    write_cache: Option<bool>,
    /// None: the unit has no command that tells them.
    commands: Option<Vec<String>>,
    keys: Option<Vec<u64>>,
    holder: Option<(u64, String)>,
}

impl Facts {
    fn gather(unit: &mut impl Execute) -> Result<Self, Error> {
        let standard = scsi::inquiry(unit)?;
        let (geometry, capacity) = size(unit, &standard)?;
        let pages = have(scsi::vpd(unit, vpd::SUPPORTED_PAGES))?.unwrap_or_default();
        let mut page = |code| match pages.contains(&code) {
            true => have(scsi::vpd(unit, code)),
            false => Ok(None),
        };
        let serial = page(vpd::UNIT_SERIAL_NUMBER)?;
        let designators = page(vpd::DEVICE_IDENTIFICATION)?;
        let limits = page(vpd::BLOCK_LIMITS)?;
        let caching = have(scsi::mode_sense(unit, mode::CACHING))?.and_then(|bytes| {
            let data = ModeData::parse(mode::Header::Six, &bytes)?;
            mode::Caching::parse(data.page(mode::CACHING)?)
        });
        let commands = have(scsi::supported_commands(unit))?;
        let reservations = have(scsi::reservations(unit))?;
        let (keys, holder) = match reservations {
            Some((keys, holder)) => (Some(keys), holder),
            None => (None, None),
        };
        Ok(Self {
            standard,
            geometry,
            capacity,
            luns: have(scsi::report_luns(unit))?.unwrap_or_default(),
            serial: serial.map(|bytes| printable(&bytes)),
            designators: designators.map(|bytes| vpd::designators(&bytes)).unwrap_or_default(),
            pages,
            limits: limits.and_then(|content| vpd::BlockLimits::parse(&content)),
            write_cache: caching.map(|caching| caching.write_cache),
            commands: commands.map(|commands| {
                commands.iter().map(|c| command_name(c.opcode, c.service_action)).collect()
            }),
            keys,
            holder: holder.map(|(key, kind)| (key, format!("{kind:?}"))),
        })
    }

    /// Blocks, and bytes in each.
    fn size(&self) -> Option<(u64, u32)> {
        let of_disk = self.geometry.map(|geometry| (geometry.blocks, geometry.block));
        let size =
            |capacity: &Capacity| (capacity.last_lba.saturating_add(1), capacity.block_length);
        of_disk.or_else(|| self.capacity.as_ref().map(size))
    }

    /// `frames`: how they come and go, of a disk over raw Ethernet.
    fn json(&self, frames: Option<&str>) -> Value {
        let Self { standard, .. } = self;
        let geometry = self.geometry.as_ref();
        let limits = self.limits.as_ref().map(|limits| {
            json!({
                "transfer_blocks_max": limits.transfer_max,
                "transfer_blocks_optimal": limits.transfer_optimal,
                "compare_and_write_blocks_max": limits.compare_and_write_max,
                "unmap_blocks_max": limits.unmap_blocks_max,
                "write_same_blocks_max": limits.write_same_max,
            })
        });
        let designators: Vec<String> = self.designators.iter().map(designator).collect();
        let holder =
            self.holder.as_ref().map(|(key, kind)| json!({ "key": hex_key(*key), "type": kind }));
        // Texts, for programs take numbers of JSON as floating point.
        let keys =
            self.keys.as_ref().map(|keys| keys.iter().copied().map(hex_key).collect::<Vec<_>>());
        json!({
            "vendor": printable(&standard.vendor),
            "product": printable(&standard.product),
            "revision": printable(&standard.revision),
            "serial": self.serial,
            "device_type": standard.peripheral & TYPE_MASK,
            "bytes": self.size().map(|(blocks, block)| blocks.saturating_mul(block.into())),
            "block_bytes": self.size().map(|(_, block)| block),
            "blocks": self.size().map(|(blocks, _)| blocks),
            "physical_block_bytes": geometry.map(|geometry| geometry.physical),
            "read_only": geometry.map(|geometry| geometry.read_only),
            "protection": geometry.and_then(|of| of.protection).map(ProtectionType::number),
            "unmap": geometry.map(|geometry| geometry.unmap_max > 0),
            "unmapped_reads_zero": geometry.map(|geometry| geometry.unmap_zeros),
            "write_cache": self.write_cache,
            "limits": limits,
            "designators": designators,
            "vpd_pages": self.pages,
            "commands": self.commands,
            "luns": self.luns,
            "frames": frames,
            "registered_keys": keys,
            "reservation": holder,
        })
    }

    fn print(&self, frames: Option<&str>) {
        let Self { standard, .. } = self;
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "not told".to_owned());
        let mut rows = vec![
            vec![
                "product".into(),
                format!("{} {}", printable(&standard.vendor), printable(&standard.product)),
            ],
            vec!["revision".into(), printable(&standard.revision)],
            vec!["serial".into(), or_unknown(self.serial.clone())],
        ];
        rows.push(vec!["device type".into(), device_type(standard.peripheral)]);
        if let Some((blocks, block)) = self.size() {
            let bytes = blocks.saturating_mul(block.into());
            let size = format!("{} ({bytes} bytes)", units::bytes(bytes));
            rows.push(vec!["size".into(), size]);
            let physical = self.geometry.map(|geometry| geometry.physical);
            let physical = physical.map(|bytes| format!(", {bytes} physical")).unwrap_or_default();
            rows.push(vec!["blocks".into(), format!("{blocks} of {block} bytes{physical}")]);
        }
        if let Some(geometry) = &self.geometry {
            let protection = geometry.protection.map(|of| format!("type {}", of.number()));
            rows.push(vec!["read only".into(), yes(geometry.read_only)]);
            rows.push(vec!["protection".into(), protection.unwrap_or_else(|| "none".into())]);
            rows.push(vec!["write cache".into(), or_unknown(self.write_cache.map(yes))]);
            let unmap = match (geometry.unmap_max > 0, geometry.unmap_zeros) {
                (true, true) => "yes; unmapped blocks read as zero".into(),
                (unmap, _) => yes(unmap),
            };
            rows.push(vec!["unmap".into(), unmap]);
        }
        if let Some(limits) = &self.limits {
            let blocks = |count: u32| match count {
                0 => "no limit told".to_owned(),
                count => format!("{count} blocks"),
            };
            rows.push(vec!["longest transfer".into(), blocks(limits.transfer_max)]);
            rows.push(vec!["best transfer".into(), blocks(limits.transfer_optimal)]);
        }
        for name in &self.designators {
            rows.push(vec!["designator".into(), designator(name)]);
        }
        let list = |items: &[String]| items.join(", ");
        let pages: Vec<String> = self.pages.iter().map(|page| format!("{page:02X}h")).collect();
        rows.push(vec!["VPD pages".into(), list(&pages)]);
        let luns: Vec<String> = self.luns.iter().map(u16::to_string).collect();
        rows.push(vec!["LUNs here".into(), list(&luns)]);
        rows.push(vec!["reservation".into(), self.reservation()]);
        rows.extend(frames.map(|frames| vec!["frames".into(), frames.to_owned()]));
        output::table(&rows);
        let commands = self.commands.as_ref().map_or_else(
            || "not told: the target has no REPORT SUPPORTED OPERATION CODES".to_owned(),
            |commands| list(commands),
        );
        output::line(format!("commands: {commands}"));
    }

    fn reservation(&self) -> String {
        let keys = match &self.keys {
            None => return "not supported".into(),
            Some(keys) => keys.iter().copied().map(hex_key).collect::<Vec<_>>(),
        };
        match &self.holder {
            None if keys.is_empty() => "none".into(),
            None => format!("none; registered: {}", keys.join(", ")),
            Some((key, kind)) => {
                format!("{kind} by {}; registered: {}", hex_key(*key), keys.join(", "))
            }
        }
    }
}

/// What tells the size of a unit: a disk has the one, what is none may have the other.
fn size(
    unit: &mut impl Execute,
    standard: &Standard,
) -> Result<(Option<Geometry>, Option<Capacity>), Error> {
    match scsi::geometry(unit) {
        // Something else than a disk.
        Err(error) if matches!(error.kind(), Kind::NotADisk(_)) && is_there(standard) => {
            Ok((None, have(scsi::capacity(unit))?))
        }
        geometry => Ok((Some(geometry?), None)),
    }
}

/// A reservation key (64 bits).
fn hex_key(key: u64) -> String {
    format!("{key:#018x}")
}

/// PERIPHERAL DEVICE TYPE (SPC-4 §6.6.2).
const TYPE_MASK: u8 = 0x1f;

/// Whether there is a unit, of whatever type.
const fn is_there(standard: &Standard) -> bool {
    standard.peripheral >> 5 == 0
}

/// A device type for people.
fn device_type(peripheral: u8) -> String {
    let code = peripheral & TYPE_MASK;
    let name = match code {
        0x00 | 0x0e => "disk",
        0x01 => "tape",
        0x05 => "CD or DVD",
        0x08 => "medium changer",
        0x0c => "array controller",
        0x0d => "enclosure",
        _ => return format!("{code:02X}h"),
    };
    format!("{name} ({code:02X}h)")
}

/// Nothing, where the unit does not have it, or tells it to its holder alone.
fn have<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.sense().is_some() || scsi::is_conflict(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Text of a unit without blanks around it and without what a terminal might obey.
fn printable(bytes: &[u8]) -> String {
    output::on_one_line(String::from_utf8_lossy(bytes).trim_matches([' ', '\0']))
}

fn designator(designator: &Designator) -> String {
    match designator {
        Designator::T10Vendor(text) => format!("t10.{}", printable(text)),
        Designator::Naa(value) => format!("naa.{}", hex(value)),
        Designator::Eui(value) => format!("eui.{}", hex(value)),
        Designator::ScsiName { name, .. } => printable(name),
        Designator::RelativeTargetPort(port) => format!("target port {port}"),
        Designator::TargetPortGroup(group) => format!("target port group {group}"),
        Designator::Content(number) => format!("content {number:016x}"),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn command_name(opcode: Opcode, action: Option<u16>) -> String {
    let name = match opcode.name() {
        Some(name) => name.to_owned(),
        None => format!("{:02X}h", opcode.0),
    };
    match action {
        Some(action) => format!("{name}/{action:02X}h"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_units_is_tame() {
        assert_eq!(printable(b"DISK \x1b[2J  "), "DISK \\u{1b}[2J");
        assert_eq!(printable("Bob's\u{3164}\u{fe0f}".as_bytes()), "Bob's\\u{3164}\\u{fe0f}");
        assert_eq!(command_name(Opcode::READ_16, None), "READ(16)");
        assert_eq!(command_name(Opcode(0xc1), Some(3)), "C1h/03h");
    }
}
