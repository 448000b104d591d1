// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has space behind the bytes of a disk: GET LBA STATUS (SBC-3 §5.6), asked by a thread of its
//! own, since few ask for it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::thread;

use initiator::Data;
use initiator::Disk;
use initiator::Error;
use initiator::Geometry;
use initiator::Retry;
use initiator::scsi;
use initiator::scsi::command;
use initiator::scsi::lba_status;
use initiator::scsi::lba_status::Descriptor;
use initiator::scsi::lba_status::Provisioning;
use store::Outcome;
use store::Run;
use store::Space;
use store::foreign::Completer;

use crate::limits::STATUS_BYTES;

/// A question for the bytes from `offset` on.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) disk: Disk,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) completer: Completer,
}

/// Who asks. The thread begins with the first question and ends with the last owner.
#[derive(Debug, Default)]
pub(crate) struct Asker(Mutex<Option<Sender<Question>>>);

impl Asker {
    pub(crate) fn ask(&self, question: Question) {
        // What the lock guards is whole between any two statements.
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            let (to, questions) = mpsc::channel();
            let started = thread::Builder::new().name("remote-status".into());
            if started.spawn(move || answer(&questions)).is_ok() {
                *sender = Some(to);
            }
        }
        if let Some(sender) = &*sender {
            // A completer that is dropped says that it has failed.
            let _ = sender.send(question);
        }
    }
}

fn answer(questions: &Receiver<Question>) {
    while let Ok(Question { disk, offset, length, completer }) = questions.recv() {
        let geometry = disk.geometry();
        let block = u64::from(geometry.block.max(1));
        let cdb = command::get_lba_status(offset / block, STATUS_BYTES);
        let answer = disk.post(cdb, Data::In(STATUS_BYTES), Retry::Always).wait();
        drop(disk);
        completer.complete_with(match answer {
            Ok(done) => {
                let told = done.data.as_deref().and_then(lba_status::parse).unwrap_or_default();
                Outcome::ProvisioningStatus(run(&told, &geometry, offset, length))
            }
            Err(error) if scsi::is_unsupported(&error) => {
                Outcome::ProvisioningStatus(run(&[], &geometry, offset, length))
            }
            Err(error) => unanswered(&error),
        });
    }
}

fn unanswered(error: &Error) -> Outcome {
    tracing::debug!("{error}");
    Outcome::Failed(store::Error::Internal)
}

/// What the first of the descriptors says of the bytes from `offset` on. What nobody tells is
/// mapped, and so are blocks that do not read as zeroes.
fn run(told: &[Descriptor], geometry: &Geometry, offset: u64, length: u64) -> Run {
    let block = u64::from(geometry.block.max(1));
    let covers = |descriptor: &&Descriptor| {
        let start = descriptor.lba.saturating_mul(block);
        let end = start.saturating_add(u64::from(descriptor.blocks) * block);
        start <= offset && offset < end
    };
    let Some(found) = told.iter().find(covers) else { return Run { space: Space::Mapped, length } };
    let end = (found.lba.saturating_add(found.blocks.into())).saturating_mul(block);
    let space = match found.provisioning {
        Provisioning::Deallocated if geometry.unmap_zeros => Space::Deallocated,
        // Nothing can be anchored through this, and so nothing is.
        _ => Space::Mapped,
    };
    Run { space, length: length.min(end - offset) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        block: 512,
        blocks: 1000,
        transfer_max: 128,
        unmap_max: 1,
        unmap_granularity: 8,
        unmap_alignment: 0,
        same_max: 1,
        compare_max: 1,
        unmap_zeros: true,
        physical: 4096,
        read_only: false,
        volatile_cache: false,
        write_through: true,
        protection: None,
    };

    fn said(lba: u64, blocks: u32, provisioning: Provisioning) -> Descriptor {
        Descriptor { lba, blocks, provisioning }
    }

    #[test]
    fn the_first_run_is_told_and_what_nobody_tells_is_mapped() {
        use Provisioning::{Anchored, Deallocated, Mapped};
        let mapped = |length| Run { space: Space::Mapped, length };
        let gone = |length| Run { space: Space::Deallocated, length };
        let told = [said(0, 8, Mapped), said(8, 8, Deallocated)];
        assert_eq!(run(&told, &GEOMETRY, 0, 65_536), mapped(4096));
        assert_eq!(run(&told, &GEOMETRY, 4096, 512), gone(512));
        assert_eq!(run(&told, &GEOMETRY, 4608, 65_536), gone(3584));
        // Of other blocks, of none, and beyond all numbers.
        assert_eq!(run(&told, &GEOMETRY, 8192, 512), mapped(512));
        assert_eq!(run(&[], &GEOMETRY, 0, 512), mapped(512));
        assert_eq!(run(&[said(0, 0, Deallocated)], &GEOMETRY, 0, 512), mapped(512));
        let most = [said(u64::MAX, u32::MAX, Deallocated)];
        assert_eq!(run(&most, &GEOMETRY, 0, 512), mapped(512));
        assert_eq!(run(&[said(0, 8, Anchored)], &GEOMETRY, 0, 512), mapped(512));
        let odd = Geometry { unmap_zeros: false, ..GEOMETRY };
        assert_eq!(run(&[said(0, 8, Deallocated)], &odd, 0, 512), mapped(512));
    }
}
