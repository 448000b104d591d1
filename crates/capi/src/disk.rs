// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session with one disk.

use initiator::Address;
use initiator::Disk as Remote;
use initiator::Error;
use initiator::Geometry;
use initiator::Initiator;
use initiator::Operation;
use initiator::Paths;
use initiator::Session;
use initiator::Slice;
use initiator::Stripe;
use initiator::Url;
use initiator::scsi;
use wire::scsi::vpd;
use wire::scsi::vpd::Designator;

use crate::code::Code;
use crate::code::Failure;
use crate::limits;
use crate::options::Draft;

/// A disk, with a session and a thread of its own: programs that want to go as fast as they can
/// open it as often as they have threads.
#[derive(Debug)]
pub(crate) struct Disk {
    remote: Remote,
    session: Session,
    name: String,
    target: String,
    lun: u16,
}

impl Disk {
    /// Logs in, and waits until the disk is ready.
    pub(crate) fn open(url: &str, draft: &Draft) -> Result<Self, Failure> {
        // The text of what is wrong has no secret in it.
        let address =
            Address::parse(url).map_err(|error| Failure::new(Code::Url, error.to_string()))?;
        let urls: Vec<Url> = address.urls().cloned().collect();
        let session = log_in(&address, &urls, draft)?;
        let lun = urls.first().and_then(|url| url.lun).unwrap_or_default();
        let remote = Remote::open(&session, lun)?;
        let names = scsi::designators(&mut session.unit(lun))?;
        let name = name_of(&names);
        let target = urls.into_iter().next().and_then(|url| url.target).unwrap_or_default();
        Ok(Self { remote, session, name, target, lun })
    }

    /// Logs out: operations that have not ended fail.
    pub(crate) fn close(&self) {
        self.session.logout();
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.remote.geometry()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn lun(&self) -> u16 {
        self.lun
    }

    /// A copy for an operation, in a page-aligned buffer as long as there is one.
    pub(crate) fn copy_of(&self, bytes: &[u8]) -> Result<Slice, Failure> {
        if let Some(mut buf) = self.session.pool().take(bytes.len()) {
            buf.copy_from_slice(bytes);
            return Ok(buf.freeze());
        }
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).map_err(|_| {
            Failure::new(Code::System, "this machine has no memory for a copy of the data")
        })?;
        copy.extend_from_slice(bytes);
        Ok(Slice::from(copy))
    }

    /// Carries out one operation and waits for it.
    pub(crate) fn carry_out(&self, operation: Operation) -> Result<initiator::Chunks, Error> {
        self.remote.start(operation)?.wait()
    }

    /// As one command of its range would: before the first piece of it begins.
    pub(crate) fn check(&self, offset: u64, length: usize) -> Result<(), Error> {
        self.geometry().blocks_of(offset, length as u64).map(drop)
    }

    /// Cuts a range to pieces of whole blocks: where each begins in it, and how long it is.
    pub(crate) fn pieces(&self, length: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let block = self.geometry().block.max(1) as usize;
        let piece = (limits::PIECE / block).max(1) * block;
        (0..length).step_by(piece).map(move |at| (at, piece.min(length - at)))
    }
}

/// `urls`: all that the address has.
fn log_in(address: &Address, urls: &[Url], draft: &Draft) -> Result<Session, Failure> {
    if let [url] = urls {
        let (config, options) = draft.applied_to(url)?;
        return Ok(Initiator::start(&config)?.connect(options)?);
    }
    let (config, all) = draft.applied_to_paths(urls)?;
    let initiator = Initiator::start(&config)?;
    let Address::Stripe { chunk, members } = address else {
        return Ok(initiator.connect_paths(all)?);
    };
    let Paths { paths, policy } = all;
    let mut paths = paths.into_iter();
    let members = members
        .iter()
        .map(|urls| Paths { paths: paths.by_ref().take(urls.len()).collect(), policy });
    Ok(initiator.connect_stripe(Stripe { chunk: *chunk, members: members.collect() })?)
}

/// The best name that a disk has: one that no other one in the world has, or what its vendor or its
/// target calls it.
fn name_of(designators: &[Designator]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let ranked = designators.iter().filter_map(|designator| match designator {
        Designator::Naa(value) => {
            let rank = if vpd::is_world_wide(value) { 0 } else { 2 };
            Some((rank, format!("naa.{}", hex(value))))
        }
        Designator::Eui(value) => Some((0, format!("eui.{}", hex(value)))),
        Designator::T10Vendor(value) => {
            let text = String::from_utf8_lossy(value);
            Some((1, format!("t10.{}", text.trim_end().escape_debug())))
        }
        _ => None,
    });
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, name)| name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_goes_by_its_best_name() {
        let local = Designator::Naa(vec![0x3b, 0xc4, 0, 0, 0, 0, 0, 1]);
        let vendor = Designator::T10Vendor(b"LUNWIRE DISK  ".to_vec());
        let world = Designator::Naa(vec![0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(name_of(&[]), "");
        assert_eq!(name_of(std::slice::from_ref(&local)), "naa.3bc4000000000001");
        let of_tgtd = Designator::Naa(vec![0x60, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(name_of(&[of_tgtd, vendor.clone()]), "t10.LUNWIRE DISK");
        assert_eq!(name_of(&[local.clone(), vendor.clone()]), "t10.LUNWIRE DISK");
        assert_eq!(name_of(&[local, vendor, world]), "naa.600102030405060708090a0b0c0d0e0f");
    }
}
