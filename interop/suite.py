# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs libiscsi's conformance suite, iscsi-test-cu, one test at a time: a failure must not spoil
the next test, and a server that hangs must not hold up the rest."""
import re
import subprocess

TEST_SECONDS = 60
OPTIONS = ["--dataloss", "--allow-sanitize"]


def names():
    """The names of all tests, as `iscsi-test-cu -l` prints them."""
    listing = subprocess.run(["iscsi-test-cu", "-l"], check=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True).stdout
    return [name.strip() for name in listing.splitlines() if name.count(".") == 2]


def verdict_of(status, output):
    """pass, skip, fail or hang (status None), and the line that says why."""
    if status is None:
        return "hang", "no end in time"
    counts = re.search(r"^\s*tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", output, re.M)
    if status != 0 or not counts or int(counts[4]) != 0 or int(counts[2]) == 0:
        lines = re.findall(r"\[FAILED\].*|^\s+\d+\. .*", output, re.M)
        return "fail", lines[0].strip() if lines else f"status {status}"
    # What is said before the suite begins is about the target, not about the test.
    _, _, said = output.partition("\nSuite:")
    skipped = re.findall(r"\[SKIPPED\].*", said)
    return ("skip", skipped[0]) if skipped else ("pass", "")


def run(test, *urls, environment=None, seconds=TEST_SECONDS):
    """pass, skip, fail or hang, what was printed, and the line of it that says why."""
    try:
        ended = subprocess.run(["iscsi-test-cu", *OPTIONS, "-V", f"--test={test}", *urls],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=seconds, env=environment)
        status, printed = ended.returncode, ended.stdout
    except subprocess.TimeoutExpired as late:
        status, printed = None, late.stdout or b""
    output = printed.decode(errors="replace")
    verdict, why = verdict_of(status, output)
    return verdict, output, why
