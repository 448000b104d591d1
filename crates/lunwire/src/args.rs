// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of every command.

mod client;
mod lab;
mod parse;

pub(crate) use client::*;
pub(crate) use lab::*;
pub(crate) use parse::problem;

use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::Args as ClapArgs;
use clap::Parser;
use clap::Subcommand;
use control::admin::EventKind;
use control::units;

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
                             /etc/lunwire/lunwire.toml\n      also what its images of Ceph and \
                             its portals are")]
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

const TOP_EXAMPLES: &str = "\
Examples:
  lunwire top
      each second, until it is interrupted
  lunwire top --count 1 --interval 10s --json
      once, over ten seconds, for a program";

const EVENTS_EXAMPLES: &str = "\
Examples:
  lunwire events --follow
      what there was, and then what happens, until it is interrupted
  lunwire events --kind reservation --kind reset --json
      for a program: who took a disk from whom

The daemon keeps the last 256 of each kind. Where one host makes more, its own oldest ones go; those
that come too fast are counted and not kept.";

const RELOAD_EXAMPLES: &str = "\
Examples:
  lunwire reload --dry-run
      what would come, change and go, and which sessions would end
  lunwire reload
      the same is served from now on; so it is by: kill -HUP PID
  lunwire reload --destroy-data
      even if disks in memory go that hosts have written to";

const DUMP_EXAMPLES: &str = "\
Examples:
  lunwire lun add file:/srv/more.img,size=10G
  lunwire dump > new.toml && mv new.toml /etc/lunwire/lunwire.toml
      the disk is there after the next start, too
  lunwire dump | diff /etc/lunwire/lunwire.toml -
      what orders and the command line have changed

It is the file as it was read last, with its comments, the options of the command line, disks that
were added, removed or resized, and access states that were set. Its paths are whole, so that it may
be put anywhere; secrets stay in their files.";

const LUN_EXAMPLES: &str = "\
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

const TRACE_EXAMPLES: &str = "\
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

const LIMIT_EXAMPLES: &str = "\
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

const ALUA_EXAMPLES: &str = "\
Examples:
  lunwire alua
      every target port group and its state
  lunwire alua set iqn.2026-01.com.example:db 2 standby
      hosts leave the portals of group 2; those that are active go on
  lunwire alua set iqn.2026-01.com.example:db 2 active-optimized --lun 0
      for one logical unit alone

STATE is active-optimized, active-non-optimized, standby, unavailable or transitioning.
Groups are made in the configuration: [[portal-group]] and [[target.port-group]].";

const SERVE_EXAMPLES: &str = "\
Examples:
  lunwire serve
      one disk of 1 GiB in memory on 127.0.0.1:3260
  lunwire serve --listen 0.0.0.0:3260 --listen '[::]:3260' --lun file:/srv/disk.img
      a file for everybody who reaches this machine, over IPv4 and IPv6
  lunwire serve --target iqn.2026-01.com.example:db --lun file:/dev/sdb,direct --lun memory:4G
      a block device as LUN 0 and memory as LUN 1
  lunwire serve --lun file:/srv/disk.img --chap-user host --chap-secret-file /etc/lunwire/host
      only for initiators that know the secret
  lunwire serve --config /etc/lunwire.toml
      several targets, access lists, LUN masking
  lunwire serve --http 127.0.0.1:9260
      also metrics for Prometheus and health for who watches the daemon (docs/METRICS.md)
  lunwire serve --mode amp --cpus 2,3
      CPU 3 does the work on sockets and files, CPU 2 all the rest

STORE is kind:argument[,option=value]...
  memory:SIZE                               RAM
  file:PATH[,size=SIZE,direct,readonly,sync,format=raw]
                                            a file or block device
  iso:PATH                                  a CD or DVD, read only
  stripe:CHUNK(STORE;STORE;...)             several stores as one (RAID-0)
  null:SIZE                                 reads zeroes, drops writes
  rbd:POOL[/NAMESPACE]/IMAGE[@SNAP][,id=USER,conf=FILE,keyring=FILE,busy=TIME,create,size=SIZE]
                                            an image of Ceph (docs/SERVING.md)
  iscsi://[USER@]HOST/TARGET/LUN[,secret-file=FILE,wait=TIME,busy=TIME]
                                            a disk of another target, also iser://
  scsi:NODE[,timeout=TIME]                  a SCSI device of any type (/dev/sgN, /dev/bsg/...),
                                            which carries out commands itself; no filters
Behind any store, in front of which they act (the last one first):
  readonly                                  refuse every change
  discard=off                               never give space back
  physical=SIZE                             another physical block size, 512 to 64K
  atomic                                    whole writes (WRITE ATOMIC); memory: and null: alone
  delay=[read:|write:]TIME                  let operations wait, such as 10ms
  limit=Niops, limit=SIZE/s                 no more than that in a second
  error=read|write|space|flush[:N|@OFFSET+LENGTH]
                                            fail always, every N-th time, or in one place
  log                                       log every operation
SIZE accepts K, M, G, T (powers of 1024), KB, MB, GB, TB (of 1000), and fractions: 1.5G.";

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ServeOptions {
    /// Configuration file; other options add to it or replace what it says
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Have FILE read again, as by `lunwire reload`, whenever it or the certificate of HTTP changes
    #[arg(long, requires = "config")]
    pub(crate) watch: bool,
    /// Take over from the daemon at the control socket: its sockets, disks and state, so that hosts
    /// see no more than a reconnect. Without one it is a start like any other
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Address or name to listen on (repeatable); port 0 picks a free one [default: 127.0.0.1:3260]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<String>,
    /// iSCSI name of the target that the LUNs of this command line belong to
    #[arg(long, value_name = "IQN")]
    pub(crate) target: Option<String>,
    /// What backs a LUN (repeatable: LUN 0, 1, ...) [default: memory:1G]
    #[arg(long, value_name = "STORE")]
    pub(crate) lun: Vec<String>,
    /// Serial number of those LUNs (repeatable, in turn): NAA and all that hosts know a disk by
    /// follows from it [default: each disk has its own]
    #[arg(long, value_name = "SERIAL")]
    pub(crate) serial: Vec<String>,
    /// What hosts know those LUNs by: own, or name, the target's name and the LUN number as in
    /// earlier versions [default: own]
    #[arg(long, value_name = "POLICY")]
    pub(crate) identity: Option<String>,
    /// T10 protection information of those LUNs: 1, 2 or 3, in PATH.pi beside file:PATH, in memory
    /// beside memory: [default: none]
    #[arg(long, value_name = "TYPE")]
    pub(crate) protection: Option<u8>,
    /// Name by which initiators of that target, and discovery, must log in (CHAP)
    #[arg(long, value_name = "NAME")]
    pub(crate) chap_user: Option<String>,
    /// File with their secret: 12 bytes or more, as text, hex (0x...) or base64 (0b...)
    #[arg(long, value_name = "FILE")]
    pub(crate) chap_secret_file: Option<String>,
    /// Name by which the target proves itself to initiators that ask for it (mutual CHAP)
    #[arg(long, value_name = "NAME")]
    pub(crate) mutual_user: Option<String>,
    /// File with the target's secret, another one than the initiators'
    #[arg(long, value_name = "FILE")]
    pub(crate) mutual_secret_file: Option<String>,
    /// Name server (iSNS) to register with [default: none]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) isns: Option<String>,
    /// Agree to the markers of RFC 3720, for old initiators and studies
    #[arg(long)]
    pub(crate) markers: bool,
    /// iwarp: speak iSER by software iWARP on the same portals, too; verbs: by RDMA adapters, at
    /// the same addresses; auto: by software iWARP, and by adapters where there are some; off.
    /// It holds for all portals, whatever the file says of single ones [default: off]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) rdma: Option<String>,
    /// Write what goes over all connections to FILE, for tshark or Wireshark; the secrets of CHAP
    /// and all data are in it as on the wire
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// End of the capture when FILE is so large [default: 1G]
    #[arg(long, value_name = "SIZE", requires = "capture")]
    pub(crate) capture_limit: Option<String>,
    /// Address at which RDMA adapters take connections, in place of those of --listen;
    /// repeatable. An iWARP adapter needs a port that TCP does not have
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) rdma_listen: Vec<String>,
    /// Interface at which connections over raw Ethernet are taken, too (ether://MAC%INTERFACE/...),
    /// for a wire that is all yours: frames have no address list and no encryption; repeatable.
    /// Needs CAP_NET_RAW. INTERFACE,frames=xdp: past the network stack (AF_XDP); frames=auto: so
    /// where that is the faster one, else as with frames=packet [default: packet]
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) ether: Vec<String>,
    /// Address at which HTTP shows a page, and tells /metrics (for Prometheus), /healthz, /readyz
    /// and /api/v1, such as 127.0.0.1:9260; port 0 picks a free one. One that other machines reach
    /// takes the three options below [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) http: Option<String>,
    /// File of those who may change something over HTTP, and read where other machines reach it: a
    /// line for each, `change TOKEN` or `read TOKEN` (`openssl rand -hex 32`), mode 0600 [default:
    /// nobody may]
    #[arg(long, value_name = "FILE")]
    pub(crate) http_token_file: Option<PathBuf>,
    /// Certificate that HTTP shows, with those of who has signed it, as PEM: it is spoken by TLS
    /// alone then; read again at a reload
    #[arg(long, value_name = "FILE")]
    pub(crate) http_certificate: Option<PathBuf>,
    /// Key of the certificate, as PEM, mode 0600
    #[arg(long, value_name = "FILE")]
    pub(crate) http_key: Option<PathBuf>,
    /// auto, uring or epoll [default: auto]
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<String>,
    /// smp: each reactor talks to the kernel itself; amp: polling cores do that for the reactors
    /// [default: smp]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Polling cores of --mode amp, at most as many as reactors [default: one for each]
    #[arg(long, value_name = "N")]
    pub(crate) ppes: Option<usize>,
    /// Let the polling cores of --mode amp never sleep: each uses all of its CPU
    #[arg(long)]
    pub(crate) poll: bool,
    /// Threads that serve [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) reactors: Option<usize>,
    /// CPUs to pin the threads to, in turn, for example 0,2: first reactors, then polling cores
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) cpus: Vec<usize>,
    /// Longest busy wait before a thread sleeps; 0 never spins [default: 100us]
    #[arg(long, value_name = "TIME")]
    pub(crate) spin: Option<String>,
    /// A login must be over in this time [default: 15s]
    #[arg(long, value_name = "TIME")]
    pub(crate) login_timeout: Option<String>,
    /// Tell of commands in the log that take so long, and with what; 0 tells of none [default: 0]
    #[arg(long, value_name = "TIME")]
    pub(crate) slow: Option<String>,
    /// Connections that have not logged in at a time; with more, the oldest goes [default: 4096]
    #[arg(long, value_name = "N")]
    pub(crate) unauthenticated_max: Option<usize>,
    /// As many of one address [default: 256]
    #[arg(long, value_name = "N")]
    pub(crate) unauthenticated_per_address: Option<usize>,
    /// Path of the control socket [default: lunwire.sock in $XDG_RUNTIME_DIR, or in /run as root]
    #[arg(long, value_name = "PATH")]
    pub(crate) control_socket: Option<PathBuf>,
    /// Folder for what outlives the daemon: reservations, mode parameters and identifying
    /// information that hosts ask to keep, wipes that have not ended, sessions with other targets
    /// (--lun iscsi://...) [default: none, and hosts are told so]
    #[arg(long, value_name = "PATH")]
    pub(crate) state_dir: Option<PathBuf>,
    /// What the daemon gives up for good when it starts: auto, what no configuration needs
    /// (programs, administration of the system), as far as the kernel lets it; yes (also --sandbox
    /// alone), all files and ports that this one does not need, too; no [default: auto]
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes"
    )]
    pub(crate) sandbox: Option<String>,
    /// What --sandbox=yes leaves for disks and portals that come later (repeatable): a file, a
    /// folder with all in it, connect (connections to other machines) or listen (other portals)
    #[arg(long, value_name = "PATH|WORD")]
    pub(crate) sandbox_allow: Vec<String>,
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Log as JSON, one object a line
    #[arg(long)]
    pub(crate) log_json: bool,
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
    /// A configuration: also tell what its images of Ceph and its portals are. A URL: also tell
    /// what carries a session there
    #[arg(value_name = "FILE|URL")]
    pub(crate) place: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

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
