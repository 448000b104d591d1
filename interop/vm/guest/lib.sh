# SPDX-License-Identifier: Apache-2.0 OR MIT
# Helpers for the guest scripts: kernel initiator, messages, waiting.

set -euo pipefail
IQN_BASE=iqn.2026-01.test.lunwire
trap 'echo "FAILED at line $LINENO: $BASH_COMMAND" >&2' ERR

step() { printf '[%7.1fs] %s\n' "$(cut -d' ' -f1 /proc/uptime)" "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

# within SECONDS COMMAND...: retries COMMAND until it succeeds.
within() {
    local end=$((SECONDS + $1)); shift
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "FAILED: timeout waiting for: $*" >&2; return 1; }
        sleep 0.2
    done
}

# ready: tells the host that a server in the guest is up; see also until_told.
ready() { [ ! -d /share ] || touch /share/ready 2> /dev/null || true; echo READY; }
# until_told: until the host makes a file `stop` in the share, or stops vm-run.
until_told() { until [ -e /share/stop ]; do sleep 1; done; }

# portal PORT|ADDRESS[:PORT]: a port alone means that port of the host.
portal() {
    case $1 in
        *:*) echo "$1" ;;
        *.*) echo "$1:3260" ;;
        *) echo "10.0.2.2:$1" ;;
    esac
}

# start_iscsid [INITIATOR-NAME]: anew, when one runs; its sessions go on.
start_iscsid() {
    local pristine=/run/iscsid.conf
    # Two of iscsiadm's that begin at once: the second one fails, for it makes this folder too.
    mkdir -p /run/lock/iscsi
    modprobe -a iscsi_tcp crc32c_generic
    pkill -x iscsid || true
    within 10 eval '! pgrep -x iscsid'
    [ -e $pristine ] || cp /etc/iscsi/iscsid.conf $pristine
    cp $pristine /etc/iscsi/iscsid.conf
    echo "InitiatorName=${1:-$IQN_BASE:kernel}" > /etc/iscsi/initiatorname.iscsi
    local pair
    if [ -n "${DISCOVERY_CHAP:-}" ]; then
        for pair in authmethod=CHAP "username=$CHAP_USER" "password=$CHAP_PASSWORD" \
            ${CHAP_USER_IN:+"username_in=$CHAP_USER_IN" "password_in=$CHAP_PASSWORD_IN"} \
            ${CHAP_ALGORITHMS:+"chap_algs=$CHAP_ALGORITHMS"}; do
            echo "discovery.sendtargets.auth.${pair%%=*} = ${pair#*=}"
        done >> /etc/iscsi/iscsid.conf
    fi
    iscsid
}

# discover PORTAL [IFACE]: names of its targets. The addresses a target behind a port
# forward reports are of no use here, so only the names are kept.
discover() {
    iscsiadm -m discoverydb -t sendtargets -p "$1" -I "${2:-default}" -o nonpersistent --discover |
        awk '{ print $2 }' | sort -u
}

# login IQN PORTAL [IFACE]: session with the digests, CHAP and other parameters
# that the environment asks for (see kernel-initiator.sh). Sets $session.
login() {
    local node=(-m node -T "$1" -p "$2" -I "${3:-default}") pair
    local changes=(node.startup=manual
        node.session.timeo.replacement_timeout="${REPLACEMENT_TIMEOUT:-20}" ${SETTINGS:-})
    [ -z "${HEADER_DIGEST:-}" ] || changes+=("node.conn[0].iscsi.HeaderDigest=$HEADER_DIGEST")
    [ -z "${DATA_DIGEST:-}" ] || changes+=("node.conn[0].iscsi.DataDigest=$DATA_DIGEST")
    [ -z "${CHAP_USER:-}" ] || changes+=(node.session.auth.authmethod=CHAP
        node.session.auth.username="$CHAP_USER" node.session.auth.password="$CHAP_PASSWORD")
    [ -z "${CHAP_USER_IN:-}" ] || changes+=(node.session.auth.username_in="$CHAP_USER_IN"
        node.session.auth.password_in="$CHAP_PASSWORD_IN")
    [ -z "${CHAP_ALGORITHMS:-}" ] || changes+=(node.session.auth.chap_algs="$CHAP_ALGORITHMS")
    local update=()
    for pair in "${changes[@]}"; do update+=(-n "${pair%%=*}" -v "${pair#*=}"); done
    iscsiadm "${node[@]}" -o new > /dev/null
    iscsiadm "${node[@]}" -o update "${update[@]}"
    iscsiadm "${node[@]}" --login > /dev/null
    session=$(session_of "$1" "${2##*:}" "${3:-default}")
    [ -n "$session" ] || fail "no session for $1"
}

# session_of IQN PORT IFACE: the youngest session there; others may log in meanwhile.
session_of() {
    local name
    for name in $(ls /sys/class/iscsi_session | sort -V); do
        printf '%s %s %s %s\n' "$name" "$(cat /sys/class/iscsi_session/"$name"/targetname)" \
            "$(cat /sys/class/iscsi_connection/connection"${name#session}":0/persistent_port)" \
            "$(cat /sys/class/iscsi_session/"$name"/ifacename)"
    done 2> /dev/null | awk -v wanted="$*" '{ name = $1; sub(/^[^ ]+ /, "") } $0 == wanted { last = name }
        END { print last }'
}

# disks SESSION: names of its block devices, by LUN.
disks() {
    local path
    for path in $(ls -d "/sys/class/iscsi_session/$1"/device/target*/*/block/* 2> /dev/null | sort -V); do
        basename "$path"
    done
}

# wait_disk SESSION: name of its first block device, when there is one.
wait_disk() {
    within 30 eval "[ -n \"\$(disks $1)\" ]"
    disks "$1" | sed -n 1p
}

# negotiated SESSION: the operational parameters both sides agreed on.
negotiated() {
    local name folder
    for folder in /sys/class/iscsi_session/$1 /sys/class/iscsi_session/$1/device/connection*/iscsi_connection/*; do
        for name in initial_r2t immediate_data max_outstanding_r2t first_burst_len max_burst_len \
            erl data_pdu_in_order data_seq_in_order header_digest data_digest max_recv_dlength \
            max_xmit_dlength; do
            [ -r "$folder/$name" ] && printf '    %s=%s\n' "$name" "$(cat "$folder/$name")"
        done
    done
    return 0
}

# start_multipathd: groups paths by their ALUA state, fails back at once.
start_multipathd() {
    modprobe -a dm_multipath dm_round_robin dm_service_time scsi_dh_alua
    cat > /etc/multipath.conf <<'END'
defaults {
    find_multipaths no
    user_friendly_names yes
    path_grouping_policy group_by_prio
    prio alua
    failback immediate
    polling_interval 2
    no_path_retry 10
}
blacklist {
    devnode "^vd"
}
END
    step "multipathd"
    pgrep -x multipathd > /dev/null || multipathd
    within 60 multipathd show status
}
# drop_maps: without its paths in use. udev reads a map again when a writer has closed it,
# and multipathd makes one anew for each path that comes.
drop_maps() {
    within 60 multipath -F
    pkill -x multipathd || true
    within 30 eval '! pgrep -x multipathd'
}
# states: path, its state in the map, what the path checker says, its priority.
states() { multipathd show paths raw format '%d %t %T %p' | sort; }

# verified_io FILE-OR-DISK [SIZE]: random writes, then reads that check each block.
verified_io() {
    fio --name=verify --filename="$1" --size="${2:-8M}" --rw=randwrite --bsrange=4k-128k \
        --bs_unaligned=0 --blockalign=4k --direct=1 --ioengine=libaio --iodepth=8 \
        --verify=crc32c --verify_fatal=1 --do_verify=1 --end_fsync=1 --minimal \
        --terse-version=3 > /tmp/fio.log 2>&1 || { cat /tmp/fio.log; return 1; }
    awk -F';' 'NF > 50 { printf "    read %d KiB (checked) and wrote %d KiB, error %s\n", $6, $47, $5 }' /tmp/fio.log
}
