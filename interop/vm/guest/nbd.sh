#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Linux's NBD client against a server: verified I/O on the disk it makes.
#
#   nbd.sh PORTAL [EXPORT]      PORTAL: PORT (on the host) or ADDRESS:PORT
. ./lib.sh
[ $# -ge 1 ] || fail "usage: nbd.sh PORTAL [EXPORT]"
address=$(portal "$1")
modprobe nbd
nbd-client -N "${2:-}" "${address%:*}" "${address##*:}" /dev/nbd0 -persist
within 10 eval "[ \$(cat /sys/block/nbd0/size) -gt 0 ]"
step "verified I/O"
verified_io /dev/nbd0 "${SIZE:-8M}"
nbd-client -d /dev/nbd0
step "PASSED"
