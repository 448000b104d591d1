// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One burst of write data as it is asked for (RFC 7143 §11.8).

use crate::datamover::NumberedGet;
use crate::datamover::Op;
use crate::datamover::TaskId;
use crate::target_role::names::ConnectionId;
use wire::iscsi::Itt;
use wire::iscsi::LunField;
use wire::iscsi::Numbers;
use wire::iscsi::R2tSn;

/// Write data that is to be asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::target_role) struct Burst {
    pub(in crate::target_role) connection: ConnectionId,
    pub(super) task: TaskId,
    pub(super) itt: Itt,
    pub(super) lun: LunField,
    pub(super) offset: u32,
    pub(super) length: u32,
    /// Where that is kept.
    pub(super) r2t_sn: Option<u32>,
    /// Where the data began that comes only when it is asked for.
    pub(super) solicited_from: u32,
}

impl Burst {
    /// Asks for it, under its number if it has one.
    #[inline]
    pub(in crate::target_role) fn ask(self, numbers: Numbers) -> Op {
        let Self { task, itt, lun, offset, length, .. } = self;
        match self.numbered(numbers) {
            Some(get) => Op::GetNumbered(get),
            None => Op::GetData { task, itt, lun, offset, length, numbers },
        }
    }

    /// As an R2T that has a number.
    pub(in crate::target_role) fn numbered(self, numbers: Numbers) -> Option<NumberedGet> {
        let Self { task, itt, lun, offset, length, r2t_sn, solicited_from, .. } = self;
        r2t_sn.map(|r2t_sn| {
            let r2t_sn = R2tSn(r2t_sn);
            NumberedGet { task, itt, lun, offset, length, numbers, r2t_sn, solicited_from }
        })
    }
}
