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
disk=$(wait_disk "$session")
within 30 test -b /dev/sr0
drive=$(ls "/sys/class/iscsi_session/$session"/device/target*/*/block | grep -m 1 '^sr')

step "disc in $drive"
sg_inq "/dev/$drive" | grep -i 'PDT=5'
mkdir -p /mnt/disc /mnt/disk
mount -t iso9660 -o ro "/dev/$drive" /mnt/disc
(cd /mnt/disc && sha256sum --quiet -c /share/sums)
echo "    $(find /mnt/disc -type f | wc -l) files are right, $(blockdev --getsize64 "/dev/$drive") bytes"
if eject "/dev/$drive" 2> /dev/null; then fail "a mounted disc was taken out"; fi
umount /mnt/disc
for page in "get_config -q" "raw -r 8 /dev/$drive 43 00 00 00 00 00 00 00 0c 40"; do
    case $page in
        get_config*) sg_get_config -q "/dev/$drive" | head -n 3 ;;
        *) sg_raw -r 12 "/dev/$drive" 43 00 00 00 00 00 00 00 0c 40 2>&1 | head -n 3 ;;
    esac
done
step "taken out and put back"
sg_start --eject "/dev/$drive"
if sg_turs "/dev/$drive"; then fail "there is a disc in an open tray"; fi
sg_start --load "/dev/$drive"
within 10 sg_turs "/dev/$drive"
mount -t iso9660 -o ro "/dev/$drive" /mnt/disc
(cd /mnt/disc && sha256sum --quiet -c /share/sums)
umount /mnt/disc

step "file system on $disk of $(blockdev --getsize64 "/dev/$disk") bytes"
before=$(blockdev --getsize64 "/dev/$disk")
mkfs.ext4 -q -F "/dev/$disk"
mount "/dev/$disk" /mnt/disk
head -c 4M /dev/urandom > /mnt/disk/file
sha256sum /mnt/disk/file > /tmp/sum
touch /share/grow
within 30 test -e /share/grown
# The unit attention comes with the next command; the kernel then says so and rescans by a rule.
sync
echo 1 > "/sys/block/$disk/device/rescan"
within 30 eval "[ \$(blockdev --getsize64 /dev/$disk) -gt $before ]"
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
