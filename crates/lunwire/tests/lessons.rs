// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What other stacks got wrong around the protocol (docs/LESSONS.md): control sockets, listeners,
//! files.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeSet;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

/// A daemon whose every file has to be below one folder.
struct Daemon {
    child: Child,
    socket: PathBuf,
    port: u16,
}

impl Daemon {
    fn start(folder: &Path) -> Self {
        let socket = folder.join("control");
        let mut child = Command::new(env!("CARGO_BIN_EXE_lunwire"))
            .args(["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M", "--state-dir"])
            .arg(folder.join("state"))
            .arg("--control-socket")
            .arg(&socket)
            .env("TMPDIR", folder.join("tmp"))
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("serving iscsi://127.0.0.1:").unwrap();
        let port = url.split('/').next().unwrap().parse().unwrap();
        Self { child, socket, port }
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    std::fs::create_dir(folder.path().join("state")).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn the_control_socket_is_its_owners_and_bounded() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path());
    let mode = std::fs::metadata(&daemon.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A request without end, one of nothing, and one that is no request.
    for request in [vec![b'x'; 4 << 20], Vec::new(), b"{\"unlink\":\"/etc/passwd\"}\n".to_vec()] {
        let mut stream = UnixStream::connect(&daemon.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // The daemon may stop listening in the middle.
        let _ = stream.write_all(&request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 4096, "a short word is enough for a bad request");
    }
    assert!(daemon.is_alive());
    let status = Command::new(env!("CARGO_BIN_EXE_lunwire"))
        .args(["status", "--control-socket"])
        .arg(&daemon.socket)
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
}

/// Ports of TCP and UDP that a process listens on.
fn listeners(pid: u32) -> BTreeSet<u16> {
    let own: BTreeSet<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| {
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(Into::into)
        })
        .collect();
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")) else {
            continue;
        };
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let listens = table.starts_with("udp") || fields[3] == "0A";
            if listens && own.contains(fields[9]) {
                let (_, port) = fields[1].rsplit_once(':').unwrap();
                ports.insert(u16::from_str_radix(port, 16).unwrap());
            }
        }
    }
    ports
}

/// No port of the service location protocol either (427): others find us by SendTargets and iSNS.
///
/// Covers: DIS-20/T.
#[test]
fn a_daemon_listens_on_its_portals_and_nowhere_else() {
    let folder = folder();
    let daemon = Daemon::start(folder.path());
    assert_eq!(listeners(daemon.child.id()), BTreeSet::from([daemon.port]));
}

#[test]
fn a_daemon_leaves_no_file_behind() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path());
    let serving = names(folder.path());
    assert!(serving.iter().all(|name| ["control", "state", "tmp"].contains(&name.as_str())));
    daemon.stop();
    assert!(names(&folder.path().join("tmp")).is_empty());
    assert!(names(&folder.path().join("state")).is_empty(), "nobody reserved anything");
    assert!(names(folder.path()).iter().all(|name| name != "control"), "the socket is gone");
}
