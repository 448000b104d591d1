// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A local connection for tests that speak in PDUs: what they send becomes messages, and messages
//! become PDUs. What no message can say (digests, illegal headers, half a PDU) is for a socket.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::Duration;
use std::time::Instant;

use buf::Slice;
use mover::local::Data;
use mover::local::Get;
use mover::local::Put;
use target::LocalEnd;
use target::ToInitiator;
use target::ToTarget;
use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::DataIn;
use wire::iscsi::DataOut;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::R2t;
use wire::iscsi::R2tSn;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::StatSn;
use wire::iscsi::Ttt;
use wire::iscsi::pad4;

use crate::raw::Heard;
use crate::raw::Pdu;

/// From one look for a message to the next.
const LOOK: Duration = Duration::from_micros(100);

/// One local connection to a target.
#[derive(Debug)]
pub(crate) struct Local {
    /// None: the test has closed it.
    end: Option<LocalEnd>,
    came: VecDeque<ToInitiator>,
    /// Bursts that are not whole: where they begin, and their bytes.
    bursts: HashMap<(Itt, Ttt), (u32, Vec<u8>)>,
    /// Next DataSN or R2TSN of each command.
    numbers: HashMap<Itt, u32>,
}

impl From<LocalEnd> for Local {
    fn from(end: LocalEnd) -> Self {
        let (bursts, numbers) = (HashMap::new(), HashMap::new());
        Self { end: Some(end), came: VecDeque::new(), bursts, numbers }
    }
}

impl Local {
    pub(crate) fn close(&mut self) {
        self.end = None;
    }

    /// Sends whole PDUs.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let bhs = BhsView::new_checked(rest).expect("a whole PDU");
            let header_length = BHS_LEN + bhs.total_ahs_length();
            let data_length = bhs.data_segment_length() as usize;
            let (header, data) = rest.split_at_checked(header_length).expect("a whole PDU");
            let (segment, next) = data.split_at_checked(pad4(data_length)).expect("a whole PDU");
            self.send(header, segment.get(..data_length).unwrap_or_default());
            rest = next;
        }
    }

    /// Sends a PDU; what the target has closed takes it in vain.
    pub(crate) fn send(&mut self, header: &[u8], data: &[u8]) {
        let request = Request::parse(header).expect("a request that a message can carry");
        let message = match request {
            Request::Command(command) => {
                self.numbers.insert(command.itt, 0);
                ToTarget::Command { command, data: Slice::from(data.to_vec()) }
            }
            Request::DataOut(pdu) => match self.gather(&pdu, data) {
                Some(data) => ToTarget::Data(data),
                None => return,
            },
            request => ToTarget::Control { request, data: data.to_vec() },
        };
        let weight = message.data_len();
        let mut message = Some((message, weight));
        while let Some(end) = &self.end
            && !end.send_from(|| message.take())
            && message.is_some()
        {
            std::thread::sleep(LOOK);
        }
    }

    /// A burst, once it is whole.
    fn gather(&mut self, pdu: &DataOut, data: &[u8]) -> Option<Data> {
        let key = (pdu.itt, pdu.ttt);
        let (offset, bytes) = self.bursts.entry(key).or_insert((pdu.offset, Vec::new()));
        assert_eq!(*offset as usize + bytes.len(), pdu.offset as usize, "data in order");
        bytes.extend_from_slice(data);
        if !pdu.final_ {
            return None;
        }
        let (offset, bytes) = self.bursts.remove(&key)?;
        let (itt, ttt, exp_stat_sn) = (pdu.itt, pdu.ttt, pdu.exp_stat_sn);
        Some(Data { itt, ttt, exp_stat_sn, offset, data: Slice::from(bytes) })
    }

    /// Waits for a message.
    pub(crate) fn hear(&mut self, patience: Duration) -> Heard {
        let deadline = Instant::now() + patience;
        loop {
            let Some(end) = &self.end else { return Heard::Closed };
            end.receive(&mut self.came);
            if let Some(message) = self.came.pop_front() {
                return Heard::Pdu(self.pdu(message));
            }
            if end.is_over() {
                return Heard::Closed;
            }
            if Instant::now() >= deadline {
                return Heard::Nothing;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The PDU that says the same.
    fn pdu(&mut self, message: ToInitiator) -> Pdu {
        let (response, data) = match message {
            ToInitiator::Control { response, data } => (response, data),
            ToInitiator::Status { response, sense } => (Response::Scsi(response), sense),
            ToInitiator::Put(Put { itt, offset, data, numbers, status }) => {
                // Without status StatSN says nothing, and in a PDU it is zero.
                let stat_sn = status.map_or(StatSn(0), |_| numbers.stat_sn);
                let pdu = DataIn {
                    final_: true,
                    acknowledge: false,
                    status,
                    lun: LunField::default(),
                    itt,
                    ttt: Ttt::NONE,
                    numbers: Numbers { stat_sn, ..numbers },
                    data_sn: DataSn(self.next_number(itt)),
                    offset,
                };
                (Response::DataIn(pdu), data.to_vec())
            }
            ToInitiator::Get(Get { itt, ttt, lun, offset, length, numbers }) => {
                let r2t_sn = R2tSn(self.next_number(itt));
                let pdu = R2t { lun, itt, ttt, numbers, r2t_sn, offset, desired_length: length };
                (Response::R2t(pdu), Vec::new())
            }
        };
        let length = u32::try_from(data.len()).expect("24 bits");
        Pdu { header: response.emit(length).to_vec(), data, padding: Vec::new() }
    }

    fn next_number(&mut self, itt: Itt) -> u32 {
        let next = self.numbers.entry(itt).or_insert(0);
        *next += 1;
        *next - 1
    }
}
