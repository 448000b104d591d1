// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is read, and where errors are said to be.

use super::*;

fn source(text: &str) -> Source {
    Source::new("lunwire.toml".into(), text.into())
}

#[test]
fn a_whole_configuration_is_read() {
    let text = r#"
        listen = ["0.0.0.0:3260", "[::]:3260"]
        engine = "epoll"
        reactors = 2
        cpus = [0, 1]
        spin = "100us"
        login-timeout = "10s"
        log = "info"
        control-socket = "/run/lunwire.sock"
        state-dir = "/var/lib/lunwire"
        isns = "isns.example.com:3205"

        [[target]]
        name = "iqn.2026-01.com.example:disk"
        alias = "the disk"
        queue-depth = 64
        max-connections = 8
        time2wait = 1
        time2retain = 20
        error-recovery-level = 2
        max-outstanding-r2t = 65535
        data-pdu-in-order = true
        data-sequence-in-order = false
        markers = true
        target-reset = "cold"
        redirect = "192.0.2.7:3260"
        redirect-permanent = true
        header-digest = "any"
        data-digest = "off"
        ping-interval = "30s"
        ping-timeout = "10s"

        [[target.lun]]
        store = "memory:1G"
        block = 4096
        serial = "0001"

        [[target.initiator]]
        name = "iqn.2026-01.com.example:host"
        luns = [0]
        target-reset = "none"
        chap-user = "host"
        chap-secret-file = "/etc/lunwire/host"
        mutual-user = "disk"
        mutual-secret-env = "DISK_SECRET"

        [discovery]
        authentication = "mutual"
        chap-algorithms = ["sha256", "md5"]
    "#;
    let config = source(text).parse().unwrap();
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.isns.unwrap().get_ref(), "isns.example.com:3205");
    assert_eq!(config.target[0].markers, Some(true));
    assert_eq!(config.target[0].lun[0].store.get_ref(), "memory:1G");
    assert_eq!(config.target[0].initiator[0].luns.as_ref().unwrap().len(), 1);
    let chap = config.target[0].initiator[0].chap();
    assert_eq!(chap.user.unwrap().get_ref(), "host");
    assert_eq!(chap.secret_file.unwrap().get_ref(), "/etc/lunwire/host");
    assert_eq!(chap.mutual_secret_env.unwrap().get_ref(), "DISK_SECRET");
    assert!(chap.secret_env.is_none() && chap.mutual_secret_file.is_none());
    let discovery = config.discovery.unwrap();
    assert_eq!(discovery.chap_algorithms.unwrap().get_ref()[0].get_ref(), "sha256");
    assert!(discovery.chap_user.is_none());
}

#[test]
fn errors_name_file_line_field_and_value() {
    let cases = [
        ("\nlisten = 5\n", "lunwire.toml:2", "invalid type"),
        ("reactor = 1\n", "lunwire.toml:1", "unknown field `reactor`"),
        ("\n\n[[target]]\n", "lunwire.toml:3", "missing field `name`"),
        ("engine = \"uring\"\nx", "lunwire.toml:2", "key with no value"),
        ("[[target]]\nname = \"a\"\nqueue-depth = 99999\n", "lunwire.toml:3", "99999"),
    ];
    for (text, place, problem) in cases {
        let error = source(text).parse().unwrap_err();
        assert_eq!(error.place, place, "{text}: {error}");
        assert!(error.to_string().contains(problem), "{text}: {error}");
    }
}

#[test]
fn a_value_is_pointed_at() {
    let source = source("\n\nengine = \"fast\"\n");
    let config = source.parse().unwrap();
    let error = source.error("engine", &config.engine.unwrap(), "auto, uring or epoll is right");
    assert_eq!(
        error.to_string(),
        "lunwire.toml:3: engine = \"fast\": auto, uring or epoll is right"
    );
}

/// `cargo xtask configuration` puts them into the table, each beside its key.
#[test]
fn examples_of_all_keys_are_read() {
    let (read, wrong) = source(include_str!("examples.toml")).parse_all();
    assert!(wrong.is_empty(), "{wrong:?}");
    let config = read.unwrap();
    assert_eq!(config.target.len(), 1);
    assert_eq!(config.target[0].limit.len(), 1);
}
