// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSCSI disks without kernel modules; applications, the command line and the laboratory call it.
//!
//! There are two ways in:
//!
//! - [`Queue`]: post requests, reap events, in one thread and without a hand-over; for whoever
//!   wants the last microsecond.
//! - [`Initiator`], [`Session`] and [`Disk`]: a thread of its own serves any number of sessions;
//!   calls block, or give futures that any executor can run.
//!
//! Both reconnect by themselves for a bounded time and repeat what can be repeated. Read `pump.rs`
//! first: it is the one place where engine, mover and iscsi meet.
#![forbid(unsafe_code)]

mod completions;
mod connect;
mod disk;
mod error;
mod geometry;
mod ledger;
mod limits;
mod link;
mod operation;
mod options;
mod pump;
mod queue;
mod request;
pub mod scsi;
mod session;
mod stopwatch;
mod url;

pub use completions::Completion;
pub use completions::CompletionQueue;
pub use completions::DiskEvent;
pub use connect::Attempt;
pub use connect::Connected;
pub use connect::Connector;
pub use disk::Disk;
pub use disk::Transfer;
pub use error::Error;
pub use error::Kind;
pub use geometry::Geometry;
pub use ledger::FlushMark;
pub use ledger::Ledger;
pub use operation::Chunks;
pub use operation::Durability;
pub use operation::Operation;
pub use operation::Space;
pub use options::Config;
pub use options::Options;
pub use options::default_initiator;
pub use pump::Pump;
pub use queue::Queue;
pub use request::Data;
pub use request::Done;
pub use request::Event;
pub use request::Management;
pub use request::Oddity;
pub use request::Request;
pub use request::Retry;
pub use request::SessionId;
pub use session::Initiator;
pub use session::Login;
pub use session::Pending;
pub use session::Session;
pub use stopwatch::Times;
pub use url::Auth;
pub use url::URL_OPTIONS;
pub use url::Url;
pub use url::UrlError;
pub use url::may_hold_secrets;
pub use url::secrets_in;
pub use url::without_secrets;

// What the signatures above name of other crates, so that nobody needs those at the same versions.
// Whoever brings a port of their own for a `Pump` finds its parts in `engine` and `clock`.
pub use buf::Buf;
pub use buf::Pool;
pub use buf::Slice;
pub use clock;
pub use engine;
pub use engine::Choice;
pub use engine::Waker;
pub use engine::laps::Layer as LayerTime;
pub use iscsi::chap::Account;
pub use iscsi::chap::Algorithm;
pub use iscsi::chap::Secret;
pub use iscsi::initiator::DeclareError;
pub use iscsi::initiator::DigestOffer;
pub use iscsi::initiator::Ending;
pub use iscsi::initiator::LoginError;
pub use iscsi::initiator::Policy;
pub use iscsi::initiator::Refused;
pub use iscsi::initiator::SessionError;
pub use iscsi::initiator::Settings;
pub use iscsi::initiator::Step;
pub use iscsi::initiator::discovery::Discovered;
pub use iscsi::initiator::discovery::DiscoveryError;
pub use iscsi::name::NameError;
pub use wire::iscsi::Cdb;
pub use wire::iscsi::Isid;
pub use wire::iscsi::LunField;
pub use wire::iscsi::Residual;
pub use wire::scsi::Sense;
pub use wire::scsi::SenseKey;
pub use wire::scsi::protection::ProtectionType;
