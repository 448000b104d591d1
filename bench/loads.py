# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The initiators that `bench/run` puts on a server, and the raw server."""
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

import server

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RAW = f"{ROOT}/target/bench-raw/release/lunwire-bench-raw"
# Of one initiator process; the longest case takes a few seconds.
INITIATOR_SECONDS_MAX = 120
# Blocks between two requests of qemu-img, which knows no random order: odd, so all blocks come.
QEMU_LEAP = 99991


class Raw(server.Target):
    """Frames of the same sizes over our own engine, without a protocol."""

    def __init__(self, prefix, engine):
        super().__init__()
        self.log = tempfile.NamedTemporaryFile(prefix="lunwire-raw-", suffix=".log")
        self.process = subprocess.Popen(
            [*prefix, RAW, "serve", "--engine", engine], stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=self.log, preexec_fn=server.die_with_parent)
        self.urls[0] = self.process.stdout.readline().removeprefix("serving ").strip()
        if not self.url:
            raise RuntimeError(f"the raw server did not start\n{self.log_tail()}")

    def stop(self):
        self.kill()


def build_raw():
    subprocess.run(["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path",
                    f"{ROOT}/bench/raw/Cargo.toml", "--target-dir", f"{ROOT}/target/bench-raw"],
                   check=True)


def worked(target):
    """Processor time that a server needed so far. One that never sleeps says itself how much."""
    return target.busy_seconds() if hasattr(target, "busy_seconds") else spent(target.pid)


def spent(pid):
    """Processor time of a process, of threads that have ended too, in seconds to the nanosecond."""
    # clock_getcpuclockid(3), which Python does not have.
    process = (~pid << 3) | 2
    return time.clock_gettime(process)


def initiators(options, *commands):
    """Outputs, wall seconds and processor seconds of initiator processes, side by side."""
    pinned = ["taskset", "-c", str(options.initiator_cpu)]
    for last in (False, True):
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        running = [subprocess.Popen([*pinned, *command], stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    preexec_fn=server.die_with_parent) for command in commands]
        try:
            outputs = [process.communicate(timeout=INITIATOR_SECONDS_MAX)[0]
                       for process in running]
            break
        except subprocess.TimeoutExpired:
            for process in running:
                process.kill()
                process.wait()
            # iscsi-perf ends only if an answer comes within its last second; where either side
            # was held up that long it reads for ever. That says nothing about the server.
            if last or commands[0][0] != "iscsi-perf":
                raise
            print("bench: iscsi-perf missed its end and is run again", file=sys.stderr)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    texts = [output.decode(errors="replace") for output in outputs]
    for process, command, text in zip(running, commands, texts):
        if process.returncode != 0:
            raise RuntimeError(
                f"status {process.returncode}: {' '.join(command)}\n{text[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return texts, wall, cpu


def by_perf(options, target, case):
    """libiscsi's iscsi-perf: reads alone."""
    seconds = max(1, round(options.seconds))
    command = ["iscsi-perf", "-m", str(case.depth), "-b", str(case.block // 512), "-t",
               str(seconds), *(["-r"] if case.random else []), target.url]
    texts, wall, cpu = initiators(options, *[command] * case.sessions)
    rate = sum(float(re.findall(r"iops average (\d+)", text)[-1]) for text in texts)
    return {"rate": rate, "requests": rate * seconds, "wall": wall, "initiator_cpu": cpu,
            "initiator_wall": wall}


def by_qemu(options, target, case):
    """QEMU's qemu-img bench over libiscsi; so many requests as take about the wanted time."""
    count = options.counts.get(case.name, case.depth * 64)
    words = ["qemu-img", "bench", *(["-w"] if case.write else []), "-f", "raw", "-t", "none", "-s",
             str(case.block), "-d", str(case.depth), "-c", str(count)]
    if case.random:
        words += ["-S", str(QEMU_LEAP * case.block)]
    texts, wall, cpu = initiators(options, [*words, target.url])
    seconds = float(re.search(r"completed in ([\d.]+) seconds", texts[0])[1])
    return {"rate": count / seconds, "requests": count, "wall": wall, "initiator_cpu": cpu,
            "initiator_wall": wall}


def by_lunwire(options, target, case, *more):
    """Our own initiator. Its processor time is that of the measurement, without login."""
    digest = "required" if case.digests else "off"
    binary = os.environ.get("LUNWIRE", f"{ROOT}/target/release/lunwire")
    url = getattr(target, "digest_url", target.url) if case.digests else target.url
    command = [binary, "bench", url, "--json", "--time", f"{options.seconds * 1000:.0f}ms",
               "--block", str(case.block), "--depth", str(case.depth * case.sessions),
               "--sessions", str(case.sessions), "--header-digest", digest, "--data-digest",
               digest, "--engine", options.engine]
    command += ["--reads", "0", "--destroy-data"] if case.write else []
    command += [] if case.random else ["--sequential"]
    texts, wall, _ = initiators(options, [*command, *more])
    result = json.loads(texts[0])
    return own_sample(result["results"][0], wall) | {"result": result}


def by_raw(options, target, case):
    """The raw server's own load."""
    command = [RAW, "load", target.url, "--engine", options.engine, "--block", str(case.block),
               "--depth", str(case.depth), "--connections", str(case.sessions), "--seconds",
               str(options.seconds)]
    command += ["--write"] if case.write else []
    command += [] if case.random else ["--sequential"]
    texts, wall, _ = initiators(options, command)
    return own_sample(json.loads(texts[0]), wall)


def own_sample(result, wall):
    latency = result["latency_ns"]
    sample = {"rate": result["requests_per_second"], "requests": result["requests"], "wall": wall,
              "initiator_cpu": result["cpu_seconds"], "initiator_wall": result["seconds"],
              "latency_us": latency["mean"] / 1000}
    if "percentiles" in latency:
        sample["p99_us"] = latency["percentiles"]["p99"] / 1000
    return sample


LOADS = {"perf": by_perf, "qemu": by_qemu, "lunwire": by_lunwire, "raw": by_raw}


def measure(options, target, case, load):
    """One run of one case: what the reports need, as a dictionary of numbers."""
    cpu = worked(target)
    sample = LOADS[load](options, target, case)
    cpu = worked(target) - cpu
    requests, rate = sample["requests"], sample["rate"]
    numbers = {
        "rate": rate, "mb_per_s": rate * case.block / 1e6,
        "target_us_per_io": cpu / requests * 1e6,
        "target_s_per_gb": cpu / (requests * case.block / 1e9),
        "target_share": cpu / sample["wall"],
        "initiator_us_per_io": sample["initiator_cpu"] / requests * 1e6,
        "initiator_share": sample["initiator_cpu"] / sample["initiator_wall"],
        "latency_us": sample.get("latency_us", case.depth * case.sessions / rate * 1e6),
    }
    if "p99_us" in sample:
        numbers["p99_us"] = sample["p99_us"]
    return numbers, sample.get("result")
