#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Disks that change and discs, as the kernel sees them: a DVD is mounted and read, taken out and
# put back; a disk grows under a mounted file system, which grows with it.
#
#   volumes.sh PORTAL IQN        LUN 0: a disk, LUN 1: a disc; /share holds the disc's sums
#
# The host resizes the disk when /share/grow appears, and then makes /share/grown.
. ./lib.sh
[ $# -eq 2 ] || fail "usage: volumes.sh PORTAL IQN"
address=$(portal "$1")

step "login"
start_iscsid
modprobe -a sr_mod isofs
login "$2" "$address"
within 120 eval "disks $session | grep '^sd' && disks $session | grep '^sr'"
disk=$(disks "$session" | grep '^sd' | tail -n 1)
drive=$(disks "$session" | grep '^sr' | tail -n 1)

step "disc in $drive"
sg_inq "/dev/$drive" | grep -i 'PDT=5'
mkdir -p /mnt/disc /mnt/disk
mount -t iso9660 -o ro "/dev/$drive" /mnt/disc
(cd /mnt/disc && sha256sum --quiet -c /share/sums)
echo "    $(find /mnt/disc -type f | wc -l) files are right, $(blockdev --getsize64 "/dev/$drive") bytes"
sg_get_config -q "/dev/$drive" | tail -n 1
# The generic device: whoever opens the other one locks the tray.
modprobe sg
tray=/dev/$(ls "/sys/block/$drive/device/scsi_generic")
if sg_start --eject "$tray" 2> /dev/null; then fail "a mounted disc was taken out"; fi
umount /mnt/disc
sg_raw -r 12 "$tray" 43 00 00 00 00 00 00 00 0c 40 2>&1 | grep -A 2 Received
step "taken out and put back"
# As eject(1) does: the kernel keeps the tray locked after the last use.
sg_prevent --allow "$tray"
sg_start --eject "$tray"
if sg_turs "$tray" 2> /dev/null; then fail "there is a disc in an open tray"; fi
sg_start --load "$tray"
within 60 sg_turs "$tray"
mount -t iso9660 -o ro "/dev/$drive" /mnt/disc
(cd /mnt/disc && sha256sum --quiet -c /share/sums)
umount /mnt/disc

step "file system on $disk of $(blockdev --getsize64 "/dev/$disk") bytes"
before=$(blockdev --getsize64 "/dev/$disk")
mkfs.ext4 -q -F "/dev/$disk"
step "mount"
mount "/dev/$disk" /mnt/disk
head -c 1M /dev/urandom > /mnt/disk/file
sha256sum /mnt/disk/file > /tmp/sum
step "grow"
touch /share/grow
within 120 test -e /share/grown
# The unit attention comes with the next command; the kernel then says so and rescans by a rule.
sync
step "grown"
echo 1 > "/sys/block/$disk/device/rescan"
within 120 eval "[ \$(blockdev --getsize64 /dev/$disk) -gt $before ]"
dmesg | grep -i 'capacity data has changed\|detected capacity change' | tail -n 2
resize2fs "/dev/$disk" 2>&1 | tail -n 1
sha256sum --quiet -c /tmp/sum
size=$(df --output=size -B1 /mnt/disk | tail -n 1)
[ "$size" -gt "$before" ] || fail "the file system did not grow: $size"
umount /mnt/disk
fsck.ext4 -f -n "/dev/$disk" > /dev/null
step "$before bytes before, $(blockdev --getsize64 "/dev/$disk") now"

step "logout"
iscsiadm -m node -T "$2" -p "$address" --logout > /dev/null
step "PASSED"
