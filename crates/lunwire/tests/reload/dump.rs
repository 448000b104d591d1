// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire dump`: what is served, as a file that serves the same.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// The daemon, and one that starts with what it dumps, serve the same; gives the file.
#[track_caller]
fn starts_the_same(daemon: Daemon) -> String {
    let (status, text, said) = daemon.run(&["dump"]);
    assert_eq!((status, said.as_str()), (0, ""), "{text}");
    let served = daemon.served();
    // Files are served once.
    let folder = {
        let mut daemon = daemon;
        let folder = tempfile::tempdir().unwrap();
        std::mem::replace(&mut daemon.folder, folder)
    };
    let fresh = Daemon::start(&text);
    assert_eq!(fresh.served(), served, "{text}");
    // Each has a control socket of its own.
    let rest = |text: &str| {
        let rest = text.lines().filter(|line| !line.starts_with("control-socket"));
        rest.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rest(&fresh.good(&["dump"])), rest(&text));
    drop(folder);
    text
}

#[test]
fn what_orders_have_changed_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "# Of the house.\nlisten = [\"127.0.0.1:0\"]\nstate-dir = \"state\"\n\
         [[portal-group]]\ntag = 2\nlisten = [\"127.0.0.2:0\"]\n\
         [[target]] # the one\nname = \"{PREFIX}:A\"\n\
         port-group = [{{ number = 1, portal-groups = [1] }}, \
         {{ number = 2, portal-groups = [2], state = \"standby\" }}]\n\
         lun = [{{ store = \"memory:1M\" }}, {{ store = \"file:disk,size=1M\" }}]\n\
         [[target.initiator]]\nname = \"{PREFIX}:host\"\nluns = [0, 1]\n\
         [[target]]\nname = \"{PREFIX}:b\"\n[[target.lun]]\nstore = \"memory:3M\" # small\n"
    );
    std::fs::write(folder.path().join("disk"), [0; 1 << 20]).unwrap();
    let daemon = Daemon::start_in(folder, &config);
    let (of_a, of_b) = (format!("{PREFIX}:a"), format!("{PREFIX}:b"));
    let more = daemon.folder.path().join("more.img").display().to_string();
    let more = format!("file:{more},size=2M");
    daemon.good(&["lun", "remove", "0", "--target", &of_a]);
    daemon.good(&["lun", "resize", "1", "4M", "--target", &of_a]);
    daemon.good(&[
        "lun",
        "add",
        &more,
        "--number",
        "7",
        "--target",
        &of_b,
        "--serial",
        "S7",
        "--block",
        "4096",
        "--space-warning",
        "1M",
    ]);
    daemon.good(&["alua", "set", &of_a, "2", "active-non-optimized"]);
    let disk = daemon.folder.path().join("disk").display().to_string();
    let text = daemon.good(&["dump"]);
    for line in [
        "# Of the house.",
        "[[target]] # the one",
        "store = \"memory:3M\" # small",
        &format!("store = \"file:{disk},size=4M\""),
        "number = 1",
        "state = \"active-non-optimized\"",
        "number = 7",
        "serial = \"S7\"",
        "block = 4096",
        "space-warning = \"1M\"",
        "luns = [ 1]",
    ] {
        assert!(text.lines().any(|said| said.contains(line)), "{line}: {text}");
    }
    assert!(!text.contains("memory:1M") && !text.contains("\"state\""), "{text}");
    // But for the list of the initiator, which named a disk that is gone.
    daemon.write(&text);
    let (_, differs, _) = daemon.run(&["diff"]);
    assert_eq!(differs, format!("~ target {of_a}: initiator\n"));
    daemon.good(&["reload"]);
    starts_the_same(daemon);
}

/// A disk of the last target stands behind another table of it: the target of the command line
/// comes behind that.
#[test]
fn nothing_of_a_target_becomes_another_ones() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret of its own").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[[target]]\nname = \"{PREFIX}:secret\"\n\
         chap-user = \"b\"\nchap-secret-file = \"secret\" # Its own.\n\
         [[target.lun]]\nstore = \"memory:1M\"\n\
         [[target.initiator]]\nname = \"{PREFIX}:one\"\n\
         [[target.lun]]\nstore = \"memory:2M\"\n\
         [[target.initiator]]\nname = \"{PREFIX}:two\"\n"
    );
    let file = folder.path().join("lunwire.toml");
    std::fs::write(&file, config).unwrap();
    let daemon = Daemon::start_with(folder, file, &["--lun", "memory:3M"]);
    let served = daemon.served();
    let text = daemon.good(&["dump"]);
    assert!(text.contains("secret\" # Its own."), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let fresh = Daemon::start_in(folder, &text);
    assert_eq!(fresh.served(), served, "{text}");
}

/// Another disk by a number, and one that is not for all.
#[test]
fn a_disk_that_took_the_place_of_another_one_is_the_one_in_the_file() {
    let two = format!("{}[[target.lun]]\nstore = \"memory:2M\"\n", target("a", ""));
    let daemon = Daemon::start(&config(&[two, target("b", "")]));
    let (of_a, of_b) = (format!("{PREFIX}:a"), format!("{PREFIX}:b"));
    let order = |words: &[&str], of: &str| {
        daemon.good(&[&["lun"], words, &["--target", of]].concat());
    };
    order(&["remove", "1"], &of_a);
    order(&["add", "memory:5M", "--number", "1", "--serial", "NEW"], &of_a);
    let text = daemon.good(&["dump"]);
    assert!(text.contains("memory:5M") && text.contains("NEW"), "{text}");
    assert!(!text.contains("memory:2M"), "{text}");
    order(&["remove", "1"], &of_a);
    let host = format!("{PREFIX}:host");
    order(&["add", "memory:2M", "--number", "1", "--initiator", &host], &of_a);
    let (status, text, said) = daemon.run(&["dump"]);
    assert_eq!(status, 0);
    assert!(!text.contains("memory:2M") && said.contains("LUN 1 of"), "{text} {said}");
    // The last one of a target.
    order(&["remove", "1"], &of_a);
    order(&["remove", "0"], &of_a);
    let (status, text, said) = daemon.run(&["dump"]);
    assert_eq!(status, 0, "{said}");
    assert!(!text.contains(&of_a) && said.contains("it has no disk now"), "{text} {said}");
    order(&["remove", "0"], &of_b);
    daemon.fails(&["dump"], &["there is nothing to write down"]);
}

#[test]
fn options_that_take_the_place_of_what_a_file_says_do_so_in_the_dump() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lunwire.toml");
    let of_file = "listen = [\"127.0.0.1:1\"]\nunauthenticated-per-address = 3000\ntarget = []\n\
                   [[portal]]\naddress = \"127.0.0.1:1\"\n";
    std::fs::write(&file, of_file).unwrap();
    let more = ["--listen", "127.0.0.1:0", "--unauthenticated-max", "100", "--lun", "memory:3M"];
    starts_the_same(Daemon::start_with(folder, file, &more));
}

/// Its paths count from where the daemon was started.
#[test]
fn a_file_that_came_through_a_pipe_has_whole_paths() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control").display().to_string();
    let text = config(&[target("a", "")]).replace("memory:1M", "file:disk,size=1M");
    std::fs::write(folder.path().join("some.toml"), text).unwrap();
    let line = format!(
        "exec {} serve --control-socket {socket} --config <(cat some.toml)",
        env!("CARGO_BIN_EXE_lunwire")
    );
    let mut command = Command::new("bash");
    command.args(["-c", &line]).current_dir(folder.path()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let file = folder.path().join("some.toml");
    let disk = folder.path().join("disk").display().to_string();
    let daemon = Daemon { child, file, socket, folder };
    let text = daemon.good(&["dump"]);
    assert!(text.contains(&format!("file:{disk},size=1M")), "{text}");
}

#[test]
fn what_a_file_cannot_say_is_told() {
    let daemon = Daemon::start(&config(&[target("a", "")]));
    let host = format!("{PREFIX}:host");
    daemon.good(&["lun", "add", "memory:1M", "--initiator", &host]);
    let (status, text, said) = daemon.run(&["dump"]);
    assert_eq!(status, 0);
    assert!(!text.contains("number = 1"), "it is for all: {text}");
    assert!(said.contains("LUN 1 of") && said.contains("left out"), "{said}");
}

#[test]
fn what_the_command_line_says_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret of its own").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let secret = secret.display().to_string();
    let options = [
        "--reactors",
        "2",
        "--spin",
        "0",
        "--markers",
        "--chap-user",
        "host",
        "--chap-secret-file",
        &secret,
        "--serial",
        "S0",
        "--rdma",
        "iwarp",
    ];
    let daemon = support::Daemon::start(folder.path(), &["memory:1M", "memory:2M"], &options);
    let dump = ["dump", "--control-socket", &daemon.socket];
    let dumped = support::good(&dump);
    assert_eq!(stderr(&dumped), "");
    let text = stdout(&dumped);
    for line in ["reactors = 2", "markers = true", "rdma = \"iwarp\"", "serial = \"S0\""] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
    let of_chap = format!("chap-user = \"host\"\nchap-secret-file = \"{secret}\"\n");
    assert_eq!(text.matches(&of_chap).count(), 2, "the target and discovery: {text}");
    drop(daemon);
    let fresh = Daemon::start(&text.replace("control-socket", "# control-socket"));
    let status = fresh.status();
    assert_eq!(status["targets"][0]["authentication"], "required");
    assert_eq!(status["targets"][0]["luns"].as_array().unwrap().len(), 2);
    support::fails(1, &["discover", &fresh.portals()[0]], &["authentication failed"]);
    support::good(&[
        "discover",
        &fresh.portals()[0],
        "--chap-user",
        "host",
        "--chap-secret-file",
        &secret,
    ]);
}

/// Whatever the file was, and whatever was ordered since.
#[test]
fn a_dump_serves_what_is_served() {
    let configs = random_configs();
    let orders = proptest::collection::vec((0..5_u8, 0..6_u8, proptest::bool::ANY), 0..12);
    let mut runner = TestRunner::deterministic();
    let (mut carried_out, steps) = (0, STEPS / 4);
    for _ in 0..steps {
        let daemon = Daemon::start(&configs.new_tree(&mut runner).unwrap().current());
        for (of, lun, comes) in orders.new_tree(&mut runner).unwrap().current() {
            let (of, lun) = (format!("{PREFIX}:t{of}"), lun.to_string());
            let (status, ..) = daemon.run(&match comes {
                true => vec!["lun", "add", "memory:5M", "--number", &lun, "--target", &of],
                false => vec!["lun", "remove", &lun, "--target", &of],
            });
            carried_out += usize::from(status == 0);
        }
        // A target without a disk is none of a file.
        let status = daemon.status();
        let targets = status["targets"].as_array().unwrap();
        if targets.iter().all(|target| !target["luns"].as_array().unwrap().is_empty()) {
            starts_the_same(daemon);
        }
    }
    assert!(carried_out > steps / 2, "{carried_out} orders");
}
