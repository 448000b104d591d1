// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of every command.

mod admin;
mod client;
mod lab;
mod parse;
mod serve;

pub(crate) use admin::*;
pub(crate) use client::*;
pub(crate) use lab::*;
pub(crate) use parse::problem;
pub(crate) use serve::*;

use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::Args as ClapArgs;
use clap::Parser;
use clap::Subcommand;

/// iSCSI disks without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "lunwire", version = version(), max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve disks
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Validate a configuration file without starting anything
    #[command(after_help = "Example:\n  lunwire check /etc/lunwire.toml")]
    Check(CheckOptions),
    /// Say what this machine offers, what would be chosen, and why
    #[command(after_help = "Examples:\n  lunwire explain --json\n  lunwire explain \
                             /etc/lunwire/lunwire.toml\n      also what its images of Ceph are, \
                             and which portals speak iSER")]
    Explain(ExplainOptions),
    /// Show what a running daemon is and does
    #[command(after_help = "Example:\n  lunwire status --control-socket /run/lunwire.sock")]
    Status(AdminOptions),
    /// List the sessions of a running daemon
    #[command(after_help = "Example:\n  lunwire sessions --json")]
    Sessions(AdminOptions),
    /// Watch the sessions of a running daemon: rates, the busiest first
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopOptions),
    /// Show what has happened at a running daemon: logins, losses, resets, reservations, changes
    #[command(after_help = EVENTS_EXAMPLES)]
    Events(EventsOptions),
    /// Act on one session of a running daemon
    #[command(
        after_help = "Examples:\n  lunwire session logout 3 --timeout 30s\n  lunwire session drop 3"
    )]
    Session(SessionOptions),
    /// Act on the disks of a running daemon: add, remove, resize, rescan, snapshot
    #[command(after_help = LUN_EXAMPLES)]
    Lun(LunOptions),
    /// Have a running daemon serve what its configuration file says now, all of it or nothing; exit
    /// status 1 if that cannot be while it runs
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(ReloadOptions),
    /// Show what the configuration file of a running daemon says otherwise than what is served;
    /// exit status 1 if it does
    #[command(after_help = "Example:\n  lunwire diff --control-socket /run/lunwire.sock")]
    Diff(AdminOptions),
    /// Write what a running daemon serves as a configuration file, with what orders have changed
    #[command(after_help = DUMP_EXAMPLES)]
    Dump(AdminOptions),
    /// List the targets behind a portal
    #[command(after_help = DISCOVER_EXAMPLES)]
    Discover(DiscoverOptions),
    /// Show what a logical unit is and can do, or which ones a target has
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectOptions),
    /// Read from a disk into a file or to standard output
    #[command(after_help = READ_EXAMPLES)]
    Read(ReadOptions),
    /// Write a file or standard input to a disk
    #[command(after_help = WRITE_EXAMPLES)]
    Write(WriteOptions),
    /// Copy between disks, files, standard input and output
    #[command(after_help = COPY_EXAMPLES)]
    Copy(CopyOptions),
    /// Measure a disk
    #[command(after_help = BENCH_EXAMPLES, override_usage = BENCH_USAGE)]
    Bench(BenchOptions),
    /// Make a disk usable for programs that know nothing of iSCSI, until it is interrupted
    #[command(after_help = ATTACH_EXAMPLES)]
    Attach(AttachOptions),
    /// List the disks that are attached here
    #[command(after_help = "Example:\n  lunwire attached --json")]
    Attached(AttachedOptions),
    /// Attach a disk no more
    #[command(after_help = DETACH_EXAMPLES)]
    Detach(DetachOptions),
    /// Send commands one by one, from a prompt or a script
    #[command(after_help = SHELL_EXAMPLES)]
    Shell(ShellOptions),
    /// Show or change the states of target port groups of a running daemon
    #[command(after_help = ALUA_EXAMPLES)]
    Alua(AluaOptions),
    /// Show or change how much LUNs and initiators of a running daemon may have
    #[command(after_help = LIMIT_EXAMPLES)]
    Limit(LimitOptions),
    /// Record what sessions of a running daemon say, as a capture for tshark and Wireshark; exit
    /// status 1 if there was nothing
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(TraceOptions),
    /// Re-run a published study on this machine
    #[command(after_help = LAB_EXAMPLES)]
    Lab(LabOptions),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckOptions {
    /// Configuration file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainOptions {
    /// A configuration: also tell what its images of Ceph are, and which portals speak iSER. A URL:
    /// also tell what carries a session there
    #[arg(value_name = "FILE|URL")]
    pub(crate) place: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Wrong usage: exit status 2. The command line alone is wrong, or the value of one of its options
/// is, also where only a disk can tell that.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Version and the CRC32C kernel that this machine gets.
fn version() -> &'static str {
    static VERSION: LazyLock<String> =
        LazyLock::new(|| format!("{} (CRC32C: {})", env!("CARGO_PKG_VERSION"), crc::tier().name()));
    &VERSION
}
