// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What commands say: advice that helps, words that people write, figures that are figures, and
//! JSON for programs, also when something fails.

use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::TARGET;
use crate::support::await_ears;
use crate::support::fails;
use crate::support::good;
use crate::support::lunwire;
use crate::support::pattern;
use crate::support::stderr;
use crate::support::stdout;
use crate::support::that_takes_signals;

#[test]
fn nobody_is_advised_to_do_what_just_failed() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let missing = format!("{}7", daemon.urls[0]);
    for (words, said) in [
        (vec!["discover", "127.0.0.1:1"], "127.0.0.1:1"),
        (vec!["inspect", &missing], "no such logical unit"),
        (vec!["session", "drop", "4711", "--control-socket", &daemon.socket], "4711"),
    ] {
        let text = stderr(&lunwire(&words));
        assert!(text.contains(said), "{text}");
        assert!(!text.contains(&format!("try: lunwire {} ", words[0])), "{text}");
    }
    let image = files.with("image", &[0; 512]);
    let text = stderr(&lunwire(&["write", &missing, &image, "--quiet"]));
    assert!(text.contains("LUNs that are there: 0\n"), "{text}");
}

#[test]
fn keys_of_a_configuration_are_guessed() {
    let files = Files::new();
    for (text, said, not) in [
        ("reactor = 1\n", "did you mean `reactors`?", "expected one of"),
        (
            "[[target]]\nname = \"iqn.2026-01.com.example:a\"\nchap_user = \"a\"\n",
            "`chap-user`?",
            "one of",
        ),
        ("frobnicate = 1\n", "unknown field `frobnicate`", "expected one of"),
        (
            "listen = \"127.0.0.1:0\"\n",
            "a list is right, for example listen = [\"127.0.0.1:0\"]",
            "sequence",
        ),
        (
            "reactors = \"two\"\n",
            "reactors = \"two\": invalid type: string \"two\"; a whole number without quotes is \
             right, for example reactors = 1",
            "usize",
        ),
        ("reactors = \"3\"\n", "for example reactors = 3", "usize"),
        (
            "[[target]]\nname = \"iqn.2026-01.com.example:a\"\nqueue-depth = \"64\"\n",
            "lunwire.toml:3: target.queue-depth = \"64\": ",
            "u16",
        ),
        ("hide-targets = 1\n", "true or false is right", "boolean"),
        ("unauthenticated-per-address = 5000\n", "unauthenticated-max allows 4096 in all", "good"),
        (
            "unauthenticated-per-address = 11\nunauthenticated-max = 10\n",
            "unauthenticated-max allows 10 in all",
            "good",
        ),
        ("isns = 1\n", "a text in quotes is right", "expected a string"),
    ] {
        let file = files.with("lunwire.toml", text.as_bytes());
        let output = lunwire(&["check", &file]);
        let problem = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{problem}");
        assert!(problem.contains(said) && !problem.contains(not), "{text}: {problem}");
    }
}

#[test]
fn a_word_of_a_list_is_one_of_that_list() {
    fails(2, &["events", "--kind", "foo"], &["foo", "reservation"]);
    assert!(stdout(&good(&["events", "--help"])).contains("take-over, trouble]"));
}

#[test]
fn one_thing_is_one_thing() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let text = stdout(&good(&["status", "--control-socket", &daemon.socket]));
    assert!(text.contains("1 reactor\n"), "{text}");
    let file = files.with("one.toml", b"reactors = 1\n");
    let text = stdout(&good(&["check", &file]));
    assert!(text.contains("1 target, 1 LUN\n"), "{text}");
}

#[test]
fn times_in_the_log_are_short() {
    let files = Files::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("control")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let text = stderr(&child.wait_with_output().unwrap());
    let seconds = text.split("seconds=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let seconds = seconds.unwrap_or_else(|| panic!("no time: {text}"));
    let decimals = seconds.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    assert!(seconds.parse::<f64>().is_ok() && decimals <= 3, "{seconds}");
}

/// The only line of standard output, as JSON.
#[track_caller]
fn json(words: &[&str]) -> Value {
    let output = lunwire(words);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{words:?}: {error}: {}{}", stdout(&output), stderr(&output))
    })
}

#[test]
fn every_command_speaks_json() {
    let files = Files::new();
    let disk = files.with("disk", &vec![0; 1 << 20]);
    let daemon = Daemon::start(files.folder.path(), &[&format!("file:{disk}"), "memory:1M"], &[]);
    let (a, b) = (daemon.urls[0].as_str(), daemon.urls[1].as_str());
    let (image, back) = (files.with("image", &pattern(1 << 20)), files.path("back"));
    for words in [vec!["write", a, &image], vec!["read", a, &back], vec!["copy", a, b]] {
        let told = json(&[&words[..], &["--json", "--quiet", "--verify"]].concat());
        assert_eq!(
            (&told["bytes"], &told["verified"]),
            (&(1 << 20).into(), &true.into()),
            "{told}"
        );
        assert!(told["seconds"].as_f64().unwrap() > 0.0, "{told}");
    }
    fails(2, &["read", a, "--json"], &["--json", "standard output"]);
    let more = files.with("more", &vec![0; 1 << 20]);
    let socket = ["--json", "--control-socket", daemon.socket.as_str()];
    let daemon_says = |words: &[&str]| json(&[words, &socket].concat());
    let added = daemon_says(&["lun", "add", &format!("file:{more}")]);
    assert_eq!((&added["lun"], &added["disk"]["lun"]), (&2.into(), &2.into()));
    assert_eq!(daemon_says(&["lun", "resize", "2", "2M"])["now"], 2 << 20);
    assert_eq!(daemon_says(&["lun", "remove", "2"])["ok"], true);
    assert!(json(&["lab", "list", "--json"])["studies"].as_array().unwrap().len() >= 2);
    let script = files.with(
        "script",
        format!("login {a}\nrepeat 100000 {}\n", files.with("inner", b"flush\n")).as_bytes(),
    );
    let mut shell = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["shell", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let tsih = (0..600).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        daemon_says(&["sessions"])["sessions"][0]["tsih"].as_u64()
    });
    let told = daemon_says(&["session", "drop", &tsih.unwrap().to_string()]);
    let _ = shell.kill();
    shell.wait().unwrap();
    assert_eq!(told["ok"], true, "{told}");
}

#[test]
fn failures_are_json_too() {
    let files = Files::new();
    let nobody = format!("iscsi://127.0.0.1:1/{TARGET}/0");
    let (image, socket) = (files.with("image", &[0; 512]), files.path("none"));
    // Nobody will listen there; nothing is gained by waiting for it.
    for (words, code) in [
        (vec!["inspect", &nobody, "--patience", "0s"], 1),
        (vec!["discover", "127.0.0.1:1", "--patience", "0s"], 1),
        (vec!["write", &nobody, &image, "--patience", "0s"], 1),
        (vec!["copy", &image, &image], 1),
        (vec!["bench", &nobody, "--patience", "0s"], 1),
        (vec!["status", "--control-socket", &socket], 1),
        (vec!["check", &socket], 1),
        (vec!["inspect", "iscsi://"], 2),
        (vec!["inspect", &nobody, "--no-such-option"], 2),
    ] {
        let words = [&words[..], &["--json"]].concat();
        let output = lunwire(&words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&told["ok"], &told["exit_status"]), (&false.into(), &code.into()), "{told}");
        let mut parts = told["error"].as_str().unwrap().split("; ");
        assert!(parts.all(|part| said.contains(part)), "{told}: {said}");
    }
}

/// Other commands take the disk's URL where the shell takes a script.
#[test]
fn who_gives_the_shell_a_url_hears_where_to_give_it() {
    for url in
        ["iser://192.0.2.1/iqn.2026-01.test:disk/0", "iscsi://192.0.2.1/iqn.2026-01.test:x/0"]
    {
        fails(1, &["shell", url], &["is no script", &format!("login {url}")]);
    }
}

/// A program that reads JSON numbers as floating point has 53 bits of them.
#[test]
fn keys_of_64_bits_are_texts() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let mut list = vec![0; 24];
    list[8..16].copy_from_slice(&0xffff_ffff_ffff_fffd_u64.to_be_bytes());
    let register = files.with("register", &list);
    list.rotate_left(8);
    let reserve = files.with("reserve", &list);
    let script = format!(
        "login {}\nscsi 5f 00 00 00 00 00 00 00 18 00 out {register}\n\
         scsi 5f 01 05 00 00 00 00 00 18 00 out {reserve}\nlogout\n",
        daemon.urls[0]
    );
    let text = stdout(&good(&[
        "shell",
        &files.with("script", script.as_bytes()),
        "--isid",
        "80c0ffee0001",
    ]));
    assert_eq!(text.matches("GOOD").count(), 2, "{text}");
    let told = json(&["inspect", &daemon.urls[0], "--json"]);
    assert_eq!(told["registered_keys"][0], "0xfffffffffffffffd", "{told}");
    assert_eq!(told["reservation"]["key"], "0xfffffffffffffffd", "{told}");
}

/// As each failure does.
#[track_caller]
fn says_so(told: &Value) {
    assert_eq!((&told["ok"], &told["exit_status"]), (&false.into(), &1.into()), "{told}");
    assert!(told["error"].as_str().is_some_and(|text| text.contains("interrupted")), "{told}");
}

#[test]
fn an_interrupted_bench_of_this_machine_fails_as_all_do() {
    for range in ["1M", "256M"] {
        let words = ["bench", "--local", "--json", "--time", "60s", "--range", range];
        let mut command = that_takes_signals();
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        await_ears(&mut child);
        std::thread::sleep(Duration::from_millis(1500));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert_eq!(stderr(&output).contains("filling a disk"), range == "256M");
        says_so(&serde_json::from_slice(&output.stdout).unwrap());
    }
}

#[test]
fn an_interrupted_bench_tells_what_it_measured() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:16M"], &[]);
    let svg = files.path("plot.svg");
    for more in [vec!["--json"], vec!["--svg", &svg]] {
        let words = ["bench", &daemon.urls[0], "--time", "60s", "--block", "4K,8K"];
        let words = [&words[..], &more].concat();
        let child = that_takes_signals()
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        daemon.await_work();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("interrupted"), "{}", stderr(&output));
        if more[0] == "--json" {
            let told: Value = serde_json::from_slice(&output.stdout).unwrap();
            let results = told["results"].as_array().unwrap();
            assert_eq!((results.len(), &told["interrupted"]), (1, &true.into()), "{told}");
            says_so(&told);
            assert!(results[0]["requests"].as_u64().unwrap() > 0, "{told}");
        } else {
            assert!(stdout(&output).contains("requests/s"), "{}", stdout(&output));
            assert!(std::path::Path::new(&svg).exists());
        }
    }
}

#[test]
fn a_file_is_not_overwritten_unless_that_is_said() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let url = daemon.urls[0].as_str();
    let old = files.with("old", b"precious");
    for command in ["read", "copy"] {
        fails(1, &[command, url, &old, "--quiet"], &[&old, "--overwrite"]);
        assert!(std::fs::read(&old).unwrap() == b"precious", "{command}");
    }
    good(&["read", url, &old, "--quiet", "--overwrite"]);
    assert!(std::fs::read(&old).unwrap() == vec![0; 1 << 20]);
    good(&["copy", url, &files.with("empty", b""), "--quiet"]);
    good(&["copy", url, &old, "--quiet", "--overwrite"]);
}

#[test]
fn sizes_and_addresses_are_taken_as_people_write_them() {
    let files = Files::new();
    let lun = ["memory:1.5M", "memory:1MiB", "memory:512KB", "null:1GiB"];
    let daemon = Daemon::start(files.folder.path(), &lun, &["--listen", "localhost:0"]);
    for (url, bytes) in daemon.urls.iter().zip([3 << 19, 1 << 20, 512_000, 1 << 30]) {
        assert_eq!(json(&["inspect", url, "--json"])["bytes"], bytes, "{url}");
    }
    let status = json(&["status", "--json", "--control-socket", &daemon.socket]);
    let portals = status["portals"].as_array().unwrap();
    assert!(portals.len() >= 2, "{status}");
    let url = &daemon.urls[0];
    assert_eq!(good(&["read", url, "--length", "0.5KiB", "--quiet"]).stdout.len(), 512);
    fails(2, &["read", url, "--length", "1.3K"], &["--length 1.3K", "whole number of bytes"]);
    let words = ["serve", "--listen", "no.such.host.invalid:0", "--control-socket", "x"];
    fails(2, &words, &["--listen no.such.host.invalid:0", "ADDRESS:PORT"]);
}

/// What `serve` would fail with is found without it.
/// What `serve` refuses, `check` refuses, and in the same words.
#[test]
fn check_and_serve_agree() {
    let files = Files::new();
    let (disk, new) = (files.with("disk", &[0; 1 << 20]), files.path("new"));
    std::fs::create_dir(files.path("disk.pi")).unwrap();
    let target = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n";
    let lun = |store: &str, more: &str| format!("[[target.lun]]\nstore = \"{store}\"\n{more}\n");
    let serial = lun("memory:1M", "serial = \"x\"");
    let file = format!("file:{disk}");
    let small = format!("stripe:64K(memory:1M;file:{new},size=4K)");
    for (luns, words) in [
        (format!("{serial}{serial}"), ["LUN 1", "serial with a value of its own"]),
        (lun("memory:1049088", "block = 4096"), ["LUN 0", "1048576 and 1052672"]),
        (lun(&format!("file:{new},size=1049088"), "block = 4096"), ["LUN 0", "nearest sizes"]),
        (lun(&file, "protection = 1"), ["disk.pi", "is a folder"]),
        (lun(&format!("{file},readonly"), "protection = 1"), ["disk.pi", "is a folder"]),
        (lun(&format!("file:{new},readonly"), ""), ["new", "does not exist"]),
        (lun("file:/proc/new,size=1M", ""), ["/proc/new", "try:"]),
        (lun(&small, ""), ["store 1", "less than a chunk"]),
    ] {
        let config = files.with("lunwire.toml", format!("{target}{luns}").as_bytes());
        fails(1, &["check", &config], &words);
        assert!(!std::path::Path::new(&new).exists(), "{luns}");
        let serve = ["serve", "--listen", "127.0.0.1:0", "--control-socket", &files.path("socket")];
        fails(1, &[&serve[..], &["--config", &config]].concat(), &words);
        let _ = std::fs::remove_file(&new);
    }
    let good = lun(&file, "")
        + &lun("memory:1M", "serial = \"x\"\nprotection = 1")
        + &serial.replace('x', "y");
    let config = files.with("lunwire.toml", format!("{target}{good}").as_bytes());
    assert!(lunwire(&["check", &config]).status.success());
}

#[test]
fn check_finds_places_that_are_given_twice() {
    let files = Files::new();
    let (disk, new) = (files.with("disk", &[0; 4096]), files.path("new"));
    let target = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n[[target.lun]]\n";
    let with = |store: &str| format!("{target}store = \"{store}\"\n");
    let (memory, long) = (with("memory:1M"), "x".repeat(200));
    let cases = [
        ("listen = [\"127.0.0.1:4711\", \"127.0.0.1:4711\"]\n".to_owned(), ":1: listen", "4711"),
        (
            "listen = [\n\"0.0.0.0:4711\",\n\"127.0.0.1:4711\"]\n".to_owned(),
            ":3: listen",
            "0.0.0.0:4711",
        ),
        ("listen = [\"[::1]:4711\", \"[::]:4711\"]\n".to_owned(), ":1: listen", "[::1]:4711"),
        (
            "listen = [\"0.0.0.0:4711\"]\n[[portal-group]]\ntag = 2\n\
             listen = [\"127.0.0.1:4711\"]\n"
                .to_owned(),
            ":4: portal-group.listen",
            "0.0.0.0:4711",
        ),
        (
            "[[portal-group]]\ntag = 2\nlisten = [\"127.0.0.1:3260\"]\n".to_owned(),
            "127.0.0.1:3260",
            "twice",
        ),
        (format!("control-socket = \"{disk}\"\n{memory}"), "control-socket", "no socket"),
        (
            format!("control-socket = \"{new}\"\n{}", with(&format!("file:{new},size=1M"))),
            "control-socket",
            "LUN 0",
        ),
        (
            format!("control-socket = \"/no/such/folder/x\"\n{memory}"),
            "control-socket",
            "does not exist",
        ),
        (format!("control-socket = \"/tmp/{long}\"\n{memory}"), "control-socket", "long"),
        (format!("state-dir = \"{disk}\"\n{memory}"), "state-dir", "no folder"),
        (format!("state-dir = \"{disk}/x\"\n{memory}"), "state-dir", "Not a directory"),
    ];
    for (text, place, what) in cases {
        let file = files.with("lunwire.toml", text.as_bytes());
        fails(1, &["check", &file], &["lunwire.toml", place, what]);
        let serve = lunwire(&["serve", "--config", &file]);
        assert!(!serve.status.success(), "{text}");
    }
    let good_ones = "listen = [\"127.0.0.1:0\", \"127.0.0.1:0\", \"0.0.0.0:4711\", \"[::]:4711\", \
                     \"127.0.0.1:4712\", \"127.0.0.2:4712\"]\n";
    good(&["check", &files.with("lunwire.toml", good_ones.as_bytes())]);
    let words = ["serve", "--listen", "0.0.0.0:4711", "--listen", "127.0.0.1:4711"];
    fails(2, &words, &["--listen 127.0.0.1:4711", "0.0.0.0:4711"]);
}

#[test]
fn numbers_and_sizes_that_cannot_be_are_explained() {
    for (words, said) in [
        (&["serve", "--lun", "memory:8E"][..], &["8E", "at most", "8191P"][..]),
        (&["serve", "--lun", "null:16EiB"], &["16EiB", "at most"]),
        (&["serve", "--lun", "null:99999999T"], &["99999999T", "at most", "8191P"]),
        (&["serve", "--lun", "memory:99999999999999999999999"], &["at most"]),
        (&["lun", "resize", "1", "8E"], &["size 8E", "at most"]),
        (&["serve", "--lun", "memory:1Q"], &["1Q", "512M"]),
        (&["serve", "--reactors", "2x"], &["--reactors 2x", "whole number", "--reactors 2"]),
        (&["serve", "--cpus", "a"], &["--cpus a", "whole number"]),
        (&["lun", "remove", "x"], &["<LUN> x", "whole number"]),
        (&["lun", "remove", "70000"], &["<LUN> 70000", "0 to 16383 is right"]),
        (
            &["inspect", "iscsi://h/t/0", "--connections", "99"],
            &["--connections 99", "1 to 32 is right"],
        ),
    ] {
        fails(2, words, said);
        let text = stderr(&lunwire(words));
        assert!(!text.contains("invalid digit") && !text.contains("error:"), "{text}");
    }
}

#[test]
fn an_error_names_its_target_once() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let none = daemon.urls[0].replace("disk/0", "none/0");
    let lun = daemon.urls[0].replace("disk/0", "disk/9");
    for url in [none, lun] {
        for words in [&["inspect", &url][..], &["bench", &url], &["read", &url, "--verify", "x"]] {
            let output = lunwire(words);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            let error = said.split("; try").next().unwrap();
            assert_eq!(error.matches("iqn.").count(), 1, "{said}");
        }
    }
}
