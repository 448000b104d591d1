// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A wire over a long distance: two networks, and a router between them that passes each frame on
//! as a long line would. TCP at both ends is the kernel's own, and meets the loss of each frame.
//!
//! ```text
//! target -- veth -- [ ring > line > send ] -- veth -- initiator     and the other way
//! ```

mod checksum;
mod line;

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::network::Network;
use engine::packet::PacketSocket;

use crate::ibm::wire::{ip, needs_networks};
use line::Line;
pub(super) use line::{Counts, Nature};

/// The target's address, of the range for measurements (RFC 2544), and the initiator's.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 77, 1), Ipv4Addr::new(198, 18, 77, 2)];

/// Of each host, and of the router's interface before it: as long as nobody else is there, any.
const HOSTS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const ROUTERS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];

/// EtherType of IPv4; who is where needs no question here.
const IPV4: u16 = 0x0800;

/// Between two looks of the router: what comes meanwhile at 1 Gbit/s is a tenth of its ring.
const TURN: Duration = Duration::from_micros(250);

/// Frames that are taken in a turn from one side: a ring.
const FRAMES_MAX: usize = 2048;

/// Of the first line; each one after it has others.
const SEED: u64 = 20_000;

/// Two networks and the router between them, until it is dropped.
pub(super) struct Wan {
    pub(super) target: Network,
    pub(super) initiator: Network,
    shared: Arc<Shared>,
    router: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    over: AtomicBool,
    /// What lines have to be like from now on.
    change: Mutex<Option<Nature>>,
    /// To the initiator, to the target.
    counts: Mutex<[Counts; 2]>,
}

impl Wan {
    /// Lays it.
    ///
    /// # Errors
    /// What it needs.
    pub(super) fn lay(nature: Nature) -> Result<Self, String> {
        let network = || Network::new().map_err(|error| needs_networks(&error));
        let [target, initiator, between] = [network()?, network()?, network()?];
        let hosts = [&target, &initiator];
        for (side, host) in hosts.into_iter().enumerate() {
            lay_side(side, host, &between)?;
        }
        let open = |side: usize| PacketSocket::open(&router_end(side), IPV4);
        let opened = between.within(|| Ok::<_, std::io::Error>([open(0)?, open(1)?]));
        let sockets = opened.and_then(|opened| opened);
        let sockets =
            sockets.map_err(|error| format!("the router has no packet socket: {error}"))?;
        let shared = Arc::new(Shared {
            over: AtomicBool::new(false),
            change: Mutex::new(Some(nature)),
            counts: Mutex::default(),
        });
        let theirs = Arc::clone(&shared);
        // It keeps the network between, too.
        let work = move || {
            pass(sockets, &theirs);
            drop(between);
        };
        let router = std::thread::Builder::new().name("lab-router".into()).spawn(work);
        let router = Some(router.map_err(|error| error.to_string())?);
        Ok(Self { target, initiator, shared, router })
    }

    /// Makes the line another one, on which nothing is under way.
    pub(super) fn change(&self, nature: Nature) {
        *self.shared.change.lock().unwrap_or_else(PoisonError::into_inner) = Some(nature);
    }

    /// What became of frames since the last change: to the initiator, and to the target.
    pub(super) fn counts(&self) -> [Counts; 2] {
        *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most that the line carries of streams of TCP, bytes in a second.
    pub(super) fn most(rate: f64) -> f64 {
        let frame = 14.0 + 1500.0 + 24.0;
        rate / 8.0 * (1514.0 - crate::measure::real(line::HEADERS as u64)) / frame
    }

    /// Sets something of TCP on both sides.
    pub(super) fn set(&self, name: &str, value: &str) -> Result<(), String> {
        for network in [&self.target, &self.initiator] {
            let path = format!("/proc/sys/net/ipv4/{name}");
            let written = network.within(|| std::fs::write(&path, value)).and_then(|done| done);
            written.map_err(|error| format!("{path}: {error}"))?;
        }
        Ok(())
    }

    /// Has TCP use this congestion control on both sides. By their routes, for which every one that
    /// the kernel has is good: other networks than the first have but some.
    pub(super) fn control(&self, name: &str) -> Result<(), String> {
        for (side, network) in [&self.target, &self.initiator].into_iter().enumerate() {
            let [own, other] = [ADDRESSES[side], ADDRESSES[1 - side]];
            let end = host_end(side);
            ip(network, &format!("route replace {other} dev {end} src {own} congctl {name}"))?;
        }
        Ok(())
    }

    /// Where the target listens, at a port that it gets.
    pub(super) const fn address() -> SocketAddr {
        SocketAddr::new(std::net::IpAddr::V4(ADDRESSES[0]), 0)
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(router) = self.router.take() {
            // A panic was reported when it happened.
            let _ = router.join();
        }
    }
}

fn host_end(side: usize) -> String {
    format!("lab-w{side}")
}

fn router_end(side: usize) -> String {
    format!("lab-r{side}")
}

/// A host's end and the router's.
fn lay_side(side: usize, host: &Network, between: &Network) -> Result<(), String> {
    use std::os::fd::{AsFd, AsRawFd};
    let far = format!("/proc/{}/fd/{}", std::process::id(), between.as_fd().as_raw_fd());
    let (name, router) = (host_end(side), router_end(side));
    let [own, its] = [HOSTS[side], ROUTERS[side]].map(mac);
    // A frame is a frame: nothing is sent in one go to be cut into frames later.
    let shape = "mtu 1500 gso_max_segs 1";
    ip(host, "link set dev lo up")?;
    ip(
        host,
        &format!(
            "link add name {name} address {own} {shape} type veth peer name {router} address {its} \
             {shape} netns {far}"
        ),
    )?;
    ip(host, &format!("address add {}/24 dev {name}", ADDRESSES[side]))?;
    ip(host, &format!("link set dev {name} up"))?;
    ip(between, &format!("link set dev {router} up"))?;
    let other = ADDRESSES[1 - side];
    ip(host, &format!("neighbour add {other} lladdr {its} nud permanent dev {name}"))
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Passes frames on until it is over.
fn pass(mut sockets: [PacketSocket; 2], shared: &Shared) {
    let begun = Instant::now();
    let mut lines: [Option<Line>; 2] = [None, None];
    let mut seed = SEED;
    while !shared.over.load(Ordering::Relaxed) {
        let change = shared.change.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(nature) = change {
            seed += 2;
            lines = [0, 1].map(|side| Some(Line::new(nature, seed + side)));
        }
        for (socket, line) in sockets.iter_mut().zip(lines.iter_mut().flatten()) {
            let now = begun.elapsed();
            socket.receive(FRAMES_MAX, |frame| line.offer(now, frame));
        }
        let now = begun.elapsed();
        for (line, to) in lines.iter_mut().flatten().zip([1, 0]) {
            while let Some(mut frame) = line.arrived(now) {
                readdress(&mut frame, to);
                let sent = sockets.get(to).map(|socket| socket.send(&[IoSlice::new(&frame)]));
                // As any that a line does not carry.
                if !matches!(sent, Some(Ok(()))) {
                    line.counts.dropped += 1;
                }
                line.take_back(frame);
            }
        }
        let counts = lines
            .each_ref()
            .map(|line| line.as_ref().map_or_else(Counts::default, |line| line.counts));
        *shared.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        std::thread::sleep(TURN);
    }
}

/// To the host at this side, from the router before it.
fn readdress(frame: &mut [u8], to: usize) {
    for (place, mac) in [(0, HOSTS[to]), (6, ROUTERS[to])] {
        let place = frame.get_mut(place..place + mac.len());
        place.into_iter().for_each(|place| place.copy_from_slice(&mac));
    }
    checksum::fill(frame);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn tcp_gets_through_late_and_whole_or_it_says_what_it_needs() {
        let delay = Duration::from_millis(15);
        let nature = Nature { rate: 1e9, delay, loss: 0.01, queue_bytes: 1 << 20 };
        let wan = match Wan::lay(nature) {
            Ok(wan) => wan,
            Err(why) => {
                let said = ["need root", "iproute2", "packet socket"];
                assert!(said.iter().any(|said| why.contains(said)), "{why}");
                return;
            }
        };
        wan.control("cubic").unwrap();
        let listener = wan.target.within(|| TcpListener::bind(Wan::address())).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let data: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        let mut got = vec![0; data.len()];
        let work = || {
            let begun = Instant::now();
            let mut stream = TcpStream::connect(address).unwrap();
            let took = begun.elapsed();
            let (mut taken, _) = listener.accept().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| stream.write_all(&data).unwrap());
                taken.read_exact(&mut got).unwrap();
            });
            took
        };
        let took = wan.initiator.within(work).unwrap();
        assert!(took >= 2 * delay, "{took:?}");
        assert!(got == data);
        // Its thread tells what it has counted each turn, if the machine lets it run.
        let counted = || wan.counts()[1];
        let begun = Instant::now();
        while counted().bytes < 300_000 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(TURN);
        }
        let to_target = counted();
        assert!(to_target.bytes >= 300_000 && to_target.carried > 200, "{to_target:?}");
        assert!(to_target.lost < 50, "{to_target:?}");
    }
}
