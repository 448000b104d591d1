// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the configuration files of others say: one disk, nobody asks who one is.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::{DISK_BYTES, TARGET};

pub(super) fn istgt(folder: &Path, disk: &str, portal: SocketAddr, control: u16) -> String {
    let (node, name) = TARGET.split_once(':').unwrap_or((TARGET, "lab"));
    let (folder, megabytes) = (folder.display(), DISK_BYTES >> 20);
    format!(
        "[Global]\n  NodeBase \"{node}\"\n  PidFile {folder}/pid\n  AuthFile {folder}/accounts\n  \
         MediaDirectory {folder}\n  DiscoveryAuthMethod Auto\n  MaxSessions 16\n  \
         MaxConnections 4\n  DefaultTime2Wait 2\n  DefaultTime2Retain 20\n\
         [UnitControl]\n  AuthMethod None\n  Portal UC1 127.0.0.1:{control}\n  \
         Netmask 127.0.0.1\n\
         [PortalGroup1]\n  Portal DA1 {portal}\n\
         [InitiatorGroup1]\n  InitiatorName \"ALL\"\n  Netmask 127.0.0.0/8\n\
         [LogicalUnit1]\n  TargetName {name}\n  Mapping PortalGroup1 InitiatorGroup1\n  \
         UnitType Disk\n  AuthMethod None\n  UseDigest Auto\n  QueueDepth 64\n  \
         LUN0 Storage {disk} {megabytes}MB\n"
    )
}

pub(super) fn spdk(portal: SocketAddr, target: &str) -> Value {
    let name = target.rsplit(':').next();
    let method = |method: &str, params: Value| json!({ "method": method, "params": params });
    let portals = json!([{ "host": portal.ip().to_string(), "port": portal.port().to_string() }]);
    let block = 512;
    let bdev = json!({ "name": "Malloc0", "num_blocks": DISK_BYTES / block, "block_size": block });
    let initiators = json!({ "tag": 2, "initiators": ["ANY"], "netmasks": ["127.0.0.0/8"] });
    let node = json!({
        "name": name,
        "alias_name": name,
        "pg_ig_maps": [{ "pg_tag": 1, "ig_tag": 2 }],
        "luns": [{ "bdev_name": "Malloc0", "lun_id": 0 }],
        "queue_depth": 64,
        "disable_chap": true,
    });
    json!({ "subsystems": [
        { "subsystem": "bdev", "config": [method("bdev_malloc_create", bdev)] },
        { "subsystem": "iscsi", "config": [
            method("iscsi_create_portal_group", json!({ "tag": 1, "portals": portals })),
            method("iscsi_create_initiator_group", initiators),
            method("iscsi_create_target_node", node),
        ] },
    ] })
}
