// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that keeps nothing: `null:SIZE`.

use crate::{
    Error, Geometry, Io, IoResult, Op, Outcome, Run, Space, Store, Submitted, contradiction,
};
use buf::{Slice, SystemError};

/// Reads zeroes, drops writes: for measuring everything else.
#[derive(Debug)]
pub struct Null {
    bytes: u64,
    zeroes: Slice,
}

impl Null {
    /// A store of `bytes` bytes, a multiple of 512.
    ///
    /// # Errors
    /// The system's error if there is no address space for a buffer of zeroes.
    pub fn new(bytes: u64) -> Result<Self, SystemError> {
        Ok(Self { bytes, zeroes: Slice::zeroes()? })
    }

    fn run(&self, op: &Op) -> Result<Outcome, Error> {
        self.geometry().check(op)?;
        let length = match op {
            Op::Read { length, .. } => length,
            Op::ProvisioningStatus { length, .. } => {
                return Ok(Outcome::ProvisioningStatus(Run {
                    space: Space::Mapped,
                    length: *length,
                }));
            }
            Op::Write { .. } | Op::Flush | Op::Clear { .. } => return Ok(Outcome::Done),
            Op::CompareAndWrite { .. } | Op::WriteSame { .. } => return Err(Error::Unsupported),
        };
        let length = usize::try_from(*length).map_err(|_| Error::Internal)?;
        let data = self.zeroes.part(0..length).ok_or(Error::Internal)?;
        Ok(Outcome::Data(data))
    }
}

impl Store for Null {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes,
            read_only: false,
            discard_granularity: Some(4096),
            anchors: false,
            volatile_cache: false,
            physical_block: 4096,
            rotational: false,
        }
    }

    fn submit(&self, op: &Op) -> Submitted {
        self.run(op).into()
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        contradiction()
    }
}
