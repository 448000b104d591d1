#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A simulated SCSI disk of the kernel with its /dev/sg*, for SG_IO pass-through tests.
#
#   scsi-debug.sh [COMMAND...]    COMMAND (for example a program in /share) runs with
#                                 SG=/dev/sgN and DISK=/dev/sdX in its environment
# Environment: SCSI_DEBUG, more parameters of the scsi_debug module.
. ./lib.sh
step "loading scsi_debug"
modprobe -a sg sd_mod
modprobe scsi_debug dev_size_mb=32 lbpu=1 lbpws=1 ${SCSI_DEBUG:-}
device=$(ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*:0)
within 10 test -e "$device/block"
export DISK=/dev/$(ls "$device/block") SG=/dev/$(ls "$device/scsi_generic")
within 10 test -e "$SG"
step "disk $DISK, pass-through $SG"

sg_inq "$SG"
sg_readcap --16 "$SG"
sg_luns "$SG"
sg_requests "$SG"
step "pass-through write and read"
head -c 65536 /dev/urandom > /tmp/out
sg_dd if=/tmp/out of="$SG" bs=512 count=128 blk_sgio=1 2> /dev/null
sg_dd if="$SG" of=/tmp/in bs=512 count=128 blk_sgio=1 2> /dev/null
cmp /tmp/out /tmp/in
# READ CAPACITY (10), as raw bytes, and a command that must fail with sense data.
sg_raw -r 8 "$SG" 25 00 00 00 00 00 00 00 00 00
! sg_raw "$SG" 28 00 ff ff ff ff 00 00 01 00 || fail "a read past the end succeeded"
if [ $# -gt 0 ]; then
    step "$*"
    "$@"
fi
step "PASSED"
