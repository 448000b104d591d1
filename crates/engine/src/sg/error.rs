// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a device cannot be served.

use std::io;
use std::path::PathBuf;

use crate::files::Holder;

/// Why a device cannot carry out commands of hosts; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SgError {
    /// No such node.
    #[error("{}: no such device; try: lsscsi -g, or ls /dev/sg* /dev/bsg; modprobe sg if there \
             is none of the former", .path.display())]
    Missing {
        /// The node.
        path: PathBuf,
    },
    /// A block device, which has a node of this kind.
    #[error(
        "{} is a block device: try: scsi:{} to pass commands to it, or file:{} to serve its blocks",
        .path.display(), .node.display(), .path.display()
    )]
    BlockDevice {
        /// The node.
        path: PathBuf,
        /// Its node that takes commands.
        node: PathBuf,
    },
    /// Not a SCSI device.
    #[error(
        "{} is no SCSI device, or no node of one that takes commands; try: lsscsi -g, which shows \
         them (/dev/sgN), or ls /dev/bsg",
        .path.display()
    )]
    NotScsi {
        /// The node.
        path: PathBuf,
    },
    /// The user may not.
    #[error(
        "no permission to send commands to {}; try: run as root, or let this user read and write \
         the device (a udev rule, or chown) and give the program CAP_SYS_RAWIO",
        .path.display()
    )]
    Permission {
        /// The node.
        path: PathBuf,
    },
    /// The system, or another program, has its blocks.
    #[error(
        "{} is in use as {}: it is mounted, a part of something (lsblk {}), or served; try: umount \
         it, or stop what uses it",
        .path.display(), .disk.display(), .disk.display()
    )]
    Busy {
        /// The node.
        path: PathBuf,
        /// The block device that it is, too.
        disk: PathBuf,
    },
    /// Somebody who takes nobody beside them, or serves it.
    #[error("{}: {holder}", .path.display())]
    InUse {
        /// The node.
        path: PathBuf,
        /// Who.
        holder: Holder,
    },
    /// It is open here by another name.
    #[error("{} is served already, as {}; try: once", .path.display(), .other.display())]
    Twice {
        /// The node.
        path: PathBuf,
        /// The other name.
        other: PathBuf,
    },
    /// It does not answer.
    #[error(
        "{} does not answer INQUIRY: {source}; try: sg_inq {}",
        .path.display(), .path.display()
    )]
    Silent {
        /// The node.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// Anything else that the system says.
    #[error("cannot use {}: {source}", .path.display())]
    Other {
        /// The node.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}
