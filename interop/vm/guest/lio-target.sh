#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The kernel's target on 0.0.0.0:3260, for an initiator on the host (vm-run --forward).
# Prints READY, makes /share/ready, and stays until /share/stop exists or vm-run is
# stopped. All targets: ErrorRecoveryLevel up to 2, up to 4 connections, digests
# CRC32C or None. LUN 0 is a RAM disk, LUN 1 a file with UNMAP; 64 MiB each.
#
#   ...:lio       anybody, no authentication
#   ...:lio-chap    anybody, CHAP user/secretsecret
#   ...:lio-mutual  anybody, the same, and the target answers as target/targetsecret
#   ...:lio-acl     only initiator ...:known, CHAP known/knownsecret12
#
# Environment: PARAMETERS ("InitialR2T=No FirstBurstLength=65536 ...") for all of them.
. ./lib.sh
. ./lio.sh
lio_start
lio_ramdisk ram
lio_file file
lio_targets
step "$(ls $ISCSI | grep -c ^iqn) targets"
ready
until_told
step "sessions still open:"
cat $ISCSI/iqn*/tpgt_1/dynamic_sessions
step "PASSED"
