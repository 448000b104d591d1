# SPDX-License-Identifier: Apache-2.0 OR MIT
"""SPDK's iscsi_tgt beside ours, where somebody has built it: $PEERS/spdk/iscsi_tgt."""
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

import server

PEERS = os.environ.get("PEERS", os.path.expanduser("~/.cache/lunwire-peers"))
BINARY = f"{PEERS}/spdk/iscsi_tgt"
HUGE_PAGES = "/proc/sys/vm/nr_hugepages"
IQN = "iqn.2016-06.io.spdk:disk1"
DISK_MB, POOLS_MB, PAGE_MB = 1024, 1024, 2


def is_there():
    return os.access(BINARY, os.X_OK)


class Spdk(server.Target):
    """A malloc bdev of 1 GiB, SPDK's own defaults, on one core that it polls without a pause; in
    huge pages where the machine gives them."""

    def __init__(self, cpu):
        super().__init__()
        self.port = server.free_port()
        self.folder = tempfile.mkdtemp(prefix="lunwire-spdk-")
        self.log = tempfile.NamedTemporaryFile(prefix="lunwire-spdk-", suffix=".log")
        self.pages_before = None
        self.huge = self.reserve()
        with open(f"{self.folder}/conf.json", "w") as out:
            json.dump(self.configuration(), out)
        mount = f"{self.folder}/huge"
        memory = (["--huge-dir", mount, "--huge-unlink", "--iova-mode", "va"] if self.huge
                  else ["--no-huge"])
        self.process = subprocess.Popen(
            [BINARY, "-m", f"[{cpu}]", "-s", str(DISK_MB + POOLS_MB), "-u", *memory,
             "-r", self.control, "-c", f"{self.folder}/conf.json"],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            preexec_fn=server.die_with_parent)
        self.urls[0] = f"iscsi://{self.host}:{self.port}/{IQN}/0"
        self.wait_until_it_listens()

    @property
    def control(self):
        return f"{self.folder}/control.sock"

    def configuration(self):
        def method(called, /, **params):
            return {"method": called, "params": params}

        portal = {"host": self.host, "port": str(self.port)}
        return {"subsystems": [
            {"subsystem": "bdev", "config": [
                method("bdev_malloc_create", name="Malloc0", num_blocks=DISK_MB * 2048,
                       block_size=512)]},
            {"subsystem": "iscsi", "config": [
                method("iscsi_create_portal_group", tag=1, portals=[portal]),
                method("iscsi_create_initiator_group", tag=2, initiators=["ANY"],
                       netmasks=["127.0.0.0/8"]),
                method("iscsi_create_target_node", name="disk1", alias_name="disk1",
                       pg_ig_maps=[{"pg_tag": 1, "ig_tag": 2}],
                       luns=[{"bdev_name": "Malloc0", "lun_id": 0}], queue_depth=64,
                       disable_chap=True)]}]}

    def reserve(self):
        """Takes huge pages of the machine, and a place to find them; False if it gives none."""
        wanted = (DISK_MB + POOLS_MB) // PAGE_MB
        mount = f"{self.folder}/huge"
        os.mkdir(mount)
        try:
            with open(HUGE_PAGES) as setting:
                self.pages_before = int(setting.read())
            with open(HUGE_PAGES, "w") as setting:
                setting.write(str(self.pages_before + wanted))
        except OSError:
            return False
        with open("/proc/meminfo") as info:
            free = int(re.search(r"HugePages_Free:\s+(\d+)", info.read())[1])
        mounted = free >= wanted and subprocess.run(
            ["mount", "-t", "hugetlbfs", "-o", f"pagesize={PAGE_MB}M", "none", mount],
            check=False).returncode == 0
        if not mounted:
            self.give_back()
        return mounted

    def give_back(self):
        subprocess.run(["umount", f"{self.folder}/huge"], check=False,
                       stderr=subprocess.DEVNULL)
        if self.pages_before is not None:
            with open(HUGE_PAGES, "w") as setting:
                setting.write(str(self.pages_before))
            self.pages_before = None

    def wait_until_it_listens(self):
        end = time.monotonic() + server.START_SECONDS
        while time.monotonic() < end and self.alive():
            try:
                socket.create_connection((self.host, self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise RuntimeError("SPDK did not start")

    def busy_seconds(self):
        """Time in which its threads found something to do: its process always burns a core."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(5)
            control.connect(self.control)
            control.sendall(b'{"jsonrpc":"2.0","id":1,"method":"thread_get_stats"}')
            text = b""
            while True:
                part = control.recv(65536)
                text += part
                try:
                    answer = json.loads(text)["result"]
                    break
                except ValueError:
                    if not part:
                        raise
        return sum(thread["busy"] for thread in answer["threads"]) / answer["tick_rate"]

    def described(self):
        """What the head of the tables says of it."""
        text = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=False)
        version = re.search(r"v\d+\.\d+\S*", text.stdout + text.stderr)
        pages = "huge pages" if self.huge else "small pages"
        return f"SPDK {version[0] if version else 'of an unknown version'} with {pages}"

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(server.STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self.give_back()
        shutil.rmtree(self.folder, ignore_errors=True)
