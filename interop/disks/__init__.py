# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What interop/disk does to a disk of the guest: the cases, and the disk as they see it."""
import os
import re

import guest
from guest import Failed

DISK_BYTES = 128 << 20
# Exit statuses of sg3-utils.
NOT_READY, ILLEGAL_REQUEST, INVALID_OPCODE, MISCOMPARE, OUT_OF_RANGE = 2, 5, 9, 14, 22
CASES = []


def case(on="each disk", noisy=False):
    """A case: on `each disk` of the first server, `everywhere` (on these and on the first disk of
    the other servers), on the first disk of `each server`, or `once` on that of the first server.
    `noisy`: commands fail that the kernel has sent, and it is right to tell of."""
    def register(function):
        function.on, function.noisy = on, noisy
        CASES.append(function)
        return function
    return register


class Disk:
    """A disk of the guest and what stands behind it."""

    def __init__(self, linux, session, target, lun, block, path):
        self.linux, self.session, self.target, self.lun = linux, session, target, lun
        self.block, self.blocks, self.path = block, DISK_BYTES // block, path

    @property
    def device(self):
        return self.session.devices[self.lun]

    def run(self, command, seconds=guest.STEP_SECONDS):
        """Output of a command in the guest, where $D is the disk and $B its block length."""
        return self.linux.run(f"set -e; D={self.device} B={self.block}; {command}", seconds)

    def status(self, command):
        return self.linux.status(f"D={self.device} B={self.block}; {command}")

    def must_say(self, command, *patterns):
        """The output, in which each pattern must be found."""
        said = self.run(command)
        for pattern in patterns:
            if not re.search(pattern, said, re.M):
                raise Failed(f"{command}: no /{pattern}/ in\n{said}")
        return said

    def must_end(self, status, command):
        ended, said = self.status(command)
        if ended != status:
            raise Failed(f"{command}: status {ended} instead of {status}\n{said}")
        return said

    def allocated(self):
        """Bytes that the file behind the disk takes; None for a disk in memory."""
        if self.path is None:
            return None
        return os.stat(self.path).st_blocks * 512

    def write(self, lba, blocks):
        """Random blocks, which stay in /tmp/data."""
        self.run(f"head -c {blocks * self.block} /dev/urandom > /tmp/data; dd if=/tmp/data of=$D "
                 f"bs=64k seek={lba * self.block} oflag=direct,seek_bytes status=none")

    def reading(self, lba, blocks):
        """The command that prints so many blocks."""
        return (f"dd if=$D bs=1M skip={lba * self.block} count={blocks * self.block} "
                "iflag=direct,skip_bytes,count_bytes status=none")

    def sum_of(self, lba, blocks):
        return self.run(f"{self.reading(lba, blocks)} | sha256sum").split()[0]

    def must_be_zero(self, lba, blocks):
        self.run(f"{self.reading(lba, blocks)} | cmp -n {blocks * self.block} - /dev/zero")


def expect(what, is_, wanted):
    if is_ != wanted:
        raise Failed(f"{what}: {is_!r}, wanted {wanted!r}")
