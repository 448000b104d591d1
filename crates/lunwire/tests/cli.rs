// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line as a user meets it: exit status, messages, a daemon's life.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

fn lunwire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lunwire")).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A daemon that ends with the test, however the test ends.
struct Daemon {
    child: Child,
    urls: Vec<String>,
    socket: String,
}

impl Daemon {
    fn start(folder: &Path, luns: usize, arguments: &[&str]) -> Self {
        let socket = folder.join("control").display().to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(["serve", "--listen", "127.0.0.1:0", "--control-socket", &socket])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let urls: Vec<String> = lines
            .take(luns)
            .map(|line| line.unwrap().strip_prefix("serving ").unwrap().to_owned())
            .collect();
        assert_eq!(urls.len(), luns);
        Self { child, urls, socket }
    }

    fn stop(mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn wrong_configurations_name_line_field_value_and_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunwire.toml");
    let name = file.display().to_string();
    let target = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n";
    let lun = "[[target.lun]]\nstore = \"memory:1M\"\n";
    let group = "[[target.port-group]]\n";
    let two = "[[portal-group]]\ntag = 2\nlisten = [\"[::1]:0\"]\n";
    let initiator = "[[target.initiator]]\nname = \"iqn.2026-01.com.example:h\"\n";
    let cases = [
        ("listen = [\"here\"]\n".to_owned(), 1, "listen = \"here\"", "127.0.0.1:3260"),
        ("engine = \"fast\"\n".into(), 1, "engine = \"fast\"", "auto, uring or epoll"),
        ("mode = \"numa\"\n".into(), 1, "mode = \"numa\"", "smp or amp"),
        ("reactors = 0\n".into(), 1, "reactors = 0", "1 to 256"),
        ("cpus = [9999]\n".into(), 1, "cpus = 9999", "one of"),
        ("spin = \"1h\"\n".into(), 1, "spin = \"1h\"", "us"),
        ("login-timeout = \"0\"\n".into(), 1, "login-timeout = \"0\"", "15s"),
        ("log = \"loud\"\n".into(), 1, "log = \"loud\"", "error, warn, info"),
        ("lstn = []\n".into(), 1, "lstn", "unknown field"),
        ("[[target]]\nname = \"disk\"\n".into(), 2, "target.name = \"disk\"", "iqn"),
        (target.to_owned(), 2, "target.name", "it has no LUN"),
        (format!("{target}{lun}{target}{lun}"), 6, "target.name", "another target"),
        (format!("{target}[[target.lun]]\nstore = \"tape:1\"\n"), 4, "lun.store", "memory"),
        (format!("{target}[[target.lun]]\nstore = \"memory:1X\"\n"), 4, "memory:1X", "K"),
        (format!("{target}{lun}block = 1000\n"), 5, "target.lun.block = 1000", "512 or 4096"),
        (format!("{target}{lun}serial = \"\"\n"), 5, "target.lun.serial", "printable"),
        (
            format!("{target}{lun}number = 0\n{lun}number = 0\n"),
            8,
            "target.lun.number = 0",
            "own number",
        ),
        (format!("{target}queue-depth = 0\n{lun}"), 3, "target.queue-depth = 0", "1 to 1024"),
        (format!("{target}data-digest = \"x\"\n{lun}"), 3, "target.data-digest", "required"),
        (
            format!("{target}target-reset = \"all\"\n{lun}"),
            3,
            "target.target-reset = \"all\"",
            "none, warm or cold",
        ),
        (
            format!("{target}{lun}{initiator}target-reset = \"no\"\n"),
            7,
            "target.initiator.target-reset = \"no\"",
            "none, warm or cold",
        ),
        (
            "[[portal-group]]\ntag = 1\nlisten = [\"[::1]:0\"]\n".into(),
            2,
            "portal-group.tag = 1",
            "2 to 65535",
        ),
        (
            "[[portal-group]]\ntag = 2\nlisten = []\n".into(),
            2,
            "portal-group.tag = 2",
            "it has no portal",
        ),
        (
            format!("{target}{group}number = 0\nportal-groups = [1]\n{lun}"),
            4,
            "target.port-group.number = 0",
            "1 to 65535",
        ),
        (
            format!("{target}{group}number = 1\nportal-groups = [2]\n{lun}"),
            5,
            "target.port-group.portal-groups = 2",
            "no such portal group",
        ),
        (
            format!("{target}{group}number = 1\nportal-groups = [1]\nstate = \"off\"\n{lun}"),
            6,
            "target.port-group.state = \"off\"",
            "standby",
        ),
        (
            format!("{two}{target}{group}number = 1\nportal-groups = [1]\n{lun}"),
            7,
            "target.port-group.number = 1",
            "portal group 2 is in no port group",
        ),
        (
            format!("{target}{lun}{initiator}luns = [3]\n"),
            7,
            "target.initiator.luns = 3",
            "no such LUN",
        ),
    ];
    for (text, line, what, right) in cases {
        std::fs::write(&file, &text).unwrap();
        let output = lunwire(&["check", &name]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}\n{said}");
        assert!(said.contains(&format!("{name}:{line}: ")), "{text}\n{said}");
        assert!(said.contains(what), "{text}\n{said}");
        assert!(said.contains(right), "{text}\n{said}");
    }
    std::fs::write(&file, format!("{target}{lun}")).unwrap();
    let output = lunwire(&["check", &name]);
    assert!(output.status.success(), "{}", stderr(&output));
    let missing = folder.path().join("none").display().to_string();
    assert!(stderr(&lunwire(&["check", &missing])).contains("cannot read"));
}

#[test]
fn wrong_options_are_wrong_usage() {
    for (arguments, said) in [
        (&["serve", "--lun", "tape:1G"][..], "tape"),
        (&["serve", "--listen", "nowhere"], "ADDRESS:PORT"),
        (&["serve", "--target", "disk"], "iqn"),
        (&["serve", "--engine", "steam"], "auto, uring or epoll"),
        (&["serve", "--mode", "numa"], "smp or amp"),
        (&["serve", "--poll"], "--mode amp"),
        (&["serve", "--mode", "amp", "--ppes", "2"], "--reactors 2"),
        (&["serve", "--chap-user", "me"], "--chap-user"),
        (&["frobnicate"], "frobnicate"),
        (&[], "Usage"),
    ] {
        let output = lunwire(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
    assert!(lunwire(&["serve", "--help"]).status.success());
}

#[test]
fn stores_that_cannot_be_used_are_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("odd"), vec![0; 1000]).unwrap();
    std::fs::write(path("empty"), []).unwrap();
    std::fs::write(path("small"), vec![0; 512]).unwrap();
    for (store, said) in [
        (format!("file:{}", path("missing")), "missing"),
        (format!("file:{}", path("odd")), "512"),
        (format!("file:{}", path("empty")), "empty"),
        (format!("file:{}", folder.path().display()), "folder"),
    ] {
        let output = lunwire(&["serve", "--listen", "127.0.0.1:0", "--lun", &store]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{store}: {text}");
        assert!(text.contains(said) && text.contains(&store), "{store}: {text}");
    }
    let config = path("lunwire.toml");
    let small = path("small");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
         [[target.lun]]\nstore = \"file:{small}\"\nblock = 4096\n"
    );
    std::fs::write(&config, text).unwrap();
    let output = lunwire(&["serve", "--config", &config]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("4096"), "{}", stderr(&output));
}

#[test]
fn a_measurement_needs_no_target_of_its_own() {
    let words = ["bench", "--local", "--time", "200ms", "--range", "2M", "--depth", "4", "--json"];
    let output = lunwire(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = result["results"].as_array().unwrap();
    let loads: Vec<_> = results
        .iter()
        .map(|load| (load["reads_percent"].as_u64(), load["block_bytes"].as_u64()))
        .collect();
    let [small, large] = [4096, 65536].map(Some);
    assert_eq!(loads, [(Some(100), small), (Some(100), large), (Some(0), small), (Some(0), large)]);
    for load in results {
        for way in ["local", "tcp"] {
            assert!(load[way]["requests_per_second"].as_f64() > Some(0.0), "{way} of {load}");
        }
    }
    for (words, names) in [
        (&["bench", "--local", "--svg", "x.svg"][..], "--svg"),
        (&["bench", "--local", "iscsi://127.0.0.1/iqn.2026-01.com.example:disk/0"], "URL"),
        (&["bench", "--local", "--range", "1K"], "--range"),
        (&["bench", "--local", "--range", "1T"], "--range 1T: the disk is in memory"),
        (&["bench"], "URL"),
    ] {
        let output = lunwire(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(names), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn both_ways_to_measure_are_shown() {
    let forms = "Usage: lunwire bench [OPTIONS] <URL>\n       lunwire bench --local [OPTIONS]\n";
    let wrong = ["bench", "--local", "iscsi://127.0.0.1/iqn.2026-01.com.example:disk/0"];
    let said = stderr(&lunwire(&wrong));
    assert!(said.contains(forms), "{said}");
    let help = String::from_utf8(lunwire(&["bench", "--help"]).stdout).unwrap();
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let refused = "not with a URL, --sessions, --verify, --layers, --svg, --destroy-data, --portal \
                   or --capture";
    assert!(help.contains(forms) && words.contains(refused), "{help}");
    assert!(words.contains("with --local both ways together"), "{help}");
}

#[test]
fn a_daemon_says_what_it_serves_and_stops_cleanly() {
    for (engine, mode) in [("auto", "smp"), ("epoll", "smp"), ("auto", "amp"), ("epoll", "amp")] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk").display().to_string();
        let store = format!("file:{image},size=1M");
        let name = "iqn.2026-01.com.example:disk";
        let engine = ["--engine", engine, "--mode", mode];
        let luns = ["--target", name, "--lun", &store, "--lun", "memory:2M"];
        let arguments = [&luns[..], &engine[..]].concat();
        let daemon = Daemon::start(folder.path(), 2, &arguments);
        assert!(daemon.urls[1].ends_with("/iqn.2026-01.com.example:disk/1"), "{:?}", daemon.urls);
        let address = daemon.urls[0].strip_prefix("iscsi://").unwrap().split('/').next().unwrap();
        let idle = TcpStream::connect(address).unwrap();

        let output = lunwire(&["status", "--json", "--control-socket", &daemon.socket]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(status["targets"][0]["luns"][1]["bytes"], 2 << 20);
        assert_eq!(status["sessions"], 0);
        assert_eq!(status["mode"], mode);
        let text = lunwire(&["status", "--control-socket", &daemon.socket]);
        assert!(String::from_utf8(text.stdout).unwrap().contains("LUN 1: memory:2M (2 MiB"));

        let output = lunwire(&["sessions", "--control-socket", &daemon.socket]);
        assert_eq!(output.stdout, b"no sessions\n");
        let output = lunwire(&["session", "drop", "7", "--control-socket", &daemon.socket]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("no session 7"));
        let logout =
            ["session", "logout", "7", "--timeout", "1", "--control-socket", &daemon.socket];
        assert!(stderr(&lunwire(&logout)).contains("no session 7"));

        let second = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &daemon.socket];
        assert!(stderr(&lunwire(&second)).contains("belongs to a running daemon"));
        let taken = lunwire(&["serve", "--listen", address, "--lun", "memory:1M"]);
        assert_eq!(taken.status.code(), Some(1));
        assert!(stderr(&taken).contains(&format!("cannot listen on {address}")));

        let socket = daemon.socket.clone();
        assert_eq!(daemon.stop(), 0);
        assert!(!Path::new(&socket).exists());
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 1 << 20);
        drop(idle);
    }
}

#[test]
fn a_file_has_one_daemon_or_only_readers() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    std::fs::write(&image, [0; 4096]).unwrap();
    let image = image.display().to_string();
    let (writable, read_only) = (format!("file:{image}"), format!("file:{image},readonly"));
    let serve = |store: &str| lunwire(&["serve", "--listen", "127.0.0.1:0", "--lun", store]);
    let twice = ["serve", "--listen", "127.0.0.1:0", "--lun", &writable, "--lun", &writable];
    let said = stderr(&lunwire(&twice));
    assert!(said.contains(&format!("{image} is given twice")), "{said}");

    let daemon = Daemon::start(folder.path(), 1, &["--lun", &writable]);
    for store in [&writable, &read_only] {
        let refused = serve(store);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        let id = daemon.child.id();
        assert!(said.contains(&format!("{image} is in use by process {id}")), "{said}");
        assert!(said.contains(&format!("stop process {id}")), "{said}");
    }
    // What a killed daemon leaves behind keeps nobody out.
    drop(daemon);
    let reader = Daemon::start(folder.path(), 1, &["--lun", &read_only]);
    let elsewhere = tempfile::tempdir().unwrap();
    let another = Daemon::start(elsewhere.path(), 1, &["--lun", &read_only]);
    assert!(stderr(&serve(&writable)).contains("is in use by process"));
    assert_eq!((reader.stop(), another.stop()), (0, 0));
}

#[test]
fn explain_says_which_way_frames_go_where_that_is_left_to_us() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("lunwire.toml");
    let targets = "[[target]]\nname = \"iqn.2026-01.local.lunwire:disk\"\n\
                   [[target.lun]]\nnumber = 0\nstore = \"memory:1M\"\n";
    std::fs::write(&config, format!("ether = [\"lo,frames=auto\"]\n{targets}")).unwrap();
    let output = lunwire(&["explain", config.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find(|line| line.starts_with("frames at lo")).unwrap_or_default();
    assert!(line.contains("xdp, where the driver has"), "{said}");
}

#[test]
fn explain_names_engine_and_kernels() {
    let output = lunwire(&["explain", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(["uring", "epoll"].contains(&report["engine"].as_str().unwrap()));
    assert!(!report["crc32c"].as_str().unwrap().is_empty());
    assert!(lunwire(&["explain"]).status.success());
}

/// A library of Ceph that is there and cannot be loaded is told as such, in the loader's words.
#[test]
fn a_library_that_cannot_be_loaded_is_not_called_missing() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["librados.so.2", "librbd.so.1"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
        command.env("LD_LIBRARY_PATH", folder.path()).args(arguments).output().unwrap()
    };
    let why = format!("{}/librados.so.2: file too short", folder.path().display());
    let explained = run(&["explain"]);
    let said = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(said.contains(&format!("librados.so.2 cannot be loaded: {why}")), "{said}");
    assert!(!said.contains("missing"), "{said}");
    // An image that cannot be served is a failure, as `check` says.
    let config = folder.path().join("c.toml");
    let text = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
                [[target.lun]]\nstore = \"rbd:rbd/disk\"\n";
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let explained = run(&["explain", config, "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!(explained.status.code(), Some(1));
    assert_eq!((&told["ok"], &told["exit_status"]), (&false.into(), &1.into()), "{told}");
    assert!(told["images"][0]["error"].as_str().unwrap().contains("file too short"), "{told}");
    let explained = run(&["explain", config]);
    assert_eq!(explained.status.code(), Some(1));
    assert!(stderr(&explained).contains("1 image cannot be served"), "{}", stderr(&explained));
    let said = stderr(&run(&["serve", "--listen", "127.0.0.1:0", "--lun", "rbd:rbd/disk"]));
    assert!(said.contains(&why) && said.contains("--reinstall"), "{said}");
}

#[test]
fn without_a_daemon_status_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none").display().to_string();
    let output = lunwire(&["status", "--control-socket", &socket]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("try: lunwire serve"));
}

#[test]
fn a_daemon_that_answers_otherwise_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let listener = UnixListener::bind(&socket).unwrap();
    let socket = socket.display().to_string();
    let answers = ["{\"reply\":\"song\"}\n", "{\"reply\":\"done\"}\n", "", "{\"reply\":\"do"];
    let daemon = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let (other, ended) = ("is it of another version? try:", "has ended before it answered");
    for said in [other, other, ended, ended] {
        let output = lunwire(&["status", "--control-socket", &socket]);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains(said) && text.contains(&socket), "{text}");
    }
    daemon.join().unwrap();
}

#[test]
fn port_groups_are_shown_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunwire.toml");
    let name = "iqn.2026-01.com.example:paths";
    let text = format!(
        "[[portal-group]]\ntag = 2\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{name}\"\n\
         [[target.port-group]]\nnumber = 10\nportal-groups = [1]\npreferred = true\n\
         [[target.port-group]]\nnumber = 20\nportal-groups = [2]\nstate = \"standby\"\n\
         [[target.lun]]\nstore = \"memory:1M\"\n[[target.lun]]\nstore = \"memory:1M\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let daemon = Daemon::start(folder.path(), 4, &["--config", &file]);
    let alua = |arguments: &[&str]| {
        let socket = ["--control-socket", daemon.socket.as_str()];
        lunwire(&[&["alua"], arguments, &socket].concat())
    };
    let shown = || String::from_utf8(alua(&[]).stdout).unwrap();
    let of = |lun, group, portals, state| {
        format!("{name} LUN {lun}: group {group} (portal groups {portals}) is {state}\n")
    };
    let first = of(0, 10, 1, "active-optimized, preferred");
    assert!(shown().starts_with(&(first + &of(0, 20, 2, "standby"))), "{}", shown());
    assert!(alua(&["set", name, "20", "active-non-optimized"]).status.success());
    assert!(shown().contains(&of(0, 20, 2, "active-non-optimized")));
    assert!(alua(&["set", name, "20", "unavailable", "--lun", "1"]).status.success());
    assert!(shown().contains(&of(0, 20, 2, "active-non-optimized")));
    assert!(shown().contains(&of(1, 20, 2, "unavailable")));
    for (arguments, code, said) in [
        (&["set", name, "30", "standby"][..], 1, "no target port group 30"),
        (&["set", name, "20", "asleep"], 2, "standby"),
        (&["set", "iqn.2026-01.com.example:none", "20", "standby"], 1, "no target"),
        (&["set", name, "20", "standby", "--lun", "9"], 1, "no LUN 9"),
    ] {
        let output = alua(arguments);
        assert_eq!(output.status.code(), Some(code));
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
    let json = String::from_utf8(alua(&["--json"]).stdout).unwrap();
    assert!(json.contains("\"state\":\"unavailable\""), "{json}");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn the_laboratory_writes_reports() {
    let folder = tempfile::tempdir().unwrap();
    let listed = String::from_utf8(lunwire(&["lab", "list"]).stdout).unwrap();
    let names: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["fast05", "amp", "unh", "forth", "ibm", "peers"], "{listed}");
    let out = folder.path().join("lab");
    let run = |words: &[&str]| {
        let at = ["lab", "run", "--out", out.to_str().unwrap()];
        lunwire(&[&at, words].concat())
    };
    let ran = run(&["fast05", "amp", "--smoke", "--rounds", "1"]);
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    let text = String::from_utf8(ran.stdout).unwrap();
    for words in ["too few for a verdict", "Figure 17", "fast05/index.html", "falls by 30 %"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    for file in ["index.html", "fast05/index.html", "amp/results.json", "amp/figure3b.svg"] {
        assert!(out.join(file).exists(), "{file}");
    }
    assert!(!out.join("unfinished.json").exists());

    let joined = lunwire(&["lab", "report", "--out", out.to_str().unwrap()]);
    assert_eq!(joined.status.code(), Some(0), "{}", stderr(&joined));
    let results = out.join("amp/results.json");
    let results = results.to_str().unwrap();
    let same = lunwire(&["lab", "report", "--compare", results, results]);
    let text = String::from_utf8(same.stdout).unwrap();
    assert!(text.contains("+0.0 points, within the spread"), "{text}");
    let other = out.join("fast05/results.json");
    let wrong = lunwire(&["lab", "report", "--compare", results, other.to_str().unwrap()]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("different studies"), "{}", stderr(&wrong));

    for words in [&["ibn"][..], &[], &["amp", "--quick", "--full"], &["amp", "--rounds", "0"]] {
        assert_eq!(run(words).status.code(), Some(2), "{words:?}");
    }
    let occupied = folder.path().join("file");
    std::fs::write(&occupied, "").unwrap();
    let occupied = occupied.to_str().unwrap();
    let refused = lunwire(&["lab", "run", "fast05", "--smoke", "--out", occupied]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--out"), "{}", stderr(&refused));
}

/// What was done before is kept, and what is left is done.
#[test]
fn a_run_of_studies_that_is_stopped_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("lab");
    let words = ["lab", "run", "fast05", "unh", "--smoke", "--out", out.to_str().unwrap()];
    let mut stopped = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !out.join("unfinished.json").exists() {
        assert!(begun.elapsed().as_secs() < 120, "it has done no study");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&stopped);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(stopped.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stopped.stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("unh: stopped; the same command goes on"), "{said}");
    assert!(!out.join("unh/results.json").exists() && out.join("fast05/results.json").exists());
    let ran = lunwire(&words);
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    assert!(stderr(&ran).contains("fast05: done before"), "{}", stderr(&ran));
    assert!(out.join("unh/results.json").exists() && !out.join("unfinished.json").exists());
}
