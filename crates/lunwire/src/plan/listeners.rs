// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who listens at a portal by now, as proc(5) tells it: nothing is bound for that, which could keep
//! a program from its port that starts at this moment.

use std::fs;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;

use target::Portal;

use super::Draft;

/// Our own name, as the system has it.
const OURSELVES: &str = "lunwire";

/// The process that keeps sockets of services (systemd).
const MANAGER: u32 = 1;

/// A socket that somebody listens on.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    at: SocketAddr,
    inode: String,
}

impl Draft {
    /// A warning for each portal at which another program listens. That a daemon of ours does is
    /// as it should be where one is checked that runs.
    pub(crate) fn taken_portals(&self) -> Vec<String> {
        let portals: Vec<SocketAddr> =
            self.portals().iter().map(|Portal { address, .. }| *address).collect();
        let listeners = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| {
            let table = fs::read_to_string(path).unwrap_or_default();
            table.lines().filter_map(listener).collect::<Vec<_>>()
        });
        let listeners: Vec<Listener> = listeners.into_iter().flatten().collect();
        let warning = |portal: &SocketAddr| {
            let taken = listeners.iter().find(|listener| meet(*portal, listener.at))?;
            let owner = owner(&taken.inode);
            let who = match owner {
                Some((_, name)) if name == OURSELVES => return None,
                // It gives them to the service that it starts.
                Some((MANAGER, _)) => return None,
                None if is_asked_by_manager() => return None,
                Some((process, name)) => format!("process {process} ({name}) listens"),
                None => "somebody listens".to_owned(),
            };
            let port = portal.port();
            Some(format!(
                "portal {portal}: {who} there now, and a daemon does not start beside it; try: \
                 another port, or ss -tanp 'sport = :{port}' to see who holds it"
            ))
        };
        portals.iter().filter_map(warning).collect()
    }
}

/// Whether a service manager asks before it starts the daemon, as `ExecStartPre`: it keeps the
/// sockets of the one before, and a user without rights is not told that they are its own.
fn is_asked_by_manager() -> bool {
    let asked = std::env::var("SYSTEMD_EXEC_PID");
    asked.is_ok_and(|process| process == std::process::id().to_string())
}

/// Whether one of them keeps the other one out.
fn meet(portal: SocketAddr, other: SocketAddr) -> bool {
    let (ours, theirs) = (portal.ip(), other.ip());
    let is_for_all = ours.is_unspecified() || theirs.is_unspecified();
    portal.port() != 0
        && portal.port() == other.port()
        && (ours == theirs || is_for_all && ours.is_ipv4() == theirs.is_ipv4())
}

/// A line of the table of sockets, of one that is listened on.
fn listener(line: &str) -> Option<Listener> {
    const LISTENS: &str = "0A";
    let mut words = line.split_whitespace();
    let (local, state) = (words.nth(1)?, words.nth(1)?);
    let inode = words.nth(5)?.to_owned();
    let (address, port) = local.split_once(':').filter(|_| state == LISTENS)?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words of the machine, as it has them in memory.
    let word = |at: usize| {
        let digits = address.get(at..at + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let bytes: Option<Vec<[u8; 4]>> = (0..4).map(|at| word(at * 8)).collect();
            let bytes: [u8; 16] = bytes?.concat().try_into().ok()?;
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(Listener { at: SocketAddr::new(ip, port), inode })
}

/// The process that has a socket, and its name, if we may know.
fn owner(inode: &str) -> Option<(u32, String)> {
    let socket = format!("socket:[{inode}]");
    let has_it = |process: &u32| {
        let files = fs::read_dir(format!("/proc/{process}/fd"));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*socket))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let process = processes.find(has_it)?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some((process, name.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_as_the_kernel_writes_it() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let line = |address: &str, state: &str| {
            format!(
                "   0: {address}:0CBC 00000000:0000 {state} 00000000:00000000 00:00000000 \
                 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0"
            )
        };
        let at = |text: &str| Some(Listener { at: text.parse().unwrap(), inode: "4711".into() });
        let loopback = word([127, 0, 0, 1]);
        assert_eq!(listener(&line(&loopback, "0A")), at("127.0.0.1:3260"));
        assert_eq!(listener(&line(&loopback, "01")), None);
        let six = [[0; 4], [0; 4], [0; 4], [0, 0, 0, 1]].map(word).concat();
        assert_eq!(listener(&line(&six, "0A")), at("[::1]:3260"));
        assert_eq!(listener("  sl  local_address rem_address   st tx_queue"), None);
    }

    #[test]
    fn addresses_of_all_interfaces_have_those_of_each() {
        let meets = |a: &str, b: &str| meet(a.parse().unwrap(), b.parse().unwrap());
        assert!(meets("127.0.0.1:3260", "127.0.0.1:3260"));
        assert!(meets("127.0.0.1:3260", "0.0.0.0:3260") && meets("[::]:3260", "[::1]:3260"));
        assert!(!meets("127.0.0.1:3260", "127.0.0.2:3260"));
        assert!(!meets("127.0.0.1:3260", "127.0.0.1:3261"));
        assert!(!meets("127.0.0.1:3260", "[::]:3260") && !meets("0.0.0.0:0", "0.0.0.0:0"));
    }
}
