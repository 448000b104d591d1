// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flows in virtual time: what begins in any window, who waits how long, and who gets how much.

use proptest::prelude::*;

use super::*;

fn rates(operations: u64, bytes: u64) -> Rates {
    Rates { operations: NonZeroU64::new(operations), bytes: NonZeroU64::new(bytes) }
}

fn meter(rates: Rates) -> Arc<Meter> {
    let meter = Meter::default();
    meter.set(rates);
    Arc::new(meter)
}

/// A flow, with the commands that it will have: when they come, and their bytes.
struct Flow {
    standing: Standing,
    commands: Vec<(u64, u64)>,
    next: usize,
    look: Instant,
}

/// What has begun: when, of which flow, and bytes.
type Begun = Vec<(u64, usize, u64)>;

/// Lets all flows have their commands, in the order of their looks, until `end`.
fn run(meter: &Arc<Meter>, flows: &[Vec<(u64, u64)>], end: u64) -> Begun {
    let mut flows: Vec<Flow> = flows
        .iter()
        .map(|commands| Flow {
            standing: Standing::default(),
            commands: commands.clone(),
            next: 0,
            look: Instant(0),
        })
        .collect();
    let mut begun = Begun::new();
    loop {
        let wants = flows.iter().enumerate().filter_map(|(number, flow)| {
            let (came, _) = flow.commands.get(flow.next)?;
            Some((flow.look.0.max(*came), number))
        });
        let Some((now, number)) = wants.min().filter(|(now, _)| *now <= end) else { break };
        let flow = &mut flows[number];
        let bytes = flow.commands[flow.next].1;
        match flow.standing.ask(meter, Instant(now), bytes) {
            Some(look) => {
                assert!(look.0 > now, "it looks later");
                assert!(look.since(Instant(now)) <= LOOK_MAX);
                flow.look = look;
            }
            None => {
                begun.push((now, number, bytes));
                flow.next += 1;
            }
        }
    }
    begun
}

fn count(number: u64) -> usize {
    usize::try_from(number).expect("a small one")
}

/// The most that begins in any window beyond what the rate gives in it, in units of a second of
/// the rate.
fn most_beyond(begun: &[(u64, u64)], rate: u64) -> f64 {
    let mut most = 0_f64;
    for (at, (first, _)) in begun.iter().enumerate() {
        let mut sum = 0;
        for (now, units) in &begun[at..] {
            sum += units;
            let window = (now - first) as f64 / 1e9;
            most = most.max(sum as f64 / rate as f64 - window);
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_window_has_more_than_rate_and_burst_and_nobody_starves(
        operations in 0_u64..2_000,
        bytes in prop_oneof![Just(0), 50_000_u64..20_000_000],
        flows in proptest::collection::vec(
            proptest::collection::vec((0_u64..2_000_000_000, 0_u64..300_000), 1..60),
            1..6,
        ),
    ) {
        let mut flows = flows;
        flows.iter_mut().for_each(|flow| flow.sort_unstable());
        let meter = meter(rates(operations, bytes));
        let begun = run(&meter, &flows, u64::MAX);
        let count: usize = flows.iter().map(Vec::len).sum();
        prop_assert_eq!(begun.len(), count, "each begins once");
        prop_assert!(meter.inner().line.is_empty());
        let most = flows.iter().flatten().map(|(_, bytes)| *bytes).max().unwrap_or_default();
        if operations > 0 {
            let units: Vec<(u64, u64)> = begun.iter().map(|(now, ..)| (*now, 1)).collect();
            let burst = BURST.as_secs_f64().max(1.0 / operations as f64);
            prop_assert!(most_beyond(&units, operations) <= burst + 1e-6);
        }
        if bytes > 0 {
            let units: Vec<(u64, u64)> = begun.iter().map(|(now, _, of)| (*now, *of)).collect();
            let burst = BURST.as_secs_f64().max(most as f64 / bytes as f64);
            prop_assert!(most_beyond(&units, bytes) <= burst + 1e-6);
        }
        // What all of them cost is what the last one waits for at most.
        let all: u64 = flows
            .iter()
            .flatten()
            .map(|(_, of)| rates(operations, bytes).costs(*of).into_iter().max().unwrap_or(0))
            .sum();
        let latest = flows.iter().flatten().map(|(came, _)| *came).max().unwrap_or_default();
        let end = begun.iter().map(|(now, ..)| *now).max().unwrap_or_default();
        prop_assert!(end <= latest + 2 * all + 1_000_000_000, "{} after {}", end, latest);
    }

    #[test]
    fn flows_that_always_want_more_get_the_same(
        sizes in proptest::collection::vec(512_u64..1_000_000, 2..8),
        rate in 2_000_000_u64..50_000_000,
    ) {
        let flows: Vec<Vec<(u64, u64)>> =
            sizes.iter().map(|size| vec![(0, *size); count(200_000_000 / size)]).collect();
        let end = 4_000_000_000;
        let begun = run(&meter(rates(0, rate)), &flows, end);
        let got = |flow: usize| {
            let its = begun.iter().filter(|(_, of, _)| *of == flow);
            its.map(|(.., bytes)| bytes).sum()
        };
        let all: Vec<u64> = (0..sizes.len()).map(got).collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        // Who comes first has all of the burst.
        let slack = (SLACK * 2 + BURST).as_secs_f64() * rate as f64;
        let largest = *sizes.iter().max().unwrap();
        let apart = (most - least) as f64;
        prop_assert!(apart <= 2.0 * largest as f64 + slack, "{:?} of {}", all, rate);
        // And all of the rate is used.
        let sum: u64 = all.iter().sum();
        let least = 0.95 * 4.0 * rate as f64 - largest as f64;
        prop_assert!(sum as f64 >= least, "{} of {}", sum, rate);
    }
}

#[test]
fn a_rest_is_followed_by_a_burst_and_no_more() {
    let meter = meter(rates(100, 0));
    let flow = vec![(5_000_000_000, 0); 40];
    let begun = run(&meter, &[flow], u64::MAX);
    let at_once = begun.iter().filter(|(now, ..)| *now == 5_000_000_000).count();
    assert_eq!(at_once, 10, "a tenth of a second");
    assert_eq!(begun.last().map(|(now, ..)| *now), Some(5_300_000_000));
    assert_eq!(meter.totals(), Totals { begun: 40, held: 30 });
}

#[test]
fn what_costs_more_than_a_burst_begins_with_a_full_bucket() {
    let flow = vec![(0, 1_000_000), (0, 1), (0, 1_000_000)];
    let begun = run(&meter(rates(0, 1_000_000)), &[flow], u64::MAX);
    let times: Vec<u64> = begun.iter().map(|(now, ..)| now / 1_000_000).collect();
    assert_eq!(times, [0, 900, 1000]);
}

#[test]
fn who_goes_leaves_its_place() {
    let meter = meter(rates(10, 0));
    let (mut first, mut second) = (Standing::default(), Standing::default());
    assert_eq!(first.ask(&meter, Instant(0), 0), None);
    assert!(first.ask(&meter, Instant(0), 0).is_some());
    assert!(second.ask(&meter, Instant(0), 0).is_some());
    assert_eq!(meter.inner().line.len(), 2);
    drop(first);
    second.leave();
    assert!(meter.inner().line.is_empty());
    meter.refund(0);
    assert_eq!(second.ask(&meter, Instant(0), 0), None, "nothing is paid for");
}

#[test]
fn who_waits_at_a_limit_that_is_lifted_goes_at_once() {
    let meter = meter(rates(1, 1));
    let mut flow = Standing::default();
    assert_eq!(flow.ask(&meter, Instant(0), 1 << 40), None);
    assert!(flow.ask(&meter, Instant(0), 1 << 40).is_some());
    meter.set(Rates::default());
    assert_eq!(flow.ask(&meter, Instant(0), 1 << 40), None);
    assert!(meter.inner().line.is_empty());
}

#[test]
fn no_cost_overflows() {
    let meter = meter(rates(1, 1));
    let mut flow = Standing::default();
    for now in [0, u64::MAX - 5, u64::MAX] {
        for _ in 0..3 {
            flow.ask(&meter, Instant(now), u64::MAX);
        }
    }
}
