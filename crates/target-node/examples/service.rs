// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves a file to one initiator that proves who it is, with two reactors, and one more disk that
//! is added while it runs. What hosts ask to keep is kept; SIGTERM and SIGINT end it.
//!
//! `SERVICE_USER=... SERVICE_SECRET=... cargo run -p lunwire-target --example service FOLDER
//! INITIATOR`
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lunwire_target::AccessRule;
use lunwire_target::Account;
use lunwire_target::Algorithm;
use lunwire_target::AuthenticationPolicy;
use lunwire_target::Credentials;
use lunwire_target::Demand;
use lunwire_target::Identity;
use lunwire_target::IdentityPolicy;
use lunwire_target::Kept;
use lunwire_target::LogicalUnit;
use lunwire_target::NewLun;
use lunwire_target::Node;
use lunwire_target::Plan;
use lunwire_target::Secret;
use lunwire_target::Sought;
use lunwire_target::Spec;
use lunwire_target::StateFile;
use lunwire_target::StateFolder;
use lunwire_target::Stores;
use lunwire_target::Target;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

const NAME: &str = "iqn.2026-01.com.example:service";

fn main() -> ExitCode {
    // What the library has to say comes through `tracing`.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    const USAGE: &str = "usage: service FOLDER INITIATOR";
    let mut words = std::env::args().skip(1);
    let (folder, host) = (words.next().ok_or(USAGE)?, words.next().ok_or(USAGE)?);
    let state = Path::new(&folder).join("state");
    let mut signals = Signals::new([SIGTERM, SIGINT])?;

    // Nobody else has the folder as long as this is there.
    let _ours = StateFolder::take(&state)?;
    let mut stores = Stores::new();
    let spec: Spec = format!("file:{folder}/disk.img,size=64M").parse()?;
    let unit = open(&mut stores, &spec, 0, &state)?;
    let mut node = Node::new(NAME.to_owned(), vec![(0, Arc::new(unit))]);
    let secret = std::env::var("SERVICE_SECRET")?;
    let theirs =
        Credentials::new(std::env::var("SERVICE_USER")?, Secret::from_text(secret.as_bytes())?)?;
    let account = Arc::new(Account::new(theirs, None)?);
    // With a rule, nobody else may log in; `luns` would say which disks this one sees.
    node.access = vec![AccessRule {
        initiator: host,
        luns: None,
        account: Some(account),
        target_reset: None,
    }];
    node.authentication = AuthenticationPolicy {
        demand: Demand::Required,
        algorithms: Algorithm::ALL.to_vec(),
        account: None,
    };
    let portal = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    let plan = Plan { reactors: 2, ..Plan::new(vec![portal], vec![node], stores) };
    let target = Target::start(plan)?;

    let more: Spec = "memory:16M".parse()?;
    let number = target
        .add_lun(NAME, NewLun::default(), |stores, number| open(stores, &more, number, &state))?;
    for portal in target.portals() {
        println!("iscsi://{portal}/{NAME}/0");
        println!("iscsi://{portal}/{NAME}/{number}");
    }
    if signals.forever().next().is_some() {
        // Initiators get two seconds to log out; then all is flushed.
        target.stop(Duration::from_secs(2))?;
    }
    Ok(())
}

/// A disk with an identity of its own: hosts know it again wherever it is served, because its
/// number is kept beside the file. (`Identity::derive` makes one of the place, target and LUN:
/// another disk in that place looks the same to hosts.) One in memory has a new number each time.
fn open(
    stores: &mut Stores,
    spec: &Spec,
    lun: u16,
    state: &Path,
) -> Result<LogicalUnit, Box<dyn Error>> {
    let store = stores.open(spec)?;
    let sought = Sought { target: NAME, lun, policy: IdentityPolicy::Own, state_dir: Some(state) };
    let number = stores.disk_number(&*store, spec, sought)?;
    let mut unit = LogicalUnit::new(Identity::of(number.number, "EXAMPLE", "SERVICE"), store, 512)?;
    // Reservations and mode parameters that hosts ask to keep; of a disk that is gone with this
    // process nobody would find them.
    if number.lasting {
        for kept in Kept::ALL {
            let (file, before) = StateFile::open(state, unit.identity(), kept)?;
            unit = unit.with_keeper(kept, Arc::new(file), before.as_deref())?;
        }
    }
    Ok(unit)
}
