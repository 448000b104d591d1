# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The package, as installed, against the targets that interop/bindings starts: LUNWIRE_URLS has a
disk of 32 MiB, one that is read-only, one with CHAP, and the file of its secret."""
import asyncio
import copy
import errno
import gc
import io
import mmap
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import lunwire
import lunwire.aio
import pytest

MIB = 1 << 20
URL, READ_ONLY, GUARDED, SECRET_FILE = os.environ["LUNWIRE_URLS"].split()


@pytest.fixture
def disk():
    with lunwire.connect(URL) as disk:
        yield disk


def failed(code, call):
    with pytest.raises(lunwire.Error) as caught:
        call()
    assert caught.value.code is code and isinstance(caught.value, OSError)
    assert caught.value.strerror in str(caught.value)
    return caught.value


def test_numbers_are_those_of_the_header():
    header = pathlib.Path(os.environ["LUNWIRE_HEADER"]).read_text()
    found = dict(re.findall(r"LUNWIRE_E_(\w+) = (-\d+)", header))
    assert {code.name: str(code.value) for code in lunwire.Code} == found
    found = dict(re.findall(r"LUNWIRE_(\w+) = (\d),? *(?:/\*.*)?$", header, re.MULTILINE))
    found.pop("OK", None)
    assert {what.name: str(what.value) for what in lunwire.What} == found


def test_a_disk_tells_what_it_is_like(disk):
    info = disk.info
    assert (disk.size, disk.block, disk.read_only) == (32 * MIB, 512, False)
    assert info.target.startswith("iqn.") and info.lun == 0 and info.name == disk.name != ""
    assert disk.learn() == info
    with lunwire.connect(READ_ONLY) as other:
        assert other.info.read_only
        error = failed(lunwire.Code.READ_ONLY, lambda: other.write(0, bytes(512)))
        assert error.errno == errno.EROFS and error.sense[:2] == (7, 0x27) and error.status == 2
        with pytest.raises(PermissionError):
            other.open()
        assert other.open("rb").read(3) == bytes(3)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(
    bytearray(data)), lambda data: memoryview(data).cast("I")])
def test_any_buffer_is_written(disk, kind):
    data = os.urandom(9 * MIB + 512)
    assert disk.write(512, kind(data)) == len(data)
    assert disk.read(512, len(data)) == data


def test_any_buffer_is_read_into(disk):
    data = os.urandom(8192)
    disk.write(0, data, fua=True)
    for buffer in (bytearray(8192), memoryview(bytearray(8192)), mmap.mmap(-1, 8192)):
        assert disk.readinto(0, buffer) == 8192 and bytes(buffer) == data
    part = memoryview(bytearray(8192))[100:612]
    disk.readinto(512, part)
    assert part == data[512:1024]
    for wrong in (b"text" * 128, memoryview(bytearray(2048))[::2]):
        with pytest.raises(BufferError):
            disk.readinto(0, wrong)
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError):
            disk.readinto(0, wrong)
        with pytest.raises(TypeError):
            disk.write(0, wrong)
    # It is held for as long as it takes, and no longer.
    buffer = bytearray(512)
    disk.readinto(0, buffer)
    buffer.append(1)


def test_zeroes_discards_comparisons(disk):
    disk.write(0, b"\x11" * 4096)
    disk.zero(0, 1024, keep=True)
    disk.zero(1024, 512, fua=True)
    disk.discard(2048, 512)
    disk.flush()
    assert disk.read(0, 2048) == bytes(1536) + b"\x11" * 512
    assert disk.compare_and_write(0, bytes(512), b"\x22" * 512) is True
    assert disk.compare_and_write(0, bytes(512), b"\x33" * 512) is False
    assert disk.read(0, 512) == b"\x22" * 512
    with pytest.raises(ValueError):
        disk.compare_and_write(0, bytes(512), bytes(1024))


def test_errors_have_fields(disk):
    assert failed(lunwire.Code.UNALIGNED, lambda: disk.read(1, 512)).errno == errno.EINVAL
    error = failed(lunwire.Code.RANGE, lambda: disk.read(32 * MIB, 512))
    # No memory is asked for what is not there.
    for length in (1 << 40, 1 << 62, (1 << 64) - 512):
        failed(lunwire.Code.RANGE, lambda: disk.read(0, length))
    assert error.sense is None and "the disk at byte 33554432" in error.strerror
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.errno, str(again)) == (error.code, error.errno, str(error))
    for wrong in (-1, 1 << 64):
        with pytest.raises(ValueError):
            disk.read(wrong, 512)
        with pytest.raises(ValueError):
            disk.discard(0, wrong)
    failed(lunwire.Code.URL, lambda: lunwire.connect("iscsi://127.0.0.1"))
    failed(lunwire.Code.OPTION, lambda: lunwire.connect(URL, no_such="1"))
    assert failed(lunwire.Code.UNREACHABLE, lambda: lunwire.connect(
        "iscsi://127.0.0.1:1/iqn.2026-01.test:a/0", patience="0")).errno == errno.ECONNREFUSED
    disk.close()
    disk.close()
    failed(lunwire.Code.HANDLE, disk.flush)


def test_several_urls_are_paths_to_one_disk(disk):
    with lunwire.connect(f"{URL} {URL}", paths="round-robin") as both:
        assert (both.size, both.name) == (disk.size, disk.name)
        for at in range(8):
            both.write(at * 4096, bytes([at + 1]) * 4096)
        for at in range(8):
            assert both.read(at * 4096, 4096) == bytes([at + 1]) * 4096
        assert disk.read(7 * 4096, 1 * 512) == bytes([8]) * 512
    error = failed(lunwire.Code.OPTION, lambda: lunwire.connect(f"{URL} {URL}", paths="some"))
    assert "round-robin" in error.strerror
    # Two disks are not one.
    with pytest.raises(lunwire.Error) as caught:
        lunwire.connect(f"{URL} {READ_ONLY}", patience="3s")
    assert "different disks" in str(caught.value)


def test_options_and_secrets():
    assert "chap-secret-file" in lunwire.option_names() and lunwire.version()[0].isdigit()
    failed(lunwire.Code.AUTHENTICATION, lambda: lunwire.connect(GUARDED))
    text = str(failed(lunwire.Code.AUTHENTICATION, lambda: lunwire.connect(
        GUARDED, chap_user="host", chap_secret="not this secret")))
    assert "not this secret" not in text
    with lunwire.connect(GUARDED, chap_user="host", chap_secret_file=SECRET_FILE, connections=2,
                         markers=False, header_digest="required", portal=["127.0.0.1:1"]) as disk:
        assert disk.size == MIB


def test_several_urls_are_paths_and_a_stripe_is_several_disks(disk):
    with lunwire.connect(f"{URL} {URL}") as other:
        other.write(0, b"p" * 512)
        assert disk.read(0, 512) == b"p" * 512 and other.name == disk.name
    with lunwire.connect(f"stripe:4K({URL};{READ_ONLY})") as whole:
        assert whole.read_only and whole.read(0, 512) == b"p" * 512
        error = failed(lunwire.Code.READ_ONLY, lambda: whole.write(0, bytes(512)))
        assert "disk 2 of the stripe" in str(error)
    failed(lunwire.Code.OPTION, lambda: lunwire.connect(f"stripe:4K({URL};{URL})"))
    failed(lunwire.Code.OPTION, lambda: lunwire.connect(f"{URL} {READ_ONLY}"))
    failed(lunwire.Code.OPTION, lambda: lunwire.connect(f"{URL} {URL}", isid="80c0ffee0001"))
    failed(lunwire.Code.URL, lambda: lunwire.connect(f"stripe:4K({URL})"))


def test_texts_are_whole_and_none_is_no_option():
    for url, options in [(URL + "\0", {}), (URL, {"alias": "a\0b"}), (URL, {"alias": b"a\0b"})]:
        with pytest.raises(ValueError):
            lunwire.connect(url, **options)
    with lunwire.connect(URL, chap_user=None, portal=[None]) as disk:
        assert disk.size == 32 * MIB
    with lunwire.connect(GUARDED, chap_user=b"host",
                         chap_secret=pathlib.Path(SECRET_FILE).read_bytes()) as disk:
        assert disk.size == MIB


def test_offsets_are_all_that_is_an_index(disk):
    class Number:
        def __index__(self):
            return 512

    assert len(disk.read(Number(), Number())) == 512
    for call in (lambda: disk.read(0.0, 512), lambda: disk.write(0.0, bytes(512))):
        with pytest.raises(TypeError):
            call()


def test_a_disk_has_no_copies(disk):
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="open another"):
            call(disk)
    gc.collect()
    assert len(disk.read(0, 512)) == 512


def end_of(child):
    """The status with which a child ends."""
    for _ in range(100):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it hangs"


def test_a_child_has_disks_of_its_own(disk):
    disk.write(0, b"\x77" * 512)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            failed(lunwire.Code.HANDLE, lambda: disk.read(0, 512))
            with lunwire.connect(URL) as other:
                failed(lunwire.Code.HANDLE, lambda: disk.write(0, bytes(512)))
                assert other.read(0, 512) == b"\x77" * 512
            disk.close()
            # What the end of an interpreter does.
            disk.__del__()
            status = 0
        finally:
            os._exit(status)
    assert end_of(child) == 0
    assert disk.read(0, 512) == b"\x77" * 512


WITHOUT_MEMORY = """
import asyncio, os, resource, lunwire.aio
async def run(url):
    async with await lunwire.aio.connect(url) as disk:
        data = bytes(32 << 20)
        pages = int(open("/proc/self/statm").read().split()[0])
        most = (pages << 12) + (8 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        ends = await asyncio.gather(*(disk.write(0, data) for _ in range(8)),
                                    return_exceptions=True)
    failed = [end for end in ends if isinstance(end, lunwire.Error)]
    assert failed and all(end.code is lunwire.Code.SYSTEM for end in failed), ends
asyncio.run(run(os.environ["LUNWIRE_URLS"].split()[0]))
"""


def test_the_package_by_its_name_alone_has_asyncio_too():
    subprocess.run([sys.executable, "-c", "import lunwire; lunwire.aio.connect"], check=True,
                   timeout=60)


def test_without_memory_a_write_fails_and_the_program_goes_on():
    subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], check=True, timeout=60)


def test_a_write_during_a_flush_is_flushed_by_the_next():
    class Slow:
        info = type("Info", (), {"block": 512, "read_only": False})
        size, flushes = 4096, 0

        def write(self, offset, data):
            pass

        def flush(self):
            self.flushes += 1
            if self.flushes == 1:
                writer.start()
                writer.join(0.2)

    slow = Slow()
    file = lunwire.DiskFile(slow)
    writer = threading.Thread(target=file.write, args=(bytes(512),))
    file.write(bytes(512))
    file.flush()
    writer.join()
    file.close()
    assert slow.flushes == 2


def test_other_threads_run_while_a_call_waits(disk):
    ticks, over = [0], threading.Event()

    def tick():
        while not over.is_set():
            ticks[0] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    for _ in range(20):
        disk.read(0, 8 * MIB)
    during = ticks[0] - before
    over.set()
    thread.join()
    assert during > 5


def test_threads_share_a_disk(disk):
    def work(number):
        for turn in range(30):
            data = bytes([number * 30 + turn]) * 4096
            disk.write(number * MIB, data)
            assert disk.read(number * MIB, 4096) == data
            done.append(number)

    done = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 120


def test_a_disk_is_a_file(disk):
    data = os.urandom(10000)
    file = disk.open()
    assert file.readable() and file.writable() and file.seekable() and file.seek(100) == 100
    with io.BufferedRandom(file) as buffered:
        buffered.write(data)
        buffered.seek(90)
        read = buffered.read(10020)
        assert read[10:10010] == data
        assert buffered.seek(-10, os.SEEK_END) == 32 * MIB - 10
        assert buffered.write(b"0123456789") == 10
        buffered.seek(-5, os.SEEK_CUR)
        assert buffered.read() == b"56789" and buffered.read() == b""
        with pytest.raises(io.UnsupportedOperation):
            buffered.truncate(0)
    assert file.closed
    with pytest.raises(ValueError):
        file.tell()
    with disk.open("rb") as file:
        file.seek(100)
        assert file.read(3) == data[:3]
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"a")
        with pytest.raises(ValueError):
            file.seek(-1)
        assert file.seek(1 << 40) and file.read(1) == b""
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
    with disk.open() as file:
        file.seek(0, os.SEEK_END)
        with pytest.raises(OSError) as caught:
            file.write(b"a")
        assert caught.value.errno == errno.ENOSPC
    with pytest.raises(ValueError):
        disk.open("w")


def test_asyncio():
    async def run():
        async with await lunwire.aio.connect(URL, depth=8) as disk:
            pieces = [os.urandom(65536) for _ in range(100)]
            # More than the queue is deep.
            await asyncio.gather(*(disk.write(at * 65536, piece, fua=at % 2 == 0)
                                   for at, piece in enumerate(pieces)))
            await disk.flush()
            assert await asyncio.gather(*(disk.read(at * 65536, 65536) for at in range(100))) == pieces
            buffer = bytearray(512)
            assert await disk.readinto(0, buffer) == 512 and buffer == pieces[0][:512]
            await disk.zero(0, 4096, keep=True)
            await disk.discard(4096, 4096)
            assert await disk.compare_and_write(0, bytes(512), b"\x44" * 512) is True
            assert await disk.compare_and_write(0, bytes(512), b"\x55" * 512) is False
            assert (await disk.learn()).size == disk.size == 32 * MIB and disk.block == 512
            for code, call in [(lunwire.Code.UNALIGNED, disk.read(1, 512)),
                               (lunwire.Code.RANGE, disk.read(0, 1 << 62)),
                               (lunwire.Code.RANGE, disk.read(512, (1 << 64) - 512)),
                               (lunwire.Code.RANGE, disk.discard(32 * MIB, 512))]:
                with pytest.raises(lunwire.Error) as caught:
                    await call
                assert caught.value.code is code
            # One that fails at the target, with text and sense.
        async with await lunwire.aio.connect(READ_ONLY) as disk:
            events = []
            disk.watch(events.append)
            with pytest.raises(lunwire.Error) as caught:
                await disk.write(0, bytes(512))
            assert caught.value.code is lunwire.Code.READ_ONLY and caught.value.sense[0] == 7
        await disk.close()
        with pytest.raises(lunwire.Error):
            await disk.flush()

    asyncio.run(run())


def test_what_is_cancelled_touches_no_buffer():
    async def run():
        async with await lunwire.aio.connect(URL, depth=4) as disk:
            await disk.write(0, b"\x66" * MIB)
            for _ in range(20):
                buffers = [bytearray(MIB) for _ in range(8)]
                tasks = [asyncio.ensure_future(disk.readinto(0, buffer)) for buffer in buffers]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(isinstance(end, (asyncio.CancelledError, int)) for end in ended)
                for buffer in buffers:
                    before = bytes(buffer)
                    buffer.append(1)
                    assert bytes(buffer[:-1]) == before
                del buffers
                gc.collect()
            assert await disk.read(0, 512) == b"\x66" * 512

    asyncio.run(run())


def test_a_close_ends_what_is_under_way():
    async def run():
        disk = await lunwire.aio.connect(URL)
        tasks = [asyncio.ensure_future(disk.read(0, 8 * MIB)) for _ in range(8)]
        await asyncio.sleep(0)
        await disk.close()
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(end, (bytes, asyncio.CancelledError, lunwire.Error)), end

    asyncio.run(run())
