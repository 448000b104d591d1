// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our initiator and our target over raw Ethernet, on a cable that loses, doubles and reorders
//! frames of 1500 bytes. What a target does on such a connection is tested by all that runs on each
//! engine.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use capture::Capture;
use conformance::server::FILE_LUN;
use conformance::server::TARGET;
use conformance::server::plan;
use engine::Choice;
use initiator::Account;
use initiator::Algorithm;
use initiator::Config;
use initiator::DigestOffer;
use initiator::Disk;
use initiator::Initiator;
use initiator::Kind;
use initiator::Options;
use initiator::Secret;
use initiator::Transport;
use iscsi::chap::Credentials;
use iscsi::target_role::Settings;
use station::cable::Cable;
use station::cable::Faults;
use target::AuthenticationPolicy;
use target::Demand;
use target::Plan;
use target::Target;

use lunwire_conformance as conformance;

const RIGHT: &[u8] = b"secret of the host";

const BAD: Faults = Faults { lost: 50, doubled: 50, late: 20, mtu: 1500 };

fn plan_over(cable: &Cable) -> Plan {
    let settings = Settings { time2wait: 0, ..Settings::default() };
    let ether = vec![cable.interface().into()];
    Plan { reactors: 2, ether, ..plan(Choice::Auto, settings) }
}

fn options(cable: &Cable) -> Options {
    let place = cable.place().to_string();
    Options { transport: Transport::Ether, ..Options::new(place, Some(TARGET.to_owned())) }
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 512 + seed).to_le_bytes()[0]).collect()
}

/// Small and large, aligned and not, with digests and several connections.
#[test]
fn what_is_written_is_read() {
    let cable = Cable::lay(BAD).unwrap();
    let target = Target::start(plan_over(&cable)).unwrap();
    let initiator = Initiator::start(&Config::default()).unwrap();
    for (connections, offer, recovery) in
        [(1, DigestOffer::Off, 0), (1, DigestOffer::Required, 0), (4, DigestOffer::Required, 2)]
    {
        let mut options = options(&cable);
        options.settings.connections = connections;
        (options.settings.header_digest, options.settings.data_digest) = (offer, offer);
        options.settings.error_recovery_level = recovery;
        let session = initiator.connect(options).unwrap();
        for lun in [0, u16::from(FILE_LUN)] {
            let disk = Disk::open(&session, lun).unwrap();
            for (offset, length) in [(0, 512), (4096, 65_536), (1 << 20, 2 << 20), (512, 300_032)] {
                let bytes = pattern(usize::from(lun) + length, length);
                disk.write_at(offset, &bytes).unwrap();
                let mut back = vec![0; length];
                disk.read_at(offset, &mut back).unwrap();
                assert!(back == bytes, "LUN {lun}, {length} bytes at {offset}");
            }
            disk.flush().unwrap();
        }
        session.logout();
        assert!(target.sessions().is_empty(), "it was told");
    }
    target.stop(Duration::ZERO).unwrap();
}

/// Each writes to a part of its own and reads it back, all at once.
#[test]
fn sessions_do_not_meet() {
    let cable = Cable::lay(BAD).unwrap();
    let target = Target::start(plan_over(&cable)).unwrap();
    thread::scope(|scope| {
        for number in 0..6_usize {
            let cable = &cable;
            scope.spawn(move || {
                let initiator = Initiator::start(&Config::default()).unwrap();
                let session = initiator.connect(options(cable)).unwrap();
                let disk = Disk::open(&session, 1).unwrap();
                for round in 0..10 {
                    let (place, length) = (number as u64 * (1 << 20), 4096 << (round % 8));
                    let bytes = pattern(number * 100 + round, length);
                    disk.write_at(place, &bytes).unwrap();
                    let mut back = vec![0; length];
                    disk.read_at(place, &mut back).unwrap();
                    assert!(back == bytes, "session {number}, round {round}");
                }
                session.logout();
            });
        }
    });
    target.stop(Duration::ZERO).unwrap();
}

/// A target that is gone, and comes back at the same station: the session goes on.
#[test]
fn a_target_that_comes_back_is_used_again() {
    let cable = Cable::lay(BAD).unwrap();
    let target = Target::start(plan_over(&cable)).unwrap();
    let initiator = Initiator::start(&Config::default()).unwrap();
    let session = initiator.connect(options(&cable)).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    disk.write_at(0, &pattern(1, 4096)).unwrap();
    target.stop(Duration::ZERO).unwrap();
    drop(target);
    let target = Target::start(plan_over(&cable)).unwrap();
    let bytes = pattern(2, 65_536);
    disk.write_at(0, &bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    disk.read_at(0, &mut back).unwrap();
    assert!(back == bytes);
    session.logout();
    target.stop(Duration::ZERO).unwrap();
}

/// CHAP is the session's own: whoever is at the other end of a cable has to prove who it is.
#[test]
fn who_has_no_secret_is_kept_out() {
    let cable = Cable::lay(BAD).unwrap();
    let account = |secret: &[u8]| {
        let of = |name: &str, secret: &[u8]| {
            Credentials::new(name.to_owned(), Secret::new(secret).unwrap()).unwrap()
        };
        let (host, disk) = (of("host", secret), of("disk", b"secret of the disk"));
        Some(Arc::new(Account::new(host, Some(disk)).unwrap()))
    };
    let mut plan = plan_over(&cable);
    for node in &mut plan.nodes {
        node.authentication = AuthenticationPolicy {
            demand: Demand::Mutual,
            algorithms: vec![Algorithm::Sha256],
            account: account(RIGHT),
        };
    }
    let target = Target::start(plan).unwrap();
    let initiator = Initiator::start(&Config::default()).unwrap();
    for (account, is_right) in
        [(None, false), (account(b"secret of no host"), false), (account(RIGHT), true)]
    {
        let options = Options { account, ..options(&cable) };
        match initiator.connect(options) {
            Ok(session) => {
                assert!(is_right);
                session.logout();
            }
            Err(error) => {
                assert!(!is_right, "{error}");
                assert!(matches!(error.kind(), Kind::Login(_)), "{error}");
            }
        }
    }
    target.stop(Duration::ZERO).unwrap();
}

/// Both sides capture what goes over frames, with the addresses that IPv6 gives to stations.
#[test]
fn captures_have_what_goes_over_frames() {
    let (cable, folder) = (Cable::lay(BAD).unwrap(), tempfile::tempdir().unwrap());
    let [ours, theirs] = ["host", "target"].map(|name| {
        Capture::create(&folder.path().join(name), capture::LIMIT_DEFAULT, |_| {}).unwrap()
    });
    let plan = Plan { capture: Some(theirs.clone()), ..plan_over(&cable) };
    let target = Target::start(plan).unwrap();
    let initiator = Initiator::start(&Config::default()).unwrap();
    let options = Options { capture: Some(ours.clone()), ..options(&cable) };
    let session = initiator.connect(options).unwrap();
    let bytes = pattern(3, 65_536);
    Disk::open(&session, 0).unwrap().write_at(0, &bytes).unwrap();
    session.logout();
    target.stop(Duration::ZERO).unwrap();
    for (capture, peer) in [(ours, [2, 0, 0, 0, 0, 2]), (theirs, [2, 0, 0, 0, 0, 1])] {
        let figures = capture.finish(Duration::from_secs(10));
        assert_eq!(figures.lost, 0);
        let written = std::fs::read(capture.path()).unwrap();
        let has = |part: &[u8]| written.windows(part.len()).any(|one| one == part);
        assert!(has(&bytes[..512]), "{}", capture.path().display());
        assert!(has(&target::Mac(peer).link_local().octets()));
    }
}

/// A target that stops does not wait for those who stay.
#[test]
fn a_stop_waits_for_nobody() {
    let cable = Cable::lay(Faults::NONE).unwrap();
    let target = Target::start(plan_over(&cable)).unwrap();
    let stays = station::connect(&cable.place()).unwrap();
    let since = Instant::now();
    target.stop(Duration::ZERO).unwrap();
    // As long as those of sockets are waited for at the most.
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    drop(stays);
}
