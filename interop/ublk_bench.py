# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the cases of interop/ublk have in common: a guest, targets here, and our commands there."""
import json
import os

import guest
import server

MIB = 1 << 20
DISK = 400 * MIB
# In the guest.
BINARY = "/usr/local/bin/lunwire"
NAME = "disk-0"


class Wrong(AssertionError):
    """What a test has found."""


def need(truth, what):
    if not truth:
        raise Wrong(what)


class Bench:
    """A guest, and a target here with a disk in a file, which has a volatile cache."""

    def __init__(self, linux, folder):
        self.linux, self.folder, self.targets = linux, folder, []

    def target(self, name, size=DISK, listen="127.0.0.1:0", store=None, more=(), **options):
        store = store or f"file:{self.folder}/{name}.img,size={size}"
        words = ["--state-dir", f"{self.folder}/{name}.state", *more]
        return server.start(store, options=words, listen=listen, **options)

    @staticmethod
    def url(target):
        return target.url.replace("127.0.0.1", guest.HOST)

    def lunwire(self, *words, status=0, says=None):
        """What it printed, in the guest."""
        got, printed = self.linux.status(f"{BINARY} {' '.join(words)} 2>&1")
        need(got == status, f"{words}: status {got}, wanted {status}\n{printed}")
        need(says is None or says in printed, f"{words}: {printed!r} lacks {says!r}")
        return printed

    def attach(self, target, *options):
        """The device."""
        said = self.lunwire("attach", self.url(target), "--ublk", "--daemon", "--json", *options)
        return json.loads(said.strip().splitlines()[-1])["ublk"]

    def detach(self, what, *options, **wanted):
        return self.lunwire("detach", what, *options, **wanted)

    def attached(self):
        return json.loads(self.lunwire("attached", "--json").strip().splitlines()[-1])

    def pid(self, device):
        return next(one["pid"] for one in self.attached()["attached"] if one["place"] == device)

    def kill(self, device):
        """kill -9: its users wait from now on."""
        self.linux.run(f"kill -9 {self.pid(device)}")

    def linux_version(self):
        return tuple(int(part) for part in self.linux.run("uname -r").split(".")[:2])

    def queue(self, device, fact):
        return self.linux.run(f"cat /sys/block/{device[5:]}/queue/{fact}").strip()

    def allocated(self, name):
        return os.stat(f"{self.folder}/{name}.img").st_blocks * 512
