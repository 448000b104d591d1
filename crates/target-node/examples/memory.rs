// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves 64 MiB of memory on the loopback address until standard input ends.
//!
//! `cargo run -p lunwire-target --example memory`
#![forbid(unsafe_code)]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lunwire_target::Identity;
use lunwire_target::LogicalUnit;
use lunwire_target::Node;
use lunwire_target::Plan;
use lunwire_target::Stores;
use lunwire_target::Target;

const NAME: &str = "iqn.2026-01.com.example:memory";

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
    let mut stores = Stores::new();
    let store = stores.open(&"memory:64M".parse()?)?;
    let unit = LogicalUnit::new(Identity::derive(NAME, 0, "EXAMPLE", "MEMORY"), store, 512)?;
    let node = Node::new(NAME.to_owned(), vec![(0, Arc::new(unit))]);
    let portal = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    let target = Target::start(Plan::new(vec![portal], vec![node], stores))?;
    for portal in target.portals() {
        println!("iscsi://{portal}/{NAME}/0");
    }
    io::copy(&mut io::stdin(), &mut io::sink())?;
    target.stop(Duration::from_secs(2))?;
    Ok(())
}
