# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands of sg3-utils."""
import re

from disks import ILLEGAL_REQUEST
from disks import INVALID_OPCODE
from disks import MISCOMPARE
from disks import NOT_READY
from disks import OUT_OF_RANGE
from disks import case
from disks import expect
from guest import Failed


@case()
def blocks_are_compared_and_written(disk):
    disk.run("""
        head -c $B /dev/urandom > /tmp/old; head -c $B /dev/urandom > /tmp/new
        cat /tmp/old /tmp/new > /tmp/both
        dd if=/tmp/old of=$D bs=$B seek=64 oflag=direct status=none
        sg_compare_and_write --in=/tmp/both --lba=64 --num=1 --xferlen=$((2 * B)) $D
        dd if=$D bs=$B skip=64 count=1 iflag=direct status=none | cmp - /tmp/new""")
    disk.must_end(MISCOMPARE, "sg_compare_and_write --in=/tmp/both --lba=64 --num=1 "
                              "--xferlen=$((2 * B)) $D")
    disk.run("dd if=$D bs=$B skip=64 count=1 iflag=direct status=none | cmp - /tmp/new")


@case(on="everywhere")
def blocks_are_unmapped(disk):
    length = (4 << 20) // disk.block
    disk.write(0, length)
    before = disk.sum_of(0, length // 4), disk.allocated()
    disk.run(f"sg_unmap --force --lba={length // 4} --num={length // 2} $D")
    disk.must_be_zero(length // 4, length // 2)
    expect("beside it", disk.sum_of(0, length // 4), before[0])
    said = disk.run(f"sg_get_lba_status -bb --lba={length // 4} $D")
    expect("provisioning status", said.strip(), "1")
    expect("provisioning status of data", disk.run("sg_get_lba_status -bb --lba=0 $D").strip(),
           "0")
    disk.must_say(f"sg_get_lba_status -b -m 2048 --lba=0 $D", r"^0x0+\s+0x0*{:x}\s+0".format(
        length // 4))
    if before[1] is not None and not disk.allocated() < before[1] - (1 << 20):
        raise Failed(f"{before[1]} bytes before, {disk.allocated()} after UNMAP of 2 MiB")
    disk.must_end(OUT_OF_RANGE, f"sg_unmap --force --lba={disk.blocks} --num=1 $D")


@case(on="everywhere")
def one_block_is_written_to_many(disk):
    length = (256 << 10) // disk.block
    for option in ("--10", "--16"):
        disk.write(0, length * 2)
        behind = disk.sum_of(length, length)
        disk.run(f"head -c $B /dev/urandom > /tmp/one; sg_write_same {option} --in=/tmp/one "
                 f"--lba=0 --num={length} --xferlen=$B $D; "
                 "cp /tmp/one /tmp/many; "
                 f"until [ $(stat -c %s /tmp/many) -ge {length * disk.block} ]; do "
                 "cat /tmp/many /tmp/many > /tmp/more; mv /tmp/more /tmp/many; done; "
                 f"{disk.reading(0, length)} | cmp - /tmp/many")
        expect(f"behind WRITE SAME {option}", disk.sum_of(length, length), behind)
    disk.run(f"sg_write_same --16 --unmap --lba=0 --num={length} --xferlen=$B $D")
    disk.must_be_zero(0, length)
    expect("unmapped", disk.run("sg_get_lba_status -bb --lba=0 $D").strip(), "1")
    disk.write(0, length)
    disk.run(f"sg_write_same --16 --ndob --lba=0 --num={length} $D")
    disk.must_be_zero(0, length)


@case()
def blocks_are_verified(disk):
    length = (1 << 20) // disk.block
    disk.write(0, length)
    disk.run(f"sg_verify --lba=0 --count={length} $D; sg_verify --16 --lba=0 --count={length} $D")
    disk.run("head -c $((4 * B)) /tmp/data > /tmp/four; "
             "sg_verify --lba=0 --count=4 --ndo=$((4 * B)) --ebytchk=1 --in=/tmp/four $D")
    disk.must_end(MISCOMPARE, "sg_verify --lba=4 --count=4 --ndo=$((4 * B)) --ebytchk=1 "
                              "--in=/tmp/four --quiet $D")
    disk.run("sg_write_verify --16 --lba=8 --num=4 --in=/tmp/four $D; "
             "dd if=$D bs=$B skip=8 count=4 iflag=direct status=none | cmp - /tmp/four")


@case(noisy=True)
def other_commands(disk):
    disk.run("sg_sync $D; sg_sync --16 --lba=0 --count=64 $D")
    # PRE-FETCH (10). This version of sg_raw has no exit status for its good end.
    if "Condition Met" not in disk.status("sg_raw $D 34 00 00 00 00 00 00 00 08 00")[1]:
        raise Failed("PRE-FETCH (10)")
    disk.run("head -c $B /dev/urandom > /tmp/ones; "
             "dd if=/dev/zero of=$D bs=$B seek=16 count=1 oflag=direct status=none; "
             "sg_write_x --or --16 --in=/tmp/ones --lba=16 --num=1 $D; "
             "dd if=$D bs=$B skip=16 count=1 iflag=direct status=none | cmp - /tmp/ones")
    # The 32-byte commands are for type 2 protection.
    said = disk.status("sg_write_x --32 --normal --in=/tmp/ones --lba=17 --num=1 $D")[1]
    expect("WRITE (32)", "Invalid opcode" in said, True)
    disk.run("dd if=/tmp/ones of=$D bs=$B seek=17 count=1 oflag=direct status=none")
    # sg_dd does not cut what is there.
    disk.run("rm -f /tmp/back; "
             "sg_dd if=$D of=/tmp/back bs=$B skip=17 count=1 cdbsz=16 blk_sgio=1 2> /dev/null; "
             "cmp /tmp/back /tmp/ones; "
             "sg_dd if=/tmp/ones of=$D bs=$B seek=18 count=1 cdbsz=12 blk_sgio=1 2> /dev/null; "
             "sg_dd if=$D of=/tmp/back bs=$B skip=18 count=1 cdbsz=10 blk_sgio=1 2> /dev/null; "
             "cmp /tmp/back /tmp/ones")
    disk.run("sg_senddiag --test $D")
    disk.must_end(OUT_OF_RANGE, "sg_raw -r 512 $D 28 00 ff ff ff ff 00 00 01 00")
    disk.must_end(INVALID_OPCODE, "sg_raw $D c1 00 00 00 00 00")


@case(on="each server")
def a_stopped_disk_is_not_ready(disk):
    """Over sg: a disk that the kernel uses is started by itself."""
    sg = disk.linux.release(disk.device)
    try:
        disk.must_end(NOT_READY, f"sg_start --stop {sg} && sg_turs {sg}")
        disk.must_end(NOT_READY, f"sg_raw -r 512 {sg} 28 00 00 00 00 00 00 00 01 00")
        disk.run(f"sg_inq {sg} > /dev/null")
        disk.must_say(f"sg_requests {sg} 2>&1", "initializing command")
        disk.run(f"sg_start --start {sg}; sg_turs {sg}")
    finally:
        disk.linux.status(f"sg_start --start {sg}")
        disk.linux.take(sg)
    disk.session.devices = disk.session.disks(len(disk.session.devices))


@case()
def blocks_are_copied(disk):
    """EXTENDED COPY within the disk, and what RECEIVE COPY RESULTS says of it."""
    length = (1 << 20) // disk.block
    disk.write(0, length)
    disk.run(f"sg_xcopy if=$D of=$D bs=$B skip=0 seek={4 * length} count={length}; "
             f"{disk.reading(4 * length, length)} | cmp - /tmp/data")
    disk.must_say("sg_copy_results --params $D", "Supports no list identifier .*: yes",
                  "Copy from block device to block device", "Identification descriptor")
    disk.must_say("sg_copy_results --status --list_id=1 $D", "completed without errors",
                  f"Transfer count: {length}$")


@case(on="each server")
def everything_is_wiped(disk):
    length = (1 << 20) // disk.block
    for command in ("sg_sanitize --quick --wait --block $D",
                    "sg_sanitize --quick --wait --overwrite --zero $D",
                    "sg_format --format --quick --wait $D"):
        disk.write(length, length)
        disk.run(command)
        disk.must_be_zero(0, 4 * length)
    disk.run("printf pattern! > /tmp/pattern; "
             "sg_sanitize --quick --wait --overwrite --pattern=/tmp/pattern --ipl=8 $D; "
             f"{disk.reading(length, 1)} | head -c 24 | grep pattern!pattern!pattern! > /dev/null")
    # Nothing is encrypted; there is no failure to be left.
    disk.must_end(ILLEGAL_REQUEST, "sg_sanitize --quick --wait --crypto $D")
    disk.run("sg_sanitize --quick --early --fail $D; sg_sanitize --quick --wait --block $D")


@case(on="once")
def a_slow_wipe_tells_how_far_it_is(disk):
    slow = disk.session.devices[2]
    sg = disk.linux.release(slow)
    try:
        said = disk.run(f"sg_sanitize --quick --early --overwrite --zero {sg}; "
                        f"sg_requests --progress {sg} 2>&1; ! sg_turs {sg}; "
                        f"for i in $(seq 300); do sleep 0.2; ! sg_turs {sg} || exit 0; done; "
                        "exit 1")
        if not re.search(r"[Pp]rogress.*: *[0-9.]+%", said):
            raise Failed(f"no progress in\n{said}")
    finally:
        disk.linux.take(sg)
    disk.session.devices = disk.session.disks(len(disk.session.devices))


@case(on="once")
def a_write_is_atomic_where_that_is_promised(disk):
    slow = disk.session.devices[2]
    disk.must_say(f"sg_vpd -p bl {slow}", "Maximum atomic transfer length: [1-9]")
    disk.run(f"head -c 4096 /dev/urandom > /tmp/whole; "
             f"sg_write_x --16 --atomic=0 --in=/tmp/whole --lba=3 --num=8 {slow}; "
             f"dd if={slow} bs=512 skip=3 count=8 iflag=direct status=none | cmp - /tmp/whole")
    disk.must_end(INVALID_OPCODE,
                  "sg_write_x --16 --atomic=0 --in=/tmp/whole --lba=3 --num=1 $D")
