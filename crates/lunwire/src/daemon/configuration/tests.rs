// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders that cross: what is known of the disks is what is served.

use clap::Parser;
use scsi::Identity;
use scsi::LogicalUnit;
use store::null::Null;
use target::Limited;
use target::NewLun;
use target::VolumeError;

use super::*;

const NAME: &str = "iqn.2026-01.com.example:a";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: ServeOptions,
}

/// A daemon of a disk without a file.
fn served() -> Configuration {
    let line = ["lunwire", "--listen", "127.0.0.1:0", "--target", NAME, "--lun", "null:1M"];
    let options = Line::parse_from(line).options;
    let draft = Draft::from_options(&options).expect("options");
    let target = Target::start(draft.open(&[]).expect("a disk").plan).expect("a port");
    Configuration::new(options, draft, Arc::new(target), Sandbox::default())
}

fn lun(number: u16) -> DraftLun {
    DraftLun::new(number, "null:1M", "null:1M".parse().expect("a store"))
}

/// A disk comes, as far as hosts see it.
fn comes(configuration: &Configuration, number: u16) {
    let new = NewLun { number: Some(number), ..NewLun::default() };
    let added = configuration.target.add_lun(NAME, new, |_, number| {
        let store = Arc::new(Null::new(1 << 20).expect("whole blocks"));
        let identity = Identity::of(u64::from(number), "LUNWIRE", "VIRTUAL DISK");
        Ok::<_, VolumeError>(LogicalUnit::new(identity, store, 512).expect("a unit"))
    });
    assert_eq!(added.expect("a free number"), number);
}

fn limit(number: u16) -> Limit {
    let operations = std::num::NonZeroU64::new(100);
    Limit { of: Limited::Lun(number), operations, bytes: None, sessions: None }
}

/// The limits that are in force, which are those that a dump would have.
#[track_caller]
fn limits(configuration: &Configuration) -> Vec<Limit> {
    let known = configuration.now().draft.limits();
    let known = known.into_iter().flat_map(|(_, limits)| limits).collect::<Vec<_>>();
    let in_force = configuration.target.limits().into_iter().map(|one| one.limit);
    assert_eq!(in_force.collect::<Vec<_>>(), known);
    known
}

#[test]
fn a_limit_of_a_disk_that_comes_is_in_force() {
    let configuration = served();
    let changing = configuration.changing();
    comes(&configuration, 7);
    // Another order sees it already.
    configuration.limit(NAME, limit(7));
    configuration.added(changing, NAME, lun(7));
    assert_eq!(limits(&configuration), [limit(7)]);
}

#[test]
fn a_disk_has_no_limit_of_the_one_before() {
    let configuration = served();
    let add = |number| {
        let changing = configuration.changing();
        comes(&configuration, number);
        configuration.added(changing, NAME, lun(number));
    };
    let remove = |number| {
        let changing = configuration.changing();
        let gone = || configuration.removed(changing);
        configuration.target.remove_lun_and(NAME, number, gone).expect("it is there");
    };
    add(7);
    configuration.limit(NAME, limit(7));
    assert_eq!(limits(&configuration), [limit(7)]);
    remove(7);
    add(7);
    assert_eq!(limits(&configuration), []);
    // Somebody had looked whether it is there, and it went.
    remove(7);
    configuration.limit(NAME, limit(7));
    add(7);
    assert_eq!(limits(&configuration), []);
}

/// Nobody comes by the number of a disk before it is known that it has gone.
#[test]
fn disks_come_and_go_one_at_a_time() {
    let configuration = served();
    let numbers = || configuration.now().draft.lun_numbers(NAME);
    let changing = configuration.changing();
    let is_waited_for = std::thread::scope(|scope| {
        let other = scope.spawn(|| drop(configuration.changing()));
        let removed = configuration.target.remove_lun_and(NAME, 0, || {
            assert!(!other.is_finished());
            configuration.removed(changing);
        });
        assert_eq!((removed.is_ok(), numbers()), (true, Vec::new()));
        other.join().is_ok()
    });
    assert!(is_waited_for);
}
