// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The targets, each a process of its own with a disk in memory. All that they make is below the
//! run's folder, and its path is among their arguments.

mod conf;
mod spdk;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use engine::children::end_with_thread;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

use super::{DISK_BYTES, Peer};
use crate::Error;
use crate::measure::real;
use crate::programs::{self, installed};
use crate::study::Settings;
use crate::threads;
use crate::workplace::{Workplace, expect_room};

/// What each writes in its folder: without room it would end and could not say why. Of SPDK it is
/// orders and log, 1.6 KB: the tables of its runtime are in no file (its own `--no-shconf`), and of
/// huge pages no file is left (`--huge-unlink`).
const NOTES_BYTES: u64 = 64 << 10;

/// It listens after so long.
const BEGIN_MOST: Duration = Duration::from_secs(20);

/// And has ended after so long.
const END_MOST: Duration = Duration::from_secs(15);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

const TARGET: &str = "iqn.2026-01.local.lunwire:lab";

/// A target of tgt's own that agrees to digests and to nothing else: it takes none from the other.
const WITH_DIGESTS: &str = "iqn.2026-01.local.lunwire:lab-digests";

/// A target that runs, or is stopped for the time being.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) peer: Peer,
    process: Child,
    portal: SocketAddr,
    about: String,
    log: PathBuf,
    /// What SPDK has besides.
    spdk: Option<spdk::Spdk>,
    /// The disk of who wants a file.
    _disk: Option<OwnedFd>,
    is_over: bool,
}

impl Server {
    /// Starts it where the calling thread is, on processor `cpu`.
    ///
    /// # Errors
    /// What it needs.
    pub(super) fn start(
        peer: Peer,
        place: &Workplace,
        settings: &Settings,
        cpu: usize,
    ) -> Result<Self, String> {
        expect_room(place.path(), NOTES_BYTES)?;
        let folder = place.path().join(peer.name());
        fs::create_dir(&folder).map_err(|error| error.to_string())?;
        match peer {
            Peer::Lunwire => lunwire(&folder, settings, cpu),
            Peer::Spdk => spdk(&folder, cpu),
            Peer::Tgt => tgt(&folder),
            Peer::Istgt => istgt(&folder),
            Peer::Lio => Err(lio()),
        }
    }

    /// Which version it is, and how it runs.
    pub(super) fn about(&self) -> &str {
        &self.about
    }

    /// Where it is, and the name of the target.
    pub(super) fn place(&self, digests: bool) -> (SocketAddr, &'static str) {
        let name = match (self.peer, digests) {
            (Peer::Tgt, true) => WITH_DIGESTS,
            (Peer::Spdk, _) => spdk::TARGET,
            _ => TARGET,
        };
        (self.portal, name)
    }

    pub(super) const fn lun(&self) -> u16 {
        // Of tgt the first one is its controller.
        if matches!(self.peer, Peer::Tgt) { 1 } else { 0 }
    }

    /// Seconds for which it has worked: of who polls, by its own account.
    pub(super) fn worked(&self) -> Result<f64, Error> {
        match &self.spdk {
            Some(spdk) => spdk.worked(),
            None => Ok(real(threads::process(self.process.id()).cpu_ns) / 1e9),
        }
    }

    /// It does nothing until it is resumed.
    pub(super) fn halt(&mut self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&mut self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    /// Fails if it has ended by itself.
    fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        if let Some(status) = self.process.try_wait().map_err(Error::rig)? {
            self.is_over = true;
            return Err(Error::Rig(format!(
                "{} has ended ({status}): {}",
                self.peer.name(),
                self.last_words()
            )));
        }
        kill_process(Pid::from_child(&self.process), signal).map_err(Error::rig)
    }

    /// Lets it end.
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        match self.peer {
            // They wait for whatever their sessions like.
            Peer::Tgt | Peer::Istgt | Peer::Lio => {
                let _ = self.process.kill();
                self.process.wait().map(|_| ()).map_err(Error::rig)
            }
            Peer::Lunwire | Peer::Spdk => {
                let _ = kill_process(Pid::from_child(&self.process), Signal::CONT);
                programs::end(&mut self.process, self.peer.name(), END_MOST)
            }
        }
    }

    fn last_words(&self) -> String {
        last_words(&self.log)
    }

    fn new(
        peer: Peer,
        command: Command,
        (folder, about): (&Path, String),
        portal: SocketAddr,
    ) -> Result<Self, String> {
        let log = folder.join("log");
        let process = spawn(command, &log)?;
        let (spdk, disk, is_over) = (None, None, false);
        Ok(Self { peer, process, portal, about, log, spdk, _disk: disk, is_over })
    }

    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        let until = Instant::now() + BEGIN_MOST;
        while TcpStream::connect_timeout(&self.portal, LOOK).is_err() {
            self.expect_life(until)?;
        }
        Ok(())
    }

    /// Fails when it has ended, or time is over; else waits a little.
    fn expect_life(&mut self, until: Instant) -> Result<(), String> {
        let ended = self.process.try_wait().map_err(|error| error.to_string())?;
        if let Some(status) = ended {
            return Err(format!("it does not start ({status}): {}", self.last_words()));
        }
        if Instant::now() >= until {
            return Err(format!("it does not start: {}", self.last_words()));
        }
        std::thread::sleep(LOOK);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().next_back().unwrap_or("it said nothing").trim().to_owned()
}

/// With nothing of our terminal: Ctrl-C is ours. It ends with the calling thread: one that polls
/// would take its processor from all others as long as the machine runs.
fn spawn(mut command: Command, log: &Path) -> Result<Child, String> {
    let told = |error: std::io::Error| error.to_string();
    let said = File::create(log).map_err(told)?;
    command.stdin(Stdio::null()).stdout(said.try_clone().map_err(told)?).stderr(said);
    end_with_thread(&mut command).process_group(0).spawn().map_err(told)
}

/// None of them can choose a port itself and tell it. Who takes this one meanwhile makes it fail,
/// and is told.
fn free_port() -> Result<SocketAddr, String> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|bound| bound.local_addr());
    bound.map_err(|error| error.to_string())
}

/// A file in memory, gone with this process, and its path for others.
fn memory_file() -> Result<(OwnedFd, String), String> {
    let file = memfd_create("lunwire-lab", MemfdFlags::CLOEXEC).map_err(|why| why.to_string())?;
    ftruncate(&file, DISK_BYTES).map_err(|why| why.to_string())?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((file, path))
}

/// The first word that looks like a version in what a program says of itself.
fn version(program: &Path, option: &str) -> String {
    let said = Command::new(program).arg(option).stdin(Stdio::null()).output();
    let said = said.map(|said| [said.stdout, said.stderr].concat()).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let is_version = |word: &&str| {
        let digits = word.trim_start_matches('v');
        digits.starts_with(|letter: char| letter.is_ascii_digit()) && digits.contains('.')
    };
    let found = said.split_whitespace().find(is_version);
    found.unwrap_or("of an unknown version").trim_start_matches('v').to_owned()
}

/// Ours, as users run it.
fn lunwire(folder: &Path, settings: &Settings, cpu: usize) -> Result<Server, String> {
    let program = settings.program.as_ref();
    let program = program.ok_or("it needs the command lunwire, which runs the studies")?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--target", TARGET, "--reactors", "1"])
        .args(["--lun", &format!("memory:{DISK_BYTES}"), "--cpus", &cpu.to_string()])
        .arg("--control-socket")
        .arg(folder.join("control"));
    let about = format!(
        "lunwire {} as `lunwire serve`, with one reactor and a store of {} MiB in memory.",
        env!("CARGO_PKG_VERSION"),
        DISK_BYTES >> 20
    );
    let unknown = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut server = Server::new(Peer::Lunwire, command, (folder, about), unknown)?;
    let until = Instant::now() + BEGIN_MOST;
    server.portal = loop {
        let said = fs::read_to_string(&server.log).unwrap_or_default();
        if let Some(portal) = portal_of(&said) {
            break portal;
        }
        server.expect_life(until)?;
    };
    Ok(server)
}

/// Where it serves, as it says itself.
fn portal_of(said: &str) -> Option<SocketAddr> {
    let url = said.lines().find_map(|line| line.strip_prefix("serving iscsi://"))?;
    url.split('/').next()?.parse().ok()
}

fn tgt(folder: &Path) -> Result<Server, String> {
    let [daemon, orders] = ["tgtd", "tgtadm"].map(|name| installed(name, "tgt"));
    let (daemon, orders) = (daemon?, orders?);
    let portal = free_port()?;
    let (disk, path) = memory_file()?;
    // Of its socket this is a part of the name, and of that the folder the rest.
    let number = (std::process::id() % 32_768).to_string();
    let socket = folder.join("socket");
    let mut command = Command::new(&daemon);
    command
        .env("TGT_IPC_SOCKET", &socket)
        .args(["-f", "-C", &number, "-p"])
        .arg(folder.join("pid"))
        .args(["--iscsi", &format!("portal={portal}")]);
    let about = format!(
        "tgt {} with a file of {} MiB in memory.",
        version(&daemon, "-V"),
        DISK_BYTES >> 20
    );
    let mut server = Server::new(Peer::Tgt, command, (folder, about), portal)?;
    server._disk = Some(disk);
    let order = |words: &str| -> bool {
        let mut command = Command::new(&orders);
        command.env("TGT_IPC_SOCKET", &socket).args(["-C", &number, "--lld", "iscsi"]);
        command.args(words.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let until = Instant::now() + BEGIN_MOST;
    while !order("--op show --mode sys") {
        server.expect_life(until)?;
    }
    for (number, target) in [(1, TARGET), (2, WITH_DIGESTS)] {
        let mut all = vec![
            format!("--op new --mode target --tid {number} -T {target}"),
            format!("--op new --mode logicalunit --tid {number} --lun 1 -b {path}"),
        ];
        for digest in ["HeaderDigest", "DataDigest"].iter().filter(|_| number == 2) {
            all.push(format!("--op update --mode target --tid 2 -n {digest} -v CRC32C"));
        }
        all.push(format!("--op bind --mode target --tid {number} -I ALL"));
        if let Some(refused) = all.iter().find(|words| !order(words)) {
            return Err(format!("it refuses: tgtadm {refused}"));
        }
    }
    server.wait_until_it_listens()?;
    Ok(server)
}

fn istgt(folder: &Path) -> Result<Server, String> {
    let program = installed("istgt", "istgt")?;
    let [portal, control] = [free_port()?, free_port()?];
    let (disk, path) = memory_file()?;
    let orders = folder.join("conf");
    let text = conf::istgt(folder, &path, portal, control.port());
    let accounts = fs::write(folder.join("accounts"), "[AuthGroup1]\n");
    accounts.and_then(|()| fs::write(&orders, text)).map_err(|error| error.to_string())?;
    let mut command = Command::new(&program);
    command.arg("-D").arg("-c").arg(&orders);
    let mib = DISK_BYTES >> 20;
    let about = format!("istgt {} with a file of {mib} MiB in memory.", version(&program, "-V"));
    let mut server = Server::new(Peer::Istgt, command, (folder, about), portal)?;
    server._disk = Some(disk);
    server.wait_until_it_listens()?;
    Ok(server)
}

fn spdk(folder: &Path, cpu: usize) -> Result<Server, String> {
    let program = spdk::find()?;
    let portal = free_port()?;
    let spdk = spdk::Spdk::new(folder);
    let orders = folder.join("conf.json");
    let text = format!("{:#}", conf::spdk(portal, spdk::TARGET));
    fs::write(&orders, text).map_err(|error| error.to_string())?;
    let mut command = Command::new(&program);
    command.current_dir(folder).args(["-m", &format!("[{cpu}]"), "-u"]).arg("-c").arg(&orders);
    command.args(spdk.words());
    // What its runtime would leave in /var/run when it is killed.
    command.env("RUNTIME_DIRECTORY", folder);
    let about = format!(
        "SPDK {} with a bdev of {} MiB in {}; it polls, and works for as long as its threads say.",
        version(&program, "--version"),
        DISK_BYTES >> 20,
        spdk.pages()
    );
    let mut server = Server::new(Peer::Spdk, command, (folder, about), portal)?;
    server.spdk = Some(spdk);
    server.wait_until_it_listens()?;
    Ok(server)
}

/// LIO is in the kernel of a machine, and what it does is not a process's that could take turns.
fn lio() -> String {
    let modules = Path::new("/sys/kernel/config/target");
    match modules.exists() {
        true => "it is this machine's own target, which the laboratory does not touch; \
                 interop/lio shows in a guest what it does with our commands"
            .to_owned(),
        false => "it needs a kernel with target_core_mod and iscsi_target_mod, which this one is \
                  not; interop/lio shows in a guest what it does with our commands, where time is \
                  that of an emulator"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_serves_is_read_from_what_it_says() {
        let said = "a line\nserving iscsi://127.0.0.1:40123/iqn.x:y/0\n";
        assert_eq!(portal_of(said), Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 40_123))));
        assert_eq!(portal_of("serving iscsi://nowhere/iqn.x:y/0"), None);
    }

    #[test]
    fn a_file_in_memory_has_a_path_for_others() {
        let (_file, path) = memory_file().expect("memory");
        assert_eq!(fs::metadata(path).expect("a file").len(), DISK_BYTES);
    }

    #[test]
    fn who_ends_amid_a_run_is_told_with_how_it_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sh");
        command.args(["-c", "kill -9 $$"]);
        let portal = free_port().expect("a port");
        let server = Server::new(Peer::Tgt, command, (folder.path(), String::new()), portal);
        let mut server = server.expect("a shell");
        let why = loop {
            match server.resume() {
                Ok(()) => std::thread::sleep(LOOK),
                Err(why) => break why.why(),
            }
        };
        assert_eq!(why, "tgt has ended (signal: 9 (SIGKILL)): it said nothing");
    }

    #[test]
    fn who_does_not_start_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; echo no memory; exit 1"]);
        let portal = free_port().expect("a port");
        let server = Server::new(Peer::Tgt, command, (folder.path(), String::new()), portal);
        let why = server.expect("a shell").wait_until_it_listens().unwrap_err();
        assert_eq!(why, "it does not start (exit status: 1): no memory");
    }
}
