// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ErrorRecoveryLevel 2 over iSER on the wire (RFC 7145 §7.3.3, §10.2.2): commands go on on another
//! connection, where their memory has other names.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeMap;
use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use initiator::Begin;
use initiator::Checks;
use initiator::Config;
use initiator::Data;
use initiator::Initiator;
use initiator::Options;
use initiator::Pending;
use initiator::Request as Post;
use initiator::Retry;
use initiator::Session;
use initiator::Transport;
use iscsi::target_role::Settings;
use lunwire_conformance::Server;
use lunwire_conformance::initiator::cdb10;
use lunwire_conformance::initiator::pattern;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use target::Plan;
use target::Rdma;
use wire::iscsi::BHS_LEN;
use wire::iscsi::Cdb;
use wire::iscsi::Itt;
use wire::iscsi::Request;
use wire::iscsi::pad4;
use wire::iser::Advertised;
use wire::iser::ISER_LEN;
use wire::iser::IserHeader;

/// Task management function TASK REASSIGN (RFC 7143 §11.5.1).
const TASK_REASSIGN: u8 = 8;

/// Bytes of a command's data.
const LENGTH: u32 = 64 << 10;

/// By connection: what the initiator has said.
type Said = Arc<Mutex<Vec<Vec<u8>>>>;

/// Passes bytes on, and cuts the first connections behind so many bytes of one side: in whatever
/// state what is under way is then.
struct Line {
    portal: SocketAddr,
    said: Said,
}

impl Line {
    fn to(target: SocketAddr, (side, most): (usize, usize), cuts: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let portal = listener.local_addr().unwrap();
        let said = Said::default();
        let kept = Arc::clone(&said);
        thread::spawn(move || {
            for (index, near) in listener.incoming().flatten().enumerate() {
                kept.lock().unwrap().push(Vec::new());
                let far = TcpStream::connect(target).unwrap();
                let ends = [(&near, &far), (&far, &near)];
                for (from, (read, write)) in ends.into_iter().enumerate() {
                    let (read, write) = (read.try_clone().unwrap(), write.try_clone().unwrap());
                    let kept = Arc::clone(&kept);
                    let most = if index < cuts && from == side { most } else { usize::MAX };
                    thread::spawn(move || {
                        pass((read, write), most, |bytes| {
                            if from == 0 {
                                kept.lock().unwrap()[index].extend(bytes);
                            }
                        });
                    });
                }
            }
        });
        Self { portal, said }
    }
}

fn pass((mut from, mut to): (TcpStream, TcpStream), mut left: usize, mut keep: impl FnMut(&[u8])) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let count = count.min(left);
        keep(&bytes[..count]);
        left -= count;
        if to.write_all(&bytes[..count]).is_err() || left == 0 {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// What commands, and requests to reassign them, have named on a connection.
#[derive(Debug, Default)]
struct Named {
    commands: BTreeMap<u32, [Option<Advertised>; 2]>,
    reassigned: BTreeMap<u32, [Option<Advertised>; 2]>,
}

/// `said`: login PDUs, if the connection begins with them, MPA's request, and FPDUs.
fn named(mut said: &[u8]) -> Named {
    while let Some(header) = said.first_chunk::<BHS_LEN>().filter(|one| one[0] & 0x1f == 3) {
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        said = said.get(BHS_LEN + pad4(length as usize)..).unwrap_or_default();
    }
    let mut named = Named::default();
    let Some(private) = said.get(18..20) else { return named };
    said = &said[20 + usize::from(u16::from_be_bytes([private[0], private[1]]))..];
    while let Some(length) = said.first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let Some(segment) = said.get(2..2 + length) else { break };
        named.hear(segment);
        said = said.get((2 + length).next_multiple_of(4) + 4..).unwrap_or_default();
    }
    named
}

impl Named {
    fn hear(&mut self, segment: &[u8]) {
        // The first segment of an untagged message of queue 0.
        let is_send =
            segment[0] & 0x80 == 0 && segment[6..10] == [0; 4] && segment[14..18] == [0; 4];
        let Some(message) = segment.get(18..).filter(|_| is_send) else { return };
        let (Ok(IserHeader::Control { write, read }), Some(header)) =
            (IserHeader::parse(message), message.get(ISER_LEN..ISER_LEN + BHS_LEN))
        else {
            return;
        };
        match Request::parse(header) {
            Ok(Request::Command(pdu)) => drop(self.commands.insert(pdu.itt.0, [write, read])),
            Ok(Request::TaskManagement(pdu)) if pdu.function == TASK_REASSIGN => {
                assert_ne!(pdu.referenced_task, Itt::NONE);
                assert_eq!(pdu.exp_data_sn.0, 0, "data has no numbers");
                self.reassigned.insert(pdu.referenced_task.0, [write, read]);
            }
            Ok(Request::Snack(pdu)) => panic!("{pdu:?}"),
            _ => assert!(write.is_none() && read.is_none(), "only these name memory"),
        }
    }
}

fn post(session: &Session, opcode: u8, block: u32, data: Data) -> Pending {
    let mut bytes = [0; 32];
    bytes[..10].copy_from_slice(&cdb10(opcode, block, 128));
    session.post(Post { lun: 0, cdb: Cdb { bytes, len: 10 }, data, retry: Retry::IfNotDone })
}

/// Sixteen writes and then as many reads, side by side: each is carried out once.
fn work(session: &Session, round: u8) {
    let blocks = || (0u8..16).map(|at| (u32::from(at) * 128, at + round * 16));
    let writes = blocks().map(|(block, seed)| {
        let data = buf::Slice::from(pattern(LENGTH as usize, seed));
        post(session, 0x2a, block, Data::Out(data))
    });
    for write in writes.collect::<Vec<_>>() {
        write.wait().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    let reads = blocks().map(|(block, seed)| (seed, post(session, 0x28, block, Data::In(LENGTH))));
    for (seed, read) in reads.collect::<Vec<_>>() {
        let done = read.wait().unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(done.data.unwrap().to_vec() == pattern(LENGTH as usize, seed), "round {round}");
    }
}

/// None of the commands is sent anew when a session is lost, so a session that was lost shows.
///
/// Covers: ISE-07/T, ISE-07/I, ISP-22.
#[test]
fn commands_outlive_their_only_connection_under_other_names() {
    let settings = Settings { time2wait: 0, time2retain: 20, ..Settings::default() };
    let plan = plan(engine::Choice::Epoll, settings);
    let server = Server::start(Plan { rdma: Rdma::Iwarp, ..plan });
    let mut reassigned = [0; 2];
    for begin in [Begin::Rdma, Begin::Login] {
        for cut in [(0, 30 << 10), (0, 300 << 10), (1, 20 << 10), (1, 400 << 10), (1, 900 << 10)] {
            let line = Line::to(server.portal(), cut, 2);
            let mut options = Options::new(line.portal.to_string(), Some(TARGET.to_owned()));
            options.transport = Transport::Iser(begin, Checks::Crc);
            options.settings.error_recovery_level = 2;
            options.settings.max_burst_length = 16 << 10;
            options.settings.first_burst_length = 16 << 10;
            options.reconnect_patience = Duration::ZERO;
            let node = Initiator::start(&Config::default()).unwrap();
            let session = node.connect(options).unwrap();
            work(&session, 1);
            work(&session, 2);
            session.logout();
            let said = line.said.lock().unwrap();
            let all: Vec<Named> = said.iter().map(|said| named(said)).collect();
            assert!(all.len() > 1, "a connection was replaced");
            for pair in all.windows(2) {
                check(&pair[0], &pair[1], &mut reassigned);
            }
        }
    }
    assert!(reassigned.iter().all(|count| *count > 0), "both directions: {reassigned:?}");
}

/// What was reassigned to `later`: names of memory there, and none that `before` had.
fn check(before: &Named, later: &Named, reassigned: &mut [usize; 2]) {
    for (itt, names) in &later.reassigned {
        let Some(old) = before.commands.get(itt).or_else(|| before.reassigned.get(itt)) else {
            continue;
        };
        for ((new, old), count) in names.iter().zip(old).zip(reassigned.iter_mut()) {
            assert!(old.is_none() || new.is_some(), "what had a name has one");
            if let (Some(new), Some(old)) = (new, old) {
                assert_ne!(new.stag, old.stag);
                *count += 1;
            }
        }
    }
}
