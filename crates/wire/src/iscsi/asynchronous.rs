// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous Message (RFC 7143 §11.9).

use super::bhs::{BHS_LEN, FINAL, ITT, LUN, NUMBERS};
use super::field::Field;
use super::field::Header;
use super::view::view;
use super::{Itt, LunField, Numbers, ParseError};

/// Opcode of an Asynchronous Message.
pub const OPCODE_ASYNC_MESSAGE: u8 = 0x32;

const EVENT: Field<u8> = Field::at(36);
const VCODE: Field<u8> = Field::at(37);
const PARAMETER1: Field<u16> = Field::at(38);
const PARAMETER2: Field<u16> = Field::at(40);
const PARAMETER3: Field<u16> = Field::at(42);

view! {
    /// The header of an Asynchronous Message (RFC 7143 §11.9).
    pub struct AsyncMessageView("Async Message", OPCODE_ASYNC_MESSAGE) {
        /// Logical unit; means something for events 0 and 5.
        "LUN" lun: LunField = LUN;
        /// StatSN, ExpCmdSN and MaxCmdSN.
        "StatSN/ExpCmdSN/MaxCmdSN" numbers: Numbers = NUMBERS;
        /// AsyncEvent.
        "Event" event: u8 = EVENT;
        /// AsyncVCode.
        "VCode" vcode: u8 = VCODE;
        /// Parameter1.
        "Parameter1" parameter1: u16 = PARAMETER1;
        /// Parameter2.
        "Parameter2" parameter2: u16 = PARAMETER2;
        /// Parameter3.
        "Parameter3" parameter3: u16 = PARAMETER3;
    }
}

/// News from the target (RFC 7143 §11.9). Sense and event data are its data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    /// Means something for events 0 and 5.
    pub lun: LunField,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: Numbers,
    /// AsyncEvent as it came (RFC 7143 §11.9.1).
    pub event: u8,
    /// The vendor's code, with events 248 to 255.
    pub vcode: u8,
    /// Event 2: the CID.
    pub parameter1: u16,
    /// Events 2 and 3: Time2Wait, seconds.
    pub parameter2: u16,
    /// Events 2 and 3: Time2Retain, seconds. Events 1 and 4: time to obey, seconds.
    pub parameter3: u16,
}

impl AsyncMessage {
    /// Takes the header apart.
    ///
    /// # Errors
    /// Only those of every PDU: opcode, AHS.
    pub fn parse<T: AsRef<[u8]>>(view: &AsyncMessageView<T>) -> Result<Self, ParseError> {
        view.bhs().expect_plain(OPCODE_ASYNC_MESSAGE)?;
        Ok(Self {
            lun: view.lun(),
            numbers: view.numbers(),
            event: view.event(),
            vcode: view.vcode(),
            parameter1: view.parameter1(),
            parameter2: view.parameter2(),
            parameter3: view.parameter3(),
        })
    }

    /// The BHS.
    pub fn emit(&self, data_segment_length: u32) -> [u8; BHS_LEN] {
        Header::new(OPCODE_ASYNC_MESSAGE, data_segment_length)
            .with(FINAL, true)
            .with(LUN, self.lun)
            .with(ITT, Itt::NONE)
            .with(NUMBERS, self.numbers)
            .with(EVENT, self.event)
            .with(VCODE, self.vcode)
            .with(PARAMETER1, self.parameter1)
            .with(PARAMETER2, self.parameter2)
            .with(PARAMETER3, self.parameter3)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{line, response_vector};
    use super::super::*;
    use super::*;

    #[test]
    fn async_message() {
        let pdu = AsyncMessage {
            lun: LunField([0; 8]),
            numbers: Numbers {
                stat_sn: StatSn(0x67),
                exp_cmd_sn: CmdSn(8),
                max_cmd_sn: CmdSn(0x27),
            },
            event: 2,
            vcode: 0xaa,
            parameter1: 1,
            parameter2: 2,
            parameter3: 0x1234,
        };
        let bytes = response_vector(
            Response::Async(pdu),
            0,
            "32 80 00 00 00 00 00 00 00 00 00 00 00 00 00 00
             ff ff ff ff 00 00 00 00 00 00 00 67 00 00 00 08
             00 00 00 27 02 aa 00 01 00 02 12 34 00 00 00 00",
        );
        assert_eq!(
            line(&bytes),
            "Async Message StatSN/ExpCmdSN/MaxCmdSN=103/8/39 Event=0x02 VCode=0xaa \
             Parameter1=0x0001 Parameter2=0x0002 Parameter3=0x1234"
        );
    }
}
