// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted of bursts, by Data-Outs as an initiator should and should not send them.

use super::*;

/// A task whose buffer of 8192 bytes waits for two R2Ts of 4096 bytes each, filled with 0xee.
struct Transfer {
    host: Host,
    keys: Keys,
    tags: [u32; 2],
}

impl Transfer {
    fn new(keys: Keys) -> Self {
        let mut host = Host::logged_in(keys);
        let mut buf = host.pool.take(8192).expect("a buffer");
        buf.fill(0xee);
        host.tcp.submit(Op::Attach { task: task(1), buf });
        for offset in [0, 4096] {
            let (task, itt, numbers) = (task(1), Itt(1), numbers(1));
            host.submit(Op::GetData { task, itt, lun: LUN, offset, length: 4096, numbers });
        }
        let bytes = host.drain();
        let tag = |(response, _): &(Response, Vec<u8>)| match response {
            Response::R2t(r2t) => r2t.ttt.0,
            other => panic!("no R2T: {other:?}"),
        };
        let sent = responses(&bytes, keys);
        Self { host, keys, tags: [tag(&sent[0]), tag(&sent[1])] }
    }

    /// A Data-Out of burst `burst` with bytes of the pattern.
    fn out(&mut self, burst: usize, sn: u32, range: core::ops::Range<u32>, final_: u8) {
        let request =
            DataOut { final_: final_ == 1, ..data_out(1, self.tags[burst], sn, range.start) };
        let data = &pattern(16_384)[range.start as usize..range.end as usize];
        let bytes = pdu(&Request::DataOut(request), data, self.keys);
        self.host.feed(&bytes);
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.host.tcp.submit(Op::Detach { task: task(1) }).expect("the buffer").to_vec()
    }
}

/// DataSN, first and last offset, F.
type Out = (u32, core::ops::Range<u32>, u8);

/// Covers: DSN-08, DIN-14/T, DOU-12a.
#[test]
fn every_disorder_of_a_burst_is_told_at_its_end() {
    let done = Note::Done(task(1), 0, 4096);
    let sequence = Note::Failed(task(1), DataError::Sequence);
    let amount = Note::Failed(task(1), DataError::Amount);
    // What is sent, what is told, how many bytes of the buffer were written.
    let table: &[(&[Out], &Note, usize)] = &[
        (&[(0, 0..4096, 1)], &done, 4096),
        (&[(0, 0..1000, 0), (1, 1000..4096, 1)], &done, 4096),
        (&[(0, 0..4096, 0), (1, 4096..4096, 1)], &done, 4096),
        (&[(0, 0..0, 0), (1, 0..4096, 1)], &done, 4096),
        (&[(0, 0..1000, 1)], &amount, 1000),
        (&[(0, 0..0, 1)], &amount, 0),
        (&[(0, 0..4097, 1)], &amount, 4096),
        (&[(0, 0..4000, 0), (1, 4000..5000, 0), (2, 5000..5001, 1)], &amount, 4096),
        (&[(0, 0..4096, 0), (1, 4096..4097, 1)], &amount, 4096),
        (&[(1, 0..4096, 1)], &sequence, 0),
        (&[(0, 0..1000, 0), (2, 1000..4096, 1)], &sequence, 1000),
        (&[(0, 0..1000, 0), (0, 1000..4096, 1)], &sequence, 1000),
        (&[(0, 0..1000, 0), (1, 1004..4096, 1)], &sequence, 1000),
        (&[(0, 0..1000, 0), (1, 996..4096, 1)], &sequence, 1000),
        (&[(0, 4096..8192, 1)], &sequence, 0),
        (&[(0, 8192..8196, 1)], &sequence, 0),
    ];
    for keys in [PLAIN, DIGESTS] {
        for (outs, told, written) in table {
            let mut transfer = Transfer::new(keys);
            for (index, (sn, range, final_)) in outs.iter().enumerate() {
                assert_eq!(transfer.host.notes, [], "nothing before F");
                transfer.host.tasks.clear();
                transfer.out(0, *sn, range.clone(), *final_);
                assert_eq!(transfer.host.tcp.open_bursts() == 2, index + 1 < outs.len());
                if index + 1 == outs.len() {
                    break;
                }
            }
            assert_eq!(&transfer.host.notes[..1], core::slice::from_ref(*told), "{outs:?}");
            if *told == &done {
                let buffer = transfer.buffer();
                assert_eq!(buffer[..*written], pattern(*written));
                assert!(buffer[*written..].iter().all(|byte| *byte == 0xee), "{outs:?}");
            }
        }
    }
}

/// Covers: DOU-12a.
#[test]
fn nothing_is_written_beside_a_burst() {
    for offset in [4095, 4097, 8191, 0x7fff_ffff, u32::MAX - 3, u32::MAX] {
        let mut transfer = Transfer::new(PLAIN);
        let request = data_out(1, transfer.tags[0], 0, offset);
        transfer.host.feed(&pdu(&Request::DataOut(request), &pattern(4096), PLAIN));
        // Even if it goes on as if nothing had happened.
        let request = data_out(1, transfer.tags[0], 1, offset.wrapping_add(4096));
        transfer.host.feed(&pdu(&Request::DataOut(request), &pattern(4096), PLAIN));
        assert!(transfer.buffer().iter().all(|byte| *byte == 0xee), "offset {offset:#x}");
    }
    let mut transfer = Transfer::new(PLAIN);
    transfer.out(0, 0, 0..6000, 0);
    let buffer = transfer.buffer();
    assert_eq!(buffer[..4096], pattern(4096));
    assert!(buffer[4096..].iter().all(|byte| *byte == 0xee), "the excess is dropped");
}

/// What an initiator sends unasked has its place behind the immediate data, and ends where the
/// first burst does: with each order of PDUs.
///
/// Covers: DOU-12b.
#[test]
fn nothing_is_written_beside_the_first_burst() {
    let any_order = Keys { data_pdu_in_order: false, ..PLAIN };
    // The command has 8192 bytes, of which 512 came with it; unsolicited are those up to 1024.
    for keys in [PLAIN, any_order] {
        for offset in [0, 256, 511, 513, 1024, 4096, 7680, 8192, u32::MAX - 511, u32::MAX] {
            let mut host = Host::logged_in(keys);
            let mut buf = host.pool.take(8192).expect("a buffer");
            buf.fill(0xee);
            host.tcp.submit(Op::Attach { task: task(1), buf });
            let (task, itt) = (task(1), Itt(1));
            let (at, length) = (512, 512);
            host.submit(Op::ExpectUnsolicited {
                task,
                itt,
                lun: LUN,
                offset: at,
                length,
                discard: false,
            });
            let request = DataOut { final_: true, ..data_out(1, u32::MAX, 0, offset) };
            let bytes = pdu(&Request::DataOut(request), &pattern(512), keys);
            let (before, last) = bytes.split_at(bytes.len() - 1);
            host.feed(before);
            let buffer = host.tcp.submit(Op::Detach { task }).expect("the buffer").to_vec();
            assert!(buffer.iter().all(|byte| *byte == 0xee), "offset {offset:#x}");
            host.feed(last);
            assert!(
                matches!(host.notes[..], [Note::Failed(..), ..]),
                "{offset:#x} {:?}",
                host.notes
            );
        }
    }
}

#[test]
fn a_corrupt_data_out_is_told_at_once_and_at_the_end() {
    let mut transfer = Transfer::new(DIGESTS);
    let request = data_out(1, transfer.tags[0], 0, 0);
    let mut bytes = pdu(&Request::DataOut(request), &pattern(1000), DIGESTS);
    bytes[BHS_LEN + 4] ^= 0x80;
    transfer.host.feed(&bytes);
    assert_eq!(transfer.host.take_notes(), [Note::DigestError(bytes[..BHS_LEN].to_vec())]);
    transfer.out(0, 1, 1000..4096, 1);
    let failed = Note::Failed(task(1), DataError::Digest);
    assert_eq!(transfer.host.take_notes()[0], failed);
}

#[test]
fn a_corrupt_last_data_out_makes_two_events_at_any_cut() {
    let request = |tag| Request::DataOut(DataOut { final_: true, ..data_out(1, tag, 0, 0) });
    for cut in 0..BHS_LEN + 4 + 4096 + 4 {
        let mut transfer = Transfer::new(DIGESTS);
        let mut bytes = pdu(&request(transfer.tags[0]), &pattern(4096), DIGESTS);
        bytes[BHS_LEN + 4 + 4095] ^= 1;
        transfer.host.feed(&bytes[..cut]);
        transfer.host.feed(&bytes[cut..]);
        transfer.host.feed(&pdu(&Request::NopOut(nop_out(7)), &[], DIGESTS));
        let expected = [
            Note::DigestError(bytes[..BHS_LEN].to_vec()),
            Note::Failed(task(1), DataError::Digest),
            Note::Released(task(1)),
            Note::Control(Request::NopOut(nop_out(7)), vec![]),
        ];
        assert_eq!(transfer.host.notes, expected, "cut at {cut}");
        assert_eq!(transfer.host.tcp.counters().data_digest_errors, 1, "it is one PDU");
    }
}

#[test]
fn bursts_of_one_task_may_be_mixed() {
    let mut transfer = Transfer::new(PLAIN);
    transfer.out(1, 0, 4096..6000, 0);
    transfer.out(0, 0, 0..100, 0);
    transfer.out(1, 1, 6000..8192, 1);
    transfer.out(0, 1, 100..4096, 1);
    let expected = [Note::Done(task(1), 4096, 4096), Note::Done(task(1), 0, 4096)];
    assert_eq!(transfer.host.notes, expected);
    assert_eq!(transfer.buffer(), pattern(8192));
    assert_eq!(transfer.host.tcp.open_bursts(), 0);
}

/// Covers: DOU-10, PER-04, CMD-32a/T.
#[test]
fn a_data_out_of_no_burst_is_rejected_and_skipped() {
    let wrong_lun = |mut pdu: DataOut| {
        pdu.lun = LunField([0, 2, 0, 0, 0, 0, 0, 0]);
        pdu
    };
    for keys in [PLAIN, DIGESTS] {
        let tag = Transfer::new(keys).tags[0];
        let table = [
            data_out(1, tag ^ 0x0001_0000, 0, 0),
            data_out(1, 0x0000_7777, 0, 0),
            data_out(1, 0xffff_fffe, 0, 0),
            data_out(1, u32::MAX, 0, 0),
            data_out(2, tag, 0, 0),
            wrong_lun(data_out(1, tag, 0, 0)),
        ];
        for request in table {
            let mut transfer = Transfer::new(keys);
            let bytes = pdu(&Request::DataOut(request), &pattern(1000), keys);
            transfer.host.feed(&bytes);
            let rejected = Note::Rejected(0x09, bytes[..BHS_LEN].to_vec());
            assert_eq!(transfer.host.take_notes(), [rejected]);
            transfer.out(0, 0, 0..4096, 1);
            assert_eq!(transfer.host.take_notes(), [Note::Done(task(1), 0, 4096)]);
            assert_eq!(transfer.buffer()[..4096], pattern(4096));
        }
    }
}

/// Nobody waits for data of a command that reads.
///
/// Covers: CMD-32b/T.
#[test]
fn a_data_out_for_a_read_is_rejected() {
    for keys in [PLAIN, DIGESTS] {
        let mut host = Host::logged_in(keys);
        let read = ScsiCommand { read: true, write: false, ..write(1, 512) };
        host.feed(&pdu(&Request::Command(read), &[], keys));
        host.take_notes();
        for ttt in [u32::MAX, 0, 0x0001_0000] {
            let request = DataOut { final_: true, ..data_out(1, ttt, 0, 0) };
            let bytes = pdu(&Request::DataOut(request), &pattern(512), keys);
            host.feed(&bytes);
            let rejected = Note::Rejected(0x09, bytes[..BHS_LEN].to_vec());
            assert_eq!(host.take_notes(), [rejected], "{ttt:#x}");
        }
        host.submit(put(1, Slice::from(pattern(512)), 0, Some(1)));
        let sent = responses(&host.drain(), keys);
        assert!(matches!(sent[..], [(Response::DataIn(_), _)]), "the read goes on: {sent:?}");
    }
}

/// Covers: DOU-10.
#[test]
fn a_tag_of_an_ended_burst_is_stale() {
    let mut transfer = Transfer::new(PLAIN);
    transfer.out(0, 0, 0..4096, 1);
    transfer.host.take_notes();
    transfer.out(0, 0, 0..4096, 1);
    assert!(matches!(transfer.host.take_notes()[..], [Note::Rejected(0x09, _)]));
    transfer.host.submit(Op::Release { task: task(1) });
    transfer.host.take_notes();
    transfer.out(1, 0, 4096..8192, 1);
    assert!(matches!(transfer.host.take_notes()[..], [Note::Rejected(0x09, _)]));
    assert_eq!((transfer.host.tcp.task_count(), transfer.host.tcp.open_bursts()), (0, 0));
    assert_eq!(transfer.host.pool.bytes_in_use(), 0);
}

/// Covers: DOU-11.
#[test]
fn data_of_an_aborted_task_is_dropped_silently() {
    for released in [false, true] {
        let mut transfer = Transfer::new(DIGESTS);
        transfer.out(0, 0, 0..1000, 0);
        // In the middle of a PDU, too.
        let request = data_out(1, transfer.tags[0], 1, 1000);
        let bytes = pdu(&Request::DataOut(request), &pattern(1000), DIGESTS);
        transfer.host.feed(&bytes[..500]);
        transfer.host.submit(Op::Abandon { task: task(1) });
        let before = transfer.buffer();
        if released {
            transfer.host.submit(Op::Release { task: task(1) });
            assert_eq!(transfer.host.take_notes(), [Note::Released(task(1))]);
        }
        transfer.host.feed(&bytes[500..]);
        transfer.out(0, 2, 2000..4096, 1);
        transfer.out(1, 7, 0..4096, 0);
        assert_eq!(transfer.host.tcp.abandoned_bursts(), 1);
        transfer.out(1, 9, 0..4096, 1);
        assert_eq!(transfer.host.take_notes(), []);
        assert!(before[1448..].iter().all(|byte| *byte == 0xee));
        assert_eq!(transfer.host.tcp.abandoned_bursts(), 0);
        assert_eq!(transfer.host.tcp.open_bursts(), 0);
        transfer.out(0, 0, 0..4, 1);
        assert!(matches!(transfer.host.take_notes()[..], [Note::Rejected(0x09, _)]));
    }
}

/// Covers: FAB-04, FAB-07.
#[test]
fn tags_of_an_aborted_task_are_valid_until_forgotten() {
    let mut transfer = Transfer::new(PLAIN);
    let mut other = Transfer::new(PLAIN);
    for transfer in [&mut transfer, &mut other] {
        transfer.host.submit(Op::Abandon { task: task(1) });
        transfer.host.submit(Op::Release { task: task(1) });
        transfer.host.take_notes();
        transfer.out(0, 0, 0..4, 0);
        assert_eq!(transfer.host.take_notes(), [], "dropped without a word");
    }
    transfer.host.submit(Op::Forget { task: task(2) });
    assert!(transfer.host.tcp.abandoned_bursts() > 0, "that was another task");
    transfer.host.submit(Op::Forget { task: task(1) });
    assert_eq!(transfer.host.tcp.abandoned_bursts(), 0);
    transfer.out(0, 1, 4..8, 1);
    assert!(matches!(transfer.host.take_notes()[..], [Note::Rejected(0x09, _)]));
}

#[test]
fn abandon_takes_back_what_was_not_asked_yet() {
    let mut host = Host::logged_in(PLAIN);
    for index in [1, 2] {
        let (task, itt, numbers) = (task(index), Itt(index), numbers(1));
        host.submit(Op::GetData { task, itt, lun: LUN, offset: 0, length: 4, numbers });
    }
    host.submit(Op::Release { task: task(1) });
    host.submit(Op::Abandon { task: task(1) });
    let sent = responses(&host.drain(), PLAIN);
    assert_eq!(sent.len(), 1);
    assert_eq!(host.take_notes(), [Note::Released(task(1))]);
    assert_eq!(host.tcp.backlog(), 0);
}

#[test]
fn abandoned_bursts_give_way_to_new_ones() {
    use crate::limits::SOLICITED_MAX;
    let mut host = Host::logged_in(PLAIN);
    let get = |index: u32| {
        let (task, itt, numbers) = (task(index), Itt(index), numbers(1));
        Op::GetData { task, itt, lun: LUN, offset: 0, length: 4, numbers }
    };
    let full = u32::try_from(SOLICITED_MAX).expect("small");
    for index in 0..full {
        host.submit(get(index));
    }
    host.drain();
    assert_eq!(host.tcp.open_bursts(), SOLICITED_MAX);
    host.submit(get(full));
    assert_eq!(host.drain(), [], "waits for a burst to end");
    assert!(host.tcp.backlog() > 0);
    host.submit(Op::Abandon { task: task(7) });
    assert_eq!(host.drain().len(), BHS_LEN, "takes the place of an abandoned one");
    assert_eq!((host.tcp.open_bursts(), host.tcp.abandoned_bursts()), (SOLICITED_MAX, 0));
}

#[test]
fn unsolicited_data_is_found_by_its_task_tag() {
    for discard in [false, true] {
        let mut host = Host::logged_in(PLAIN);
        for index in [1, 2] {
            let mut buf = host.pool.take(4096).expect("a buffer");
            buf.fill(0xee);
            host.tcp.submit(Op::Attach { task: task(index), buf });
            let (task, itt) = (task(index), Itt(index));
            let (offset, length) = (96, 4000);
            host.submit(Op::ExpectUnsolicited { task, itt, lun: LUN, offset, length, discard });
        }
        // Without a transfer tag the LUN is reserved.
        let lun = LunField([0xff; 8]);
        let out = |itt, sn, offset, final_| {
            let offset_at = offset as usize;
            let request = DataOut { lun, final_, ..data_out(itt, u32::MAX, sn, offset) };
            pdu(&Request::DataOut(request), &pattern(4096)[offset_at..offset_at + 2000], PLAIN)
        };
        host.feed(&out(2, 0, 96, false));
        host.feed(&out(1, 0, 96, false));
        host.feed(&out(2, 1, 2096, true));
        host.feed(&out(1, 1, 2096, true));
        assert_eq!(
            host.take_notes(),
            [Note::Done(task(2), 96, 4000), Note::Done(task(1), 96, 4000)]
        );
        let buffer = host.tcp.submit(Op::Detach { task: task(1) }).expect("the buffer");
        let written = if discard {
            zeros(4000).iter().map(|_| 0xee).collect()
        } else {
            pattern(4096)[96..].to_vec()
        };
        assert_eq!(buffer[96..], written);
        assert!(buffer[..96].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn a_discarded_burst_is_done_whatever_came() {
    let mut host = Host::logged_in(PLAIN);
    let (task, itt, offset, length) = (task(1), Itt(1), 0, 4000);
    host.submit(Op::ExpectUnsolicited { task, itt, lun: LUN, offset, length, discard: true });
    let request = DataOut { final_: true, ..data_out(1, u32::MAX, 5, 17) };
    host.feed(&pdu(&Request::DataOut(request), b"short", PLAIN));
    assert_eq!(host.notes, [Note::Done(task, 0, 4000)]);
    assert_eq!(host.tcp.open_bursts(), 0);
}

#[test]
fn a_burst_without_its_buffer_fails() {
    for length in [None, Some(100)] {
        let mut transfer = Transfer::new(PLAIN);
        drop(transfer.host.tcp.submit(Op::Detach { task: task(1) }));
        if let Some(length) = length {
            let short = transfer.host.pool.take(length).expect("a buffer");
            transfer.host.tcp.submit(Op::Attach { task: task(1), buf: short });
        }
        transfer.out(0, 0, 0..4096, 1);
        assert_eq!(transfer.host.notes[0], Note::Failed(task(1), DataError::Amount));
    }
}
