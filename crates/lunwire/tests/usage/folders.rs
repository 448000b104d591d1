// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What relative paths of a configuration file name, wherever a command is given.

use std::io::BufRead;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use crate::support::Files;
use crate::support::stderr;
use crate::support::stdout;

const CONFIG: &str = "listen = [\"127.0.0.1:0\"]\ncontrol-socket = \"socket\"\n\
    state-dir = \"state\"\n[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
    chap-user = \"host\"\nchap-secret-file = \"secret\"\n\
    [[target.lun]]\nstore = \"file:disk.img,size=1M\"\n";

/// The target of a command line that names none.
const DEFAULT: &str = "iqn.2026-01.local.lunwire:disk";

/// A folder with a configuration and its secret, and another one.
fn folders(files: &Files, config: &str) -> (String, String) {
    let (home, elsewhere) = (files.path("own"), files.path("elsewhere"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    files.with("own/lunwire.toml", config.as_bytes());
    let secret = files.with("own/secret", b"a secret of a host");
    std::fs::set_permissions(secret, PermissionsExt::from_mode(0o600)).unwrap();
    (home, elsewhere)
}

fn command(folder: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    command.args(words).current_dir(folder);
    command
}

fn run(folder: &str, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn paths_count_from_the_folder_of_the_configuration() {
    let files = Files::new();
    let (home, elsewhere) = folders(&files, CONFIG);
    let given = "../own/lunwire.toml";
    let checked = run(&elsewhere, &["check", given]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let mut child =
        command(&elsewhere, &["serve", "--config", given]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (here, there) = (names(&home), names(&elsewhere));
    let socket = Path::new(&home).join("socket");
    let status = run(&elsewhere, &["status", "--control-socket", socket.to_str().unwrap()]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with("serving "), "{line}");
    assert_eq!(there, Vec::<String>::new());
    assert_eq!(here, ["disk.img", "lunwire.toml", "secret", "socket", "state"]);
    assert!(status.status.success(), "{}", stderr(&status));
}

/// Who asks a daemon may be in another folder than it was started in.
#[test]
fn a_daemon_names_whole_paths() {
    const OWN: &str = "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \
        \"iqn.2026-01.com.example:b\"\n[[target.lun]]\nstore = \"memory:1M\"\n";
    let files = Files::new();
    let (home, elsewhere) = folders(&files, OWN);
    let line = "serve --config lunwire.toml --lun file:disk.img,size=1M --control-socket socket \
                --state-dir state --chap-user host --chap-secret-file secret";
    let log = std::fs::File::create(files.path("log")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut child = command(&home, &words).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let whole = |name: &str| Path::new(&home).join(name).display().to_string();
    let socket = whole("socket");
    let ask = |words: &[&str]| {
        let output = run(&elsewhere, &[words, &["--control-socket", &socket]].concat());
        format!("{}{}", stdout(&output), stderr(&output))
    };
    let mut told = vec![(line, "serving ".to_owned())];
    let store = format!("file:{}", whole("disk.img"));
    told.push((ask(&["status"]), store.clone()));
    told.push((ask(&["lun", "remove", "0", "--target", DEFAULT]), "LUN 0".into()));
    told.push((ask(&["diff"]), format!("+ LUN 0 of {DEFAULT}: {store}")));
    files.with("own/secret", b"short");
    told.push((ask(&["diff"]), format!("--chap-secret-file {}", whole("secret"))));
    files.with("own/lunwire.toml", b"[[target");
    let place = format!("{}:1", whole("lunwire.toml"));
    for words in [&["diff"][..], &["reload", "--dry-run"], &["reload"]] {
        told.push((ask(words), place.clone()));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let log = || std::fs::read_to_string(files.path("log")).unwrap();
    let begun = std::time::Instant::now();
    while !log().contains("not reloaded") && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    told.push((log(), place));
    child.kill().unwrap();
    child.wait().unwrap();
    for (said, wanted) in told {
        assert!(said.contains(&wanted), "{wanted:?} is not in {said}");
    }
}

/// They counted from the current folder before: what is there is not left for something new.
#[test]
fn what_lies_in_the_current_folder_is_not_made_anew() {
    for name in ["disk.img", "state", "secret"] {
        let files = Files::new();
        let (home, elsewhere) = folders(&files, CONFIG);
        if name == "secret" {
            std::fs::rename(files.path("own/secret"), files.path("elsewhere/secret")).unwrap();
        } else {
            files.with(&format!("elsewhere/{name}"), &[0; 4096]);
        }
        let before = names(&home);
        for words in
            [&["check", "../own/lunwire.toml"][..], &["serve", "--config", "../own/lunwire.toml"]]
        {
            let refused = run(&elsewhere, words);
            let text = stderr(&refused);
            assert_eq!(refused.status.code(), Some(1), "{text}");
            let whole = Path::new(&elsewhere).join(name).display().to_string();
            for said in ["from the folder of the configuration file", &format!("try: {whole}")] {
                assert!(text.contains(said), "{said}: {text}");
            }
        }
        assert_eq!(names(&home), before, "{name}");
    }
}
