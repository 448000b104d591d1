// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An operating system at work on one logical unit: every command as a CDB with its data, every
//! length and residual looked at as strictly as by the strictest host.

pub use wire::scsi::sam::RESERVATION_CONFLICT;

use wire::iscsi::*;

use crate::initiator::GOOD;
use crate::initiator::Initiator;
use crate::initiator::Status;

/// One unit as one session sees it.
#[derive(Debug)]
pub struct Host {
    /// The session.
    pub session: Initiator,
    /// The unit that commands go to.
    pub lun: u8,
    /// Most immediate data, bytes.
    pub immediate: usize,
}

impl Host {
    /// A host that sends so much immediate data: not more than it negotiated.
    #[must_use]
    pub fn new(session: Initiator, lun: u8, immediate: usize) -> Self {
        Self { session, lun, immediate }
    }

    /// A command without data.
    pub fn run(&mut self, cdb: &[u8]) -> Status {
        let command = self.session.command(self.lun, cdb);
        self.session.run(&command)
    }

    /// A command that reads; data and residual must add up to what was expected.
    pub fn receive(&mut self, cdb: &[u8], expected: u32) -> Status {
        let command = self.session.command(self.lun, cdb);
        let command = ScsiCommand { read: true, expected_length: expected, ..command };
        let status = self.session.run(&command);
        let came = u32::try_from(status.data.len()).expect("a short answer");
        match status.residual {
            Residual::None => assert_eq!(came, expected, "{cdb:x?} without a residual"),
            Residual::Underflow(missing) => {
                assert_eq!(came + missing, expected, "{cdb:x?} with a residual underflow");
                assert_ne!(missing, 0, "{cdb:x?}: a residual underflow of nothing");
            }
            Residual::Overflow(_) => assert_eq!(came, expected, "{cdb:x?} with an overflow"),
        }
        status
    }

    /// What a command reads. It must go well and need no more room than `expected`.
    pub fn read(&mut self, cdb: &[u8], expected: u32) -> Vec<u8> {
        let status = self.receive(cdb, expected);
        assert_eq!(status.code, GOOD, "{cdb:x?}: sense {:x?}", status.sense_code());
        let fits = !matches!(status.residual, Residual::Overflow(_));
        assert!(fits, "{cdb:x?}: {:?}", status.residual);
        status.data
    }

    /// Blocks, exactly as many as asked for.
    pub fn read_whole(&mut self, cdb: &[u8], expected: u32) -> Vec<u8> {
        let data = self.read(cdb, expected);
        assert_eq!(data.len(), expected as usize, "{cdb:x?}");
        data
    }

    /// A command that writes: immediate data, then what the target asks for.
    pub fn send(&mut self, cdb: &[u8], data: &[u8]) -> Status {
        let command = self.session.command(self.lun, cdb);
        let expected_length = u32::try_from(data.len()).expect("little data");
        let command = ScsiCommand { write: true, expected_length, ..command };
        let (immediate, _) = data.split_at(self.immediate.min(data.len()));
        self.session.send(&Request::Command(command), immediate);
        loop {
            let pdu = self.session.read();
            match pdu.response() {
                Response::R2t(r2t) => {
                    let from = r2t.offset as usize;
                    let asked = data.get(from..from + r2t.desired_length as usize);
                    self.answer(&r2t, asked.expect("an R2T within the data"));
                }
                Response::Scsi(answer) => {
                    assert_eq!((answer.itt, answer.response), (command.itt, 0), "{answer:?}");
                    let sense = pdu.data.get(2..).unwrap_or_default().to_vec();
                    let (code, residual) = (answer.status, answer.residual);
                    return Status { code, residual, sense, data: Vec::new() };
                }
                other => panic!("an R2T or a status was due: {other:?}"),
            }
        }
    }

    /// A command that writes; all must be taken, and nothing be left over.
    pub fn write(&mut self, cdb: &[u8], data: &[u8]) {
        let status = self.send(cdb, data);
        assert_eq!(status.code, GOOD, "{cdb:x?}: sense {:x?}", status.sense_code());
        assert_eq!(status.residual, Residual::None, "{cdb:x?}");
    }

    /// A command without data that must go well.
    pub fn must(&mut self, cdb: &[u8]) {
        let status = self.run(cdb);
        assert_eq!(status.code, GOOD, "{cdb:x?}: sense {:x?}", status.sense_code());
    }

    /// A VPD page: what the page says of its own length is true.
    pub fn vital(&mut self, page: u8) -> Vec<u8> {
        let data = self.read(&inquiry(Some(page), 1024), 1024);
        let length = usize::from(data[2]) << 8 | usize::from(data[3]);
        assert_eq!((data[1], data.len()), (page, length + 4), "page {page:#x}");
        data
    }

    /// Answers an R2T in PDUs of 8 KiB, as hosts do: all but the last without F.
    fn answer(&mut self, r2t: &R2t, data: &[u8]) {
        const SEGMENT: usize = 8192;
        let pieces = data.len().div_ceil(SEGMENT);
        for (number, piece) in data.chunks(SEGMENT).enumerate() {
            let at = u32::try_from(number * SEGMENT).expect("within a burst");
            let pdu = DataOut {
                final_: number + 1 == pieces,
                data_sn: DataSn(u32::try_from(number).expect("few pieces")),
                offset: r2t.offset + at,
                ..self.session.data_out(r2t)
            };
            self.session.send(&Request::DataOut(pdu), piece);
        }
    }
}

/// INQUIRY for standard data or a VPD page.
#[must_use]
pub fn inquiry(page: Option<u8>, allocation: u16) -> [u8; 6] {
    let [high, low] = allocation.to_be_bytes();
    [0x12, u8::from(page.is_some()), page.unwrap_or_default(), high, low, 0]
}

/// REPORT LUNS of all units.
#[must_use]
pub fn report_luns(allocation: u32) -> [u8; 12] {
    let mut cdb = [0; 12];
    cdb[0] = 0xa0;
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// A CDB of 16 bytes with an address and a count.
#[must_use]
pub fn cdb16(opcode: u8, flags: u8, block: u64, count: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (opcode, flags);
    cdb[2..10].copy_from_slice(&block.to_be_bytes());
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
    cdb
}

/// A SERVICE ACTION IN(16) with an address and an allocation length.
#[must_use]
pub fn service_in_16(action: u8, block: u64, allocation: u32) -> [u8; 16] {
    cdb16(0x9e, action, block, allocation)
}

/// UNMAP: the CDB and the parameter list for these runs of blocks.
#[must_use]
pub fn unmap(runs: &[(u64, u32)]) -> ([u8; 10], Vec<u8>) {
    let descriptors = u16::try_from(runs.len() * 16).expect("few runs");
    let mut list = (descriptors + 6).to_be_bytes().to_vec();
    list.extend_from_slice(&descriptors.to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    for (block, count) in runs {
        list.extend_from_slice(&block.to_be_bytes());
        list.extend_from_slice(&count.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    let mut cdb = [0; 10];
    cdb[0] = 0x42;
    cdb[7..9].copy_from_slice(&(descriptors + 8).to_be_bytes());
    (cdb, list)
}

/// COMPARE AND WRITE of one block: the CDB and both blocks.
#[must_use]
pub fn compare_and_write(block: u64, old: &[u8], new: &[u8]) -> ([u8; 16], Vec<u8>) {
    let mut cdb = cdb16(0x89, 0, block, 0);
    cdb[13] = 1;
    (cdb, [old, new].concat())
}

/// PERSISTENT RESERVE OUT: the CDB and the parameter list.
#[must_use]
pub fn reserve_out(action: u8, kind: u8, key: u64, action_key: u64) -> ([u8; 10], Vec<u8>) {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes()].concat();
    list.resize(24, 0);
    ([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

/// The designators of VPD page 83: (association, type, value).
#[must_use]
pub fn designators(page: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let (mut rest, mut all) = (&page[4..], Vec::new());
    while let [_, kind, _, length, more @ ..] = rest {
        let (value, after) = more.split_at(usize::from(*length));
        all.push((kind >> 4 & 3, kind & 15, value.to_vec()));
        rest = after;
    }
    assert!(rest.is_empty(), "half a designator: {rest:x?}");
    all
}

/// The big-endian number in these bytes.
#[must_use]
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// THIRD-PARTY COPY OUT: service action, list identifier where it stands in the CDB, list length.
#[must_use]
pub fn copy_out(action: u8, list: u32, length: usize) -> [u8; 16] {
    let mut cdb = cdb16(0x83, action, 0, u32::try_from(length).expect("a short list"));
    cdb[6..10].copy_from_slice(&list.to_be_bytes());
    cdb
}

/// THIRD-PARTY COPY IN: service action, list identifier, allocation length.
#[must_use]
pub fn copy_in(action: u8, list: u32, allocation: u32) -> [u8; 16] {
    let mut cdb = cdb16(0x84, action, 0, allocation);
    cdb[2..6].copy_from_slice(&list.to_be_bytes());
    cdb
}

/// Parameter list of an EXTENDED COPY (LID1) with one segment: `blocks` from the first of `units`
/// (NAA designators) to the second, from and to these addresses.
#[must_use]
pub fn copy_list(units: [&[u8]; 2], blocks: u16, [from, to]: [u64; 2]) -> Vec<u8> {
    let mut list = vec![0; 16];
    (list[0], list[3], list[11]) = (1, 64, 28);
    for naa in units {
        let mut unit = [0; 32];
        (unit[0], unit[4], unit[5]) = (0xe4, 1, 3);
        unit[7] = u8::try_from(naa.len()).expect("a short name");
        unit[8..8 + naa.len()].copy_from_slice(naa);
        unit[30] = 2;
        list.extend_from_slice(&unit);
    }
    let mut segment = [0; 28];
    (segment[0], segment[3], segment[7]) = (0x02, 0x18, 1);
    segment[10..12].copy_from_slice(&blocks.to_be_bytes());
    segment[12..20].copy_from_slice(&from.to_be_bytes());
    segment[20..28].copy_from_slice(&to.to_be_bytes());
    list.extend_from_slice(&segment);
    list
}
