#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Linux's own initiator against a target: discovery, login, INQUIRY, a file system,
# verified I/O, logout.
#
#   kernel-initiator.sh PORTAL [IQN]      PORTAL: PORT (on the host) or ADDRESS:PORT
#
# Environment: HEADER_DIGEST and DATA_DIGEST (CRC32C, None, "CRC32C,None"),
# CHAP_USER CHAP_PASSWORD [CHAP_USER_IN CHAP_PASSWORD_IN] [CHAP_ALGORITHMS]
# [DISCOVERY_CHAP=yes: the same for discovery],
# IFACE (iser, with an RDMA device that is up already),
# SETTINGS ("node.session.iscsi.InitialR2T=Yes ..."), SIZE of the I/O test (8M).
# For a target that runs in this guest: TARGET, a command that starts in the background
# (for example "/share/target 0.0.0.0:3260"; PORTAL is then 127.0.0.1:3260), and RDMA
# (rxe or siw), which makes the session use iSER and adds the address 10.9.0.1.
. ./lib.sh
. ./rdma.sh
[ $# -ge 1 ] || fail "usage: kernel-initiator.sh PORTAL [IQN]"
address=$(portal "$1")
iface=${IFACE:-default}
if [ -n "${RDMA:-}" ]; then
    step "RDMA device $RDMA"
    rdma_up "$RDMA"
    modprobe ib_iser
    iface=iser
fi
if [ -n "${TARGET:-}" ]; then
    step "starting the target"
    bash -c "$TARGET" &
fi

step "starting iscsid"
start_iscsid "${INITIATOR:-}"
step "discovery at $address"
[ -z "${TARGET:-}" ] || within 30 eval "discover $address $iface | grep ."
names=$(discover "$address" "$iface")
echo "$names"
iqn=${2:-$(echo "$names" | sed -n 1p)}
echo "$names" | grep -xF "$iqn" > /dev/null || fail "$iqn was not discovered"

step "login to $iqn"
login "$iqn" "$address" "$iface"
negotiated "$session"
for kind in HEADER DATA; do
    wanted=${kind}_DIGEST
    [ "${!wanted:-}" != CRC32C ] ||
        [ "$(cat /sys/class/iscsi_session/"$session"/device/connection*/iscsi_connection/*/"${kind,,}_digest")" = 1 ] ||
        fail "no ${kind,,} digest was negotiated"
done

disk=$(wait_disk "$session")
step "disk $disk of $(cat /sys/block/"$disk"/size) sectors"
sg_inq "/dev/$disk"
for page in 0x00 0x80 0x83 0xb0 0xb1 0xb2; do
    sg_vpd --quiet -p $page "/dev/$disk" || echo "    (no page $page)"
done
sg_readcap --16 "/dev/$disk" || true

step "mkfs and mount"
mkfs.ext4 -q -F "/dev/$disk"
mkdir -p /mnt/disk
mount "/dev/$disk" /mnt/disk
step "verified I/O"
verified_io /mnt/disk/file "${SIZE:-8M}"
sha256sum /mnt/disk/file > /tmp/sum
umount /mnt/disk
step "fsck"
fsck.ext4 -f -n "/dev/$disk"
mount -o ro "/dev/$disk" /mnt/disk
sha256sum --quiet -c /tmp/sum
umount /mnt/disk

step "logout"
iscsiadm -m node -T "$iqn" -p "$address" --logout > /dev/null
[ -z "$(ls /sys/class/iscsi_session)" ] || fail "a session is left"
step "PASSED"
