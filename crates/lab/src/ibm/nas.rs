// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other way to use a network for storage: a server of NFS on a disk in memory, on the target's
//! side, and a client of its on the initiator's.

use std::ffi::CString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::Load;
use crate::Error;
use crate::attached::needs_root;
use crate::nfs::{Client, Handle, Programs, Server};
use crate::workplace::Workplace;

/// Bytes of the file, which the disk must have twice.
const FILE: u64 = 32 << 20;

pub(super) struct Nas {
    client: Client,
    file: Handle,
    server: Server,
    disk: RamDisk,
    folder: Workplace,
}

/// A server, and where it is: what is made on the target's side.
pub(super) struct Served {
    server: Server,
    disk: RamDisk,
    folder: Workplace,
    address: Ipv4Addr,
}

impl Served {
    /// At an address of the calling thread's network, on its processor. The reason, where that
    /// cannot be.
    pub(super) fn start(address: Ipv4Addr) -> Result<Self, String> {
        let programs = Programs::find()?;
        let folder = Workplace::new().map_err(|error| error.to_string())?;
        let disk = RamDisk::mount(&folder.path().join("exported"), 2 * (FILE >> 20))?;
        let state = folder.path().join("server");
        let server = Server::start(&programs, &disk.0, &state, address);
        let server = server.map_err(Error::why)?;
        Ok(Self { server, disk, folder, address })
    }

    /// The calling thread is on the initiator's side.
    pub(super) fn connect(self) -> Result<Nas, String> {
        let Self { server, disk, folder, address } = self;
        let connected = server.connect(address, "lunwire lab");
        let (mut client, root) = connected.map_err(Error::why)?;
        let mut fill = || {
            let file = client.create(&root, "disk")?;
            let data = vec![0x5a; 64 << 10];
            let mut parts = (0..FILE).step_by(data.len());
            parts.try_for_each(|at| client.write(&file, at, &data))?;
            Ok::<_, std::io::Error>(file)
        };
        let file = fill().map_err(|error| error.to_string())?;
        Ok(Nas { client, file, server, disk, folder })
    }
}

impl Nas {
    pub(super) fn process(&self) -> u32 {
        self.server.process()
    }

    /// One request after the other for so long; gives how many were answered.
    pub(super) fn keep_busy(&mut self, load: Load, time: Duration) -> Result<u64, Error> {
        let mut data = vec![0xa5; load.bytes as usize];
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < time || count == 0 {
            let offset = count * u64::from(load.bytes) % FILE;
            let done = match load.write {
                true => self.client.write(&self.file, offset, &data),
                false => self.client.read(&self.file, offset, &mut data).map(drop),
            };
            done.map_err(unanswered)?;
            count += 1;
        }
        Ok(count)
    }

    /// Writes at these places, and has them on the server's disk.
    pub(super) fn burst(
        &mut self,
        mut offsets: impl Iterator<Item = u64>,
        data: &[u8],
    ) -> Result<(), Error> {
        let written = offsets.try_for_each(|at| self.client.write(&self.file, at, data));
        written.and_then(|()| self.client.commit(&self.file)).map_err(unanswered)
    }

    pub(super) fn end(self) -> Result<(), Error> {
        let Self { client, server, disk, folder, .. } = self;
        let over = client.end().map_err(unanswered);
        let ended = server.end();
        drop((disk, folder));
        over.and(ended)
    }
}

fn unanswered(error: std::io::Error) -> Error {
    Error::Rig(format!("ganesha.nfsd does not answer: {error}"))
}

/// A file system in memory, until it is dropped.
pub(super) struct RamDisk(PathBuf);

impl RamDisk {
    /// At a folder that is made, and so large at most.
    pub(super) fn mount(folder: &Path, mib: u64) -> Result<Self, String> {
        fs::create_dir(folder).map_err(|error| error.to_string())?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        let options = CString::new(format!("size={mib}m,mode=700")).unwrap_or_default();
        let mounted = mount("tmpfs", folder, "tmpfs", flags, &*options);
        mounted.map_err(|error| {
            format!("a file system in memory cannot be mounted: {}", needs_root(error))
        })?;
        Ok(Self(folder.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        // Whoever still has it lets it go when he ends.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
