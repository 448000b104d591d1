// SPDX-License-Identifier: Apache-2.0 OR MIT
//! STags as they are on the wire: how often they change, and who ends them.

use alloc::collections::BTreeSet;

use super::*;
use crate::limits::REMOTE_MAX;

/// Where the header of a message begins in an FPDU, and what comes before.
const MESSAGE_AT: usize = 2 + 18;
const OPCODE_AT: usize = 3;
const INVALIDATE_AT: usize = 4;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

/// A command goes out, and comes in: the names that it has of memory to read from and to write to.
fn named(pair: &mut Pair, command: ScsiCommand) -> [u32; 2] {
    let length = command.expected_length as usize;
    let write = command.write.then(|| bytes(1, command.expected_length));
    let read = if command.read { length } else { 0 };
    pair.command(command, (write.as_deref(), read), (0, 0));
    let said = pair.near_bytes();
    assert_eq!(pair.feed_far(&said).len(), 1);
    [word(&said, MESSAGE_AT + 4), word(&said, MESSAGE_AT + 16)]
}

/// The low byte of an STag is its key (RFC 5040 §7.1).
///
/// Covers: IST-04.
#[test]
fn a_name_that_comes_again_has_another_key() {
    let mut pair = Pair::new();
    for reads in [true, false] {
        let (mut all, mut before) = (BTreeSet::new(), None);
        for _ in 0..200 {
            let names = named(&mut pair, command(TASK, reads, 100));
            let name = names[usize::from(reads)];
            assert_ne!(name & 0xff, before.unwrap_or(!name) & 0xff);
            assert!(all.insert(name), "not soon again");
            before = Some(name);
            pair.far.submit(control(status(TASK), &[]));
            assert!(matches!(pair.exchange().1[..], [initiator::Event::Ended(_)]));
            pair.near.submit(initiator::Op::Release { task: TASK });
        }
        let indices: BTreeSet<u32> = all.iter().map(|name| name >> 8).collect();
        assert_eq!(indices.len(), 1, "it is the same one");
    }
}

/// Covers: ISP-10.
#[test]
fn a_status_wakes_and_ends_a_name_of_its_task() {
    let both = ScsiCommand { write: true, ..command(TASK, true, 100) };
    let both = ScsiCommand { bidi_read_length: Some(100), ..both };
    for (command, ends) in [
        (command(TASK, true, 100), Some(1)),
        (command(TASK, false, 100), Some(0)),
        (both, Some(1)),
        (command(TASK, true, 0), None),
    ] {
        let mut pair = Pair::new();
        let names = named(&mut pair, command);
        pair.far.submit(control(status(TASK), &[]));
        let said = pair.far_bytes();
        let ended = ends.map_or(0, |which: usize| names[which]);
        assert_eq!(said[OPCODE_AT] & 0x0f, if ends.is_some() { 6 } else { 5 }, "{command:?}");
        assert_eq!(word(&said, INVALIDATE_AT), ended);
        assert!(matches!(pair.feed_near(&said)[..], [initiator::Event::Ended(_)]));
        assert_eq!(pair.near.advertised(), 0);
        pair.far.submit(control(pong(Itt(1)), &[]));
        let said = pair.far_bytes();
        assert_eq!((said[OPCODE_AT] & 0x0f, word(&said, INVALIDATE_AT)), (5, 0));
    }
}

/// A command may take as long as it likes, whatever else ends meanwhile without an answer.
#[test]
fn tasks_that_end_without_an_answer_leave_no_names_behind() {
    let mut pair = Pair::new();
    pair.read(1000);
    for generation in 0..u32::try_from(REMOTE_MAX).unwrap() + 1 {
        let other = TaskId { index: TASK.index + 1, generation };
        let read = Some(pair.pool.take(512).unwrap());
        pair.near.submit(initiator::Op::Attach { task: other, write: None, read });
        let command = command(other, true, 512);
        let (task, immediate, unsolicited_end) = (other, 0, 0);
        let op = initiator::Op::SendCommand { task, command, immediate, unsolicited_end };
        pair.near.submit(op);
        assert_eq!(pair.exchange().0.len(), 1);
        pair.far.submit(target::Op::Unname { itt: itt(other) });
        pair.near.submit(initiator::Op::Release { task: other });
    }
    pair.far.submit(put(&bytes(1, 1000), 0));
    pair.far.submit(control(status(TASK), &[]));
    let (_, at_near) = pair.exchange();
    let [initiator::Event::Ended(ended)] = &at_near[..] else { panic!("{at_near:?}") };
    assert_eq!((ended.task, ended.received), (TASK, 1000));
}
