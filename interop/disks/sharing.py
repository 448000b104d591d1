# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two initiators of one disk; states of the way to it."""
import os
import re

from disks import NOT_READY
from disks import case
from disks import expect
from guest import Failed


@case(on="once", noisy=True)
def two_initiators_reserve(disk):
    disk.linux.run(f"bash ./persistent-reservation.sh {disk.target.port} {disk.target.iqn}")


@case(noisy=True)
def the_loser_is_fenced_off(disk):
    """As cluster software fences: a writes, b preempts and aborts; from then on no write of a
    arrives, and a's load ends with an error."""
    sessions = [disk.linux.log_in(disk.target, iface=name,
                                  initiator=f"iqn.2026-01.test.lunwire:{name}")
                for name in ("fencea", "fenceb")]
    try:
        fence(disk.linux, *(session.disks(len(disk.session.devices))[disk.lun]
                            for session in sessions))
    finally:
        for session in sessions:
            session.log_out()


def fence(linux, one, two):
    reserve = "sg_persist --out --no-inquiry"
    linux.status(f"sg_turs {one}; sg_turs {two}")
    linux.run(f"""set -e
        {reserve} --register --param-sark=0xa {one}
        {reserve} --register --param-sark=0xb {two}
        {reserve} --reserve --param-rk=0xa --prout-type=5 {one}""")
    load = linux.start(f"fio --name=load --filename={one} --size=4M --rw=randwrite --bs=4k "
                       "--direct=1 --ioengine=libaio --iodepth=8 --time_based --runtime=240")
    # The fifth number counts the writes that have ended.
    linux.run(". ./lib.sh; within 120 eval 'read -r _ _ _ _ writes _ < "
              f"/sys/block/{os.path.basename(one)}/stat; [ $writes -gt 50 ]'")
    linux.run(f"{reserve} --preempt-abort --param-rk=0xb --param-sark=0xa --prout-type=5 {two}")
    reading = f"dd if={two} bs=1M count=4 iflag=direct status=none | sha256sum"
    fenced = linux.run(reading)
    status, said = load.wait(180)
    if status == 0 or not re.search(r"err=\s*(52|5|84)\b", said):
        raise Failed(f"a's load: status {status}\n{said}")
    expect("the disk after the fence", linux.run(reading), fenced)
    linux.run(f"""set -e
        sg_persist --in --no-inquiry -k {two} | grep '0xb$'
        ! sg_persist --in --no-inquiry -k {two} | grep '0xa$'
        dd if=/dev/zero of={two} bs=4k count=1 oflag=direct status=none
        {reserve} --clear --param-rk=0xb {two}""")


@case(noisy=True)
def a_disk_comes_grows_and_goes(disk):
    """The kernel hears of it, finds it when it looks again, sees its size, and lets it go."""
    def must_have_heard(what, device="$D"):
        disk.status(f"sg_turs {device}")
        disk.must_say("dmesg -c", what)

    def rescan():
        disk.run(f"iscsiadm -m session -r {disk.session.number} --rescan > /dev/null")

    # A number that has had a disk is not given to another one by chance.
    number, before = str(7 + disk.lun), len(disk.session.devices)
    disk.target.order("lun", "add", f"file:{disk.target.folder.name}/{number},size=16M",
                      "--number", number, "--block", str(disk.block))
    must_have_heard("LUN assignments on this target have changed")
    rescan()
    new = disk.session.disks(before + 1)[before]
    disk.must_say(f"sg_luns {new}", f"000{number}000000000000")
    disk.target.order("lun", "resize", number, "24M")
    must_have_heard("Capacity data has changed", new)
    disk.run(f"""echo 1 > /sys/block/{os.path.basename(new)}/device/rescan
        [ $(blockdev --getss {new}) = $B ]; [ $(blockdev --getsize64 {new}) = $((24 << 20)) ]
        head -c 4M /dev/urandom > /tmp/data
        dd if=/tmp/data of={new} bs=1M seek=20 oflag=direct status=none
        dd if={new} bs=1M skip=20 iflag=direct status=none | cmp - /tmp/data
        echo 1 > /sys/block/{os.path.basename(new)}/device/delete""")
    disk.target.order("lun", "remove", number)
    must_have_heard("LUN assignments on this target have changed")
    rescan()
    expect("disks", disk.session.disks(before), disk.session.devices)


@case(on="once", noisy=True)
def a_host_changes_the_state_of_the_way(disk):
    """Explicit ALUA."""
    def state():
        return disk.must_say("sg_rtpg -d $D", "SET TARGET PORT GROUPS").split("(")[1].split(")")[0]

    def change(word):
        """sg_stpg ends with status 0 whatever the disk says."""
        expect(f"sg_stpg --state={word}", disk.run(f"sg_stpg --tp=1 --state={word} $D 2>&1"), "")

    try:
        for code, name in ((1, "active/non optimized"), (0, "active/optimized")):
            change(code)
            expect("the state", state(), name)
            disk.run("sg_turs $D; dd if=$D of=/dev/null bs=$B count=1 iflag=direct status=none")
        change("s")
        expect("the state", state(), "standby")
        disk.must_end(NOT_READY, "sg_turs $D")
        disk.must_end(NOT_READY, "sg_raw -r $B $D 28 00 00 00 00 00 00 00 01 00")
        disk.must_say("sg_inq $D", "PQual=0", "TPGS=3")
        # There is no group 7, and a group is not told to be offline.
        for wrong in ("--tp=7 --state=ao", "--tp=1 --state=o"):
            said = disk.status(f"sg_stpg {wrong} $D")[1]
            expect(f"sg_stpg {wrong}", "Illegal request" in said, True)
    finally:
        change("ao")
    expect("the state", state(), "active/optimized")
