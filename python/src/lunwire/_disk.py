# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Disks whose calls wait, and disks as files."""
from __future__ import annotations

import ctypes
import io
import operator
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from . import _library as library
from ._library import Handle, View, check

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


@dataclass(frozen=True)
class Info:
    """What a disk is like."""

    #: Bytes.
    size: int
    #: Bytes of a block: ranges are made of whole ones.
    block: int
    #: Bytes below which the disk's own alignment is lost.
    physical_block: int
    #: Nothing can be written.
    read_only: bool
    #: A volatile write cache (WCE): flush what must stay.
    write_cache: bool
    #: A write can be brought to stable storage by one command.
    fua: bool
    #: `discard` does something.
    discard: bool
    #: What was discarded reads as zeroes.
    discard_zeroes: bool
    #: Zeroes are written without sending them.
    zero: bool
    #: Bytes of one command.
    transfer_max: int
    #: Bytes of a compare and write; 0: there is none.
    compare_max: int
    #: Bytes of which multiples are given back best; 0: unknown.
    discard_granularity: int
    #: Where such a multiple begins.
    discard_alignment: int
    #: Unique in the world (naa., eui.), or what its vendor or target calls it.
    name: str
    #: iSCSI name.
    target: str
    #: Logical unit number.
    lun: int


def open_handle(url: str, options: dict[str, object]) -> Handle:
    """Logs in. Options are named as `option_names` does, with `_` for `-`; a list sets an option
    several times, None does not."""
    disk, setting = Handle(), Handle()
    check(library.options_new(ctypes.byref(setting)))
    try:
        for name, values in options.items():
            for value in values if isinstance(values, (list, tuple)) else [values]:
                if value is None:
                    continue
                if isinstance(value, bool):
                    value = "yes" if value else "no"
                name = name.replace("_", "-")
                text = value if isinstance(value, bytes) else str(value).encode()
                check(library.options_set(setting, _text(name.encode()), _text(text)))
        check(library.connect(_text(url.encode()), setting, ctypes.byref(disk)))
    finally:
        library.options_free(setting)
    return disk


def _text(text: bytes) -> bytes:
    """C would take what is before the null."""
    if b"\0" in text:
        raise ValueError("a URL or an option has no null character in it")
    return text


def info_of(handle: Handle) -> Info:
    found = library.InfoRecord()
    check(library.info(handle, ctypes.byref(found), ctypes.sizeof(found)))
    flags = [bool(found.flags & 1 << bit) for bit in range(6)]
    read_only, write_cache, fua, discard, discard_zeroes, zero = flags
    return Info(found.size, found.block, found.physical_block, read_only, write_cache, fua, discard,
                discard_zeroes, zero, found.transfer_max, found.compare_max,
                found.discard_granularity, found.discard_alignment,
                found.name.decode(errors="replace"), found.target.decode(errors="replace"),
                found.lun)


def room_for(handle: Handle, offset: int, length: int) -> bytearray:
    """Memory for a read: none is asked for what the disk has not."""
    offset, length = _unsigned(offset), _unsigned(length)
    if offset + length > info_of(handle).size:
        # It says what is wrong, before it looks for the buffer.
        check(library.read(handle, None, length, offset))
    return bytearray(length)


def flags_of(fua: bool, keep: bool = False) -> int:
    return (library.FUA if fua else 0) | (library.KEEP if keep else 0)


class Disk:
    """A disk. Ranges are bytes and made of whole blocks. Any thread may use it; other threads run
    while a call waits."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @property
    def info(self) -> Info:
        """What is known of it now; `learn` asks for it."""
        return info_of(self._handle)

    @property
    def size(self) -> int:
        return self.info.size

    @property
    def block(self) -> int:
        return self.info.block

    @property
    def read_only(self) -> bool:
        return self.info.read_only

    @property
    def name(self) -> str:
        return self.info.name

    def learn(self) -> Info:
        """Asks for size and limits anew."""
        check(library.learn(self._handle))
        return self.info

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the disk."""
        data = room_for(self._handle, offset, length)
        self.readinto(offset, data)
        return bytes(data)

    def readinto(self, offset: int, buffer: WriteableBuffer) -> int:
        """Fills the buffer; gives its length."""
        with View(buffer, writable=True) as view:
            check(library.read(self._handle, view.address, view.length, _unsigned(offset)))
            return view.length

    def write(self, offset: int, data: ReadableBuffer, *, fua: bool = False) -> int:
        """Writes all; gives how much that is. `fua`: it is on stable storage then."""
        with View(data) as view:
            check(library.write(self._handle, view.address, view.length, _unsigned(offset),
                                flags_of(fua)))
            return view.length

    def flush(self) -> None:
        """Brings what was written to stable storage."""
        check(library.flush(self._handle))

    def discard(self, offset: int, length: int, *, fua: bool = False) -> None:
        """The content is of no interest any more."""
        check(library.discard(self._handle, _unsigned(offset), _unsigned(length), flags_of(fua)))

    def zero(self, offset: int, length: int, *, fua: bool = False, keep: bool = False) -> None:
        """Writes zeroes. `keep`: the space stays the disk's."""
        flags = flags_of(fua, keep)
        check(library.zero(self._handle, _unsigned(offset), _unsigned(length), flags))

    def compare_and_write(self, offset: int, expected: ReadableBuffer,
                          new: ReadableBuffer) -> bool:
        """Writes `new` if the disk has `expected` there, as one. False: it has not."""
        with View(expected) as old, View(new) as view:
            _same_length(old, view)
            result: int = library.compare_and_write(self._handle, old.address, view.address,
                                                    view.length, _unsigned(offset))
        if result == library.Code.MISCOMPARE:
            return False
        check(result)
        return True

    def open(self, mode: str = "r+b") -> DiskFile:
        """A file-like object, "rb" or "r+b"; io.BufferedRandom(disk.open()) makes any access fast.
        Closing it flushes what was written, and leaves the disk open."""
        return DiskFile(self, mode)

    def close(self) -> None:
        """Logs out; flushes nothing. Closing it again does nothing."""
        result = library.close(self._handle)
        if result != library.Code.HANDLE:
            check(result)

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        # A copy would close it, or in another process mean another disk.
        raise TypeError("a disk cannot be copied or pickled: open another one")

    def __del__(self) -> None:
        # Modules may be gone when the interpreter ends.
        if library is not None and hasattr(self, "_handle"):
            library.close(self._handle)


def connect(url: str, **options: object) -> Disk:
    """Logs in, and waits until the disk is ready. Several URLs with blanks between them are paths
    to one disk, and `stripe:64K(URL;URL)` is several disks as one. Options: `option_names`, with
    `_` for `-`, for example chap_secret_file="path", header_digest="required",
    portal=["192.0.2.2"]."""
    return Disk(open_handle(url, options))


def _unsigned(number: SupportsIndex) -> int:
    number = operator.index(number)
    if not 0 <= number < 1 << 64:
        raise ValueError("an offset or length is not negative, and has 64 bits at most")
    return number


def _same_length(one: View, other: View) -> None:
    if one.length != other.length:
        raise ValueError(f"{one.length} bytes to compare, but {other.length} to write")


class DiskFile(io.RawIOBase):
    """A disk as a file of any bytes; its size stays as it is.

    What begins or ends within a block goes by way of that block: another writer of the same block
    may be overwritten meanwhile, unless it is one of this object's own threads."""

    def __init__(self, disk: Disk, mode: str = "r+b") -> None:
        super().__init__()
        if mode not in ("rb", "r+b", "rb+"):
            raise ValueError("the mode of a disk is 'rb' or 'r+b'")
        info = disk.info
        if mode != "rb" and info.read_only:
            raise PermissionError(30, "the disk is read-only")
        self.mode = mode
        self._disk, self._block, self._position = disk, info.block, 0
        self._dirty = False
        self._lock = threading.RLock()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return self.mode != "rb"

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        with self._lock:
            start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}
            if whence == os.SEEK_END:
                start[whence] = self._disk.size
            if whence not in start:
                raise ValueError(f"whence {whence} is not known")
            if start[whence] + offset < 0:
                raise ValueError("a position is not negative")
            self._position = start[whence] + offset
            return self._position

    def readinto(self, buffer: Any) -> int:
        self._check()
        with self._lock, memoryview(buffer).cast("B") as view:
            start, length = self._part(len(view))
            if length == 0:
                return 0
            if start == 0 and length >= self._block:
                length -= length % self._block
                with view[:length] as part:
                    self._disk.readinto(self._position, part)
            else:
                length = min(length, self._block - start)
                block = self._disk.read(self._position - start, self._block)
                view[:length] = block[start:start + length]
            self._position += length
            return length

    def write(self, data: Any) -> int:
        self._check()
        if not self.writable():
            raise io.UnsupportedOperation("the disk was opened for reading")
        with self._lock, memoryview(data).cast("B") as view:
            start, length = self._part(len(view))
            if length == 0:
                if len(view) > 0:
                    raise OSError(28, "the disk ends here")
                return 0
            # One that fails may have written some.
            self._dirty = True
            if start == 0 and length >= self._block:
                length -= length % self._block
                with view[:length] as part:
                    self._disk.write(self._position, part)
            else:
                length = min(length, self._block - start)
                block = bytearray(self._disk.read(self._position - start, self._block))
                block[start:start + length] = view[:length]
                self._disk.write(self._position - start, block)
            self._position += length
            return length

    def truncate(self, size: int | None = None) -> int:
        raise io.UnsupportedOperation("a disk has the size that it has")

    def flush(self) -> None:
        """Brings what was written to stable storage."""
        super().flush()
        with self._lock:
            if self._dirty:
                self._disk.flush()
                self._dirty = False

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _part(self, length: int) -> tuple[int, int]:
        """Where in its block the position is, and how many bytes there are from there on."""
        left = self._disk.size - self._position
        return self._position % self._block, max(0, min(length, left))
