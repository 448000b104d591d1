// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An iSCSI target for programs: disks of memory, files and devices; daemons and tools call it.
//!
//! A [`Plan`] says what is served, [`Target::start`] opens the
//! portals and starts a thread for each reactor, and [`Target::stop`] drains, says goodbye and
//! flushes. What the signatures here name of other crates is re-exported, so that a program needs
//! this one alone. It runs on Linux, and a program depends on the repository:
//! `lunwire-target = { git = "..." }`, or on a copy of it: `{ path = "..." }`.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use lunwire_target::Identity;
//! use lunwire_target::LogicalUnit;
//! use lunwire_target::Node;
//! use lunwire_target::Plan;
//! use lunwire_target::Spec;
//! use lunwire_target::Stores;
//! use lunwire_target::Target;
//!
//! let name = "iqn.2026-01.com.example:disks";
//! let mut stores = Stores::new();
//! let store = stores.open(&Spec::Memory { bytes: 64 << 20 })?;
//! let identity = Identity::derive(name, 0, "EXAMPLE", "MEMORY");
//! let unit = LogicalUnit::new(identity, store, 512)?;
//!
//! let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
//! let node = Node::new(name.to_owned(), vec![(0, Arc::new(unit))]);
//! let target = Target::start(Plan::new(vec![loopback.into()], vec![node], stores))?;
//! assert_ne!(target.portals()[0].port(), 0, "a free one was picked");
//!
//! target.stop(Duration::from_secs(2))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//!
//! - What is served: [`Node`] (a target: its disks, who may use it), [`Stores`] and [`Spec`] (where
//!   the blocks are: `"file:/disk.img"`, `"memory:1G"`, with filters in front), [`LogicalUnit`]
//!   (what hosts see of them).
//! - A store of one's own: [`Store`], with [`Op`] and what it answers with; `examples/own_store.rs`
//!   is a whole one.
//! - An identity of a disk's own: [`Stores::disk_number`] and [`Identity::of`]; an example
//!   is `examples/service.rs`, with CHAP, an access list, kept state and an end by signals.
//! - While it runs: [`Target::targets`] (what is served), [`Target::figures`] (what each reactor
//!   has and has counted), [`Target::change`] (targets, access, portals), [`Target::add_lun`],
//!   [`Target::remove_lun`], [`Target::resize`], [`Target::sessions`], [`Target::drop_session`].
//! - Who proves what: [`AuthenticationPolicy`], [`AccessRule`], [`Account`].
//! - Without threads and sockets of its own: [`SteppedTarget`], over ports of the caller's.
//!
//! Whoever reads the code begins with `pump.rs`: it is the one place where engine, mover, iscsi,
//! scsi and store meet.
#![forbid(unsafe_code)]

mod adapters;
mod answers;
mod authentication;
mod catalogue;
mod change;
mod device;
mod ends;
mod events;
mod failure;
mod figures;
mod identity;
mod inventory;
mod isns;
mod keep;
mod limits;
mod listing;
mod looking;
mod mail;
mod node;
mod occupied;
mod plan;
mod pump;
mod rdma;
mod reactor;
mod registry;
mod served;
mod silences;
mod slow;
mod state_folder;
mod stepped;
mod stopwatch;
mod stores;
mod strangers;
mod table;
mod target;
mod traces;
mod volume;

// What the signatures above name of other crates, so that nobody needs those at the same versions.
// Whoever brings a port of their own for a `SteppedTarget` finds its parts in `engine`.
pub use adapters::Adapters;
pub use authentication::AuthenticationPolicy;
pub use authentication::Demand;
pub use buf::Buf;
pub use buf::Pool;
pub use buf::Slice;
pub use capture::Capture;
pub use capture::DATA_MAX as TRACE_DATA_MAX;
pub use capture::Filter as TraceFilter;
pub use capture::Taken as TraceTaken;
pub use capture::Terms as TraceTerms;
pub use capture::Trace;
pub use capture::TraceEnd;
pub use capture::TraceFigures;
pub use catalogue::Outdated;
pub use catalogue::OutdatedSession;
pub use change::Change;
pub use change::ChangeError;
pub use change::Changed;
pub use clock;
pub use ends::Peer;
pub use engine;
pub use engine::Choice;
pub use engine::FileRefused;
pub use engine::duplex::End;
pub use engine::files::Examined;
pub use engine::files::FileError;
pub use engine::files::SnapshotError;
pub use engine::laps::Layer as LayerTime;
pub use engine::ppe::Idle;
pub use events::Event;
pub use failure::PANICKED;
pub use failure::end_process_on_panic;
pub use figures::ConnectionSnapshot;
pub use figures::DiskFigures;
pub use figures::Failure;
pub use figures::Figures;
pub use figures::HeldCommands;
pub use figures::Holdings;
pub use figures::Operation;
pub use figures::SessionSnapshot;
pub use figures::TIMED_SESSIONS_MAX;
pub use figures::Traffic;
pub use figures::Visits;
pub use figures::Wait;
pub use identity::DiskNumber;
pub use identity::IdentityError;
pub use identity::IdentityPolicy;
pub use identity::Sought;
pub use identity::content_number;
pub use inventory::LUN_NUMBER_MAX;
pub use inventory::NewLun;
pub use iscsi::chap::Account;
pub use iscsi::chap::Algorithm;
pub use iscsi::chap::Credentials;
pub use iscsi::chap::CredentialsError;
pub use iscsi::chap::Secret;
pub use iscsi::chap::SecretError;
pub use iscsi::target_role::Parameters;
pub use iscsi::target_role::Redirection;
pub use iscsi::target_role::Settings;
pub use iscsi::target_role::TargetReset;
pub use keep::Draft;
pub use keep::Shelf;
pub use keep::StateFile;
pub use limits::Limit;
pub use limits::LimitSnapshot;
pub use limits::Limited;
pub use listing::LunSnapshot;
pub use listing::TargetSnapshot;
pub use looking::Rescanned;
pub use looking::Unseen;
pub use mail::Answered;
pub use mail::Answers;
pub use mover::iser::Checks;
pub use mover::iser::Facts as IserFacts;
pub use mover::iser::Framing;
pub use mover::iser::Markers;
pub use mover::local::ToInitiator;
pub use mover::local::ToTarget;
pub use mover::tcp::Counters;
pub use mover::tcp::PdusIn;
pub use mover::tcp::PdusOut;
pub use node::AccessRule;
pub use node::LunMap;
pub use node::Node;
pub use node::NodeError;
pub use node::PORTAL_GROUP_TAG;
pub use node::Portal;
pub use node::Redirect;
pub use plan::END_WAIT_DEFAULT;
pub use plan::LOGIN_TIMEOUT_DEFAULT;
pub use plan::Mode;
pub use plan::POOL_BYTES_DEFAULT;
pub use plan::Plan;
pub use pump::LocalEnd;
pub use rdma::Rdma;
pub use registry::SESSIONS_MAX;
pub use scsi::FormatError;
pub use scsi::Identity;
pub use scsi::KeepFailed;
pub use scsi::Keeper;
pub use scsi::Kept;
pub use scsi::LogicalUnit;
pub use scsi::ProtectionFormat;
pub use scsi::Totals;
pub use scsi::UnitError;
pub use state_folder::StateFolder;
pub use state_folder::StateFolderError;
pub use station::Figures as StationFigures;
pub use station::Interface;
pub use station::InterfaceError;
pub use station::Place;
pub use station::Reserved;
pub use station::Way;
pub use station::advice as frames_advice;
pub use station::why_not_xdp;
pub use stepped::LocalDoor;
pub use stepped::SteppedPlan;
pub use stepped::SteppedTarget;
pub use stopwatch::Times;
pub use store::Elsewhere;
pub use store::Error as OpError;
pub use store::FileId;
pub use store::Geometry;
pub use store::Io;
pub use store::IoResult;
pub use store::Op;
pub use store::Outcome;
pub use store::Run;
pub use store::Space;
pub use store::Store;
pub use store::Submitted;
pub use store::Usage;
pub use store::beside::Beside;
pub use store::foreign;
pub use store::health::Health;
pub use store::spec::FileSpec;
pub use store::spec::Spec;
pub use store::spec::SpecError;
pub use store::spec::Unprotectable;
pub use store::stripe::StripeError;
pub use stores::Astray;
pub use stores::Made;
pub use stores::NewImage;
pub use stores::OddSize;
pub use stores::OpenRemote;
pub use stores::ProtectionError;
pub use stores::RemoteRefused;
pub use stores::Remotes;
pub use stores::StoreError;
pub use stores::Stores;
pub use stores::expect_unprotected;
pub use strangers::ConnectionLimits;
pub use strangers::STRANGERS_MAX;
pub use target::Error;
pub use target::Found;
pub use target::Target;
pub use traces::Tracing;
pub use verbs::Facts as AdapterFacts;
pub use volume::Resized;
pub use volume::Shrink;
pub use volume::Snapshot;
pub use volume::SnapshotPlace;
pub use volume::VolumeError;
pub use wire::ether::Mac;
pub use wire::scsi::protection::ProtectionType;

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
