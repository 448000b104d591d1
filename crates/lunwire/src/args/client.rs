// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of the commands that use disks.
#![allow(rustdoc::broken_intra_doc_links)] // they are help texts: brackets are optional parts

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// How to log in: the same for all commands that do.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ClientOptions {
    /// Our own iSCSI name [default: made from the name of this machine]
    #[arg(long, value_name = "IQN", help_heading = "Session")]
    pub(crate) initiator: Option<String>,
    /// Another portal of the same target (repeatable); all are tried at once
    #[arg(long, value_name = "ADDR[:PORT]", help_heading = "Session")]
    pub(crate) portal: Vec<String>,
    /// Name to log in with (CHAP); also in the URL
    #[arg(long, value_name = "NAME", help_heading = "Session")]
    pub(crate) chap_user: Option<String>,
    /// File with our secret
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    pub(crate) chap_secret_file: Option<String>,
    /// Environment variable with our secret
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "chap_secret_file",
        help_heading = "Session"
    )]
    pub(crate) chap_secret_env: Option<String>,
    /// Hash functions to offer, most wanted first: sha3-256, sha256, sha1, md5 (always offered)
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Session")]
    pub(crate) chap_algorithms: Vec<String>,
    /// Name by which the target must prove itself (mutual CHAP)
    #[arg(long, value_name = "NAME", help_heading = "Session")]
    pub(crate) mutual_user: Option<String>,
    /// File with the target's secret
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    pub(crate) mutual_secret_file: Option<String>,
    /// CRC32C over headers: off, allowed, preferred or required [default: allowed]
    #[arg(long, value_name = "WHEN", help_heading = "Session")]
    pub(crate) header_digest: Option<String>,
    /// CRC32C over data: off, allowed, preferred or required [default: allowed]
    #[arg(long, value_name = "WHEN", help_heading = "Session")]
    pub(crate) data_digest: Option<String>,
    /// IANA enterprise number of our vendor, for session ids [default: random bits]
    #[arg(long, value_name = "N", help_heading = "Session",
          value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    pub(crate) enterprise_number: Option<u32>,
    /// Session id (ISID), 12 hex digits: the same one makes one initiator port of sessions with
    /// several portal groups, a second session with one group ends the first [default: random]
    #[arg(
        long,
        value_name = "HEX",
        help_heading = "Session",
        conflicts_with = "enterprise_number"
    )]
    pub(crate) isid: Option<String>,
    /// Connections of a session; they share its commands
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Session",
          value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) connections: u16,
    /// Which connection a command goes to: round-robin or least-outstanding [default: round-robin]
    #[arg(long, value_name = "HOW", help_heading = "Session")]
    pub(crate) policy: Option<String>,
    /// Which path a command goes over where several URLs are given, as arguments or with blanks in
    /// one: least-queued, round-robin or failover, which is the first one in the list that works
    /// [default: least-queued]
    #[arg(long, value_name = "HOW", help_heading = "Session")]
    pub(crate) paths: Option<String>,
    /// ErrorRecoveryLevel to ask for: 0 makes a new session, 1 repairs data, 2 connections, too
    #[arg(long, value_name = "LEVEL", default_value_t = 0, help_heading = "Session",
          value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) recovery_level: u8,
    /// Let the target send and ask for data in any order
    #[arg(long, help_heading = "Session")]
    pub(crate) any_order: bool,
    /// Ask for the markers of RFC 3720
    #[arg(long, help_heading = "Session")]
    pub(crate) markers: bool,
    /// Ask for TaskReporting=FastAbort
    #[arg(long, help_heading = "Session")]
    pub(crate) fast_abort: bool,
    /// How long a command may take before it is aborted; then its unit is reset, then there is a
    /// new session, and it is sent again each time; 0s: for ever [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Session")]
    pub(crate) command_timeout: Option<String>,
    /// How long to try to get a lost session back [default: 60s], and the first one [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Session")]
    pub(crate) patience: Option<String>,
    /// auto, uring or epoll [default: auto]
    #[arg(long, value_name = "ENGINE", help_heading = "Session")]
    pub(crate) engine: Option<String>,
    /// Write what goes over the connections to FILE, for tshark or Wireshark; the secrets of CHAP
    /// are in it as on the wire
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    pub(crate) capture: Option<PathBuf>,
    /// End of the capture when FILE is so large [default: 1G]
    #[arg(long, value_name = "SIZE", help_heading = "Session", requires = "capture")]
    pub(crate) capture_limit: Option<String>,
    /// What the options of the account begin with behind `--`.
    #[arg(skip)]
    pub(crate) account_prefix: &'static str,
}

/// The account at the destination of a copy, where it is not that at the source.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct AccountAtDestination {
    /// Name to log in with at the destination (CHAP); with one of the options --to-... those
    /// without it are for the source alone
    #[arg(long, value_name = "NAME", help_heading = "Session")]
    to_chap_user: Option<String>,
    /// File with our secret for the destination
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    to_chap_secret_file: Option<String>,
    /// Environment variable with our secret for the destination
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "to_chap_secret_file",
        help_heading = "Session"
    )]
    to_chap_secret_env: Option<String>,
    /// Name by which the target of the destination must prove itself (mutual CHAP)
    #[arg(long, value_name = "NAME", help_heading = "Session")]
    to_mutual_user: Option<String>,
    /// File with the secret of that target
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    to_mutual_secret_file: Option<String>,
}

impl AccountAtDestination {
    /// Whether any of it is said.
    pub(crate) const fn is_given(&self) -> bool {
        self.to_chap_user.is_some()
            || self.to_chap_secret_file.is_some()
            || self.to_chap_secret_env.is_some()
            || self.to_mutual_user.is_some()
            || self.to_mutual_secret_file.is_some()
    }

    /// How to log in there; `common`: how to log in at both ends.
    pub(crate) fn over(&self, common: &ClientOptions) -> ClientOptions {
        if !self.is_given() {
            return common.clone();
        }
        ClientOptions {
            chap_user: self.to_chap_user.clone(),
            chap_secret_file: self.to_chap_secret_file.clone(),
            chap_secret_env: self.to_chap_secret_env.clone(),
            mutual_user: self.to_mutual_user.clone(),
            mutual_secret_file: self.to_mutual_secret_file.clone(),
            account_prefix: "to-",
            ..common.clone()
        }
    }
}

/// One disk, and how to log in to it.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DiskOptions {
    /// iscsi://[USER@]HOST[:PORT]/TARGET/LUN
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) client: ClientOptions,
}

/// One disk or a target with all it has, and how to log in to it.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct TargetOptions {
    /// iscsi://[USER@]HOST[:PORT]/TARGET/LUN; without /LUN: all that are there, in short
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) client: ClientOptions,
}

pub(crate) const DISCOVER_EXAMPLES: &str = "\
Examples:
  lunwire discover 10.0.0.1
  lunwire discover iscsi://[2001:db8::1]:3260 --json
  lunwire discover 10.0.0.1 --chap-user host --chap-secret-file /etc/lunwire/host";

#[derive(Debug, ClapArgs)]
pub(crate) struct DiscoverOptions {
    /// ADDR[:PORT] or iscsi://ADDR[:PORT]
    #[arg(value_name = "PORTAL")]
    pub(crate) at: String,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) client: ClientOptions,
}

pub(crate) const INSPECT_EXAMPLES: &str = "\
Examples:
  lunwire inspect iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0
  lunwire inspect iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --json
  lunwire inspect iscsi://10.0.0.1/iqn.2026-01.com.example:disk
      which logical units the target has";

#[derive(Debug, ClapArgs)]
pub(crate) struct InspectOptions {
    #[command(flatten)]
    pub(crate) disk: TargetOptions,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const READ_EXAMPLES: &str = "\
Examples:
  lunwire read iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 disk.img
      the whole disk
  lunwire read iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --length 512 | xxd
      its first block";

#[derive(Debug, ClapArgs)]
pub(crate) struct ReadOptions {
    #[command(flatten)]
    pub(crate) disk: DiskOptions,
    /// Where to; - is standard output
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: String,
    /// Where to begin on the disk: whole blocks; 1M, 1.5GiB, 2GB (10^9)
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) offset: String,
    /// How much: whole blocks [default: up to the end of the disk]
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<String>,
    /// Read the file and the disk once more and compare
    #[arg(long)]
    pub(crate) verify: bool,
    /// Replace what is in FILE, or on the device that it is
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

pub(crate) const WRITE_EXAMPLES: &str = "\
Examples:
  lunwire write iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 disk.img
  zcat disk.img.gz | lunwire write iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0
  lunwire write iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 part.img --offset 1M";

#[derive(Debug, ClapArgs)]
pub(crate) struct WriteOptions {
    #[command(flatten)]
    pub(crate) disk: DiskOptions,
    /// What to write; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: String,
    /// Where to begin on the disk: whole blocks; 1M, 1.5GiB, 2GB (10^9)
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) offset: String,
    /// Read back what was written and compare
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

pub(crate) const COPY_EXAMPLES: &str = "\
Examples:
  lunwire copy disk.img iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --verify
  lunwire copy iscsi://10.0.0.1/iqn.2026-01.com.example:a/0 \\
               iscsi://10.0.0.2/iqn.2026-01.com.example:b/0 --resume copy.state
      from disk to disk; when it was interrupted, the same command goes on
  lunwire copy iscsi://a@10.0.0.1/iqn.2026-01.com.example:a/0 --chap-secret-file secret.a \\
               iscsi://b@10.0.0.2/iqn.2026-01.com.example:b/0 --to-chap-secret-file secret.b
      with an account at each end
  lunwire copy 'iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 \
                iscsi://10.0.1.1/iqn.2026-01.com.example:disk/0' disk.img
      over two paths, which may be lost and come back meanwhile
  lunwire copy disk.img 'stripe:64K(iscsi://10.0.0.1/iqn.2026-01.com.example:a/0;
                iscsi://10.0.0.2/iqn.2026-01.com.example:b/0)'
      onto two disks as one: 64 KiB on the first, 64 KiB on the second, and so on (RAID-0)
  lunwire copy iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 - | gzip > disk.img.gz
  lunwire copy disk.img iscsi://192.0.2.1/iqn.2026-01.com.example:disk/0 --depth 64 \\
               --connections 4
      to a far target: 64 MiB under way at once, from the beginning on
Blocks of zeroes are left out of new files, and given back to thin disks (WRITE SAME).";

#[derive(Debug, ClapArgs)]
pub(crate) struct CopyOptions {
    /// A URL, a file, or - for standard input
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// A URL, a file, or - for standard output
    #[arg(value_name = "DESTINATION")]
    pub(crate) destination: String,
    /// Read back what was written and compare
    #[arg(long)]
    pub(crate) verify: bool,
    /// Keep in FILE how far the copy has come, and go on from there
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Commands under way at once, from the beginning on, as long as the line carries them
    /// [default: 2, then up to 16 MiB of them, 64 MiB where the target is far, while none waits]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=128))]
    pub(crate) depth: Option<u8>,
    /// Bytes of a command at most, a multiple of 512, and not more than the disks take at once
    /// [default: 1M]
    #[arg(long, value_name = "SIZE")]
    pub(crate) block: Option<String>,
    /// The two disks are different ones although they have one name (designator), or the source is
    /// no part of the disk although somebody serves it
    #[arg(long)]
    pub(crate) different_disks: bool,
    /// Replace what is in a file, or on a local device, that is the destination
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) client: ClientOptions,
    #[command(flatten)]
    pub(crate) at_destination: AccountAtDestination,
}

pub(crate) const BENCH_USAGE: &str = "\
lunwire bench [OPTIONS] <URL>
       lunwire bench --local [OPTIONS]";

pub(crate) const BENCH_EXAMPLES: &str = "\
Examples:
  lunwire bench iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0
      random reads of 4 KiB, 32 at once, for 5 seconds
  lunwire bench iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --sequential --block 1M --depth 4
  lunwire bench iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --reads 70 --destroy-data \\
               --block 4K,64K --depth 1,32 --sessions 2 --json
  lunwire bench 'stripe:64K(iscsi://10.0.0.1/iqn.2026-01.com.example:a/0;
                 iscsi://10.0.0.2/iqn.2026-01.com.example:b/0)'
      two disks as one
  lunwire bench iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --svg latency.svg
  lunwire bench iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --reads 50 --destroy-data \\
               --verify --time 10m
      whether a disk keeps what is written, whatever happens to its connections
  lunwire bench --local
      what the protocol costs on this machine, without a network and over loopback TCP";

/// What `bench --local` has not, over one of its ways at least.
const NOT_WITH_LOCAL: [&str; 17] = [
    "url",
    "sessions",
    "verify",
    "layers",
    "svg",
    "destroy_data",
    "portal",
    "capture",
    "chap_user",
    "chap_secret_file",
    "chap_secret_env",
    "chap_algorithms",
    "mutual_user",
    "mutual_secret_file",
    "header_digest",
    "data_digest",
    "markers",
];

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchOptions {
    /// iscsi://[USER@]HOST[:PORT]/TARGET/LUN; several are paths to one disk, and
    /// 'stripe:64K(URL;URL)' is several disks as one (RAID-0)
    #[arg(value_name = "URL", required = true)]
    pub(crate) url: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientOptions,
    /// Start a target with a disk in memory in this process, and measure what both roles of the
    /// protocol cost without a network, and beside it over TCP on the loopback address; not with a
    /// URL, --sessions, --verify, --layers, --svg, --destroy-data, --portal or --capture, and not
    /// with options of CHAP, digests and markers, which are not for both ways
    #[arg(long, conflicts_with_all = NOT_WITH_LOCAL)]
    pub(crate) local: bool,
    /// One block behind the other instead of at random
    #[arg(long)]
    pub(crate) sequential: bool,
    /// Percentage of reads; the others are writes [default: 100; with --local 100, then 0]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) reads: Option<u8>,
    /// Writing is allowed: what is on the disk is lost
    #[arg(long)]
    pub(crate) destroy_data: bool,
    /// Bytes of a request; several are measured one after the other [default: 4K; with --local
    /// 4K,64K]
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    pub(crate) block: Vec<String>,
    /// Requests at once; several are measured one after the other [default: 32; with --local 1,32]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) depth: Vec<usize>,
    /// Sessions that share the requests
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) sessions: u16,
    /// How long to measure each; with --local both ways together
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) time: String,
    /// Use the first SIZE bytes of the disk only; with --local the disk in memory has so many, half
    /// of the free memory at most, and is filled first [default: all; with --local 64M]
    #[arg(long, value_name = "SIZE")]
    pub(crate) range: Option<String>,
    /// Write blocks that tell which write they are of, check each read of them, and read all
    /// again at the end; at the cost of speed. Needs --reads below 100
    #[arg(long, requires = "destroy_data")]
    pub(crate) verify: bool,
    /// Also print where the time of a command went, on both sides if the target is ours
    #[arg(long)]
    pub(crate) layers: bool,
    /// Control socket of the target [default: lunwire.sock in $XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH", requires = "layers")]
    pub(crate) control_socket: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the latencies
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Replace what is in the FILE of --svg
    #[arg(long, requires = "svg")]
    pub(crate) overwrite: bool,
}

pub(crate) const SHELL_EXAMPLES: &str = "\
Examples:
  lunwire shell
  lunwire shell script.txt
  echo 'login iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0
  scsi 12 00 00 00 60 00 in 96' | lunwire shell
Commands:
  login URL                    log in; the LUN of the URL is the one that commands go to
  logout
  scsi HEX... [in N | out FILE]  any command descriptor block
  read BLOCK COUNT [FILE]      blocks into a new file, or shown
  write BLOCK COUNT [FILE]     blocks from a file, or zeroes
  flush                        SYNCHRONIZE CACHE
  reset unit|target            LOGICAL UNIT RESET or TARGET WARM RESET: ends all commands
  segment BYTES                longest data segment that comes from now on
  repeat COUNT FILE            run a script several times
  log FILE                     time of each command, one line each, in microseconds
  ... FILE --overwrite         of read and log: a file that has something in it
  help, quit, exit             # begins a comment";

#[derive(Debug, ClapArgs)]
pub(crate) struct ShellOptions {
    /// Script to run; without one commands come from standard input
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) client: ClientOptions,
}

pub(crate) const ATTACH_EXAMPLES: &str = "\
Examples:
  lunwire attach iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 ~/disk
      the file ~/disk/disk, until Ctrl-C; the directory is there and empty
  lunwire attach iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --loop --daemon
      as root: a block device; then: lunwire attached, and lunwire detach disk-0
  lunwire attach iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --ublk --daemon
      as root, on Linux 6.5 or later: /dev/ublkb0, whose users wait when this process is gone;
      the same line again takes it over, or with --recover 0
  lunwire attach iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --nbd /run/user/1000/disk.sock
      then: qemu-img convert disk.qcow2 'nbd+unix:///?socket=/run/user/1000/disk.sock'
  lunwire attach iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 --nbd 127.0.0.1:10809
      then, as root: nbd-client 127.0.0.1 10809 /dev/nbd0
  lunwire attach iscsi://10.0.0.1/iqn.2026-01.com.example:disk/0 \\
                 iscsi://10.0.1.1/iqn.2026-01.com.example:disk/0 ~/disk
      over two paths, of which one may be lost
  lunwire attach 'stripe:64K(iscsi://10.0.0.1/iqn.2026-01.com.example:a/0;
                  iscsi://10.0.0.2/iqn.2026-01.com.example:b/0)' ~/disk
      two disks as one (RAID-0): if one is lost for good, so is what is on both

NBD needs no root, no kernel modules and no host network; a file needs /dev/fuse, and fusermount3
(package fuse3) for who is not root; a loop device needs root, a ublk device root and the kernel
module ublk_drv. A socket in the file system is for its user alone; a port is for everybody who can
reach it, without a password, unless --tls and --tls-verify-peer ask for a certificate. When the
target goes away reads and writes wait until it is back (--io-timeout). Ctrl-C, SIGTERM or detach
ends it: what is under way is answered, and what was written is flushed.";

#[derive(Debug, ClapArgs)]
pub(crate) struct AttachOptions {
    /// iscsi://[USER@]HOST[:PORT]/TARGET/LUN, of which several are paths to one disk, or
    /// 'stripe:64K(URL;URL)', which is several disks as one (RAID-0); then the empty directory in
    /// which to make it a file, DIR/disk, unless it is to be something else
    #[arg(value_names = ["URL", "DIR"], required = true)]
    pub(crate) what: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientOptions,
    /// Make it a loop device
    #[arg(long = "loop", conflicts_with = "nbd")]
    pub(crate) loops: bool,
    /// Make it a block device, /dev/ublkbN, which outlives this process: when that is killed, reads
    /// and writes wait for the next one with the same URL
    #[arg(long, conflicts_with_all = ["nbd", "loops"])]
    pub(crate) ublk: bool,
    /// Take over /dev/ublkbNUMBER, whose process is gone
    #[arg(long, value_name = "NUMBER", requires = "ublk", conflicts_with_all = ["nbd", "loops"])]
    pub(crate) recover: Option<u32>,
    /// Serve it to NBD clients at a socket in the file system, or at HOST:PORT
    #[arg(long, value_name = "PATH|HOST:PORT")]
    pub(crate) nbd: Option<String>,
    /// Name of the export of NBD; clients that name none get it, too
    #[arg(long, value_name = "NAME", default_value = "disk", requires = "nbd")]
    pub(crate) name: String,
    /// Clients of NBD must speak TLS: a folder with server-cert.pem and server-key.pem, and
    /// ca-cert.pem for --tls-verify-peer, as QEMU has them; or these files
    #[arg(long, value_name = "DIR|CERT,KEY[,CA]", requires = "nbd")]
    pub(crate) tls: Option<String>,
    /// Clients must show a certificate that ca-cert.pem, or CA, has signed
    #[arg(long, requires = "tls")]
    pub(crate) tls_verify_peer: bool,
    /// By which it is listed and detached [default: made of its target and number]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) alias: Option<String>,
    /// How long reads and writes wait when the target is gone; then they fail, until it is attached
    /// anew; 0: for ever
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub(crate) io_timeout: String,
    /// How much is kept of what was written and not flushed, to write it again when the target has
    /// lost it; 64M if not said. 0: nothing, and flushes fail then
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep: Option<String>,
    /// Sessions over each way, between which requests are spread as between paths (--paths)
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["portal", "isid"],
          value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) sessions: u16,
    /// CPUs that this process may run on, for example 0,2 [default: all that it may use]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) cpus: Vec<usize>,
    /// Longest busy wait of the thread that talks to the target before it sleeps; 0 never spins:
    /// who uses the disk runs on the same machine, and so does often the target
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(crate) spin: String,
    /// Go on in the background when the disk can be used
    #[arg(long)]
    pub(crate) daemon: bool,
    #[arg(long, hide = true, conflicts_with = "daemon")]
    pub(crate) in_background: bool,
    #[command(flatten)]
    pub(crate) place: AttachedPlace,
    /// Print what is attached as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where attachments are written down.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct AttachedPlace {
    /// Folder by which attachments are found [default: lunwire in $XDG_RUNTIME_DIR;
    /// /run/lunwire-attached as root]
    #[arg(long, value_name = "PATH")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AttachedOptions {
    #[command(flatten)]
    pub(crate) place: AttachedPlace,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DetachOptions {
    /// Name, directory, file, device or socket
    #[arg(value_name = "WHERE|NAME")]
    pub(crate) meant: String,
    /// Also if somebody uses it, or the target is away: what is lost is told
    #[arg(long)]
    pub(crate) force: bool,
    /// Leave the ublk device to the next process, as for an upgrade: its users wait meanwhile
    #[arg(long, conflicts_with = "force")]
    pub(crate) leave: bool,
    #[command(flatten)]
    pub(crate) place: AttachedPlace,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const DETACH_EXAMPLES: &str = "\
Examples:
  lunwire detach /mnt/disk
      the disk that is the file /mnt/disk/disk
  lunwire detach disk-0
      by the name that lunwire attached shows
  lunwire detach /dev/loop0 --force
      also if a file system on it is mounted: what it has not written is lost
  lunwire detach /dev/ublkb0 --leave
      the device stays, and its users wait for: lunwire attach URL --ublk

What was written is flushed before. A disk that somebody uses stays attached, and so does one whose
target is away while something is not flushed, unless --force is given, which tells what is lost.";
