# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `bench/run` measures, and what is wanted of it."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    """One row. `least`: times tgt; `cost`: processor time per I/O, at most so many times tgt's;
    `raw`: at least that part of what the machine does without a protocol."""
    name: str
    block: int
    depth: int
    write: bool
    random: bool
    least: float
    cost: float
    raw: float
    # Which of libiscsi's tools is the load; None: our own initiator, of tgt too.
    tool: str
    sessions: int = 1
    digests: bool = False
    # Also by qemu-img, to compare initiators.
    also_qemu: bool = False

    @property
    def unit(self):
        return "IOPS" if self.block == 4096 else "MB/s"

    def shown(self, rate):
        return f"{rate:,.0f}" if self.block == 4096 else f"{rate * self.block / 1e6:,.0f}"


CASES = [
    Case("4 KiB random read, depth 1", 4 << 10, 1, False, True, 3.6, None, 0.80, "perf",
         also_qemu=True),
    Case("4 KiB random write, depth 1", 4 << 10, 1, True, True, 4.5, None, 0.75, "qemu"),
    Case("4 KiB random read, depth 32", 4 << 10, 32, False, True, 3.8, 0.15, 0.65, "perf",
         also_qemu=True),
    Case("4 KiB random write, depth 32", 4 << 10, 32, True, True, 2.1, 0.31, 0.60, "qemu"),
    Case("128 KiB sequential read, depth 8", 128 << 10, 8, False, False, 4.4, 0.18, 0.90, "perf"),
    Case("128 KiB sequential write, depth 8", 128 << 10, 8, True, False, 4.4, 0.17, 0.85, "qemu"),
    Case("1 MiB sequential read, depth 4", 1 << 20, 4, False, False, 5.6, 0.14, 0.92, "perf",
         also_qemu=True),
    Case("1 MiB sequential write, depth 4", 1 << 20, 4, True, False, 6.1, 0.13, 0.88, "qemu"),
    Case("4 sessions, 4 KiB random read, depth 32", 4 << 10, 32, False, True, 3.4, 0.17, 0.65,
         "perf", sessions=4),
    Case("both digests, 128 KiB sequential read, depth 8", 128 << 10, 8, False, False, 11, 0.06,
         0.80, None, digests=True),
    Case("both digests, 128 KiB sequential write, depth 8", 128 << 10, 8, True, False, 8, 0.11,
         0.75, None, digests=True),
]
READ_DEEP, READ_ONE = CASES[2], CASES[0]
READ_LARGE, WRITE_LARGE = CASES[6], CASES[7]

# Those of which it is shown where the time goes.
LAYERED = [CASES[2], CASES[3], CASES[4], CASES[5], CASES[9], CASES[10]]

# What is wanted of our initiator beside libiscsi.
INITIATOR_PER_CPU, INITIATOR_LATENCY, INITIATOR_LARGE = 1.5, 0.9, 1.3

# What is wanted beside SPDK: times its rate, of its busy processor time per I/O, of its p99.
SPDK_RATE, SPDK_COST, SPDK_P99 = 1.1, 1.0, 1.0
