// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Space that hosts set aside, on the stores that can tell it from data.

use lunwire_conformance::host::*;
use lunwire_conformance::initiator::*;
use lunwire_conformance::*;

/// UNMAP with ANCHOR, on memory and on a file, and what is told of it; a file is asked only where
/// the temporary folder's file system can set space aside.
#[test]
fn space_is_set_aside() {
    let check = |server: &Server| {
        for lun in [0, 2] {
            let mut session = Initiator::login(server.connect(), &LoginPlan::new());
            session.settle(lun);
            let mut host = Host::new(session, lun, 65536);
            if host.read(&[0x12, 1, 0xb2, 0, 255, 0], 255)[5] & 0x02 == 0 {
                assert_ne!(lun, 0, "memory can be set aside");
                println!("skipped: the temporary folder's file system cannot set space aside");
                continue;
            }
            host.write(&cdb10(0x2a, 0, 256), &pattern(2048 * BLOCK_BYTES / 8, 3));
            let (mut cdb, list) = unmap(&[(20_480, 2048)]);
            cdb[1] = 1;
            host.write(&cdb, &list);
            let state = |host: &mut Host, block| {
                let status = host.read(&service_in_16(0x12, block, 24), 24);
                (number(&status[16..20]), status[20] & 0x0f)
            };
            assert_eq!(state(&mut host, 20_480), (2048, 2));
            assert_eq!(host.read_whole(&cdb10(0x28, 20_480, 8), 4096), vec![0; 4096]);
            host.write(&cdb10(0x2a, 20_480, 8), &pattern(4096, 5));
            assert_eq!(state(&mut host, 20_480), (8, 0));
            assert_eq!(state(&mut host, 20_496).1, 2);
            let (cdb, list) = unmap(&[(20_480, 2048)]);
            host.write(&cdb, &list);
            assert_eq!(state(&mut host, 20_480).1, 1);
        }
    };
    on_each_transport(|_| {}, check);
}
