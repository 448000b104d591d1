# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs libiscsi's conformance suite, iscsi-test-cu, one test at a time: a failure must not spoil
the next test, and a server that hangs must not hold up the rest."""
import re
import subprocess

TEST_SECONDS = 30
OPTIONS = ["--dataloss", "--allow-sanitize"]


def names():
    """The names of all tests, as `iscsi-test-cu -l` prints them."""
    listing = subprocess.run(["iscsi-test-cu", "-l"], check=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True).stdout
    return [name.strip() for name in listing.splitlines() if name.count(".") == 2]


def run(test, *urls, environment=None):
    """pass, skip, fail or hang, and what was printed."""
    try:
        ended = subprocess.run(["iscsi-test-cu", *OPTIONS, "-V", f"--test={test}", *urls],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=TEST_SECONDS, env=environment)
    except subprocess.TimeoutExpired as late:
        return "hang", (late.stdout or b"").decode(errors="replace")
    output = ended.stdout.decode(errors="replace")
    counts = re.search(r"^\s*tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", output, re.M)
    if ended.returncode != 0 or not counts or int(counts[4]) != 0 or int(counts[2]) == 0:
        return "fail", output
    # What is said before the suite begins is about the target, not about the test.
    _, _, said = output.partition("\nSuite:")
    return ("skip" if "[SKIPPED]" in said else "pass"), output
