# SPDX-License-Identifier: Apache-2.0 OR MIT
"""liblunwire by ctypes: its functions, structures and errors. The library is in this package.

ctypes lets other threads run during each call. Buffers are those of the caller (PEP 688): nothing
is copied here.
"""
from __future__ import annotations

import ctypes
import enum
import os
from typing import Any, NamedTuple

_library = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "liblunwire.so.0"))
_u32, _u64, _size, _pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p

FUA, KEEP, LENGTH_MAX = 1, 2, 32 << 20


class Code(enum.IntEnum):
    """What went wrong."""

    ARGUMENT = -1
    HANDLE = -2
    URL = -3
    OPTION = -4
    UNREACHABLE = -5
    LOGIN = -6
    AUTHENTICATION = -7
    NO_TARGET = -8
    NO_DISK = -9
    RANGE = -10
    UNALIGNED = -11
    READ_ONLY = -12
    MISCOMPARE = -13
    UNSUPPORTED = -14
    TOO_LONG = -15
    BUSY = -16
    RESERVED = -17
    MEDIUM = -18
    NO_SPACE = -19
    STATUS = -20
    SESSION = -21
    WRITES_LOST = -22
    CANNOT_FLUSH = -23
    CHANGED = -24
    PROTOCOL = -25
    FULL = -26
    CLOSED = -27
    SYSTEM = -28
    NONE = -29
    DEFECT = -30


class What(enum.IntEnum):
    """What a completion is about."""

    OPERATION = 0
    RESIZED = 1
    ATTENTION = 2
    LOST = 3
    BACK = 4
    ENDED = 5
    MAY_HAVE_LOST = 6
    PATH = 7


class Event(NamedTuple):
    """Something that has happened to a disk."""

    what: What
    #: Bytes that the disk has now, when it was resized; which path, when it is about one.
    size: int
    #: Why, when a session or a path was lost, when one ended, or writes may be lost.
    error: Error | None


class Handle(ctypes.Structure):
    _fields_ = [("id", _u64)]


class Record(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("system", ctypes.c_int32), ("has_sense", ctypes.c_uint8),
                ("status", ctypes.c_uint8), ("sense_key", ctypes.c_uint8), ("asc", ctypes.c_uint8),
                ("ascq", ctypes.c_uint8), ("reserved", ctypes.c_uint8 * 3),
                ("text", ctypes.c_char * 1008)]


class Completion(ctypes.Structure):
    _fields_ = [("tag", _u64), ("what", ctypes.c_int32), ("code", ctypes.c_int32), ("bytes", _u64)]


class InfoRecord(ctypes.Structure):
    _fields_ = [("size", _u64), ("block", _u32), ("physical_block", _u32), ("flags", _u32),
                ("transfer_max", _u32), ("compare_max", _u32), ("lun", _u32),
                ("discard_granularity", _u64), ("discard_alignment", _u64),
                ("name", ctypes.c_char * 128), ("target", ctypes.c_char * 224)]


class Error(OSError):
    """Something failed. `errno` is the number that says it best."""

    #: What.
    code: Code
    #: SAM-5 status of the command, if the unit gave one.
    status: int | None
    #: Sense key, ASC and ASCQ, if the unit gave them.
    sense: tuple[int, int, int] | None

    def __init__(self, record: Record) -> None:
        super().__init__(record.system, record.text.decode(errors="replace"))
        self.code = Code(record.code)
        self.status = record.status or None
        self.sense = (record.sense_key, record.asc, record.ascq) if record.has_sense else None

    def __reduce__(self) -> Any:
        return (_again, (self.errno, self.strerror, self.code, self.status, self.sense))


def _again(errno: int, text: str, code: int, status: int | None,
           sense: tuple[int, int, int] | None) -> Error:
    record = Record(code=code, system=errno, status=status or 0, text=text.encode())
    error = Error(record)
    error.sense = sense
    return error


def _function(name: str, *arguments: Any) -> Any:
    function = getattr(_library, f"lunwire_{name}")
    function.argtypes, function.restype = arguments, ctypes.c_int
    return function


_library.lunwire_version.restype = ctypes.c_char_p
_library.lunwire_option_name.restype = ctypes.c_char_p
_library.lunwire_option_name.argtypes = [_size]
last_error = _function("last_error", ctypes.POINTER(Record))
options_new = _function("options_new", ctypes.POINTER(Handle))
options_set = _function("options_set", Handle, ctypes.c_char_p, ctypes.c_char_p)
options_free = _function("options_free", Handle)
connect = _function("connect", ctypes.c_char_p, Handle, ctypes.POINTER(Handle))
close = _function("close", Handle)
info = _function("info", Handle, ctypes.POINTER(InfoRecord), _size)
learn = _function("learn", Handle)
read = _function("read", Handle, _pointer, _size, _u64)
write = _function("write", Handle, _pointer, _size, _u64, _u32)
flush = _function("flush", Handle)
discard = _function("discard", Handle, _u64, _u64, _u32)
zero = _function("zero", Handle, _u64, _u64, _u32)
compare_and_write = _function("compare_and_write", Handle, _pointer, _pointer, _size, _u64)
queue_new = _function("queue_new", _u32, ctypes.POINTER(Handle))
queue_free = _function("queue_free", Handle)
queue_fd = _function("queue_fd", Handle)
watch = _function("watch", Handle, Handle, _u64)
submit_read = _function("submit_read", Handle, Handle, _u64, _pointer, _size, _u64)
submit_write = _function("submit_write", Handle, Handle, _u64, _pointer, _size, _u64, _u32)
submit_flush = _function("submit_flush", Handle, Handle, _u64)
submit_discard = _function("submit_discard", Handle, Handle, _u64, _u64, _u64, _u32)
submit_zero = _function("submit_zero", Handle, Handle, _u64, _u64, _u64, _u32)
submit_compare_and_write = _function("submit_compare_and_write", Handle, Handle, _u64, _pointer,
                                     _pointer, _size, _u64)
reap = _function("reap", Handle, ctypes.POINTER(Completion), _size)
reaped_error = _function("reaped_error", Handle, _size, ctypes.POINTER(Record))
forget = _function("forget", Handle, _u64)


def failure() -> Error:
    """Why the last call of this thread failed."""
    record = Record()
    last_error(ctypes.byref(record))
    return Error(record)


def check(result: int) -> int:
    if result < 0:
        raise failure()
    return result


def version() -> str:
    """Of the library."""
    text: bytes = _library.lunwire_version()
    return text.decode()


def option_names() -> list[str]:
    """What `connect` takes as options."""
    names: list[str] = []
    while (name := _library.lunwire_option_name(len(names))) is not None:
        names.append(name.decode())
    return names


class _Buffer(ctypes.Structure):
    """Py_buffer, which is a part of the stable interface since Python 3.11."""

    _fields_ = [("buf", _pointer), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", _pointer), ("strides", _pointer),
                ("suboffsets", _pointer), ("internal", _pointer)]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes, _release.restype = [ctypes.POINTER(_Buffer)], None
_SIMPLE, _WRITABLE = 0, 1


class View:
    """The memory of an object, which stays where it is until `release`."""

    def __init__(self, of: Any, writable: bool = False) -> None:
        self._view: _Buffer | None = None
        view = _Buffer()
        # Raises what the object raises: TypeError, BufferError.
        _get(of, ctypes.byref(view), _WRITABLE if writable else _SIMPLE)
        self._view = view
        self.address: int | None = view.buf
        self.length: int = view.len

    def release(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            _release(ctypes.byref(view))

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()
