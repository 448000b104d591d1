# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where is measured: the network, the processors, and what a report says of both."""
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IN_NAMESPACE = "LUNWIRE_BENCH_NAMESPACE"
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


def own_network():
    """Runs this program again in a network namespace of its own, if that can be had."""
    if os.environ.get(IN_NAMESPACE):
        return
    ready = f"ip link set lo up && {{ echo cubic > {CONGESTION} || echo reno > {CONGESTION}; }}"
    enter = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    if subprocess.run([*enter, ready], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                      check=False).returncode == 0:
        os.environ[IN_NAMESPACE] = "1"
        again = [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]
        os.execvp(enter[0], [*enter, ready + ' && exec "$@"', "sh", *again])
    print("bench: no network namespace to be had; measured on the machine's own", file=sys.stderr)


def pick_processors():
    """One for the target and one for the initiator."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise SystemExit("bench: two processors are needed, one for each side")
    return usable[0], usable[1]


def checked(parser, names, parts=()):
    """The words of the command line; refused is what measures nothing, and `--performance` for some
    cases alone, since a table is replaced whole. names: of the cases; parts: what else leaves some
    out."""
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: 1 or more is right")
    if not 0 < options.seconds < 3600:
        parser.error(f"--seconds {options.seconds:g}: more than 0, and less than an hour, is right")
    for text in options.case:
        if not any(text in name for name in names):
            parser.error(f"no case has {text!r} in its name; there are\n  " + "\n  ".join(names))
    some = [part for part in ("case", *parts) if getattr(options, part)]
    if options.performance and some:
        word = some[0].replace("_", "-")
        parser.error(f"--performance writes whole tables: leave --{word} out")
    binary = os.environ.get("LUNWIRE", f"{ROOT}/target/release/lunwire")
    if not os.access(binary, os.X_OK):
        parser.error(f"{binary} is no program; try: make build, or set LUNWIRE")
    try:
        os.makedirs(options.out, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out}: {error.strerror}")
    return options


def kind():
    """The family of this processor, as docs/PERFORMANCE.md names it."""
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    words = re.sub(r"\(R\)|\(TM\)", "", model[1] if model else "unknown").split()
    return "-".join(words[:2]).lower()


def revision():
    """When this was measured, and which sources."""
    show = ["git", "-C", os.path.dirname(__file__), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(show, capture_output=True, text=True, check=False).stdout.strip()
    return f"{time.strftime('%Y-%m-%d')}, revision {commit or 'unknown'}"


def described(options, packages=(), peers=()):
    """This machine, and how it is used."""
    with open("/proc/cpuinfo") as info:
        text = info.read()
    model = re.search(r"model name\s*: (.*)", text)
    with open(CONGESTION) as setting:
        congestion = setting.read().strip()
    count = len(re.findall(r"^processor\s", text, re.MULTILINE))
    words = [model[1] if model else "unknown processor", f"{count} processors",
             f"Linux {os.uname().release}", f"TCP {congestion}"]
    for package in packages:
        version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package],
                                 capture_output=True, text=True).stdout
        words.append(f"{package} {version}")
    words += peers
    pinned = "nothing pinned"
    if hasattr(options, "target_cpu"):
        pinned = (f"target on processor {options.target_cpu}, initiator on "
                  f"{options.initiator_cpu}")
    return (f"{', '.join(words)}; {pinned}; medians of {options.runs} runs of "
            f"{options.seconds:g} s.")
