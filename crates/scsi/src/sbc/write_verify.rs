// SPDX-License-Identifier: Apache-2.0 OR MIT
//! WRITE AND VERIFY (SBC-3 §5.39-§5.42): a WRITE to stable storage, then a VERIFY of it.

use super::rw;
use super::rw::Write;
use super::verify::Verify;
use crate::lun::Context;
use crate::lun::LogicalUnit;
use crate::sense;
use crate::sense::Fault;
use crate::task::Input;
use crate::task::Machine;
use crate::task::Started;
use crate::task::Step;
use alloc::boxed::Box;
use buf::Slice;

/// A WRITE AND VERIFY under way.
#[derive(Debug)]
pub(crate) struct WriteVerify {
    write: Write,
    /// What was sent, if it is to be compared.
    sent: Option<Slice>,
    compares: Compares,
    /// Once it is written.
    verify: Option<Verify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compares {
    /// BYTCHK = 00b.
    Nothing,
    /// BYTCHK = 01b.
    Bytes,
}

/// WRITE AND VERIFY(10), (12), (16), (32).
pub(crate) fn write_and_verify(context: &Context<'_>) -> Result<Started, Fault> {
    let compares = match context.cdb.byte_check() {
        0 => Compares::Nothing,
        1 => Compares::Bytes,
        _ => return Err(context.flag_field(2).into()),
    };
    match rw::write(context)? {
        (Machine::Write(mut write), step) => {
            write.make_durable();
            let machine = WriteVerify { write, sent: None, compares, verify: None };
            Ok((Machine::WriteVerify(Box::new(machine)), step))
        }
        started => Ok(started),
    }
}

impl WriteVerify {
    pub(crate) fn resume(&mut self, unit: &LogicalUnit, input: Input) -> Result<Step, Fault> {
        if let Some(verify) = &mut self.verify {
            return match verify.resume(unit, input)? {
                Step::Complete(_) => Ok(Step::Complete(sense::good(self.write.presented()))),
                step => Ok(step),
            };
        }
        if let (Input::DataOut(data), Compares::Bytes) = (&input, self.compares) {
            self.sent = Some(data.clone());
        }
        match self.write.resume(unit, input)? {
            Step::Complete(_) => {
                let mut verify = self.write.verify(unit, self.sent.take());
                let step = verify.step();
                self.verify = Some(verify);
                Ok(step)
            }
            step => Ok(step),
        }
    }
}
