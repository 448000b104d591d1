// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who hosts take a disk for: by the disk itself, never by the place where it is served.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

const BINARY: &str = env!("CARGO_BIN_EXE_lunwire");
const NAME: &str = "iqn.2026-01.com.example:disk";

/// What every version before identities of their own gave LUN 0 of the target `NAME`.
const FORMER_SERIAL: &str = "c8d96e02c7b8e859";
const FORMER_NAA: &str = "3c8d96e02c7b8e85";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Who {
    serial: String,
    naa: String,
}

fn former() -> Who {
    Who { serial: FORMER_SERIAL.into(), naa: FORMER_NAA.into() }
}

/// A daemon that ends with the test.
struct Daemon {
    child: Child,
    socket: String,
    urls: Vec<String>,
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
        let lines: Vec<_> = lines.take(luns).map_while(Result::ok).collect();
        assert_eq!(lines.len(), luns);
        let urls = lines.iter().map(|line| line.strip_prefix("serving ").unwrap().to_owned());
        Self { child, socket, urls: urls.collect() }
    }

    fn who(&self, lun: usize) -> Who {
        who(&self.urls[lun])
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let ask =
            Command::new(BINARY).args(arguments).args(["--control-socket", &self.socket]).output();
        let output = ask.unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What hosts see behind `url`.
fn who(url: &str) -> Who {
    let output = Command::new(BINARY).args(["inspect", url, "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let naa: Vec<_> = facts["designators"].as_array().unwrap().iter().collect();
    let naa = naa.iter().find_map(|one| one.as_str()?.strip_prefix("naa.")).unwrap();
    Who { serial: facts["serial"].as_str().unwrap().to_owned(), naa: naa.to_owned() }
}

/// LUN 0 of a daemon with these words, for the time of one look.
fn served(arguments: &[&str]) -> Who {
    let folder = tempfile::tempdir().unwrap();
    Daemon::start(folder.path(), 1, arguments).who(0)
}

/// Why a daemon does not start.
fn refused(arguments: &[&str]) -> String {
    let output =
        Command::new(BINARY).args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).output();
    let output = output.unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

fn file(path: &Path) -> String {
    format!("file:{},size=1M", path.display())
}

fn configuration(folder: &Path, target: &str, lun: &str) -> String {
    let path = folder.join("lunwire.toml");
    let text = format!("[[target]]\nname = \"{NAME}\"\n{target}\n[[target.lun]]\n{lun}\n");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn two_daemons_with_the_default_name_show_two_disks() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (file(&folder.path().join("one")), file(&folder.path().join("two")));
    for words in [["memory:1M", "memory:1M"], [&one, &two]] {
        let [a, b] = words.map(|word| served(&["--lun", word]));
        assert_ne!(a.serial, b.serial, "{words:?}");
        assert_ne!(a.naa, b.naa, "{words:?}");
    }
}

/// What an earlier version wrote holds, and gets the birth of the file.
#[test]
fn the_record_of_an_earlier_version_is_brought_up_to_date() {
    const NAME: &str = "user.lunwire.disk";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let disk = file(&path);
    let before = served(&["--lun", &disk]);
    let record = || {
        let mut bytes = [0; 256];
        let length = rustix::fs::getxattr(&path, NAME, &mut bytes).ok()?;
        Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
    };
    let Some(now) = record().filter(|text| text.starts_with("2 ")) else {
        return; // no place for it here, or no birth times
    };
    let words: Vec<_> = now.split(' ').collect();
    let old = format!("1 {} {}", words[1], words[2]);
    rustix::fs::setxattr(&path, NAME, old.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(served(&["--lun", &disk]), before);
    assert_eq!(record(), Some(now.clone()));
    // A copy that has got the same inode number.
    let copy = format!("2 {} {} 7.000000007", words[1], words[2]);
    rustix::fs::setxattr(&path, NAME, copy.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
    let other = served(&["--lun", &disk]);
    assert!(other.serial != before.serial && other.naa != before.naa);
}

#[test]
fn a_disk_is_known_again_wherever_it_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let disk = file(&path);
    let before = served(&["--lun", &disk]);
    assert_eq!(served(&["--lun", &disk]), before, "another start");
    assert_eq!(served(&["--lun", &disk, "--target", NAME]), before, "another target");
    let both = Daemon::start(folder.path(), 2, &["--lun", "memory:1M", "--lun", &disk]);
    assert_eq!(both.who(1), before, "another number");
    drop(both);
    let moved = folder.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    assert_eq!(served(&["--lun", &file(&moved)]), before, "another name");
    assert_eq!(served(&["--lun", &format!("{},readonly", file(&moved))]), before, "read only");
}

#[test]
fn another_disk_at_the_place_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let disk = file(&path);
    let before = served(&["--lun", &disk]);
    fs::remove_file(&path).unwrap();
    assert_ne!(served(&["--lun", &disk]).naa, before.naa, "made anew");
    // All that `cp --archive` and a backup take with them, too.
    let copy = folder.path().join("copy");
    let archived = Command::new("cp").arg("--archive").args([&path, &copy]).status();
    assert!(archived.unwrap().success());
    let now = served(&["--lun", &disk]);
    assert_ne!(served(&["--lun", &file(&copy)]), now, "a copy");
    let striped =
        |chunk: &str| served(&["--lun", &format!("stripe:{chunk}({disk};{})", file(&copy))]);
    assert_eq!(striped("64K"), striped("64K"), "the same stripe");
    assert_ne!(striped("64K"), striped("128K"), "the same files, other content");
}

#[test]
fn a_lun_that_is_exchanged_while_served_is_another_disk() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), 1, &["--lun", "memory:1M"]);
    let before = daemon.who(0);
    daemon.ask(&["lun", "remove", "0"]);
    daemon.ask(&["lun", "add", "memory:1M", "--number", "0"]);
    assert_ne!(daemon.who(0).naa, before.naa);
}

/// Two gateways of one disk are two paths to it because somebody says so.
#[test]
fn a_serial_number_is_the_whole_identity() {
    let folder = tempfile::tempdir().unwrap();
    let at = |serial: &str| served(&["--lun", "memory:1M", "--serial", serial]);
    let (a, b) = (at("A1"), at("B2"));
    assert_eq!((&*a.serial, &*b.serial), ("A1", "B2"));
    assert_ne!(a.naa, b.naa);
    let text = "store = \"memory:1M\"\nserial = \"A1\"";
    let config = configuration(folder.path(), "", text);
    assert_eq!(served(&["--config", &config]), a, "another target, the same disk");
    let twice = ["--lun", "memory:1M", "--serial", "A1", "--lun", "memory:1M", "--serial", "A1"];
    let said = refused(&twice);
    assert!(said.contains("serial") && said.contains("LUN 0"), "{said}");
    let said = refused(&["--lun", "memory:1M", "--serial", "A1", "--serial", "B2"]);
    assert!(said.contains("--serial"), "{said}");
}

#[test]
fn a_medium_for_reading_may_be_in_two_drives() {
    let folder = tempfile::tempdir().unwrap();
    let disc = folder.path().join("disc");
    fs::write(&disc, vec![1; 4096]).unwrap();
    let word = format!("file:{},readonly", disc.display());
    let daemon = Daemon::start(folder.path(), 2, &["--lun", &word, "--lun", &word]);
    assert_ne!(daemon.who(0).naa, daemon.who(1).naa);
    let again =
        Daemon::start(tempfile::tempdir().unwrap().path(), 2, &["--lun", &word, "--lun", &word]);
    assert_eq!([0, 1].map(|lun| daemon.who(lun)), [0, 1].map(|lun| again.who(lun)));
}

/// A disk that hosts know from before, in a folder of its own.
fn known_disk(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    format!("store = \"file:{}\"", path.display())
}

/// Covered by one line, which may go when the disk has its identity beside it.
#[test]
fn disks_of_earlier_versions_keep_their_identity() {
    let folder = tempfile::tempdir().unwrap();
    let disk = known_disk(folder.path(), "disk");
    let config = configuration(folder.path(), "", &disk);
    assert_ne!(served(&["--config", &config]), former(), "nobody knows that it is not new");
    let config = configuration(folder.path(), "identity = \"name\"", &disk);
    assert_eq!(served(&["--config", &config]), former());
    let config = configuration(folder.path(), "", &disk);
    assert_eq!(served(&["--config", &config]), former(), "it is recorded");
    let serial = format!("{disk}\nserial = \"A1\"");
    let config = configuration(folder.path(), "identity = \"name\"", &serial);
    assert_eq!(served(&["--config", &config]), Who { serial: "A1".into(), ..former() });
    let config = configuration(folder.path(), "identity = \"mine\"", &disk);
    assert!(refused(&["--config", &config]).contains("own or name"));
}

/// Where state of the unit was kept, nobody has to say anything, and it is one disk's for ever.
#[test]
fn kept_state_stays_with_the_disk_that_it_is_of() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let kept = state.join(format!("naa.{FORMER_NAA}.identification"));
    fs::write(&kept, identification(u64::from_str_radix(FORMER_NAA, 16).unwrap())).unwrap();
    let state = state.display().to_string();
    let served = |target: &str, lun: &str| {
        let config = configuration(folder.path(), target, lun);
        served(&["--config", &config, "--state-dir", &state])
    };
    let disk = known_disk(folder.path(), "disk");
    let made = format!("store = \"{}\"", file(&folder.path().join("made")));
    assert_ne!(served("", &made), former(), "a file that was just made cannot be it");
    assert_eq!(served("", &disk), former());
    let other = known_disk(folder.path(), "other");
    for target in ["", "identity = \"name\""] {
        assert_ne!(served(target, &other), former(), "another disk at that number: {target}");
    }
    assert_eq!(served("", &disk), former());
}

/// Identifying information as earlier versions kept it: none.
fn identification(unit: u64) -> Vec<u8> {
    let mut bytes = b"LWID\0\0\0\x01".to_vec();
    bytes.extend_from_slice(&unit.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let sum = crc::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes
}

/// What a memory disk kept is gone with it.
#[test]
fn nothing_is_kept_of_a_disk_that_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state").display().to_string();
    let words = ["--lun", "memory:1M", "--state-dir", &state];
    assert_ne!(served(&words), served(&words));
    assert!(!Path::new(&state).exists() || fs::read_dir(&state).unwrap().next().is_none());
}
