# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Our own load generator, every block of which is checked, while the target is killed again and
again."""
import json
import os
import subprocess
import time

import server

LUNWIRE = os.environ.get("LUNWIRE", f"{server.ROOT}/target/release/lunwire")
KILLS = 10
# Of the load for each kill, most of which the initiator waits (DefaultTime2Wait); what goes on
# before the kill; what must be left of it.
CYCLE_SECONDS, WORK_SECONDS, REST_SECONDS = 3, 0.2, 2
# A machine that is busy is no failure.
PATIENCE_SECONDS = 120


class Load:
    """Half reads, half writes, 32 at once; one that reads something wrong ends with a status."""

    def __init__(self, url, seconds, level=0):
        self.end = time.monotonic() + seconds
        self.process = subprocess.Popen(
            [LUNWIRE, "bench", url, "--reads", "50", "--destroy-data", "--verify", "--range",
             "16M", "--depth", "32", "--time", f"{seconds * 1000:.0f}ms", "--json",
             "--recovery-level", str(level)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=server.die_with_parent)

    def goes_on(self):
        """Whether it will still be there after a kill."""
        return self.process.poll() is None and time.monotonic() < self.end - REST_SECONDS

    def finish(self):
        """What it says at its end."""
        out, said = self.process.communicate(timeout=4 * PATIENCE_SECONDS)
        if self.process.returncode != 0:
            raise AssertionError(f"the load: status {self.process.returncode}\n{said}")
        return json.loads(out)["results"][0]


def kill_when_busy(target, path, load):
    """True if the target was killed, and started again, in the middle of the load: `path`, the file
    behind the disk, is being written."""
    deadline, before = time.monotonic() + PATIENCE_SECONDS, os.stat(path).st_mtime_ns
    while os.stat(path).st_mtime_ns == before:
        if not load.goes_on():
            return False
        if time.monotonic() > deadline:
            raise AssertionError("nobody came back")
        time.sleep(0.01)
    time.sleep(WORK_SECONDS)
    if not load.goes_on():
        return False
    target.kill()
    target.revive()
    return True


def outlived(target, path, kills=KILLS, url=None, level=0):
    """Kills the target, whose disk is the file `path`, under load; gives how many reads were
    checked. `level`: ErrorRecoveryLevel."""
    killed = checked = lost = 0
    while killed < kills:
        load, before = Load(url or target.url, max(kills, 3) * CYCLE_SECONDS, level), killed
        while killed < kills and kill_when_busy(target, path, load):
            killed += 1
        result = load.finish()
        checked, lost = checked + result["checked_reads"], lost + result["connections_lost"]
        if killed == before:
            raise AssertionError("the load ended before its time")
    # One that was about to log in again has not lost anything.
    if lost < kills // 2 or not checked:
        raise AssertionError(f"{lost} connections were lost, {checked} reads checked")
    return checked
