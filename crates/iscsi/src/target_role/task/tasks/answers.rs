// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers that are kept to be sent again, and R2Ts (RFC 7143 §7.8, §11.16).

use super::Tasks;
use crate::datamover::TaskId;
use crate::target_role::names::ConnectionId;
use crate::target_role::recovery::Answer;
use crate::target_role::recovery::Asked;
use crate::target_role::recovery::R2tState;
use crate::target_role::reply::Reply;
use crate::target_role::task::burst::Burst;
use crate::target_role::task::entry::Task;
use crate::violation::Violation;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::iscsi::DataSn;
use wire::iscsi::Itt;
use wire::iscsi::Snack;
use wire::iscsi::Ttt;

impl Tasks {
    /// Keeps the answer of a task until it is acknowledged. Its data is counted by
    /// [`account`](Self::account).
    pub(in crate::target_role) fn keep(&mut self, id: TaskId, reply: &mut Reply) {
        let entry = self.table.get_mut(id);
        debug_assert!(entry.is_some(), "what was answered is not released yet");
        if let Some(entry) = entry {
            let first = entry.transfer.r2ts.as_deref().map_or(0, R2tState::next);
            entry.answer = Some(Box::new(Answer::new(reply, first)));
        }
    }

    /// Counts the data of a fresh answer. Where there is no room, the `oldest` of its connection
    /// are given up: a SNACK for them is then refused, which RFC 7143 §7.8 allows.
    pub(in crate::target_role) fn account(
        &mut self,
        id: TaskId,
        oldest: impl Iterator<Item = TaskId>,
    ) {
        let Some(answer) = self.answer_mut(id) else { return };
        let bytes = answer.kept_bytes();
        if answer.is_lent() || !self.kept.fits(bytes) {
            // It was not counted.
            if let Some(answer) = self.answer_mut(id) {
                answer.give_up();
            }
            return;
        }
        self.kept.add(bytes);
        for task in oldest {
            if !self.kept.is_overfull() {
                return;
            }
            self.give_up_data(task);
        }
        if self.kept.is_overfull() {
            // What other connections keep has no room either.
            self.give_up_data(id);
        }
        while self.kept.is_overfull()
            && let Some(other) = self.table.keeping()
        {
            self.give_up_data(other);
        }
    }

    /// DataACK: all before BegRun has arrived.
    pub(in crate::target_role) fn acknowledge_data(
        &mut self,
        id: ConnectionId,
        snack: &Snack,
    ) -> Result<(), Violation> {
        let wrong = Violation::DataAcknowledgement;
        if snack.itt != Itt::NONE || snack.run_length != 0 {
            return Err(wrong);
        }
        let tag = Ttt(snack.tag);
        let found = self.table.answered_where(id, |task, answer| {
            answer.has_asked(tag) && task.command.lun == snack.lun
        });
        let answer = found.and_then(|task| self.table.get_mut(task)?.answer.as_deref_mut());
        let freed = answer.and_then(|answer| answer.acknowledge(snack.beg_run)).ok_or(wrong)?;
        self.kept.give_back(freed);
        Ok(())
    }

    /// R2Ts of a connection that a SNACK asks for, whose data has not come.
    pub(in crate::target_role) fn bursts_again(
        &self,
        id: ConnectionId,
        snack: &Snack,
    ) -> Result<Vec<Burst>, Violation> {
        let task = self.table.find(snack.itt).filter(|task| task.connection == id);
        let task = task.ok_or(Violation::NothingToResend(DataSn(0)))?;
        let r2ts = task.transfer.r2ts.as_deref();
        let nothing = Violation::NothingToResend(DataSn(r2ts.map_or(0, |r2ts| r2ts.next())));
        let wanted = r2ts.and_then(|r2ts| r2ts.wanted(snack)).ok_or(nothing)?;
        let burst = |asked: Asked| {
            task.burst((asked.offset, asked.length), Some(asked.r2t_sn), &self.terms)
        };
        Ok(wanted.into_iter().map(burst).collect())
    }

    /// Memory is short: gives up all data that is kept for sending again. False if there was none.
    pub(in crate::target_role) fn give_up_kept_data(&mut self) -> bool {
        let had = !self.kept.is_empty();
        while let Some(task) = self.table.keeping() {
            self.give_up_data(task);
        }
        had
    }

    /// What a task was answered, as long as that is not acknowledged.
    pub(in crate::target_role) fn answer_mut(&mut self, id: TaskId) -> Option<&mut Answer> {
        self.table.get_mut(id)?.answer.as_deref_mut()
    }

    /// The answered task of a connection with this tag, unless a new one has taken the tag.
    pub(in crate::target_role) fn answered(
        &self,
        itt: Itt,
        connection: ConnectionId,
    ) -> Option<&Task> {
        self.table.get(self.table.answered(itt, connection)?)
    }

    fn give_up_data(&mut self, id: TaskId) {
        let Some(answer) = self.table.get_mut(id).and_then(|entry| entry.answer.as_deref_mut())
        else {
            return;
        };
        self.kept.give_back(answer.kept_bytes());
        answer.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datamover::Immediate;
    use crate::target_role::task::terms::Terms;
    use buf::Slice;
    use wire::iscsi::Attribute;
    use wire::iscsi::Cdb;
    use wire::iscsi::CmdSn;
    use wire::iscsi::LunField;
    use wire::iscsi::Residual;
    use wire::iscsi::Response;
    use wire::iscsi::ScsiCommand;
    use wire::iscsi::StatSn;

    /// No unit has a command that both writes and reads; what numbers such a one does not know
    /// that.
    ///
    /// Covers: DSN-04, DSN-06.
    #[test]
    fn both_directions_of_a_task_share_one_series_above_level_0() {
        let terms = Terms {
            initial_r2t: true,
            immediate_data: false,
            first_burst_length: 512,
            max_burst_length: 512,
            open_r2t_max: 1,
            recovers: true,
            keeps: true,
            has_level_two: false,
            collapses: true,
        };
        let mut tasks = Tasks::new(8, terms, 1 << 20);
        let command = ScsiCommand {
            immediate: false,
            final_: true,
            read: true,
            write: true,
            attribute: Attribute::Simple,
            priority: 0,
            lun: LunField::default(),
            itt: Itt(7),
            expected_length: 1024,
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(1),
            cdb: Cdb { bytes: [0; 32], len: 16 },
            bidi_read_length: Some(2048),
        };
        let id = tasks.arrive(ConnectionId(0), command, Immediate::None).unwrap();
        let r2ts = tasks.table.get_mut(id).unwrap().transfer.r2ts();
        assert_eq!([r2ts.ask(0, 512), r2ts.ask(512, 512)], [0, 1]);
        let mut reply = Reply {
            connection: ConnectionId(0),
            itt: Itt(7),
            status: 0,
            sense: Vec::new(),
            data: Some(Slice::from(alloc::vec![1; 2048])),
            residual: Residual::None,
            bidi_read_residual: Residual::None,
            qualified: false,
            collapses: false,
        };
        tasks.keep(id, &mut reply);
        let answer = tasks.answer_mut(id).unwrap();
        let mut rest = answer.recut(512, 1024).unwrap();
        let runs = [2, 4].map(|first| {
            let run = answer.next_run(&mut rest, || Some(Ttt(9))).unwrap();
            assert_eq!((run.first, run.next()), (first, first + 2));
            run
        });
        let Response::Scsi(status) = answer.status().0 else { panic!("a SCSI Response") };
        assert_eq!(status.exp_data_sn, DataSn(4), "Data-In only");
        // All of it comes again by the numbers that it had, and nothing else.
        let snack = |beg_run, run_length| Snack {
            kind: 0,
            lun: LunField::default(),
            itt: Itt(7),
            tag: u32::MAX,
            exp_stat_sn: StatSn(1),
            beg_run,
            run_length,
        };
        let firsts = |answer: &Answer, snack| -> Vec<u32> {
            let again = answer.again(&snack, 512).unwrap();
            again.iter().map(|run| run.first).collect()
        };
        assert_eq!(firsts(answer, snack(0, 0)), [2, 4]);
        assert_eq!(firsts(answer, snack(3, 2)), [3, 4]);
        assert!(answer.again(&snack(1, 1), 512).is_err(), "an R2T");
        assert_eq!(answer.acknowledge(2), None);
        assert_eq!(answer.acknowledge(runs[0].next()), Some(0));
        assert_eq!(firsts(answer, snack(0, 0)), [4]);
    }
}
