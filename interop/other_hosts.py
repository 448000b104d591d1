# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Other hosts at the target of a disk that is attached, for interop/attach: they reset it, and
reserve it for a while."""
import os
import random
import subprocess
import threading
import time

import client
import server
from attached import Attached, MIB, folder_at, need

DISK = 64 * MIB
RESETS = {"CLEAR TASK SET": 4, "LOGICAL UNIT RESET": 5, "TARGET WARM RESET": 6}
REGISTER, RESERVE, CLEAR = 0, 1, 3
WRITE_EXCLUSIVE = 1
KEY = 5


def other(target, port, number):
    session = client.Session(target.host, port, target.iqn, number,
                             initiator=f"iqn.2026-01.test.lunwire:other{number}")
    try:
        session.ready(target.lun)
    except client.CheckCondition:
        pass  # a unit attention
    return session


def resets(target, port, number, until):
    """Some hundred of each a second."""
    session = other(target, port, number)
    choose = random.Random(number)
    while time.monotonic() < until:
        session.manage(choose.choice(list(RESETS.values())), target.lun)
    session.close()


def reset(folder):
    """Over both paths, and at one disk of a stripe: nothing that was written fails or is lost."""
    port = server.free_port()
    with server.start(f"file:{folder}/reset.img,size={DISK}",
                      options=["--listen", f"127.0.0.1:{port}"]) as target, \
            server.start(f"file:{folder}/reset-2.img,size={DISK}") as second:
        ports = [target.port, port]
        paths = " ".join(f"iscsi://127.0.0.1:{one}/{target.iqn}/0" for one in ports)
        for place, url in enumerate([paths, f"stripe:64K({paths};{second.url})"]):
            where = folder_at(f"{folder}/reset-{place}")
            with Attached(url, where, "--state-dir", f"{folder}/state") as disk:
                load = subprocess.Popen(
                    ["fio", "--name=resets", "--ioengine=libaio", "--direct=1", "--rw=randwrite",
                     f"--filename={disk.path}", "--bsrange=4k-64k", "--blockalign=4k",
                     "--size=48M", "--iodepth=16", "--fsync=50", "--verify=crc32c",
                     "--verify_backlog=64", "--verify_fatal=1", "--verify_state_save=0",
                     "--loops=1000", "--runtime=8", "--time_based", "--output-format=terse"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True, preexec_fn=server.die_with_parent)
                time.sleep(1)
                until = time.monotonic() + 4
                hosts = [threading.Thread(target=resets, args=(target, one, 10 + number, until))
                         for number, one in enumerate(ports)]
                for host in hosts:
                    host.start()
                for host in hosts:
                    host.join()
                out = load.communicate(timeout=120)[0]
                need(load.returncode == 0, f"fio ended with {load.returncode}\n{out}")
                said = disk.stop()
                need("writing" in said and "may be lost" not in said, said)
    print("attach: resets of other hosts cost nothing that was written")


def out(session, lun, action, key=0, action_key=0, kind=0):
    data = key.to_bytes(8, "big") + action_key.to_bytes(8, "big") + bytes(8)
    session.command(bytes([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0]), lun, data=data)


def write(path, data, at=0):
    """Whether all of it was written, past the system's cache."""
    words = ["dd", f"of={path}", "bs=64k", f"seek={at >> 16}", "iflag=fullblock", "oflag=direct",
             "conv=notrunc", "status=none"]
    done = subprocess.run(words, input=data, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def reserved(folder):
    """What goes to a disk of a stripe that another host has reserved fails as long as that lasts,
    and what cannot be flushed meanwhile is not lost."""
    stores = [f"file:{folder}/reserved-{number}.img,size={DISK}" for number in range(2)]
    with server.start(stores[0]) as target, server.start(stores[1]) as second:
        where, url = folder_at(f"{folder}/reserved"), f"stripe:1M({target.url};{second.url})"
        with Attached(url, where, "--state-dir", f"{folder}/state", "--keep", "1M") as disk:
            # What lies on the first one, and is more than is kept without a flush.
            before, after = (random.Random(seed).randbytes(768 << 10) for seed in (3, 4))
            host = other(second, second.port, 7)
            out(host, second.lun, REGISTER, action_key=KEY)
            out(host, second.lun, RESERVE, KEY, kind=WRITE_EXCLUSIVE)
            until = time.monotonic() + 3
            while time.monotonic() < until:
                need(write(disk.path, before), "a write beside a reservation")
                need(not write(disk.path, bytes(MIB >> 4), MIB), "a write past a reservation")
            out(host, second.lun, CLEAR, KEY)
            host.close()
            for _ in range(8):
                need(write(disk.path, after), "a write behind it")
            with open(disk.path, "rb") as file:
                os.fsync(file.fileno())
                need(file.read(len(after)) == after, "other bytes are there")
            said = disk.stop()
            need("may be lost" not in said, said)
    print("attach: a reservation of another host is over when it is over")


def test(folder):
    reset(folder)
    reserved(folder)
