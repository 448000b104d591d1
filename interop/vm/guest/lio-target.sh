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
for kind in lio lio-chap lio-mutual lio-acl; do
    group=$(lio_group $IQN_BASE:$kind 1 $LIO/core/rd_mcp_0/ram $LIO/core/fileio_0/file)
    for pair in ${PARAMETERS:-}; do echo "${pair#*=}" > "$group/param/${pair%%=*}"; done
    case $kind in
        lio-chap|lio-mutual)
            echo 1 > "$group/attrib/authentication"
            echo CHAP > "$group/param/AuthMethod"
            echo -n user > "$group/auth/userid"
            echo -n secretsecret > "$group/auth/password"
            ;;&
        lio-mutual)
            echo -n target > "$group/auth/userid_mutual"
            echo -n targetsecret > "$group/auth/password_mutual"
            ;;
        lio-acl)
            acl=$group/acls/$IQN_BASE:known
            mkdir "$acl"
            for lun in 0 1; do
                mkdir "$acl/lun_$lun"
                ln -s "$group/lun/lun_$lun" "$acl/lun_$lun/lun"
            done
            echo -n known > "$acl/auth/userid"
            echo -n knownsecret12 > "$acl/auth/password"
            echo 0 > "$group/attrib/generate_node_acls"
            echo 1 > "$group/attrib/authentication"
            echo CHAP > "$group/param/AuthMethod"
            ;;
    esac
    lio_serve "$group" 0.0.0.0:3260
done
step "$(ls $ISCSI | grep -c ^iqn) targets"
ready
until_told
step "sessions still open:"
cat $ISCSI/iqn*/tpgt_1/dynamic_sessions
step "PASSED"
