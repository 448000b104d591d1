// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use alloc::vec::Vec;

fn health() -> Arc<Health> {
    Arc::new(Health::new(1 << 20, 512, true))
}

fn begin(health: &Arc<Health>) -> Watch {
    Watch::begin(health, Watched::Sync)
}

fn run(health: &Arc<Health>, well: bool) -> Verdict {
    let mut watch = begin(health);
    watch.end(well);
    watch.verdict()
}

#[test]
fn what_was_synced_is_not_lost_later() {
    let health = health();
    health.note_write(0, 4096);
    assert_eq!(run(&health, true), Verdict::Good);
    run(&health, false);
    assert!(!health.has_failed(), "there was nothing to lose");
    health.note_write(8192, 512);
    run(&health, false);
    assert!(health.has_failed());
    health.note_rewrite(8192, 512, health.failure().expect("it has failed"));
    assert!(health.is_whole_again() && health.has_failed(), "it is not synced yet");
    assert_eq!(run(&health, true), Verdict::Repaired);
    assert!(!health.has_failed());
}

#[test]
fn a_failure_is_for_all_that_overlapped() {
    let health = health();
    health.note_write(0, 512);
    let (mut first, mut second) = (begin(&health), begin(&health));
    let mut durable = Watch::begin(&health, Watched::DurableWrite);
    assert!(!second.end(true));
    assert_eq!(second.verdict(), Verdict::Wait, "others may have got its news");
    assert!(first.end(false), "it is told once");
    assert!(!first.end(false));
    assert_eq!(second.verdict(), Verdict::Doubtful);
    durable.end(true);
    assert_eq!(durable.verdict(), Verdict::Doubtful);
    assert_eq!(run(&health, true), Verdict::Good, "of itself alone");
    assert!(health.has_failed(), "nothing was written again");
}

#[test]
fn what_began_later_is_not_waited_for() {
    let health = health();
    let mut first = begin(&health);
    first.end(true);
    let mut second = begin(&health);
    assert_eq!(first.verdict(), Verdict::Good);
    second.end(true);
    assert_eq!(second.verdict(), Verdict::Good);
}

#[test]
fn what_a_sync_under_way_was_to_bring_is_lost_with_it() {
    let health = health();
    health.note_write(0, 512);
    let mut taker = begin(&health);
    health.note_write(512, 512);
    run(&health, false);
    taker.end(true);
    assert_eq!(taker.verdict(), Verdict::Doubtful);
    let failure = health.failure().expect("it has failed");
    health.note_rewrite(512, 512, failure);
    assert!(!health.is_whole_again());
    health.note_rewrite(0, 512, failure);
    assert!(health.is_whole_again());
}

#[test]
fn only_what_was_written_after_the_last_failure_counts() {
    let health = health();
    health.note_write(0, 512);
    run(&health, false);
    let first = health.failure().expect("it has failed");
    run(&health, false);
    health.note_rewrite(0, 512, first);
    assert!(!health.is_whole_again(), "it was on its way when it failed again");
    // A sync that began before all was written again repairs nothing.
    let mut early = begin(&health);
    health.note_rewrite(0, 512, health.failure().expect("it has failed"));
    early.end(true);
    assert_eq!(early.verdict(), Verdict::Good);
    assert!(health.has_failed());
}

#[test]
fn a_file_past_the_cache_has_no_news_to_share() {
    let health = Arc::new(Health::new(1 << 20, 512, false));
    let (mut first, mut second) = (begin(&health), begin(&health));
    second.end(true);
    assert_eq!(second.verdict(), Verdict::Good);
    first.end(false);
    assert_eq!(run(&health, true), Verdict::Good);
}

#[test]
fn old_watches_are_forgotten() {
    let health = health();
    let mut all: Vec<Watch> = (0..100).map(|_| begin(&health)).collect();
    all.iter_mut().rev().for_each(|watch| assert!(!watch.end(true)));
    assert!(all.iter_mut().all(|watch| watch.verdict() == Verdict::Good));
    assert!(health.log.lock().ended.is_empty());
}
