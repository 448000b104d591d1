// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeds that are run each time: one of every class, and those that found a defect. Without
//! optimization each takes seconds; `scripts/sim` runs hundreds.

use initiator::Begin;
use initiator::Checks;
use initiator::Transport;
use lunwire_sim::Class;
use lunwire_sim::FramePlan;
use lunwire_sim::Keeping;
use lunwire_sim::Options;
use lunwire_sim::Usual;
use lunwire_sim::run;
use wire::scsi::persistent::Type;

const MPA_FIRST: Transport = Transport::Iser(Begin::Rdma, Checks::Crc);
const LOGIN_FIRST: Transport = Transport::Iser(Begin::Login, Checks::Crc);

fn passes(options: &Options) {
    let outcome = run(options, false);
    assert_eq!(outcome.failure, None, "of this system:\n{options}");
    assert!(!outcome.tally.ends.is_empty(), "nobody asked for anything:\n{options}");
}

#[test]
fn every_class_is_safe_and_alive() {
    for class in Class::ALL {
        passes(&Options::draw(1, class));
    }
}

#[test]
fn a_seed_gives_the_same_trace_again() {
    let mut digests = Vec::new();
    for class in Class::ALL {
        let options = Options::draw(11, class);
        let (first, again) = (run(&options, false), run(&options, false));
        assert_eq!(first.digest, again.digest, "{}", class.name());
        digests.push(first.digest);
    }
    // Another class, or another seed, is another trace.
    digests.push(run(&Options::draw(12, Class::Calm), false).digest);
    for (place, digest) in digests.iter().enumerate() {
        assert!(!digests[..place].contains(digest), "number {place} did what an earlier one did");
    }
}

/// What is done about a reservation takes mostly longer than its guard waits: it must be taken back
/// all the same before all is read again.
#[test]
fn a_guard_that_is_less_patient_than_media_are_slow_comes_to_its_end() {
    for seed in [11, 32, 38, 39] {
        let mut options = Options::plain(seed, Class::Disk);
        options.faults.clear();
        options.targets.truncate(1);
        options.hosts.truncate(1);
        options.hosts[0].truncate(1);
        let (target, guard) = (&mut options.targets[0], &mut options.hosts[0][0]);
        target.memory = false;
        target.window = 64;
        target.reservation = Type::ExclusiveAccess;
        target.keeping = Some(Keeping { time: (2_000_000, 60_000_000), errors: 0, cuts: 0 });
        (guard.target, guard.guard, guard.command_timeout) = (0, true, 5);
        passes(&options);
    }
}

/// One of each over iSER, which begins in either way.
#[test]
fn every_class_is_safe_and_alive_over_iser() {
    for (class, transport) in
        Class::ALL.into_iter().zip([MPA_FIRST, LOGIN_FIRST].into_iter().cycle())
    {
        let mut options = Options::draw(21, class);
        options.set_transport(transport, Usual::No);
        passes(&options);
    }
}

/// One of each over RDMA adapters, with room for everything and with little.
#[test]
fn every_class_is_safe_and_alive_over_adapters() {
    for (class, room) in Class::ALL.into_iter().zip([Usual::No, Usual::Yes].into_iter().cycle()) {
        let mut options = Options::draw(31, class);
        options.set_transport(Transport::Verbs, room);
        passes(&options);
    }
}

/// One of each over raw Ethernet.
#[test]
fn every_class_is_safe_and_alive_over_frames() {
    for class in Class::ALL {
        let mut options = Options::draw(41, class);
        options.set_transport(Transport::Ether, Usual::No);
        passes(&options);
    }
}

/// What its wire does is done, and the same each time.
#[test]
fn frames_are_lost_doubled_late_and_damaged() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..=4 {
        let mut options = Options::draw(seed, Class::Calm);
        options.set_transport(Transport::Ether, Usual::No);
        options.frames =
            FramePlan { lost: 20, doubled: 20, late: 50, damaged: 5, ..options.frames };
        let (outcome, again) = (run(&options, false), run(&options, false));
        assert_eq!(outcome.failure, None, "of this system:\n{options}");
        assert_eq!(outcome.digest, again.digest, "seed {seed}");
        seen.extend(outcome.tally.marks.into_keys());
    }
    let wanted = ["connection over frames", "frame lost", "frame doubled", "frame late"];
    assert!(wanted.iter().all(|mark| seen.contains(*mark)), "{seen:?}");
    assert!(seen.contains("frame damaged"), "{seen:?}");
}

/// What the adapters of the simulator do is done: connections over them, several completions at
/// once, and some that are lost with their connection.
#[test]
fn adapters_are_late_and_lose_what_they_have_not_told() {
    let mut seen = std::collections::BTreeSet::new();
    // In all but the first one a connection is lost while something is under way.
    for seed in [1, 11, 18, 21] {
        let mut options = Options::draw(seed, Class::Network);
        options.set_transport(Transport::Verbs, Usual::No);
        let outcome = run(&options, false);
        assert_eq!(outcome.failure, None, "of this system:\n{options}");
        let again = run(&options, false);
        assert_eq!(outcome.digest, again.digest, "seed {seed}");
        seen.extend(outcome.tally.marks.into_keys());
    }
    let wanted = ["connection over adapters", "completions in a batch", "completions are flushed"];
    assert!(wanted.iter().all(|mark| seen.contains(*mark)), "{seen:?}");
}

/// `seeds/*.txt`: lines of seed and class, maybe `plain`, `narrow`, `single` or what begins with
/// `iser`, then what was wrong.
#[test]
fn seeds_that_found_defects_pass_now() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
    let mut ran = 0;
    for file in std::fs::read_dir(folder).expect("the folder of seeds") {
        let path = file.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let mut words = line.split_whitespace();
            let seed = words.next().and_then(|word| word.parse().ok()).expect("a seed");
            let class = words.next().and_then(Class::find).expect("a class");
            let word = words.next();
            let mut options = match word {
                Some("plain") => Options::plain(seed, class),
                Some("narrow") => Options::narrow(seed, class),
                _ => Options::draw(seed, class),
            };
            match word {
                Some("single") => options.set_reactors(1),
                Some("iser") => options.set_transport(MPA_FIRST, Usual::Yes),
                Some("iser-narrow") => options.set_transport(MPA_FIRST, Usual::No),
                Some("ether") => options.set_transport(Transport::Ether, Usual::No),
                Some("verbs") => options.set_transport(Transport::Verbs, Usual::No),
                Some("iser-login") => options.set_transport(LOGIN_FIRST, Usual::No),
                _ => {}
            }
            passes(&options);
            ran += 1;
        }
    }
    assert!(ran > 0, "no seed is kept");
}
