// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session is asked for without a command leaves no memory behind: counted over all threads
//! of a process in which the target serves. One test alone in its process.

use std::alloc::System;

use lunwire_conformance::raw::text;
use lunwire_conformance::tasks::ABORT_TASK;
use lunwire_conformance::*;
use stats_alloc::INSTRUMENTED_SYSTEM;
use stats_alloc::Region;
use stats_alloc::StatsAlloc;
use wire::iscsi::*;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM: u32 = 200;
const COUNTED: u32 = 1_000;

/// Queues may still grow once; what stays of each request would be kept [`COUNTED`] times, and
/// nothing that is worth keeping is smaller than 64 bytes.
const RETAINED_MAX: usize = 64 * COUNTED as usize / 2;

fn ping(session: &mut Initiator) {
    session.expect_quiet();
}

fn ask(session: &mut Initiator) {
    let request = session.text();
    session.send(&Request::Text(request), &text(&[("SendTargets", "")]));
    assert!(matches!(session.read().response(), Response::Text(_)));
}

fn abort(session: &mut Initiator) {
    let request = session.management(ABORT_TASK, 0, Itt(0x7777_7777));
    session.send(&Request::TaskManagement(request), &[]);
    assert_eq!(session.read_management(), 1, "no such task");
}

fn be_rejected(session: &mut Initiator) {
    let snack = session.snack(1, session.exp_stat_sn);
    session.send(&Request::Snack(snack), &[]);
    session.expect_reject(0x05);
}

#[test]
fn requests_without_a_task_leave_nothing_behind() {
    on_each_engine(
        |_| {},
        |server| {
            let kinds: [fn(&mut Initiator); 4] = [ping, ask, abort, be_rejected];
            for (number, request) in (0..).zip(kinds) {
                let mut session = server.login();
                (0..WARM).for_each(|_| request(&mut session));
                let region = Region::new(HEAP);
                (0..COUNTED).for_each(|_| request(&mut session));
                let change = region.change();
                let kept = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
                assert!(kept < RETAINED_MAX, "kind {number}: {kept} bytes stay: {change:?}");
                session.leave();
            }
        },
    );
}
