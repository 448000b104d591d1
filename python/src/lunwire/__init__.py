# SPDX-License-Identifier: Apache-2.0 OR MIT
"""iSCSI and iSER disks, without kernel modules or root.

    with lunwire.connect("iscsi://192.0.2.1/iqn.2026-01.com.example:disks/0") as disk:
        disk.write(0, b"x" * disk.block)
        disk.flush()
        print(disk.read(0, disk.block))

`lunwire.aio` has the same for asyncio, `Disk.open` a file-like object.
"""
from . import aio
from ._disk import Disk, DiskFile, Info, connect
from ._library import Code, Error, Event, What, option_names, version

__all__ = ["Code", "Disk", "DiskFile", "Error", "Event", "Info", "What", "aio",
           "connect", "option_names", "version"]
