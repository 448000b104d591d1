// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What our initiator puts into its commands, and as which port it sends them.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use conformance::Digests;
use conformance::Fate;
use conformance::Proxy;
use conformance::Server;
use conformance::initiator::pattern;
use conformance::on_each_engine;
use conformance::server::TARGET;
use conformance::server::plan;
use engine::Choice;
use initiator::Config;
use initiator::Data;
use initiator::Disk;
use initiator::Initiator;
use initiator::Kind;
use initiator::Management;
use initiator::Options;
use initiator::Request as Post;
use initiator::Retry;
use initiator::Session;
use initiator::scsi;
use iscsi::target_role::Settings;
use iscsi::target_role::TargetReset;
use wire::iscsi::Cdb;
use wire::iscsi::Isid;
use wire::iscsi::Request;
use wire::iscsi::ScsiCommand;

use lunwire_conformance as conformance;

const PLAIN: Digests = Digests { header: false, data: false };

/// Bytes of a CDB by its operation code (SPC-5 §4.2.5.1); None of those whose length varies.
fn cdb_len(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

fn commands(proxy: &Proxy) -> Vec<ScsiCommand> {
    let of = |(_, request)| match request {
        Request::Command(command) => Some(command),
        _ => None,
    };
    proxy.requests().into_iter().filter_map(of).collect()
}

/// All kinds of commands over two connections, to a target of TaskReporting=RFC3720.
///
/// Covers: SCC-13, OBS-09.
#[test]
fn what_is_behind_a_cdb_is_zero_and_aca_is_not_asked_for() {
    on_each_engine(
        |_| {},
        |server| {
            let proxy = Proxy::start(server.portal(), PLAIN, |_| Fate::Pass);
            let mut options = Options::new(proxy.portal().to_string(), Some(TARGET.to_owned()));
            options.settings.connections = 2;
            let initiator = Initiator::start(&Config::default()).unwrap();
            let session = initiator.connect(options).unwrap();
            let mut unit = session.unit(0);
            scsi::inquiry(&mut unit).unwrap();
            scsi::report_luns(&mut unit).unwrap();
            scsi::mode_sense(&mut unit, 0x0a).unwrap();
            scsi::supported_commands(&mut unit).unwrap();
            scsi::unmap(&mut unit, 0, 1).unwrap();
            let disk = Disk::open(&session, 0).unwrap();
            disk.write_at(0, &pattern(4096, 1)).unwrap();
            disk.read_at(0, &mut [0; 4096]).unwrap();
            disk.flush().unwrap();
            session.logout();
            let mut lengths = Vec::new();
            for command in commands(&proxy) {
                let bytes = command.cdb.bytes;
                let Some(length) = cdb_len(bytes[0]) else { continue };
                lengths.push(length);
                assert!(bytes[length..].iter().all(|byte| *byte == 0), "{:x?}", command.cdb);
                assert_eq!(bytes[length - 1] & 0x04, 0, "NACA in {:x?}", command.cdb);
            }
            lengths.sort_unstable();
            lengths.dedup();
            assert_eq!(lengths, [6, 10, 12, 16], "all were seen");
        },
    );
}

/// Covers: SES-03.
#[test]
fn one_initiator_port_serves_several_portal_groups() {
    let servers = [(); 2].map(|()| Server::start(plan(Choice::Epoll, Settings::default())));
    let proxies = servers.each_ref().map(|at| Proxy::start(at.portal(), PLAIN, |_| Fate::Pass));
    let initiator = Initiator::start(&Config::default()).unwrap();
    let isid = Isid([0x80, 1, 2, 3, 0, 7]);
    let sessions = proxies.each_ref().map(|proxy| {
        let mut options = Options::new(proxy.portal().to_string(), Some(TARGET.to_owned()));
        options.isid = Some(isid);
        initiator.connect(options).unwrap()
    });
    for (session, proxy) in sessions.iter().zip(&proxies) {
        let disk = Disk::open(session, 0).unwrap();
        proxy.cut();
        disk.read_at(0, &mut [0; 512]).unwrap();
        let logins = proxy.requests().into_iter().filter_map(|(_, request)| match request {
            Request::Login(login) => Some(login.isid),
            _ => None,
        });
        let logins: Vec<Isid> = logins.collect();
        assert!(logins.len() >= 2 && logins.iter().all(|of| *of == isid), "{logins:?}");
        session.logout();
    }
}

/// A vendor owns an enterprise number or an OUI: the session says so in each Login Request.
///
/// Covers: SES-26.
#[test]
fn session_ids_name_the_vendor() {
    let server = Server::start(plan(Choice::Epoll, Settings::default()));
    let initiator = Initiator::start(&Config::default()).unwrap();
    let oui = Isid([0x02, 0xab, 0xcd, 0x01, 0x23, 0x45]);
    for (enterprise, isid) in [(Some(0x0001_7eda), None), (None, Some(oui))] {
        let proxy = Proxy::start(server.portal(), PLAIN, |_| Fate::Pass);
        let mut options = Options::new(proxy.portal().to_string(), Some(TARGET.to_owned()));
        (options.enterprise, options.isid) = (enterprise, isid);
        let session = initiator.connect(options).unwrap();
        let disk = Disk::open(&session, 0).unwrap();
        proxy.cut();
        disk.read_at(0, &mut [0; 512]).unwrap();
        let logins = proxy.requests().into_iter().filter_map(|(_, request)| match request {
            Request::Login(login) => Some(login.isid.0),
            _ => None,
        });
        let logins: Vec<[u8; 6]> = logins.collect();
        assert!(logins.len() >= 2, "{logins:?}");
        for bytes in logins {
            match isid {
                Some(isid) => assert_eq!(bytes, isid.0),
                None => assert_eq!(bytes[..4], [0x40, 0x01, 0x7e, 0xda], "{bytes:x?}"),
            }
        }
        session.logout();
    }
}

/// A reset reaches the unit: another session's commands meet its unit attention, and a target that
/// gives no permission is believed.
#[test]
fn task_management_is_carried_out_or_refused() {
    on_each_engine(
        |settings| settings.target_reset = TargetReset::None,
        |server| {
            let options = |name: &str| Options {
                initiator: format!("iqn.2026-01.com.example:{name}"),
                ..Options::new(server.portal().to_string(), Some(TARGET.to_owned()))
            };
            let initiator = Initiator::start(&Config::default()).unwrap();
            let session = initiator.connect(options("one")).unwrap();
            let other = initiator.connect(options("two")).unwrap();
            let ready = |session: &Session| {
                let cdb = Cdb { bytes: [0; 32], len: 6 };
                session.execute(Post { lun: 0, cdb, data: Data::None, retry: Retry::Never })
            };
            // The attention of a new nexus.
            let _ = (ready(&session), ready(&other));
            assert!(ready(&other).is_ok());
            for harmless in [Management::AbortTaskSet(0), Management::ClearTaskSet(0)] {
                session.manage(harmless).unwrap();
                assert!(ready(&other).is_ok(), "{harmless:?} of no task");
            }
            session.manage(Management::LogicalUnitReset(0)).unwrap();
            let error = ready(&other).unwrap_err();
            assert!(error.to_string().contains("bus device reset"), "{error}");
            let error = session.manage(Management::TargetWarmReset).unwrap_err();
            assert!(matches!(error.kind(), Kind::Management(6)), "{error}");
            let error = session.manage(Management::LogicalUnitReset(77)).unwrap_err();
            assert!(matches!(error.kind(), Kind::Management(2)), "{error}");
            session.logout();
            assert!(session.manage(Management::AbortTaskSet(0)).is_err());
        },
    );
}
