# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A cluster of Ceph on the loopback address: one monitor and one OSD in memory, without keys.

    with cluster.start(folder) as ceph:
        ceph.rbd("create", "rbd/disk", "--size", "64M")

Its processes die with this one, and all that it keeps is below `folder`.
"""
import os
import re
import subprocess
import time
import uuid

import server

START_SECONDS = 60
STEP_SECONDS = 30
MEMORY = 2 << 30
CONFIGURATION = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{port}/0
ms bind ipv6 = false
public addr = 127.0.0.1
public network = 127.0.0.0/8
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
admin socket = {folder}/$name.$pid.asok
log file = {folder}/$name.log
crash dir = {folder}
keyring = {folder}/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data avail crit = 1
mon data avail warn = 2
[mon]
mon data = {folder}/mon
mon initial members = a
mon osd down out interval = 0
mon cluster log file = {folder}/cluster.log
paxos propose interval = 0.05
[osd]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = {memory}
memstore page set = {paged}
osd class load list = *
osd class default list = *
osd heartbeat grace = 600
# Who was killed keeps its locks for so long; 30 as a rule.
osd client watch timeout = 10
osd fast shutdown = true
"""


def threads_of(pid):
    return [f"/proc/{pid}/task/{number}/stat" for number in os.listdir(f"/proc/{pid}/task")]


def state_of(thread):
    with open(thread) as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]


class Cluster:
    def __init__(self, folder, paged):
        self.folder, self.conf = folder, f"{folder}/ceph.conf"
        self.processes = {}
        fsid, port = str(uuid.uuid4()), server.free_port()
        for name in ("mon", "osd"):
            os.makedirs(f"{folder}/{name}")
        with open(f"{folder}/keyring", "w"):
            pass
        with open(self.conf, "w") as file:
            file.write(CONFIGURATION.format(fsid=fsid, port=port, folder=folder, memory=MEMORY,
                                            paged=str(paged).lower()))
        self.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a",
                 f"[v2:127.0.0.1:{port}]", "--set-min-mon-release", "16", f"{folder}/monmap")
        self.run("ceph-mon", "-c", self.conf, "-i", "a", "--mkfs", "--monmap",
                 f"{folder}/monmap", "--keyring", f"{folder}/keyring")
        self.launch("mon")
        number = str(uuid.uuid4())
        self.patiently("osd", "new", number)
        self.run("ceph-osd", "-c", self.conf, "-i", "0", "--mkfs", "--osd-uuid", number,
                 "--no-mon-config")
        self.patiently("osd", "crush", "add", "osd.0", "1.0", "root=default", "host=here")
        self.launch("osd")
        self.wait_up()
        self.ceph("osd", "pool", "create", "rbd", "8", "8", "replicated")
        self.ceph("osd", "pool", "application", "enable", "rbd", "rbd")

    def run(self, *command, text=True):
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, timeout=STEP_SECONDS, text=text)
        if ended.returncode != 0:
            said = ended.stderr if text else ended.stderr.decode(errors="replace")
            raise RuntimeError(f"status {ended.returncode}: {' '.join(command)}\n{said}")
        return ended.stdout

    def ceph(self, *words):
        return self.run("ceph", "-c", self.conf, "--connect-timeout", "10", *words)

    def rbd(self, *words):
        return self.run("rbd", "-c", self.conf, *words)

    def export(self, image):
        """The bytes of an image, as Ceph's own client reads them."""
        return self.run("rbd", "-c", self.conf, "export", "--no-progress", image, "-", text=False)

    def patiently(self, *words):
        """What a monitor that has just begun may not answer yet."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self.ceph(*words)
            except (RuntimeError, subprocess.TimeoutExpired):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def launch(self, daemon):
        name = "a" if daemon == "mon" else "0"
        with open(f"{self.folder}/{daemon}.said", "ab") as said:
            self.processes[daemon] = subprocess.Popen(
                [f"ceph-{daemon}", "-f", "-c", self.conf, "-i", name], stdin=subprocess.DEVNULL,
                stdout=said, stderr=said, preexec_fn=server.die_with_parent)

    def halt(self, daemon):
        """It does not go on, as one whose host is gone: nobody is told. On a busy machine its threads
        go on for a while, and may answer what comes next."""
        process = self.processes[daemon]
        process.send_signal(19)
        deadline = time.monotonic() + STEP_SECONDS
        while not all(state_of(thread) == "T" for thread in threads_of(process.pid)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{daemon} does not stop")
            time.sleep(0.001)

    def go_on(self, daemon):
        self.processes[daemon].send_signal(18)

    def restart(self, daemon):
        """It ends in order (what it holds in memory is kept for the next one), and begins again."""
        if daemon == "osd":
            self.ceph("tell", "osd.0", "config", "set", "osd_fast_shutdown", "false")
        self.processes[daemon].terminate()
        self.processes[daemon].wait(STEP_SECONDS)
        self.launch(daemon)

    def wait_up(self):
        deadline = time.monotonic() + START_SECONDS
        while " 1 up" not in self.ceph("osd", "stat"):
            if time.monotonic() > deadline:
                raise RuntimeError("the OSD did not start")
            time.sleep(0.2)

    def shut_out(self, image):
        """The cluster takes nothing any more from who has the image open."""
        for client in re.findall(r"watcher=(\S+)", self.rbd("status", image)):
            self.ceph("osd", "blocklist", "add", client)

    def fill_at(self, *ratios):
        """What part of the OSD makes it nearly full, too full to take copies, and full."""
        for name, ratio in zip(("nearfull", "backfillfull", "full"), ratios):
            self.ceph("osd", f"set-{name}-ratio", f"{ratio:.6f}")

    def remove_by_force(self, image):
        """All objects of an image, as if nobody had it open."""
        number = re.search(r"id: (\S+)", self.rbd("info", image)).group(1)
        pool, name = image.split("/")
        objects = self.run("rados", "-c", self.conf, "-p", pool, "ls").split()
        for one in objects:
            if number in one or one == f"rbd_id.{name}":
                self.run("rados", "-c", self.conf, "-p", pool, "rm", one)

    def watchers(self, image):
        """How many clients have an image open."""
        return self.rbd("status", image).count("watcher=")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()


class Monitor:
    """A monitor that wants keys, and nothing behind it."""

    def __init__(self, folder):
        os.makedirs(f"{folder}/mon")
        self.conf, self.keyring = f"{folder}/ceph.conf", f"{folder}/keyring"
        fsid, port = str(uuid.uuid4()), server.free_port()
        text = CONFIGURATION.format(fsid=fsid, port=port, folder=folder, memory=MEMORY,
                                    paged="false")
        with open(self.conf, "w") as file:
            file.write(text.replace("required = none", "required = cephx"))
        for name in ("mon.", "client.admin", "client.lunwire"):
            subprocess.run(["ceph-authtool", self.keyring, "-n", name, "--gen-key", "--cap", "mon",
                            "allow *", *(["--create-keyring"] if name == "mon." else [])],
                           check=True, stdout=subprocess.DEVNULL)
        for command in (["monmaptool", "--create", "--fsid", fsid, "--addv", "a",
                         f"[v2:127.0.0.1:{port}]", "--set-min-mon-release", "16",
                         f"{folder}/monmap"],
                        ["ceph-mon", "-c", self.conf, "-i", "a", "--mkfs", "--monmap",
                         f"{folder}/monmap", "--keyring", self.keyring]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=STEP_SECONDS)
        self.log = open(f"{folder}/mon.said", "ab")
        self.process = subprocess.Popen(
            ["ceph-mon", "-f", "-c", self.conf, "-i", "a"], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log, preexec_fn=server.die_with_parent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()


def start(folder, paged=False):
    """`paged`: objects are pages of memory; without them each write into one makes it slower."""
    return Cluster(folder, paged)
