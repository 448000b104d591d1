// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of `lunwire lab`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::Subcommand;

pub(crate) const LAB_EXAMPLES: &str = "\
Examples:
  lunwire lab list
      which studies there are
  lunwire lab run all
      all of them, less than three minutes each: the page is lab/index.html
  lunwire lab run fast05 --out /tmp/lab
      what protocol, copy and CRC of each PDU cost here, beside what was published
  lunwire lab report
      the page of all reports in the folder lab anew";

const RUN_EXAMPLES: &str = "\
Examples:
  lunwire lab run all
      each study less than three minutes; the pages are lab/index.html and lab/STUDY/index.html
  lunwire lab run amp unh --full
      two of them, with all that was measured
  lunwire lab run forth --rounds 9 --out /tmp/lab
      more repetitions, elsewhere

Needs no network and no root; as root it counts system calls, too, ibm has a wire, and frames, in
network namespaces of its own, and forth runs PostMark, databases and a server of NFS on disks
that it attaches, where mkfs.ext4, postmark, mariadbd, duckdb (duckdb-cli of PyPI) and ganesha.nfsd
are installed, and tells where the time goes by samples where perf (linux-perf) is. peers has tgtd,
istgt and SPDK beside this target where they are installed ($PEERS/spdk/iscsi_tgt, by default
~/.cache/lunwire-peers/spdk/iscsi_tgt). What else the machine does shows in the figures: let it be
idle. A run that is stopped (Ctrl-C) goes on with the studies that are left when it is asked for
again in the same words.";

const REPORT_EXAMPLES: &str = "\
Examples:
  lunwire lab report
      joins the reports in the folder lab on one page
  lunwire lab report --compare before/amp/results.json after/amp/results.json
      what has changed between two machines, or two revisions";

const CLEAN_EXAMPLES: &str = "\
Example:
  lunwire lab clean
      what is left of runs that were killed with all that watched over them; a run does so, too";

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
    /// Run studies on this machine and write a report of each, and one that joins them
    #[command(
        after_help = RUN_EXAMPLES,
        override_usage = "lunwire lab run [OPTIONS] <NAME>..."
    )]
    Run(LabRunOptions),
    /// Join reports on one page, or compare two
    #[command(after_help = REPORT_EXAMPLES)]
    Report(LabReportOptions),
    /// Take away what runs left that were killed: programs, mounts, loop devices, huge pages
    #[command(after_help = CLEAN_EXAMPLES)]
    Clean(LabCleanOptions),
}

/// All studies.
pub(crate) const ALL: &str = "all";

#[derive(Debug, ClapArgs)]
pub(crate) struct LabRunOptions {
    /// Which ones, as `lunwire lab list` names them, or `all`
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Less than three minutes for each study, which is the default
    #[arg(long, conflicts_with_all = ["full", "smoke"])]
    pub(crate) quick: bool,
    /// All that the studies measured, with more repetitions: up to half an hour each
    #[arg(long, conflicts_with = "smoke")]
    pub(crate) full: bool,
    /// Seconds, to see that all works: the figures say little
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Repetitions of each case, instead of those that the effort has; medians count
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: Option<u16>,
    /// Where the reports go, each in a folder of its name
    #[arg(long, value_name = "FOLDER", default_value = "lab")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LabReportOptions {
    /// Where the reports are
    #[arg(long, value_name = "FOLDER", default_value = "lab", conflicts_with = "compare")]
    pub(crate) out: PathBuf,
    /// Two results.json of one study
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub(crate) compare: Option<Vec<PathBuf>>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LabCleanOptions {
    /// When the run that has started this process is killed
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) after: Option<u32>,
}
