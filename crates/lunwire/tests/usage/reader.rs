// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What somebody meets who has read README alone: wrong words and what is said of them, refusals
//! and their reasons, and what to try.

use std::net::TcpListener;
use std::process::Command;
use std::process::Stdio;

use serde_json::Value;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::TARGET;
use crate::support::fails;
use crate::support::good;
use crate::support::lunwire;
use crate::support::stderr;
use crate::support::stdout;

const URL: &str = "iscsi://127.0.0.1:1/iqn.2026-01.com.example:a/0";

/// The text without its line breaks.
fn flowed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_says_who_a_disk_is() {
    let lun = flowed(&stdout(&good(&["lun", "--help"])));
    assert!(!lun.contains("Hosts know a disk by its target and number"), "{lun}");
    assert!(lun.contains("wherever it is served"), "{lun}");
    let add = flowed(&stdout(&good(&["lun", "add", "--help"])));
    assert!(!add.contains("follows from target and number"), "{add}");
    assert!(add.contains("[default: each disk has its own]"), "{add}");
}

#[test]
fn a_missing_argument_is_named_in_json_too() {
    for (words, missing) in [
        (&["inspect", "--json"][..], "<URL>"),
        (&["read", "--json"], "<URL>"),
        (&["copy", "a", "--json"], "<DESTINATION>"),
        (&["discover", "--json"], "<PORTAL>"),
        (&["lun", "resize", "0", "--json"], "<SIZE>"),
        (&["check", "--json"], "<FILE>"),
        (&["alua", "set", TARGET, "--json"], "<GROUP> <STATE>"),
        (&["bench", URL, "--json", "--dept", "1"], "'--depth'"),
        (&["session", "--json", "drop"], "--json"),
    ] {
        let output = lunwire(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let error = told["error"].as_str().unwrap();
        assert!(error.contains(missing) && !error.contains('\n'), "{words:?}: {told}");
        assert!(!error.contains("Usage:") && !error.contains("For more"), "{words:?}: {told}");
    }
}

/// Wrong usage is what could be seen without any disk or daemon, or what is wrong with the value of
/// an option.
#[test]
fn wrong_usage_is_exit_status_two_everywhere() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let disk = daemon.urls[0].as_str();
    let image = files.with("image", &[0; 512]);
    for words in [
        &["serve", "--listen", "here"][..],
        &["serve", "--lun", "tape:1"],
        &["serve", "--cpus", "99999"],
        &["check"],
        &["explain", "now", "then"],
        &["status", "now"],
        &["sessions", "all"],
        &["top", "--interval", "soon"],
        &["top", "--count", "0"],
        &["session", "drop", "first"],
        &["session", "drop", "70000"],
        &["lun", "add", "tape:1"],
        &["lun", "add", "memory:1M", "--number", "16384"],
        &["lun", "add", "memory:1M", "--number", "70000"],
        &["lun", "add", "memory:1M", "--block", "1000"],
        &["lun", "remove", "16384"],
        &["lun", "resize", "16384", "1G"],
        &["lun", "resize", "0", "much"],
        &["lun", "snapshot", "70000", "x"],
        &["alua", "set", TARGET, "1", "asleep"],
        &["alua", "set", TARGET, "0", "standby"],
        &["alua", "set", TARGET, "70000", "standby"],
        &["alua", "set", TARGET, "1", "standby", "--lun", "16384"],
        &["discover", "127.0.0.1:x"],
        &["inspect", "nowhere"],
        &["inspect", disk, "--engine", "steam"],
        &["read", disk, "--offset", "100"],
        &["read", disk, "--length", "1G"],
        &["write", disk, &image, "--offset", "2M"],
        &["write", disk, disk],
        &["copy", disk, "-", "--verify"],
        &["bench", disk, "--block", "1000"],
        &["bench", disk, "--range", "1K"],
        &["shell", "--isid", "x"],
        &["inspect", disk, "--isid", "c0c0ffee0001"],
        &["inspect", disk, "--isid", "81c0ffee0001"],
        &["copy", &image, &files.path("copy"), "--policy", "worst"],
        &["lab", "run", "amp", "--rounds", "0"],
        &["lab", "run", "nothing"],
    ] {
        let words = match words {
            ["session" | "lun" | "alua", ..] => {
                [words, &["--control-socket", &daemon.socket]].concat()
            }
            _ => words.to_vec(),
        };
        let output = lunwire(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
    }
    for number in ["16384", "70000"] {
        fails(
            2,
            &["lun", "add", "memory:1M", "--number", number],
            &["0 to 16383 is right", number],
        );
    }
    let socket = ["--control-socket", daemon.socket.as_str()];
    let set = ["alua", "set", TARGET, "1", "asleep"];
    fails(2, &[&set[..], &socket].concat(), &["asleep", "active-optimized", "standby"]);
}

#[test]
fn an_empty_word_is_said_to_be_empty() {
    let state = ["alua", "set", "", "1", "standby"];
    for (words, what) in [
        (&["inspect", ""][..], "<URL>"),
        (&["read", ""], "<URL>"),
        (&["read", URL, ""], "FILE"),
        (&["write", URL, ""], "FILE"),
        (&["write", URL, "--offset", ""], "--offset"),
        (&["copy", "", "b"], "<SOURCE>"),
        (&["copy", "a", ""], "<DESTINATION>"),
        (&["copy", "a", "b", "--resume", ""], "--resume"),
        (&["discover", ""], "<PORTAL>"),
        (&["bench", ""], "<URL>"),
        (&["bench", URL, "--svg", ""], "--svg"),
        (&["shell", ""], "SCRIPT"),
        (&["check", ""], "<FILE>"),
        (&["serve", "--lun", ""], "--lun"),
        (&["serve", "--target", ""], "--target"),
        (&["serve", "--config", ""], "--config"),
        (&["lun", "add", ""], "<STORE>"),
        (&["lun", "resize", "0", ""], "<SIZE>"),
        (&["lun", "snapshot", "0", ""], "<PATH>"),
        (&state, "<IQN>"),
        (&["status", "--control-socket", ""], "--control-socket"),
        (&["inspect", URL, "--chap-user", ""], "--chap-user"),
    ] {
        fails(2, words, &["it is empty", what]);
    }
}

#[test]
fn a_first_login_is_not_called_a_session_to_get_back() {
    let output = lunwire(&["inspect", URL, "--patience", "4s"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(!text.contains("get the session back"), "{text}");
    assert_eq!(text.matches("trying to reach the target").count(), 1, "{text}");
}

/// A target that demands mutual authentication of one initiator.
fn strict(files: &Files) -> (Daemon, String, [String; 3]) {
    let secrets = [
        ("own", "secret of the host"),
        ("theirs", "secret of the disk"),
        ("wrong", "a wrong secret, alas"),
    ];
    let secrets = secrets.map(|(name, text)| {
        let path = files.with(name, text.as_bytes());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
        path
    });
    let [own, theirs, _] = &secrets;
    let text = format!(
        "[[target]]\nname = \"iqn.2026-01.com.example:strict\"\nauthentication = \"mutual\"\n\
         [[target.lun]]\nstore = \"memory:1M\"\n\
         [[target.initiator]]\nname = \"iqn.2026-01.com.example:host\"\n\
         chap-user = \"host\"\nchap-secret-file = \"{own}\"\n\
         mutual-user = \"disk\"\nmutual-secret-file = \"{theirs}\"\n"
    );
    let config = files.with("strict.toml", text.as_bytes());
    let socket = files.path("strict.control");
    let log = std::fs::File::create(files.path("log")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["serve", "--listen", "127.0.0.1:0", "--control-socket", &socket])
        .args(["--config", &config])
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    let url = first.trim().strip_prefix("serving ").unwrap().to_owned();
    (Daemon { child, urls: vec![url.clone()], socket, more: Vec::new() }, url, secrets)
}

#[test]
fn who_is_refused_hears_what_to_try() {
    const OTHER: &str = "iqn.2026-01.com.example:other";
    let files = Files::new();
    let (daemon, url, [own, theirs, wrong]) = strict(&files);
    let host = ["--initiator", "iqn.2026-01.com.example:host"];
    let inspect = |more: &[&str], said: &[&str]| {
        fails(1, &[&["inspect", &url][..], more].concat(), said);
    };
    inspect(&["--initiator", OTHER], &["0202", OTHER, "try: --initiator"]);
    inspect(
        &host,
        &["0201", "try: --chap-user NAME --chap-secret-file FILE", "iqn.2026-01.com.example:host"],
    );
    let proved = [&host[..], &["--chap-user", "host", "--chap-secret-file", &own]].concat();
    inspect(&proved, &["0201", "--mutual-user NAME --mutual-secret-file FILE"]);
    let mutual = |secret: &str| {
        let more = ["--mutual-user", "disk", "--mutual-secret-file", secret];
        [&["inspect", url.as_str()][..], &proved, &more].concat().join(" ")
    };
    let words = mutual(&wrong);
    fails(
        1,
        &words.split(' ').collect::<Vec<_>>(),
        &["may not be what it says", "--mutual-secret-file"],
    );
    let words = mutual(&wrong) + " --chap-algorithms md5 --chap-user nobody";
    let words = words.replacen("--chap-user host ", "", 1);
    fails(1, &words.split(' ').collect::<Vec<_>>(), &["0201", "--chap-algorithms"]);
    good(&mutual(&theirs).split(' ').collect::<Vec<_>>());

    let portal = daemon.portal();
    let output = good(&["discover", portal, "--initiator", OTHER]);
    assert_eq!(stdout(&output), "no targets\n");
    let said = stderr(&output);
    assert!(said.contains(OTHER) && said.contains("try: --initiator"), "{said}");
    let output = good(&["discover", portal, "--initiator", OTHER, "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["initiator"], &told["targets"]), (&OTHER.into(), &Value::Array(Vec::new())));

    // A log is written behind the answers.
    Daemon::told(files.folder.path(), "is not on the list of the target");
    let missing = url.replace(":strict", ":none");
    fails(1, &[&["inspect", &missing][..], &host].concat(), &["0203"]);
    Daemon::told(files.folder.path(), "no such target is served here");
    let log = std::fs::read_to_string(files.path("log")).unwrap();
    assert!(!log.contains("refused by the target node"), "{log}");
}

#[test]
fn what_cannot_be_written_is_told_before_the_work() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let url = daemon.urls[0].as_str();
    let nowhere = files.path("no/folder");
    let begun = std::time::Instant::now();
    for words in [
        &["bench", url, "--time", "60s", "--svg", &nowhere][..],
        &["read", url, &nowhere],
        &["copy", url, &nowhere],
        &["copy", url, &files.path("copy"), "--resume", &nowhere],
    ] {
        fails(1, words, &["cannot", &nowhere]);
    }
    let occupied = files.with("occupied", b"");
    for study in ["amp", "fast05"] {
        fails(1, &["lab", "run", study, "--rounds", "100", "--out", &occupied], &["--out"]);
    }
    assert!(begun.elapsed().as_secs() < 30, "it was told too late");
    // What was to be written and was not leaves nothing behind.
    let svg = files.path("plot.svg");
    fails(2, &["bench", url, "--block", "1000", "--svg", &svg], &["--block 1000"]);
    assert!(!std::path::Path::new(&svg).exists());
    good(&["bench", url, "--time", "100ms", "--svg", &svg]);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
}

#[test]
fn a_copy_that_cannot_begin_leaves_nothing_to_go_on_with() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M", "memory:2M"], &[]);
    let (small, large) = (daemon.urls[0].as_str(), daemon.urls[1].as_str());
    let state = files.path("state");
    let output = lunwire(&["copy", large, small, "--resume", &state]);
    let text = stderr(&output);
    assert!(text.contains("has room for 1048576 bytes") && !text.contains("goes on"), "{text}");
    assert!(!std::path::Path::new(&state).exists());
    good(&["copy", small, large, "--resume", &state, "--quiet"]);
}

#[test]
fn figures_for_programs_are_short_all_of_them() {
    let files = Files::new();
    let daemon = Daemon::start(files.folder.path(), &["memory:1M"], &[]);
    let words = ["--reads", "30", "--destroy-data", "--time", "100ms", "--json"];
    let output = good(&[&["bench", daemon.urls[0].as_str()][..], &words].concat());
    let text = stdout(&output);
    let figures = text.split([':', ',', '}']).filter_map(|word| word.split_once('.'));
    let mut decimals = figures.filter(|(whole, _)| whole.parse::<u64>().is_ok());
    assert!(decimals.all(|(_, decimals)| decimals.len() <= 3), "{text}");
}

#[test]
fn a_port_that_is_taken_comes_with_advice() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let port = taken.local_addr().unwrap().port();
    let words = ["serve", "--listen", &address, "--lun", "memory:1M"];
    fails(1, &words, &["cannot listen on", &address, "another port", &format!("sport = :{port}")]);
    let far = ["serve", "--listen", "192.0.2.1:3260", "--lun", "memory:1M"];
    fails(1, &far, &["cannot listen on 192.0.2.1:3260", "no address of this machine"]);
}

#[test]
fn a_store_that_is_not_there_is_made_how() {
    let files = Files::new();
    let path = files.path("none.img");
    let serve = |store: &str, code: i32, said: &[&str]| {
        fails(code, &["serve", "--listen", "127.0.0.1:0", "--lun", store], said);
    };
    serve(&format!("file:{path}"), 1, &["does not exist", &format!("file:{path},size=10G")]);
    for word in [path.as_str(), "./disk.img", "disk.img", "/dev/sdb"] {
        serve(word, 2, &[&format!("did you mean file:{word}?")]);
    }
    fails(2, &["lun", "add", "/srv/x.img,size=1G"], &["did you mean file:/srv/x.img,size=1G?"]);
    let config = format!(
        "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n[[target.lun]]\nstore = \"{path}\"\n"
    );
    let file = files.with("lunwire.toml", config.as_bytes());
    fails(1, &["check", &file], &[&format!("did you mean file:{path}?")]);
}

#[test]
fn a_size_that_is_none_comes_with_its_neighbours() {
    let near = ["memory:100MB", "99999744", "100000256"];
    fails(2, &["serve", "--lun", near[0]], &near);
    fails(2, &["lun", "resize", "0", "1.3K"], &["1024", "1536"]);
    fails(2, &["serve", "--lun", "memory:100"], &["512"]);
    fails(2, &["lun", "add", "null:1000000", "--block", "4096"], &["999936", "1000448"]);
    let files = Files::new();
    let odd = files.with("odd", &[0; 5000]);
    let words = ["serve", "--listen", "127.0.0.1:0", "--lun", &format!("file:{odd}")];
    fails(1, &words, &["truncate -s 5120"]);
}

#[test]
fn check_tells_that_the_default_disk_would_be_served() {
    let files = Files::new();
    let empty = files.with("empty.toml", b"");
    let text = stdout(&good(&["check", &empty]));
    assert!(text.contains("no [[target]]") && text.contains("memory:1G"), "{text}");
    assert!(text.contains(TARGET) && text.contains("127.0.0.1:3260"), "{text}");
    let output = good(&["check", &empty, "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["default_disk"], true, "{told}");
    let full = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n[[target.lun]]\n\
                store = \"memory:1M\"\n";
    let full = files.with("full.toml", full.as_bytes());
    assert!(!stdout(&good(&["check", &full])).contains("memory:1G"));
}

#[test]
fn status_shows_the_size_that_a_disk_has() {
    let files = Files::new();
    let disk = format!("file:{},size=1M,log", files.path("disk"));
    let daemon = Daemon::start(files.folder.path(), &[&disk], &[]);
    let socket = ["--control-socket", daemon.socket.as_str()];
    let status = || stdout(&good(&[&["status"][..], &socket].concat()));
    assert!(status().contains(",size=1M,log (1 MiB"), "{}", status());
    good(&[&["lun", "resize", "0", "3M"][..], &socket].concat());
    assert!(status().contains(",size=3M,log (3 MiB"), "{}", status());
    let output = good(&[&["status", "--json"][..], &socket].concat());
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let store = told["targets"][0]["luns"][0]["store"].as_str().unwrap().to_owned();
    assert!(store.contains(",size=3M,log"), "{told}");
    // A path that is made absolute leaves the rest as it was written.
    let output = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["lun", "add", "file:more,size=10M"])
        .args(socket)
        .current_dir(files.folder.path())
        .output()
        .unwrap();
    assert!(stdout(&output).contains("/more,size=10M, serial "), "{}", stdout(&output));
}

/// What a page says that one may type: the words of each `lunwire` in its blocks of code.
fn typed(page: &str) -> Vec<Vec<String>> {
    let (mut lines, mut is_fenced) = (Vec::<String>::new(), false);
    for line in page.lines() {
        is_fenced ^= line.starts_with("```");
        if !is_fenced && !line.starts_with("    ") {
            continue;
        }
        let line = line.split(" # ").next().unwrap_or_default().trim();
        match lines.last_mut().filter(|before| before.ends_with('\\')) {
            Some(before) => *before = format!("{}{line}", before.trim_end_matches('\\')),
            None => lines.push(line.to_owned()),
        }
    }
    let commands = lines.iter().flat_map(|line| line.split(" | "));
    let words = commands.map(|command| command.split_whitespace().map(str::to_owned));
    let behind = words.filter_map(|mut words| words.find(|word| word == "lunwire").map(|_| words));
    behind.map(Iterator::collect).filter(|words: &Vec<String>| !words.is_empty()).collect()
}

/// Whether a help has this command, or this option.
fn has(help: &str, word: &str) -> bool {
    let is_word = |place: usize| {
        let before = help[..place].chars().next_back();
        let behind = help[place + word.len()..].chars().next();
        before.is_none_or(char::is_whitespace)
            && behind.is_none_or(|c| !c.is_alphanumeric() && c != '-')
    };
    help.match_indices(word).any(|(place, _)| is_word(place))
}

#[test]
fn what_the_pages_say_to_type_has_commands_and_options_that_are_there() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let docs = std::fs::read_dir(format!("{root}/docs")).unwrap();
    let mut pages: Vec<_> = docs.map(|entry| entry.unwrap().path()).collect();
    pages.extend(["README.md", "SECURITY.md"].map(|page| format!("{root}/{page}").into()));
    let mut helps = std::collections::BTreeMap::<Vec<String>, String>::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        for words in typed(&std::fs::read_to_string(page).unwrap()) {
            let mut path: Vec<String> = Vec::new();
            let mut help = String::new();
            for next in words.iter().map(Some).chain([None]) {
                help = helps
                    .entry(path.clone())
                    .or_insert_with(|| {
                        let asked = path.iter().map(String::as_str).chain(["--help"]);
                        stdout(&lunwire(&asked.collect::<Vec<_>>()))
                    })
                    .clone();
                let commands = help.split("\nOptions:").next().unwrap_or_default();
                let commands = commands.split_once("Commands:").map_or("", |(_, list)| list);
                match next.filter(|next| {
                    commands.lines().any(|line| line.split_whitespace().next() == Some(next))
                }) {
                    Some(next) => path.push(next.clone()),
                    None => break,
                }
            }
            if path.is_empty() && !words[0].starts_with('-') && words[0] != "COMMAND" {
                wrong.push(format!("{}: lunwire {}", page.display(), words.join(" ")));
            }
            let options =
                words.iter().take_while(|word| !matches!(word.as_str(), "--" | "&" | ">"));
            for option in options.filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap_or(option);
                count += 1;
                if !has(&help, option.trim_end_matches([']', ',', ';', ')'])) {
                    wrong.push(format!("{}: {path:?} has no {option}", page.display()));
                }
            }
        }
    }
    assert!(count > 60, "{count} options");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
