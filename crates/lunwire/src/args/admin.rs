// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of the commands that ask a running daemon.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::Subcommand;
use control::admin::EventKind;
use control::units;

/// Which daemon.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DaemonPlace {
    /// Path of its control socket [default: lunwire.sock in $XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH")]
    pub(crate) control_socket: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AdminOptions {
    #[command(flatten)]
    pub(crate) daemon: DaemonPlace,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const RELOAD_EXAMPLES: &str = "\
Examples:
  lunwire reload --dry-run
      what would come, change and go, and which sessions would end
  lunwire reload
      the same is served from now on; so it is by: kill -HUP PID
  lunwire reload --destroy-data
      even if disks in memory go that hosts have written to";

pub(crate) const DUMP_EXAMPLES: &str = "\
Examples:
  lunwire lun add file:/srv/more.img,size=10G
  lunwire dump > new.toml && mv new.toml /etc/lunwire/lunwire.toml
      the disk is there after the next start, too
  lunwire dump | diff /etc/lunwire/lunwire.toml -
      what orders and the command line have changed

It is the file as it was read last, with its comments, the options of the command line, disks that
were added, removed or resized, and access states that were set. Its paths are whole, so that it may
be put anywhere; secrets stay in their files.";

#[derive(Debug, ClapArgs)]
pub(crate) struct ReloadOptions {
    /// Tell what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Let disks in memory go with what hosts have written to them
    #[arg(long)]
    pub(crate) destroy_data: bool,
    #[command(flatten)]
    pub(crate) admin: AdminOptions,
}

pub(crate) const TOP_EXAMPLES: &str = "\
Examples:
  lunwire top
      each second, until it is interrupted
  lunwire top --count 1 --interval 10s --json
      once, over ten seconds, for a program";

#[derive(Debug, ClapArgs)]
pub(crate) struct TopOptions {
    /// Over how long rates are taken, and how often they are shown
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) interval: String,
    /// End after so many times [default: when it is interrupted]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,
    #[command(flatten)]
    pub(crate) admin: AdminOptions,
}

pub(crate) const EVENTS_EXAMPLES: &str = "\
Examples:
  lunwire events --follow
      what there was, and then what happens, until it is interrupted
  lunwire events --kind reservation --kind reset --json
      for a program: who took a disk from whom

The daemon keeps the last 256 of each kind. Where one host makes more, its own oldest ones go; those
that come too fast are counted and not kept.";

#[derive(Debug, ClapArgs)]
pub(crate) struct EventsOptions {
    /// Go on with what happens from now on, until it is interrupted
    #[arg(long)]
    pub(crate) follow: bool,
    /// Those behind the event of this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) after: u64,
    /// Those of this kind alone; may be given several times
    #[arg(long, value_name = "KIND", value_parser = EventKind::ALL.map(EventKind::word))]
    pub(crate) kind: Vec<String>,
    #[command(flatten)]
    pub(crate) admin: AdminOptions,
}

pub(crate) const LUN_EXAMPLES: &str = "\
Examples:
  lunwire lun add file:/srv/more.img,size=10G
      hosts find one more LUN when they look again, and are told to
  lunwire lun remove 1
      hosts lose it: unmount it there first
  lunwire lun resize 0 20G
      the file of LUN 0 grows to 20 GiB, and hosts are told
  lunwire lun resize 0 5G --shrink
      it becomes smaller, and what lies behind is lost
  lunwire lun rescan
      take over the sizes of files and devices that grew
  lunwire lun snapshot 0 /srv/disk.monday.img
      a copy that shares its blocks with the disk (XFS, Btrfs)
Hosts know a disk by a serial number of its own, wherever it is served, and reach it by target and
number: give a removed one that comes back its old --number, and another one another number. When
the daemon starts again, the disks are those of its configuration: write there what is added or
removed.";

#[derive(Debug, ClapArgs)]
pub(crate) struct LunOptions {
    #[command(subcommand)]
    pub(crate) action: LunAction,
}

/// Which daemon and which of its targets.
#[derive(Debug, ClapArgs)]
pub(crate) struct LunPlace {
    /// iSCSI name of the target; not needed where there is only one
    #[arg(long, value_name = "IQN")]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) daemon: AdminOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LunAction {
    /// Serve one more disk, until the daemon ends; hosts are told that there are other LUNs
    #[command(after_help = "Example:\n  lunwire lun add file:/srv/more.img,size=10G")]
    Add {
        /// What backs it, as for `serve --lun`
        store: String,
        /// Its number, 0 to 16383 [default: the lowest one that no disk had since the daemon began]
        #[arg(long, value_parser = lun_number())]
        number: Option<u16>,
        /// Logical block length: 512 or 4096 [default: 512]
        #[arg(long, value_name = "BYTES")]
        block: Option<u32>,
        /// Protection information of type 1, 2 or 3
        #[arg(long, value_name = "TYPE")]
        protection: Option<u8>,
        /// Serial number: NAA and all that hosts know the disk by follows from it [default: each
        /// disk has its own]
        #[arg(long)]
        serial: Option<String>,
        /// Warn hosts when less than this is left for a thin disk
        #[arg(long, value_name = "SIZE")]
        space_warning: Option<String>,
        /// Initiator that sees it (repeatable) [default: all but those with a list of LUNs]
        #[arg(long, value_name = "IQN")]
        initiator: Vec<String>,
        #[command(flatten)]
        place: LunPlace,
    },
    /// Serve a disk no more: requests under way end, its files are flushed and closed
    #[command(after_help = "Example:\n  lunwire lun remove 1")]
    Remove {
        /// Number of the disk
        #[arg(value_parser = lun_number())]
        lun: u16,
        /// Also a disk in memory that hosts have written to: what is on it is lost
        #[arg(long)]
        destroy_data: bool,
        #[command(flatten)]
        place: LunPlace,
    },
    /// Give a disk another size: its file grows or shrinks, and hosts are told
    #[command(after_help = "Example:\n  lunwire lun resize 0 20G")]
    Resize {
        /// Number of the disk
        #[arg(value_parser = lun_number())]
        lun: u16,
        /// The new size, such as 20G
        size: String,
        /// Let it become smaller: what lies behind the new end is lost
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        place: LunPlace,
    },
    /// Take over the sizes of files, devices and images that grew, and tell which became smaller
    /// (the daemon looks by itself, too: every 30 s, at images of Ceph every 5 s)
    #[command(after_help = "Example:\n  lunwire lun rescan")]
    Rescan(AdminOptions),
    /// Make a file with the present content of a disk, by sharing its blocks; of an image of Ceph a
    /// snapshot
    #[command(after_help = "Example:\n  lunwire lun snapshot 0 /srv/disk.monday.img")]
    Snapshot {
        /// Number of the disk
        #[arg(value_parser = lun_number())]
        lun: u16,
        /// The file, which must not exist, on the file system of the disk; or the snapshot's name
        path: PathBuf,
        #[command(flatten)]
        place: LunPlace,
    },
}

pub(crate) const ALUA_EXAMPLES: &str = "\
Examples:
  lunwire alua
      every target port group and its state
  lunwire alua set iqn.2026-01.com.example:db 2 standby
      hosts leave the portals of group 2; those that are active go on
  lunwire alua set iqn.2026-01.com.example:db 2 active-optimized --lun 0
      for one logical unit alone

STATE is active-optimized, active-non-optimized, standby, unavailable or transitioning.
Groups are made in the configuration: [[portal-group]] and [[target.port-group]].";

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AluaOptions {
    #[command(subcommand)]
    pub(crate) action: Option<AluaAction>,
    #[command(flatten)]
    pub(crate) show: AdminOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AluaAction {
    /// Change the state of a target port group; hosts are told
    #[command(after_help = "Example:\n  lunwire alua set iqn.2026-01.com.example:db 2 standby")]
    Set {
        /// Name of the target
        #[arg(value_name = "IQN")]
        target: String,
        /// Number of the target port group
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        group: u16,
        /// The new state
        state: String,
        /// One logical unit alone [default: all of the target]
        #[arg(long, value_name = "NUMBER", value_parser = lun_number())]
        lun: Option<u16>,
        #[command(flatten)]
        daemon: AdminOptions,
    },
}

pub(crate) const TRACE_EXAMPLES: &str = "\
Examples:
  lunwire trace -o session.pcap --session 3 --time 30s
      half a minute of one session
  lunwire trace -o login.pcap --initiator iqn.2001-04.com.example:host
      until Ctrl-C, with the logins of that host, also those that fail
  lunwire trace -o - --lun 0 | tshark -l -d tcp.port==PORT,iscsi -r - -Y iscsi.opcode==0x21
      as it goes on

What disks hold is not recorded unless --data asks for it: of READ, WRITE and all other commands
that move data there are headers alone. Secrets never are: in logins the values of CHAP_R and
CHAP_C, and of each key that is not known, are stars, as many as there were bytes. What is said over
RDMA, or within the daemon, is shown as plain iSCSI would have said it, one PDU for each burst.
Commands never wait for a trace: what it cannot take is left out, and counted.";

#[derive(Debug, ClapArgs)]
pub(crate) struct TraceOptions {
    /// Where it goes: a new file, or a capture that is replaced; -: standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Sessions with this target alone
    #[arg(long, value_name = "IQN")]
    pub(crate) target: Option<String>,
    /// Sessions of this initiator alone
    #[arg(long, value_name = "IQN")]
    pub(crate) initiator: Option<String>,
    /// The session with this TSIH alone, as `lunwire sessions` shows it
    #[arg(long, value_name = "TSIH")]
    pub(crate) session: Option<u16>,
    /// Commands for this LUN alone, with what belongs to them; what is for no LUN stays
    #[arg(long, value_name = "NUMBER", value_parser = lun_number())]
    pub(crate) lun: Option<u16>,
    /// So many bytes of what each PDU moves from or to a disk, or all of them up to 64000 [default:
    /// none]
    #[arg(long, value_name = "SIZE|all")]
    pub(crate) data: Option<String>,
    /// End when it is so large [default: 1G]
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<String>,
    /// End after that time [default: when it is interrupted]
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    #[command(flatten)]
    pub(crate) daemon: DaemonPlace,
}

pub(crate) const LIMIT_EXAMPLES: &str = "\
Examples:
  lunwire limit
      the limits, and what they hold
  lunwire limit set --lun 0 --iops 5000 --bandwidth 200M
      LUN 0 has so many commands and so much data in a second, for all initiators together
  lunwire limit set --initiator '*' --iops 1000 --sessions 4
      so has each initiator that has no limit of its own
  lunwire limit set --target iqn.2026-01.com.example:db --lun 1 --iops 500
      where a daemon has several targets
  lunwire limit lift --lun 0
      what was held goes on at once

Until a reload says otherwise; lunwire dump writes it down. What is more than that waits; after a
rest a tenth of a second's worth comes at once.";

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LimitOptions {
    #[command(subcommand)]
    pub(crate) action: Option<LimitAction>,
    #[command(flatten)]
    pub(crate) show: AdminOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitAction {
    /// Limit a LUN or an initiator; what is not named is not limited any more
    #[command(after_help = "Example:\n  lunwire limit set --lun 0 --iops 5000 --bandwidth 200M")]
    Set {
        #[command(flatten)]
        whom: LimitedOptions,
        /// Commands in a second that read or change what is on a medium
        #[arg(long, value_name = "NUMBER")]
        iops: Option<u64>,
        /// Data in a second, such as 100M
        #[arg(long, value_name = "SIZE")]
        bandwidth: Option<String>,
        /// Sessions that the initiator may have at a time
        #[arg(long, value_name = "NUMBER")]
        sessions: Option<u64>,
        #[command(flatten)]
        daemon: AdminOptions,
    },
    /// Limit it no more; what was held goes on at once
    #[command(after_help = "Example:\n  lunwire limit lift --lun 0")]
    Lift {
        #[command(flatten)]
        whom: LimitedOptions,
        #[command(flatten)]
        daemon: AdminOptions,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LimitedOptions {
    #[command(flatten)]
    pub(crate) of: Limited,
    /// The target [default: the only one]
    #[arg(long, value_name = "IQN")]
    pub(crate) target: Option<String>,
}

/// All fields are of the group: a target stands beside either.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct Limited {
    /// The LUN, for all initiators together
    #[arg(long, value_name = "NUMBER", value_parser = lun_number())]
    pub(crate) lun: Option<u16>,
    /// The initiator, with all its LUNs together; `*`: each that has no limit of its own
    #[arg(long, value_name = "IQN")]
    pub(crate) initiator: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SessionOptions {
    #[command(subcommand)]
    pub(crate) action: SessionAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionAction {
    /// Ask the initiator to log out; end the session if it does not
    #[command(after_help = "Example:\n  lunwire session logout 3 --timeout 30s")]
    Logout {
        /// The session's TSIH, as `lunwire sessions` shows it
        tsih: u16,
        /// How long the initiator gets, in whole seconds
        #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::seconds)]
        timeout: u16,
        #[command(flatten)]
        daemon: AdminOptions,
    },
    /// End a session: its initiator is told and its connections close
    #[command(after_help = "Example:\n  lunwire session drop 3")]
    Drop {
        /// The session's TSIH, as `lunwire sessions` shows it
        tsih: u16,
        #[command(flatten)]
        daemon: AdminOptions,
    },
}

/// The number of a logical unit.
fn lun_number() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(..=i64::from(target::LUN_NUMBER_MAX))
}
