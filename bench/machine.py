# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where is measured: the network, the processors, and what a report says of both."""
import os
import re
import subprocess
import sys

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


def described(options, packages=()):
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
    pinned = "nothing pinned"
    if hasattr(options, "target_cpu"):
        pinned = (f"target on processor {options.target_cpu}, initiator on "
                  f"{options.initiator_cpu}")
    return (f"{', '.join(words)}; {pinned}; medians of {options.runs} runs of "
            f"{options.seconds:g} s.")
