# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Starts a target for the interoperability tests and stops it again.

    with server.start("memory:256M", engine="uring") as target:
        run("iscsi-ls", "-s", target.portal_url)

The target is `target/release/lunwire` (variable LUNWIRE: another binary). With PEER=tgtd it
is Debian's tgtd instead, which is how a script proves that a failure is not its own.
"""
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IQN = "iqn.2026-01.test.lunwire:disk"
START_SECONDS = 20
STOP_SECONDS = 20
ORDER_SECONDS = 120
SERVING = re.compile(r"^serving (iscsi://(\S+):(\d+)/([^/\s]+)/(\d+))\s*$")
PR_SET_PDEATHSIG = 1
SYS_IO_URING_SETUP = 425


def die_with_parent(number=signal.SIGKILL):
    """A test that is killed takes its children with it: no process stays behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def size_of(text):
    """Bytes of `256M`, `1G`, `4096`."""
    unit = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1].upper())
    return int(text) if unit is None else int(text[:-1]) << unit


class Target:
    """What every kind of server offers: host, port, urls by LUN, process, stop and kill."""

    def __init__(self):
        self.host, self.port, self.urls, self.process = "127.0.0.1", None, {}, None
        self.log = None

    @property
    def url(self):
        return self.urls[min(self.urls)]

    @property
    def portal_url(self):
        return f"iscsi://{self.host}:{self.port}"

    @property
    def iqn(self):
        return self.url.split("/")[3]

    @property
    def pid(self):
        return self.process.pid

    @property
    def lun(self):
        return min(self.urls)

    def cpu_seconds(self):
        """Processor time so far, all threads, user and system."""
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        with open(f"/proc/{self.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        """kill -9: no farewell, no flush."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; a server that does not leave with status 0 in time is a failure."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the server did not stop on SIGTERM\n{self.log_tail()}") from None
        if status != 0:
            raise RuntimeError(f"the server ended with status {status}\n{self.log_tail()}")

    def log_tail(self, lines=30):
        self.log.flush()
        with open(self.log.name, errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        elif self.process.poll() is None:
            self.kill()
        if kind is not None and issubclass(kind, Exception):
            print(f"--- the server's log:\n{self.log_tail()}", file=sys.stderr)


class Lunwire(Target):
    def __init__(self, stores, engine, options, prefix, listen, environment, units=None):
        super().__init__()
        binary = os.environ.get("LUNWIRE", f"{ROOT}/target/release/lunwire")
        self.folder = tempfile.TemporaryDirectory(prefix="lunwire-test-")
        self.control_socket = f"{self.folder.name}/control"
        command = [*prefix, binary, "serve", "--control-socket", self.control_socket]
        if stores:
            command += ["--listen", listen, "--target", IQN]
        for store in stores:
            command += ["--lun", store]
        if engine == "amp":
            command += ["--mode", "amp"]
        elif engine:
            command += ["--engine", engine]
        self.log = tempfile.NamedTemporaryFile(prefix="lunwire-test-", suffix=".log")
        self.command, self.listen = [*command, *options], listen
        self.environment = {**os.environ, **environment}
        self.expected = len(stores) or units
        self.revive()

    def revive(self):
        """Starts it, again if it was killed, at the same place."""
        words = [f"{self.host}:{self.port}" if word == self.listen and self.port else word
                 for word in self.command]
        self.urls, self.ready = {}, threading.Event()
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True,
            preexec_fn=die_with_parent, env=self.environment)
        reader = threading.Thread(target=self.read_lines, daemon=True,
                                  args=(self.process.stdout, self.urls, self.ready))
        reader.start()
        self.ready.wait(START_SECONDS)
        if len(self.urls) < self.expected:
            if self.process.poll() is None:
                self.kill()
            raise RuntimeError(f"the server did not start: {' '.join(words)}\n{self.log_tail()}")

    def hand_over(self):
        """Another process takes over, at the same place; this one ends by itself."""
        before = self.process
        command = self.command
        self.command = [*command, "--take-over"]
        try:
            self.revive()
        finally:
            self.command = command
        status = before.wait(STOP_SECONDS)
        if status != 0:
            raise RuntimeError(f"the server before ended with {status}\n{self.log_tail()}")

    def order(self, *words):
        """What `lunwire WORDS` says of this daemon; an error if it refuses."""
        binary = os.environ.get("LUNWIRE", f"{ROOT}/target/release/lunwire")
        return subprocess.run([binary, *words, "--control-socket", self.control_socket], text=True,
                              check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              timeout=ORDER_SECONDS).stdout

    def sessions(self):
        """Those that are open, as `lunwire sessions --json` shows them."""
        listing = json.loads(self.order("sessions", "--json"))
        return listing["sessions"] if isinstance(listing, dict) else listing

    def read_lines(self, lines, urls, ready):
        for line in lines:
            match = SERVING.match(line)
            if match:
                url, host, port, _, lun = match.groups()
                self.host, self.port = host, int(port)
                urls[int(lun)] = url
            if len(urls) == self.expected:
                ready.set()
        ready.set()


class Tgtd(Target):
    """Debian's tgtd; `memory:` becomes a file in /dev/shm."""

    number = 0

    def __init__(self, stores, prefix, options):
        super().__init__()
        Tgtd.number += 1
        self.control = (os.getpid() * 8 + Tgtd.number) % 32768  # the range that tgtd takes
        self.port = free_port()
        self.log = tempfile.NamedTemporaryFile(prefix="tgtd-test-", suffix=".log")
        self.files, self.paths, self.stores = [], {}, stores
        self.command = [*prefix, "tgtd", "-f", "-C", str(self.control),
                        "--iscsi", f"portal=127.0.0.1:{self.port}", *options]
        self.revive()

    def revive(self):
        """Starts it, again if it was killed, with the same disks at the same place."""
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, preexec_fn=die_with_parent)
        try:
            self.wait_control()
            self.configure(self.stores)
        except Exception:
            self.process.kill()
            raise

    def wait_control(self):
        deadline = time.monotonic() + START_SECONDS
        while self.admin("--op", "show", "--mode", "sys", check=False) != 0:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"tgtd did not start\n{self.log_tail()}")
            time.sleep(0.05)

    def configure(self, stores):
        self.admin("--op", "new", "--mode", "target", "--tid", "1", "-T", IQN)
        for number, store in enumerate(stores, 1):
            if number not in self.paths:
                self.paths[number] = self.backing(store)
            self.admin("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun",
                       str(number), "-b", self.paths[number])
            self.urls[number] = f"{self.portal_url}/{IQN}/{number}"
        self.admin("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")

    def add_with_digests(self):
        """A second target of the same units whose logins must agree to both digests; its first
        disk's URL."""
        self.admin("--op", "new", "--mode", "target", "--tid", "2", "-T", f"{IQN}-digests")
        for number, path in self.paths.items():
            self.admin("--op", "new", "--mode", "logicalunit", "--tid", "2", "--lun",
                       str(number), "-b", path)
        for name in ("HeaderDigest", "DataDigest"):
            self.admin("--op", "update", "--mode", "target", "--tid", "2", "-n", name, "-v",
                       "CRC32C")
        self.admin("--op", "bind", "--mode", "target", "--tid", "2", "-I", "ALL")
        return f"{self.portal_url}/{IQN}-digests/{self.lun}"

    def backing(self, store):
        kind, _, argument = store.partition(":")
        path, *rest = argument.split(",")
        if kind != "memory":
            sizes = [option[5:] for option in rest if option.startswith("size=")]
            if sizes and not os.path.exists(path):
                with open(path, "wb") as disk:
                    disk.truncate(size_of(sizes[0]))
            return path
        disk = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="tgtd-test-")
        disk.truncate(size_of(path))
        self.files.append(disk)
        return disk.name

    def admin(self, *words, check=True):
        return subprocess.run(
            ["tgtadm", "-C", str(self.control), "--lld", "iscsi", *words],
            check=check, stdout=subprocess.DEVNULL,
            stderr=None if check else subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode

    def stop(self):
        """tgtd leaves on SIGTERM only when nobody is logged in."""
        self.process.kill()
        self.process.wait()


class Istgt(Target):
    """Debian's istgt, one disk of 64 MiB. `settings`: lines of its section Global, `unit`: of the
    target; `accounts`: lines of the group of accounts."""

    CONFIGURATION = """
[Global]
  NodeBase "{node}"
  PidFile {folder}/pid
  AuthFile {folder}/accounts
  MediaDirectory {folder}
  DiscoveryAuthMethod Auto
  MaxSessions 16
  MaxConnections 4
  DefaultTime2Wait 2
  DefaultTime2Retain 20
  {settings}
[UnitControl]
  AuthMethod None
  Portal UC1 127.0.0.1:{control}
  Netmask 127.0.0.1
[PortalGroup1]
  Portal DA1 127.0.0.1:{port}
[InitiatorGroup1]
  InitiatorName "ALL"
  Netmask 127.0.0.0/8
[LogicalUnit1]
  TargetName {name}
  Mapping PortalGroup1 InitiatorGroup1
  UnitType Disk
  {unit}
  LUN0 Storage {folder}/disk 64MB
"""

    def __init__(self, settings=(), unit=("AuthMethod None", "UseDigest Auto"), accounts=()):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="istgt-test-")
        folder, (node, name) = self.folder.name, IQN.split(":")
        self.port = free_port()
        with open(f"{folder}/disk", "wb") as disk:
            disk.truncate(64 << 20)
        with open(f"{folder}/accounts", "w") as file:
            file.write("\n  ".join(["[AuthGroup1]", *accounts, ""]))
        with open(f"{folder}/conf", "w") as file:
            file.write(self.CONFIGURATION.format(
                node=node, name=name, folder=folder, port=self.port, control=free_port(),
                settings="\n  ".join(settings), unit="\n  ".join(unit)))
        self.urls[0] = f"{self.portal_url}/{IQN}/0"
        self.log = tempfile.NamedTemporaryFile(prefix="istgt-test-", suffix=".log")
        self.revive()

    def revive(self):
        """Starts it, again if it was killed, with the same disk at the same place."""
        self.process = subprocess.Popen(
            ["/usr/sbin/istgt", "-D", "-c", f"{self.folder.name}/conf"], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log, preexec_fn=die_with_parent)
        self.wait_listening()

    def wait_listening(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((self.host, self.port)) == 0:
                    return
            if time.monotonic() > deadline or not self.alive():
                self.kill()
                raise RuntimeError(f"istgt did not start\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self):
        """It waits for its sessions as long as they like."""
        self.kill()


def start(*stores, engine=None, options=(), prefix=(), listen="127.0.0.1:0", environment=None,
          peer=None):
    """A running target. `prefix`: words before the command, for example taskset."""
    if (peer or os.environ.get("PEER", "lunwire")) == "tgtd":
        return Tgtd(stores, prefix, ())
    return Lunwire(stores, engine, options, prefix, listen, environment or {})


def serve_config(path, units=1):
    """A running target: the configuration file has one, with so many units."""
    return Lunwire((), None, ["--config", path], (), None, {}, units)


def uring_allowed():
    """Whether this machine lets a process have an io_uring; many containers do not."""
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(SYS_IO_URING_SETUP, 1, ctypes.create_string_buffer(120))
    if ring >= 0:
        os.close(ring)
    return ring >= 0


def engines(amp=False):
    """The engines to test, of those that this machine has; with `amp`, polling cores too, on the
    best of them. ENGINES asks for whatever it names."""
    wanted = os.environ.get("ENGINES", "uring epoll amp" if amp else "uring epoll").split()
    if "uring" in wanted and not uring_allowed():
        print("LEFT OUT: engine uring, because this machine forbids io_uring", flush=True)
        wanted.remove("uring")
    return wanted


def by_turns(variants, place):
    """Those of `variants` (engines, adapters, lengths of blocks) that the case at this place of a
    suite meets: all. Where TURN, a number, is set, it is one: the next variant for the next case,
    and the next one for the next number (`scripts/test --turns`)."""
    turn = os.environ.get("TURN")
    if not turn or not variants:
        return list(variants)
    return [variants[(int(turn) + place) % len(variants)]]


def matrix(folder, amp=()):
    """The servers that every client meets: (label, store, engine), `file:` in `folder`. Of stores
    named in `amp` also with polling cores. A store in STORES that is a whole word, such as
    `rbd:rbd/disk`, is served as it stands."""
    stores = os.environ.get("STORES", "file memory").split()
    for engine in engines(bool(amp)):
        for kind in stores:
            if engine == "amp" and amp and kind not in amp:
                continue
            if ":" in kind:
                yield f"{engine}/{kind.split(':')[0]}", kind, engine
            elif kind == "memory":
                yield f"{engine}/memory", "memory:256M", engine
            else:
                path = f"{folder}/{engine}.img"
                with open(path, "wb") as disk:
                    disk.truncate(256 << 20)
                yield f"{engine}/file", f"file:{path}", engine
