# SPDX-License-Identifier: Apache-2.0 OR MIT
# Helpers that configure LIO, the kernel's target, directly through configfs.

LIO=/sys/kernel/config/target
ISCSI=$LIO/iscsi

# LIO keeps persistent reservations here; it must exist before the module is loaded.
mkdir -p /etc/target/pr

lio_start() {
    modprobe -a target_core_mod target_core_file iscsi_target_mod
    mkdir -p $LIO/core/rd_mcp_0 $LIO/core/fileio_0 $ISCSI /tmp/lio
}

# targetcli_start: afterwards the command targetcli works too (it takes seconds a call).
targetcli_start() {
    mkdir -p /run/dbus
    dbus-daemon --system
}

# lio_ramdisk NAME [PAGES]      lio_file NAME [BYTES]
lio_ramdisk() {
    local disk=$LIO/core/rd_mcp_0/$1
    mkdir "$disk"
    echo "rd_pages=${2:-16384}" > "$disk/control"
    lio_enable "$disk" "$1"
}
lio_file() {
    local disk=$LIO/core/fileio_0/$1
    mkdir "$disk"
    truncate -s "${2:-67108864}" "/tmp/lio/$1"
    echo "fd_dev_name=/tmp/lio/$1,fd_dev_size=${2:-67108864}" > "$disk/control"
    lio_enable "$disk" "$1"
    echo 1 > "$disk/attrib/emulate_tpu"
    echo 1 > "$disk/attrib/emulate_tpws"
}
lio_enable() {
    echo "$2" > "$1/wwn/vpd_unit_serial"
    echo 1 > "$1/enable"
}

# lio_group IQN TAG [DISK-FOLDER...]: a portal group with one LUN per disk, open to
# everybody (demo mode). Prints its folder.
lio_group() {
    local group=$ISCSI/$1/tpgt_$2 lun=0 disk; shift 2
    mkdir -p "$group"
    for disk; do
        mkdir "$group/lun/lun_$lun"
        ln -s "$disk" "$group/lun/lun_$lun/disk"
        lun=$((lun + 1))
    done
    echo 0 > "$group/attrib/authentication"
    echo 1 > "$group/attrib/generate_node_acls"
    echo 1 > "$group/attrib/cache_dynamic_acls"
    echo 0 > "$group/attrib/demo_mode_write_protect"
    echo 2 > "$group/attrib/default_erl"
    echo 2 > "$group/param/ErrorRecoveryLevel"
    echo 4 > "$group/param/MaxConnections"
    echo CRC32C,None > "$group/param/HeaderDigest"
    echo CRC32C,None > "$group/param/DataDigest"
    echo "$group"
}
# lio_serve GROUP-FOLDER ADDRESS:PORT...
lio_serve() {
    local group=$1; shift
    for address; do mkdir "$group/np/$address"; done
    echo 1 > "$group/enable"
}
# lio_serve_iser GROUP-FOLDER ADDRESS:PORT: over RDMA only. LIO always opens a TCP
# listener first; it is put where nobody sees it, as soft iWARP needs the TCP port.
lio_serve_iser() {
    modprobe ib_isert
    unshare --net mkdir "$1/np/$2"
    echo 1 > "$1/np/$2/iser"
    echo 1 > "$1/enable"
}

# lio_targets: $IQN_BASE:lio (anybody), :lio-chap, :lio-mutual, :lio-acl (see lio-target.sh), each
# with the RAM disk "ram" as LUN 0 and the file "file" as LUN 1, on 0.0.0.0:3260.
lio_targets() {
    local kind group pair acl lun
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
}
