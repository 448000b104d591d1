// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSER by software iWARP (RFC 7145): our daemon and our commands over it, however it begins, and
//! strangers who begin it.
#![allow(clippy::unwrap_used)] // a test that panics has failed

mod support;

use std::io::BufRead;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use support::Daemon;
use support::Files;
use support::TARGET;
use support::fails;
use support::good;
use support::lunwire;
use support::pattern;
use support::stderr;
use support::stdout;

const RDMA: [&str; 2] = ["--rdma", "iwarp"];

/// A URL over iSER for one over TCP, in each way in which it begins.
fn over_iser(url: &str) -> [String; 3] {
    let iser = url.replace("iscsi://", "iser://");
    [format!("{url}?transport=iser"), format!("{iser}?iser_start=login"), iser]
}

/// Covers: ISC-01/S, ISC-02/S, ISC-06, ISC-07.
#[test]
fn copies_keep_every_byte_in_both_ways_to_begin() {
    let files = Files::new();
    let folder = files.folder.path();
    let daemon = Daemon::start(folder, &["memory:24M", "memory:24M"], &RDMA);
    let bytes = pattern(20_000_001);
    let image = files.with("image", &bytes);
    for (round, (a, b)) in
        over_iser(&daemon.urls[0]).iter().zip(over_iser(&daemon.urls[1])).enumerate()
    {
        good(&["write", a, &image, "--verify", "--quiet"]);
        good(&["copy", a, &b, "--verify", "--quiet"]);
        // What came over iSER is what a byte stream shows.
        for url in [&b, &daemon.urls[1]] {
            let back = files.path(&format!("back{round}{}", url.len()));
            good(&["read", url, &back, "--length", "20000256", "--quiet"]);
            let read = std::fs::read(&back).unwrap();
            assert!(read[..bytes.len()] == bytes[..], "{url}");
        }
    }
}

/// A gateway is an initiator as well as a target.
#[test]
fn a_gateway_uses_and_serves_disks_over_it() {
    let files = Files::new();
    let far = Daemon::start(files.folder.path(), &["memory:24M"], &RDMA);
    let iser = far.urls[0].replace("iscsi://", "iser://");
    let near = Files::new();
    let near = Daemon::start(near.folder.path(), &[&iser], &RDMA);
    let bytes = pattern(20_000_256);
    let (image, back) = (files.with("image", &bytes), files.path("back"));
    let url = near.urls[0].replace("iscsi://", "iser://");
    good(&["write", &url, &image, "--verify", "--quiet"]);
    good(&["read", &far.urls[0], &back, "--length", "20000256", "--quiet"]);
    assert!(std::fs::read(&back).unwrap() == bytes);
}

/// Reads and writes at random, of which each tells which write it is of.
#[test]
fn many_commands_of_all_sizes_are_under_way_at_once() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:64M"], &RDMA);
    for url in over_iser(&daemon.urls[0]) {
        for block in ["512", "4K", "100K", "1M"] {
            let more = ["--destroy-data", "--verify", "--reads", "50", "--time", "300ms"];
            let words = ["bench", &url, "--block", block, "--depth", "32"];
            good(&[&words[..], &more].concat());
        }
    }
}

/// The commands that were under way are done again, and what was written is there.
#[test]
fn a_session_that_is_dropped_comes_back() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:64M"], &RDMA);
    for url in over_iser(&daemon.urls[0]) {
        let load = thread::spawn(move || {
            let words = ["bench", &url, "--block", "64K", "--depth", "16", "--destroy-data"];
            let more = ["--verify", "--reads", "50", "--time", "1s"];
            stdout(&good(&[&words[..], &more].concat()))
        });
        let session = daemon.await_work();
        assert_eq!(session["connections"][0]["transport"], "iser");
        let drop = serde_json::json!({ "request": "drop-session", "tsih": session["tsih"] });
        assert_eq!(daemon.asked(&drop)["reply"], "done");
        let told = load.join().unwrap();
        assert!(told.contains("connections lost: 1"), "{told}");
    }
}

#[test]
fn whoever_speaks_iser_is_shown() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &RDMA);
    let text = stdout(&good(&["inspect", &over_iser(&daemon.urls[0])[2]]));
    assert!(text.contains("1 MiB"), "{text}");
    let portal = daemon.portal();
    let text = stdout(&good(&["discover", &format!("iser://{portal}")]));
    assert!(text.contains(portal), "{text}");
}

/// As the interpreter of the UNH study was used: a script logs in, and repeats another one whose
/// commands move 512 KiB each.
#[test]
fn scripts_with_repetitions_run_over_it() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:8M"], &RDMA);
    let bytes = pattern(512 << 10);
    let data = files.with("data", &bytes);
    let blast = format!(
        "scsi 2a 0 0 0 0 0 0 4 0 0 out {data}\nscsi 28 0 0 0 0 0 0 4 0 0 in 512K\n\
         read 0 1024 {} --overwrite\n",
        files.path("back")
    );
    let blast = files.with("blast", blast.as_bytes());
    for (round, url) in over_iser(&daemon.urls[0]).iter().enumerate() {
        let log = files.path(&format!("log{round}"));
        let script = format!("login {url}\nlog {log}\nrepeat 10 {blast}\nlogout\n");
        let script = files.with("script", script.as_bytes());
        let said = stdout(&good(&["shell", &script]));
        assert_eq!(said.matches("GOOD").count(), 20, "{said}");
        let log = std::fs::read_to_string(log).unwrap();
        let good = log.lines().filter(|line| line.contains("\tgood\tscsi"));
        assert_eq!(good.count(), 20, "{log}");
        assert!(std::fs::read(files.path("back")).unwrap() == bytes, "what was written, by {url}");
    }
}

/// What a session says of its connections.
fn streams(daemon: &Daemon) -> Vec<serde_json::Value> {
    let shown = good(&["sessions", "--json", "--control-socket", &daemon.socket]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let sessions = shown["sessions"].as_array().unwrap();
    let of = |session: &serde_json::Value| session["connections"].as_array().unwrap().clone();
    sessions.iter().flat_map(of).collect()
}

#[test]
fn what_is_in_force_is_told() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:64M"], &RDMA);
    let ways = ["", "&iser_start=login", "&mpa_crc=none"];
    for (way, has_crc) in ways.into_iter().zip([true, true, false]) {
        let url = format!("{}?transport=iser{way}", daemon.urls[0]);
        let load = thread::spawn(move || {
            let words = ["bench", &url, "--block", "1M", "--depth", "8", "--destroy-data"];
            good(&[&words[..], &["--reads", "0", "--time", "1s"]].concat());
        });
        // Memory is registered while data comes.
        let rdma = loop {
            let told = streams(&daemon).into_iter().map(|one| one["rdma"].clone());
            let busy = |rdma: &serde_json::Value| rdma["registered_bytes"].as_u64() > Some(0);
            if let Some(rdma) = told.into_iter().find(busy) {
                break rdma;
            }
            assert!(!load.is_finished(), "nothing was registered");
        };
        assert_eq!(rdma["provider"], "software iWARP");
        assert_eq!((&rdma["ird"], &rdma["ord"]), (&256.into(), &256.into()));
        assert_eq!(rdma["crc"], has_crc, "{way}");
        assert_eq!(
            (&rdma["markers_sent"], &rdma["markers_received"]),
            (&false.into(), &false.into())
        );
        assert!((128..=65_536).contains(&rdma["fpdu_bytes"].as_u64().unwrap()), "{rdma}");
        assert!(rdma["stags"].as_u64() > Some(0));
        let text = stdout(&good(&["sessions", "--control-socket", &daemon.socket]));
        let crc = if has_crc { "CRC on" } else { "CRC off" };
        for part in ["software iWARP: IRD 256, ORD 256, ", crc, "markers none", " registered"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = stdout(&good(&["status", "--control-socket", &daemon.socket]));
        assert!(text.contains("software iWARP at 127.0.0.1:"), "{text}");
        load.join().unwrap();
    }
    let over_tcp = daemon.urls[0].clone();
    let load = thread::spawn(move || good(&["bench", &over_tcp, "--time", "1s"]));
    while !load.is_finished() {
        assert!(streams(&daemon).iter().all(|one| one["rdma"].is_null()));
    }
}

#[test]
fn who_asks_for_digests_hears_why_there_are_none() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &RDMA);
    let [_, login, rdma] = over_iser(&daemon.urls[0]);
    for url in [login, rdma] {
        let asked = ["inspect", &url, "--header-digest", "required"];
        let said = String::from_utf8(good(&asked).stderr).unwrap();
        assert!(said.contains("there are no digests over iSER (RFC 7145)"), "{said}");
        assert!(good(&asked[..2]).stderr.is_empty(), "who does not ask is not told");
    }
    let explained = stdout(&good(&["explain"]));
    assert!(explained.contains("None, whatever header-digest and data-digest ask for"));
}

/// Behind the URLs over TCP come those of the portals that speak it.
#[test]
fn the_urls_over_it_are_told() {
    let files = Files::new();
    let config = two_portals(&files, "[[portal]]\naddress = \"127.0.0.2:0\"\nrdma = \"iwarp\"");
    let socket = files.path("control");
    let words = ["serve", "--config", &config, "--control-socket", &socket, "--log", "error"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lunwire"));
    let mut daemon = command.args(words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufReader::new(daemon.stdout.take().unwrap()).lines();
    let lines: Vec<String> = lines.take(3).map(Result::unwrap).collect();
    let url = lines[2].strip_prefix("also ").map(str::to_owned);
    let told = url.as_ref().map(|url| lunwire(&["inspect", url]));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(lines[0].starts_with("serving iscsi://127.0.0.1:"), "{lines:?}");
    assert_eq!(url, Some(lines[1].replace("serving iscsi", "iser")), "{lines:?}");
    assert!(told.unwrap().status.success());
}

/// A configuration with two portals; `more` behind.
fn two_portals(files: &Files, more: &str) -> String {
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[[portal-group]]\ntag = 2\nlisten = [\"127.0.0.2:0\"]\n\
         {more}\n[[target]]\nname = \"{TARGET}\"\nheader-digest = \"required\"\n\
         [[target.lun]]\nstore = \"memory:1M\"\n"
    );
    files.with("config.toml", config.as_bytes())
}

#[test]
fn each_portal_has_a_word_of_its_own() {
    let files = Files::new();
    let config = two_portals(&files, "[[portal]]\naddress = \"127.0.0.2:0\"\nrdma = \"iwarp\"");
    let told = stdout(&good(&["explain", &config]));
    assert!(told.contains("iSER at") && told.contains("127.0.0.2:0"), "{told}");
    assert!(told.contains("header-digest = required holds over TCP alone"), "{told}");
    for (options, speaks) in [(&[][..], [false, true]), (&["--rdma", "iwarp"], [true, true])] {
        let daemon = Daemon::start_configured(files.folder.path(), &config, 2, options);
        for (url, speaks) in daemon.urls.iter().zip(speaks) {
            for url in over_iser(url) {
                let mut words = vec!["inspect", &url, "--patience", "0s"];
                words.extend(["--header-digest", "preferred"]);
                assert_eq!(lunwire(&words).status.success(), speaks, "{url} {options:?}");
            }
            good(&["inspect", url, "--header-digest", "preferred"]);
        }
        let text = stdout(&good(&["status", "--control-socket", &daemon.socket]));
        let line = text.lines().find(|line| line.starts_with("iSER")).unwrap();
        assert_eq!(line.contains("127.0.0.1:"), speaks[0], "{line}");
        assert!(line.contains("127.0.0.2:"), "{line}");
    }
    for (more, why) in [
        ("[[portal]]\naddress = \"127.0.0.3:0\"\nrdma = \"off\"", "it is no portal"),
        ("[[portal]]\naddress = \"127.0.0.2:0\"\nrdma = \"roce\"", "portal.rdma = \"roce\""),
        (
            "[[portal]]\naddress = \"127.0.0.2:0\"\nrdma = \"roce\"",
            "iwarp, verbs, auto or off is right (of portal 127.0.0.2:0)",
        ),
        ("[[portal]]\naddress = \"127.0.0.2:0\"\nrmda = \"off\"", "rmda"),
        (
            "[[portal]]\naddress = \"127.0.0.2:0\"\nrdma = \"off\"\n[[portal]]\n\
             address = \"127.0.0.2:0\"\nrdma = \"off\"",
            "it is named before",
        ),
        // Also where nothing is said of it.
        (
            "[[portal]]\naddress = \"127.0.0.2:0\"\n[[portal]]\naddress = \"127.0.0.2:0\"",
            "it is named before",
        ),
    ] {
        fails(1, &["check", &two_portals(&files, more)], &[why]);
    }
    let config = two_portals(&files, "[[portal]]\naddress = \"127.0.0.1:0\"\nrdma = \"off\"");
    let elsewhere = ["serve", "--config", &config, "--listen", "127.0.0.9:0"];
    fails(1, &elsewhere, &["it is no portal any more, since --listen is given"]);
}

/// One portal by software iWARP, one by adapters, which this machine has none of.
#[test]
fn adapters_are_asked_for_at_single_portals() {
    let files = Files::new();
    let own = |word: &str| {
        let first = "[[portal]]\naddress = \"127.0.0.1:0\"\nrdma = \"iwarp\"\n";
        format!("{first}[[portal]]\naddress = \"127.0.0.2:0\"\nrdma = \"{word}\"")
    };
    let config = two_portals(&files, &own("verbs"));
    let serve = ["serve", "--config", &config];
    fails(1, &serve, &["RDMA", "try:"]);
    fails(1, &["check", &config], &["RDMA", "try:"]);
    let told = stdout(&good(&["explain", &config]));
    let line = told.lines().find(|line| line.starts_with("RDMA at 127.0.0.2:0")).unwrap();
    assert!(line.contains("the daemon does not start (rdma = verbs)"), "{line}");
    assert_eq!(line.matches("RDMA at").count(), 1, "{line}");
    assert!(!told.contains("RDMA at 127.0.0.1"), "{told}");
    // Where there may be one, the other portal is what it says, and this one speaks iSER, too.
    let config = two_portals(&files, &own("auto"));
    good(&["check", &config]);
    let told = stdout(&good(&["explain", &config]));
    let line = told.lines().find(|line| line.starts_with("RDMA at 127.0.0.2:0")).unwrap();
    assert!(line.contains("it is left out (rdma = auto)"), "{line}");
    let daemon = Daemon::start_configured(files.folder.path(), &config, 2, &[]);
    for url in &daemon.urls {
        good(&["inspect", url, "--header-digest", "preferred"]);
        good(&["inspect", &over_iser(url)[2]]);
    }
}

#[test]
fn addresses_of_adapters_stand_in_the_file() {
    let files = Files::new();
    let with = |top: &str, more: &str| {
        let config = two_portals(&files, more);
        let text = std::fs::read_to_string(&config).unwrap();
        files.with("listen.toml", format!("{top}\n{text}").as_bytes())
    };
    let listen = |word: &str| format!("rdma = \"{word}\"\nrdma-listen = [\"127.0.0.5:3260\"]");
    let config = with(&listen("auto"), "");
    let told = stdout(&good(&["explain", &config]));
    assert!(told.contains("RDMA at 127.0.0.5:3260") && !told.contains("RDMA at 127.0.0.1"));
    let json = stdout(&good(&["explain", &config, "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let adapter = &json["iser"]["adapter_portals"][0];
    assert_eq!(
        (&adapter["portal"], &adapter["required"]),
        (&"127.0.0.5:3260".into(), &false.into())
    );
    assert!(adapter["error"].is_string(), "no machine has one for its loopback");
    // A portal with a word of its own has its own place beside that.
    let own = "[[portal]]\naddress = \"127.0.0.2:0\"\nrdma = \"verbs\"";
    let told = stdout(&good(&["explain", &with(&listen("auto"), own)]));
    assert!(told.contains("RDMA at 127.0.0.5:3260") && told.contains("RDMA at 127.0.0.2:0"));
    // The command line has the last word.
    let daemon = Daemon::start_configured(files.folder.path(), &config, 2, &["--rdma", "iwarp"]);
    good(&["inspect", &over_iser(&daemon.urls[1])[2]]);
    for (top, why) in [
        (listen("iwarp"), "it is for adapters: rdma = \"verbs\" or \"auto\" is right beside it"),
        ("rdma-listen = [\"127.0.0.5:3260\"]".into(), "rdma-listen = \"127.0.0.5:3260\""),
        ("rdma = \"verbs\"\nrdma-listen = [\"127.0.0.5\"]".into(), "ADDRESS:PORT"),
        (
            "rdma = \"verbs\"\nrdma-listen = [\"127.0.0.5:1\", \"127.0.0.5:1\"]".into(),
            "is given twice",
        ),
    ] {
        fails(1, &["check", &with(&top, "")], &["rdma-listen", why]);
    }
    // What comes of another mistake is not told beside it.
    for (wrong, more) in [
        (listen("roce"), ""),
        ("listen = [\"127.0.0.1\"]".to_owned(), "[[portal]]\naddress = \"127.0.0.1:3260\"\n"),
    ] {
        let config = files.with("wrong.toml", format!("{wrong}\n{more}").as_bytes());
        let json = stdout(&lunwire(&["check", &config, "--json"]));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["errors"].as_array().map(Vec::len), Some(1), "{json}");
    }
    let both = "rdma = \"verbs\"\nlisten = [\"127.0.0.7:9\"]\nrdma-listen = [\"127.0.0.7:9\"]\n\
                [[portal]]\naddress = \"127.0.0.7:9\"\nrdma = \"verbs\"\n";
    let both = files.with("both.toml", both.as_bytes());
    fails(1, &["check", &both], &["rdma-listen", "[[portal]]", "given twice"]);
}

#[test]
fn the_way_to_a_url_is_explained() {
    let disk = "127.0.0.1:3260/iqn.2026-01.local.lunwire:disk/0";
    let way = |url: &str| {
        let told = stdout(&good(&["explain", url]));
        let line = told.lines().find(|line| line.starts_with("way to 127.0.0.1:3260"));
        line.unwrap().to_owned()
    };
    assert!(way(&format!("iscsi://{disk}")).ends_with("TCP"));
    assert!(way(&format!("iser://{disk}")).ends_with("software iWARP"));
    let told = way(&format!("iser://{disk}?provider=verbs"));
    assert!(told.contains("RDMA adapter: "), "{told}");
    assert!(told.contains("try:") || told.contains("install"), "{told}");
    fails(2, &["explain", "iser://"], &["the host is missing"]);
}

/// Covers: ISK-14, ISK-01/S.
#[test]
fn a_target_without_it_says_so() {
    let files = Files::new();
    for options in [&[][..], &["--rdma", "off"]] {
        let daemon = Daemon::start_logged(files.folder.path(), &["memory:1M"], options);
        let [_, login, rdma] = over_iser(&daemon.urls[0]);
        fails(1, &["inspect", &login], &["does not speak iSER", "lunwire serve --rdma iwarp"]);
        let said =
            ["iser://", "does it speak iSER", "iser_start=login", "iscsi://", "--rdma iwarp"];
        fails(1, &["inspect", &rdma, "--patience", "0s"], &said);
        Daemon::told(files.folder.path(), "it begins with MPA, as iSER does");
        good(&["inspect", &daemon.urls[0]]);
    }
    fails(2, &["serve", "--rdma", "infiniband"], &["--rdma", "iwarp, verbs, auto or off"]);
    let listen = ["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"];
    fails(2, &[&["serve"][..], &listen].concat(), &["--rdma-listen", "--rdma verbs"]);
}

/// What there is on a byte stream alone is not left out without a word.
#[test]
fn what_it_does_not_have_is_told_to_who_wants_it() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &RDMA);
    let more = ["--recovery-level", "2", "--markers", "--data-digest", "required"];
    for url in over_iser(&daemon.urls[0]) {
        let told = stderr(&good(&[&["inspect", &url], &more[..]].concat()));
        assert!(told.contains("there are no digests over iSER"), "{told}");
        assert!(told.contains("--markers is for iSCSI over TCP"), "{told}");
        assert!(!told.contains("--recovery-level"), "{told}");
        let told = stderr(&good(&["inspect", &url]));
        assert!(told.is_empty(), "{told}");
    }
}

/// Here: no machine has an adapter for its loopback.
#[test]
fn adapters_that_are_not_there_are_told_with_what_to_try() {
    let words = ["serve", "--listen", "127.0.0.1:0", "--rdma", "verbs", "--lun", "memory:1M"];
    fails(1, &words, &["RDMA", "try:"]);
    // Where they may be, and are not, everything else works.
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &["--rdma", "auto"]);
    for url in over_iser(&daemon.urls[0]) {
        good(&["inspect", &url]);
    }
    let told = stdout(&good(&["explain"]));
    assert!(told.contains("software iWARP") && told.contains("RDMA adapters"), "{told}");
}

/// What a daemon says to these bytes, until it closes.
fn said_to(portal: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(portal).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    // It may cut the connection.
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn strangers_are_told_by_a_terminate_and_the_others_go_on() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &RDMA);
    let mut request = b"MPA ID Req Frame\x40\x01\x00\x00".to_vec();
    // An FPDU with an RDMA Write to an STag that nobody has given.
    let segment = [&[0xc1, 0x40][..], &[0, 0, 1, 0], &[0; 8], b"data"].concat();
    let mut fpdu = vec![0, 18];
    fpdu.extend(&segment);
    fpdu.extend(crc32c(&fpdu).to_le_bytes());
    request.extend(&fpdu);
    let said = said_to(daemon.portal(), &request);
    assert!(said.starts_with(b"MPA ID Rep Frame"), "{said:?}");
    // Behind reply and private data: length, DDP header of queue 2, and why.
    let terminate = &said[24..];
    assert_eq!(terminate[2..4], [0x41, 0x47], "{terminate:x?}");
    assert_eq!(terminate[20..22], [0x11, 0x00], "DDP: invalid STag");
    for bytes in [&b"MPA ID Rep Frame\x40\x01\x00\x00"[..], b"MPA, or so it seems: it is not", b"M"]
    {
        let mut stream = TcpStream::connect(daemon.portal()).unwrap();
        stream.write_all(bytes).unwrap();
    }
    good(&["inspect", &over_iser(&daemon.urls[0])[2]]);
}

/// Bit by bit (RFC 3385).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}
