#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# /share/lunwire passes the commands of its hosts to scsi_debug: a disk by its SG node, a tape drive
# by its block SG node, a drive for CD and DVD.
#
#   passthrough.sh [disk|tape|drive]...    all without an argument
. ./lib.sh
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
modprobe -a sg sd_mod
# Read from the share once.
cp /share/lunwire /tmp/lunwire
[ $# -gt 0 ] || set -- disk tape drive

# simulate KIND PARAMETER...: a device; sets $SG, $HCTL and $folder.
simulate() {
    [ ! -e /sys/module/scsi_debug ] || within 10 rmmod scsi_debug
    modprobe scsi_debug "$@"
    folder=$(ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*:0)
    within 10 test -e "$folder/scsi_generic"
    SG=/dev/$(ls "$folder/scsi_generic") HCTL=$(basename "$folder")
    within 10 test -e "$SG"
    within 10 test -e "/dev/bsg/$HCTL"
}
# serve STORE: sets $iqn and $url.
serve() {
    /tmp/lunwire serve --listen 127.0.0.1:3260 --control-socket /tmp/control --lun "$1" \
        > /tmp/serving 2> /tmp/log &
    server=$!
    within 20 grep serving /tmp/serving || { cat /tmp/log; exit 1; }
    iqn=$(cut -d/ -f4 /tmp/serving)
    url=iscsi://127.0.0.1:3260/$iqn/0
}
stop() {
    kill "$server"
    wait "$server" || { cat /tmp/log; fail "the daemon did not end well"; }
}
# refused STORE TEXT: it is not served, and the message says so.
refused() {
    if timeout 20 /tmp/lunwire serve --listen 127.0.0.1:3260 --control-socket /tmp/control \
        --lun "$1" > /tmp/refusal 2>&1; then fail "$1 was served"; fi
    grep -F -e "$2" /tmp/refusal || { cat /tmp/refusal; fail "not said of $1: $2"; }
}
# remote: the SG node of what the session shows at LUN 0.
remote() {
    local host
    host=$(ls -d "/sys/class/iscsi_session/$session"/device/target*/*:0/scsi_generic/* | sed -n 1p)
    echo "/dev/$(basename "$host")"
}
# sense NODE CDB...: sense key and codes that a command ends with.
sense() {
    local node=$1
    shift
    sg_raw --timeout=60 "$node" "$@" 2>&1 | grep -i -e 'sense' -e 'additional' -e status || true
}
# tests FAMILY URL-OR-NODE: each test of libiscsi's and how it ended.
tests() {
    timeout 60 iscsi-test-cu --dataloss --test="SCSI.$1" "$2" > /tmp/cu 2>&1 || true
    awk '/ Test: / { name = $2 } /passed$/ { print name, "passed" } /FAILED$/ { print name, "FAILED" }' \
        /tmp/cu | tee /tmp/results
    [ -s /tmp/results ] || { cat /tmp/cu >&2; fail "no test of $1 ran"; }
}
logout() { iscsiadm -m node -T "$iqn" -p 127.0.0.1:3260 --logout > /dev/null; }

disk() {
    step "a simulated disk"
    simulate dev_size_mb=64 lbpu=1 lbpws=1 delay=0
    within 10 test -e "$folder/block"
    local local_disk far near
    local_disk=/dev/$(ls "$folder/block")
    within 10 test -e "$local_disk"
    near=$SG

    step "what cannot be passed through"
    printf '[[target]]\nname = "iqn.2026-01.test.lunwire:a"\n[[target.lun]]\nstore = "scsi:%s"\n' \
        "$SG" > /tmp/good.toml
    /tmp/lunwire check /tmp/good.toml
    sed 's,/dev/sg[0-9]*,/dev/null,' /tmp/good.toml > /tmp/bad.toml
    if /tmp/lunwire check /tmp/bad.toml > /tmp/refusal 2>&1; then fail "/dev/null is good"; fi
    grep -F "no SCSI device" /tmp/refusal
    echo 'serial = "1"' >> /tmp/good.toml
    if /tmp/lunwire check /tmp/good.toml > /tmp/refusal 2>&1; then fail "two serials"; fi
    grep -F "a device says that itself" /tmp/refusal
    refused "scsi:$local_disk" "try: scsi:$SG to pass commands to it"
    refused scsi:/dev/null "no SCSI device"
    refused scsi:/dev/sg99 "no such device"
    refused "scsi:$SG,readonly" "timeout=TIME"
    mkfs.ext4 -q -F "$local_disk"
    mkdir -p /mnt/here
    mount "$local_disk" /mnt/here
    refused "scsi:$SG" "in use"
    umount /mnt/here
    if setpriv --reuid 65534 --clear-groups /tmp/lunwire serve --listen 127.0.0.1:3260 \
        --control-socket /tmp/nobody --lun "scsi:$SG" > /tmp/refusal 2>&1; then
        fail "nobody may serve the disk"
    fi
    grep -F "no permission to send commands to $SG" /tmp/refusal

    step "served: $SG"
    serve "scsi:$SG,timeout=4s"
    refused "scsi:/dev/bsg/$HCTL" "in use"
    if mount "$local_disk" /mnt/here 2> /dev/null; then fail "a served disk was mounted"; fi
    start_iscsid
    login "$iqn" 127.0.0.1:3260
    local name
    name=$(wait_disk "$session")
    far=$(remote)
    step "the host has $name, $far"
    # Who it is the device says; of copies by others and of its ports we say what is true.
    diff <(sg_inq "$near" | grep -e identification -e serial) \
        <(sg_inq "$far" | grep -e identification -e serial)
    sg_inq "$near" | grep -o '3PC=[01]'
    sg_inq "$far" | grep -F '3PC=0'
    sg_vpd -p di "$far" > /tmp/di
    cat /tmp/di
    [ "$(sg_vpd -p di --quiet "$near" | grep -i naa | sort | sed -n 1p)" = "" ] ||
        grep -F "$(sg_vpd -p di_lu --quiet "$near" | grep '^0x' | sed -n 1p)" <(sg_vpd -p di_lu --quiet "$far")
    grep -F "$iqn,t,0x0001" /tmp/di
    diff <(sg_readcap --16 "$near") <(sg_readcap --16 "$far")
    sg_vpd -p bl "$far"
    sg_luns "$far"
    sg_requests "$far"
    sg_opcodes "$far" > /tmp/opcodes || true
    if grep -i "extended copy" /tmp/opcodes; then fail "EXTENDED COPY is listed"; fi
    sg_opcodes -o 0x28 "$far" || true

    step "a file system"
    mkfs.ext4 -q -F "/dev/$name"
    mkdir -p /mnt/disk
    mount "/dev/$name" /mnt/disk
    verified_io /mnt/disk/file 4M
    fstrim -v /mnt/disk
    umount /mnt/disk
    fsck.ext4 -f -n "/dev/$name"
    blockdev --flushbufs "/dev/$name"
    cmp <(dd if="/dev/$name" bs=1M iflag=direct status=none) \
        <(sg_dd if="$near" bs=512 bpt=128 blk_sgio=1 2> /dev/null)

    step "sense data, and data of unknown direction"
    sense "$far" -r 512 28 00 ff ff ff ff 00 00 01 00 | tee /tmp/sense
    grep -i "block address out of range" /tmp/sense
    sense "$far" c1 00 00 00 00 00 00 00 00 00 | tee /tmp/sense
    grep -i "Invalid command operation code" /tmp/sense
    sense "$far" -r 64 83 00 00 00 00 00 00 00 00 00 00 00 00 40 00 00 | tee /tmp/sense
    grep -i "Invalid command operation code" /tmp/sense

    step "reservations of two hosts: ours, though the device knows one"
    sg_persist --out --register --param-sark=0x11 "$far" > /dev/null
    sg_persist --out --reserve --param-rk=0x11 --prout-type=1 "$far" > /dev/null
    sg_persist --in --read-keys "$far" | grep 0x11
    if sg_persist --in --read-keys "$near" 2> /dev/null | grep 0x11; then
        fail "the device has heard of a registration"
    fi
    iscsi-inq "$url" | grep -i scsi_debug
    iscsi-ls -s iscsi://127.0.0.1:3260
    /tmp/lunwire inspect "$url" > /tmp/inspect
    head -n 12 /tmp/inspect
    if /tmp/lunwire write "$url" < /dev/zero > /tmp/refusal 2>&1; then
        fail "another host wrote to a reserved disk"
    fi
    cat /tmp/refusal
    sg_persist --out --clear --param-rk=0x11 "$far" > /dev/null

    step "a reset, and a command that the device never answers"
    sg_reset --device "$far"
    within 10 grep "a host has reset the device" /tmp/log
    sense "$far" 00 00 00 00 00 00 | tee /tmp/sense
    grep -i "bus device reset function occurred" /tmp/sense
    # Drops each command, once.
    echo 4 > /sys/bus/pseudo/drivers/scsi_debug/opts
    echo -1 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
    sense "$far" -r 512 28 00 00 00 00 00 00 00 01 00 | tee /tmp/sense
    echo 0 > /sys/bus/pseudo/drivers/scsi_debug/every_nth
    echo 0 > /sys/bus/pseudo/drivers/scsi_debug/opts
    grep "did not answer in time" /tmp/log
    within 20 sg_turs "$far"
    logout

    step "libiscsi's tests"
    # The device is what it is: through us each test ends as on the device itself.
    local family
    for family in TestUnitReady Inquiry ReadCapacity16 Write10 ModeSense6; do
        tests "$family" "$near" > /tmp/near
        tests "$family" "$url" > /tmp/far
        diff /tmp/near /tmp/far || fail "libiscsi sees another device: $family"
        step "  $family: $(grep -c passed /tmp/far) of $(wc -l < /tmp/far) passed, as on the device"
    done
    # What the device has not, and we have.
    for family in PrinReadKeys ProutRegister ProutPreempt Reserve6; do
        tests "$family" "$url" > /tmp/far
        if grep -v passed /tmp/far; then fail "libiscsi: $family"; fi
        step "  $family: $(wc -l < /tmp/far) passed"
    done

    step "the disk is taken away and comes back"
    /tmp/lunwire lun remove 0 --control-socket /tmp/control
    mkfs.ext4 -q -F "$local_disk"
    mount "$local_disk" /mnt/here
    umount /mnt/here
    /tmp/lunwire lun add "scsi:$near" --number 0 --control-socket /tmp/control
    /tmp/lunwire status --control-socket /tmp/control
    iscsi-inq "$url" | grep -i scsi_debug

    step "the disk is pulled out"
    echo 1 > "$folder/delete"
    iscsi-inq "$url" > /dev/null 2>&1 || true
    /tmp/lunwire inspect "$url" > /tmp/inspect 2>&1 || true
    grep -F "the device is gone" /tmp/log
    stop
}

tape() {
    step "a simulated tape drive"
    simulate ptype=1 delay=0
    serve "scsi:/dev/bsg/$HCTL"
    refused "scsi:$SG" "in use by process $server"
    pgrep -x iscsid > /dev/null || start_iscsid
    login "$iqn" 127.0.0.1:3260
    within 30 ls -d "/sys/class/iscsi_session/$session"/device/target*/*:0/scsi_generic/*
    local far
    far=$(remote)
    step "the host has $far"
    sg_inq "$far" | tee /tmp/inquiry
    grep -i "PDT=1" /tmp/inquiry
    diff <(sg_inq "$SG" | grep -e identification -e serial) \
        <(sg_inq "$far" | grep -e identification -e serial)
    iscsi-inq "$url" | grep -i -e tape -e sequential
    iscsi-ls -s iscsi://127.0.0.1:3260
    within 10 sg_turs "$far"
    # REWIND, then a block there and back.
    sg_raw "$far" 01 00 00 00 00 00
    # LOAD: what is simulated takes REWIND for a stop.
    sg_raw "$far" 1b 00 00 00 01 00
    head -c 512 /dev/urandom > /tmp/block
    sg_raw --send=512 --infile=/tmp/block "$far" 0a 00 00 00 01 00
    sg_raw --request=512 --outfile=/tmp/back "$far" 08 00 00 00 01 00
    cmp /tmp/block /tmp/back
    # One host prevents removal, another one allows it.
    sg_prevent "$far"
    sg_prevent --allow "$far"
    sg_reset --device "$far" || true
    within 10 sg_turs "$far"
    /tmp/lunwire inspect "$url" > /tmp/inspect || true
    cat /tmp/inspect
    logout
    stop
}

drive() {
    step "a simulated drive for CD and DVD"
    simulate ptype=5 delay=0
    serve "scsi:$SG"
    iscsi-inq "$url" | grep -e MMC -e "Peripheral Device Type"
    iscsi-ls -s iscsi://127.0.0.1:3260
    /tmp/lunwire inspect "$url" > /tmp/inspect
    grep -F "CD or DVD" /tmp/inspect
    stop
}

for kind; do "$kind"; done
step "PASSED"
