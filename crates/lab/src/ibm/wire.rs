// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wire: target and initiator each in a network of its own, with a pair of veth between them
//! for each size of a frame. It has no name that would stay: it is gone with this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::network::Network;

use crate::congestion;

/// The two networks.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) target: Network,
    pub(super) initiator: Network,
    pub(super) pairs: Vec<Pair>,
    /// Others, for programs at the interface: what passes such a one goes another way.
    pub(super) for_programs: Vec<Pair>,
    /// Why what a side receives does not run on that side's processor.
    pub(super) unsteered: Option<String>,
}

/// Two interfaces, one at each end.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// Bytes that a frame carries.
    pub(super) mtu: u32,
    pub(super) target: String,
    pub(super) initiator: String,
    /// The target's.
    pub(super) address: SocketAddr,
}

/// The subnet of the first pair of those for programs.
const FOR_PROGRAMS: u8 = 100;

/// Interfaces have names of their own within the process: a station stays for a while.
static PAIRS: AtomicUsize = AtomicUsize::new(0);

impl Wire {
    /// Lays it, with a pair for each of `mtus`; `cpus` of the target and of the initiator do the
    /// work on what each receives, as interrupts of its adapter would have it.
    ///
    /// # Errors
    /// What it needs.
    pub(super) fn lay(mtus: &[u32], cpus: [usize; 2]) -> Result<Self, String> {
        let network = || Network::new().map_err(|error| needs_networks(&error));
        let [target, initiator] = [network()?, network()?];
        let mut unsteered = None;
        for (side, cpu) in [(&target, cpus[0]), (&initiator, cpus[1])] {
            // Interfaces take it when they are made.
            let steer = || std::fs::write("/proc/sys/net/core/rps_default_mask", mask(cpu));
            let steered = side.within(steer).and_then(|written| written);
            let told = |error: std::io::Error| {
                format!("rps_default_mask, of Linux 6.3 and later, cannot be set ({error})")
            };
            unsteered = unsteered.or_else(|| steered.err().map(told));
        }
        for side in [&target, &initiator] {
            side.within(congestion::set_plain).map_err(|error| error.to_string())?;
        }
        // Who listens is first asked by those beside him.
        ip(&target, "link set dev lo up")?;
        let (pairs, for_programs) = (Vec::new(), Vec::new());
        let mut wire = Self { target, initiator, pairs, for_programs, unsteered };
        for (&mtu, subnet) in mtus.iter().zip(1..) {
            let pair = wire.add(mtu, subnet)?;
            wire.pairs.push(pair);
        }
        Ok(wire)
    }

    /// Lays more, beside those that are there.
    ///
    /// # Errors
    /// What it needs.
    pub(super) fn add_for_programs(&mut self, mtus: &[u32]) -> Result<(), String> {
        for (&mtu, subnet) in mtus.iter().zip(FOR_PROGRAMS..) {
            let pair = self.add(mtu, subnet)?;
            self.for_programs.push(pair);
        }
        Ok(())
    }

    fn add(&mut self, mtu: u32, subnet: u8) -> Result<Pair, String> {
        let number = PAIRS.fetch_add(1, Ordering::Relaxed);
        let [t, i] = ["t", "i"].map(|end| format!("lab-{end}{number}"));
        // Of the range for measurements (RFC 2544).
        let address = |host| Ipv4Addr::new(198, 18, subnet, host);
        let far = format!("/proc/{}/fd/{}", std::process::id(), self.initiator.as_fd().as_raw_fd());
        // A frame is a frame: nothing is sent in one go to be cut into frames later.
        let [shape, add] = [format!("mtu {mtu} gso_max_segs 1"), "link add name".to_owned()];
        let made = format!("{add} {t} {shape} type veth peer name {i} {shape} netns {far}");
        ip(&self.target, &made)?;
        for (side, name, host) in [(&self.target, &t, 1), (&self.initiator, &i, 2)] {
            ip(side, &format!("address add {}/24 dev {name}", address(host)))?;
            ip(side, &format!("link set dev {name} up"))?;
        }
        let address = SocketAddr::from((address(1), 0));
        Ok(Pair { mtu, target: t, initiator: i, address })
    }

    pub(super) fn pair(&self, mtu: Option<u32>) -> Option<&Pair> {
        self.pairs.iter().find(|pair| Some(pair.mtu) == mtu)
    }

    pub(super) fn pair_for_programs(&self, mtu: Option<u32>) -> Option<&Pair> {
        self.for_programs.iter().find(|pair| Some(pair.mtu) == mtu)
    }
}

/// Frames that have gone to and fro at an interface of the calling thread's network.
pub(super) fn frames(interface: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    frames_of(&text, interface).unwrap_or(0)
}

fn frames_of(text: &str, interface: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let counts = lines.into_iter().find(|(name, _)| name.trim() == interface)?.1;
    let words: Vec<&str> = counts.split_whitespace().collect();
    let packets = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some(packets(RECEIVED)? + packets(SENT)?)
}

/// Places of the packets in a line of /proc/net/dev.
const RECEIVED: usize = 1;
const SENT: usize = 9;

pub(super) fn needs_networks(error: &std::io::Error) -> String {
    format!(
        "network namespaces need root, CAP_SYS_ADMIN ({error}); try: unshare --user \
         --map-root-user lunwire lab run ibm"
    )
}

pub(super) fn ip(network: &Network, words: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    command.args(words.split(' ')).stdin(Stdio::null());
    let ran = network.within(|| command.output()).and_then(|ran| ran);
    let ran = ran.map_err(|error| format!("veth is made by ip, of iproute2 (ip: {error})"))?;
    match ran.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&ran.stderr);
            Err(format!("ip {words}: {}", said.trim()))
        }
    }
}

/// As the kernel takes sets of processors: 32 bits in a group, the highest first.
fn mask(cpu: usize) -> String {
    let highest = format!("{:x}", 1_u32 << (cpu % 32));
    highest + &",00000000".repeat(cpu / 32)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn processors_are_told_as_the_kernel_takes_them() {
        assert_eq!([0, 1, 5].map(mask), ["1", "2", "20"]);
        assert_eq!([32, 65].map(mask), ["1,00000000", "2,00000000,00000000"]);
    }

    #[test]
    fn frames_are_counted_both_ways() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes\n lo: 1 2 0 0 0 0 0 0 3 4 0\n\
                    lab-i0:8 70 0 0 0 0 0 0 9 600 0 0\n";
        assert_eq!(frames_of(text, "lab-i0"), Some(670));
        assert_eq!(frames_of(text, "lab-i1"), None);
        assert_eq!(frames("no-such-one"), 0);
    }

    #[test]
    fn a_wire_carries_frames_of_its_size_or_says_what_it_needs() {
        let wire = match Wire::lay(&[1500, 9000], [0, 0]) {
            Ok(wire) => wire,
            Err(why) => {
                assert!(why.contains("need root") || why.contains("iproute2"), "{why}");
                return;
            }
        };
        for side in [&wire.target, &wire.initiator] {
            let control = side.within(congestion::current).expect("its network");
            assert!(["cubic", "reno"].contains(&control.as_str()), "no timers: {control}");
        }
        assert!(wire.pair(None).is_none() && wire.pair(Some(1400)).is_none());
        let carried = [1500, 9000].map(|mtu| {
            let pair = wire.pair(Some(mtu)).expect("a pair").clone();
            let listener = wire.target.within(|| TcpListener::bind(pair.address));
            let listener = listener.expect("its network").expect("its address");
            let address = listener.local_addr().expect("an address");
            let work = || {
                let before = frames(&pair.initiator);
                let mut stream = TcpStream::connect(address).expect("the other side");
                stream.write_all(&[1; 90_000]).expect("sent");
                let (mut taken, _) = listener.accept().expect("taken");
                taken.read_exact(&mut [0; 90_000]).expect("received");
                frames(&pair.initiator) - before
            };
            wire.initiator.within(work).expect("its network")
        });
        assert!(carried[0] > 62 && carried[1] > 10 && carried[1] < 62, "{carried:?}");
    }
}
