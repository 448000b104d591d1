// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes to the start of a disk, reads it back, and gives it back.
//!
//! `cargo run -p lunwire-initiator --example disk iscsi://HOST/IQN/LUN`, where nothing on that disk
//! is of use to anybody.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use lunwire_initiator::Config;
use lunwire_initiator::Disk;
use lunwire_initiator::Initiator;
use lunwire_initiator::Options;
use lunwire_initiator::Url;

const BYTES: usize = 64 << 10;

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
    let url = Url::parse_disk(&std::env::args().nth(1).ok_or("usage: disk iscsi://HOST/IQN/LUN")?)?;
    let initiator = Initiator::start(&Config::default())?;
    let session = initiator.connect(Options::of_url(&url))?;
    let disk = Disk::open(&session, url.lun.ok_or("the URL names no LUN")?)?;
    println!("{} bytes in blocks of {}", disk.size(), disk.geometry().block);

    let written: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    disk.write_at(0, &written)?;
    disk.flush()?;
    println!("wrote {BYTES} bytes, and they are on stable storage");

    let mut read = vec![0; BYTES];
    disk.read_at(0, &mut read)?;
    println!("read them back: {}", if read == written { "the same" } else { "not the same" });

    let discarded = disk.discard(0, BYTES as u64)?;
    println!("discarded: {discarded}");
    session.logout();
    Ok(())
}
