// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data-Outs in any order (DataPDUInOrder=No), and what is wrong in every order.

use core::ops::Range;

use proptest::prelude::*;

use super::*;

const ANY_ORDER: Keys = Keys { data_pdu_in_order: false, ..PLAIN };

/// The burst: some bytes in the middle of the initiator's buffer.
const BURST: Range<u32> = 4096..8192;
const BUFFER: usize = 12_288;

/// Runs a burst of these PDUs; tells how it ended and what the buffer holds.
fn run(keys: Keys, outs: &[Range<u32>]) -> (Note, Vec<u8>) {
    let mut host = Host::logged_in(keys);
    let mut buf = host.pool.take(BUFFER).expect("a buffer");
    buf.fill(0xee);
    host.tcp.submit(Op::Attach { task: task(1), buf });
    let (offset, length) = (BURST.start, BURST.end - BURST.start);
    host.submit(Op::GetData {
        task: task(1),
        itt: Itt(1),
        lun: LUN,
        offset,
        length,
        numbers: numbers(1),
    });
    let sent = responses(&host.drain(), keys);
    let [(Response::R2t(r2t), _)] = sent.as_slice() else { panic!("one R2T: {sent:?}") };
    let data = pattern(BUFFER);
    for (sn, out) in (0..).zip(outs) {
        assert_eq!(host.notes, [], "nothing before F");
        let final_ = usize::try_from(sn).unwrap() + 1 == outs.len();
        let request = DataOut { final_, ..data_out(1, r2t.ttt.0, sn, out.start) };
        let bytes = data.get(out.start as usize..out.end as usize).expect("within the pattern");
        // The host ends a task whose burst is over: take the buffer before.
        if final_ {
            let mut bytes = pdu(&Request::DataOut(request), bytes, keys);
            let last = bytes.split_off(bytes.len() - 1);
            host.feed(&bytes);
            host.feed(&last);
        } else {
            host.feed(&pdu(&Request::DataOut(request), bytes, keys));
        }
    }
    let buffer =
        host.tcp.submit(Op::Detach { task: task(1) }).map_or_else(Vec::new, |buf| buf.to_vec());
    (host.notes.first().cloned().expect("the end is told"), buffer)
}

fn done() -> Note {
    Note::Done(task(1), BURST.start, BURST.end - BURST.start)
}

/// Every order of `items` (Heap's algorithm).
fn each_order<T: Clone>(items: &[T], check: &mut impl FnMut(&[T])) {
    fn go<T>(items: &mut [T], count: usize, check: &mut impl FnMut(&[T])) {
        if count <= 1 {
            return check(items);
        }
        for at in 0..count {
            go(items, count - 1, check);
            items.swap(if count.is_multiple_of(2) { at } else { 0 }, count - 1);
        }
    }
    let mut items = items.to_vec();
    let count = items.len();
    go(&mut items, count, check);
}

/// Six PDUs of odd lengths: 720 orders, each with and without digests.
#[test]
fn every_order_of_a_burst_gives_the_same_bytes() {
    let cuts = [4096, 4097, 5000, 5004, 6144, 8000, 8192];
    let outs: Vec<_> = cuts.windows(2).map(|ends| ends[0]..ends[1]).collect();
    let digests = Keys { data_pdu_in_order: false, ..DIGESTS };
    for keys in [ANY_ORDER, digests] {
        let mut orders = 0;
        each_order(&outs, &mut |outs| {
            orders += 1;
            let (told, buffer) = run(keys, outs);
            assert_eq!(told, done(), "{outs:?}");
            assert_eq!(buffer[4096..8192], pattern(BUFFER)[4096..8192], "{outs:?}");
            let beside = buffer[..4096].iter().chain(&buffer[8192..]);
            assert!(beside.into_iter().all(|byte| *byte == 0xee), "{outs:?}");
        });
        assert_eq!(orders, 720);
    }
}

/// Wherever it stands: behind what has come, within it, and where nothing has.
///
/// Covers: DIN-14/T.
#[test]
fn pdus_of_no_bytes_are_taken_in_every_order() {
    let outs = [4096..6000, 6000..8192, 4096..4096, 5000..5000, 8192..8192];
    each_order(&outs, &mut |outs| {
        let (told, buffer) = run(ANY_ORDER, outs);
        assert_eq!(told, done(), "{outs:?}");
        assert_eq!(buffer[4096..8192], pattern(BUFFER)[4096..8192], "{outs:?}");
    });
}

/// Five PDUs with one fault: in each of the 120 orders the burst fails, and nothing is written
/// beside it.
///
/// Covers: DOU-12a.
#[test]
fn every_fault_is_found_in_every_order() {
    let amount = Note::Failed(task(1), DataError::Amount);
    let faults: [&[Range<u32>]; 7] = [
        // A gap, a byte twice, a PDU twice, a PDU within another one.
        &[4096..5000, 5001..6000, 6000..7000, 7000..8000, 8000..8192],
        &[4096..5000, 4999..6000, 6000..7000, 7000..8000, 8000..8192],
        &[4096..5000, 5000..6000, 5000..6000, 6000..7000, 7000..8192],
        &[4096..8192, 5000..6000, 4096..4096, 4096..4096, 4096..4096],
        // Before it, behind it, across its end.
        &[4095..5000, 5000..6000, 6000..7000, 7000..8000, 8000..8192],
        &[4096..5000, 5000..6000, 6000..7000, 7000..8192, 8192..8193],
        &[4096..5000, 5000..6000, 6000..7000, 7000..8000, 8000..8193],
    ];
    for outs in faults {
        each_order(outs, &mut |outs| {
            let (told, buffer) = run(ANY_ORDER, outs);
            assert_eq!(told, amount, "{outs:?}");
            assert!(buffer.iter().take(4096).all(|byte| *byte == 0xee), "{outs:?}");
            assert!(buffer.iter().skip(8192).all(|byte| *byte == 0xee), "{outs:?}");
        });
    }
}

#[test]
fn order_is_free_only_where_it_was_agreed() {
    let outs = [6000..8192, 4096..6000];
    assert_eq!(run(ANY_ORDER, &outs).0, done());
    assert_eq!(run(PLAIN, &outs).0, Note::Failed(task(1), DataError::Sequence));
}

#[test]
fn data_sn_counts_in_any_order() {
    let mut host = Host::logged_in(ANY_ORDER);
    host.feed(&pdu(&Request::Command(ScsiCommand { final_: false, ..write(1, 1024) }), &[], PLAIN));
    host.notes.clear();
    for (sn, offset, final_) in [(0, 512, false), (2, 0, true)] {
        let request = DataOut { final_, ..data_out(1, u32::MAX, sn, offset) };
        host.feed(&pdu(&Request::DataOut(request), &pattern(512), PLAIN));
    }
    assert_eq!(host.notes[0], Note::Failed(task(1), DataError::Sequence));
}

/// Unsolicited data goes in any order too.
#[test]
fn unsolicited_data_in_any_order() {
    let mut host = Host::logged_in(ANY_ORDER);
    let command = ScsiCommand { final_: false, ..write(1, 1024) };
    host.feed(&pdu(&Request::Command(command), &pattern(100), PLAIN));
    host.notes.clear();
    let all = pattern(1024);
    for (sn, out) in (0..).zip([700..1024_u32, 100..400, 400..700]) {
        let request = DataOut { final_: sn == 2, ..data_out(1, u32::MAX, sn, out.start) };
        let bytes = &all[out.start as usize..out.end as usize];
        host.feed(&pdu(&Request::DataOut(request), bytes, PLAIN));
    }
    assert_eq!(host.notes[..2], [Note::Done(task(1), 100, 924), Note::Written(all)]);
}

proptest! {
    /// Any cuts in any order come together; any PDU left out or sent twice is found.
    #[test]
    fn any_cuts_in_any_order(
        cuts in prop::collection::btree_set(4097_u32..8192, 0..30),
        order in any::<[u32; 31]>(),
        fault in prop::option::of((any::<bool>(), any::<prop::sample::Index>())),
    ) {
        let mut ends = vec![BURST.start];
        ends.extend(cuts);
        ends.push(BURST.end);
        let mut outs: Vec<(u32, Range<u32>)> =
            order.into_iter().zip(ends.windows(2).map(|ends| ends[0]..ends[1])).collect();
        outs.sort_by_key(|(key, _)| *key);
        let mut outs: Vec<Range<u32>> = outs.into_iter().map(|(_, out)| out).collect();
        match fault {
            None => {}
            Some((true, at)) => outs.push(outs[at.index(outs.len())].clone()),
            Some((false, at)) => {
                let empty = outs[at.index(outs.len())].start;
                let at = at.index(outs.len());
                outs[at] = empty..empty;
            }
        }
        let (told, buffer) = run(ANY_ORDER, &outs);
        if fault.is_none() {
            prop_assert_eq!(told, done());
            prop_assert_eq!(&buffer[4096..8192], &pattern(BUFFER)[4096..8192]);
        } else {
            prop_assert_eq!(told, Note::Failed(task(1), DataError::Amount));
        }
    }
}
