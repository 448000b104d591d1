// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the ends of a copy are, beyond their names: kept with its state, so that it does not go on
//! with others.

use std::fs;
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use anyhow::Context;
use anyhow::Result;
use control::units;
use engine::files::Below;
use engine::files::BlockDevice;
use engine::limits::DEVICES_DEPTH_MAX;
use initiator::Queue;
use initiator::scsi;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

use crate::client;
use crate::client::place::Disk;
use crate::client::place::Place;
use crate::client::same;

/// Which end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing of it may have changed.
    Source,
    /// It has changed, as far as the copy has written to it.
    Destination,
}

/// What a place is, as it is kept.
pub(super) fn of(queue: &mut Queue, place: &Place) -> Result<Value> {
    match place {
        Place::Disk(disk) => of_disk(queue, disk),
        Place::File(local) => {
            let metadata = local.file().metadata();
            Ok(of_file(&metadata.with_context(|| format!("cannot look at {}", place.name()))?))
        }
        Place::Stream => Ok(Value::Null),
    }
}

pub(super) fn of_file(metadata: &Metadata) -> Value {
    if metadata.file_type().is_block_device() {
        return json!({ "device": metadata.rdev(), "behind": behind(metadata.rdev()) });
    }
    json!({
        "file": [metadata.dev(), metadata.ino()],
        "born": born(metadata),
        "size": metadata.len(),
        "modified": [metadata.mtime(), metadata.mtime_nsec()],
    })
}

/// When the file was made, where the file system knows it: a number that an inode had may be given
/// to the next one.
fn born(metadata: &Metadata) -> Option<String> {
    let since = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{}.{:09}", since.as_secs(), since.subsec_nanos()))
}

/// What a device shows, as far as the system says so: its number may be that of another one later.
fn behind(number: u64) -> Value {
    let device = BlockDevice::of(number);
    let mut shows = shown(device.as_ref());
    let below = device.map(lies_in).unwrap_or_default();
    if !below.is_empty() {
        shows["below"] = below.into();
    }
    shows
}

/// All devices that one lies in, down to the last, by their numbers; a partition tells of its disk.
fn lies_in(device: BlockDevice) -> Map<String, Value> {
    let mut found = Map::new();
    let mut level = vec![device];
    for _ in 0..DEVICES_DEPTH_MAX {
        let mut next = Vec::new();
        for below in level.iter().flat_map(BlockDevice::below) {
            let device = match below {
                Below::Disk { device, .. } => {
                    next.push(device);
                    continue;
                }
                Below::Parts(device) => Some(device),
                Below::File { path, .. } => fs::metadata(path)
                    .ok()
                    .filter(|metadata| metadata.file_type().is_block_device())
                    .and_then(|metadata| BlockDevice::of(metadata.rdev())),
            };
            let Some((number, device)) = device.and_then(|it| Some((it.text("dev")?, it))) else {
                continue;
            };
            if !found.contains_key(&number) {
                found.insert(number, shown(Some(&device)));
                next.push(device);
            }
        }
        level = next;
    }
    found
}

/// What a device says of itself, and the file that it shows.
fn shown(device: Option<&BlockDevice>) -> Value {
    let text = |name: &str| device?.text(name);
    // Of a partition it is its disk that has these.
    let disk = device.and_then(BlockDevice::disk).or_else(|| device.cloned());
    let of_disk = |name: &str| disk.as_ref()?.text(name);
    let file = of_disk("loop/backing_file").and_then(|file| fs::metadata(file).ok());
    let mut shows = json!({
        "sectors": text("size"),
        "start": text("start"),
        "name": disk.as_ref().and_then(BlockDevice::world_wide_name),
        "offset": of_disk("loop/offset"),
        "file": file.as_ref().map(|file| [file.dev(), file.ino()]),
        "born": file.as_ref().and_then(born),
    });
    // Volumes, encryption and RAID lie in devices that may hold many of them.
    if let Some(volume) = text("dm/uuid").or_else(|| text("md/uuid")) {
        shows["volume"] = volume.into();
    }
    shows
}

/// Names of the world, which decide alone, and what else it says of itself.
fn of_disk(queue: &mut Queue, disk: &Disk) -> Result<Value> {
    let names = same::designators(queue, disk)?;
    let world: Vec<String> = names.iter().filter_map(same::unit_name).collect();
    let text = |bytes: &[u8]| bytes.trim_ascii().escape_ascii().to_string();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut local: Vec<String> = names
        .iter()
        .filter_map(|name| match name {
            Designator::Naa(value) => Some(format!("naa.{}", hex(value))),
            Designator::T10Vendor(value) => Some(format!("t10.{}", text(value))),
            Designator::ScsiName { name, .. } => Some(text(name)),
            _ => None,
        })
        .collect();
    let content = names.iter().find_map(|name| match name {
        Designator::Content(number) => Some(format!("{number:016x}")),
        _ => None,
    });
    let explain = |error| client::advised(error, &disk.url);
    let unit = &mut queue.unit(disk.session, disk.lun);
    let pages = scsi::vpd(unit, vpd::SUPPORTED_PAGES).unwrap_or_default();
    if pages.contains(&vpd::UNIT_SERIAL_NUMBER) {
        local.push(format!(
            "serial number {}",
            text(&scsi::vpd(unit, vpd::UNIT_SERIAL_NUMBER).map_err(explain)?)
        ));
    }
    let standard = scsi::inquiry(unit).map_err(explain)?;
    local.push(format!("{} {}", text(&standard.vendor), text(&standard.product)));
    local.push(units::bytes(disk.geometry.bytes()));
    Ok(json!({ "disk": world, "besides": local, "content": content }))
}

/// Why `now` is not what was kept of this end of a copy, of which `done` bytes were copied. None:
/// it is.
pub(super) fn differs(was: &Value, now: &Value, end: End) -> Option<String> {
    if was["disk"].is_array() && now["disk"].is_array() && was["content"] != now["content"] {
        return Some("is another disk: it has begun anew since".to_owned());
    }
    if let (Some(was), Some(now)) = (was["disk"].as_array(), now["disk"].as_array())
        && (!was.is_empty() || !now.is_empty())
    {
        let first = |names: &[Value]| {
            names.first().and_then(Value::as_str).unwrap_or("one without a name").to_owned()
        };
        let is_same = was.iter().any(|name| now.contains(name));
        return (!is_same)
            .then(|| format!("is another disk: it was {}, and is {}", first(was), first(now)));
    }
    for (key, changed) in [
        ("disk", "is no disk of a target, or is one now"),
        ("besides", "is another disk, by what it says of itself"),
        ("device", "is another device"),
        ("behind", "shows another disk or file than before"),
        ("file", "is another file, which was made or put there since"),
        ("born", "is another file, which was made or put there since"),
    ] {
        if was[key] != now[key] {
            return Some(changed.to_owned());
        }
    }
    let (long, length) = (was["size"].as_u64(), now["size"].as_u64());
    match end {
        Source if was == now => None,
        Source => Some("was changed since".to_owned()),
        Destination if length < long => {
            let bytes = |size: Option<u64>| units::bytes(size.unwrap_or(0));
            Some(format!("was cut from {} to {}", bytes(long), bytes(length)))
        }
        // Only what was kept at the end of a run says when it was written to last.
        Destination if !was["modified"].is_null() && was != now => {
            Some("was changed since".to_owned())
        }
        Destination => None,
    }
}

use End::Destination;
use End::Source;

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(world: &[&str], local: &[&str]) -> Value {
        json!({ "disk": world, "besides": local })
    }

    fn file(inode: u64, size: u64, modified: Option<u64>) -> Value {
        json!({ "file": [1, inode], "size": size, "modified": modified })
    }

    #[test]
    fn disks_are_known_by_their_names() {
        let is = |was, now| differs(&was, &now, Source).is_none();
        assert!(is(disk(&["naa.6"], &["1M"]), disk(&["eui.1", "naa.6"], &["2M"])));
        assert!(!is(disk(&["naa.6"], &["1M"]), disk(&["naa.7"], &["1M"])));
        assert!(!is(disk(&["naa.6"], &["1M"]), disk(&[], &["1M"])));
        assert!(is(disk(&[], &["serial number 1"]), disk(&[], &["serial number 1"])));
        assert!(!is(disk(&[], &["serial number 1"]), disk(&[], &["serial number 2"])));
        let holds = |content| json!({ "disk": ["naa.6"], "besides": [], "content": content });
        assert!(is(holds(Some("7")), holds(Some("7"))));
        assert!(!is(holds(Some("7")), holds(Some("8"))));
        assert!(is(holds(None), disk(&["naa.6"], &[])), "a state of before");
        assert!(!is(disk(&[], &[]), file(1, 1, None)));
        assert!(!is(file(1, 1, None), json!({ "device": 5 })));
    }

    #[test]
    fn files_may_have_changed_as_far_as_the_copy_changed_them() {
        let is = |was, now, end| differs(&was, &now, end).is_none();
        assert!(is(file(1, 9, Some(1)), file(1, 9, Some(1)), Source));
        assert!(!is(file(1, 9, Some(1)), file(1, 9, Some(2)), Source));
        assert!(!is(file(1, 9, Some(1)), file(2, 9, Some(1)), Source));
        assert!(is(file(1, 9, None), file(1, 10, Some(2)), Destination), "written behind");
        assert!(!is(file(1, 9, None), file(1, 8, Some(2)), Destination));
        assert!(!is(file(1, 9, None), file(2, 9, Some(2)), Destination));
        assert!(is(file(1, 9, Some(1)), file(1, 9, Some(1)), Destination));
        assert!(!is(file(1, 9, Some(1)), file(1, 9, Some(2)), Destination));
    }

    #[test]
    fn a_file_in_the_place_of_another_is_another_whatever_its_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let made = || {
            fs::write(&path, [0; 512]).expect("room");
            let metadata = fs::metadata(&path).expect("it is there");
            let mut known = of_file(&metadata);
            known["modified"] = Value::Null;
            (known, metadata.created().is_ok())
        };
        let (first, has_birth) = made();
        assert_eq!(differs(&first, &made().0, Destination), None, "written to");
        fs::remove_file(&path).expect("it was there");
        let (second, _) = made();
        if has_birth || first["file"] != second["file"] {
            assert!(differs(&first, &second, Destination).is_some(), "{first} and {second}");
        }
    }

    #[test]
    fn a_device_is_what_it_shows() {
        let device =
            |inode| json!({ "device": 7, "behind": { "file": [1, inode], "offset": "0" } });
        assert_eq!(differs(&device(5), &device(5), Source), None);
        assert!(differs(&device(5), &device(6), Destination).is_some());
        assert!(behind(0)["file"].is_null(), "there is no such device");
        let over = |inode| {
            let lower = json!({ "file": [1, inode] });
            json!({ "device": 8, "behind": { "offset": "0", "below": { "7:0": lower } } })
        };
        assert_eq!(differs(&over(5), &over(5), Source), None);
        assert!(differs(&over(5), &over(6), Destination).is_some());
        let of_before = json!({ "device": 8, "behind": { "offset": "0" } });
        assert!(differs(&of_before, &over(5), Source).is_some(), "it does not say what lay there");
    }
}
