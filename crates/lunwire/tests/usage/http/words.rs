// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said over HTTP, and what docs/API.md says of it.

use super::*;

/// The orders of docs/API.md are carried out as they stand there, and its paths are answered.
#[test]
fn examples_of_the_documentation_work() {
    const PAGE: &str = include_str!("../../../../../docs/API.md");
    let files = Files::new();
    tokens(&files, "tokens", &format!("change {TOKEN}\n"), 0o600);
    let text = "listen = [\"127.0.0.1:0\"]\nhttp = \"127.0.0.1:0\"\nhttp-token-file = \"tokens\"\n\
                [[target]]\nname = \"iqn.2026-01.com.example:db\"\n[[target.lun]]\n\
                store = \"memory:1M\"\n[[target]]\nname = \"iqn.2026-01.com.example:other\"\n\
                [[target.lun]]\nstore = \"memory:1M\"\n";
    let file = files.with("lunwire.toml", text.as_bytes());
    let daemon = Daemon::start_configured(files.folder.path(), &file, 2, &[]);
    let told = stdout(&good(&["status", "--json", "--control-socket", &daemon.socket]));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let place = told["http"].as_str().unwrap();
    let indented = PAGE.lines().filter_map(|line| line.strip_prefix("    "));
    let in_commands = |line: &str| {
        let (_, behind) = line.split_once("-d '")?;
        Some(behind.split_once('\'')?.0.to_owned())
    };
    let mut orders = 0;
    for line in indented {
        let body = if line.starts_with('{') { Some(line.to_owned()) } else { in_commands(line) };
        let Some(body) = body else { continue };
        let said = ordered(place, TOKEN, &body);
        assert!(said.starts_with("HTTP/1.1 200 "), "{body}: {said}");
        orders += 1;
    }
    assert_eq!(orders, 6, "orders of the page");
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `/")?.split_once('`'));
    let paths: Vec<String> = rows.map(|(path, _)| format!("/{path}")).collect();
    assert_eq!(paths.len(), 10, "{paths:?}");
    for path in paths {
        let wanted = match &*path {
            // It goes on.
            "/api/v1/stream" => continue,
            "/api/v1/orders" => "405",
            _ => "200",
        };
        let said = get(place, &path);
        assert!(said.starts_with(&format!("HTTP/1.1 {wanted} ")), "{path}: {said}");
    }
    let url = |line: &'static str| line.split_once("http://127.0.0.1:9260").map(|(_, path)| path);
    let asked = PAGE.lines().filter(|line| line.starts_with("    curl") && !line.contains("-d '"));
    let asked: Vec<&str> = asked.filter_map(url).map(|path| path.trim_end_matches('\'')).collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    for path in asked.iter().filter(|path| !path.contains("stream")) {
        assert!(get(place, path).starts_with("HTTP/1.1 200 "), "{path}");
    }
}

/// Who asks over HTTP has fields, keys and paths, and no command line.
#[test]
fn no_refusal_names_an_option_of_a_command() {
    let files = Files::new();
    tokens(&files, "tokens", &format!("change {TOKEN}\n"), 0o600);
    let own = config(WITH_TOKENS, &["file:disk,size=2M", "memory:1M"]);
    let other = "[[target]]\nname = \"iqn.2026-01.test.lunwire:b\"\n[[target.lun]]\n\
                 store = \"null:1M\"\n";
    let two = format!("{own}{other}");
    let file = files.with("lunwire.toml", two.as_bytes());
    let daemon = Daemon::start_configured(files.folder.path(), &file, 3, &[]);
    let control = ["--control-socket", &daemon.socket];
    let told = stdout(&good(&[&["status", "--json"][..], &control].concat()));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let place = told["http"].as_str().unwrap();
    let a = "iqn.2026-01.test.lunwire:a";
    let written = ["bench", "--destroy-data", "--reads", "0", "--time", "100ms"];
    good(&[&written[..], &[&*daemon.urls[1]]].concat());
    let refused = |status: &str, body: &str| {
        let said = ordered(place, TOKEN, &body.replace("TARGET", a));
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{body}: {said}");
        let body_of = said.split_once("\r\n\r\n").unwrap().1;
        assert!(!body_of.contains("--"), "{body}: {said}");
    };
    for body in [
        r#"{"request":"add-lun","lun":{"store":"memory:1M"}}"#,
        r#"{"request":"remove-lun","lun":0}"#,
        r#"{"request":"resize-lun","lun":0,"bytes":1048576}"#,
        r#"{"request":"set-limit","lun":0,"iops":1}"#,
        r#"{"request":"resize-lun","target":"TARGET","lun":0,"bytes":1048576}"#,
        r#"{"request":"resize-lun","target":"TARGET","lun":0,"bytes":5}"#,
        r#"{"request":"resize-lun","target":"TARGET","lun":1,"bytes":5120}"#,
        r#"{"request":"resize-lun","target":"TARGET","lun":9,"bytes":5120}"#,
        r#"{"request":"resize-lun","target":"none","lun":0,"bytes":5120}"#,
        r#"{"request":"remove-lun","target":"TARGET","lun":1}"#,
        r#"{"request":"remove-lun","target":"TARGET","lun":9}"#,
        r#"{"request":"remove-lun","target":"none","lun":9}"#,
        r#"{"request":"add-lun","target":"none","lun":{"store":"memory:1M"}}"#,
        r#"{"request":"add-lun","target":"TARGET","number":1,"lun":{"store":"memory:1M"}}"#,
        r#"{"request":"add-lun","target":"TARGET","number":65535,"lun":{"store":"memory:1M"}}"#,
        r#"{"request":"add-lun","target":"TARGET","lun":{"store":"memory:1P"}}"#,
        r#"{"request":"add-lun","target":"TARGET","lun":{"store":"null:1M","block":7}}"#,
        r#"{"request":"add-lun","target":"TARGET","lun":{"store":"null:1M","protection":7}}"#,
        r#"{"request":"add-lun","target":"TARGET","lun":{"store":"memory:1M","protection":7}}"#,
        r#"{"request":"add-lun","target":"TARGET","lun":{"store":"null:1M","serial":" "}}"#,
        r#"{"request":"add-lun","target":"TARGET","lun":{"store":"null:1M","space_warning":"x"}}"#,
        r#"{"request":"add-lun","target":"TARGET","lun":{"store":"null:1M","initiators":["x"]}}"#,
        r#"{"request":"set-limit","target":"TARGET"}"#,
        r#"{"request":"set-limit","target":"TARGET","lun":0}"#,
        r#"{"request":"set-limit","target":"TARGET","lun":9,"iops":1}"#,
        r#"{"request":"set-limit","target":"TARGET","lun":0,"iops":0}"#,
        r#"{"request":"set-limit","target":"TARGET","lun":0,"bandwidth":1}"#,
        r#"{"request":"set-limit","target":"TARGET","lun":0,"sessions":1}"#,
        r#"{"request":"set-limit","target":"TARGET","initiator":"x","iops":1}"#,
        r#"{"request":"set-limit","target":"TARGET","initiator":"*","sessions":0}"#,
        r#"{"request":"set-port-group","target":"none","group":1,"state":"standby"}"#,
        r#"{"request":"set-port-group","target":"TARGET","group":1,"state":"x"}"#,
        r#"{"request":"set-port-group","target":"TARGET","group":1,"state":"standby"}"#,
        r#"{"request":"set-port-group","target":"TARGET","lun":9,"group":1,"state":"standby"}"#,
        r#"{"request":"drop-session","tsih":7}"#,
        r#"{"request":"logout-session","tsih":7,"timeout_s":1}"#,
    ] {
        refused("409", body);
    }
    for body in [
        r#"{"request":"add-lun","lun":{"store":"file:/x"}}"#,
        r#"{"request":"dump"}"#,
        r#"{"request":"snapshot-lun","lun":0,"path":"/x"}"#,
    ] {
        refused("403", body);
    }
    for body in ["", "{}", r#"{"request":"mount"}"#, r#"{"request":"reload","x":1}"#] {
        refused("400", body);
    }
    let change = |text: String| {
        std::fs::write(&file, text).unwrap();
        let said = ordered(place, TOKEN, r#"{"request":"reload"}"#);
        let body = said.split_once("\r\n\r\n").unwrap().1;
        assert!(body.contains("error") || body.contains("\"applied\":false"), "{said}");
        assert!(!body.contains("--"), "{said}");
        let told = get(place, "/api/v1/difference");
        assert!(!told.split_once("\r\n\r\n").unwrap().1.contains("--"), "{told}");
        // What was told is told for two seconds.
        std::thread::sleep(std::time::Duration::from_millis(2100));
    };
    change(two.replace("[[target.lun]]\nstore = \"memory:1M\"\n", ""));
    change(two.replace("size=2M", "size=1M"));
    change(two.replace("\"memory:1M\"", "\"memory:2M\""));
    change(two.replace("http = \"127.0.0.1:0\"", "http = \"127.0.0.1:1\""));
    change(
        two.replace("null:1M\"", "null:1M\"\n[[target.lun]]\nstore = \"file:/nowhere/x,size=1M\""),
    );
    change(two.replace("null:1M\"", "null:1M\"\nprotection = 9"));
    change(format!("engine = \"epol\"\n{two}"));
    change("listen = [\"127.0.0.1:0\"]\n".to_owned());
    change("nothing".to_owned());
    std::fs::remove_file(&file).unwrap();
    let said = ordered(place, TOKEN, r#"{"request":"reload"}"#);
    assert!(said.starts_with("HTTP/1.1 409 ") && !said.contains("--"), "{said}");
}
