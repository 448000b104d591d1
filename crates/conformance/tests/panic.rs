// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A defect of ours in one thread, in a process of its own: nothing of the daemon may be left that
//! only looks alive.

use std::io::BufRead;
use std::io::BufReader;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use engine::Choice;
use iscsi::target_role::Settings;
use lunwire_conformance::initiator::Initiator;
use lunwire_conformance::server::BLOCK;
use lunwire_conformance::server::TARGET;
use lunwire_conformance::server::plan;
use lunwire_conformance::*;
use scsi::Identity;
use scsi::LogicalUnit;
use store::Geometry;
use store::Io;
use store::IoResult;
use store::Op;
use store::Store;
use store::Submitted;
use target::PANICKED;
use target::Plan;
use target::Target;
use wire::iscsi::*;

/// Makes the test the process that panics.
const CHILD: &str = "LUNWIRE_TEST_CHILD";

/// The unit whose store panics when it is written to.
const LUN: u8 = 9;

/// The daemon has this long to end.
const SOON: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Defect(Arc<dyn Store>);

impl Store for Defect {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, op: &Op) -> Submitted {
        assert!(!matches!(op, Op::Write { .. }), "injected");
        self.0.submit(op)
    }

    fn complete(&self, op: &Op, io: &Io, result: IoResult) -> Submitted {
        self.0.complete(op, io, result)
    }

    fn finish(&self) -> Result<(), store::Error> {
        println!("let go");
        Ok(())
    }
}

/// Serves until the test kills this process, or a thread of it panics.
fn serve() {
    let settings = Settings::default();
    let mut plan = Plan { reactors: 2, ..plan(Choice::Auto, settings) };
    let store = plan.stores.open(&"memory:1M".parse().expect("a store")).expect("memory");
    let identity = Identity::derive(TARGET, LUN.into(), "LUNWIRE", "VIRTUAL DISK");
    let unit = LogicalUnit::new(identity, Arc::new(Defect(store)), BLOCK).expect("a legal unit");
    plan.nodes[0].luns.push((LUN.into(), Arc::new(unit)));
    let target = Arc::new(Target::start(plan).expect("the target starts"));
    target::end_process_on_panic(&target, || println!("last word"));
    println!("portal {}", target.portals()[0]);
    std::thread::sleep(SOON * 6);
}

#[test]
fn a_reactor_that_panics_ends_the_daemon_soon() {
    if std::env::var_os(CHILD).is_some() {
        return serve();
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "panic::a_reactor_that_panics_ends_the_daemon_soon", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines =
        BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let portal = lines.find_map(|line| line.strip_prefix("portal ").map(str::to_owned));
    let portal = portal.expect("it serves").parse().expect("an address");
    let connect = || Raw::connect(portal).expect("it listens");
    let mut sessions: Vec<Initiator> =
        (0..2).map(|_| Initiator::login(connect(), &LoginPlan::new())).collect();
    let victim = &mut sessions[0];
    victim.settle(LUN);
    let command = victim.write_blocks(LUN, 0, 1);
    victim.send(&Request::Command(command), &[7; 512]);
    let deadline = Instant::now() + SOON;
    let status = loop {
        match child.try_wait().expect("our child") {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().expect("our child");
                panic!("it stays, without one of its reactors");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert_eq!(status.code(), Some(PANICKED));
    // What is no file is brought to stable storage, too.
    let last: Vec<String> = lines.collect();
    assert_eq!(last.iter().rev().take(2).rev().collect::<Vec<_>>(), ["let go", "last word"]);
    sessions.iter_mut().for_each(Initiator::expect_closed);
}
