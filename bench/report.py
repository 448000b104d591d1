# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tables of `bench/run`, made of samples: {case: {who: [numbers of a run]}}."""
import statistics

import cases

# Above this share of its processor the initiator is what limits.
INITIATOR_FULL = 0.93

# More digits of a figure are noise.
DIGITS_MOST = 6


def median(samples, case, who, field):
    """None where there are no such samples."""
    runs = samples.get(case.name, {}).get(who)
    return statistics.median(run[field] for run in runs) if runs else None


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def judged(value, limit, is_met, form="{:.2f}"):
    """A figure beside what is wanted of it."""
    if limit is None:
        return form.format(value)
    word = "at least" if is_met == "least" else "at most"

    def meets(number):
        return number >= limit if is_met == "least" else number <= limit
    wanted = f"{word} {limit:g}"
    shown = form.format(value)
    for digits in range(3, DIGITS_MOST + 1):
        # A figure that is rounded to what it misses says what is not so.
        if meets(float(shown.replace(",", ""))) == meets(value):
            break
        shown = f"{value:.{digits}f}"
    return f"{shown} ({wanted})" if meets(value) else f"**{shown}** ({wanted}: MISSED)"


def between(path, mark, text):
    """Puts `text` between the two lines of a file that wait for it."""
    with open(path) as file:
        old = file.read()
    begin, end = f"<!-- {mark}: begin (make bench) -->\n", f"<!-- {mark}: end -->"
    head, rest = old.split(begin)
    _, tail = rest.split(end)
    with open(path, "w") as file:
        file.write(f"{head}{begin}\n{text}\n\n{end}{tail}")


def has_place(path, mark):
    """Whether a file has such two lines."""
    with open(path) as file:
        return f"<!-- {mark}: begin (make bench) -->\n" in file.read()


class Report:
    """Tables, and which wishes are not met."""

    def __init__(self, samples):
        self.samples = samples
        self.missed = []

    def of(self, case, who, field):
        return median(self.samples, case, who, field)

    def chosen(self, *who):
        """The cases that have samples of all of these."""
        return [case for case in cases.CASES
                if all(self.samples.get(case.name, {}).get(one) for one in who)]

    def everybody(self):
        """All servers side by side, each under our own initiator: the table for readers."""
        rows = []
        for case in self.chosen("lunwire by lunwire"):
            row = [case.name, case.unit]
            for who in ("spdk by lunwire", "tgt by lunwire", "raw", "lunwire by lunwire"):
                rate, by = self.of(case, who, "rate"), ""
                if rate is None and who == "tgt by lunwire":
                    rate, by = self.of(case, "tgt by libiscsi", "rate"), " (libiscsi)"
                row.append("-" if rate is None else f"{case.shown(rate)}{by}")
            for who in ("spdk by lunwire", "lunwire by lunwire"):
                cost = self.of(case, who, "target_us_per_io")
                row.append("-" if cost is None else f"{cost:.1f}")
            rows.append(row)
        head = ["case", "unit", "SPDK", "tgt", "raw", "lunwire", "SPDK's CPU per I/O, us",
                "lunwire's"]
        return table(head, rows) if rows else ""

    def against_spdk(self):
        """Ours and SPDK, both under our own initiator."""
        rows = []
        for case in self.chosen("lunwire by lunwire", "spdk by lunwire"):
            row = [case.name, case.unit]
            for field, limit, is_met, shown in (
                    ("rate", cases.SPDK_RATE, "least", case.shown),
                    ("target_us_per_io", cases.SPDK_COST, "most", "{:.2f}".format),
                    ("p99_us", cases.SPDK_P99, "most", "{:,.0f}".format)):
                theirs = self.of(case, "spdk by lunwire", field)
                ours = self.of(case, "lunwire by lunwire", field)
                ratio = ours / max(theirs, 1e-9)
                if (ratio < limit) if is_met == "least" else (ratio > limit):
                    what = {"rate": "times SPDK", "p99_us": "of SPDK's p99"}.get(
                        field, "of SPDK's cost")
                    self.missed.append(f"{case.name}: {ratio:.2f} {what}, {limit:g} wanted")
                row += [f"{shown(theirs)}, {shown(ours)}", judged(ratio, limit, is_met)]
            rows.append(row)
        head = ["case", "unit", "SPDK, lunwire", "lunwire / SPDK",
                "target's CPU per I/O, us (SPDK: busy)", "its ratio", "p99, us", "its ratio"]
        return table(head, rows) if rows else ""

    def against_tgt(self):
        """Ours and tgt under the same initiator."""
        rows = []
        for case in cases.CASES:
            load = "libiscsi" if case.tool else "lunwire"
            tgt, ours = f"tgt by {load}", f"lunwire by {load}"
            if self.of(case, tgt, "rate") is None or self.of(case, ours, "rate") is None:
                continue
            ratio = self.of(case, ours, "rate") / self.of(case, tgt, "rate")
            cost = (self.of(case, ours, "target_us_per_io")
                    / max(self.of(case, tgt, "target_us_per_io"), 1e-9))
            share = self.of(case, ours, "initiator_share")
            cheap = case.cost is None or cost <= case.cost
            full = share >= INITIATOR_FULL
            met = ratio >= case.least or (full and case.cost is not None and cheap)
            if not met:
                self.missed.append(f"{case.name}: {ratio:.2f} times tgt, {case.least:g} wanted")
            if not cheap:
                self.missed.append(f"{case.name}: {cost:.2f} of tgt's cost, {case.cost} wanted")
            verdict = "yes" if ratio >= case.least else "yes, by cost: initiator full"
            rows.append([
                case.name, load, case.unit, case.shown(self.of(case, tgt, "rate")),
                case.shown(self.of(case, ours, "rate")),
                judged(ratio, case.least, "least"),
                "{:.1f}, {:.1f}".format(self.of(case, tgt, "target_us_per_io"),
                                        self.of(case, ours, "target_us_per_io")),
                judged(cost, case.cost, "most", "{:.3f}"),
                "{:.0%}, {:.0%}".format(self.of(case, tgt, "initiator_share"), share),
                verdict if met else "NO"])
        head = ["case", "initiator", "unit", "tgt", "lunwire", "lunwire / tgt",
                "target's CPU per I/O, us (tgt, lunwire)", "its ratio",
                "initiator's CPU (tgt, lunwire)", "rate met"]
        return table(head, rows) if rows else ""

    def against_raw(self):
        """Our target under our own initiator, and the same without a protocol."""
        rows = []
        for case in self.chosen("lunwire by lunwire", "raw"):
            ours, raw = "lunwire by lunwire", "raw"
            ratio = self.of(case, ours, "rate") / self.of(case, raw, "rate")
            if ratio < case.raw:
                self.missed.append(f"{case.name}: {ratio:.2f} of raw, {case.raw:g} wanted")

            def pair(field):
                return f"{self.of(case, ours, field):.1f}, {self.of(case, raw, field):.1f}"

            rows.append([case.name, case.unit, case.shown(self.of(case, ours, "rate")),
                         case.shown(self.of(case, raw, "rate")),
                         judged(ratio, case.raw, "least"), pair("target_us_per_io"),
                         pair("initiator_us_per_io"),
                         f"{self.of(case, ours, 'target_s_per_gb'):.3f}",
                         f"{self.of(case, ours, 'latency_us'):,.0f}"])
        head = ["case", "unit", "lunwire", "raw", "lunwire / raw",
                "target's CPU per I/O, us (lunwire, raw)",
                "initiator's CPU per I/O, us (lunwire, raw)", "target's CPU s/GB",
                "mean latency, us"]
        return table(head, rows) if rows else ""

    def initiators(self):
        """Our initiator beside those of libiscsi, on our target."""
        rows = []

        def row(name, case, value, limit, is_met, unit):
            """Against the better one of libiscsi's tools."""
            peers = {"iscsi-perf": "lunwire by libiscsi", "qemu-img": "lunwire by qemu-img"}
            if case.tool == "qemu":
                peers = {"qemu-img": "lunwire by libiscsi"}
            found = {tool: value(who) for tool, who in peers.items()
                     if self.of(case, who, "rate") is not None}
            if not found or self.of(case, "lunwire by lunwire", "rate") is None:
                return
            ours = value("lunwire by lunwire")
            best = (max if is_met == "least" else min)(found.values())
            ratio = ours / best
            if (ratio < limit) if is_met == "least" else (ratio > limit):
                self.missed.append(f"initiator, {name}: {ratio:.2f}, {limit:g} wanted")
            peers = ", ".join(f"{tool} {number:,.0f}" for tool, number in found.items())
            rows.append([name, unit, peers, f"{ours:,.0f}", judged(ratio, limit, is_met)])

        def per_cpu(who):
            return 1e6 / self.of(cases.READ_DEEP, who, "initiator_us_per_io")

        def speed(case):
            return lambda who: self.of(case, who, "mb_per_s")

        row("4 KiB random read, depth 32", cases.READ_DEEP, per_cpu, cases.INITIATOR_PER_CPU,
            "least", "I/Os per CPU second")
        row("4 KiB random read, depth 1", cases.READ_ONE,
            lambda who: self.of(cases.READ_ONE, who, "latency_us"), cases.INITIATOR_LATENCY,
            "most", "us, mean latency")
        for case in (cases.READ_LARGE, cases.WRITE_LARGE):
            row(case.name, case, speed(case), cases.INITIATOR_LARGE, "least", "MB/s")
        head = ["case", "unit", "libiscsi", "lunwire", "lunwire / better one of libiscsi's"]
        return table(head, rows) if rows else ""

    def layers(self, layers):
        """Where the time of a command went, by `lunwire bench --layers`: {case: its answer}."""
        parts = []
        for side in ("target", "initiator"):
            sides = {name: found[side] for name, found in layers.items() if side in found}
            names = list(dict.fromkeys(name for found in sides.values()
                                       for name in found["layers"]))
            rows = []
            for case, found in sides.items():
                spent = {name: found["layers"].get(name, {}).get("us_per_command", 0)
                         for name in names}
                stored = f" + {found['stored_per_byte']:.2f}" if side == "target" else ""
                rows.append([case, *[f"{spent[name]:.2f}" for name in names],
                             f"{found['copied_per_byte']:.2f}{stored}",
                             f"{found['digested_per_byte']:.2f}"])
            copies = "copies of a byte" + (" (+ by the store)" if side == "target" else "")
            head = [f"{side}, us of a command", *names, copies, "digests of a byte"]
            if rows:
                parts.append(table(head, rows))
        if parts:
            parts.insert(0, "One turn of 127 is timed, and takes longer for that: the parts of a "
                            "small command add up to half as much again as its CPU. A turn in "
                            "which a thread slept before the load came counts as much as others, "
                            "and then *idle* is longer than it was.")
        return "\n\n".join(parts)

    def one_sided(self):
        """What there is where only one server was measured."""
        rows = []
        for case in cases.CASES:
            for who, runs in self.samples.get(case.name, {}).items():
                if runs:
                    rows.append([
                        case.name, who, case.shown(self.of(case, who, "rate")), case.unit,
                        f"{self.of(case, who, 'target_us_per_io'):.1f}",
                        f"{self.of(case, who, 'target_share'):.0%}",
                        f"{self.of(case, who, 'initiator_us_per_io'):.1f}",
                        f"{self.of(case, who, 'initiator_share'):.0%}"])
        head = ["case", "who", "rate", "unit", "target's CPU per I/O, us", "of its processor",
                "initiator's CPU per I/O, us", "of its processor"]
        return table(head, rows)
