// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of `lunwire lab`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::Subcommand;

pub(crate) const LAB_EXAMPLES: &str = "\
Examples:
  lunwire lab list
      which studies there are
  lunwire lab run fast05
      what protocol, copy and CRC of each PDU cost here, beside what was published: a minute
  lunwire lab run fast05 --rounds 5 --size-max 8K --out /tmp/fast05
      a quick look; index.html, results.json and the figures go to /tmp/fast05
  lunwire lab run amp
      a target that does all of its work itself against one with a polling core: half a minute
  lunwire lab run unh
      iSCSI over RDMA beside plain iSCSI, and what a thesis left open: two minutes";

const FAST05_EXAMPLES: &str = "\
Examples:
  lunwire lab run fast05
      about a minute; the page is lab/fast05/index.html
  lunwire lab run fast05 --rounds 5 --size-max 8K --out /tmp/fast05
      a quick look
  lunwire lab run fast05 --cpu 1
      on processor 1, while others keep away from it

Needs no network and no root. What else the machine does shows in the figures: let it be idle.";

const AMP_EXAMPLES: &str = "\
Examples:
  lunwire lab run amp
      half a minute; the page is lab/amp/index.html
  lunwire lab run amp --rounds 1 --time 200ms --out /tmp/amp
      a quick look

Needs no network. As root it counts system calls, too. What else the machine does shows in the
figures: let it be idle. It takes three processors to show what AMP does for throughput.";

const UNH_EXAMPLES: &str = "\
Examples:
  lunwire lab run unh
      about two minutes; the page is lab/unh/index.html
  lunwire lab run unh --quick --out /tmp/unh
      a quick look: fewer sizes, once

Needs no network, no root, and nothing of RDMA in the kernel: iWARP is software on both sides. What
else the machine does shows in the figures: let it be idle.";

#[derive(Debug, ClapArgs)]
pub(crate) struct LabOptions {
    #[command(subcommand)]
    pub(crate) action: LabAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabAction {
    /// Say which studies there are
    #[command(after_help = "Example:\n  lunwire lab list --json")]
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a study on this machine and write a report
    #[command(after_help = "Example:\n  lunwire lab run fast05")]
    #[command(subcommand)]
    Run(Study),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Study {
    /// The fast path of an initiator without a network (Joglekar et al., FAST 2005)
    #[command(after_help = FAST05_EXAMPLES)]
    Fast05(Fast05Options),
    /// A polling core for the work on sockets, or none (Foong et al., 2005)
    #[command(after_help = AMP_EXAMPLES)]
    Amp(AmpOptions),
    /// iSCSI whose data moves by RDMA, beside plain iSCSI (Burns, 2008)
    #[command(after_help = UNH_EXAMPLES)]
    Unh(UnhOptions),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Fast05Options {
    /// Where the report goes
    #[arg(long, value_name = "FOLDER", default_value = "lab/fast05")]
    pub(crate) out: PathBuf,
    /// Runs of 40 commands for each figure; medians count
    #[arg(long, value_name = "N", default_value_t = 31,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Largest read and write, 512 to 64K
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    pub(crate) size_max: String,
    /// Run on this processor; the last that is allowed if it is not given
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AmpOptions {
    /// Where the report goes
    #[arg(long, value_name = "FOLDER", default_value = "lab/amp")]
    pub(crate) out: PathBuf,
    /// Runs of each case; medians count
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    /// How long each runs, 50ms to 10s
    #[arg(long, value_name = "TIME", default_value = "700ms")]
    pub(crate) time: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UnhOptions {
    /// Where the report goes
    #[arg(long, value_name = "FOLDER", default_value = "lab/unh")]
    pub(crate) out: PathBuf,
    /// Runs of each case; medians count [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: Option<u16>,
    /// How long each runs, 50ms to 10s
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    pub(crate) time: String,
    /// Every third size alone, and fewer commands at once
    #[arg(long)]
    pub(crate) quick: bool,
}
