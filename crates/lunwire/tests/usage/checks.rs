// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `serve` refuses, `check` refuses, and in the same words: what depends on the machine.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::process::Output;

use crate::support::Daemon;
use crate::support::Files;
use crate::support::fails;
use crate::support::good;
use crate::support::lunwire;
use crate::support::stderr;

const DISK: &str = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
                    [[target.lun]]\nstore = \"memory:1M\"\n";

#[test]
fn addresses_are_those_of_this_machine() {
    let files = Files::new();
    let group = "listen = [\"127.0.0.1:0\"]\n\
                 [[portal-group]]\ntag = 2\nlisten = [\"127.0.0.1:0\", \"192.0.2.1:3260\"]\n";
    for (portals, address) in [
        ("listen = [\"127.0.0.1:0\", \"192.0.2.1:3260\"]\n", "192.0.2.1:3260"),
        ("listen = [\"[2001:db8::7]:3260\"]\n", "[2001:db8::7]:3260"),
        (group, "192.0.2.1:3260"),
    ] {
        let config = files.with("lunwire.toml", format!("{portals}{DISK}").as_bytes());
        let said = format!("cannot listen on {address}: ");
        fails(1, &["check", &config], &["lunwire.toml", &said]);
        let serve = ["serve", "--config", &config, "--control-socket", &files.path("socket")];
        fails(1, &serve, &[&said]);
    }
    let far = format!("listen = [\"192.0.2.1:3260\"]\n{DISK}");
    let advice = ["no address of this machine", "try: ip address"];
    fails(1, &["check", &files.with("lunwire.toml", far.as_bytes())], &advice);
}

#[test]
fn who_has_a_port_is_told() {
    let files = Files::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = format!("listen = [\"{address}\", \"0.0.0.0:0\"]\n{DISK}");
    let config = files.with("lunwire.toml", config.as_bytes());
    let checked = lunwire(&["check", &config]);
    assert!(checked.status.success(), "it may be gone by then");
    let (said, process) = (stderr(&checked), std::process::id());
    assert!(said.contains(&format!("warning: portal {address}: process {process} (")), "{said}");
    drop(taken);
    assert!(!stderr(&lunwire(&["check", &config])).contains(&address.to_string()));
}

/// A daemon that runs already is what a check is made beside.
#[test]
fn a_daemon_of_ours_at_a_port_is_no_news() {
    let files = Files::new();
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), &["memory:1M"], &[]);
    let config = format!("listen = [\"{}\"]\n{DISK}", daemon.portal());
    let checked = lunwire(&["check", &files.with("lunwire.toml", config.as_bytes())]);
    assert!(checked.status.success());
    assert_eq!(stderr(&checked), "");
}

/// It keeps the sockets of a service that starts anew, and does not say so to its user.
#[test]
fn what_the_service_manager_keeps_is_no_news_to_it() {
    let files = Files::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!("listen = [\"{}\"]\n{DISK}", taken.local_addr().unwrap());
    let config = files.with("lunwire.toml", config.as_bytes());
    for (by, is_told) in
        [("exec", true), ("SYSTEMD_EXEC_PID=1 exec", true), ("SYSTEMD_EXEC_PID=$$ exec", false)]
    {
        // With `hidepid`, or for another user, nobody is told who has it.
        let script = format!("{by} {} check /dev/stdin", env!("CARGO_BIN_EXE_lunwire"));
        let mut command = Command::new("sh");
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let input = std::fs::File::open(&config).unwrap();
        let Ok(checked) = command.args(["-c", &script]).stdin(input).output() else { return };
        let said = stderr(&checked);
        if said.contains("Permission denied") {
            return;
        }
        assert_eq!(said.contains("somebody listens there now"), is_told, "{by}: {said}");
    }
}

/// For a user who may do nothing, if we are root; None if the binary is not for everybody.
fn as_nobody(words: &[&str]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lunwire"));
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    command.args(words).output().ok()
}

/// The same in a shell that limits the process.
fn limited(limit: &str, words: &[&str]) -> Output {
    let line = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line, env!("CARGO_BIN_EXE_lunwire")]).args(words).output().unwrap()
}

#[test]
fn ports_of_root_are_for_root() {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if first.is_ok_and(|first| first.trim().parse::<u16>().is_ok_and(|first| first <= 7)) {
        return println!("skipped: all ports are for everybody here");
    }
    let files = Files::new();
    let config = format!("listen = [\"127.0.0.1:7\"]\n{DISK}");
    let config = files.with("lunwire.toml", config.as_bytes());
    std::fs::set_permissions(files.folder.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&config, Permissions::from_mode(0o644)).unwrap();
    let socket = files.path("socket");
    for words in
        [&["check", &config][..], &["serve", "--config", &config, "--control-socket", &socket]]
    {
        let Some(output) = as_nobody(words) else {
            return println!("skipped: the binary is not for everybody");
        };
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("ports below 1024 are for root; try: another port"), "{said}");
    }
}

/// The kernel ends who makes a file longer than that.
#[test]
fn the_limit_of_the_process_is_seen() {
    let files = Files::new();
    let new = files.path("new");
    let disk = DISK.replace("memory:1M", &format!("file:{new},size=1M"));
    let config = files.with("lunwire.toml", disk.as_bytes());
    let socket = files.path("socket");
    let serve =
        ["serve", "--config", &config, "--listen", "127.0.0.1:0", "--control-socket", &socket];
    for words in [&["check", &config][..], &serve] {
        let output = limited("-f 8", words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("try: a smaller size") && said.contains("ulimit -f"), "{said}");
        assert!(!std::path::Path::new(&new).exists(), "{words:?}");
    }
}

#[test]
fn memory_has_room_for_all_disks() {
    let files = Files::new();
    let socket = files.path("socket");
    for store in ["memory:400T", "stripe:64K(memory:400T;memory:400T)"] {
        let disk = DISK.replace("memory:1M", store);
        let config = files.with("lunwire.toml", disk.as_bytes());
        let said = ["LUN 0", "cannot reserve 439804651110400 bytes of memory", "a smaller size"];
        fails(1, &["check", &config], &said);
        let portal = ["--listen", "127.0.0.1:0", "--control-socket", &socket];
        fails(1, &[&["serve", "--config", &config][..], &portal].concat(), &said);
    }
}

#[test]
fn a_mark_of_another_version_is_seen() {
    let files = Files::new();
    let path = files.with("disk", &[0; 4096]);
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "user.lunwire.disk", b"9 what is this", flags).is_err() {
        return println!("skipped: the temporary folder takes no attributes");
    }
    let disk = DISK.replace("memory:1M", &format!("file:{path}"));
    let config = files.with("lunwire.toml", disk.as_bytes());
    let said = ["LUN 0", "cannot tell who the disk", "is not understood", "serial number"];
    fails(1, &["check", &config], &said);
    let socket = files.path("socket");
    let portal = ["--listen", "127.0.0.1:0", "--control-socket", &socket];
    fails(1, &[&["serve", "--config", &config][..], &portal].concat(), &said);
    let named = format!("{disk}serial = \"x\"\n");
    good(&["check", &files.with("lunwire.toml", named.as_bytes())]);
}

#[test]
fn an_engine_that_does_not_run_is_seen() {
    let files = Files::new();
    let config = format!("engine = \"uring\"\nlisten = [\"127.0.0.1:0\"]\n{DISK}");
    let config = files.with("lunwire.toml", config.as_bytes());
    // A ring needs two descriptors, and there is one.
    let output = limited("-n 4", &["check", &config]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot start the uring engine: "), "{said}");
}

#[test]
fn a_socket_that_cannot_be_made_anew_is_seen() {
    let (files, locked) = (Files::new(), Files::new());
    let socket = locked.path("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let config = format!("control-socket = \"{socket}\"\nlisten = [\"127.0.0.1:0\"]\n{DISK}");
    let config = files.with("lunwire.toml", config.as_bytes());
    good(&["check", &config]);
    for (path, mode) in
        [(files.folder.path(), 0o755), (config.as_ref(), 0o644), (locked.folder.path(), 0o555)]
    {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    for words in [&["check", &config][..], &["serve", "--config", &config]] {
        let Some(output) = as_nobody(words) else {
            return println!("skipped: the binary is not for everybody");
        };
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(&socket), "{said}");
    }
}

#[test]
fn what_is_kept_of_a_disk_must_be_understood() {
    let files = Files::new();
    let (state, disk) = (files.path("state"), files.with("disk", &[0; 4096]));
    let config = format!(
        "state-dir = \"{state}\"\nlisten = [\"127.0.0.1:0\"]\n{}serial = \"x\"\n",
        DISK.replace("memory:1M", &format!("file:{disk}"))
    );
    let config = files.with("lunwire.toml", config.as_bytes());
    good(&["check", &config]);
    std::fs::create_dir(&state).unwrap();
    let naa = scsi::Identity::of_serial("x", "", "").naa;
    let naa: String = naa.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("{state}/naa.{naa}.reservations");
    std::fs::write(&path, b"what nobody wrote").unwrap();
    let said = ["LUN 0", path.as_str(), "that hosts rely on"];
    fails(1, &["check", &config], &said);
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "a look makes nothing");
    fails(1, &["serve", "--config", &config, "--control-socket", &files.path("socket")], &said);
}

#[test]
fn disks_in_memory_that_it_has_not_are_warned_of() {
    let files = Files::new();
    let told = |store: &str| {
        let config = files.with("lunwire.toml", DISK.replace("memory:1M", store).as_bytes());
        let output = good(&["check", &config, "--json"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said.contains("in memory"), stderr(&output).contains("in memory"), "{said}");
        said.contains("in memory")
    };
    let machine = rustix::system::sysinfo();
    let mebibytes = (machine.totalram * u64::from(machine.mem_unit)) >> 20;
    assert!(told(&format!("memory:{}M", mebibytes + 1)));
    let half = mebibytes / 2 + 1;
    assert!(told(&format!("stripe:1M(memory:{half}M;memory:{half}M),log")));
    assert!(!told("memory:1M") && !told(&format!("null:{}M", mebibytes + 1)));
}

/// What `check` says of a file that is wrong, line by line, without what stands before each.
fn wrongs(files: &Files, text: &str) -> Vec<String> {
    let file = files.with("wrong.toml", text.as_bytes());
    let output = lunwire(&["check", &file]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let before = format!("lunwire: {file}:");
    let of_line = |line: &str| line.strip_prefix(&before).unwrap_or(line).to_owned();
    stderr(&output).lines().map(of_line).collect()
}

#[test]
fn all_that_is_wrong_in_a_file_is_told_at_once() {
    let files = Files::new();
    let text = "listen = [\"nope\", \"127.0.0.1:0\"]\n\
                reactors = 0\n\
                spin = \"soon\"\n\
                lgo = \"info\"\n\
                [discovery]\n\
                authentication = \"maybe\"\n\
                [[target]]\n\
                name = \"iqn.2026-01.com.example:a\"\n\
                queue-depth = 0\n\
                ping-timeout = \"5\"\n\
                [[target.lun]]\n\
                store = \"memory:1X\"\n\
                [[target.lun]]\n\
                store = \"memory:1M\"\n\
                number = 20000\n\
                [[target.initiator]]\n\
                name = \"nobody\"\n\
                [[target]]\n\
                name = \"iqn.2026-01.com.example:b\"\n\
                chap-user = \"host\"\n\
                chap-secret-file = \"/etc/no-such-folder/host\"\n\
                max-connections = \"4\"\n\
                [[target.lun]]\n\
                store = \"memory:1M\"\n\
                block = \"4K\"\n";
    let said = wrongs(&files, text);
    let lines: Vec<&str> =
        said.iter().map(|line| line.split(':').next().unwrap_or_default()).collect();
    let expected = ["4", "22", "25", "1", "2", "3", "9", "10", "12", "15", "17", "6"];
    let sorted = |list: &[&str]| {
        let mut list: Vec<u32> = list.iter().filter_map(|line| line.parse().ok()).collect();
        list.sort_unstable();
        list
    };
    assert_eq!(sorted(&lines), sorted(&expected), "{said:#?}");
    let block = said.iter().find(|line| line.starts_with("25:")).unwrap();
    assert!(block.ends_with("for example block = 4096"), "{block}");
    let output = lunwire(&["check", &files.path("wrong.toml"), "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["errors"].as_array().unwrap().len(), expected.len(), "{told}");
}

#[test]
fn what_follows_from_a_key_that_cannot_be_read_is_not_told() {
    let files = Files::new();
    let lun = "[[target.lun]]\nstore = \"memory:1M\"\n";
    let table = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\n";
    // Without its number the second would be the first again; without its store it would be none.
    for (text, line) in [
        (format!("{table}{lun}number = 1\n{lun}number = \"x\"\n"), "8"),
        (format!("{table}[[target.lun]]\nstore = 1\n"), "4"),
        (format!("{table}{lun}[[target.lun]]\nstore = [1]\n"), "6"),
        (format!("{table}lun = [{{ store = \"memory:1M\", block = \"x\" }}]\n"), "3"),
    ] {
        let said = wrongs(&files, &text);
        assert_eq!(said.len(), 1, "{text}: {said:#?}");
        assert!(said[0].starts_with(&format!("{line}: ")), "{said:#?}");
    }
}

#[test]
fn a_secret_that_is_not_there_is_named_where_it_is_plainly_a_file() {
    let files = Files::new();
    std::fs::create_dir(files.path("secrets")).unwrap();
    let lun = "[[target.lun]]\nstore = \"memory:1M\"\n";
    let with = |path: &str| {
        let table = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\nchap-user = \"a\"\n";
        wrongs(&files, &format!("{table}chap-secret-file = \"{path}\"\n{lun}")).join("\n")
    };
    for path in ["/etc/no-such-folder/host1", "secrets/host1", &files.path("host1")] {
        let said = with(path);
        assert!(said.contains(&format!("chap-secret-file = \"{path}\"")), "{said}");
        assert!(said.contains("cannot read the secret: "), "{said}");
    }
    for secret in ["SeCrEt99999999zz", "/SeCrEt99999999zz", "/SeCrEt/99999999zz", "SeCrEt/99zz99zz"]
    {
        let said = with(secret);
        assert!(!said.contains(secret) && said.contains("is not shown"), "{said}");
    }
}

/// Interfaces at which frames are taken have names that interfaces have, each once.
#[test]
fn interfaces_of_a_configuration_are_looked_at() {
    let files = Files::new();
    let file = |value: &str| files.with("ether.toml", format!("ether = {value}\n").as_bytes());
    good(&["check", &file("[\"lo\"]")]);
    good(&["check", &file("[\"eth1\", \"eth2.7\"]")]);
    for (value, why) in [
        ("[\"lo\", \"lo\"]", "it is named twice"),
        ("[\"../etc\"]", "the name of a network interface is right"),
        ("[\"0123456789abcdef\"]", "the name of a network interface is right"),
        ("\"lo\"", "a list is right, for example ether = [\"lo\"]"),
    ] {
        fails(1, &["check", &file(value)], &["ether", why]);
    }
    fails(2, &["serve", "--ether", "lo", "--ether", "lo"], &["--ether", "named twice"]);
}

/// The value of `--sandbox` may be left out, so it stands behind `=` alone.
#[test]
fn a_value_of_the_sandbox_behind_a_blank_is_told_with_what_is_right() {
    for (word, right) in
        [("yes", "--sandbox=yes"), ("no", "--sandbox=no"), ("all", "--sandbox=yes")]
    {
        let said = format!("--sandbox {word}: {right} is right");
        fails(2, &["serve", "--sandbox", word, "--lun", "memory:1M"], &[&said]);
    }
    fails(2, &["serve", "yes", "--lun", "memory:1M"], &["unexpected argument 'yes'"]);
}
