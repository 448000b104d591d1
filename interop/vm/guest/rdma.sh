# SPDX-License-Identifier: Apache-2.0 OR MIT
# Helpers for RDMA devices made of software.

RDMA_ADDRESS=10.9.0.1

# rdma_up [rxe|siw [INTERFACE]]: an RDMA device (soft RoCE or soft iWARP) on this interface,
# or on a dummy one with the address $RDMA_ADDRESS: everything stays inside this guest then.
rdma_up() {
    local kind=${1:-rxe} interface=${2:-rdma0}
    modprobe -a dummy rdma_ucm ib_uverbs ib_umad "$([ "$kind" = rxe ] && echo rdma_rxe || echo siw)"
    if [ $# -lt 2 ]; then
        ip link add rdma0 type dummy
        ip addr add $RDMA_ADDRESS/24 dev rdma0
        ip link set rdma0 mtu 4500 up
    fi
    rdma link add "${kind}0" type "$kind" netdev "$interface"
    within 10 test -e /dev/infiniband/uverbs0
    within 10 eval "rdma link show ${kind}0/1 | grep ACTIVE > /dev/null"
}
