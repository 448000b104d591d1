// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire serve --http`: where it may listen, and how it is found.

mod words;

use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::lunwire;
use crate::support::stderr;
use crate::support::stdout;
use crate::takeovers::Next;

const TOKEN: &str = "0123456789abcdef0123456789abcdef-Zz";

const WITH_TOKENS: &str = "http-token-file = \"tokens\"\n";
const BY_TLS: &str = "http-certificate = \"cert\"\nhttp-key = \"key\"\n";

/// HTTP, of which `keys` say more, and a target of these disks.
fn config(keys: &str, stores: &[&str]) -> String {
    let disks = stores.iter().map(|store| format!("[[target.lun]]\nstore = \"{store}\"\n"));
    let disks: String = disks.collect();
    format!(
        "listen = [\"127.0.0.1:0\"]\nhttp = \"127.0.0.1:0\"\n{keys}[[target]]\n\
         name = \"iqn.2026-01.test.lunwire:a\"\n{disks}"
    )
}

/// What `path` is answered at `place`.
fn get(place: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(place).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

/// What the order `body` is answered at `place`.
fn ordered(place: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(place).unwrap();
    let (path, length) = ("/api/v1/orders", body.len());
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn other_machines_do_not_reach_it() {
    let why = ["takes TLS: http-certificate and http-key", "127.0.0.1:9260"];
    for address in ["0.0.0.0:9260", "[::]:9260", "192.0.2.1:9260"] {
        let named = format!("--http {address}");
        fails(2, &["serve", "--http", address], &[&[&*named][..], &why].concat());
        let said = stderr(&lunwire(&["serve", "--http", address]));
        assert_eq!(said.matches(address).count(), 1, "once: {said}");
    }
    for none in ["here", "localhost:9260", "127.0.0.1", "127.0.0.1:99999", ":9260"] {
        fails(2, &["serve", "--http", none], &["ADDRESS:PORT is right"]);
    }
    let files = Files::new();
    let file = files.with("lunwire.toml", b"\nhttp = \"0.0.0.0:9260\"\n");
    let place = format!("{file}:2: http = \"0.0.0.0:9260\"");
    fails(1, &["check", &file], &[&[&*place][..], &why].concat());
}

/// Of tests of another crate.
const CERTIFICATES: [(&str, &str); 2] = [
    (
        include_str!("../../../attach/tests/tls/server-cert.pem"),
        include_str!("../../../attach/tests/tls/server-key.pem"),
    ),
    (
        include_str!("../../../attach/tests/tls/client-cert.pem"),
        include_str!("../../../attach/tests/tls/client-key.pem"),
    ),
];

#[test]
fn other_machines_reach_it_by_tls_and_with_tokens() {
    let files = Files::new();
    let [(certificate, key), (_, other)] = CERTIFICATES;
    let certificate = files.with("cert", certificate.as_bytes());
    let key = tokens(&files, "key", key, 0o600);
    let other = tokens(&files, "other", other, 0o600);
    let open = tokens(&files, "open", "", 0o644);
    let file = tokens(&files, "tokens", &format!("read {TOKEN}\n"), 0o600);
    fn serve<'a>(more: &[&'a str]) -> Vec<&'a str> {
        let options = ["serve", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"];
        [&options[..], &["--control-socket", "/nowhere/control"], more].concat()
    }
    let tls = ["--http-certificate", &certificate, "--http-key", &key];
    let all = [&tls[..], &["--http-token-file", &file]].concat();
    fails(2, &serve(&[]), &["--http 0.0.0.0:0", "takes TLS"]);
    fails(2, &serve(&tls), &["--http 0.0.0.0:0", "need a token to read", "--http-token-file"]);
    fails(2, &serve(&tls[..2]), &["http-key (--http-key) is missing"]);
    fails(2, &serve(&tls[2..]), &["http-certificate (--http-certificate) is missing"]);
    for (key, wanted) in [
        (&*other, "is not the key of the certificate in"),
        (&*open, "(mode 0644); try: chmod 600"),
        ("/nowhere/key", "cannot read /nowhere/key"),
    ] {
        let tls = ["--http-certificate", &certificate, "--http-key", key];
        fails(2, &serve(&tls), &["--http-certificate, --http-key", key, wanted]);
    }
    // It comes as far as the control socket.
    fails(1, &serve(&all), &["/nowhere/control"]);
    let text = "http = \"0.0.0.0:0\"\nhttp-certificate = \"cert\"\nhttp-key = \"key\"\n";
    let config = files.with("lunwire.toml", text.as_bytes());
    fails(1, &["check", &config], &[&format!("{config}:1: http = "), "need a token to read"]);
    let text = format!("{text}http-token-file = \"tokens\"\n");
    good(&["check", &files.with("lunwire.toml", text.as_bytes())]);
    let text = text.replace("\"key\"", "\"other\"");
    let config = files.with("lunwire.toml", text.as_bytes());
    fails(1, &["check", &config], &["http-certificate, http-key", "is not the key of"]);
}

#[test]
fn a_certificate_is_read_again() {
    let files = Files::new();
    let [(certificate, key), (other, other_key)] = CERTIFICATES;
    files.with("cert", certificate.as_bytes());
    tokens(&files, "key", key, 0o600);
    let text = config(BY_TLS, &["memory:1M"]);
    let file = files.with("lunwire.toml", text.as_bytes());
    let daemon = Daemon::start_configured(files.folder.path(), &file, 1, &[]);
    let control = ["--control-socket", &daemon.socket];
    let order = |words: &[&str]| lunwire(&[words, &control].concat());
    let shown = stdout(&order(&["status"]));
    assert!(shown.contains("a page at https://127.0.0.1:"), "{shown}");
    assert!(stdout(&order(&["diff"])).contains("nothing"), "{}", stdout(&order(&["diff"])));
    files.with("cert", other.as_bytes());
    let broken = order(&["reload"]);
    let said = stderr(&broken);
    assert_eq!(broken.status.code(), Some(1), "{said}");
    assert!(said.contains("is not the key of the certificate in"), "{said}");
    tokens(&files, "key", other_key, 0o600);
    let told = stdout(&good(&[&["reload", "--dry-run"][..], &control].concat()));
    assert!(told.contains("http-certificate"), "{told}");
    let told = stdout(&good(&[&["reload"][..], &control].concat()));
    assert!(told.contains("http-certificate"), "{told}");
    let told = stdout(&good(&[&["reload"][..], &control].concat()));
    assert!(!told.contains("http-certificate"), "{told}");
    std::fs::write(&file, text.replace("\"key\"", "\"cert\"")).unwrap();
    assert_eq!(order(&["reload"]).status.code(), Some(1), "it is read when the daemon starts");
    let dumped = stdout(&good(&[&["dump"][..], &control].concat()));
    let whole = std::path::absolute(files.path("key")).unwrap();
    assert!(dumped.contains(&format!("\nhttp-key = \"{}\"\n", whole.display())), "{dumped}");
}

#[test]
fn a_certificate_that_is_watched_is_shown_when_both_its_files_are_there() {
    let files = Files::new();
    let [(certificate, key), (other, other_key)] = CERTIFICATES;
    files.with("cert", certificate.as_bytes());
    tokens(&files, "key", key, 0o600);
    let text = config(BY_TLS, &["memory:1M"]);
    let file = files.with("lunwire.toml", text.as_bytes());
    let daemon = Daemon::start_configured(files.folder.path(), &file, 1, &["--watch"]);
    let order =
        |words: &[&str]| stdout(&lunwire(&[words, &["--control-socket", &daemon.socket]].concat()));
    files.with("cert", other.as_bytes());
    tokens(&files, "key", other_key, 0o600);
    let begun = std::time::Instant::now();
    while !order(&["events"]).contains("configuration reloaded") {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{}", order(&["events"]));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(!order(&["events"]).contains("not reloaded"), "{}", order(&["events"]));
    assert!(!order(&["diff"]).contains("http-certificate"), "{}", order(&["diff"]));
}

#[test]
fn a_certificate_that_changes_while_nobody_looks_is_shown_later() {
    let files = Files::new();
    let [(certificate, key), (other, other_key)] = CERTIFICATES;
    files.with("cert", certificate.as_bytes());
    tokens(&files, "key", key, 0o600);
    let text = config(BY_TLS, &["memory:1M"]);
    let file = files.with("lunwire.toml", text.as_bytes());
    let daemon = Daemon::start_configured(files.folder.path(), &file, 1, &["--watch"]);
    // Another process takes over, and does not.
    let next = Next::of(&daemon).take();
    files.with("cert", other.as_bytes());
    tokens(&files, "key", other_key, 0o600);
    drop(next);
    let events = || stdout(&lunwire(&["events", "--control-socket", &daemon.socket]));
    let begun = std::time::Instant::now();
    while !events().contains("configuration reloaded") {
        assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{}", events());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn an_address_in_use_is_told_before_a_disk_is_opened() {
    let files = Files::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let disk = files.path("disk");
    let lun = format!("file:{disk},size=1M");
    let socket = files.path("control");
    let words = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &socket];
    let words = [&words[..], &["--http", &address, "--lun", &lun]].concat();
    let said = [&*format!("--http (http): cannot listen on {address}"), "try: another port"];
    fails(1, &words, &said);
    assert!(!std::path::Path::new(&disk).exists(), "nothing was made");
}

#[test]
fn it_is_found_and_stays_where_it_is() {
    let files = Files::new();
    let text = config("", &["memory:1M"]);
    let file = files.with("lunwire.toml", text.as_bytes());
    let daemon = Daemon::start_configured(files.folder.path(), &file, 1, &[]);
    let control = ["--control-socket", &daemon.socket];
    let told = stdout(&good(&[&["status", "--json"][..], &control].concat()));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let place = told["http"].as_str().unwrap().to_owned();
    assert!(!place.ends_with(":0"), "{place}");
    let shown = stdout(&good(&[&["status"][..], &control].concat()));
    assert!(shown.contains(&format!("metrics at http://{place}/metrics")), "{shown}");
    assert!(get(&place, "/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
    let version = format!("lunwire_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(get(&place, "/metrics").contains(&version));
    std::fs::write(&file, text.replace("http = \"127.0.0.1:0\"", "http = \"127.0.0.1:9260\""))
        .unwrap();
    let refused = lunwire(&[&["reload"][..], &control].concat());
    assert_eq!(refused.status.code(), Some(1));
    let told = stdout(&refused);
    assert!(told.contains("http: it is read when the daemon starts"), "{told}");
    assert!(get(&place, "/healthz").ends_with("\r\n\r\nok\n"));
}

#[test]
fn the_option_goes_into_a_file_that_is_dumped() {
    let files = Files::new();
    let options = ["--http", "127.0.0.1:0"];
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &options);
    let dumped = stdout(&good(&["dump", "--control-socket", &daemon.socket]));
    assert!(dumped.contains("\nhttp = \"127.0.0.1:0\"\n"), "{dumped}");
}

/// A file of tokens with this text and mode.
fn tokens(files: &Files, name: &str, text: &str, mode: u32) -> String {
    let file = files.with(name, text.as_bytes());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    file
}

#[test]
fn a_file_of_tokens_that_is_wrong_is_told_and_no_token_is() {
    let files = Files::new();
    let open = tokens(&files, "open", &format!("change {TOKEN}\n"), 0o644);
    let serve = ["serve", "--http", "127.0.0.1:0", "--http-token-file"];
    let with = |file: &str| lunwire(&[&serve[..], &[file]].concat());
    for (file, wanted) in [
        (open, vec!["--http-token-file", "open: the file of tokens", "(mode 0644)", "chmod 600"]),
        (
            tokens(&files, "bare", TOKEN, 0o600),
            vec!["bare: line 1 of", "read TOKEN or change TOKEN"],
        ),
        (files.path("none"), vec!["cannot read the tokens"]),
        // Somebody took the option for the token itself.
        (TOKEN.to_owned(), vec!["--http-token-file: cannot read the tokens"]),
    ] {
        let output = with(&file);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(wanted.iter().all(|word| said.contains(word)), "{wanted:?}: {said}");
        assert!(!said.contains(TOKEN), "{said}");
    }
    for (key, value) in [("http-token-file", TOKEN), ("http-token", TOKEN)] {
        let text = format!("http = \"127.0.0.1:0\"\n{key} = \"{value}\"\n");
        let file = files.with("lunwire.toml", text.as_bytes());
        let output = lunwire(&["check", &file]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("{file}:2: {key}")) && !said.contains(TOKEN), "{said}");
    }
}

/// Whoever names tokens wants them to be asked for.
#[test]
fn tokens_without_http_are_told() {
    let files = Files::new();
    tokens(&files, "tokens", &format!("change {TOKEN}\n"), 0o600);
    let text = "http-token-file = \"tokens\"\n[[target]]\nname = \"iqn.2026-01.test.lunwire:a\"\n\
                [[target.lun]]\nstore = \"memory:1M\"\n";
    let check = |text: &str| {
        let file = files.with("lunwire.toml", text.as_bytes());
        stderr(&good(&["check", &file]))
    };
    let said = check(text);
    assert!(said.contains("http-token-file (--http-token-file) is for HTTP, and none"), "{said}");
    let said = check(&format!("http = \"127.0.0.1:0\"\n{text}"));
    assert!(!said.contains("is for HTTP"), "{said}");
}

#[test]
fn who_has_a_token_can_change_what_is_served() {
    let files = Files::new();
    tokens(&files, "tokens", &format!("change {TOKEN}\n"), 0o600);
    let text = config(WITH_TOKENS, &["memory:1M"]);
    let file = files.with("lunwire.toml", text.as_bytes());
    let daemon = Daemon::start_configured(files.folder.path(), &file, 1, &[]);
    let control = ["--control-socket", &daemon.socket];
    let status = || {
        let told = stdout(&good(&[&["status", "--json"][..], &control].concat()));
        serde_json::from_str::<serde_json::Value>(&told).unwrap()
    };
    let place = status()["http"].as_str().unwrap().to_owned();
    let order = |token: &str, body: &str| ordered(&place, token, body);
    let said = order(TOKEN, "{\"request\":\"drop-session\",\"tsih\":7}");
    assert!(said.starts_with("HTTP/1.1 409 ") && said.contains("no session 7"), "{said}");
    std::fs::write(&file, config(WITH_TOKENS, &["memory:1M", "null:3M"])).unwrap();
    let reload = "{\"request\":\"reload\"}";
    assert!(order(&TOKEN.to_uppercase(), reload).starts_with("HTTP/1.1 401 "));
    assert_eq!(status()["targets"][0]["luns"].as_array().unwrap().len(), 1);
    let said = order(TOKEN, reload);
    assert!(said.contains("{\"reply\":\"reloaded\",\"applied\":true,"), "{said}");
    // What is advised is for who has no command line.
    let said = order(TOKEN, r#"{"request":"add-lun","number":1,"lun":{"store":"null:1M"}}"#);
    assert!(said.starts_with("HTTP/1.1 409 ") && said.contains("another number"), "{said}");
    assert!(!said.contains("--"), "{said}");
    for body in [r#"{"request":"status"}"#, r#"{"request":"mount"}"#] {
        let said = order(TOKEN, body);
        assert!(said.contains("add-lun and remove-lun are right"), "{said}");
        assert!(!said.contains("snapshot-lun"), "{said}");
    }
    assert_eq!(status()["targets"][0]["luns"][1]["store"], "null:3M");
    let dumped = stdout(&good(&[&["dump"][..], &control].concat()));
    let whole = std::path::absolute(files.path("tokens")).unwrap();
    assert!(dumped.contains(&format!("\nhttp-token-file = \"{}\"\n", whole.display())), "{dumped}");
}

/// Who has a token shall not be able to have the system end the daemon; who has the socket may.
#[test]
fn no_token_adds_more_memory_than_there_is() {
    let files = Files::new();
    let file = tokens(&files, "tokens", &format!("change {TOKEN}\n"), 0o600);
    let http = ["--http", "127.0.0.1:0", "--http-token-file", &file];
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &http);
    let control = ["--control-socket", &daemon.socket];
    let told = stdout(&good(&[&["status", "--json"][..], &control].concat()));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let place = told["http"].as_str().unwrap();
    let add = |store: &str| {
        let order = serde_json::json!({ "request": "add-lun", "lun": { "store": store } });
        ordered(place, TOKEN, &order.to_string())
    };
    for store in ["memory:1P", "memory:1P,readonly", "stripe:64K(memory:512T;memory:512T)"] {
        let said = add(store);
        let wanted = ["HTTP/1.1 409 ", "the disks in memory would have 1", "try: a smaller one"];
        assert!(wanted.iter().all(|word| said.contains(word)), "{store}: {said}");
    }
    let said = add("memory:2M");
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    let said = add("null:1P");
    assert!(said.starts_with("HTTP/1.1 200 "), "it takes none: {said}");
    let said = stderr(&good(&[&["lun", "add", "memory:16T"][..], &control].concat()));
    assert!(said.contains("the disks in memory have 16"), "{said}");
    // What an order lacks is told in the words of orders.
    let said = ordered(place, TOKEN, "{\"request\":\"resize-lun\",\"lun\":0,\"bytes\":512}");
    assert!(said.starts_with("HTTP/1.1 409 ") && said.contains("try: shrink, "), "{said}");
}

/// It is there to tell what somebody with a token has done.
#[test]
fn an_order_writes_no_line_of_its_own_into_the_log() {
    let files = Files::new();
    let file = tokens(&files, "tokens", &format!("change {TOKEN}\n"), 0o600);
    let http = ["--http", "127.0.0.1:0", "--http-token-file", &file];
    let disk = format!("file:{},size=1M", files.path("disk"));
    let daemon = Daemon::start_logged(files.folder.path(), &[&disk], &http);
    let told = stdout(&good(&["status", "--json", "--control-socket", &daemon.socket]));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let (place, target) = (&told["http"], &told["targets"][0]["name"]);
    let order =
        |body: serde_json::Value| ordered(place.as_str().unwrap(), TOKEN, &body.to_string());
    let said = order(serde_json::json!({
        "request": "set-port-group", "target": target, "group": 1, "state": "none\nFORGED",
    }));
    assert!(said.starts_with("HTTP/1.1 409 ") && said.contains("none\\nFORGED"), "{said}");
    let said = order(serde_json::json!({
        "request": "resize-lun", "target": target, "lun": 0, "bytes": 512, "shrink": true,
    }));
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    let line = Daemon::told(files.folder.path(), "lun resize");
    let whole = format!("lun resize 0 512 (512 B) --target {} --shrink", target.as_str().unwrap());
    assert!(line.contains("done over HTTP") && line.contains(&whole), "{line}");
    // Who has had it done; the token itself is nobody's business.
    let who = |text: &str| text.contains("127.0.0.1:") && text.contains("change, line 1");
    assert!(who(&line) && !line.contains(TOKEN), "{line}");
    let events = stdout(&good(&["events", "--json", "--control-socket", &daemon.socket]));
    let told: serde_json::Value = serde_json::from_str(&events).unwrap();
    let told = told["events"].as_array().unwrap().iter().map(ToString::to_string);
    let told: Vec<String> = told.filter(|event| event.contains("done over HTTP")).collect();
    assert!(told.len() == 2 && told.iter().all(|event| who(event)), "{events}");
    let log = std::fs::read_to_string(files.path("log")).unwrap();
    assert!(log.contains("FORGED") && !log.lines().any(|line| line.starts_with("FORGED")), "{log}");
}
