// SPDX-License-Identifier: Apache-2.0 OR MIT
//! iSCSI disks for programs, without kernel modules: sessions, disks, queues. Applications call it.
//!
//! A [`Disk`] is read and written like a file. Its session comes back by itself when it is lost,
//! for a bounded time ([`Options::reconnect_patience`]), and what can be repeated is; an error is a
//! last word. No root, no daemon, no runtime: one thread of an [`Initiator`] serves any number of
//! sessions. What the signatures here name of other crates is re-exported, so that a program needs
//! this one alone. It runs on Linux, and a program depends on the repository:
//! `lunwire-initiator = { git = "..." }`, or on a copy of it: `{ path = "..." }`.
//!
//! ```
//! use lunwire_initiator::Config;
//! use lunwire_initiator::Disk;
//! use lunwire_initiator::Initiator;
//! use lunwire_initiator::Options;
//! use lunwire_initiator::Url;
//!
//! # let name = "iqn.2026-01.com.example:disks";
//! # let mut stores = target::Stores::new();
//! # let store = stores.open(&target::Spec::Memory { bytes: 1 << 20 })?;
//! # let identity = target::Identity::derive(name, 0, "EXAMPLE", "MEMORY");
//! # let unit = target::LogicalUnit::new(identity, store, 512)?;
//! # let node = target::Node::new(name.to_owned(), vec![(0, std::sync::Arc::new(unit))]);
//! # let portal = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
//! # let server = target::Target::start(target::Plan::new(vec![portal], vec![node], stores))?;
//! # let host = server.portals()[0];
//! let url = Url::parse_disk(&format!("iscsi://{host}/iqn.2026-01.com.example:disks/0"))?;
//! let initiator = Initiator::start(&Config::default())?;
//! let session = initiator.connect(Options::of_url(&url))?;
//! let disk = Disk::open(&session, 0)?;
//!
//! disk.write_at(4096, &[7; 512])?;
//! disk.flush()?;
//! let mut block = [0; 512];
//! disk.read_at(4096, &mut block)?;
//! assert_eq!(block, [7; 512]);
//! # drop((disk, session, initiator));
//! # server.stop(std::time::Duration::from_secs(2))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which way in
//!
//! | who | what | what ends an operation |
//! |---|---|---|
//! | a tool | [`Disk::read_at`], [`Disk::write_at`], [`Disk::flush`], ... | the call |
//! | an async program, of any runtime | [`Disk::start`] | a [`Transfer`], which is a future |
//! | a server with a poll loop (NBD, ublk) | [`Disk::submit`] | a [`CompletionQueue`], to poll |
//! | whoever sends SCSI commands | [`Session::post`], [`scsi`] | a [`Pending`], which is a future |
//! | whoever wants the last microsecond | [`Queue`] | an event, in the caller's own thread |
//!
//! Each of them may have several paths to its disk ([`Paths`]), or several disks as one
//! ([`Stripe`]), and does not know.
//!
//! All but the last hand over to the thread of the initiator. None allocates memory for an
//! operation once there were as many at a time.
//!
//! # Durability
//!
//! An operation that has ended is in the unit, and maybe only in its cache. It is on stable storage
//! when a later [`Operation::Flush`] has ended well, or at once if it is
//! [durable](Operation::durable). Targets lose what they had acknowledged when they lose their
//! power; sessions outlive that, and a flush behind it says so ([`Kind::WritesLost`]). So it does
//! when a unit tells that it failed to keep what it had acknowledged, and a durable operation, too.
//! Operations that are under way at the same time are carried out in any order.
//!
//! # Errors
//!
//! An [`Error`] is data: what ([`Kind`], with the sense data of the unit), at which target and
//! unit, in which command. Its text says it in one line, and leaves it to the program what to try.
//!
//! Whoever reads the code begins with `pump.rs`: it is the one place where engine, mover and iscsi
//! meet.
#![forbid(unsafe_code)]

mod completions;
mod connect;
mod disk;
mod error;
mod flush;
mod geometry;
mod ledger;
mod limits;
mod link;
mod modes;
mod multipath;
mod operation;
mod options;
mod pump;
mod queue;
mod request;
pub mod scsi;
mod session;
mod stage;
mod stopwatch;
mod stripe;
mod survey;
mod url;
mod witness;

pub use completions::Completion;
pub use completions::CompletionQueue;
pub use completions::DiskEvent;
pub use connect::Attempt;
pub use connect::Connected;
pub use connect::Connector;
pub use connect::Line;
pub use connect::LocalEnd;
pub use connect::LocalTarget;
pub use disk::Disk;
pub use disk::Opening;
pub use disk::Transfer;
pub use error::Error;
pub use error::Kind;
pub use flush::Flushed;
pub use geometry::Geometry;
pub use ledger::Fate;
pub use ledger::FlushMark;
pub use ledger::Generation;
pub use ledger::Ledger;
pub use multipath::PathChange;
pub use multipath::PathPolicy;
pub use multipath::Paths;
pub use operation::Chunks;
pub use operation::Durability;
pub use operation::Operation;
pub use operation::Space;
pub use options::Begin;
pub use options::Config;
pub use options::Options;
pub use options::OptionsError;
pub use options::Transport;
pub use options::default_initiator;
pub use pump::Pump;
pub use queue::InterruptHandle;
pub use queue::Queue;
pub use queue::QueueUnit;
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
pub use session::Unit;
pub use stopwatch::Times;
pub use stripe::Stripe;
pub use stripe::StripeError;
pub use url::Address;
pub use url::AddressError;
pub use url::Auth;
pub use url::Frames;
pub use url::URL_OPTIONS;
pub use url::Url;
pub use url::UrlError;
pub use url::may_hold_secrets;
pub use url::secrets_in;
pub use url::without_secrets;
pub use witness::Nexus;
pub use witness::Witness;

// What the signatures above name of other crates, so that nobody needs those at the same versions.
// Whoever brings a port of their own for a `Pump` finds its parts in `engine` and `clock`.
pub use buf::Buf;
pub use buf::Pool;
pub use buf::Slice;
pub use capture::Capture;
pub use clock;
pub use engine;
pub use engine::Choice;
pub use engine::Waker;
pub use engine::laps::Layer as LayerTime;
pub use iscsi::chap::Account;
pub use iscsi::chap::Algorithm;
pub use iscsi::chap::Credentials;
pub use iscsi::chap::CredentialsError;
pub use iscsi::chap::Secret;
pub use iscsi::chap::SecretError;
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
pub use mover::iser::Checks;
pub use station::PlaceError;
pub use station::settle;
pub use wire::iscsi::Cdb;
pub use wire::iscsi::Isid;
pub use wire::iscsi::LunField;
pub use wire::iscsi::Residual;
pub use wire::scsi::Sense;
pub use wire::scsi::SenseKey;
pub use wire::scsi::alua::AccessState;
pub use wire::scsi::protection::ProtectionType;

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
