#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Two portals, one LUN, dm-multipath by ALUA priority; then the better path dies under
# I/O and comes back.
#
#   multipath.sh [PORTAL1 PORTAL2 [IQN]]    PORTAL1 is the one that will die; without
#                                           PORTALs: LIO in this guest, with ALUA
#                                           active/optimized and active/non-optimized
. ./lib.sh
. ./lio.sh
if [ $# -eq 0 ]; then
    lio_start
    lio_ramdisk ram
    disk=$LIO/core/rd_mcp_0/ram
    alua=$disk/alua/slower
    mkdir "$alua"
    echo 16 > "$alua/tg_pt_gp_id"
    echo 1 > "$alua/alua_access_state"      # active/non-optimized
    for group in "$disk"/alua/*; do         # that initiators cannot change
        echo 1 > "$group/alua_access_type"
    done
    port=3260
    for tag in 1 2; do
        group=$(lio_group $IQN_BASE:lio $tag "$disk")
        [ $tag -eq 1 ] || echo slower > "$group/lun/lun_0/alua_tg_pt_gp"
        lio_serve "$group" 127.0.0.1:$((port++))
    done
    set -- 127.0.0.1:3260 127.0.0.1:3261
fi
first=$(portal "$1") second=$(portal "$2")
export REPLACEMENT_TIMEOUT=5
export SETTINGS="node.conn[0].timeo.noop_out_interval=2 node.conn[0].timeo.noop_out_timeout=2"

start_multipathd
start_iscsid
iqn=${3:-$(discover "$first" | sed -n 1p)}
step "sessions to $iqn at $first and $second"
login "$iqn" "$first"
a=$(wait_disk "$session")
login "$iqn" "$second"
b=$(wait_disk "$session")

step "paths $a and $b"
within 60 eval "[ \$(multipathd show paths raw format '%d %t' | grep -cE '^($a|$b) active') = 2 ]"
states
map=/dev/mapper/$(multipathd show maps raw format '%n' | sed -n 1p)
within 10 test -e "$map"
multipath -ll
sg_rtpg --decode "/dev/$a" || true

step "verified I/O on $map while $first is cut off"
verified_io "$map" 8M
fio --name=load --filename="$map" --size=16M --rw=randwrite --bs=4k --direct=1 --ioengine=libaio \
    --iodepth=4 --time_based --runtime=30 --verify=crc32c --verify_backlog=64 --verify_fatal=1 \
    > /tmp/load.log 2>&1 &
load=$!
sleep 3
nft add table ip cut
nft add chain ip cut out '{ type filter hook output priority 0; }'
nft add rule ip cut out ip daddr "${first%:*}" tcp dport "${first##*:}" drop
within 60 eval "multipathd show paths raw format '%d %t' | grep '^$a failed' > /dev/null"
step "path $a is gone"
states
kill -0 $load || { cat /tmp/load.log; fail "I/O did not survive"; }
verified_io "$map" 1M

step "and is back"
nft delete table ip cut
within 90 eval "multipathd show paths raw format '%d %t' | grep '^$a active' > /dev/null"
states
wait $load || { cat /tmp/load.log; fail "I/O failed"; }
grep -E 'read:|write:' /tmp/load.log
[ -z "$(grep 'err= [^0]' /tmp/load.log)" ] || fail "I/O errors"

drop_maps
iscsiadm -m node -T "$iqn" --logout > /dev/null
step "PASSED"
