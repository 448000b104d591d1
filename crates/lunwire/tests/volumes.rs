// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire lun` against a running daemon, and stores that are written in more than one word.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

const BINARY: &str = env!("CARGO_BIN_EXE_lunwire");

/// A daemon that ends with the test.
struct Daemon {
    child: Child,
    socket: String,
}

impl Daemon {
    fn start(folder: &Path, luns: usize, arguments: &[&str]) -> Self {
        let socket = folder.join("control").display().to_string();
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--control-socket", &socket])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.take(luns).map_while(Result::ok).count(), luns);
        Self { child, socket }
    }

    /// Exit status, and what was said.
    fn ask(&self, arguments: &[&str]) -> (Option<i32>, String) {
        run(&[arguments, &["--control-socket", &self.socket]].concat())
    }
}

/// Exit status, and what was said.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn disks_are_resized_and_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let word = format!("file:{},size=1M,limit=1000000iops", disk.display());
    let daemon = Daemon::start(folder.path(), 2, &["--lun", &word, "--lun", "memory:1M"]);
    let bytes = || std::fs::metadata(&disk).unwrap().len();
    let (code, said) = daemon.ask(&["lun", "resize", "0", "3M"]);
    assert_eq!((code, bytes()), (Some(0), 3 << 20), "{said}");
    assert!(said.contains("1 MiB before, 3 MiB now"), "{said}");
    assert!(daemon.ask(&["status"]).1.contains("(3 MiB, 512-byte blocks)"));
    let (code, said) = daemon.ask(&["lun", "resize", "0", "1M"]);
    assert_eq!((code, bytes()), (Some(1), 3 << 20), "{said}");
    assert!(said.contains("--shrink"), "{said}");
    assert_eq!(daemon.ask(&["lun", "resize", "0", "1M", "--shrink"]).0, Some(0));
    assert_eq!(bytes(), 1 << 20);
    std::fs::File::options().write(true).open(&disk).unwrap().set_len(2 << 20).unwrap();
    assert!(daemon.ask(&["lun", "rescan"]).1.contains("1 MiB before, 2 MiB now"));
    assert!(daemon.ask(&["lun", "rescan"]).1.contains("no disk has another size"));
    for (arguments, code, said) in [
        (&["lun", "resize", "1", "2M"][..], 1, "only file:"),
        (&["lun", "resize", "7", "2M"], 1, "no LUN 7"),
        (&["lun", "resize", "0", "2X"], 2, "2X"),
        (&["lun", "resize", "0", "2M", "--target", "iqn.2026-01.a:b"], 1, "no target"),
    ] {
        let answer = daemon.ask(arguments);
        assert!(answer.0 == Some(code) && answer.1.contains(said), "{arguments:?}: {answer:?}");
    }
}

#[test]
fn a_size_that_no_file_can_have_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let word = format!("file:{},size=1M", folder.path().join("disk").display());
    let daemon = Daemon::start(folder.path(), 1, &["--lun", &word]);
    let pid = rustix::process::Pid::from_child(&daemon.child);
    let most = rustix::process::Rlimit { current: Some(4 << 20), maximum: Some(4 << 20) };
    rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, most).unwrap();
    let (code, said) = daemon.ask(&["lun", "resize", "0", "8M"]);
    assert!(code == Some(1) && said.contains("cannot have 8388608 bytes"), "{said}");
    assert!(said.contains("; try: a smaller size") && !said.contains("os error"), "{said}");
}

#[test]
fn what_was_done_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunwire.toml");
    let target = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n";
    let group = "[[target.port-group]]\nnumber = 1\nportal-groups = [1]\n";
    let lun = "[[target.lun]]\nstore = \"memory:1M\"\n";
    std::fs::write(&file, format!("{target}{group}{lun}{lun}")).unwrap();
    let daemon = Daemon::start(folder.path(), 2, &["--config", &file.display().to_string()]);
    let set = ["alua", "set", "iqn.2026-01.com.example:a", "1", "standby"];
    let (code, said) = daemon.ask(&set);
    assert!(code == Some(0) && said.contains("group 1 is standby now"), "{said}");
    for (words, reply) in [(&set[..], "done"), (&["lun", "remove", "1"], "removed")] {
        let (code, said) = daemon.ask(&[words, &["--json"]].concat());
        assert!(code == Some(0) && said.contains(&format!("\"reply\":\"{reply}\"")), "{said}");
    }
    for words in ["add", "remove", "resize", "rescan", "snapshot"].map(|word| ["lun", word]) {
        let (_, said) = daemon.ask(&[&words[..], &["--help"]].concat());
        assert!(said.contains("Example:\n  lunwire lun "), "{said}");
    }
}

#[test]
fn a_disk_that_nobody_sees_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunwire.toml");
    let target = "[[target]]\nname = \"iqn.2026-01.com.example:database\"\n";
    let lun = "[[target.lun]]\nstore = \"memory:1M\"\n";
    let host = "iqn.2026-01.com.example:host";
    let initiator = format!("[[target.initiator]]\nname = \"{host}\"\nluns = [0]\n");
    std::fs::write(&file, format!("{target}{lun}{initiator}")).unwrap();
    let daemon = Daemon::start(folder.path(), 1, &["--config", &file.display().to_string()]);
    let (code, said) = daemon.ask(&["lun", "add", "memory:1M"]);
    assert!(code == Some(0) && said.contains("no initiator sees LUN 1 of iqn."), "{said}");
    assert!(said.contains("--initiator IQN"), "{said}");
    // The commands that are proposed reach the same daemon.
    let socket = format!("--control-socket {}", daemon.socket);
    assert!(said.contains(&format!("lunwire lun remove {socket} 1 --target iqn.")), "{said}");
    for (words, command) in
        [(&["session", "drop", "77"][..], "sessions"), (&["lun", "remove", "7"], "status")]
    {
        let (code, said) = daemon.ask(words);
        assert!(code == Some(1) && said.contains(&format!("lunwire {command} {socket}")), "{said}");
    }
    // That of a number on a list is seen, and that for somebody.
    assert_eq!(daemon.ask(&["lun", "remove", "0"]).0, Some(0));
    for more in [&["--number", "0"][..], &["--initiator", host]] {
        let (code, said) = daemon.ask(&[&["lun", "add", "memory:1M"], more].concat());
        assert!(code == Some(0) && !said.contains("no initiator"), "{said}");
    }
    let (_, said) = daemon.ask(&["lun", "add", "memory:1M", "--json"]);
    assert!(said.contains("\"for_nobody\":true"), "{said}");
}

#[test]
fn a_disk_in_memory_that_no_machine_has_is_told() {
    let files = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(files.path(), 1, &["--lun", "memory:1M"]);
    let (code, said) = daemon.ask(&["lun", "add", "memory:1M"]);
    assert!(code == Some(0) && !said.contains("warning"), "{said}");
    let (code, said) = daemon.ask(&["lun", "add", "memory:4T"]);
    assert!(code == Some(0) && said.contains("warning: the disks in memory have 4"), "{said}");
    // With what is served already, and for a program.
    let (_, said) = daemon.ask(&["lun", "add", "memory:1M", "--json"]);
    assert!(said.contains("\"warnings\":[\"the disks in memory have"), "{said}");
    // A disk that takes none is no cause for it.
    let (_, said) = daemon.ask(&["lun", "add", "null:1M"]);
    assert!(!said.contains("warning"), "{said}");
}

/// Who added a disk sees who may use it, and a name that was mistyped.
#[test]
fn whom_a_disk_is_for_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunwire.toml");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret of a host").unwrap();
    let (a, b) = ("iqn.2026-01.com.example:a", "iqn.2026-01.com.example:b");
    let text = format!(
        "[[target]]\nname = \"iqn.2026-01.com.example:open\"\n\
         [[target.lun]]\nstore = \"memory:1M\"\nserial = \"one\"\n\
         [[target]]\nname = \"iqn.2026-01.com.example:closed\"\nchap-user = \"u\"\n\
         chap-secret-file = \"{}\"\n[[target.lun]]\nstore = \"memory:1M\"\n\
         [[target.lun]]\nstore = \"memory:1M\"\n\
         [[target.initiator]]\nname = \"{a}\"\n[[target.initiator]]\nname = \"{b}\"\nluns = [1]\n",
        secret.display()
    );
    std::fs::write(&file, text).unwrap();
    let daemon = Daemon::start(folder.path(), 3, &["--config", &file.display().to_string()]);
    let typo = "iqn.2026-01.com.example:typo";
    let open = ["--target", "iqn.2026-01.com.example:open"];
    let add = [&["lun", "add", "memory:1M", "--initiator", typo, "--serial", "two"][..], &open];
    let (_, said) = daemon.ask(&add.concat());
    assert!(said.contains(&format!("serial two, seen by {typo} alone")), "{said}");
    let (_, said) = daemon.ask(&["status"]);
    for told in [
        "for everybody, without a proof of who that is",
        &format!("for {a}, {b}, with a proof (CHAP)"),
        "serial one",
        &format!("seen by {typo} alone"),
        &format!("seen by {a} alone"),
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let (_, said) = daemon.ask(&["status", "--json"]);
    for told in [
        format!("\"access\":[\"{a}\",\"{b}\"],\"authentication\":\"required\""),
        "\"access\":[],\"authentication\":\"off\"".into(),
        "\"serial\":\"one\"".into(),
        format!("\"initiators\":[\"{typo}\"]"),
        format!("\"initiators\":[\"{a}\"]"),
    ] {
        assert!(said.contains(&told), "{told}: {said}");
    }
}

/// Who orders a disk hears what is odd about it, and not the log alone.
#[test]
fn sizes_that_are_not_had_are_told_to_who_asks() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let daemon = Daemon::start(folder.path(), 1, &["--lun", "memory:1M"]);
    std::fs::write(path("old"), vec![0; 1 << 20]).unwrap();
    let store = format!("file:{},size=2M", path("old"));
    let (code, said) = daemon.ask(&["lun", "add", &store, "--number", "1"]);
    let odd = format!("{} is there with 1048576 bytes and not 2097152", path("old"));
    assert!(code == Some(0) && said.contains(&format!("warning: {odd}")), "{said}");
    assert_eq!(daemon.ask(&["lun", "remove", "1"]).0, Some(0));
    let (_, said) = daemon.ask(&["lun", "add", &store, "--number", "1", "--json"]);
    assert!(said.contains(&format!("\"warnings\":[\"{odd}")), "{said}");
    // Files that their file system has no room for, if it takes them at all.
    let (code, said) = daemon.ask(&["lun", "resize", "1", "15T"]);
    if code != Some(0) {
        println!("skipped: {said}");
        return;
    }
    let room = "what hosts may still write to disks there takes ";
    assert!(said.contains("warning: the file system of") && said.contains(room), "{said}");
    let (_, said) = daemon.ask(&["lun", "resize", "1", "1M", "--shrink", "--json"]);
    assert!(said.contains("\"warnings\":[]"), "{said}");
    let large = format!("file:{},size=15T", path("large"));
    let (_, said) = daemon.ask(&["lun", "add", &large, "--json"]);
    assert!(said.contains("\"warnings\":[\"the file system of") && said.contains(room), "{said}");
    // It has no part in that.
    let (_, said) = daemon.ask(&["lun", "add", "null:1M", "--json"]);
    assert!(said.contains("\"warnings\":[]"), "{said}");
    let config = path("c.toml");
    let text = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
                [[target.lun]]\nstore = \"file:new,size=15T\"\n";
    std::fs::write(&config, text).unwrap();
    let (code, said) = run(&["check", &config]);
    assert!(code == Some(0) && said.contains(room), "{said}");
    std::fs::write(&config, text.replace("15T", "15M")).unwrap();
    let (code, said) = run(&["check", &config]);
    assert!(code == Some(0) && !said.contains("warning"), "{said}");
}

#[test]
fn disks_are_added_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), 1, &["--lun", "memory:1M"]);
    let more = folder.path().join("more");
    let word = format!("file:{},size=2M,delay=1ms", more.display());
    let (code, said) = daemon.ask(&["lun", "add", &word, "--block", "4096", "--number", "5"]);
    assert!(code == Some(0) && said.contains("LUN 5: 2 MiB, file:"), "{said}");
    let (_, said) = daemon.ask(&["status"]);
    let shown = format!("LUN 5: {word} (2 MiB, 4096-byte blocks)");
    assert!(said.contains(&shown), "{said}");
    assert!(daemon.ask(&["lun", "add", "memory:1M"]).1.contains("LUN 1: 1 MiB, memory:1"));
    assert_eq!(daemon.ask(&["lun", "resize", "5", "4M"]).0, Some(0), "it is as any other");
    for (arguments, code, said) in [
        (&["lun", "add", "memory:1M", "--number", "5"][..], 1, "LUN 5 is at"),
        (&["lun", "add", "memory:1M", "--number", "20000"], 2, "20000: 0 to 16383 is right"),
        (&["lun", "add", "memory:1M", "--block", "1000"], 2, "--block 1000: 512 or 4096"),
        (&["lun", "add", "memory:1M", "--serial", ""], 2, "--serial"),
        (&["lun", "add", "memory:1M", "--initiator", "me"], 2, "--initiator me"),
        (&["lun", "add", "paper:1M"], 2, "paper"),
        (&["lun", "add", &word], 1, "more"),
        (&["lun", "add", "file:/nowhere/at/all"], 1, "/nowhere/at/all"),
        (&["lun", "add", "memory:1M", "--target", "iqn.2026-01.a:b"], 1, "no target"),
        (&["lun", "remove", "7"], 1, "no LUN 7"),
    ] {
        let answer = daemon.ask(arguments);
        assert!(answer.0 == Some(code) && answer.1.contains(said), "{arguments:?}: {answer:?}");
    }
    assert_eq!(daemon.ask(&["lun", "remove", "5"]).0, Some(0));
    assert!(!daemon.ask(&["status"]).1.contains("LUN 5"));
    let word = format!("file:{}", more.display());
    let (code, said) = daemon.ask(&["lun", "add", &word]);
    assert!(code == Some(0) && said.contains("LUN 2: 4 MiB"), "its file is free again: {said}");
}

/// A path is that of who asks, not of the daemon.
#[test]
fn paths_of_added_disks_are_relative_to_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), 1, &["--lun", "memory:1M"]);
    let status = Command::new(BINARY)
        .args(["lun", "add", "stripe:4K(file:a,size=1M;file:b,size=1M),log"])
        .args(["--control-socket", &daemon.socket])
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    let sizes = ["a", "b"].map(|name| std::fs::metadata(folder.path().join(name)).unwrap().len());
    assert_eq!(sizes, [1 << 20; 2]);
}

/// Where the file system has reflinks there is a snapshot, elsewhere a refusal that says why.
#[test]
fn a_snapshot_is_made_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let word = format!("file:{},size=1M", folder.path().join("disk").display());
    let daemon = Daemon::start(folder.path(), 1, &["--lun", &word]);
    let snapshot = folder.path().join("snapshot");
    let (code, said) = daemon.ask(&["lun", "snapshot", "0", snapshot.to_str().unwrap()]);
    if code == Some(0) {
        assert_eq!(std::fs::metadata(&snapshot).unwrap().len(), 1 << 20);
    } else {
        assert!(code == Some(1) && said.contains("reflinks"), "{said}");
        assert!(!snapshot.exists());
    }
}

#[test]
fn filters_stand_in_the_configuration_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunwire.toml");
    let disc = folder.path().join("disc.iso");
    std::fs::write(&disc, [0; 20 * 2048]).unwrap();
    let disc = disc.display();
    let text = format!(
        "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
         [[target.lun]]\nstore = \"memory:1M\"\nfilters = [\"delay=1ms\", \"readonly\"]\n\
         space-warning = \"64K\"\n\
         [[target.lun]]\nstore = \"iso:{disc},log\"\n"
    );
    std::fs::write(&file, &text).unwrap();
    let config = file.display().to_string();
    let daemon = Daemon::start(folder.path(), 2, &["--config", &config]);
    let (_, said) = daemon.ask(&["status"]);
    let disk = "LUN 0: memory:1M,delay=1ms,readonly (1 MiB, 512-byte blocks, read only)";
    assert!(said.contains(disk), "{said}");
    assert!(said.contains("2048-byte blocks, read only"), "{said}");
    for (filters, problem) in [
        ("filters = [\"delay=1h\"]", "target.lun.filters = \"delay=1h\""),
        ("filters = [\"sleep\"]", "is no filter"),
        ("space-warning = \"much\"", "target.lun.space-warning = \"much\""),
    ] {
        let text = format!(
            "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
             [[target.lun]]\nstore = \"memory:1M\"\n{filters}\n"
        );
        std::fs::write(&file, text).unwrap();
        let output = Command::new(BINARY).args(["check", &config]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(problem) && said.contains(":5: "), "{said}");
    }
}

/// The command line that made a disk serves it for ever, whatever became of its size.
#[test]
fn the_same_command_line_starts_after_a_resize() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let word = format!("file:{},size=1M", disk.display());
    for (size, next) in [("(1 MiB,", "3M"), ("(3 MiB,", "2M"), ("(2 MiB,", "2M")] {
        let daemon = Daemon::start(folder.path(), 1, &["--lun", &word]);
        let (_, said) = daemon.ask(&["status"]);
        assert!(said.contains(size), "{said}");
        let (code, said) = daemon.ask(&["lun", "resize", "0", next, "--shrink"]);
        assert_eq!(code, Some(0), "{said}");
    }
}

/// `check` sees what would keep a daemon from serving, and does not mind one that serves.
#[test]
fn check_looks_at_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("empty"), []).unwrap();
    std::fs::write(path("disk"), [0; 4096]).unwrap();
    std::fs::hard_link(path("disk"), path("link")).unwrap();
    let check = |stores: &[String]| {
        let luns: String =
            stores.iter().map(|store| format!("[[target.lun]]\nstore = \"{store}\"\n")).collect();
        let config = path("config.toml");
        std::fs::write(&config, format!("[[target]]\nname = \"iqn.2026-01.a:b\"\n{luns}")).unwrap();
        let output = Command::new(BINARY).args(["check", &config]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let file = |name: &str| format!("file:{}", path(name));
    let made = format!("{},size=1M", file("new"));
    for (stores, right) in [
        (vec![file("none")], "does not exist"),
        (vec![file("empty")], "is empty"),
        (vec![format!("iso:{}", path("none"))], "does not exist"),
        (vec![file("disk"), format!("stripe:4K({};{made})", file("link"))], "LUN 0"),
        (vec![made.clone(), made.clone()], "each file once"),
        (vec![file("disk"), format!("{},readonly", file("link"))], "each file once"),
    ] {
        let (code, said) = check(&stores);
        assert!(code == Some(1) && said.contains(right), "{stores:?}: {said}");
    }
    let (code, said) = check(&[file("disk"), made, "memory:1M".into()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!folder.path().join("new").exists());
    let _daemon = Daemon::start(folder.path(), 1, &["--lun", &file("disk")]);
    let (code, said) = check(&[file("disk")]);
    assert_eq!(code, Some(0), "it is the one that is served: {said}");
}

/// Two daemons would overwrite each other's reservations.
#[test]
fn a_state_folder_is_one_daemons() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let arguments = ["--lun", "memory:1M", "--state-dir", state.to_str().unwrap()];
    let daemon = Daemon::start(folder.path(), 1, &arguments);
    let mode = std::fs::metadata(&state).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let second = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--control-socket"])
        .arg(folder.path().join("other"))
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    let process = format!("process {}", daemon.child.id());
    assert!(said.contains("state folder") && said.contains(&process), "{said}");
    drop(daemon);
    Daemon::start(folder.path(), 1, &arguments);
}

/// Whoever gives an order to a store that takes its time hears what it waits for.
#[test]
fn who_waits_for_a_store_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        for pause in [3500, 0] {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(pause));
            stream.write_all(b"{\"reply\":\"rescanned\",\"luns\":[]}\n").unwrap();
        }
    });
    for (is_told, words) in [(1, &["lun", "rescan"][..]), (0, &["lun", "rescan"])] {
        let (code, said) =
            run(&[words, &["--control-socket", &path.display().to_string()]].concat());
        assert!(code == Some(0) && said.contains("no disk has another size"), "{said}");
        assert_eq!(said.matches("still waiting for the store").count(), is_told, "{said}");
    }
    daemon.join().unwrap();
}

/// A disk that became smaller is told, in the log and to who asks.
/// Who reads the answers finds the same in all of them.
#[test]
fn orders_are_answered_in_one_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let lun = format!("file:{},size=1M", path("disk"));
    let daemon = Daemon::start(folder.path(), 1, &["--lun", &lun]);
    let (copy, added) = (path("copy"), format!("file:{},size=1M", path("added")));
    for (words, reply, lun) in [
        (vec!["add", &added], "added", 1),
        (vec!["resize", "1", "2M"], "resized", 1),
        (vec!["snapshot", "1", &copy], "snapshotted", 1),
        (vec!["remove", "1"], "removed", 1),
        (vec!["rescan"], "rescanned", -1),
    ] {
        let (code, said) = daemon.ask(&[&["lun"], &words[..], &["--json"]].concat());
        if reply == "snapshotted" && code != Some(0) {
            println!("skipped: {said}");
            continue;
        }
        let told: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(told["reply"], reply, "{said}");
        assert!(told["warnings"].is_array(), "{said}");
        if lun >= 0 {
            assert_eq!(told["lun"], lun, "{said}");
            assert!(told["target"].as_str().unwrap().starts_with("iqn."), "{said}");
        }
    }
}

#[test]
fn a_disk_that_became_smaller_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let daemon =
        Daemon::start(folder.path(), 1, &["--lun", &format!("file:{},size=2M", disk.display())]);
    std::fs::File::options().write(true).open(&disk).unwrap().set_len(1 << 20).unwrap();
    let (code, said) = daemon.ask(&["lun", "rescan", "--json"]);
    assert_eq!(code, Some(0));
    let told = "\"warnings\":[\"iqn.";
    assert!(said.contains(told) && said.contains("1 MiB are left of the 2 MiB"), "{said}");
    let (_, said) = daemon.ask(&["status"]);
    assert!(said.contains("1 MiB are left of it") && said.contains("resize 0 1048576"), "{said}");
    assert!(daemon.ask(&["status", "--json"]).1.contains("\"shrunk\":1048576"));
    assert_eq!(daemon.ask(&["lun", "resize", "0", "1M", "--shrink"]).0, Some(0));
    assert!(!daemon.ask(&["status"]).1.contains("are left of it"));
    // What is told of a size that cannot be is what can.
    let (code, said) = daemon.ask(&["lun", "resize", "0", "1000000"]);
    assert!(code == Some(2) && said.contains("999936 and 1000448 are the nearest"), "{said}");
}

/// Another disk that has its serial number has its own size.
#[test]
fn what_a_disk_has_lost_is_not_told_of_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| format!("file:{},size=2M", folder.path().join(name).display());
    let daemon =
        Daemon::start(folder.path(), 1, &["--lun", &place("first"), "--serial", "same-number"]);
    let first = folder.path().join("first");
    std::fs::File::options().write(true).open(first).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(daemon.ask(&["lun", "rescan"]).0, Some(0));
    assert!(daemon.ask(&["status"]).1.contains("1 MiB are left of it"));
    assert_eq!(daemon.ask(&["lun", "remove", "0"]).0, Some(0));
    let (code, said) =
        daemon.ask(&["lun", "add", &place("second"), "--serial", "same-number", "--number", "1"]);
    assert_eq!(code, Some(0), "{said}");
    let (_, said) = daemon.ask(&["status"]);
    assert!(said.contains("LUN 1") && !said.contains("are left of it"), "{said}");
}
