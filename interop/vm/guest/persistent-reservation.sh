#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Persistent reservations between two initiators (two names, two sessions) that see
# the same LUN: register, reserve, conflict, preempt, clear.
#
#   persistent-reservation.sh [PORTAL [IQN]]    without PORTAL: LIO in this guest
. ./lib.sh
. ./lio.sh
if [ $# -eq 0 ]; then
    lio_start
    lio_ramdisk ram
    lio_serve "$(lio_group $IQN_BASE:lio 1 $LIO/core/rd_mcp_0/ram)" 127.0.0.1:3260
    set -- 127.0.0.1:3260
fi
address=$(portal "$1")
start_iscsid
iqn=${2:-$(discover "$address" | sed -n 1p)}

# An iface of open-iscsi has its own initiator name.
for who in a b; do
    iscsiadm -m iface -I $who -o new > /dev/null
    iscsiadm -m iface -I $who -o update -n iface.initiatorname -v $IQN_BASE:initiator-$who
    login "$iqn" "$address" $who
    printf -v $who /dev/%s "$(wait_disk "$session")"
done
step "initiator a has $a, initiator b has $b"
# Its first command after the login gets a unit attention.
sg_turs "$a" || true
sg_turs "$b" || true

pr_out() { sg_persist --out --no-inquiry "$@"; }
keys() { sg_persist --in --no-inquiry --read-keys "$1"; }
holder() { sg_persist --in --no-inquiry --read-reservation "$1"; }
# WRITE (10) of the first block.
can_write() { sg_raw --send=512 --infile=/dev/zero "$1" 2a 00 00 00 00 00 00 00 01 00 2> /dev/null; }
# expect_conflict COMMAND...: 24 is sg3-utils' status for RESERVATION CONFLICT.
expect_conflict() {
    local status=0
    "$@" || status=$?
    [ $status -eq 24 ] || fail "status $status instead of a reservation conflict: $*"
}

step "capabilities"
sg_persist --in --no-inquiry --report-capabilities "$a" | tee /tmp/capabilities
aptpl=
! grep -q 'PTPL_C): 1' /tmp/capabilities || aptpl=--param-aptpl
step "register both, reserve for a (write exclusive)"
pr_out --register --param-sark=0xaaaa "$a"
pr_out --register --param-sark=0xbbbb "$b"
pr_out --reserve --param-rk=0xaaaa --prout-type=1 "$a"
# One line each: `set -e` does not see the failure of what stands before `&&`.
keys "$b" | grep 0xaaaa
keys "$a" | grep 0xbbbb
holder "$b" | grep 'scope: LU_SCOPE'
can_write "$a"
expect_conflict can_write "$b"
expect_conflict pr_out --reserve --param-rk=0xbbbb --prout-type=1 "$b"
expect_conflict pr_out --register --param-rk=0xdead --param-sark=0xbeef "$b"

step "b preempts a"
pr_out --preempt --param-rk=0xbbbb --param-sark=0xaaaa --prout-type=3 "$b"
holder "$b" | grep 0xbbbb
! keys "$b" | grep 0xaaaa > /dev/null || fail "a is still registered"
can_write "$b"
sg_turs "$a" || true    # unit attention: registrations preempted
expect_conflict can_write "$a"
expect_conflict pr_out --release --param-rk=0xaaaa --prout-type=3 "$a"

step "release, register again, clear"
pr_out --release --param-rk=0xbbbb --prout-type=3 "$b"
can_write "$a"
pr_out --register --param-sark=0xaaaa "$a"
pr_out --reserve --param-rk=0xaaaa --prout-type=5 "$a"
can_write "$b"          # registrants only, and b is one
pr_out --clear --param-rk=0xbbbb "$b"
sg_turs "$a" || true    # unit attention: reservations preempted
keys "$a" | grep -i 'NO registered'
holder "$a" | grep -i 'NO reservation'
can_write "$a"

step "all registrants, kept over power loss where the target can"
pr_out --register --param-sark=0xaaaa $aptpl "$a"
pr_out --reserve --param-rk=0xaaaa --prout-type=7 "$a"
sg_persist --in --no-inquiry --read-full-status "$a" || true      # optional
pr_out --register --param-rk=0xaaaa --param-sark=0 "$a"
holder "$a" | grep -i 'NO reservation'

for who in a b; do iscsiadm -m node -T "$iqn" -p "$address" -I $who --logout > /dev/null; done
step "PASSED"
