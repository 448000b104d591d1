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
