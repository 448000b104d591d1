// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole systems in one thread from one seed; `main.rs` and tests call [`run()`].
//!
//! The pumps of both roles run as they are, with all that they join: only the engine is another one
//! (`port.rs`), over a world with its own time, network and disks. A seed draws everything
//! (`options.rs`); equal seeds give equal traces.
//!
//! ```text
//! host.rs --Pump--> port.rs --+                  +-- port.rs <--SteppedTarget-- machine.rs
//!    |                        +--> world.rs <----+
//! model.rs             wires.rs net.rs tap.rs disk.rs
//! ```
#![forbid(unsafe_code)]

mod adapters;
mod check;
mod claims;
mod copies;
mod disk;
mod elsewhere;
mod faults;
mod frames;
mod hasty;
mod hogs;
mod host;
mod impostors;
mod lies;
mod limiting;
mod locals;
mod logins;
mod machine;
mod model;
mod net;
mod news;
mod options;
mod orders;
mod port;
mod rados;
mod reactors;
mod report;
mod request;
mod resets;
mod resizing;
mod rng;
mod rogues;
mod run;
mod secrets;
mod settings;
mod shelf;
mod shrink;
mod shuffle;
mod silences;
mod stage;
mod tap;
mod tokens;
mod trace;
mod troubles;
mod wires;
mod world;

pub use options::AdapterPlan;
pub use options::Class;
pub use options::Fault;
pub use options::FramePlan;
pub use options::Hog;
pub use options::Keeping;
pub use options::LimitPlan;
pub use options::Options;
pub use options::Rados;
pub use options::Reactors;
pub use options::Remoteness;
pub use options::Resize;
pub use options::Rogue;
pub use options::Secrets;
pub use options::SessionPlan;
pub use options::TargetPlan;
pub use options::Trouble;
pub use options::Usual;
pub use report::Outcome;
pub use report::Tally;
pub use run::run;
pub use shrink::shrink;
pub use trace::Digest;
