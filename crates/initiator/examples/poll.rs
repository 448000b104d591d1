// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a whole disk in one thread, many operations at a time, as a server with a poll loop does.
//!
//! `cargo run -p lunwire-initiator --example poll iscsi://HOST/IQN/LUN`
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use lunwire_initiator::Completion;
use lunwire_initiator::CompletionQueue;
use lunwire_initiator::Config;
use lunwire_initiator::Disk;
use lunwire_initiator::Initiator;
use lunwire_initiator::Operation;
use lunwire_initiator::Options;
use lunwire_initiator::Url;

const DEPTH: usize = 32;
const BYTES: u64 = 256 << 10;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let url = Url::parse_disk(&std::env::args().nth(1).ok_or("usage: poll iscsi://HOST/IQN/LUN")?)?;
    let initiator = Initiator::start(&Config::default())?;
    let session = initiator.connect(Options::of_url(&url))?;
    let disk = Disk::open(&session, url.lun.ok_or("the URL names no LUN")?)?;
    let queue = CompletionQueue::new()?;
    disk.watch(&queue, 0);

    let (mut next, mut under_way, mut read) = (0, 0, 0);
    let mut entries = Vec::new();
    loop {
        // Its size may change while it is read.
        while under_way < DEPTH && next < disk.size() {
            let length = BYTES.min(disk.size() - next);
            disk.submit(&queue, next, Operation::read(next, length))?;
            (next, under_way) = (next + length, under_way + 1);
        }
        if under_way == 0 {
            break;
        }
        // Whoever has other descriptors polls this one beside them: the queue is `AsFd`.
        if queue.reap_all(&mut entries) == 0 && !queue.wait(None) {
            continue;
        }
        for entry in entries.drain(..) {
            match entry {
                Completion::Ended { tag, result } => {
                    let data = result.map_err(|error| format!("at byte {tag}: {error}"))?;
                    (under_way, read) = (under_way - 1, read + data.bytes());
                }
                Completion::Event { event, .. } => println!("{event:?}"),
                _ => {}
            }
        }
    }
    println!("read {read} bytes, {DEPTH} operations at a time");
    session.logout();
    Ok(())
}
