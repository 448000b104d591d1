// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command allocates nothing once its kind has been seen: counted over all threads of a process
//! in which the target serves and a client without a heap asks.

use std::alloc::System;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;

use lunwire_conformance::initiator::cdb10;
use lunwire_conformance::raw::header;
use lunwire_conformance::server::FILE_LUN;
use lunwire_conformance::*;
use stats_alloc::INSTRUMENTED_SYSTEM;
use stats_alloc::Region;
use stats_alloc::StatsAlloc;
use wire::iscsi::*;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM: u32 = 600;
const COUNTED: u32 = 600;
const DEPTH: u32 = 8;
const SEGMENT_MAX: usize = 256 << 10;
const DIGEST_LEN: usize = 4;

/// A queue may still meet a depth that it has not seen and grow once; a command that allocates
/// would do it [`COUNTED`] times.
const GROWTH_MAX: usize = 64;

/// A client that owns all its memory before it begins.
struct Client {
    stream: TcpStream,
    cmd_sn: u32,
    exp_stat_sn: u32,
    /// BHS and immediate data of the command.
    command: Vec<u8>,
    /// A Data-Out of the length of the whole transfer.
    data_out: Vec<u8>,
    data: Vec<u8>,
    /// Headers and data carry digests, both ways.
    digests: bool,
}

impl Client {
    /// For `blocks` blocks at a time, at the begin of a unit that is ready.
    fn new(server: &Server, keys: &[(&str, &str)], kind: Kind, lun: u8, blocks: u16) -> Self {
        let mut session = server.login_with(&LoginPlan::new().with(keys));
        session.settle(lun);
        let bytes = usize::from(blocks) * 512;
        let digests = session.raw.header_digest;
        assert_eq!(digests, session.raw.data_digest, "both or none");
        let opcode = if kind == Kind::Read { 0x28 } else { 0x2a };
        let command = ScsiCommand {
            read: kind == Kind::Read,
            write: kind != Kind::Read,
            expected_length: u32::from(blocks) * 512,
            ..session.command(lun, &cdb10(opcode, 0, blocks))
        };
        let immediate = if kind == Kind::Immediate { bytes } else { 0 };
        let whole = pdu(&Request::Command(command), &vec![0x5a; immediate], digests);
        let data_out = DataOut {
            final_: true,
            lun: command.lun,
            itt: command.itt,
            ttt: Ttt(0),
            exp_stat_sn: session.exp_stat_sn,
            data_sn: DataSn(0),
            offset: 0,
        };
        let answer = pdu(&Request::DataOut(data_out), &vec![0xa5; bytes], digests);
        Self {
            cmd_sn: command.cmd_sn.0,
            exp_stat_sn: session.exp_stat_sn.0,
            stream: session.raw.into_stream(),
            command: whole,
            data_out: answer,
            data: vec![0; SEGMENT_MAX + DIGEST_LEN],
            digests,
        }
    }

    /// Runs `count` commands, [`DEPTH`] at a time.
    fn run(&mut self, count: u32) {
        for _ in 0..count / DEPTH {
            for _ in 0..DEPTH {
                put(&mut self.command, 16, self.cmd_sn);
                put(&mut self.command, 24, self.cmd_sn);
                put(&mut self.command, 28, self.exp_stat_sn);
                sign(&mut self.command, self.digests);
                self.cmd_sn += 1;
                self.stream.write_all(&self.command).expect("the command leaves");
            }
            let mut under_way = DEPTH;
            while under_way > 0 {
                under_way -= u32::from(self.read());
            }
        }
    }

    /// Reads a PDU, answers it if it is an R2T; true if it ends a command.
    fn read(&mut self) -> bool {
        let mut whole = [0; BHS_LEN + DIGEST_LEN];
        let digest = if self.digests { DIGEST_LEN } else { 0 };
        self.stream.read_exact(&mut whole[..BHS_LEN + digest]).expect("a header");
        let bhs = &whole[..BHS_LEN];
        let length = usize::from(bhs[5]) << 16 | usize::from(bhs[6]) << 8 | usize::from(bhs[7]);
        let after = if length > 0 { digest } else { 0 };
        self.stream.read_exact(&mut self.data[..length + after]).expect("a segment");
        match bhs[0] {
            0x31 => {
                self.data_out[16..20].copy_from_slice(&bhs[16..20]);
                self.data_out[20..24].copy_from_slice(&bhs[20..24]);
                sign(&mut self.data_out, self.digests);
                self.stream.write_all(&self.data_out).expect("the data leaves");
                false
            }
            0x21 | 0x25 if bhs[0] == 0x21 || bhs[1] & 1 == 1 => {
                assert_eq!(bhs[3], 0, "status");
                self.exp_stat_sn += 1;
                true
            }
            0x25 => false,
            other => panic!("opcode {other:#x}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Immediate,
    Solicited,
}

/// A PDU with room for the digest of its header, and that of its data.
fn pdu(request: &Request, data: &[u8], digests: bool) -> Vec<u8> {
    let mut pdu = header(request, data.len());
    assert_eq!(pdu.len(), BHS_LEN, "no additional header");
    pdu.resize(BHS_LEN + if digests { DIGEST_LEN } else { 0 }, 0);
    sign(&mut pdu, digests);
    pdu.extend_from_slice(data);
    if digests && !data.is_empty() {
        pdu.extend_from_slice(&crc::crc32c(data).to_le_bytes());
    }
    pdu
}

/// The digest of the header as it is now.
fn sign(pdu: &mut [u8], digests: bool) {
    if digests {
        let digest = crc::crc32c(&pdu[..BHS_LEN]).to_le_bytes();
        pdu[BHS_LEN..BHS_LEN + DIGEST_LEN].copy_from_slice(&digest);
    }
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

const WIDE: (&str, &str) = ("MaxRecvDataSegmentLength", "262144");
const SOLICITED: [(&str, &str); 2] = [("InitialR2T", "Yes"), ("ImmediateData", "No")];
const DIGESTS: [(&str, &str); 2] = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];

/// On both engines, with and without a polling core: see [`on_each_engine`]. Not over frames, which
/// the cable of the tests takes memory for.
fn counts_nothing(more: &[(&str, &str)]) {
    on_each_engine(
        |_| {},
        |server| {
            if server.is_over_frames() {
                return;
            }
            for lun in [0, FILE_LUN] {
                for (kind, blocks) in [
                    (Kind::Read, 8),
                    (Kind::Read, 256),
                    (Kind::Immediate, 8),
                    (Kind::Immediate, 128),
                    (Kind::Solicited, 8),
                    (Kind::Solicited, 256),
                ] {
                    let kind_keys: &[_] = if kind == Kind::Solicited { &SOLICITED } else { &[] };
                    let keys = [&[WIDE], kind_keys, more].concat();
                    let mut client = Client::new(server, &keys, kind, lun, blocks);
                    client.run(WARM);
                    let region = Region::new(HEAP);
                    client.run(COUNTED);
                    let change = region.change();
                    let calls = change.allocations + change.reallocations;
                    let engine = server.target().engine();
                    assert!(
                        calls <= GROWTH_MAX,
                        "{engine}, LUN {lun}, {kind:?} of {blocks} blocks: {change:?}"
                    );
                }
            }
        },
    );
}

/// One after the other: the counter is that of the whole process.
#[test]
fn a_command_allocates_nothing() {
    counts_nothing(&[]);
    counts_nothing(&DIGESTS);
}
