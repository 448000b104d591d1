// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who a device is and what it takes, by its own words: INQUIRY, its serial number and designators,
//! and the capacity of a disk.

use std::io;
use std::time::Duration;

use engine::sg::Data;
use engine::sg::Reply;
use store::device::Facts;
use wire::scsi::Sense;
use wire::scsi::SenseKey;
use wire::scsi::inquiry;
use wire::scsi::sam::CHECK_CONDITION;
use wire::scsi::sam::GOOD;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

use super::carrier::Carrier;
use super::carrier::judged;

/// What a device has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) facts: Facts,
    pub(crate) vendor: String,
    pub(crate) product: String,
    /// Without blanks around it.
    pub(crate) serial: Option<String>,
    /// A designator of the unit.
    pub(crate) naa: Option<Vec<u8>>,
    /// What names the unit and no other one, if anything does.
    pub(crate) name: Option<Vec<u8>>,
}

/// A question is answered within this time, or the device is taken for dead.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Unit attentions in a row: a device has one after each of power on, reset and another medium.
const ATTENTIONS_MAX: usize = 8;

/// Bytes of pages: as many as devices understand that know one byte of length.
const PAGE_MAX: u8 = 255;

/// Bytes of standard INQUIRY data that every device has.
const STANDARD_LEN: u8 = 36;

/// Asks `device`, whose host adapter moves `transfer_max` bytes at once.
///
/// # Errors
/// It does not answer INQUIRY.
pub(crate) fn probe(device: &impl Carrier, transfer_max: u32) -> io::Result<Known> {
    let standard = ask(device, &[0x12, 0, 0, 0, STANDARD_LEN, 0], STANDARD_LEN)?;
    let standard = standard.filter(|data| data.len() == usize::from(STANDARD_LEN));
    let standard = standard.ok_or_else(|| io::Error::other("it refuses the question"))?;
    let [first, second, ..] = *standard else { return Err(io::ErrorKind::InvalidData.into()) };
    if first >> 5 != 0 {
        return Err(io::Error::other("there is no device at this address of its target"));
    }
    hear_attentions(device);
    let kind = first & 0x1f;
    let text = |from: usize, to: usize| {
        let bytes = standard.get(from..to).unwrap_or_default();
        String::from_utf8_lossy(bytes).trim().to_owned()
    };
    let (vendor, product) = (text(8, 16), text(16, 32));
    let page = |code: u8| {
        let data = ask(device, &[0x12, 1, code, 0, PAGE_MAX, 0], PAGE_MAX)?;
        Ok::<_, io::Error>(data.and_then(|data| Some(vpd::content(&data, code)?.to_vec())))
    };
    let serial = page(vpd::UNIT_SERIAL_NUMBER)?;
    let serial = serial.map(|serial| String::from_utf8_lossy(&serial).trim().to_owned());
    let serial = serial.filter(|serial| is_serial(serial));
    let designators = page(vpd::DEVICE_IDENTIFICATION)?;
    let designators = vpd::designators(&designators.unwrap_or_default());
    let naa = designators.iter().find_map(|one| match one {
        Designator::Naa(naa) if is_naa(naa) => Some(naa.clone()),
        _ => None,
    });
    let other = designators.iter().find_map(|one| match one {
        Designator::Eui(name) => Some(name.clone()),
        _ => None,
    });
    let by_serial = || Some(format!("{vendor}\0{product}\0{}", serial.as_ref()?).into_bytes());
    let name = naa.clone().or(other).or_else(by_serial);
    let capacity = match kind {
        inquiry::TYPE_DISK => capacity(device)?,
        _ => None,
    };
    let facts = Facts { kind, removable: second & 0x80 != 0, transfer_max, capacity };
    Ok(Known { facts, vendor, product, serial, naa, name })
}

/// Lets a device say what it has to tell of resets and the like: whoever serves it tells its hosts.
pub(crate) fn hear_attentions(device: &impl Carrier) {
    for _ in 0..ATTENTIONS_MAX {
        match judged(device.carry_out(&[0; 6], Data::Nothing, TIME_MAX)) {
            Ok(reply) if is_attention(&reply) => {}
            _ => return,
        }
    }
}

/// The data of an answer; None if the device refuses.
fn ask(device: &impl Carrier, cdb: &[u8], room: u8) -> io::Result<Option<Vec<u8>>> {
    let mut data = vec![0; usize::from(room)];
    for _ in 0..ATTENTIONS_MAX {
        let reply = judged(device.carry_out(cdb, Data::In(&mut data), TIME_MAX));
        let reply = reply.map_err(io::Error::other)?;
        if is_attention(&reply) {
            continue;
        }
        if reply.status != GOOD {
            return Ok(None);
        }
        data.truncate(usize::try_from(reply.moved).unwrap_or(usize::MAX));
        return Ok(Some(data));
    }
    Ok(None)
}

fn is_attention(reply: &Reply) -> bool {
    reply.status == CHECK_CONDITION
        && Sense::parse(&reply.sense).is_some_and(|sense| sense.key == SenseKey::UnitAttention)
}

/// Block length and number of blocks, by READ CAPACITY(16) or (10).
fn capacity(device: &impl Carrier) -> io::Result<Option<(u32, u64)>> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    if let Some(data) = ask(device, &cdb, 32)?
        && let (Some(last), Some(block)) = (data.first_chunk::<8>(), word(&data, 8))
    {
        return Ok(usable(u64::from_be_bytes(*last), block));
    }
    let data = ask(device, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8)?.unwrap_or_default();
    let (last, block) = (word(&data, 0), word(&data, 4));
    Ok(last.zip(block).and_then(|(last, block)| usable(u64::from(last), block)))
}

fn usable(last: u64, block: u32) -> Option<(u32, u64)> {
    let blocks = last.checked_add(1)?;
    let bytes = blocks.checked_mul(u64::from(block))?;
    (bytes > 0).then_some((block, blocks))
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
}

/// As a `LogicalUnit` takes it.
fn is_serial(serial: &str) -> bool {
    (1..=64).contains(&serial.len()) && serial.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

fn is_naa(naa: &[u8]) -> bool {
    matches!((naa.len(), naa.first().map(|byte| byte >> 4)), (16, Some(6)) | (8, Some(2 | 3 | 5)))
}
