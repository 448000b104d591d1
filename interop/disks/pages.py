# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a disk says of itself, page by page."""
import re

from disks import ILLEGAL_REQUEST
from disks import case
from disks import expect
from guest import Failed


@case()
def every_vital_page(disk):
    def raw(page):
        return bytes.fromhex(
            "".join(disk.run(f"sg_vpd -p {page:#x} -r $D | od -An -v -tx1").split()))

    said = disk.must_say(
        "sg_vpd -a $D", "Unit serial number", "Device Identification", "[Ee]xtended INQUIRY",
        "Block limits", "Block device characteristics", "Logical block provisioning")
    if re.search(r"not supported|failed|malformed|bad|invalid", re.sub(r"\[.*", "", said), re.I):
        raise Failed(f"sg_vpd -a:\n{said}")
    for page in raw(0)[4:]:
        data = raw(page)
        expect(f"page {page:#x}", (data[1], int.from_bytes(data[2:4], "big") + 4),
               (page, len(data)))
    disk.must_say("sg_vpd -p di $D", "type: NAA", "T10 vendor", "Relative target port: 0x1",
                  re.escape(f"{disk.target.iqn},t,0x0001"))
    # QEMU cannot do with one of blocks of 4096 bytes.
    granularity = "[1-9]" if disk.block == 512 else "0"
    disk.must_say("sg_vpd -p bl $D", r"Maximum compare and write length: [1-9]",
                  r"Maximum unmap LBA count: [1-9]", r"Maximum unmap block descriptor count: [1-9]",
                  f"Optimal unmap granularity: {granularity}",
                  r"Maximum write same length: 0x?[0-9a-f]+", r"Maximum transfer length: [1-9]")
    disk.must_say("sg_vpd -p lbpv $D", r"LBPU\): 1", r"LBPWS\): 1", r"LBPRZ\): 1",
                  "Provisioning type: 2")
    disk.must_say("sg_vpd -p bdc $D", "Medium rotation rate is not reported|Non-rotating medium")


@case()
def standard_inquiry_and_capacity(disk):
    disk.must_say("sg_inq $D", "PDT=0", r"\[SPC-[45]\]", "CmdQue=1")
    disk.must_say("sg_inq -d $D", "SAM-5", "SPC-4", "SBC-3", "iSCSI")
    last = disk.blocks - 1
    disk.must_say("sg_readcap $D", rf"Last LBA={last} ", rf"block length={disk.block} bytes")
    disk.must_say("sg_readcap --16 $D", rf"Last LBA={last} ", "lbpme=1, lbprz=1",
                  rf"Logical block length={disk.block} bytes")
    disk.must_say("sg_luns $D", "Lun list length = 24", "^    0000000000000000",
                  "^    0001000000000000", "^    0002000000000000")
    disk.must_say("sg_requests $D", "No Sense")
    disk.run("sg_turs -n 20 $D")
    expect("kernel's size", int(disk.run("blockdev --getsize64 $D")), disk.blocks * disk.block)
    expect("kernel's block", disk.run("blockdev --getss $D").strip(), str(disk.block))


@case()
def every_mode_page(disk):
    said = disk.must_say("sg_modes -a $D", "[Cc]aching", "[Cc]ontrol", "WP=0, DpoFua=1")
    for option in ("-6 -a", "-a -c 1", "-a -c 2", "-a -d"):
        disk.must_say(f"sg_modes {option} $D", "[Cc]aching", "[Cc]ontrol")
    for page in sorted(set(re.findall(r"page: 0x([0-9a-f]+)", said))):
        disk.must_say(f"sg_modes -p 0x{page} $D", f"0x{page}")
    # A file has a volatile cache (the kernel's), which the host must flush; memory has none.
    expect("write cache", disk.run("cat /sys/block/$(basename $D)/queue/write_cache").strip(),
           "write back" if disk.path else "write through")
    # A page that is not there is refused as an illegal request (5), in both forms.
    disk.must_end(ILLEGAL_REQUEST, "sg_modes -p 0x21 $D")
    disk.must_end(ILLEGAL_REQUEST, "sg_modes -6 -p 0x21 $D")


@case()
def every_log_page(disk):
    said = disk.must_say("sg_logs -l $D", "Supported log pages")
    for page in sorted(set(re.findall(r"^\s+0x([0-9a-f]{2})\s", said, re.M))):
        said = disk.run(f"sg_logs -p 0x{page} $D")
        # sg_logs 1.46 decodes page 19 only if optional parameters are there, too.
        if page != "19" and re.search("illegal|unable|not support|bad", said, re.I):
            raise Failed(f"log page {page}:\n{said}")
    disk.must_say("sg_logs -a $D", "Supported log pages", "Write error counter", "Temperature")
    disk.must_end(ILLEGAL_REQUEST, "sg_logs -p 0x3e $D")


@case()
def operation_codes_are_true(disk):
    """Each opcode of the list is described alone in the same way, which does not depend on the
    blocks; others are not supported."""
    said = disk.must_say("sg_opcodes $D", "Inquiry", "Read\\(16\\)", "Write same\\(16\\)", "Unmap",
                         "Compare and write", "Persistent reserve in, read keys")
    codes = re.findall(r"^ ?([0-9a-f]{2})\s+([0-9a-f]{1,4})?\s+\d+\s", said, re.M)
    if len(codes) < 50:
        raise Failed(f"only {len(codes)} opcodes in\n{said}")
    disk.must_say("sg_opcodes -n -o 0xc1 $D", "NOT supported")
    disk.must_say("sg_opcodes -t $D", "Abort task", "Logical unit reset", "Clear task set")
    if disk.lun != 0:
        return
    checks = "\n".join(f"sg_opcodes -n -o 0x{code}{',0x' + action if action else ''} $D"
                       for code, action in codes)
    said = disk.run(checks)
    expect("opcodes described alone", len(re.findall("support.*conform", said)), len(codes))


@case()
def target_port_groups(disk):
    disk.must_say("sg_rtpg -d $D", "target port group id : 0x1", r"active/optimized",
                  r"Relative target port ids?:\s+0x01")
    disk.must_say("sg_rtpg -e -d $D", "active/optimized")


@case(on="once")
def what_hosts_may_write_of_it(disk):
    """Identifying information, the clock, the echo buffer."""
    disk.run("echo written by a host | sg_ident --set $D")
    disk.must_say("sg_ident $D", "written by a hos")
    disk.run("sg_ident --clear $D; ! sg_ident $D | grep '77 72 69'")
    disk.run("sg_timestamp --milliseconds=1234567890000 $D")
    disk.must_say("sg_timestamp $D", "^12345[67]")
    disk.run("head -c 512 /dev/urandom > /tmp/echo; "
             "sg_write_buffer --mode=echo --in=/tmp/echo --length=512 $D; "
             "sg_raw --binary --request=512 --outfile=/tmp/back $D 3c 0a 00 00 00 00 00 02 00 00; "
             "cmp /tmp/echo /tmp/back")
