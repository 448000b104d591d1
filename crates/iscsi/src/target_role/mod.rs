// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The target role: a [`Login`] for each new connection, a [`Session`] once it is in full feature
//! phase.
//!
//! This file is the map: nothing is defined here, and no file below uses it. No file uses one that
//! uses it (`cargo xtask tidy` proves it); from the ground up they are:
//!
//! - words: `limits`, `names`, `lun`, `leaving`, `settings`, `parameters`, `admission`,
//!   `logged_in`, `pdu`, `output`, `reply`, `tags`;
//! - `login`, a machine of its own;
//! - machines of a session, whose state is theirs alone: `fence`, `numbering`, `ping`, `text`,
//!   `logout`, `termination`, `management`, what `recovery` has;
//! - machines of such machines: `connection`, `task`;
//! - `session`, the only one that knows more than one of them: it asks one and gives the answer to
//!   another.

mod admission;
mod connection;
mod ending;
mod fence;
mod leaving;
mod limits;
mod logged_in;
mod login;
mod logout;
mod lun;
mod management;
mod names;
mod numbering;
mod output;
mod parameters;
mod pdu;
mod ping;
mod recovery;
mod reply;
mod session;
mod settings;
mod tags;
mod task;
mod termination;
mod text;

pub use admission::Admission;
pub use admission::AdmissionRequest;
pub use admission::Authentication;
pub use admission::Redirection;
pub use ending::Ending;
pub use logged_in::LoggedIn;
pub use login::Login;
pub use login::LoginOutput;
pub use login::reason_of;
pub use names::ConnectionId;
pub use names::TargetRecord;
pub use output::Output;
pub use parameters::Parameters;
pub use parameters::RdmaParameters;
pub use parameters::TaskReporting;
pub use ping::Traffic;
pub use session::Session;
pub use settings::DigestPolicy;
pub use settings::Settings;
pub use settings::TargetReset;
pub use task::BufferNeed;
pub use task::Room;
