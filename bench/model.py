# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the target would do on machines that are not here: a model fitted to the runs.

A command costs its core `fixed + per byte * bytes`; cores add up but for a share of work that only
one of them can do at a time (Amdahl's law). Everything else that may limit (memory, the network
card's own work) is named in the text and left out.
"""
import random
import statistics

import cases
from report import table

# Shares of a command that only one core at a time can do: none (a hot path without shared state),
# and what would still pass unnoticed on two cores, where it costs half a percent.
SERIAL_SHARES = (0.0, 0.005)
# A network card is not loopback: its driver costs more, but nobody receives on our cores.
CARD_FACTORS = (0.75, 1.25)
# Bytes of 100 GbE in a second, and what is left of them for TCP's payload with frames of 1,500
# bytes: 1,448 of 1,538 on the wire.
ETHERNET = 12.5e9 * 1448 / 1538
HEADER = 48
CORES = (1, 8, 64)
DRAWS = 1000
SIZES = (4 << 10, 128 << 10, 1 << 20)


def points(samples, write):
    """{bytes: costs of the runs, in us} of the cases of one direction, without digests."""
    found = {}
    for case in cases.CASES:
        runs = samples.get(case.name, {}).get("lunwire by lunwire")
        deep = case.depth > 1 and case.sessions == 1 and not case.digests
        if runs and deep and case.write == write:
            found[case.block] = [run["target_us_per_io"] for run in runs]
    return found


def fit(costs):
    """(fixed, per byte) of {bytes: cost}, by least squares of relative errors."""
    weights = {size: 1 / cost ** 2 for size, cost in costs.items()}
    total = sum(weights.values())
    mean_size = sum(weights[size] * size for size in costs) / total
    mean_cost = sum(weights[size] * cost for size, cost in costs.items()) / total
    above = sum(weights[size] * (size - mean_size) * (cost - mean_cost)
                for size, cost in costs.items())
    below = sum(weights[size] * (size - mean_size) ** 2 for size in costs)
    per_byte = max(above / below, 0)
    return max(mean_cost - per_byte * mean_size, 0), per_byte


def draws(found):
    """Fits of runs drawn again and again: how far they spread is how far the fit is known."""
    source = random.Random(1)
    return [fit({size: statistics.median(source.choices(runs, k=len(runs)))
                 for size, runs in found.items()}) for _ in range(DRAWS)]


def interval(values):
    """The middle nine tenths."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[round(last * 0.05)], ordered[round(last * 0.95)]


def speedup(cores, serial):
    return cores / (1 + serial * (cores - 1))


def shown(rate, size):
    return f"{rate / 1e6:.2f} M" if size == 4096 else f"{rate * size / 1e9:.1f} GB/s"


def predicted(found, drawn, size, cores):
    """Low, middle and high rate."""
    costs = [fixed + per_byte * size for fixed, per_byte in drawn]
    low, high = interval(costs)
    fixed, per_byte = fit({size: statistics.median(runs) for size, runs in found.items()})
    middle = fixed + per_byte * size
    if cores == 1:
        return 1e6 / high, 1e6 / middle, 1e6 / low
    return (1e6 / (high * CARD_FACTORS[1]) * speedup(cores, SERIAL_SHARES[1]),
            1e6 / middle * speedup(cores, sum(SERIAL_SHARES) / 2),
            1e6 / (low * CARD_FACTORS[0]) * speedup(cores, SERIAL_SHARES[0]))


def text(samples):
    """The fit and what it predicts, as Markdown; empty where a direction was not measured."""
    fits, rows = [], []
    for write in (False, True):
        found = points(samples, write)
        if len(found) < 2:
            return ""
        name = "write" if write else "read"
        drawn = draws(found)
        fixed, per_byte = fit({size: statistics.median(runs) for size, runs in found.items()})
        fixed_low, fixed_high = interval([draw[0] for draw in drawn])
        byte_low, byte_high = interval([draw[1] for draw in drawn])
        errors = [abs(fixed + per_byte * size - statistics.median(runs)) / statistics.median(runs)
                  for size, runs in found.items()]
        fits.append(
            f"- {name}: {fixed:.1f} us ({fixed_low:.1f} to {fixed_high:.1f}) for a command and "
            f"{per_byte * 1e3:.3f} us ({byte_low * 1e3:.3f} to {byte_high * 1e3:.3f}) for 1,000 "
            f"bytes; it misses the measured points by {max(errors):.0%} at most.")
        for size in SIZES:
            wire = ETHERNET / (size + HEADER)
            label = "4 KiB" if size == 4096 else f"{size >> 10} KiB"
            cells = [f"{label} {name}"]
            for cores in CORES:
                low, middle, high = predicted(found, drawn, size, cores)
                cells.append(f"{shown(middle, size)} ({shown(low, size)} to {shown(high, size)})")
            low, middle, high = predicted(found, drawn, size, 1)
            need = [max(wire / rate, 1) for rate in
                    (high / CARD_FACTORS[0], middle, low / CARD_FACTORS[1])]
            cells += [shown(wire, size), f"{need[1]:.1f} ({need[0]:.1f} to {need[2]:.1f})"]
            rows.append(cells)
    head = ["", *[f"{cores} core{'s' if cores > 1 else ''}" for cores in CORES], "100 GbE takes",
            "cores that fill it"]
    return "\n\n".join([
        "Cost of a command to its core, fitted to the medians under our own initiator (nine tenths "
        f"of {DRAWS:,} draws of the runs in brackets):",
        "\n".join(fits),
        table(head, rows),
        "Assumed: each core serves its own sessions, which share a unit without shared state on "
        "the way of a command; "
        f"{SERIAL_SHARES[0]:.1%} to {SERIAL_SHARES[1]:.1%} of the work is serial; a core with a "
        f"network card costs {CARD_FACTORS[0]:g} to {CARD_FACTORS[1]:g} times what it does on "
        "loopback (from 8 cores on; one core is this machine's); frames of 1,500 bytes. Not in "
        "the model: the bandwidth of memory (a read passes it once, a write twice; 8 cores may "
        "already need more than two channels have), interrupts, other machines' initiators."])
