# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A Linux in a virtual machine (interop/vm) whose commands a test on the host gives.

    with guest.Guest() as linux:
        disk = linux.log_in(target)
        print(linux.run(f"sg_inq {disk.device}"))

One boot serves a whole script: the test holds both ends, the target's and the initiator's.
"""
import json
import os
import queue
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import server

HERE = os.path.dirname(os.path.abspath(__file__))
BOOT_SECONDS = 180
STEP_SECONDS = 240
# The guest sees 127.0.0.1 of the host here.
HOST = "10.0.2.2"
INITIATOR = "iqn.2026-01.test.lunwire:kernel"
# The initiator notices a dead peer in about 4 s, and waits for it for minutes.
PATIENT = {"REPLACEMENT_TIMEOUT": "300",
           "SETTINGS": "node.conn[0].timeo.noop_out_interval=2 "
                       "node.conn[0].timeo.noop_out_timeout=2"}
# 768 writes, 50 a second, each checked afterwards by the same process and by another one.
LOAD = ("fio --name=load --filename={disk} --size=6M --rw=randwrite --bs=8k --direct=1 "
        "--ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 --verify_dump=0 "
        "--randseed={seed}")
LOADED_SECONDS = 400


class Failed(Exception):
    """A command of the guest ended with another status than 0, or not in time."""


class Job:
    """A command that runs in the guest."""

    def __init__(self, port, command, environment):
        self.command = command
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        order = {"command": command, "environment": environment}
        self.connection.sendall(json.dumps(order).encode() + b"\n")

    def wait(self, seconds=STEP_SECONDS):
        """Exit status and what was printed; Failed when it takes longer."""
        parts, deadline = [], time.monotonic() + seconds
        with self.connection:
            while True:
                self.connection.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    part = self.connection.recv(1 << 16)
                except TimeoutError:
                    raise Failed(f"no end after {seconds} s: {self.command}") from None
                if not part:
                    break
                parts.append(part)
        status, _, printed = b"".join(parts).partition(b"\n")
        if not status:
            raise Failed(f"the guest hung up: {self.command}")
        return int(status), printed.decode(errors="replace")

    def must(self, seconds=STEP_SECONDS):
        """What was printed; Failed when the status is not 0."""
        status, printed = self.wait(seconds)
        if status != 0:
            raise Failed(f"status {status}: {self.command}\n{printed[-6000:]}")
        return printed

    def stop(self):
        """Hangs up, which ends the command."""
        self.connection.close()


class Session:
    """A session of the guest's kernel."""

    def __init__(self, guest, iqn, portal, iface, name):
        self.guest, self.iqn, self.portal, self.iface, self.name = guest, iqn, portal, iface, name

    @property
    def number(self):
        return int(self.name.removeprefix("session"))

    def disks(self, count=1):
        """Names of its block devices by LUN, when there are so many."""
        printed = self.guest.run(f"""
            . ./lib.sh
            within 120 eval '[ $(disks {self.name} | wc -l) -ge {count} ]'
            udevadm settle --timeout=60 > /dev/null 2>&1 || true
            disks {self.name}""")
        return [f"/dev/{name}" for name in printed.split()]

    @property
    def device(self):
        return self.disks()[0]

    def state(self):
        return self.guest.run(f"cat /sys/class/iscsi_session/{self.name}/state").strip()

    def log_out(self):
        self.guest.run(f"iscsiadm -m node -T {self.iqn} -p {self.portal} -I {self.iface} --logout")


class Guest:
    """A booted guest with iscsid; processes and machine end with it."""

    def __init__(self, seconds=1800, memory=1024, forward=None, share=None, recent=False):
        """`forward`: ports of the host, each with the port of the guest that it leads to; `share`:
        a folder that is /share there; `recent`: the kernel of the next Debian."""
        self.port = server.free_port()
        forwards = [word for host, inner in {self.port: 7000, **(forward or {})}.items()
                    for word in ("--forward", f"{host}:{inner}")]
        shared = ["--share", share] if share else []
        kernel = ["--recent"] if recent else []
        self.log = tempfile.NamedTemporaryFile(prefix="lunwire-guest-", suffix=".log")
        self.machine = subprocess.Popen(
            [f"{HERE}/vm/vm-run", "--time", str(seconds), "--mem", str(memory), "--log",
             self.log.name, *forwards, *shared, *kernel, f"{HERE}/vm/guest/agent.sh"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=lambda: server.die_with_parent(signal.SIGTERM))
        self.lines = queue.Queue()
        threading.Thread(target=self.read_lines, daemon=True).start()
        self.wait_ready()

    def read_lines(self):
        for line in self.machine.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def wait_ready(self):
        deadline, said = time.monotonic() + BOOT_SECONDS, []
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                self.stop()
                raise Failed(f"the guest did not start\n{''.join(said)}")
            if line.strip() == "READY":
                return
            said.append(line)

    def start(self, command, **environment):
        """Runs a command in the background."""
        return Job(self.port, command, environment)

    def run(self, command, seconds=STEP_SECONDS, **environment):
        """What the command printed; Failed when its status is not 0."""
        return self.start(command, **environment).must(seconds)

    def status(self, command, seconds=STEP_SECONDS, **environment):
        """Exit status and what the command printed."""
        return self.start(command, **environment).wait(seconds)

    def log_in(self, target, port=None, iface="default", initiator=INITIATOR, iqn=None,
               **settings):
        """A session with `target`; `iface` is `default`, `iser` or one to make. Settings are
        variables of guest/lib.sh: HEADER_DIGEST, CHAP_USER, REPLACEMENT_TIMEOUT, SETTINGS ..."""
        portal = f"{HOST}:{port or target.port}"
        iqn = iqn or target.iqn
        ready = "" if iface in ("default", "iser") else f"""
            iscsiadm -m iface -I {iface} -o new > /dev/null
            iscsiadm -m iface -I {iface} -o update -n iface.initiatorname -v {initiator}"""
        printed = self.run(f"""
            . ./lib.sh
            pgrep -x iscsid > /dev/null || start_iscsid {INITIATOR}
            {ready}
            login {iqn} {portal} {iface}
            echo "session=$session" """, **settings)
        name = re.search(r"^session=(session\d+)$", printed, re.M)[1]
        return Session(self, iqn, portal, iface, name)

    def release(self, disk):
        """Takes a disk from the kernel's disk driver, which sends commands of its own; the name by
        which it is still there. What the driver would have been told next (a unit attention, where
        its session was there before) is heard."""
        return self.run(f"""set -e
            modprobe sg
            folder=$(readlink -f /sys/block/{os.path.basename(disk)}/device)
            udevadm settle --timeout=60 > /dev/null 2>&1 || true
            basename $folder > /sys/bus/scsi/drivers/sd/unbind
            sg=/dev/$(ls $folder/scsi_generic)
            for i in 1 2 3; do ! sg_turs $sg > /dev/null 2>&1 || break; done
            echo $sg""").strip()

    def take(self, sg):
        """Undoes `release`; the disk may have another name afterwards."""
        self.run(f"""set -e
            . ./lib.sh
            folder=$(readlink -f /sys/class/scsi_generic/{os.path.basename(sg)}/device)
            basename $folder > /sys/bus/scsi/drivers/sd/bind
            within 120 ls $folder/block""")

    def cut(self, port, how="drop"):
        """From now on no packet goes to or comes from this port of the host; `reject`: the
        guest's connections are reset at once instead."""
        verdict = "reject with tcp reset" if how == "reject" else "drop"
        self.run(f"""
            set -e
            nft add table ip cut{port}
            nft add chain ip cut{port} out '{{ type filter hook output priority 0; }}'
            nft add chain ip cut{port} in '{{ type filter hook input priority 0; }}'
            nft add rule ip cut{port} out ip daddr {HOST} tcp dport {port} {verdict}
            nft add rule ip cut{port} in ip saddr {HOST} tcp sport {port} drop""")

    def mend(self, port):
        """Undoes `cut`."""
        self.run(f"nft delete table ip cut{port}")

    def clean(self):
        """After a case that failed: no session, no rule, no load is left."""
        self.status("""
            . ./lib.sh; set +e; trap - ERR
            nft flush ruleset
            pkill -x fio; within 30 eval '! pgrep -x fio'
            ! pgrep -x multipathd || drop_maps
            umount -A -f /mnt/disk 2> /dev/null
            iscsiadm -m node --logoutall=all
            for session in $(ls /sys/class/iscsi_session); do
                iscsiadm -m session -r ${session#session} --logout
            done
            iscsiadm -m node -o delete""", STEP_SECONDS)

    def stuck(self):
        """The processes that wait in the kernel, and where."""
        return self.run("ps -eo pid,stat,wchan:30,args | awk 'NR == 1 || $2 ~ /^D/'")

    def kernel_log(self, lines=40):
        """Its last lines; those of the serial console when the guest is dead."""
        try:
            return self.run(f"dmesg | tail -n {lines}")
        except (OSError, Failed):
            with open(self.log.name, errors="replace") as log:
                return "the guest does not answer\n" + "".join(log.readlines()[-2 * lines:])

    def stop(self):
        self.machine.terminate()
        try:
            self.machine.wait(20)
        except subprocess.TimeoutExpired:
            self.machine.kill()
            self.machine.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Load:
    """Writes that go on in the guest."""

    def __init__(self, linux, session):
        self.linux, self.session, self.disk = linux, session, session.device
        self.command = LOAD.format(disk=self.disk, seed=session.number)
        self.job = linux.start(f"{self.command} --rate_iops=50 --do_verify=1")
        time.sleep(3)

    def lost(self):
        """How often the initiator lost its connection."""
        return int(self.linux.run(
            f"dmesg | grep -c 'connection{self.session.number}:0: detected conn error' || true"))

    def finish(self, noticed=True):
        """The load is done without error; another process reads what it wrote. `noticed`: the
        initiator lost its connection, rather than that it was asked to leave it."""
        self.job.must(LOADED_SECONDS)
        self.linux.run(f"blockdev --flushbufs {self.disk}; {self.command} --verify_only")
        if noticed and not self.lost():
            raise Failed("the initiator did not notice")


def within(seconds, said, condition):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"not within {seconds} s: {said}")
        time.sleep(0.2)


def build(*options):
    """Builds the machine if need be; root is needed once."""
    subprocess.run([f"{HERE}/vm/vm-build", *options], check=True, stdin=subprocess.DEVNULL)
