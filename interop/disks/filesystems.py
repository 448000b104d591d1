# SPDX-License-Identifier: Apache-2.0 OR MIT
"""File systems, with discard; what is discarded and zeroed without one."""
import re

from disks import case
from disks import expect
from guest import Failed


def file_system(disk, make, check):
    disk.run(f"""
        wipefs -qa $D; {make}
        mkdir -p /mnt/disk; mount $D /mnt/disk
        mkdir /mnt/disk/bin; cp -a /usr/bin/[a-e]* /mnt/disk/bin/
        . ./lib.sh; verified_io /mnt/disk/file 4M
        (cd /mnt/disk; find . -type f -print0 | sort -z | xargs -0 sha256sum) > /tmp/sums
        umount /mnt/disk; {check}
        mount $D /mnt/disk; (cd /mnt/disk; sha256sum --quiet -c /tmp/sums)""")
    before = disk.allocated()
    said = disk.run("rm -r /mnt/disk/bin; sync; fstrim -v /mnt/disk; "
                    "sha256sum /mnt/disk/file; umount /mnt/disk")
    trimmed = int(re.search(r"\((\d+) bytes\) trimmed", said)[1])
    if trimmed < 16 << 20:
        raise Failed(f"fstrim of {trimmed} bytes")
    if before is not None and not disk.allocated() < before - (3 << 20):
        raise Failed(f"{before} bytes before, {disk.allocated()} after fstrim")
    disk.run(f"""
        {check}; mount -o discard $D /mnt/disk
        head -c 4M /dev/urandom > /mnt/disk/short; sync; rm /mnt/disk/short; sync
        umount /mnt/disk; {check}""")


@case()
def ext4(disk):
    file_system(disk, "mkfs.ext4 -q -F $D", "fsck.ext4 -f -n $D > /dev/null")


@case()
def xfs(disk):
    file_system(disk, "mkfs.xfs -q -f --unsupported $D", "xfs_repair -n $D > /dev/null 2>&1")


@case(on="everywhere")
def discarded_and_zeroed(disk):
    disk.write(0, (8 << 20) // disk.block)
    before = disk.allocated()
    disk.run("blkdiscard -f -o 1M -l 4M $D")
    disk.must_be_zero((1 << 20) // disk.block, (4 << 20) // disk.block)
    if before is not None and not disk.allocated() < before - (3 << 20):
        raise Failed(f"{before} bytes before, {disk.allocated()} after blkdiscard of 4 MiB")
    disk.write(0, (2 << 20) // disk.block)
    disk.run("blkdiscard -f -z -o 0 -l 1M $D")
    disk.must_be_zero(0, (1 << 20) // disk.block)
    disk.run("blkdiscard -f $D")
    if before is not None:
        expect("bytes after blkdiscard of all", disk.allocated() < 1 << 20, True)
