// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The moments in which it is not decided yet who serves.

use conformance::host;

use super::*;

const COMPARE: [u8; 512] = [0; 512];

/// The name by which a copy finds the disk of `host`.
fn naa(host: &mut Host) -> Vec<u8> {
    let page = host.vital(0x83);
    let names = host::designators(&page).into_iter();
    names.into_iter().find(|name| (name.0, name.1) == (0, 3)).unwrap().2
}

/// All that changes a disk goes the same way: what is left of it is what was there.
#[test]
fn nothing_begins_with_a_disk_in_memory_when_disks_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let stripe = "stripe:64K(memory:1M;memory:1M)";
    let atomic = "memory:1M,atomic";
    for (lun, more) in [("memory:1M", &["--protection", "1"][..]), (stripe, &[]), (atomic, &[])] {
        let daemon = Daemon::start(folder.path(), &[lun], more);
        let mut host = host_of(&daemon);
        let name = naa(&mut host);
        let mut next = Next::of(&daemon);
        next.say(r#"{"word":"take"}"#);
        assert_eq!(host.session.read().opcode(), ASYNC_MESSAGE);
        let (unmap, runs) = host::unmap(&[(0, 64)]);
        let (compare, both) = host::compare_and_write(0, &COMPARE, &[7; 512]);
        let copy = host::copy_list([&name, &name], 64, [0, 512]);
        for (cdb, out) in [
            (&[FORMAT_UNIT, 0, 0, 0, 0, 0][..], &[][..]),
            (&[FORMAT_UNIT, 0x10, 0, 0, 0, 0], &[0, 2, 0, 0]),
            (&[0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
            (&[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
            (&[0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0], &[1, 0, 0, 1, 7]),
            (&unmap, &runs),
            (&host::cdb16(0x93, 0, 0, 64), &[7; 512]),
            (&host::cdb16(0x93, 8, 0, 64), &[0; 512]),
            (&host::cdb16(0x9c, 0, 0, 1), &[7; 512]),
            (&cdb10(0x2e, 0, 1), &[7; 512]),
            (&compare, &both),
            (&host::copy_out(0, 0, copy.len()), &copy),
        ] {
            // WRITE ATOMIC(16) is not for all of them, nor is EXTENDED COPY.
            if cdb[0] == 0x9c && lun != atomic || cdb[0] == 0x83 && !more.is_empty() {
                continue;
            }
            let status = host.send(cdb, out);
            assert_eq!(status.code, BUSY, "{lun}: {cdb:x?}: {status:?}");
        }
        host.session.leave();
        next.hear(r#""word":"released""#);
        drop(next);
        expect_service(&daemon, Duration::from_secs(20));
        let mut host = host_of(&daemon);
        assert_eq!(host.read_whole(&cdb10(0x28, 0, 1), 512), COMPARE);
        assert_eq!(host.send(&[FORMAT_UNIT, 0, 0, 0, 0, 0], &[]).code, 0, "{lun}");
        host.session.leave();
    }
}
