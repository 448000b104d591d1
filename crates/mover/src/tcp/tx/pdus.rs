// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PDUs of an op: headers, data segments and digests in a gather list.
//!
//! Read first: RFC 7143 §11.2 (segments and digests), §11.7 (Data-In), §11.8 (R2T), §4.2.2.4
//! (DataSN).

use alloc::vec::Vec;
use core::mem;

use buf::{SgList, Slice};
use crc::Crc32c;
use iscsi::datamover::{NumberedGet, NumberedPut, Op, TaskId};
use wire::iscsi::{
    BHS_LEN, DataIn, DataSn, LunField, Numbers, R2t, R2tSn, Response, StatSn, Ttt, pad4,
};

use super::{Context, Progress, Tx, has_room};
use crate::counters::Counters;
use crate::limits::INLINE_DATA_MAX;
use crate::tcp::burst::{self, BurstKey, Kind};

impl Tx {
    /// The core never gives more data than the peer takes (RFC 7143 §13.12): which part of a text
    /// or of sense data could be left out is not known here. Should it happen, the segment is cut:
    /// the framing holds.
    pub(super) fn send_control(
        &self,
        mut response: Response,
        mut data: Vec<u8>,
        task: Option<TaskId>,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) {
        let length_max = self.keys.max_send_data_segment_length;
        debug_assert!(data.len() <= length_max as usize, "control data longer than the peer takes");
        data.truncate(length_max as usize);
        if let (Response::Scsi(scsi), Some(task)) = (&mut response, task) {
            let data_ins = context.tasks.get_mut(task).map_or(0, |task| task.data_ins);
            scsi.exp_data_sn = DataSn(if scsi.response == 0 { data_ins } else { 0 });
        }
        context.counters.pdus_out.count(&response);
        let length = u32::try_from(data.len()).unwrap_or(length_max);
        self.push_header(response.emit(length), list, context);
        let mut crc = (self.keys.data_digest && length > 0).then(Crc32c::new);
        if let Some(crc) = &mut crc {
            crc.update(&data);
            context.counters.bytes_crc += data.len() as u64;
        }
        if data.len() <= INLINE_DATA_MAX {
            context.counters.bytes_copied += data.len() as u64;
            list.push_bytes(&data);
        } else {
            list.push(Slice::from(data));
        }
        push_trailer(length as usize, crc, list);
    }

    /// Bursts of Data-In PDUs, each as long as the peer takes it.
    pub(super) fn put_data(
        &mut self,
        op: &mut Op,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) -> Progress {
        let Op::PutData { task, itt, data, offset, burst, numbers, status } = op else {
            return Progress::Done;
        };
        let total = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if total == 0 && status.is_none() {
            return Progress::Done;
        }
        let length_max = self.keys.data_in_segment();
        while has_room(list) {
            // Mostly all is one burst.
            let left = if total > *burst {
                (total - self.progress).min(*burst - self.progress % *burst)
            } else {
                total - self.progress
            };
            let length = left.min(length_max);
            let part = match length == total {
                true => Some(mem::take(data)),
                false => part(data, self.progress, length),
            };
            let Some(part) = part else { return Progress::Done };
            let crc = self.digest(&part, context.counters);
            let end = self.progress + length;
            let last = end == total;
            let Some(entry) = context.tasks.open(*task) else { return Progress::Done };
            let status = if last { *status } else { None };
            let data_in = DataIn {
                final_: length == left,
                acknowledge: false,
                status,
                lun: LunField::default(),
                itt: *itt,
                ttt: Ttt::NONE,
                numbers: match status {
                    Some(_) => *numbers,
                    None => Numbers { stat_sn: StatSn(0), ..*numbers },
                },
                data_sn: DataSn(entry.next_sn),
                offset: offset.wrapping_add(self.progress),
            };
            entry.next_sn = entry.next_sn.wrapping_add(1);
            entry.data_ins = entry.data_ins.wrapping_add(1);
            context.counters.pdus_out.data_in += 1;
            self.push_header(data_in.emit(length), list, context);
            if length > 0 {
                list.push(part);
            }
            push_trailer(length as usize, crc, list);
            self.progress = end;
            if last {
                return Progress::Done;
            }
        }
        Progress::Waits
    }

    /// One R2T.
    pub(super) fn get_data(
        &self,
        op: &Op,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) -> Progress {
        let Op::GetData { task, itt, lun, offset, length, numbers } = *op else {
            return Progress::Done;
        };
        debug_assert!(length > 0, "an R2T asks for at least one byte (RFC 7143 §11.8.4)");
        let burst = burst::Request { kind: Kind::Solicited, task, itt, lun, offset, length };
        if context.tasks.open(task).is_none() || length == 0 {
            return Progress::Done;
        }
        let Some(key) = context.tasks.bursts.open(burst) else { return Progress::Waits };
        let Some(entry) = context.tasks.open(task) else { return Progress::Done };
        entry.had_bursts = true;
        let r2t_sn = R2tSn(entry.next_sn);
        entry.next_sn = entry.next_sn.wrapping_add(1);
        let r2t = R2t { lun, itt, ttt: key.ttt(), numbers, r2t_sn, offset, desired_length: length };
        context.counters.pdus_out.r2t += 1;
        self.push_header(r2t.emit(0), list, context);
        Progress::Done
    }

    /// One R2T that the core has numbered.
    pub(super) fn get_numbered(
        &self,
        get: &NumberedGet,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) -> Progress {
        debug_assert!(get.length > 0, "an R2T asks for at least one byte (RFC 7143 §11.8.4)");
        let Some(entry) = context.tasks.open(get.task) else { return Progress::Done };
        entry.had_bursts = true;
        let NumberedGet { task, itt, lun, offset, length, .. } = *get;
        let burst = burst::Request { kind: Kind::Solicited, task, itt, lun, offset, length };
        let Some(key) = context.tasks.bursts.open(burst) else { return Progress::Waits };
        self.push_r2t(get, key, list, context);
        Progress::Done
    }

    pub(super) fn push_r2t(
        &self,
        get: &NumberedGet,
        key: BurstKey,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) {
        let NumberedGet { itt, lun, offset, length, numbers, r2t_sn, .. } = *get;
        let r2t = R2t { lun, itt, ttt: key.ttt(), numbers, r2t_sn, offset, desired_length: length };
        context.counters.pdus_out.r2t += 1;
        self.push_header(r2t.emit(0), list, context);
    }

    /// A run of Data-In PDUs that the core has numbered.
    pub(super) fn put_numbered(
        &mut self,
        put: &NumberedPut,
        list: &mut SgList,
        context: &mut Context<'_>,
    ) -> Progress {
        let total = u32::try_from(put.data.len()).unwrap_or(u32::MAX);
        let segment = put.segment.max(1);
        while has_room(list) {
            let length = (total - self.progress).min(segment);
            let Some(part) = part(&put.data, self.progress, length) else { return Progress::Done };
            let crc = self.digest(&part, context.counters);
            let last = self.progress + length == total;
            let acknowledge = put.acknowledge.filter(|_| last);
            let status = put.status.filter(|_| last);
            let (ttt, lun) = acknowledge.unwrap_or_else(no_tag);
            let offset = put.offset.wrapping_add(self.progress);
            let in_bursts = offset.wrapping_add(length).wrapping_sub(put.burst_at);
            let data_in = DataIn {
                final_: in_bursts.is_multiple_of(put.burst) || put.final_ && last,
                acknowledge: acknowledge.is_some(),
                status,
                lun,
                itt: put.itt,
                ttt,
                numbers: match status {
                    Some(_) => put.numbers,
                    None => Numbers { stat_sn: StatSn(0), ..put.numbers },
                },
                data_sn: DataSn(put.data_sn.0.wrapping_add(self.progress / segment)),
                offset,
            };
            context.counters.pdus_out.data_in += 1;
            self.push_header(data_in.emit(length), list, context);
            list.push(part);
            push_trailer(length as usize, crc, list);
            self.progress += length;
            if last {
                return Progress::Done;
            }
        }
        Progress::Waits
    }

    /// The digest of data that is about to be sent, if there is to be one. A cache then has the
    /// data either way, as far as that makes the kernel's copy quicker.
    fn digest(&self, data: &Slice, counters: &mut Counters) -> Option<Crc32c> {
        if !self.keys.data_digest || data.is_empty() {
            data.fetch();
            return None;
        }
        counters.bytes_crc += data.len() as u64;
        let mut crc = Crc32c::new();
        crc.update(data.bytes());
        Some(crc)
    }

    fn push_header(&self, bhs: [u8; BHS_LEN], list: &mut SgList, context: &mut Context<'_>) {
        list.push_bytes(&bhs);
        if self.keys.header_digest {
            context.counters.bytes_crc += bhs.len() as u64;
            list.push_bytes(&crc::crc32c(&bhs).to_le_bytes());
        }
    }
}

/// What a Data-In carries that asks for no acknowledgement.
fn no_tag() -> (Ttt, LunField) {
    (Ttt::NONE, LunField::default())
}

pub(in crate::tcp) fn part(data: &Slice, at: u32, length: u32) -> Option<Slice> {
    let at = at as usize;
    data.part(at..at.checked_add(length as usize)?)
}

/// Padding, and the digest over data and padding (RFC 7143 §11.2.3); an empty segment has neither.
pub(in crate::tcp) fn push_trailer(length: usize, crc: Option<Crc32c>, list: &mut SgList) {
    const ZEROS: [u8; 3] = [0; 3];
    let padding = ZEROS.get(..pad4(length) - length).unwrap_or_default();
    list.push_bytes(padding);
    if let Some(mut crc) = crc {
        crc.update(padding);
        list.push_bytes(&crc.finish().to_le_bytes());
    }
}
