# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`lunwire attach` as a file and as a loop device, for interop/attach.

Programs that know files and block devices use the disk: qemu-img, mkfs.ext4, fio, which verifies
while the target is killed and started again, and the system's own file systems. `lunwire attached`
and `detach` find what runs in the background.
"""
import contextlib
import ctypes
import errno
import glob
import json
import mmap
import os
import random
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import relay
import server

SECONDS = 60
MIB = 1 << 20
DISK = 64 * MIB
BINARY = os.environ.get("LUNWIRE", f"{server.ROOT}/target/release/lunwire")
NOBODY = 65534
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE = 1, 2, 16


class Wrong(AssertionError):
    """What a test has found."""


def need(truth, what):
    if not truth:
        raise Wrong(what)


def run(*command, status=0, timeout=SECONDS, words=None, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout, **options)
    need(done.returncode == status,
         f"{command}: status {done.returncode}, wanted {status}\n{done.stdout}")
    need(words is None or words in done.stdout, f"{command}: {done.stdout!r} lacks {words!r}")
    return done.stdout


class Attached:
    """One in the foreground; `path`: the file or device, or the address of NBD. URLs with blanks
    between them are paths."""

    def __init__(self, url, where, *options):
        self.process = subprocess.Popen(
            [BINARY, "attach", *url.split(), where, *options], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=server.die_with_parent)
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else ""
        found = re.match(r"^.+ is attached as ((?:/|nbd)\S+)$", line)
        if not found:
            self.process.kill()
            raise Wrong(f"it said {line!r}, {self.process.communicate()[1]}")
        self.path, self.folder = found[1], where

    def stop(self, status=0, number=signal.SIGTERM):
        """What it said on standard error."""
        self.process.send_signal(number)
        return self.end(status)

    def end(self, status=0):
        said = self.process.communicate(timeout=SECONDS)[1]
        need(self.process.returncode == status, f"it ended with {self.process.returncode}\n{said}")
        need(not os.path.ismount(self.folder), "it left its mount")
        return said

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.kill()
            said = self.process.communicate()[1]
            if kind is not None:
                print(f"--- {self.path} said:\n{said}", flush=True)
            subprocess.run(["umount", "-l", self.folder], stderr=subprocess.DEVNULL)


def folder_at(path):
    os.mkdir(path)
    return path


def fails(number, call, *arguments):
    """The call must fail with that error."""
    try:
        call(*arguments)
    except OSError as error:
        need(error.errno == number, f"{call} {arguments}: {error}")
        return
    raise Wrong(f"{call} {arguments}: it worked")


def fallocate(path, mode, offset, length):
    words = {FALLOC_PUNCH_HOLE: ["-p"], FALLOC_ZERO_RANGE: ["-z", "-n"]}[mode]
    run("fallocate", *words, "-o", str(offset), "-l", str(length), path)


def programs(folder, engine):
    """qemu-img, mkfs.ext4, e2fsck, cp, and bytes that are no blocks."""
    source, where = f"{folder}/source-{engine}", folder_at(f"{folder}/file-{engine}")
    with open(source, "wb") as file:
        for _ in range(DISK // (2 * MIB)):
            file.write(os.urandom(MIB))
            file.seek(MIB, os.SEEK_CUR)
        file.truncate(DISK)
    store = f"file:{folder}/file-{engine}.img,size={DISK}"
    with server.start(store, engine=engine) as target:
        with Attached(target.url, where, "--engine", engine) as disk:
            facts = os.stat(disk.path)
            need(facts.st_size == DISK and stat.S_IMODE(facts.st_mode) == 0o600, f"{facts}")
            need(os.listdir(where) == ["disk"], os.listdir(where))
            run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-S", "64k", source,
                disk.path)
            run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, disk.path,
                words="identical")
            runs = json.loads(run("qemu-img", "map", "--output=json", "-f", "raw", disk.path))
            holes = sum(one["length"] for one in runs if not one["data"])
            need(holes >= DISK // 2 - MIB, f"{holes} bytes of holes are told: {runs}")
            run("cp", disk.path, f"{folder}/copy")
            run("cmp", source, f"{folder}/copy")
            bytes_of(disk.path, source)
            run("mkfs.ext4", "-q", "-F", disk.path)
            run("e2fsck", "-f", "-n", disk.path)
            need("warning" not in disk.stop(), "it warned")
        # Who unmounts it ends it.
        with Attached(target.url, where, "--engine", engine) as disk:
            run("e2fsck", "-f", "-n", disk.path)
            run("umount", where)
            disk.end()
        with Attached(target.url, where, "--engine", engine) as disk:
            disk.stop(number=signal.SIGINT)
        # Who has it open at the end gets errors, and the user is told who that is.
        with Attached(target.url, where, "--engine", engine) as disk:
            held = os.open(disk.path, os.O_RDWR)
            said = disk.stop()
            need(f"in use by {comm()}" in said, said)
            fails(errno.ENOTCONN, os.pread, held, 1, 0)
            os.close(held)
    print(f"attach: {engine}: qemu-img, cp, mkfs.ext4 and e2fsck use the file")


def comm():
    with open("/proc/self/comm") as file:
        return f"{file.read().strip()} (process {os.getpid()})"


def bytes_of(path, source):
    """What a file system of the system's own would do, on the file."""
    with open(source, "rb") as file:
        there = bytearray(file.read(4 * MIB))
    disk = os.open(path, os.O_RDWR)
    for offset, length in [(1, 1), (511, 2), (512, 512), (700, 3000), (4095, 70001), (MIB + 7, MIB)]:
        data = os.urandom(length)
        need(os.pwrite(disk, data, offset) == length, "a write was short")
        there[offset:offset + length] = data
    for mode, offset, length in [(FALLOC_PUNCH_HOLE, 3 * MIB - 1000, 5000),
                                 (FALLOC_ZERO_RANGE, 300, 77777)]:
        fallocate(path, mode, offset, length)
        there[offset:offset + length] = bytes(length)
    os.fsync(disk)
    need(os.pread(disk, len(there), 0) == bytes(there), "other bytes are there")
    # It is a device: the end is where it is.
    need(os.pwrite(disk, b"x" * 100, DISK - 10) == 10, "a write went past the end")
    need(len(os.pread(disk, 100, DISK - 10)) == 10 and os.pread(disk, 1, DISK) == b"", "the end")
    need(os.pread(disk, 4096, DISK + 1) == b"", "behind the end")
    fails(errno.ENOSPC, os.pwrite, disk, b"x", DISK)
    fails(errno.EINVAL, os.ftruncate, disk, DISK - 1)
    run("fallocate", "-l", "4096", path, status=1, words="not supported")
    folder = os.path.dirname(path)
    for call, arguments in [(os.chmod, [path, 0o644]), (os.unlink, [path]),
                            (os.rename, [path, f"{path}2"]), (os.link, [path, f"{path}2"]),
                            (os.symlink, ["x", f"{path}2"]), (os.mkdir, [f"{folder}/x"]),
                            (os.open, [f"{folder}/x", os.O_CREAT | os.O_WRONLY])]:
        fails(errno.EPERM, call, *arguments)
    need(os.lseek(disk, 0, os.SEEK_END) == DISK, "SEEK_END")
    fails(errno.ENXIO, os.lseek, disk, DISK, os.SEEK_DATA)
    need(os.lseek(disk, DISK - 1, os.SEEK_HOLE) in (DISK - 1, DISK), "SEEK_HOLE at the end")
    os.close(disk)
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    need(os.stat(path).st_size == DISK, "O_TRUNC cut it")


class AsynchronousReader:
    """O_DIRECT and the system's asynchronous I/O, which asks for no size before it reads."""

    def __init__(self, path):
        self.library = ctypes.CDLL("libaio.so.1", use_errno=True)
        self.file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.context = ctypes.c_void_p()
        need(self.library.io_queue_init(1, ctypes.byref(self.context)) == 0, "io_queue_init")
        self.memory = mmap.mmap(-1, mmap.PAGESIZE)

    def read(self, offset):
        """How many bytes of a page came, and the first of them."""
        page = (ctypes.c_char * mmap.PAGESIZE).from_buffer(self.memory)
        self.memory[:1] = b"?"
        block = ctypes.create_string_buffer(struct.pack(
            "=QIIHhIQQqQII", 0, 0, 0, 0, 0, self.file, ctypes.addressof(page), mmap.PAGESIZE,
            offset, 0, 0, 0))
        pointer, event = ctypes.c_void_p(ctypes.addressof(block)), ctypes.create_string_buffer(32)
        need(self.library.io_submit(self.context, 1, ctypes.byref(pointer)) == 1, "io_submit")
        need(self.library.io_getevents(self.context, 1, 1, event, None) == 1, "io_getevents")
        return struct.unpack("=QQqq", event.raw)[2], self.memory[:1]

    def close(self):
        self.library.io_queue_release(self.context)
        os.close(self.file)


def sizes(folder):
    """Nobody's reads end too early: neither when another one opens the file with O_TRUNC, nor when
    the disk has grown."""
    where = folder_at(f"{folder}/sizes")
    with server.start(f"file:{folder}/sizes.img,size={DISK}") as target:
        with Attached(target.url, where) as disk:
            with open(disk.path, "r+b") as file:
                for place, data in [(0, b"7"), (DISK - MIB, b"8")]:
                    file.seek(place)
                    file.write(data * MIB)
            reader = AsynchronousReader(disk.path)
            need(reader.read(0) == (mmap.PAGESIZE, b"7"), "it cannot be read so")
            for truncate in [f"> {disk.path}", f"echo 9 > {disk.path}"]:
                run("sh", "-c", truncate)
                need(reader.read(DISK - mmap.PAGESIZE) == (mmap.PAGESIZE, b"8"), f"after {truncate}")
            with open(disk.path, "rb") as file:
                need(file.read(4) == b"9\n77", "echo wrote something else")
            fails(errno.EINVAL, os.truncate, disk.path, MIB)
            target.order("lun", "resize", "0", str(2 * DISK))
            deadline = time.monotonic() + SECONDS
            while (found := reader.read(2 * DISK - mmap.PAGESIZE)) != (mmap.PAGESIZE, b"\0"):
                need(time.monotonic() < deadline, f"it did not grow: {found}")
                time.sleep(0.05)
            with open(disk.path, "r+b") as file:
                file.seek(2 * DISK - MIB)
                file.write(b"5" * MIB)
                file.flush()
                with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as memory:
                    need(memory[-mmap.PAGESIZE:] == b"5" * mmap.PAGESIZE, "other bytes are mapped")
            reader.close()
            disk.stop()
    print("attach: who reads asynchronously reads all, whatever others do and the disk grows to")


def several(folder):
    """Two attachments of one disk, one that is read-only, and a size that changes."""
    one, two = folder_at(f"{folder}/one"), folder_at(f"{folder}/two")
    store = f"file:{folder}/several.img,size={DISK}"
    with server.start(store) as target:
        with Attached(target.url, one) as left, Attached(target.url, two) as right:
            ends = [os.open(disk.path, os.O_RDWR) for disk in (left, right)]
            for number in range(200):
                word = f"{number:8}".encode()
                os.pwrite(ends[number % 2], word, 5000)
                need(os.pread(ends[1 - number % 2], 8, 5000) == word, f"{number}: an old word")
            for end in ends:
                os.close(end)
            target.order("lun", "resize", "0", str(2 * DISK))
            deadline = time.monotonic() + SECONDS
            while os.stat(left.path).st_size != 2 * DISK:
                need(time.monotonic() < deadline, "it did not grow, though nobody uses it")
                time.sleep(0.1)
            left.stop()
            right.stop()
    with server.start(f"file:{folder}/several.img,readonly") as target:
        with Attached(target.url, one) as disk:
            need(stat.S_IMODE(os.stat(disk.path).st_mode) == 0o400, "it may be written")
            fails(errno.EROFS, os.open, disk.path, os.O_RDWR)
            with open(disk.path, "rb") as file:
                file.seek(5000)
                need(file.read(8) == b"     199", "another word")
            disk.stop()
    print("attach: no attachment reads what is old, sizes change, and read-only stays so")


def answers(disk):
    """Waits until it does: its session is back."""
    run("dd", f"if={disk.path}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct")


def outages(folder, restarts):
    """fio writes and verifies; the target is killed again and again, and then stays away."""
    where = folder_at(f"{folder}/outages")
    store = f"file:{folder}/outages.img,size={DISK},sync"
    options = ["--state-dir", f"{folder}/outages.state"]
    listen = f"127.0.0.1:{server.free_port()}"
    target = server.start(store, options=options, listen=listen)
    try:
        with Attached(target.url, where, "--io-timeout", "10s") as disk:
            job = ["fio", "--name=outage", "--ioengine=libaio", "--direct=1",
                   f"--filename={disk.path}", "--rw=randwrite", "--bsrange=512-64k",
                   "--blockalign=512", f"--size={DISK}", "--iodepth=32", "--verify=crc32c",
                   "--verify_backlog=256", "--verify_fatal=1", "--verify_state_save=0",
                   "--loops=1000", f"--runtime={2 * restarts}", "--time_based",
                   "--output-format=terse"]
            load = subprocess.Popen(job, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True,
                                    preexec_fn=server.die_with_parent)
            for _ in range(restarts):
                time.sleep(1.2)
                answers(disk)
                target.kill()
                time.sleep(0.4)
                target = server.start(store, options=options, listen=listen)
            said = load.communicate(timeout=SECONDS)[0]
            need(load.returncode == 0, f"fio ended with {load.returncode}\n{said}")
            answers(disk)
            news = disk.stop()
            need(news.count("the session is back") >= restarts, f"too few outages:\n{news}")
        with Attached(target.url, where, "--io-timeout", "2s") as disk:
            file = os.open(disk.path, os.O_RDWR)
            target.kill()
            begun = time.monotonic()
            fails(errno.EIO, os.pread, file, 4096, 0)
            need(1 < time.monotonic() - begun < 20, "it waited too long, or did not")
            fails(errno.EIO, os.pwrite, file, b"x", 0)
            os.close(file)
            need("fail from now on" in disk.stop(), "it does not say that it gave up")
    finally:
        target.kill()
    print(f"attach: {restarts} times the target was killed: the file has what fio had written")


def lose(path, flushed, dice):
    """As a loss of power would: of the blocks that nobody flushed some are those of before."""
    lost = 0
    with open(path, "r+b") as file:
        now = file.read()
        for at in range(0, len(now), 512):
            if now[at:at + 512] != flushed[at:at + 512] and dice.random() < 0.6:
                file.seek(at)
                file.write(flushed[at:at + 512])
                lost += 1
    return lost


def power_losses(folder, restarts):
    """A target loses some of what it had acknowledged, again and again: the file has all of it, and
    so have writes that wait meanwhile."""
    dice, size, where = random.Random(2), 8 * MIB, folder_at(f"{folder}/power")
    path, listen = f"{folder}/power-file.img", f"127.0.0.1:{server.free_port()}"
    store = f"file:{path},size={size}"
    options = ["--state-dir", f"{folder}/state-power-file"]
    target = server.start(store, options=options, listen=listen)
    model, lost = bytearray(size), 0
    try:
        with Attached(target.url, where) as disk, ThreadPoolExecutor(8) as threads:
            file = os.open(disk.path, os.O_RDWR)
            for restart in range(restarts):
                os.fsync(file)
                with open(path, "rb") as behind:
                    flushed = behind.read()
                need(flushed == model, "a flush did not mean it")
                places = dice.sample(range(0, size, 64 << 10), 48)
                waiting = []
                for number, place in enumerate(places):
                    begin, length = place + dice.randrange(32 << 10), dice.randrange(1, 32 << 10)
                    data = bytes([dice.randrange(256)]) * length
                    model[begin:begin + length] = data
                    if number < 40:
                        need(os.pwrite(file, data, begin) == length, "it wrote less")
                        continue
                    if number == 40:
                        target.kill()
                        lost += lose(path, flushed, dice)
                    waiting.append(threads.submit(os.pwrite, file, data, begin))
                target = server.start(store, options=options, listen=listen)
                for one in waiting:
                    need(one.result(timeout=SECONDS) > 0, "it wrote less")
                need(os.pread(file, size, 0) == model, f"other data after loss {restart}")
            os.close(file)
            news = disk.stop()
            need(news.count("all is written again") >= restarts and lost, f"{lost} lost:\n{news}")
            with open(path, "rb") as behind:
                need(behind.read() == model, "what was written is not there in the end")
    finally:
        target.kill()
    print(f"attach: {restarts} times a target lost its power, and {lost} blocks: the file has them")


def loses(folder):
    """Where nothing is kept a flush that cannot bring all to stable storage fails."""
    where = folder_at(f"{folder}/loses")
    store = f"file:{folder}/loses.img,size={DISK}"
    listen = f"127.0.0.1:{server.free_port()}"
    target = server.start(store, listen=listen)
    try:
        with Attached(target.url, where, "--keep", "0") as disk:
            file = os.open(disk.path, os.O_RDWR)
            os.pwrite(file, b"x" * 4096, 0)
            os.fsync(file)
            os.pwrite(file, b"y" * 4096, 0)
            target.kill()
            target = server.start(store, listen=listen)
            fails(errno.EIO, os.fsync, file)
            os.close(file)
            need("may be lost" in disk.stop(status=1), "the end forgot what may be lost")
        with Attached(target.url, where, "--io-timeout", "1s") as disk:
            file = os.open(disk.path, os.O_RDWR)
            os.pwrite(file, b"z" * 4096, 0)
            target.kill()
            fails(errno.EIO, os.pread, file, 4096, 0)
            os.close(file)
            need("not flushed may be lost" in disk.stop(status=1), "it does not say what is lost")
        target = server.start(store, listen=listen)
        with Attached(target.url, where, "--io-timeout", "1s") as disk:
            file = os.open(disk.path, os.O_RDWR)
            os.pread(file, 4096, 0)
            target.kill()
            fails(errno.EIO, os.pread, file, 4096, 0)
            os.close(file)
            need("lost" not in disk.stop(), "nothing was written, and some of it is lost")
    finally:
        target.kill()
    print("attach: a flush of the file goes down to the target")


def durable(folder):
    """O_DSYNC and O_SYNC are FUA on the wire, and without them there is none."""
    where, capture = folder_at(f"{folder}/durable"), f"{folder}/durable.pcap"
    with server.start("memory:16M") as target:
        with Attached(target.url, where, "--capture", capture) as disk:
            for block, flags in enumerate([0, os.O_DSYNC, os.O_SYNC]):
                file = os.open(disk.path, os.O_RDWR | flags)
                os.pwrite(file, bytes(4096), 4096 * block)
                os.close(file)
            disk.stop()
    with open(capture, "rb") as file:
        written = re.findall(rb"\x2a(.)\0\0\0(.)\0\0\x08\0", file.read(), re.DOTALL)
    need(written == [(b"\0", b"\0"), (b"\x08", b"\x08"), (b"\x08", b"\x10")], written)
    print("attach: a write that is to be durable is so when it is acknowledged")


def state_of(folder):
    return ["--state-dir", f"{folder}/attached"]


def state_now(state):
    [one] = json.loads(run(BINARY, "attached", "--json", *state))["attached"]
    return one["state"]["is"]


def background(folder):
    """--daemon, attached, detach: of files and of NBD."""
    where, state = folder_at(f"{folder}/background"), state_of(folder)
    with server.start("memory:16M") as target:
        said = run(BINARY, "attach", target.url, where, "--daemon", *state)
        need(said.endswith(f"is attached as {where}/disk\n"), said)
        run(BINARY, "attach", target.url, "--nbd", f"{folder}/b.sock", "--as", "other",
            "--daemon", *state)
        told = json.loads(run(BINARY, "attached", "--json", *state))
        names = {one["name"]: one["place"] for one in told["attached"]}
        need(names == {"disk-0": f"{where}/disk",
                       "other": f"nbd+unix:///?socket={folder}/b.sock"}, told)
        run(BINARY, "attach", target.url, "--nbd", f"{folder}/c.sock", "--as", "other", *state,
            status=1, words="another --as")
        # Who has no terminal does not end with it.
        for one in told["attached"]:
            os.kill(one["pid"], signal.SIGHUP)
        with open(f"{where}/disk", "r+b") as file:
            file.write(b"x")
            file.flush()
            run(BINARY, "detach", "disk-0", *state, status=1, words=f"in use by {comm()}")
            file.write(b"y")
            file.flush()
            run(BINARY, "detach", where, "--force", *state, words="what they have not written")
        need(os.listdir(where) == [], "it is still there")
        run(BINARY, "detach", f"{folder}/b.sock", *state, words="no more")
        run(BINARY, "detach", "other", *state, status=1, words="nothing is attached as other")
        need(os.listdir(f"{folder}/attached") == [], "it left something")
        # The error of the start is that of the command.
        run(BINARY, "attach", f"{target.url[:-1]}7", where, "--daemon", *state, status=1,
            words="no such logical unit")
        # One that was killed is told of, and cleaned up.
        run(BINARY, "attach", target.url, where, "--daemon", *state)
        kill_attached(state)
        try:
            os.listdir(where)
        except ConnectionAbortedError:
            pass  # the system was just about to hear of it
        except OSError as error:
            need(error.errno == errno.ENOTCONN, f"{error}")
        fails(errno.ENOTCONN, os.listdir, where)
        run(BINARY, "attach", target.url, where, *state, status=1, words="whose server is gone")
        run(BINARY, "attached", *state, words="is gone without an end")
        need(os.listdir(where) == [], "the mount is still there")
        run(BINARY, "attached", *state, words="nothing is attached")
        # Somebody has cleaned up and attached it anew: the one that is gone is not the other one.
        run(BINARY, "attach", target.url, where, "--daemon", *state)
        kill_attached(state)
        run("umount", "-l", where)
        run(BINARY, "attach", target.url, where, "--daemon", "--as", "anew", *state)
        read(f"{where}/disk")
        [one] = json.loads(run(BINARY, "attached", "--json", *state).splitlines()[-1])["attached"]
        need(one["name"] == "anew" and os.path.exists(f"{where}/disk"), one)
        run(BINARY, "detach", where, *state, words="no more")
        # A path that is of no use from the start is told of before it goes to the background.
        port = server.free_port()
        for other, why in [(target.url.replace(target.url.split("/")[2], f"127.0.0.1:{port}"),
                            "path 2 is lost, and is tried again"),
                           (f"{target.url[:-1]}7", "path 2 is lost, and is tried again")]:
            run(BINARY, "attach", target.url, other, where, "--daemon", *state, words=why)
            run(BINARY, "detach", where, *state, words="no more")
        run(BINARY, "attach", target.url, "--nbd", f"{folder}/b.sock", "--daemon", *state)
        kill_attached(state)
        run(BINARY, "attached", *state, words="is gone without an end")
        need(not os.path.exists(f"{folder}/b.sock"), "the socket is still there")
        run(BINARY, "attach", target.url, "--nbd", "127.0.0.1:0", "--daemon", *state)
        [one] = json.loads(run(BINARY, "attached", "--json", *state))["attached"]
        port = one["place"].rpartition(":")[2]
        run(BINARY, "detach", f"localhost:{port}", *state, words="no more")
        run(BINARY, "attach", target.url, "--nbd", "10809", *state, status=2,
            words="HOST:PORT is right")
        run(BINARY, "attach", target.url, where, "--daemon", "--io-timeout", "3s", *state)
        need(state_now(state) == "works", "it does not work")
    # The target is away, and too long.
    for wanted in ["waits", "fails"]:
        deadline = time.monotonic() + SECONDS
        while state_now(state) != wanted:
            need(time.monotonic() < deadline, f"it is not said that it {wanted}")
            time.sleep(0.05)
        run(BINARY, "attached", *state, words=f"disk-0: it {wanted} since ")
    # What it has said has its time.
    with open(f"{folder}/attached/disk-0.log") as file:
        lines = file.read().splitlines()
    timed = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*Z lunwire: "
    need(len(lines) >= 3 and all(re.match(timed, line) for line in lines), lines)
    need(f"is attached as {where}/disk" in lines[0], lines)
    run(BINARY, "detach", "disk-0", *state)
    print("attach: what runs in the background is listed, detached and cleaned up")


def says(state, wanted, words):
    """Within a while, and as `attached` does without --json, too."""
    deadline = time.monotonic() + SECONDS
    while state_now(state) != wanted:
        need(time.monotonic() < deadline, f"it is not said that it {wanted}")
        time.sleep(0.05)
    run(BINARY, "attached", *state, words=words)


def troubled(folder):
    """Disks that are others or none, and flushes that fail, are told of before anybody asks."""
    where, state = folder_at(f"{folder}/troubled"), state_of(folder)
    listen = f"127.0.0.1:{server.free_port()}"
    image = f"file:{folder}/troubled.img,size={DISK}"

    # Memory is another disk at each start, and has no cache: nothing of it was lost by a cache.
    target = server.start("memory:16M", listen=listen)
    attach = [BINARY, "attach", target.url, where, "--daemon", *state]
    try:
        run(*attach)
        with open(f"{where}/disk", "r+b") as file:
            file.write(b"x")
        target.kill()
        target = server.start("memory:16M", listen=listen)
        says(state, "fails", "another one than before")
        fails(errno.EIO, read, f"{where}/disk")
        run(BINARY, "detach", where, *state, words="no more")
    finally:
        target.kill()

    # The number is taken away, and given again.
    target = server.start(image, listen=listen)
    try:
        run(*attach)
        target.order("lun", "remove", "0")
        says(state, "fails", "logical unit not supported")
        fails(errno.EIO, read, f"{where}/disk")
        target.order("lun", "add", image, "--number", "0")
        says(state, "works", f"{where}/disk")
        read(f"{where}/disk")
        run(BINARY, "detach", where, *state, words="no more")

        # Nothing is kept of what was written.
        run(*attach, "--keep", "0")
        file = os.open(f"{where}/disk", os.O_RDWR)
        os.pwrite(file, bytes(4096), 0)
        target.kill()
        target = server.start(image, listen=listen)
        fails(errno.EIO, os.fsync, file)
        os.close(file)
        says(state, "fails", "may be lost")
        run(BINARY, "detach", where, *state, status=1, words="may be lost")

        # Who works there is named.
        run(*attach)
        sleep = subprocess.Popen(["sleep", "60"], cwd=where)
        run(BINARY, "detach", where, *state, status=1, words=f"sleep (process {sleep.pid})")
        sleep.kill()
        sleep.wait()
        run(BINARY, "detach", where, *state, words="no more")
    finally:
        target.kill()
    print("attach: disks that are others or none, and flushes that fail, are told of")


def unflushed(folder):
    """What was written and not flushed is given up by nobody but who says so."""
    where, state = folder_at(f"{folder}/unflushed"), state_of(folder)
    listen = f"127.0.0.1:{server.free_port()}"
    image, socket = f"{folder}/unflushed.img", f"{folder}/unflushed.sock"

    def start():
        return server.start(f"file:{image},size={DISK}", listen=listen)

    def write(letter, flush):
        with open(f"{where}/disk", "r+b", buffering=0) as file:
            file.write(letter * MIB)
            if flush:
                os.fsync(file)

    target = start()
    try:
        attach = [BINARY, "attach", target.url, "--daemon", *state]
        run(*attach, where)
        write(b"a", flush=False)
        target.kill()
        run(BINARY, "detach", where, *state, status=1, words="has not answered a flush")
        says(state, "waits", f"{where}/disk")
        target = start()
        says(state, "works", f"{where}/disk")
        run(BINARY, "detach", where, *state, words="no more")
        with open(image, "rb") as file:
            need(file.read(MIB) == b"a" * MIB, "what was written is lost")

        # With all of it flushed nothing can be lost.
        run(*attach, where)
        write(b"b", flush=True)
        target.kill()
        run(BINARY, "detach", where, *state, words="no more")
        target = start()

        run(*attach, where)
        write(b"c", flush=False)
        target.kill()
        run(BINARY, "detach", where, "--force", *state, status=1, words="may be lost")
        need(os.listdir(where) == [], "it is still there")
        target = start()

        # It does not flush at its end.
        with open(f"{folder}/source", "wb") as file:
            file.write(b"d" * MIB)
        run(*attach, "--nbd", socket)
        run("nbdcopy", f"{folder}/source", f"nbd+unix:///?socket={socket}")
        target.kill()
        run(BINARY, "detach", socket, *state, status=1, words="has not answered a flush")
        target = start()
        says(state, "works", socket)
        run(BINARY, "detach", socket, *state, words="no more")
        with open(image, "rb") as file:
            need(file.read(MIB) == b"d" * MIB, "what was written by NBD is lost")
    finally:
        target.kill()
    print("attach: what was not flushed is not given up while the target is away")


def read(path):
    with open(path, "rb", buffering=0) as file:
        file.read(4096)


def at_once(folder):
    """Several want the same at the same time."""
    where, state = folder_at(f"{folder}/at-once"), state_of(folder)
    with server.start("memory:16M") as target:
        # Who detaches it beside others hears what they hear, and nobody waits in vain.
        run(BINARY, "attach", target.url, where, "--daemon", *state)
        held = os.open(f"{where}/disk", os.O_RDONLY)
        begun = time.monotonic()
        with ThreadPoolExecutor(4) as threads:
            orders = [threads.submit(run, BINARY, "detach", where, "--force", *state,
                                     words="what they have not written") for _ in range(4)]
            for order in orders:
                order.result()
        os.close(held)
        need(time.monotonic() - begun < 20, "some waited in vain")
        need(os.listdir(f"{folder}/attached") == [], "it left something")
        # Who comes when it ends is told that, and not that something is wrong.
        for _ in range(10):
            run(BINARY, "attach", target.url, where, "--daemon", *state)
            with ThreadPoolExecutor(4) as threads:
                one = [BINARY, "detach", where, *state]
                orders = [threads.submit(subprocess.run, one, stdin=subprocess.DEVNULL, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                          for _ in range(4)]
                for said in [order.result().stdout for order in orders]:
                    need("attached no more" in said or "nothing is attached" in said, said)
        # A directory has one disk.
        for _ in range(30):
            with ThreadPoolExecutor(2) as threads:
                one = [BINARY, "attach", target.url, where, "--daemon", *state]
                done = [threads.submit(subprocess.run, one, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        for _ in range(2)]
                status = sorted(each.result().returncode for each in done)
            told = json.loads(run(BINARY, "attached", "--json", *state))["attached"]
            for each in told:
                run(BINARY, "detach", each["name"], *state)
            need(status == [0, 1] and len(told) == 1, f"two are attached there: {told}")
    print("attach: who detaches or attaches beside others hears what came of it")


def hostile(folder):
    """A folder that others may write to, a socket that is gone, and a name that is no text."""
    where, state = folder_at(f"{folder}/hostile"), folder_at(f"{folder}/state-hostile")
    with open(f"{folder}/victim", "w", encoding="ascii") as file:
        file.write("precious")
    os.symlink(f"{folder}/victim", f"{state}/disk-0.new")
    with server.start("memory:16M") as target:
        attach = [BINARY, "attach", target.url, where, "--daemon", "--state-dir", state]
        os.chmod(state, 0o777)
        run(*attach, status=1, words="chmod go-w")
        os.chmod(state, 0o700)
        if os.geteuid() == 0:
            os.chown(state, NOBODY, -1)
            run(*attach, status=1, words=f"belongs to user {NOBODY}")
        with open(f"{folder}/victim", encoding="ascii") as file:
            need(file.read() == "precious", "it wrote to another file")
        lines = folder_at(f"{folder}/two\nlines\x1b[1m")
        shown = f"{folder}/two\\nlines\\u{{1b}}[1m/disk"
        run(BINARY, "attach", target.url, lines, "--daemon", *state_of(folder),
            words=f"is attached as {shown}\n")
        said = run(BINARY, "attached", *state_of(folder), words=f" {shown} ")
        need(len(said.splitlines()) == 2, said)
        run(BINARY, "detach", lines, *state_of(folder), words=f"attached no more as {shown}\n")
        odd = os.fsencode(f"{folder}/odd-") + b"\xff"
        os.mkdir(odd)
        run(BINARY, "attach", target.url, odd, status=2, words="UTF-8")
        # Its socket was removed: it is there, and is not taken away.
        state = state_of(folder)
        run(BINARY, "attach", target.url, where, "--daemon", *state)
        os.remove(f"{folder}/attached/disk-0.sock")
        [one] = json.loads(run(BINARY, "attached", "--json", *state))["attached"]
        run(BINARY, "detach", where, *state, status=1, words=f"kill {one['pid']}")
        need(os.path.exists(f"{where}/disk"), "it was taken away")
        os.kill(one["pid"], signal.SIGTERM)
        deadline = time.monotonic() + SECONDS
        while os.path.ismount(where) or os.listdir(f"{folder}/attached"):
            need(time.monotonic() < deadline, "it does not end")
            time.sleep(0.05)
    print("attach: nobody has it write elsewhere, and what lives is not taken away")


def has_died(pid):
    """With all threads: the last one closes its files."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            state = stat.read().rsplit(")", 1)[1].split()[0]
        return state == "Z" and os.listdir(f"/proc/{pid}/task") == [str(pid)]
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill_attached(state):
    """kill -9 of the only one."""
    [one] = json.loads(run(BINARY, "attached", "--json", *state))["attached"]
    os.kill(one["pid"], signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    while not has_died(one["pid"]):
        need(time.monotonic() < deadline, "it does not die")
        time.sleep(0.02)
    return one


def late(folder):
    """A write of an attachment that was killed, on a line that stands still: it does not come over
    what the next one writes, whose way is another one."""
    where, state = folder_at(f"{folder}/late"), state_of(folder)
    with server.start("memory:16M") as target:
        line = relay.Relay(target.port)
        url = re.sub(r":\d+/", f":{line.url_port}/", target.url, count=1)
        run(BINARY, "attach", url, where, "--daemon", *state)
        line.flows.clear()
        writer = subprocess.Popen(["dd", "if=/dev/zero", f"of={where}/disk", "bs=4k", "count=1",
                                   "conv=notrunc,fsync"], stderr=subprocess.DEVNULL)
        waits(writer, f"{where}/disk")
        kill_attached(state)
        writer.wait(timeout=SECONDS)
        run(BINARY, "detach", where, *state)
        run(BINARY, "attach", target.url, where, "--daemon", *state)
        with open(f"{where}/disk", "r+b", buffering=0) as file:
            file.write(b"later" * 100)
            os.fsync(file.fileno())
        line.flows.set()
        time.sleep(1)
        run(BINARY, "detach", where, *state)
        said = subprocess.run([BINARY, "read", target.url, "--length", "512", "--quiet"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        need(said.stdout.startswith(b"later"), "what was written before came over it")
        need(not os.path.exists(f"{folder}/attached/sessions"), "sessions are left")
    print("attach: what a killed one has under way comes over nothing that is written later")


def dead_paths(folder):
    """Paths of one portal group, of one that was killed, that are away when it is attached again
    over one that is there: nobody waits for them."""
    where, state = folder_at(f"{folder}/dead"), state_of(folder)
    with server.start("memory:16M", options=("--rdma", "iwarp")) as target:
        lines = [relay.Relay(target.port) for _ in range(5)]
        urls = [re.sub(r":\d+/", f":{line.url_port}/", target.url, count=1) for line in lines]
        # Over whatever it is: portals and their groups are the same.
        urls[-1] = urls[-1].replace("iscsi:", "iser:")
        run(BINARY, "attach", *urls, where, "--daemon", *state)
        kill_attached(state)
        run(BINARY, "detach", where, *state)
        for line in lines[1:]:
            line.flows.clear()
        begun = time.monotonic()
        run(BINARY, "attach", urls[0], where, "--daemon", *state)
        need(time.monotonic() - begun < 10, "it waits for each path that is away")
        need(len(os.listdir(f"{folder}/attached/sessions")) == 1, "others are left")
        run(BINARY, "detach", where, *state)
    print("attach: paths of a killed one that are away are not waited for")


# Reads in an outage with an alarm every 50 ms, which interrupts no request; exit status 0: it read.
ALARMED = """
import ctypes, os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: None)
file = os.open(sys.argv[1], os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
print("begins", flush=True)
done = libc.pread(file, ctypes.create_string_buffer(4096), ctypes.c_size_t(4096), ctypes.c_long(0))
signal.setitimer(signal.ITIMER_REAL, 0)
sys.exit(0 if done == 4096 else f"{done}, {ctypes.get_errno()}")
"""


def waits(process, path):
    """Until it has the file open and sleeps."""
    deadline, asleep = time.monotonic() + SECONDS, 0
    while asleep < 5:
        need(process.poll() is None and time.monotonic() < deadline, f"{process.args} does not wait")
        with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
            state = file.read().rsplit(")", 1)[1].split()[0]
        files = glob.glob(f"/proc/{process.pid}/fd/*")
        is_open = any(os.path.realpath(file) == path for file in files)
        asleep = asleep + 1 if is_open and state in "SD" else 0
        time.sleep(0.02)


# Has 64 writes of 1 MiB wait, which is more than there is room for.
WRITER = """
import os, sys, threading
file, data = os.open(sys.argv[1], os.O_WRONLY), bytes(1 << 20)
for at in range(64):
    threading.Thread(target=os.pwrite, args=(file, data, at << 20)).start()
print("begun", flush=True)
"""


def dies(path):
    """So does who waits for room, and who has taken it."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
    need(writer.stdout.readline() == b"begun\n", "it does not begin")
    time.sleep(0.5)
    writer.kill()
    # With all its threads.
    need(select.select([writer.stdout], [], [], SECONDS)[0], "it cannot be killed")
    writer.wait(timeout=SECONDS)
    need(os.path.exists(path), "nobody asks for requests any more")


def killed(folder):
    """Who waits for a target that is away can be killed, and is not disturbed by other signals."""
    where = folder_at(f"{folder}/killed")
    store, listen = f"file:{folder}/killed.img,size={DISK}", f"127.0.0.1:{server.free_port()}"
    target = server.start(store, listen=listen)
    try:
        with Attached(target.url, where, "--io-timeout", "0") as disk:
            target.kill()
            alarmed = subprocess.Popen([sys.executable, "-c", ALARMED, disk.path],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            need(alarmed.stdout.readline() == "begins\n", "it does not begin")
            waits(alarmed, disk.path)
            for number in [signal.SIGTERM, signal.SIGKILL]:
                for arguments in [[f"if={disk.path}", "of=/dev/null", "count=1"],
                                  ["if=/dev/zero", f"of={disk.path}", "count=1", "conv=notrunc"],
                                  ["if=/dev/null", f"of={disk.path}", "conv=notrunc,fsync"]]:
                    process = subprocess.Popen(["dd", "bs=4k", *arguments],
                                               stderr=subprocess.DEVNULL)
                    waits(process, disk.path)
                    process.send_signal(number)
                    need(process.wait(timeout=SECONDS) == -number, f"it ended otherwise: {process}")
            dies(disk.path)
            need(alarmed.poll() is None, "an alarm interrupted it")
            target = server.start(store, listen=listen)
            said = alarmed.communicate(timeout=SECONDS)[1]
            need(alarmed.returncode == 0, f"it did not read: {said}")
            with open(disk.path, "rb") as file:
                need(file.read(4096) == bytes(4096), "other bytes")
            disk.stop()
    finally:
        target.kill()
    print("attach: who waits for a target can be killed, and nobody else is disturbed")


def bound(folder):
    """Who has mounted it elsewhere uses it; what was cleaned away is written again."""
    if os.geteuid() != 0:
        print("LEFT OUT: a mount of the file elsewhere, as only root mounts", flush=True)
        return
    where, state = folder_at(f"{folder}/bound"), state_of(folder)
    other = folder_at(f"{folder}/elsewhere")
    with server.start("memory:16M") as target:
        run(BINARY, "attach", target.url, where, "--daemon", *state)
        run("mount", "--bind", where, other)
        try:
            run(BINARY, "detach", where, *state, status=1, words=f"the mount of it at {other}")
            with open(f"{other}/disk", "rb") as file:
                file.read(1)
        finally:
            run("umount", other)
        os.remove(f"{folder}/attached/disk-0.json")
        deadline = time.monotonic() + SECONDS
        while not os.path.exists(f"{folder}/attached/disk-0.json"):
            need(time.monotonic() < deadline, "it is not written down again")
            time.sleep(0.1)
        run(BINARY, "detach", where, *state, words="no more")
    print("attach: who has mounted the file elsewhere is told of")


def covered(folder):
    """What others have mounted over it is neither taken away nor taken for it."""
    if os.geteuid() != 0:
        print("LEFT OUT: what is mounted over the file, as only root mounts", flush=True)
        return
    where, state = folder_at(f"{folder}/covered"), state_of(folder)
    with server.start("memory:16M") as target:
        run(BINARY, "attach", target.url, where, "--daemon", *state)
        run("mount", "-t", "tmpfs", "none", where)
        try:
            with open(f"{where}/theirs", "w", encoding="ascii") as file:
                file.write("precious")
            run(BINARY, "detach", where, *state, status=1, words="the tmpfs that is mounted over it")
            run(BINARY, "detach", where, "--force", *state, words="the tmpfs that is mounted over")
            with open(f"{where}/theirs", encoding="ascii") as file:
                need(file.read() == "precious", "other data is there")
        finally:
            run("umount", where)
        run("umount", where)
    print("attach: what is mounted over the file is not ours to be taken away")


def loops(folder):
    """A loop device: a file system of the system's, made, filled, trimmed and checked."""
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        print("LEFT OUT: loop devices, because this machine has none, or not for us", flush=True)
        return
    state, mount = state_of(folder), folder_at(f"{folder}/loop")
    store = f"file:{folder}/loop.img,size={4 * DISK}"
    with server.start(store) as target:
        attach = [BINARY, "attach", target.url, "--loop", "--daemon", "--json", *state]
        device = json.loads(run(*attach))["loop"]
        try:
            with open(f"/sys/block/{device[5:]}/loop/dio") as file:
                need(file.read() == "1\n", "the system caches the file")
            run("mkfs.ext4", "-q", device)
            run("mount", device, mount)
            data = os.urandom(20 * MIB)
            with open(f"{mount}/file", "wb") as file:
                file.write(data)
                os.fsync(file.fileno())
            run(BINARY, "detach", device, *state, status=1, words=f"the file system on {mount}")
            # Who uses it is named by one who waits for the target, too.
            run("dd", "if=/dev/zero", f"of={mount}/unflushed", "bs=1M", "count=1", "oflag=direct")
            os.kill(target.pid, signal.SIGSTOP)
            try:
                said = run(BINARY, "detach", device, *state, status=1, words="a flush for 5 s")
                need(f"the file system on {mount}" in said, said)
            finally:
                os.kill(target.pid, signal.SIGCONT)
            with open(f"{mount}/gone", "wb") as file:
                file.write(bytes(MIB) + data)
            os.remove(f"{mount}/gone")
            run("fstrim", mount)
            run("umount", mount)
            run("e2fsck", "-f", "-n", device)
            run(BINARY, "detach", "disk-0", *state)
            need(not os.path.exists(f"/sys/block/{device[5:]}/loop/backing_file"), "it is there")
            # Trimmed: what was removed has no space.
            used = os.stat(f"{folder}/loop.img").st_blocks * 512
            need(used < 40 * MIB, f"{used} bytes are in use")
            device = json.loads(run(*attach))["loop"]
            target.order("lun", "resize", "0", str(8 * DISK))
            deadline = time.monotonic() + SECONDS
            while run("blockdev", "--getsize64", device) != f"{8 * DISK}\n":
                need(time.monotonic() < deadline, "the device did not grow, though nobody uses it")
                time.sleep(0.1)
            run("mount", device, mount)
            with open(f"{mount}/file", "rb") as file:
                need(file.read() == data, "the file has other bytes")
            run("umount", mount)
            kill_attached(state)
            run(BINARY, "attached", *state, words="taken away")
            need(not os.path.exists(f"/sys/block/{device[5:]}/loop/backing_file"), "it is there")
        finally:
            subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL)
    blocks(folder, state)
    begins(folder, state)
    print("attach: a loop device keeps a file system, and goes in order")


def blocks(folder, state):
    """The device has the blocks of the disk."""
    config = f"{folder}/blocks.toml"
    with open(config, "w", encoding="ascii") as file:
        file.write(f"""
listen = ["127.0.0.1:0"]
[[target]]
name = "{server.IQN}"
[[target.lun]]
store = "memory:16M"
block = 4096
""")
    with server.serve_config(config) as target:
        told = json.loads(run(BINARY, "attach", target.url, "--loop", "--daemon", "--json", *state))
        with open(f"/sys/block/{told['loop'][5:]}/queue/logical_block_size") as file:
            size = file.read()
        run(BINARY, "detach", told["loop"], *state)
        need(size == "4096\n", f"{told['loop']} has blocks of {size}")


def begins(folder, state):
    """The target does not answer what the system asks while the device is made: an end is an end,
    and others have their devices."""
    for number in [signal.SIGTERM, signal.SIGKILL]:
        with server.start("memory:16M,delay=5s") as target:
            process = subprocess.Popen([BINARY, "attach", target.url, "--loop", *state],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + SECONDS
            while not os.path.ismount(f"{folder}/attached/disk-0.mount"):
                need(time.monotonic() < deadline, "it does not begin")
                time.sleep(0.05)
            time.sleep(0.5)
            process.send_signal(number)
            # Should this fail: echo 1 > /sys/fs/fuse/connections/N/abort.
            process.wait(timeout=SECONDS)
            need(number == signal.SIGKILL or os.listdir(f"{folder}/attached") == [],
                 "it left something")
        with server.start("memory:16M") as target:
            told = json.loads(run(BINARY, "attach", target.url, "--loop", "--daemon", "--json",
                                  *state))
            run(BINARY, "detach", told["loop"], *state)
            need(told["name"] == "disk-0" and os.listdir(f"{folder}/attached") == [],
                 "it left something")


# A device that everybody may open, where this machine's is root's alone, for this test alone.
EVERYBODY = """
mknod -m 666 "$1/fuse" c 10 229 && mount --bind "$1/fuse" /dev/fuse || exit 77
chown 65534:65534 "$1/mine" && shift
exec "$@"
"""
USE = """
set -e
"$1" attach "$2" "$3" > "$3.out" 2>&1 &
for _ in $(seq 200); do [ -e "$3/disk" ] && break; kill -0 $! ; sleep 0.05; done
printf hello | dd of="$3/disk" bs=5 seek=1000 conv=notrunc,fsync status=none
[ "$(dd if="$3/disk" bs=5 skip=1000 count=1 status=none)" = hello ]
[ "$(stat -c %u "$3/disk")" = "$(id -u)" ]
kill "$!"
wait "$!"
[ ! -e "$3/disk" ]
"""
PLAIN = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
BARE = [*PLAIN, "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]


def unprivileged(folder):
    """A user mounts by fusermount3; one without any privilege in a user namespace of his own."""
    os.chmod(folder, 0o755)
    mine = folder_at(f"{folder}/nobody")
    kinds = {"fusermount3": PLAIN, "a user namespace": [*BARE, "unshare", "-rm"]}
    with server.start("memory:16M") as target:
        for number, (kind, prefix) in enumerate(kinds.items()):
            for name in ["fuse", "mine"]:
                subprocess.run(["rm", "-rf", f"{mine}/{name}"], check=True)
            where = folder_at(folder_at(f"{mine}/mine") + f"/{number}")
            os.chown(where, NOBODY, NOBODY)
            command = ["unshare", "-m", "sh", "-c", EVERYBODY, "sh", mine, *prefix,
                       "sh", "-c", USE, "sh", BINARY, target.url, where]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
            if done.returncode == 77:
                print(f"LEFT OUT: FUSE by {kind}: no device can be made: {done.stdout}", flush=True)
                continue
            said = ""
            if os.path.exists(f"{where}.out"):
                with open(f"{where}.out") as file:
                    said = file.read()
            need(done.returncode == 0, f"{kind}: {done.returncode} {done.stdout} {said}")
            print(f"attach: nobody can have the file, by {kind}")
        # Without the helper and without rights.
        where = folder_at(f"{mine}/mine/none")
        os.chown(where, NOBODY, NOBODY)
        bare = ["unshare", "-m", "sh", "-c", EVERYBODY, "sh", f"{mine}", *BARE]
        os.remove(f"{mine}/fuse")
        run(*bare, "env", "PATH=/nowhere", BINARY, "attach", target.url, where, status=1,
            words="the package fuse3")
    print("attach: without a right to mount it says what is missing")


def what_is_wrong(folder):
    state = state_of(folder)
    full, empty = folder_at(f"{folder}/full"), folder_at(f"{folder}/empty")
    with open(f"{full}/file", "w", encoding="ascii") as file:
        file.write("precious")
    with server.start("memory:16M") as target:
        url = target.url
        for words, status, arguments in [
                ("where?", 2, [url]),
                ("exclude each other", 2, [url, empty, "--nbd", f"{folder}/x"]),
                ("exclude each other", 2, [url, empty, "--loop"]),
                ("--nbd", 2, [url, empty, "--name", "other"]),
                ("least-queued", 2, [url, empty, "--paths", "any"]),
                ("mkdir -p", 1, [url, f"{folder}/missing"]),
                ("not empty", 1, [url, full]),
                ("no directory", 1, [url, f"{full}/file"]),
                ("letters, digits", 2, [url, empty, "--as", "a/b", *state]),
                ("cannot make", 1, [url, empty, "--state-dir", f"{full}/file/x"]),
                ("no such logical unit", 1, [f"{url[:-1]}7", empty])]:
            run(BINARY, "attach", *arguments, status=status, words=words)
        # No FUSE, and none for us.
        hidden = folder_at(f"{folder}/hidden")
        instead = ["unshare", "-m", "sh", "-c", "mount --bind $1 $2 && shift 2 && exec \"$@\"", "sh"]
        run(*instead, hidden, "/dev", BINARY, "attach", url, empty, status=1,
            words="modprobe fuse")
        if os.path.exists("/dev/loop-control"):
            run(*instead, "/dev/null", "/dev/loop-control", BINARY, "attach", url, "--loop", *state,
                status=1, words="/dev/loop-control")
            run(*PLAIN, BINARY, "attach", url, "--loop", *state, status=1,
                words="try: as root, or a directory")
        need(os.listdir(empty) == [] and os.listdir(full) == ["file"], "something is left")
        need(not os.path.ismount(f"{folder}/attached/disk-0.mount"), "a mount is left")
    print("attach: what is wrong with a file or a loop device is said, and nothing is left")


def test(folder, restarts):
    """All of it; `folder`: empty."""
    if not os.path.exists("/dev/fuse"):
        print("LEFT OUT: FUSE, because this machine has none", flush=True)
        return
    try:
        for engine in server.engines():
            programs(folder, engine)
        sizes(folder)
        several(folder)
        killed(folder)
        late(folder)
        dead_paths(folder)
        background(folder)
        troubled(folder)
        unflushed(folder)
        at_once(folder)
        hostile(folder)
        covered(folder)
        bound(folder)
        loops(folder)
        what_is_wrong(folder)
        unprivileged(folder)
        loses(folder)
        durable(folder)
        power_losses(folder, restarts)
        outages(folder, restarts)
    finally:
        leave_nothing(state_of(folder))


def guard(folder):
    """Should this script be killed, what it has in the background goes, too: another process waits
    for its end."""
    ours, theirs = os.pipe()
    if os.fork():
        # Closed when this process ends, however it does; its children do not inherit it.
        os.close(ours)
        return
    try:
        os.setsid()
        os.close(theirs)
        os.read(ours, 1)
        end_all(folder)
    finally:
        os._exit(0)


def end_all(folder):
    """kill -9 of what is attached, and away with what that leaves behind."""
    for name in glob.glob(f"{glob.escape(folder)}/attached/*.json"):
        with open(name) as file:
            one = json.load(file)
        # The number of a process that is gone may be another one's.
        with contextlib.suppress(OSError), open(f"/proc/{one['pid']}/cmdline") as file:
            if f"{folder}/attached" in file.read():
                os.kill(one["pid"], signal.SIGKILL)
    with open("/proc/self/mounts") as file:
        mounts = [line.split()[1] for line in file]
    for mount in [one for one in mounts if one.startswith(f"{folder}/")]:
        for device in glob.glob("/sys/block/loop*/loop/backing_file"):
            with contextlib.suppress(OSError), open(device) as file:
                if file.read().startswith(f"{mount}/"):
                    subprocess.run(["losetup", "-d", f"/dev/{device.split('/')[3]}"])
        subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL)
    shutil.rmtree(folder, ignore_errors=True)


def leave_nothing(state):
    """Ends what runs in the background after a test that has failed."""
    listing = subprocess.run([BINARY, "attached", "--json", *state], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    told = json.loads(listing.stdout)
    for one in told["attached"]:
        subprocess.run([BINARY, "detach", one["name"], "--force", *state],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=SECONDS)
