// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration file: TOML, every field known, every error with file, line, field and value.

mod source;

use serde::Deserialize;
use toml::Spanned;

pub use source::ConfigError;
pub use source::Source;

/// A configuration as it stands in a file; meaning is checked by who uses it, through
/// [`Source::error`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Portals of portal group 1.
    /// Values: `ADDRESS:PORT` or `NAME:PORT`, IPv6 in brackets, port 0 picks a free one.
    /// Default: `127.0.0.1:3260`.
    #[serde(default)]
    pub listen: Vec<Spanned<String>>,
    /// How the daemon talks to the kernel.
    /// Values: `auto`, `uring` or `epoll`.
    /// Default: `auto`: io_uring where it works.
    /// Reload: no.
    pub engine: Option<Spanned<String>>,
    /// `smp`: each reactor talks to the kernel itself; `amp`: polling cores do that.
    /// Values: `smp` or `amp`.
    /// Default: `smp`.
    /// Reload: no.
    pub mode: Option<Spanned<String>>,
    /// Polling cores of mode `amp`.
    /// Values: 1 to 256, at most as many as reactors.
    /// Default: one for each reactor.
    /// Reload: no.
    pub ppes: Option<Spanned<usize>>,
    /// Whether the polling cores of mode `amp` never sleep.
    /// Values: `true` or `false`.
    /// Default: `false`.
    /// Reload: no.
    pub poll: Option<Spanned<bool>>,
    /// Threads that serve.
    /// Values: 1 to 256.
    /// Default: 1.
    /// Reload: no.
    pub reactors: Option<Spanned<usize>>,
    /// CPUs to pin the threads to, in turn: reactors, then polling cores.
    /// Values: numbers of CPUs that the process may use.
    /// Default: none is pinned.
    /// Reload: no.
    #[serde(default)]
    pub cpus: Vec<Spanned<usize>>,
    /// Longest busy wait of a reactor before it sleeps; `0` never spins.
    /// Values: a time such as `100us`, `15s`.
    /// Default: `100us`.
    /// Reload: no.
    pub spin: Option<Spanned<String>>,
    /// A login must be over in this time.
    /// Values: a time such as `100us`, `15s`, not zero.
    /// Default: `15s`.
    /// Reload: no.
    pub login_timeout: Option<Spanned<String>>,
    /// Commands that take so long are told of in the log, with what they spent the time: their
    /// store, the data that their initiator sends, memory, other commands; ten a second at most.
    /// Values: a time such as `500ms`, `5s`; `0` tells of none.
    /// Default: `0`.
    /// Reload: yes.
    pub slow: Option<Spanned<String>>,
    /// Sessions that the daemon serves at a time.
    /// Values: 1 to 16384.
    /// Default: 16384.
    /// Reload: no.
    pub sessions_max: Option<Spanned<usize>>,
    /// Connections that have not logged in, and discovery sessions without a proof, at a time.
    /// With more, the oldest one goes.
    /// Values: 1 to 32768.
    /// Default: 4096.
    /// Reload: no.
    pub unauthenticated_max: Option<Spanned<usize>>,
    /// As many of one address, or of one IPv6 network of 64 bits.
    /// Values: 1 to 32768.
    /// Default: 256.
    /// Reload: no.
    pub unauthenticated_per_address: Option<Spanned<usize>>,
    /// Whether a target that an initiator may not use looks to it like one that is not there.
    /// Values: `true` or `false`.
    /// Default: `false`.
    pub hide_targets: Option<bool>,
    /// Whether portals speak iSER, too: by software iWARP, by RDMA adapters, or by what there is.
    /// Values: `iwarp`, `verbs`, `auto` or `off`.
    /// Default: `off`.
    /// Reload: no.
    pub rdma: Option<Spanned<String>>,
    /// Where RDMA adapters take connections, in place of all portals that have no `rdma` of their
    /// own, in the portal group of the portal that has the address, or in group 1; an iWARP adapter
    /// needs a port that TCP does not have.
    /// Values: `ADDRESS:PORT` or `NAME:PORT`, beside an `rdma` of `verbs` or `auto`.
    /// Default: at the portals.
    /// Reload: no.
    #[serde(default)]
    pub rdma_listen: Vec<Spanned<String>>,
    /// Interfaces at which connections over raw Ethernet are taken, too.
    /// Values: names of network interfaces, each once, with `,frames=packet`, `,frames=xdp` or
    /// `,frames=auto` behind it.
    /// Default: none.
    /// Reload: no.
    #[serde(default)]
    pub ether: Vec<Spanned<String>>,
    /// Where HTTP shows a page (`/`), and tells metrics, health and more (`/metrics`, `/healthz`,
    /// `/readyz`, `/api/v1`).
    /// Values: `ADDRESS:PORT`, IPv6 in brackets, port 0 picks a free one. An address that other
    /// machines reach takes `http-certificate`, `http-key` and `http-token-file` beside it.
    /// Default: nowhere.
    /// Reload: no.
    pub http: Option<Spanned<String>>,
    /// Who may change something over HTTP: a file with a line for each, `change TOKEN`, or `read
    /// TOKEN` for who may read alone where other machines reach the port; no other account can read
    /// the file. It is read whenever somebody shows a token.
    /// Values: path of a file, from the folder of the configuration file.
    /// Default: nobody may.
    /// Reload: no.
    pub http_token_file: Option<Spanned<String>>,
    /// The certificate that HTTP shows, then those of who has signed it, as PEM: HTTP is spoken by
    /// TLS alone then. A reload reads it again, with the key.
    /// Values: path of a file, from the folder of the configuration file, beside `http-key`.
    /// Default: none, and no TLS.
    /// Reload: no.
    pub http_certificate: Option<Spanned<String>>,
    /// The key of `http-certificate`, as PEM, in a file that no other account can read.
    /// Values: path of a file, from the folder of the configuration file.
    /// Default: none.
    /// Reload: no.
    pub http_key: Option<Spanned<String>>,
    /// The least that is logged.
    /// Values: `error`, `warn`, `info`, `debug` or `trace`.
    /// Default: `info`.
    /// Reload: no.
    pub log: Option<Spanned<String>>,
    /// Path of the control socket.
    /// Values: a path, from the folder of this file.
    /// Default: `lunwire.sock` in `$XDG_RUNTIME_DIR`, or in `/run` as root.
    /// Reload: no.
    pub control_socket: Option<Spanned<String>>,
    /// Folder for what outlives the daemon: reservations that hosts ask to persist (APTPL), mode
    /// parameters, identifying information, wipes that have not ended, sessions with other targets.
    /// It is made if it is missing, but not the folder that it is in.
    /// Values: a path, from the folder of this file.
    /// Default: none, and hosts are told so.
    /// Reload: no.
    pub state_dir: Option<Spanned<String>>,
    /// Name server (iSNS) to register with.
    /// Values: `HOST:PORT`, IPv6 in brackets.
    /// Default: none.
    /// Reload: no.
    pub isns: Option<Spanned<String>>,
    /// What the daemon gives up for good when it starts (docs/SERVING.md): `auto` what no
    /// configuration needs, as far as the kernel lets it; `yes` also all files and ports that this
    /// one does not need, and it does not start where the kernel has no means for that.
    /// Values: `auto`, `yes` or `no`.
    /// Default: `auto`.
    /// Reload: no.
    pub sandbox: Option<Spanned<String>>,
    /// What `sandbox = "yes"` leaves for disks and portals that come later: files, and folders with
    /// all that is in them; `connect`: connections to other machines; `listen`: other portals.
    /// Values: paths of what is there, from the folder of this file, `connect` and `listen`.
    /// Default: nothing.
    /// Reload: no.
    #[serde(default)]
    pub sandbox_allow: Vec<Spanned<String>>,
    /// What initiators have to prove in discovery sessions.
    /// Values: a table, see below.
    /// Default: everybody may ask.
    pub discovery: Option<Discovery>,
    /// Portal groups beside group 1, which has the portals of `listen`.
    /// Values: tables, see below.
    /// Default: none.
    #[serde(default)]
    pub portal_group: Vec<PortalGroup>,
    /// What is said of single portals.
    /// Values: tables, see below.
    /// Default: none.
    #[serde(default)]
    pub portal: Vec<Portal>,
    /// The targets.
    /// Values: tables, see below.
    /// Default: one with a disk of 1 GiB in memory.
    #[serde(default)]
    pub target: Vec<Target>,
}

/// One `[[portal]]`: what is said of a portal that stands in `listen` or in a portal group.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Portal {
    /// The portal, as it stands there.
    /// Values: `ADDRESS:PORT` or `NAME:PORT`, each once.
    pub address: Spanned<String>,
    /// Whether it speaks iSER, too. `verbs`: by adapters, which must have its address, and over TCP
    /// it speaks iSCSI alone; `auto`: by software iWARP, and by adapters if some have its address.
    /// Values: `iwarp`, `verbs`, `auto` or `off`.
    /// Default: the `rdma` of the top.
    pub rdma: Option<Spanned<String>>,
}

/// One `[[portal-group]]`: portals that initiators see as one target port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortalGroup {
    /// Its target portal group tag, which is the relative target port identifier too.
    /// Values: 2 to 65535, each once.
    pub tag: Spanned<u16>,
    /// Its portals.
    /// Values: `ADDRESS:PORT` or `NAME:PORT`, IPv6 in brackets, port 0 picks a free one.
    pub listen: Vec<Spanned<String>>,
}

/// One `[[target.port-group]]`: portal groups with one asymmetric access state (ALUA).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortGroup {
    /// The target port group.
    /// Values: 1 to 65535, each once.
    /// Reload: no.
    pub number: Spanned<u16>,
    /// Tags of its portal groups.
    /// Values: 1, or the `tag` of a `[[portal-group]]`; one at least.
    /// Reload: no.
    pub portal_groups: Vec<Spanned<u16>>,
    /// Its state. `lunwire alua set` gives it another one until a reload; with `explicit-alua`
    /// hosts do, and a reload leaves it alone.
    /// Values: `active-optimized`, `active-non-optimized`, `standby`, `unavailable` or
    /// `transitioning`.
    /// Default: `active-optimized`.
    pub state: Option<Spanned<String>>,
    /// Whether hosts do well to use it.
    /// Values: `true` or `false`.
    /// Default: `false`.
    /// Reload: no.
    #[serde(default)]
    pub preferred: bool,
}

/// One `[[target]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Target {
    /// Its iSCSI name.
    /// Values: `iqn.`, `eui.` or `naa.` as RFC 7143 has it, at most 223 bytes.
    pub name: Spanned<String>,
    /// A name for people.
    /// Values: text.
    /// Default: none.
    pub alias: Option<Spanned<String>>,
    /// Commands that an initiator may have outstanding.
    /// Values: 1 to 1024.
    /// Default: 128.
    pub queue_depth: Option<Spanned<u16>>,
    /// Connections that a session may have.
    /// Values: 1 to 32.
    /// Default: 4.
    pub max_connections: Option<Spanned<u16>>,
    /// Seconds that an initiator is asked to wait before it comes back after a failure. It may ask
    /// for more.
    /// Values: 0 to 3600.
    /// Default: 0.
    pub time2wait: Option<Spanned<u16>>,
    /// Seconds after that in which a session that lost its last connection can be continued: the
    /// most that is agreed to. At ErrorRecoveryLevel 2 also the time in which its commands can go
    /// on over another connection.
    /// Values: 0 to 3600.
    /// Default: 20.
    pub time2retain: Option<Spanned<u16>>,
    /// Highest ErrorRecoveryLevel that is agreed to.
    /// Values: 0, 1 or 2.
    /// Default: 2.
    pub error_recovery_level: Option<Spanned<u8>>,
    /// R2Ts of a command that may be agreed on.
    /// Values: 1 to 65535.
    /// Default: 8.
    pub max_outstanding_r2t: Option<Spanned<u16>>,
    /// Whether the PDUs of a write's burst must come in order.
    /// Values: `true` or `false`.
    /// Default: as initiators like.
    pub data_pdu_in_order: Option<bool>,
    /// Whether bursts must come in order.
    /// Values: `true` or `false`.
    /// Default: as initiators like.
    pub data_sequence_in_order: Option<bool>,
    /// Whether the markers of RFC 3720 are agreed to.
    /// Values: `true` or `false`.
    /// Default: `false`.
    pub markers: Option<bool>,
    /// Which resets of the whole target initiators may ask for: none, warm (all tasks end) or cold
    /// (all sessions end, too).
    /// Values: `none`, `warm` or `cold`.
    /// Default: `warm`.
    pub target_reset: Option<Spanned<String>>,
    /// Where the target is now: initiators are sent there, and no LUN is needed.
    /// Values: `ADDRESS:PORT`, IPv6 in brackets.
    /// Default: it is here.
    pub redirect: Option<Spanned<String>>,
    /// Whether initiators are to remember `redirect`.
    /// Values: `true` or `false`.
    /// Default: `false`.
    pub redirect_permanent: Option<bool>,
    /// Whether initiators are told version, system and processor of this daemon
    /// (X#NodeArchitecture).
    /// Values: `true` or `false`.
    /// Default: `false`.
    pub node_architecture: Option<bool>,
    /// CRC32C of PDU headers.
    /// Values: `any` (as initiators like), `required` or `off`.
    /// Default: `any`.
    pub header_digest: Option<Spanned<String>>,
    /// CRC32C of data.
    /// Values: `any` (as initiators like), `required` or `off`.
    /// Default: `any`.
    pub data_digest: Option<Spanned<String>>,
    /// Ping an initiator that is silent for so long; `0` never.
    /// Values: a time such as `100us`, `15s`.
    /// Default: `30s`.
    pub ping_interval: Option<Spanned<String>>,
    /// Drop it if the ping is not answered in this time.
    /// Values: a time such as `100us`, `15s`.
    /// Default: `15s`.
    pub ping_timeout: Option<Spanned<String>>,
    /// What initiators have to prove.
    /// Values: `off`, `optional`, `required` or `mutual`.
    /// Default: `required` if there is a `chap-user`, else `off`.
    pub authentication: Option<Spanned<String>>,
    /// The allowed hash functions, of which the initiator's order chooses.
    /// Values: `sha3-256`, `sha256`, `sha1`, `md5`.
    /// Default: all.
    pub chap_algorithms: Option<Spanned<Vec<Spanned<String>>>>,
    /// Common to initiators that have none of their own: CHAP_N.
    /// Values: a name.
    /// Default: none.
    pub chap_user: Option<Spanned<String>>,
    /// File that holds the secret of `chap-user`, 12 bytes or more: text, hex after `0x` or base64
    /// after `0b`.
    /// Values: a path, from the folder of this file.
    /// Default: none.
    pub chap_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    /// Values: a name.
    /// Default: none.
    pub chap_secret_env: Option<Spanned<String>>,
    /// CHAP_N by which the target proves itself to an initiator that asks for it.
    /// Values: a name.
    /// Default: none.
    pub mutual_user: Option<Spanned<String>>,
    /// File that holds the secret of `mutual-user`, another one than the initiator's.
    /// Values: a path, from the folder of this file.
    /// Default: none.
    pub mutual_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    /// Values: a name.
    /// Default: none.
    pub mutual_secret_env: Option<Spanned<String>>,
    /// Target port groups.
    /// Values: tables, see below.
    /// Default: each portal group is one, always active and optimized.
    /// Reload: no.
    #[serde(default)]
    pub port_group: Vec<PortGroup>,
    /// Whether hosts may change the states of port groups too.
    /// Values: `true` or `false`.
    /// Default: `false`: `lunwire alua` alone.
    /// Reload: no.
    #[serde(default)]
    pub explicit_alua: bool,
    /// What hosts know its disks by: `own`, a number that is kept beside each disk, or `name`, the
    /// target's name and the LUN number as in earlier versions.
    /// Values: `own` or `name`.
    /// Default: `own`.
    /// Reload: no.
    pub identity: Option<Spanned<String>>,
    /// The logical units.
    /// Values: tables, see below.
    /// Default: none: only with `redirect`.
    #[serde(default)]
    pub lun: Vec<Lun>,
    /// Who may log in.
    /// Values: tables, see below.
    /// Default: everybody.
    #[serde(default)]
    pub initiator: Vec<Initiator>,
    /// How much LUNs and initiators may have. `lunwire limit set` changes it until a reload.
    /// Values: tables, see below.
    /// Default: all that there is.
    #[serde(default)]
    pub limit: Vec<Limit>,
}

/// One `[[target.limit]]`: of a LUN, or of an initiator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limit {
    /// The LUN that is limited, for all initiators together.
    /// Values: the number of a LUN of the target, each once; this or `initiator`.
    /// Default: none.
    pub lun: Option<Spanned<u16>>,
    /// The initiator that is limited, with all its LUNs and sessions together.
    /// Values: an iSCSI name, each once, or `*`: each that has no limit of its own, by itself.
    /// Default: none.
    pub initiator: Option<Spanned<String>>,
    /// Commands in a second that read or change what is on a medium. What is more waits; after a
    /// rest a tenth of a second's worth comes at once, or one command.
    /// Values: 1 to 1000000000.
    /// Default: no limit.
    pub iops: Option<Spanned<u64>>,
    /// Data in a second that these commands move. What is more waits; after a rest a tenth of a
    /// second's worth comes at once, or one command.
    /// Values: a size such as `100M`, `64K` at least.
    /// Default: no limit.
    pub bandwidth: Option<Spanned<String>>,
    /// Sessions that the initiator may have at a time; logins beyond are refused, and sessions
    /// that are there stay.
    /// Values: 1 to 16384; beside `initiator`.
    /// Default: no limit.
    pub sessions: Option<Spanned<u64>>,
}

/// One `[[target.lun]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Lun {
    /// Its number.
    /// Values: 0 to 16383, each once.
    /// Default: its place in the list, from 0.
    pub number: Option<Spanned<u16>>,
    /// What backs it.
    /// Values: `KIND:ARGUMENT[,OPTION[=VALUE]]...`: `memory:`, `file:`, `rbd:`,
    /// `iscsi://`, `scsi:`, `iso:`, `stripe:`, `null:`; paths count from the folder of
    /// this file.
    /// Reload: no, but another number.
    pub store: Spanned<String>,
    /// Filters in front of it, as options of a store are written; the last one meets a command
    /// first.
    /// Values: `readonly`, `discard=`, `physical=`, `atomic`, `delay=`, `limit=`, `error=`, `log`.
    /// Default: none.
    /// Reload: no, but another number.
    #[serde(default)]
    pub filters: Vec<Spanned<String>>,
    /// Hosts are warned when less space than this is left for a thin disk.
    /// Values: a size such as `10G`.
    /// Default: never.
    /// Reload: no, but another number.
    pub space_warning: Option<Spanned<String>>,
    /// Logical block length.
    /// Values: 512 or 4096.
    /// Default: 512; 2048 of `iso:`.
    /// Reload: no, but another number.
    pub block: Option<Spanned<u32>>,
    /// T10 protection information beside each block: in `PATH.pi` for `file:PATH`, in memory for
    /// `memory:`. It is the type of a new disk; a host can change it (FORMAT UNIT), and it stays
    /// so.
    /// Values: 1, 2 or 3.
    /// Default: none.
    /// Reload: no, but another number.
    pub protection: Option<Spanned<u8>>,
    /// Unit serial number; NAA and all other designators follow from it, so that two daemons with
    /// one number are two paths to one disk.
    /// Values: 1 to 32 printable ASCII characters without space.
    /// Default: the disk's own.
    /// Reload: no, but another number.
    pub serial: Option<Spanned<String>>,
}

/// One `[[target.initiator]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Initiator {
    /// Its iSCSI name.
    /// Values: `iqn.`, `eui.` or `naa.` as RFC 7143 has it.
    pub name: Spanned<String>,
    /// The LUNs that it sees.
    /// Values: numbers of LUNs of the target.
    /// Default: all.
    pub luns: Option<Vec<Spanned<u16>>>,
    /// Which resets of the whole target it may ask for.
    /// Values: `none`, `warm` or `cold`.
    /// Default: what the target says.
    pub target_reset: Option<Spanned<String>>,
    /// Its own: CHAP_N.
    /// Values: a name.
    /// Default: none.
    pub chap_user: Option<Spanned<String>>,
    /// File that holds the secret of `chap-user`, 12 bytes or more: text, hex after `0x` or base64
    /// after `0b`.
    /// Values: a path, from the folder of this file.
    /// Default: none.
    pub chap_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    /// Values: a name.
    /// Default: none.
    pub chap_secret_env: Option<Spanned<String>>,
    /// CHAP_N by which the target proves itself to an initiator that asks for it.
    /// Values: a name.
    /// Default: none.
    pub mutual_user: Option<Spanned<String>>,
    /// File that holds the secret of `mutual-user`, another one than the initiator's.
    /// Values: a path, from the folder of this file.
    /// Default: none.
    pub mutual_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    /// Values: a name.
    /// Default: none.
    pub mutual_secret_env: Option<Spanned<String>>,
}

/// The `[discovery]` table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Discovery {
    /// What initiators have to prove.
    /// Values: `off`, `optional`, `required` or `mutual`.
    /// Default: `required` if there is a `chap-user`, else `off`.
    pub authentication: Option<Spanned<String>>,
    /// The allowed hash functions, of which the initiator's order chooses.
    /// Values: `sha3-256`, `sha256`, `sha1`, `md5`.
    /// Default: all.
    pub chap_algorithms: Option<Spanned<Vec<Spanned<String>>>>,
    /// Of everybody who may ask: CHAP_N.
    /// Values: a name.
    /// Default: none.
    pub chap_user: Option<Spanned<String>>,
    /// File that holds the secret of `chap-user`, 12 bytes or more: text, hex after `0x` or base64
    /// after `0b`.
    /// Values: a path, from the folder of this file.
    /// Default: none.
    pub chap_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    /// Values: a name.
    /// Default: none.
    pub chap_secret_env: Option<Spanned<String>>,
    /// CHAP_N by which the target proves itself to an initiator that asks for it.
    /// Values: a name.
    /// Default: none.
    pub mutual_user: Option<Spanned<String>>,
    /// File that holds the secret of `mutual-user`, another one than the initiator's.
    /// Values: a path, from the folder of this file.
    /// Default: none.
    pub mutual_secret_file: Option<Spanned<String>>,
    /// Environment variable that holds it instead.
    /// Values: a name.
    /// Default: none.
    pub mutual_secret_env: Option<Spanned<String>>,
}

/// The fields by which both sides of CHAP prove themselves, wherever they stand. Secrets are never
/// among them.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // each is the field of that name
pub struct Chap<'a> {
    pub user: Option<&'a Spanned<String>>,
    pub secret_file: Option<&'a Spanned<String>>,
    pub secret_env: Option<&'a Spanned<String>>,
    pub mutual_user: Option<&'a Spanned<String>>,
    pub mutual_secret_file: Option<&'a Spanned<String>>,
    pub mutual_secret_env: Option<&'a Spanned<String>>,
}

macro_rules! chap_fields {
    ($($owner:ty)*) => {$(
        impl $owner {
            /// Its fields of CHAP.
            #[must_use]
            pub const fn chap(&self) -> Chap<'_> {
                Chap {
                    user: self.chap_user.as_ref(),
                    secret_file: self.chap_secret_file.as_ref(),
                    secret_env: self.chap_secret_env.as_ref(),
                    mutual_user: self.mutual_user.as_ref(),
                    mutual_secret_file: self.mutual_secret_file.as_ref(),
                    mutual_secret_env: self.mutual_secret_env.as_ref(),
                }
            }
        }
    )*};
}

chap_fields!(Target Initiator Discovery);

#[cfg(test)]
mod tests;
