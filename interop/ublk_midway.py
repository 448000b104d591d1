# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Cases of interop/ublk: the process is killed while a device begins, is taken over, or ends."""

from ublk_bench import BINARY, MIB, NAME, need

# Kills who makes one of these calls on the queue of the first device.
KILLED = ("strace -f -qq -o /dev/null -P /dev/ublkc0 -e trace={call} "
          "-e inject={call}:signal=KILL")
# When the device is there and nobody serves it, and a little later.
CALLS = ["openat", "mmap"]
# Time to kill a process before each thing that it asks of the driver.
SLOW = ("strace -f -qq -o /dev/null -P /dev/ublk-control -e trace=openat "
        "-e inject=openat:delay_enter=2s")


def is_killed(bench, target, call, *options):
    status, said = bench.linux.status(
        f"{KILLED.format(call=call)} {BINARY} attach {bench.url(target)} --ublk "
        f"{' '.join(options)} 2>&1")
    need(status == 128 + 9, f"{call}: status {status}\n{said}")


def begins(bench):
    """Killed before anybody could use the device: nobody takes it over, and whoever finds it takes
    it away, by either name."""
    with bench.target("begins", 64 * MIB) as target:
        for call, what in zip(CALLS, ["/dev/ublkb0", "/dev/ublkc0"]):
            is_killed(bench, target, call)
            bench.linux.run("test -e /dev/ublkc0; ! test -e /dev/ublkb0")
            listing = bench.attached()
            need(not listing["attached"] + listing["gone"], listing)
            bench.lunwire("attach", bench.url(target), "--ublk", "--recover", "0", status=1,
                          says="lunwire detach /dev/ublkb0")
            bench.detach(what, says="is taken away")
            bench.linux.run("! ls /dev/ublk[bc]*")
        bench.detach("/dev/ublkc0", status=1, says="nothing is attached as /dev/ublkc0")
        # Who has no rights hears that, and not that somebody uses it.
        is_killed(bench, target, CALLS[0])
        status, said = bench.linux.status(
            f"setpriv --reuid 65534 --clear-groups {BINARY} detach /dev/ublkb0 "
            "--state-dir /tmp/nobody 2>&1")
        need(status == 1 and "as root" in said, said)
        bench.detach("/dev/ublkb0")


def taken_over(bench):
    """Killed while it takes a device over: the next one does, and loses nothing."""
    with bench.target("again", 64 * MIB) as target:
        device = bench.attach(target)
        bench.linux.run(f"""head -c 8M /dev/urandom > /tmp/again
            dd if=/tmp/again of={device} bs=1M oflag=direct status=none""")
        bench.kill(device)
        reader = bench.linux.start(f"cmp -n 8M /tmp/again {device}")
        for call in CALLS:
            is_killed(bench, target, call)
            need([one["place"] for one in bench.attached()["gone"]] == [device], "it waits no more")
        need(bench.attach(target) == device, "it took another device")
        reader.must()
        # Nor does it stay when it was not taken over.
        bench.kill(device)
        is_killed(bench, target, CALLS[0])
        bench.detach(device)
        bench.linux.run("! ls /dev/ublk[bc]*")


def is_stopped(bench, target, detacher_too=True):
    """Killed when the device was stopped and not yet taken away: there is a queue without a
    device, unless `lunwire detach`, which wanted that, still lives."""
    device = bench.attach(target)
    pid = bench.pid(device)
    slow = bench.linux.start(f"{SLOW} -p {pid}")
    bench.linux.run(f". ./lib.sh; within 20 eval '! grep -q \"^TracerPid:.0$\" /proc/{pid}/status'")
    detacher = bench.linux.start(f"{BINARY} detach {NAME}")
    # The pattern is not one of what it stands in.
    kill_detacher = f"pkill -9 -f '[d]etach {NAME}$'" if detacher_too else ":"
    bench.linux.run(f""". ./lib.sh
        within 20 test ! -e {device}
        {kill_detacher}
        kill -9 {pid}
        within 20 test ! -e /proc/{pid}""")
    status, said = detacher.wait()
    if detacher_too:
        bench.linux.run("test -e /dev/ublkc0")
    else:
        need(status == 0 and "is taken away" in said, f"{status}: {said}")
    slow.wait()


def stopped(bench):
    """Killed between the two steps by which a device goes: whoever comes next takes away what is
    left of it."""
    with bench.target("stopped", 64 * MIB) as target:
        is_stopped(bench, target, detacher_too=False)
        bench.linux.run("! ls /dev/ublk[bc]*")
        is_stopped(bench, target)
        listing = bench.attached()
        need([one["name"] for one in listing["gone"]] == [NAME], listing)
        bench.linux.run("! ls /dev/ublk[bc]*")
        is_stopped(bench, target)
        bench.detach(NAME, says="is taken away")
        bench.linux.run("! ls /dev/ublk[bc]*")
        is_stopped(bench, target)
        device = bench.attach(target)
        need(device == "/dev/ublkb0", f"what was left has its number: it is {device}")
        bench.detach(device)
        listing = bench.attached()
        need(not listing["attached"] + listing["gone"], listing)
        bench.linux.run("! ls /dev/ublk[bc]*")


CASES = [taken_over, begins, stopped]
