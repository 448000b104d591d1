// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The raw yardstick of `bench/run`: a server and a load on our own engine that exchange frames of
//! iSCSI's sizes (48 bytes, with the data of a block behind one of them) and nothing else.
//!
//! What the two reach together is what this machine, its kernel and our engine can do; what the
//! target and the initiator do not reach of it is the price of the protocol. Both sides move data
//! as the product does: the server sends blocks from 1 GiB of memory and puts what comes there,
//! the load puts what comes into a buffer of its own.
#![forbid(unsafe_code)]

mod frame;
mod load;
mod serve;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use engine::Choice;
use engine::epoll::Epoll;
use engine::uring::Uring;

const USAGE: &str = "\
usage: lunwire-bench-raw serve [--engine auto|uring|epoll]
       lunwire-bench-raw load ADDRESS [--engine E] [--block BYTES] [--depth N] [--connections N]
                         [--write] [--sequential] [--seconds S]
  serve          prints its address, then serves until it is killed
  --depth N      requests at once on each connection (1)";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.split_first() {
        Some((first, rest)) if first == "serve" => parse(rest).map(|(options, _)| serve(&options)),
        Some((first, rest)) if first == "load" => parse(rest).and_then(|(options, address)| {
            let address = address?;
            Some(load(&options, &address))
        }),
        _ => None,
    };
    match done {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("lunwire-bench-raw: {error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// What the words of the command line ask for.
#[derive(Debug)]
struct Options {
    engine: Choice,
    load: load::Load,
}

fn parse(words: &[String]) -> Option<(Options, Option<String>)> {
    let load = load::Load {
        block: 4096,
        depth: 1,
        connections: 1,
        write: false,
        sequential: false,
        time: Duration::from_secs(1),
    };
    let mut options = Options { engine: Choice::Auto, load };
    let mut address = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--write" => options.load.write = true,
            "--sequential" => options.load.sequential = true,
            "--block" => {
                let fits = |block: &u32| frame::BLOCKS.contains(block);
                options.load.block = words.next()?.parse().ok().filter(fits)?;
            }
            "--depth" => options.load.depth = positive(words.next()?)?,
            "--connections" => options.load.connections = positive(words.next()?)?,
            "--seconds" => {
                let seconds = words.next()?.parse().ok()?;
                options.load.time = Duration::try_from_secs_f64(seconds).ok()?;
            }
            "--engine" => {
                options.engine = match words.next()?.as_str() {
                    "auto" => Choice::Auto,
                    "uring" => Choice::Uring,
                    "epoll" => Choice::Epoll,
                    _ => return None,
                }
            }
            _ if address.is_none() && !word.starts_with('-') => address = Some(word.clone()),
            _ => return None,
        }
    }
    Some((options, address))
}

fn positive(word: &str) -> Option<usize> {
    word.parse().ok().filter(|number| *number > 0)
}

fn serve(options: &Options) -> io::Result<()> {
    let config = engine::Config::default();
    match engine::choose(options.engine) {
        Choice::Epoll => serve::Server::new(Epoll::new(&config)?)?.run(),
        _ => serve::Server::new(Uring::new(&config)?)?.run(),
    }
}

fn load(options: &Options, address: &str) -> io::Result<()> {
    let config = engine::Config::default();
    let outcome = match engine::choose(options.engine) {
        Choice::Epoll => load::run(Epoll::new(&config)?, options.load, address)?,
        _ => load::run(Uring::new(&config)?, options.load, address)?,
    };
    println!("{outcome}");
    Ok(())
}
