// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks with protection information, by the program that is installed: what the configuration
//! says, and `kill -9` while hosts write.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use buf::Slice;
use initiator::Config;
use initiator::Data;
use initiator::Options;
use initiator::Queue;
use initiator::Request;
use initiator::Retry;
use initiator::SessionId;
use wire::iscsi::Cdb;
use wire::scsi::SenseKey;
use wire::scsi::protection::Information;

const TARGET: &str = "iqn.2026-01.org.example:disk";
const BLOCKS: u32 = 2048;
/// Blocks of one command.
const RUN: u32 = 64;
const PAIR: usize = 520;

/// A daemon that ends with the test.
struct Daemon {
    child: Child,
    portal: String,
}

impl Daemon {
    fn start(config: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(["serve", "--config"])
            .arg(config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("serving iscsi://").expect("a portal");
        let portal = url.split('/').next().unwrap().to_owned();
        Self { child, portal }
    }

    /// `kill -9`.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A configuration with one disk.
fn config(folder: &Path, lun: &str) -> std::path::PathBuf {
    let path = folder.join("config.toml");
    let control = folder.join("control");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\ncontrol-socket = \"{}\"\n\n[[target]]\nname = \"{TARGET}\"\n\n\
         [[target.lun]]\n{lun}\n",
        control.display(),
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// A host at the disk.
struct Host {
    queue: Queue,
    session: SessionId,
}

impl Host {
    fn new(portal: &str) -> Self {
        let mut queue = Queue::new(&Config::default()).unwrap();
        let options = Options::new(portal.to_owned(), Some(TARGET.to_owned()));
        let session = queue.login(options).unwrap();
        // The unit attention of a new host is over then.
        initiator::scsi::test_unit_ready(&mut queue.unit(session, 0)).unwrap();
        Self { queue, session }
    }

    /// READ or WRITE(16) with protection information.
    fn run(&mut self, opcode: u8, block: u32, data: Data) -> Result<Vec<u8>, initiator::Error> {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&[opcode, 0x20]);
        bytes[6..10].copy_from_slice(&block.to_be_bytes());
        bytes[10..14].copy_from_slice(&RUN.to_be_bytes());
        let cdb = Cdb { bytes, len: 16 };
        let request = Request { lun: 0, cdb, data, retry: Retry::Never };
        let done = self.queue.execute(self.session, request)?;
        Ok(done.data.map(|data| data.to_vec()).unwrap_or_default())
    }

    fn write(&mut self, block: u32, seed: u8) -> Result<(), initiator::Error> {
        self.run(0x8a, block, Data::Out(Slice::from(pairs(seed, block)))).map(drop)
    }

    fn read(&mut self, block: u32) -> Result<Vec<u8>, initiator::Error> {
        self.run(0x88, block, Data::In(RUN * 520))
    }
}

/// Blocks of one command: each says which write it is of, and has what belongs to it.
fn pairs(seed: u8, block: u32) -> Vec<u8> {
    let pair = |reference: u32| {
        let mut data = vec![seed; 512];
        data[..4].copy_from_slice(&reference.to_be_bytes());
        let guard = crc::crc16_t10dif(&data);
        data.extend(Information { guard, application: seed.into(), reference }.emit());
        data
    };
    (block..block + RUN).flat_map(pair).collect()
}

/// Which write a block is of, if its information is of the same.
fn seed_of(pair: &[u8]) -> Option<u8> {
    let information = Information::at(pair, 512)?;
    match information {
        Information::ONES if pair[..512] == [0; 512] => Some(0),
        _ => (information.application == u16::from(pair[511])).then_some(pair[511]),
    }
}

/// Each block is that of the last write that was acknowledged, or of a later one that was under way
/// when the daemon was killed, and what stands beside it belongs to it.
#[test]
fn kill_9_leaves_each_block_with_what_belongs_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let lun = format!("store = \"file:{},size=1M\"\nprotection = 1", disk.display());
    let config = config(folder.path(), &lun);
    let runs = usize::try_from(BLOCKS / RUN).unwrap();
    // What was acknowledged last, and what was sent after it, of each run.
    let mut known = vec![(0_u8, 0_u8); runs];
    for round in 0..6_u8 {
        let daemon = Daemon::start(&config);
        let portal = daemon.portal.clone();
        let mut before = known.clone();
        let writer = thread::spawn(move || {
            let mut host = Host::new(&portal);
            for number in (0..).map(|at: usize| at % runs) {
                let seed = before[number].1 % 250 + 1;
                before[number].1 = seed;
                let block = u32::try_from(number).unwrap() * RUN;
                if host.write(block, seed).is_err() {
                    break;
                }
                before[number].0 = seed;
            }
            before
        });
        // Longer than a login, and never at the same point of a write.
        thread::sleep(Duration::from_millis(400 + u64::from(round) * 37));
        daemon.kill();
        known = writer.join().unwrap();
        assert!(known.iter().any(|(done, _)| *done != 0), "something was written");
        let daemon = Daemon::start(&config);
        let mut host = Host::new(&daemon.portal);
        for (number, (done, sent)) in known.iter_mut().enumerate() {
            let block = u32::try_from(number).unwrap() * RUN;
            let read = host.read(block).unwrap_or_else(|error| panic!("{number}: {error}"));
            for pair in read.chunks(PAIR) {
                let seed = seed_of(pair).unwrap_or_else(|| panic!("{number}: not of one write"));
                assert!(seed == *done || seed == *sent, "{number}: {seed}, not {done} or {sent}");
            }
            // Whatever is there, it can be written anew.
            host.write(block, *sent).unwrap();
            *done = *sent;
        }
    }
    // What another program changes is found out.
    let bytes = std::fs::read(&disk).unwrap();
    let mut changed = bytes;
    changed[700] ^= 1;
    std::fs::write(&disk, changed).unwrap();
    let daemon = Daemon::start(&config);
    let url = format!("iscsi://{}/{TARGET}/0", daemon.portal);
    let output =
        Command::new(env!("CARGO_BIN_EXE_lunwire")).args(["inspect", &url]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.lines().any(|line| line.contains("protection") && line.contains("type 1")));
    let error = Host::new(&daemon.portal).read(0).unwrap_err();
    let sense = error.sense().expect("sense data");
    assert_eq!((sense.key, sense.asc, sense.ascq), (SenseKey::AbortedCommand, 0x10, 1));
    assert_eq!(sense.information, Some(1));
}

#[test]
fn what_cannot_be_protected_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for (lun, right) in [
        ("store = \"memory:1M\"\nprotection = 4", "1, 2 or 3 is right"),
        ("store = \"null:1M\"\nprotection = 1", "keeps nothing"),
        ("store = \"stripe:64K(memory:1M;memory:1M)\"\nprotection = 1", "no one file"),
        ("store = \"memory:1M,atomic\"\nprotection = 2", "atomic"),
    ] {
        let config = config(folder.path(), lun);
        let output =
            Command::new(env!("CARGO_BIN_EXE_lunwire")).arg("check").arg(&config).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_ne!(output.status.code(), Some(0), "{lun}");
        assert!(said.contains(right) && said.contains("target.lun.protection"), "{said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["serve", "--lun", "null:1M", "--protection", "1"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--protection 1") && said.contains("keeps nothing"), "{said}");
}
