#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A snapshot of a disk that is in use, on a file system with reflinks (XFS): it keeps what was
# there, shares its blocks, and can be served itself.
#
#   snapshot.sh                    /share/lunwire is the program
. ./lib.sh
modprobe -a loop xfs
truncate -s 400M /tmp/xfs.img
mkfs.xfs -q /tmp/xfs.img
mkdir -p /mnt/xfs
mount -o loop /tmp/xfs.img /mnt/xfs

step "serving a file on XFS"
/share/lunwire serve --listen 127.0.0.1:3260 --control-socket /tmp/control \
    --lun file:/mnt/xfs/disk,size=64M > /tmp/serving 2> /tmp/log &
within 60 grep serving /tmp/serving
iqn=$(cut -d/ -f4 /tmp/serving)
start_iscsid
login "$iqn" 127.0.0.1:3260
disk=$(wait_disk "$session")
mkfs.ext4 -q -F "/dev/$disk"
mkdir -p /mnt/disk /mnt/copy
mount "/dev/$disk" /mnt/disk
head -c 8M /dev/urandom > /mnt/disk/before
sync
sha256sum < /mnt/disk/before > /tmp/sum

step "snapshot"
free=$(df --output=avail -B1 /mnt/xfs | tail -n 1)
/share/lunwire lun snapshot 0 /mnt/xfs/monday --control-socket /tmp/control
if /share/lunwire lun snapshot 0 /mnt/xfs/monday --control-socket /tmp/control; then
    fail "a file was overwritten"
fi
taken=$((free - $(df --output=avail -B1 /mnt/xfs | tail -n 1)))
[ "$taken" -lt $((4 << 20)) ] || fail "the snapshot took $taken bytes"
head -c 8M /dev/urandom > /mnt/disk/before
sync
umount /mnt/disk
iscsiadm -m node -T "$iqn" -p 127.0.0.1:3260 --logout > /dev/null

step "the snapshot, mounted"
mount -o loop /mnt/xfs/monday /mnt/copy
sha256sum < /mnt/copy/before | cmp - /tmp/sum
umount /mnt/copy
fsck.ext4 -f -n /mnt/xfs/monday > /dev/null
if /share/lunwire lun snapshot 0 /tmp/elsewhere --control-socket /tmp/control 2> /tmp/refusal; then
    fail "blocks were shared between file systems"
fi
grep reflinks /tmp/refusal
kill %1
wait %1
step "PASSED"
