// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves a store of one's own on the loopback address until standard input ends: bytes that this
//! program has in a vector.
//!
//! `cargo run -p lunwire-target --example own_store`
#![forbid(unsafe_code)]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use lunwire_target::Geometry;
use lunwire_target::Identity;
use lunwire_target::Io;
use lunwire_target::IoResult;
use lunwire_target::LogicalUnit;
use lunwire_target::Node;
use lunwire_target::Op;
use lunwire_target::OpError;
use lunwire_target::Outcome;
use lunwire_target::Plan;
use lunwire_target::Run;
use lunwire_target::Slice;
use lunwire_target::Space;
use lunwire_target::Store;
use lunwire_target::Stores;
use lunwire_target::Submitted;
use lunwire_target::Target;

const NAME: &str = "iqn.2026-01.com.example:own";
const BYTES: usize = 16 << 20;

/// All reactors share it. What takes longer than a lock is answered later, from any thread
/// (`lunwire_target::foreign`), or is given to the engine as an [`Io`].
#[derive(Debug)]
struct Own {
    bytes: Mutex<Vec<u8>>,
}

impl Own {
    fn run(&self, op: &Op) -> Result<Outcome, OpError> {
        self.geometry().check(op)?;
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match op {
            Op::Read { offset, length } => {
                let range = range(*offset, u64::from(*length))?;
                Outcome::Data(Slice::from(bytes.get(range).ok_or(OpError::Range)?.to_vec()))
            }
            Op::Write { offset, data, .. } => {
                let range = range(*offset, data.len() as u64)?;
                data.copy_to(bytes.get_mut(range).ok_or(OpError::Range)?);
                Outcome::Done
            }
            Op::Clear { offset, length, .. } => {
                bytes.get_mut(range(*offset, *length)?).ok_or(OpError::Range)?.fill(0);
                Outcome::Done
            }
            Op::ProvisioningStatus { length, .. } => {
                Outcome::ProvisioningStatus(Run { space: Space::Mapped, length: *length })
            }
            Op::Flush => Outcome::Done,
            // What is not offered (`compare_unit`, `writes_same`) the target does by the others.
            Op::CompareAndWrite { .. } | Op::WriteSame { .. } => {
                return Err(OpError::Unsupported);
            }
        })
    }
}

fn range(offset: u64, length: u64) -> Result<Range<usize>, OpError> {
    let at = |place: u64| usize::try_from(place).map_err(|_| OpError::Range);
    Ok(at(offset)?..at(offset.saturating_add(length))?)
}

impl Store for Own {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: BYTES as u64,
            read_only: false,
            discard_granularity: None,
            anchors: false,
            volatile_cache: false,
            physical_block: 4096,
            rotational: false,
        }
    }

    fn submit(&self, op: &Op) -> Submitted {
        self.run(op).into()
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        // No Io was asked for.
        Submitted::Done(Outcome::Failed(OpError::Internal))
    }
}

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
    let store = Arc::new(Own { bytes: Mutex::new(vec![0; BYTES]) });
    let unit = LogicalUnit::new(Identity::derive(NAME, 0, "EXAMPLE", "OWN"), store, 512)?;
    let node = Node::new(NAME.to_owned(), vec![(0, Arc::new(unit))]);
    let portal = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    let target = Target::start(Plan::new(vec![portal], vec![node], Stores::new()))?;
    for portal in target.portals() {
        println!("iscsi://{portal}/{NAME}/0");
    }
    io::copy(&mut io::stdin(), &mut io::sink())?;
    target.stop(Duration::from_secs(2))?;
    Ok(())
}
