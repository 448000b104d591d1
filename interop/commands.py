# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Our client commands, run on the host against some target, and what must come of them."""
import contextlib
import json
import os
import subprocess

import guest
import server

LUNWIRE = os.environ.get("LUNWIRE", f"{server.ROOT}/target/release/lunwire")
STEP_SECONDS = 150
SIZE = 2 << 20
LOAD_SECONDS = 8


class Commands:
    """Files in a folder go to disks and come back."""

    def __init__(self, folder):
        self.folder, self.engine = folder, server.engines()[0]
        self.image, self.back = f"{folder}/image", f"{folder}/back"

    def write_secret(self, name, text):
        path = f"{self.folder}/{name}"
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
        return path

    def start(self, *words):
        return subprocess.Popen(
            [LUNWIRE, *words, "--engine", self.engine], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=server.die_with_parent)

    def finish(self, process, status=0):
        """Standard output, or that of errors; another exit status than `status` is a failure."""
        try:
            out, said = process.communicate(timeout=STEP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise guest.Failed(f"no end: {process.args}") from None
        if process.returncode != status:
            raise guest.Failed(f"{' '.join(process.args)}: status {process.returncode}, wanted "
                               f"{status}\n{said.decode()}")
        return out.decode() if status == 0 else said.decode()

    def run(self, *words, status=0):
        return self.finish(self.start(*words), status)

    def fill(self, size=SIZE):
        with open(self.image, "wb") as file:
            file.write(os.urandom(size))

    def compare(self, url, *options):
        length = os.path.getsize(self.image)
        self.run("read", url, self.back, "--length", str(length), "--quiet", "--overwrite",
                 *options)
        with open(self.image, "rb") as image, open(self.back, "rb") as back:
            if image.read() != back.read():
                raise guest.Failed(f"{url}: other bytes came back")

    def round_trip(self, url, *options, size=SIZE):
        self.fill(size)
        self.run("copy", self.image, url, "--verify", "--quiet", *options)
        self.compare(url, *options)

    @contextlib.contextmanager
    def checked_load(self, url, *options):
        """Goes on while something happens; every block that it reads must be the last one that was
        written there. Yields what it says at its end, which is filled in then."""
        load = self.start("bench", url, "--reads", "50", "--destroy-data", "--verify", "--range",
                          "8M", "--depth", "16", "--time", f"{LOAD_SECONDS}s", "--json", *options)
        result = {}
        try:
            yield result
        except BaseException:
            load.kill()
            raise
        result.update(json.loads(self.finish(load))["results"][0])
        if not result["checked_reads"]:
            raise guest.Failed(f"no read was checked: {result}")
