#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# iSER inside one guest, over a software RDMA device: LIO with ib_isert as target, the
# kernel's ib_iser and libiscsi (user space, libibverbs) as initiators.
#
#   iser-rxe.sh [rxe|siw [COMMAND...]]
#
# siw (iWARP) needs an image made with `vm-build --siw`. COMMAND, for example a user-space
# initiator in /share, runs at the end with PORTAL and IQN of the target in its environment.
. ./lib.sh
. ./lio.sh
. ./rdma.sh
kind=${1:-rxe}

step "RDMA device $kind"
rdma_up "$kind"
rdma link show
ibv_devinfo | sed -n 's/^\t*\(hca_id\|transport\|max_mtu\|active_mtu\|state\)/    \1/p'

step "verbs between two programs"
rping -s -a $RDMA_ADDRESS -C 3 &
within 10 rping -c -a $RDMA_ADDRESS -C 3
wait $!

step "target"
iqn=$IQN_BASE:iser
address=$RDMA_ADDRESS:3260
lio_start
lio_ramdisk ram
group=$(lio_group $iqn 1 $LIO/core/rd_mcp_0/ram)
lio_serve_iser "$group" $address

step "login by ib_iser"
modprobe ib_iser
start_iscsid
login $iqn $address iser
iscsiadm -m session | grep ^iser: || fail "the session does not use iSER"
negotiated "$session"
disk=$(wait_disk "$session")
sg_inq "/dev/$disk" | grep -i identification
step "verified I/O on $disk"
verified_io "/dev/$disk" "${SIZE:-8M}"
iscsiadm -m node -T $iqn -p $address -I iser --logout > /dev/null

# (libiscsi cannot connect over siw.)
if [ "$kind" = rxe ]; then
    step "login by libiscsi over iSER"
    iscsi-inq "iser://$address/$iqn/0" | grep -E '^(Vendor|Product):'
    timeout 5 iscsi-perf -m 4 -b 8 -t 2 "iser://$address/$iqn/0" 2>&1 | tr '\r' '\n' | tail -n 2 || true
fi
if [ $# -gt 1 ]; then
    step "${*:2}"
    PORTAL=$address IQN=$iqn "${@:2}"
fi
step "PASSED"
