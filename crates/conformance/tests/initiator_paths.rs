// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One disk over several paths: what is lost with one, what comes of it late, and which is used.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::Read;
use std::io::Write;
use std::net::Ipv4Addr;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use initiator::Config;
use initiator::Data;
use initiator::Disk;
use initiator::Event;
use initiator::Initiator as Client;
use initiator::Kind;
use initiator::Options;
use initiator::PathChange;
use initiator::PathPolicy;
use initiator::Paths;
use initiator::Queue;
use initiator::Request as Wish;
use initiator::Retry;
use initiator::SessionId;
use lunwire_conformance::Server;
use lunwire_conformance::proxy::Digests;
use lunwire_conformance::proxy::Fate;
use lunwire_conformance::proxy::Proxy;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::UNIT_BYTES;
use lunwire_conformance::server::plan;
use scsi::AccessState;
use scsi::Explicit;
use scsi::Identity;
use scsi::LogicalUnit;
use scsi::PortGroup;
use store::spec::Spec;
use target::Portal;
use wire::iscsi::*;

/// A cable with a valve: what is in it when it is shut comes out when it is opened again, also
/// when the side that sent it has gone long ago.
#[derive(Clone)]
struct Hose {
    portal: SocketAddr,
    valve: Arc<(Mutex<Valve>, Condvar)>,
}

#[derive(Default)]
struct Valve {
    is_shut: bool,
    streams: Vec<TcpStream>,
}

impl Hose {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let portal = listener.local_addr().unwrap();
        let hose = Self { portal, valve: Arc::default() };
        let own = hose.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                own.wait();
                let Ok(far) = TcpStream::connect(target) else { continue };
                for stream in [&near, &far] {
                    stream.set_nodelay(true).unwrap();
                    own.valve.0.lock().unwrap().streams.push(stream.try_clone().unwrap());
                }
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let own = own.clone();
                    thread::spawn(move || own.forward(from, to));
                }
            }
        });
        hose
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count) = from.read(&mut bytes) {
            self.wait();
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        self.wait();
        let _ = to.shutdown(Shutdown::Write);
    }

    fn wait(&self) {
        let mut valve = self.valve.0.lock().unwrap();
        while valve.is_shut {
            valve = self.valve.1.wait(valve).unwrap();
        }
    }

    fn shut(&self) {
        self.valve.0.lock().unwrap().is_shut = true;
    }

    fn open(&self) {
        self.valve.0.lock().unwrap().is_shut = false;
        self.valve.1.notify_all();
    }

    /// Ends all that goes through it.
    fn cut(&self) {
        for stream in self.valve.0.lock().unwrap().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.hoses.iter().for_each(Hose::open);
    }
}

/// A target with two portals, and a hose before each.
struct Pair {
    server: Server,
    hoses: [Hose; 2],
}

impl Pair {
    /// `group`: of the second portal; the first one is in group 1.
    fn start(group: u16) -> Self {
        let mut plan = plan(engine::Choice::Epoll, iscsi::target_role::Settings::default());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        plan.portals = vec![address.into(), Portal { group, ..address.into() }];
        let server = Server::start(plan);
        let portals = server.target().portals();
        let hoses = [0, 1].map(|at: usize| Hose::start(portals[at]));
        Self { server, hoses }
    }

    fn paths(&self, policy: PathPolicy) -> Paths {
        Paths { policy, ..paths(&self.hoses.each_ref().map(|hose| hose.portal)) }
    }
}

fn paths(portals: &[SocketAddr]) -> Paths {
    let path = |portal: &SocketAddr| (Options::new(portal.to_string(), Some(TARGET.to_owned())), 0);
    Paths::new(portals.iter().map(path).collect())
}

fn write(lba: u8, content: u8) -> Wish {
    let mut bytes = [0; 32];
    (bytes[0], bytes[5], bytes[8]) = (0x2a, lba, 1);
    let data = Data::Out(vec![content; BLOCK as usize].into());
    Wish { lun: 0, cdb: Cdb { bytes, len: 16 }, data, retry: Retry::Always }
}

fn read(lba: u8) -> Wish {
    let mut bytes = [0; 32];
    (bytes[0], bytes[5], bytes[8]) = (0x28, lba, 1);
    Wish { lun: 0, cdb: Cdb { bytes, len: 16 }, data: Data::In(BLOCK), retry: Retry::Always }
}

/// A queue over paths, and what it has told besides.
struct Host {
    queue: Queue,
    id: SessionId,
    changes: Vec<(usize, PathChange)>,
    ended: Vec<(u64, Result<Vec<u8>, Kind>)>,
}

impl Host {
    fn login(paths: Paths) -> Self {
        let mut queue = Queue::new(&Config::default()).unwrap();
        let id = queue.login_paths(paths).unwrap();
        Self { queue, id, changes: Vec::new(), ended: Vec::new() }
    }

    fn post(&mut self, tag: u64, wish: Wish) {
        self.queue.post(self.id, tag, wish).unwrap();
        self.turn(Duration::ZERO);
    }

    fn turn(&mut self, time: Duration) {
        self.queue.wait_n(1, time);
        while let Some(event) = self.queue.reap() {
            match event {
                Event::Done { tag, result, .. } => {
                    let result =
                        result.map(|done| done.data.map_or(Vec::new(), |data| data.to_vec()));
                    self.ended.push((tag, result.map_err(|error| error.kind().clone())));
                }
                Event::Path { path, change, .. } => self.changes.push((path, change)),
                _ => {}
            }
        }
    }

    /// Whether request `tag` ends well in that time.
    fn ends(&mut self, tag: u64, time: Duration) -> bool {
        self.until(time, |host| host.ended.iter().any(|(of, _)| *of == tag));
        self.ended.iter().any(|(of, result)| *of == tag && result.is_ok())
    }

    fn until(&mut self, time: Duration, is_so: impl Fn(&Self) -> bool) -> bool {
        let begun = Instant::now();
        while !is_so(self) && begun.elapsed() < time {
            self.turn(Duration::from_millis(20));
        }
        is_so(self)
    }

    fn is_lost(&self, path: usize) -> bool {
        self.changes.iter().any(|(of, change)| *of == path && matches!(change, PathChange::Lost(_)))
    }

    fn is_back(&self, path: usize) -> bool {
        self.changes.iter().any(|(of, change)| *of == path && matches!(change, PathChange::Back))
    }

    fn content(&mut self, lba: u8) -> u8 {
        self.ended.retain(|(of, _)| *of != 1000);
        self.post(1000, read(lba));
        assert!(self.ends(1000, Duration::from_secs(10)), "{:?}", self.ended);
        let (_, result) = self.ended.iter().find(|(of, _)| *of == 1000).unwrap();
        result.as_ref().unwrap()[0]
    }
}

/// Silence: 5 s at most. And what was in the cable comes to nothing.
#[test]
fn a_write_that_is_stuck_does_not_come_over_a_later_one_in_one_group() {
    let target = Pair::start(1);
    let mut host = Host::login(target.paths(PathPolicy::Failover));
    assert_eq!(host.content(5), 0);
    target.hoses[0].shut();
    let begun = Instant::now();
    host.post(1, write(5, 1));
    assert!(host.ends(1, Duration::from_secs(8)), "over the other path");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(host.is_lost(0));
    host.post(2, write(5, 2));
    assert!(
        host.ends(2, Duration::from_secs(5)),
        "a login over the other portal settles the first"
    );
    target.hoses[0].open();
    assert!(host.until(Duration::from_secs(15), |host| host.is_back(0)));
    assert_eq!(host.content(5), 2);
}

/// Where no portal of the group is left, what overlaps waits; nothing else does.
#[test]
fn what_may_be_overwritten_late_waits_for_the_lost_path() {
    let target = Pair::start(2);
    let mut host = Host::login(target.paths(PathPolicy::Failover));
    assert_eq!(host.content(5), 0);
    target.hoses[0].shut();
    host.post(1, write(5, 1));
    assert!(host.ends(1, Duration::from_secs(8)), "the same once more does no harm");
    host.post(2, write(5, 2));
    host.post(3, write(6, 3));
    assert!(host.ends(3, Duration::from_secs(1)), "another place");
    assert!(!host.ends(2, Duration::from_secs(2)), "the first one may still come");
    assert_eq!(host.content(5), 1);
    target.hoses[0].open();
    assert!(host.ends(2, Duration::from_secs(15)), "the session was replaced");
    assert_eq!((host.content(5), host.content(6)), (2, 3));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(host.content(5), 2);
}

/// What cannot be settled fails in the end, and says why.
#[test]
fn what_stays_in_doubt_fails_in_time() {
    let target = Pair::start(2);
    let mut all = target.paths(PathPolicy::Failover);
    all.paths[0].0.reconnect_patience = Duration::from_secs(2);
    let mut host = Host::login(all);
    target.hoses[0].shut();
    host.post(1, write(5, 1));
    assert!(host.ends(1, Duration::from_secs(8)));
    host.post(2, write(5, 2));
    assert!(!host.ends(2, Duration::from_secs(6)));
    let (_, result) = host.ended.iter().find(|(of, _)| *of == 2).unwrap();
    assert!(matches!(result, Err(Kind::InDoubt)), "{result:?}");
    assert_eq!(host.content(5), 1, "it was not sent");
}

#[test]
fn a_path_that_is_cut_costs_nothing_and_comes_back() {
    let target = Pair::start(1);
    for policy in [PathPolicy::Failover, PathPolicy::RoundRobin, PathPolicy::LeastQueued] {
        let mut host = Host::login(target.paths(policy));
        let (mut tag, mut longest) = (0, Duration::ZERO);
        for path in [0, 1, 0, 1] {
            host.changes.clear();
            target.hoses[path].cut();
            for _ in 0..50 {
                tag += 1;
                let begun = Instant::now();
                host.post(tag, write(u8::try_from(tag % 100).unwrap(), 7));
                assert!(host.ends(tag, Duration::from_secs(5)), "{policy:?}: {:?}", host.ended);
                longest = longest.max(begun.elapsed());
                host.ended.clear();
            }
            let is_whole = |host: &Host| !host.is_lost(path) || host.is_back(path);
            assert!(host.until(Duration::from_secs(5), is_whole), "{policy:?}");
        }
        // A path that is asked whether it is there may take so long to answer.
        assert!(longest < Duration::from_secs(2), "{policy:?}: {longest:?}");
        host.queue.logout(host.id);
    }
}

#[test]
fn paths_to_two_disks_are_refused_by_their_names() {
    let (one, other) = (Pair::start(1), {
        let mut plan = plan(engine::Choice::Epoll, iscsi::target_role::Settings::default());
        let store = plan.stores.open(&Spec::Memory { bytes: UNIT_BYTES }).unwrap();
        let identity = Identity::derive("iqn.2026-01.com.example:x", 0, "LUNWIRE", "VIRTUAL DISK");
        let unit = LogicalUnit::new(identity, store, BLOCK).unwrap();
        plan.nodes[0].luns = vec![(0, Arc::new(unit))];
        Server::start(plan)
    });
    let mut queue = Queue::new(&Config::default()).unwrap();
    let error = queue.login_paths(paths(&[one.server.portal(), other.portal()])).unwrap_err();
    let Kind::OtherPath { first, other } = error.kind() else { panic!("{error}") };
    assert!(first != other, "{error}");
    assert!(error.to_string().contains(first) && error.to_string().contains(other), "{error}");
}

/// Group 10 of the first portal is active, group 20 of the second one stands by; then it is the
/// other way round, while there is load.
#[test]
fn access_states_are_obeyed_and_followed() {
    let mut plan = plan(engine::Choice::Epoll, iscsi::target_role::Settings::default());
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    plan.portals = vec![address.into(), Portal { group: 2, ..address.into() }];
    let store = plan.stores.open(&Spec::Memory { bytes: UNIT_BYTES }).unwrap();
    let identity = Identity::derive(TARGET, 0, "LUNWIRE", "VIRTUAL DISK");
    let group =
        |number, port, state| PortGroup { number, ports: vec![port], preferred: false, state };
    let groups =
        vec![group(10, 1, AccessState::ActiveOptimized), group(20, 2, AccessState::Standby)];
    let unit = LogicalUnit::new(identity, store, BLOCK).unwrap();
    let unit = Arc::new(unit.with_port_groups(groups, Explicit::No).unwrap());
    plan.nodes[0].luns = vec![(0, Arc::clone(&unit))];
    let server = Server::start(plan);
    let pass = |portal| Proxy::start(portal, Digests::default(), |_| Fate::Pass);
    let proxies: Vec<Proxy> = server.target().portals().iter().copied().map(pass).collect();
    let portals: Vec<SocketAddr> = proxies.iter().map(Proxy::portal).collect();
    let mut host = Host::login(Paths { policy: PathPolicy::RoundRobin, ..paths(&portals) });
    let writes = |at: usize| {
        let is_write = |(_, request): &(usize, Request)| match request {
            Request::Command(command) => command.cdb.bytes[0] == 0x2a,
            _ => false,
        };
        proxies[at].requests().iter().filter(|one| is_write(one)).count()
    };
    for tag in 0..10 {
        host.post(tag, write(7, 1));
        assert!(host.ends(tag, Duration::from_secs(5)));
    }
    assert_eq!((writes(0), writes(1)), (10, 0));
    unit.set_access_state(20, AccessState::ActiveOptimized).unwrap();
    unit.set_access_state(10, AccessState::Standby).unwrap();
    for tag in 10..20 {
        host.post(tag, write(7, 2));
        assert!(host.ends(tag, Duration::from_secs(10)), "{:?}", host.ended);
    }
    assert!(writes(1) >= 10, "{}", writes(1));
    assert_eq!(host.content(7), 2);
}

#[test]
fn policies_choose_among_paths() {
    let target = Pair::start(1);
    for (policy, shares) in [(PathPolicy::RoundRobin, [30, 30]), (PathPolicy::Failover, [60, 0])] {
        let pass = |portal| Proxy::start(portal, Digests::default(), |_| Fate::Pass);
        let proxies: Vec<Proxy> =
            target.server.target().portals().iter().copied().map(pass).collect();
        let portals: Vec<SocketAddr> = proxies.iter().map(Proxy::portal).collect();
        let mut host = Host::login(Paths { policy, ..paths(&portals) });
        for tag in 0..60 {
            host.post(tag, write(7, 1));
            assert!(host.ends(tag, Duration::from_secs(5)));
        }
        let writes = |proxy: &Proxy| {
            let requests = proxy.requests().into_iter();
            let of = |(_, request): (usize, Request)| match request {
                Request::Command(command) => command.cdb.bytes[0] == 0x2a,
                _ => false,
            };
            requests.map(of).filter(|is| *is).count()
        };
        assert_eq!([writes(&proxies[0]), writes(&proxies[1])], shares, "{policy:?}");
        host.queue.logout(host.id);
    }
}

/// The other face, and one path that was never there.
#[test]
fn a_disk_has_paths_like_a_session() {
    let target = Pair::start(1);
    let mut all = target.paths(PathPolicy::LeastQueued);
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    all.paths.push((Options::new(nobody.to_string(), Some(TARGET.to_owned())), 0));
    let client = Client::start(&Config::default()).unwrap();
    let disk = Disk::open(&client.connect_paths(all).unwrap(), 0).unwrap();
    let data: Vec<u8> = (0..8192).map(|at: u32| at.to_le_bytes()[0]).collect();
    for round in 0..20 {
        target.hoses[round % 2].cut();
        disk.write_at(4096, &data).unwrap();
        disk.flush().unwrap();
        let mut back = vec![0; data.len()];
        disk.read_at(4096, &mut back).unwrap();
        assert!(back == data);
        thread::sleep(Duration::from_millis(120));
    }
}

/// Targets that give this disk, each with a file that is made so.
fn behind(folder: &tempfile::TempDir, options: &[&str]) -> Vec<Server> {
    let start = |(at, options): (usize, &&str)| {
        let path = folder.path().join(at.to_string());
        std::fs::File::create(&path).unwrap().set_len(UNIT_BYTES).unwrap();
        let spec = format!("file:{}{options}", path.display());
        let mut plan = plan(engine::Choice::Epoll, iscsi::target_role::Settings::default());
        let store = plan.stores.open(&spec.parse::<Spec>().unwrap()).unwrap();
        let identity = Identity::derive(TARGET, 0, "LUNWIRE", "VIRTUAL DISK");
        let unit = LogicalUnit::new(identity, store, BLOCK).unwrap();
        plan.nodes[0].luns = vec![(0, Arc::new(unit))];
        Server::start(plan)
    };
    options.iter().enumerate().map(start).collect()
}

#[test]
fn a_disk_has_the_cache_that_it_has_over_any_path() {
    let folder = tempfile::tempdir().unwrap();
    for (options, is_volatile) in
        [([",sync", ",sync"], false), ([",sync", ""], true), (["", ",sync"], true)]
    {
        let servers = behind(&folder, &options);
        let portals: Vec<SocketAddr> = servers.iter().map(Server::portal).collect();
        let client = Client::start(&Config::default()).unwrap();
        // All goes over the first one.
        let paths = Paths { policy: PathPolicy::Failover, ..paths(&portals) };
        let disk = Disk::open(&client.connect_paths(paths).unwrap(), 0).unwrap();
        assert_eq!(disk.geometry().volatile_cache, is_volatile, "{options:?}");
    }
}

#[test]
fn paths_of_which_one_takes_no_writes_are_refused_by_their_portals() {
    let folder = tempfile::tempdir().unwrap();
    let servers = behind(&folder, &[",sync", ",readonly"]);
    let portals: Vec<SocketAddr> = servers.iter().map(Server::portal).collect();
    let mut queue = Queue::new(&Config::default()).unwrap();
    let error = queue.login_paths(paths(&portals)).unwrap_err();
    let Kind::OtherProtection { protected, writable } = error.kind() else { panic!("{error}") };
    assert_eq!(*writable, format!("path 1 ({})", portals[0]));
    assert_eq!(*protected, format!("path 2 ({})", portals[1]));
}
