// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs simulations: one seed, or as many as fit into a time.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use clap::Parser;
use initiator::Begin;
use initiator::Checks;
use initiator::Transport;
use lunwire_sim::Class;
use lunwire_sim::Options;
use lunwire_sim::Tally;
use lunwire_sim::Usual;
use lunwire_sim::run;
use lunwire_sim::shrink;

/// Runs initiators and targets in one thread, from a seed.
#[derive(Debug, Parser)]
#[command(name = "lunwire-sim", version)]
struct Args {
    /// Run this seed alone and print what it drew.
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed of many; by default drawn from the clock.
    #[arg(long, conflicts_with = "seed")]
    from: Option<u64>,
    /// How long to go on, seconds of real time.
    #[arg(long, default_value_t = 60, conflicts_with = "seed")]
    time: u64,
    /// How many seeds at most.
    #[arg(long, default_value_t = u64::MAX, conflicts_with = "seed", hide_default_value = true)]
    count: u64,
    /// Faults of this class only: calm, network, target, host, disk, scarce, liar, mixed,
    /// cluster, paths or ether; by default each in turn.
    #[arg(long, value_parser = class)]
    class: Option<Class>,
    /// Draw no secrets, markers, recovery, further connections, rare commands and rests.
    #[arg(long)]
    plain: bool,
    /// Draw nothing of what was added last: types of reservations, data out of order, impostors,
    /// writebacks that fail, hogs, slow lines, several reactors, sessions without a network.
    #[arg(long, conflicts_with = "plain")]
    narrow: bool,
    /// All targets have so many reactors, instead of the one to three that are drawn; with 1, the
    /// systems are those that seeds gave before there were more.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=8))]
    reactors: Option<u8>,
    /// All sessions go over tcp, iser (MPA first), iser-login (the login first), verbs (RDMA
    /// adapters) or ether (raw Ethernet), instead of what is drawn.
    #[arg(long, value_parser = transport)]
    transport: Option<Transport>,
    /// Over that they have all the room that there is, and no rogue comes.
    #[arg(long, requires = "transport")]
    usual: bool,
    /// Stop at the first failure.
    #[arg(long, conflicts_with = "seed")]
    fail_fast: bool,
    /// Print each step.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Make the failing system smaller as long as it fails, and print it.
    #[arg(long, requires = "seed")]
    shrink: bool,
}

fn class(name: &str) -> Result<Class, String> {
    let names: Vec<&str> = Class::ALL.into_iter().map(Class::name).collect();
    Class::find(name).ok_or_else(|| format!("no class {name}; there are {}", names.join(", ")))
}

fn transport(name: &str) -> Result<Transport, &'static str> {
    match name {
        "tcp" => Ok(Transport::Tcp),
        "iser" => Ok(Transport::Iser(Begin::Rdma, Checks::Crc)),
        "iser-login" => Ok(Transport::Iser(Begin::Login, Checks::Crc)),
        "verbs" => Ok(Transport::Verbs),
        "ether" => Ok(Transport::Ether),
        _ => Err("tcp, iser, iser-login, verbs or ether"),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.seed {
        Some(seed) => one(seed, &args),
        None => many(&args),
    }
}

/// The class of a seed if none is asked for.
fn class_of(seed: u64, args: &Args) -> Class {
    let count = Class::ALL.len() as u64;
    let index = usize::try_from(seed % count).unwrap_or(0);
    args.class.unwrap_or(Class::ALL[index])
}

fn draw(seed: u64, args: &Args) -> Options {
    let class = class_of(seed, args);
    let mut options = match (args.plain, args.narrow) {
        (true, _) => Options::plain(seed, class),
        (_, true) => Options::narrow(seed, class),
        _ => Options::draw(seed, class),
    };
    if let Some(reactors) = args.reactors {
        options.set_reactors(reactors.into());
    }
    if let Some(transport) = args.transport {
        let is_usual = if args.usual { Usual::Yes } else { Usual::No };
        options.set_transport(transport, is_usual);
    }
    options
}

fn one(seed: u64, args: &Args) -> ExitCode {
    let options = draw(seed, args);
    print!("{options}");
    let outcome = run(&options, args.trace);
    println!("{}", outcome.tally);
    println!("trace {}", outcome.digest);
    match outcome.failure {
        Some(failure) => {
            println!("FAILED at {failure}");
            if args.shrink
                && let Some((smaller, failure)) = shrink(&options)
            {
                println!("\nsmaller:\n{smaller}FAILED at {failure}");
            }
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// A seed that panics is a seed that fails, and is named as such before the program ends.
fn tell_panics(running: Arc<Mutex<String>>, tell: impl Fn(&str) + Send + Sync + 'static) {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        let name = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        tell(&format!("FAILED {name}: {}", panicked.to_string().replace('\n', " ")));
        usual(panicked);
    }));
}

fn many(args: &Args) -> ExitCode {
    let begun = Instant::now();
    let first = args.from.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(0)
    });
    println!("seeds from {first}");
    let running = Arc::new(Mutex::new(String::new()));
    tell_panics(Arc::clone(&running), |line| println!("{line}"));
    let mut tally = Tally::default();
    let mut hours: BTreeMap<&str, Duration> = BTreeMap::new();
    let mut failures = 0;
    for seed in (first..).take(usize::try_from(args.count).unwrap_or(usize::MAX)) {
        if begun.elapsed() >= Duration::from_secs(args.time) {
            break;
        }
        let class = class_of(seed, args);
        let name = format!("seed {seed} class {}", class.name());
        running.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&name);
        let outcome = run(&draw(seed, args), false);
        tally.add(&outcome.tally);
        *hours.entry(class.name()).or_default() += outcome.tally.time;
        if let Some(failure) = outcome.failure {
            failures += 1;
            println!("FAILED {name}: {failure}");
            println!("  lunwire-sim --seed {seed} --class {}", class.name());
            if args.fail_fast {
                break;
            }
        }
    }
    println!("{tally}");
    let hours =
        hours.iter().map(|(name, time)| format!("{name} {:.2}", time.as_secs_f64() / 3600.0));
    println!("hours of each class: {}", hours.collect::<Vec<_>>().join(", "));
    println!("{failures} failures in {:.1} s", begun.elapsed().as_secs_f64());
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_panics_is_named() {
        let (running, told) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(vec![])));
        let kept = Arc::clone(&told);
        tell_panics(Arc::clone(&running), move |line| kept.lock().unwrap().push(line.to_owned()));
        "seed 17 class calm".clone_into(&mut running.lock().unwrap());
        assert!(panic::catch_unwind(|| panic!("no\nway")).is_err());
        drop(panic::take_hook());
        let told = told.lock().unwrap().clone();
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("FAILED seed 17 class calm: panicked at "), "{told:?}");
        assert!(told[0].ends_with(" no way"), "{told:?}");
    }
}
