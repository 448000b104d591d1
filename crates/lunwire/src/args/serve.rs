// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of `serve`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

pub(crate) const SERVE_EXAMPLES: &str = "\
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
    /// Have FILE read again, as by `lunwire reload`, whenever it changes, or a file that it names:
    /// a secret, tokens, certificate or key of HTTP
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
