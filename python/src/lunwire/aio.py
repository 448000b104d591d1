# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Disks for asyncio. No threads but for logging in and out: the loop waits for one descriptor.

    async with await lunwire.aio.connect(url) as disk:
        first, second = await asyncio.gather(disk.read(0, 4096), disk.read(8192, 4096))

What is cancelled is not heard of any more: a write among it may be carried out, now or later.
"""
from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from . import _library as library
from ._disk import Info, _same_length, _unsigned, flags_of, info_of, open_handle, room_for
from ._library import Code, Error, Event, Handle, View, What, check

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

#: Completions that are reaped at once.
_BATCH = 64


class Disk:
    """A disk, of the loop that made it. Methods are those of `lunwire.Disk`, to be awaited."""

    def __init__(self, handle: Handle, depth: int) -> None:
        self._handle, self._queue = handle, Handle()
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._room: list[asyncio.Future[None]] = []
        self._listener: Callable[[Event], object] | None = None
        self._tag = 0
        self._closed = False
        self._done = (library.Completion * _BATCH)()
        check(library.queue_new(depth, ctypes.byref(self._queue)))
        # One of our own: a loop may not be told of it any more after the queue is freed.
        self._descriptor = os.dup(check(library.queue_fd(self._queue)))
        self._loop.add_reader(self._descriptor, self._reap)

    @property
    def info(self) -> Info:
        """What is known of it now."""
        return info_of(self._handle)

    @property
    def size(self) -> int:
        return self.info.size

    @property
    def block(self) -> int:
        return self.info.block

    async def learn(self) -> Info:
        """Asks for size and limits anew."""
        await asyncio.to_thread(lambda: check(library.learn(self._handle)))
        return self.info

    async def read(self, offset: int, length: int) -> bytes:
        data = room_for(self._handle, offset, length)
        await self.readinto(offset, data)
        return bytes(data)

    async def readinto(self, offset: int, buffer: WriteableBuffer) -> int:
        """Fills the buffer, which stays as it is meanwhile; gives its length."""
        with View(buffer, writable=True) as view:
            for at, length in _pieces(view.length, self.block):
                await self._carry_out(library.submit_read, (view.address or 0) + at, length,
                                      _unsigned(offset + at))
            return view.length

    async def write(self, offset: int, data: ReadableBuffer, *, fua: bool = False) -> int:
        with View(data) as view:
            for at, length in _pieces(view.length, self.block):
                await self._carry_out(library.submit_write, (view.address or 0) + at, length,
                                      _unsigned(offset + at), flags_of(fua))
            return view.length

    async def flush(self) -> None:
        await self._carry_out(library.submit_flush)

    async def discard(self, offset: int, length: int, *, fua: bool = False) -> None:
        await self._carry_out(library.submit_discard, _unsigned(offset), _unsigned(length),
                              flags_of(fua))

    async def zero(self, offset: int, length: int, *, fua: bool = False,
                   keep: bool = False) -> None:
        await self._carry_out(library.submit_zero, _unsigned(offset), _unsigned(length),
                              flags_of(fua, keep))

    async def compare_and_write(self, offset: int, expected: ReadableBuffer,
                                new: ReadableBuffer) -> bool:
        with View(expected) as old, View(new) as view:
            _same_length(old, view)
            try:
                await self._carry_out(library.submit_compare_and_write, old.address, view.address,
                                      view.length, _unsigned(offset))
            except Error as error:
                if error.code is Code.MISCOMPARE:
                    return False
                raise
        return True

    def watch(self, listener: Callable[[Event], object]) -> None:
        """Has what happens to the disk told to `listener`."""
        if self._listener is None:
            check(library.watch(self._handle, self._queue, 0))
        self._listener = listener

    async def close(self) -> None:
        """Logs out; flushes nothing. What is under way fails. Closing it again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.to_thread(lambda: check(library.close(self._handle)))
        finally:
            self._reap()
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            library.queue_free(self._queue)
            for future in [*self._waiting.values(), *self._room]:
                future.cancel()

    async def __aenter__(self) -> Disk:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a disk cannot be copied or pickled: open another one")

    async def _carry_out(self, submit: Any, *arguments: Any) -> None:
        """Submits an operation and waits for its end."""
        while True:
            self._tag += 1
            tag = self._tag
            result = submit(self._handle, self._queue, tag, *arguments)
            if result != Code.FULL:
                check(result)
                break
            room = self._loop.create_future()
            self._room.append(room)
            await room
        end: asyncio.Future[None] = self._loop.create_future()
        self._waiting[tag] = end
        try:
            await end
        finally:
            # Cancelled: no buffer is touched any more when this has returned.
            if self._waiting.pop(tag, None) is not None:
                library.forget(self._queue, tag)

    def _reap(self) -> None:
        while True:
            count = library.reap(self._queue, self._done, _BATCH)
            for index in range(max(0, count)):
                self._ended(index, self._done[index])
            if count < _BATCH:
                break
        room, self._room = self._room, []
        for future in room:
            if not future.done():
                future.set_result(None)

    def _ended(self, index: int, done: library.Completion) -> None:
        error = None
        if done.code != 0:
            record = library.Record()
            library.reaped_error(self._queue, index, ctypes.byref(record))
            error = Error(record)
        if done.what != What.OPERATION:
            if self._listener is not None:
                self._loop.call_soon(self._listener, Event(What(done.what), done.bytes, error))
            return
        future = self._waiting.pop(done.tag, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _pieces(length: int, block: int) -> list[tuple[int, int]]:
    """Parts that one operation takes."""
    piece = library.LENGTH_MAX // block * block
    return [(at, min(piece, length - at)) for at in range(0, length, piece)] or [(0, 0)]


async def connect(url: str, *, depth: int = 128, **options: object) -> Disk:
    """Logs in; `depth`: operations at a time, others wait. Options: as for `lunwire.connect`."""
    login = asyncio.ensure_future(asyncio.to_thread(open_handle, url, options))
    try:
        handle = await asyncio.shield(login)
    except asyncio.CancelledError:
        # The thread goes on, and nobody wants what it opens.
        login.add_done_callback(_close_again)
        raise
    try:
        return Disk(handle, depth)
    except BaseException:
        library.close(handle)
        raise


def _close_again(login: asyncio.Future[Handle]) -> None:
    if not login.cancelled() and login.exception() is None:
        library.close(login.result())
