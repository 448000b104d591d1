// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The harnesses with a seeded generator, for machines without a nightly compiler.
//! `FUZZ_SECONDS` (1) is the time of each, `FUZZ_SEED` (1) the first seed; a failure names its own.

use std::time::Duration;
use std::time::Instant;

const INPUT_LEN_MAX: u64 = 2048;

/// SplitMix64.
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Bytes of which many are small, as fields are.
    fn input(&mut self) -> Vec<u8> {
        let length = self.next() % INPUT_LEN_MAX;
        (0..length)
            .map(|_| {
                let [low, mask, ..] = self.next().to_le_bytes();
                if mask & 3 == 0 { low } else { low & 15 }
            })
            .collect()
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn drive(harness: fn(&[u8])) {
    let limit = Duration::from_secs(number("FUZZ_SECONDS", 1));
    let begin = Instant::now();
    let mut seed = number("FUZZ_SEED", 1);
    loop {
        let input = Generator(seed).input();
        if let Err(panic) = std::panic::catch_unwind(|| harness(&input)) {
            eprintln!("seed {seed}: FUZZ_SEED={seed} FUZZ_SECONDS=0 repeats it");
            std::panic::resume_unwind(panic);
        }
        seed += 1;
        if begin.elapsed() >= limit {
            break;
        }
    }
    println!("{} inputs", seed - number("FUZZ_SEED", 1));
}

#[test]
fn http() {
    drive(lunwire_fuzz::http);
}

#[test]
fn login() {
    drive(lunwire_fuzz::login);
}

#[test]
fn full_feature() {
    drive(lunwire_fuzz::full_feature);
}

#[test]
fn text_keys() {
    drive(lunwire_fuzz::text_keys);
}

#[test]
fn every_cdb() {
    drive(lunwire_fuzz::every_cdb);
}

#[test]
fn target_machine() {
    drive(lunwire_fuzz::target_machine);
}

#[test]
fn initiator_machine() {
    drive(lunwire_fuzz::initiator_machine);
}

#[test]
fn isns_reply() {
    drive(lunwire_fuzz::isns_reply);
}

#[test]
fn iser_header() {
    drive(lunwire_fuzz::iser_header);
}

#[test]
fn iser_target() {
    drive(lunwire_fuzz::iser_target);
}

#[test]
fn iser_initiator() {
    drive(lunwire_fuzz::iser_initiator);
}

#[test]
fn inputs_reach_what_an_initiator_of_iser_does() {
    let mut reached = lunwire_fuzz::InitiatorReached::default();
    for seed in 1..=2000 {
        lunwire_fuzz::iser_initiator_reaches(&Generator(seed).input(), &mut reached);
    }
    let all = format!("{reached:?}");
    println!("{all}");
    for count in [reached.ended, reached.whole, reached.violations, reached.responses] {
        assert!(count >= 100, "{all}");
    }
}

/// Behind the start there are commands, data each way, and each layer's reasons to end.
#[test]
fn inputs_reach_what_iser_does() {
    let mut reached = lunwire_fuzz::Reached::default();
    for seed in 1..=2000 {
        lunwire_fuzz::iser_target_reaches(&Generator(seed).input(), &mut reached);
    }
    let all = format!("{reached:?}");
    println!("{all}");
    for count in [reached.commands, reached.staged, reached.bursts, reached.reads, reached.writes] {
        assert!(count >= 100, "{all}");
    }
    assert!(reached.failed > 0 && reached.rejected > 0, "{all}");
    for layer in 0..3 {
        assert!(reached.ends.iter().any(|[first, _]| first >> 4 == layer), "{all}");
    }
    assert!(reached.ends.len() >= 6, "{all}");
}

#[test]
fn iwarp_headers() {
    drive(lunwire_fuzz::iwarp_headers);
}

#[test]
fn nbd_client() {
    drive(lunwire_fuzz::nbd_client);
}

#[test]
fn nbd_server() {
    drive(lunwire_fuzz::nbd_server);
}

#[test]
fn mpa_stream() {
    drive(lunwire_fuzz::mpa_stream);
}

#[test]
fn ether_frames() {
    drive(lunwire_fuzz::ether_frames);
}

#[test]
fn queue_pair() {
    drive(lunwire_fuzz::queue_pair);
}

#[test]
fn mover_stream() {
    drive(lunwire_fuzz::mover_stream);
}
