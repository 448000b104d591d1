// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that say nothing keep nobody else out.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use wire::iscsi::*;

/// Idle connections: more than the daemon may have descriptors.
const IDLE: usize = 400;

struct Daemon {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// `limits`: commands of a shell before the daemon.
    fn start(limits: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &format!("{limits}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_lunwire")])
            .args(["serve", "--listen", "127.0.0.1:0", "--lun", "memory:1M", "--log", "error"])
            .args(options)
            .arg("--control-socket")
            .arg(folder.path().join("control"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("serving iscsi://127.0.0.1:").unwrap();
        let port = url.split('/').next().unwrap().parse().unwrap();
        Self { child, port, _folder: folder }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    /// Logs in to a discovery session; gives the status, or None if no answer comes.
    fn log_in(&self, number: u8) -> Option<(TcpStream, u16)> {
        let mut stream = self.connect();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let text: &[u8] = b"InitiatorName=iqn.2026-01.com.example:host\0SessionType=Discovery\0\0";
        let request = Request::Login(LoginRequest {
            transit: true,
            continue_: false,
            current: Stage::Operational,
            next: Some(Stage::FullFeature),
            version_max: 0,
            version_min: 0,
            isid: Isid([0x80, 0, 0, 0, 0, number]),
            tsih: Tsih(0),
            itt: Itt(1),
            cid: Cid(1),
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(0),
        });
        let mut bytes = Vec::new();
        request.emit(u32::try_from(text.len() - 1).unwrap(), &mut bytes);
        bytes.extend_from_slice(text);
        bytes.resize(BHS_LEN + pad4(text.len() - 1), 0);
        stream.write_all(&bytes).ok()?;
        let mut answer = [0; BHS_LEN];
        stream.read_exact(&mut answer).ok()?;
        Some((stream, u16::from_be_bytes([answer[36], answer[37]])))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the daemon has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// The soft limit is raised; where the hard one is as low, idle connections give way.
#[test]
fn idle_connections_do_not_keep_a_login_out() {
    for limits in ["ulimit -Sn 200", "ulimit -n 200"] {
        for engine in ["epoll", "auto"] {
            let daemon = Daemon::start(limits, &["--engine", engine]);
            let _idle: Vec<TcpStream> = (0..IDLE).map(|_| daemon.connect()).collect();
            for number in 1..=3 {
                let status = daemon.log_in(number).map(|(_, status)| status);
                assert_eq!(status, Some(0), "{limits}, {engine}");
            }
        }
    }
}

/// Which streams the daemon has left open, once there are at most `most` of them.
fn wait_until_open(streams: &mut [TcpStream], most: usize) -> Vec<bool> {
    let begun = Instant::now();
    loop {
        let open: Vec<bool> = streams.iter_mut().map(|stream| !is_closed(stream)).collect();
        if open.iter().filter(|open| **open).count() <= most {
            return open;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{open:?}");
    }
}

/// What is configured holds for each address: the oldest go, who has logged in stays.
#[test]
fn the_oldest_strangers_go_first() {
    for reactors in ["1", "2"] {
        let options = ["--unauthenticated-per-address", "10", "--reactors", reactors];
        let daemon = Daemon::start("true", &options);
        let mut streams: Vec<TcpStream> = (0..30).map(|_| daemon.connect()).collect();
        // Of two reactors one may take its connections in late: the login is to be the newest.
        wait_until_open(&mut streams, 10);
        let (mut known, status) = daemon.log_in(1).unwrap();
        assert_eq!(status, 0);
        let open = wait_until_open(&mut streams, 9);
        if reactors == "1" {
            assert!(open[21..].iter().all(|open| *open), "the newest stay: {open:?}");
        }
        assert!(!is_closed(&mut known));
    }
}
