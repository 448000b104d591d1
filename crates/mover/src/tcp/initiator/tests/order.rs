// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two commands on one connection.

use super::*;

/// Two writes that are asked for before the first one leaves: the second one's data does not pass
/// that of the first.
///
/// Covers: SCC-10, SCC-07.
#[test]
fn unsolicited_data_goes_out_in_the_order_of_the_commands() {
    const OTHER: TaskId = TaskId { index: 9, generation: 5 };
    let bytes: Vec<u8> = vec![7; 4096];
    for immediate in [0, 1024] {
        let mut tcp = Tcp::new();
        tcp.submit(Op::NoticeKeys(KEYS));
        for (task, cmd_sn) in [(TASK, 1), (OTHER, 2)] {
            tcp.submit(Op::Attach { task, write: Some(Slice::from(bytes.clone())), read: None });
            let of_it =
                ScsiCommand { itt: itt(task), cmd_sn: CmdSn(cmd_sn), ..command(false, 4096) };
            let command = ScsiCommand { final_: false, ..of_it };
            tcp.submit(Op::SendCommand { task, command, immediate, unsolicited_end: 4096 });
        }
        let pdus = split(KEYS, &sent(&mut tcp));
        let data = pdus.iter().filter_map(|(request, _)| match request {
            Request::DataOut(pdu) => Some(pdu.itt),
            _ => None,
        });
        let data: Vec<Itt> = data.collect();
        let each = (4096 - immediate as usize) / 1024;
        let expected = [vec![itt(TASK); each], vec![itt(OTHER); each]].concat();
        assert_eq!(data, expected);
        // In all, no byte less and none more than what was said.
        for task in [TASK, OTHER] {
            let of_it = pdus.iter().filter_map(|(request, segment)| match request {
                Request::DataOut(pdu) if pdu.itt == itt(task) => {
                    Some((pdu.offset as usize, segment.len(), pdu.final_))
                }
                _ => None,
            });
            let mut next = immediate as usize;
            for (offset, length, final_) in of_it {
                assert_eq!(offset, next);
                next += length;
                assert_eq!(final_, next == 4096);
            }
            assert_eq!(next, 4096);
        }
        let commands = pdus.iter().filter_map(|(request, _)| match request {
            Request::Command(pdu) => Some(pdu.cmd_sn.0),
            _ => None,
        });
        assert!(commands.eq([1, 2]));
    }
}

/// Whatever comes with a command, and whatever waits before it.
///
/// Covers: CMD-04.
#[test]
fn numbered_requests_go_out_in_the_order_of_their_numbers() {
    let mut tcp = Tcp::new();
    tcp.submit(Op::NoticeKeys(KEYS));
    let pool = Pool::new(1 << 20).unwrap();
    for (number, (read, length, immediate)) in
        (1..).zip([(false, 4096, 1024), (true, 4096, 0), (false, 512, 512), (true, 0, 0)])
    {
        let task = TaskId { index: number, generation: 0 };
        let write = (!read).then(|| Slice::from(vec![7; length as usize]));
        let read_buf = if read && length > 0 { pool.take(length as usize) } else { None };
        tcp.submit(Op::Attach { task, write, read: read_buf });
        let command =
            ScsiCommand { itt: itt(task), cmd_sn: CmdSn(number), ..command(read, length) };
        let unsolicited_end = if read { 0 } else { length };
        let command = ScsiCommand { final_: unsolicited_end == immediate, ..command };
        tcp.submit(Op::SendCommand { task, command, immediate, unsolicited_end });
    }
    let text = TextRequest {
        immediate: false,
        final_: true,
        continue_: false,
        lun: LunField::default(),
        itt: Itt(77),
        ttt: Ttt::NONE,
        cmd_sn: CmdSn(5),
        exp_stat_sn: StatSn(0),
    };
    tcp.submit(Op::SendControl { request: Request::Text(text), data: b"a=b\0".to_vec() });
    let pdus = split(KEYS, &sent(&mut tcp));
    let numbers = pdus.iter().filter_map(|(request, _)| match request {
        Request::Command(pdu) => Some(pdu.cmd_sn.0),
        Request::Text(pdu) => Some(pdu.cmd_sn.0),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}
