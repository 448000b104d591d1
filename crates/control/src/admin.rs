// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a running daemon can be asked through its control socket: one JSON line each way.

mod events;
mod load;
mod take_over;

use serde::Deserialize;
use serde::Serialize;

pub use events::Event;
pub use events::EventKind;
pub use events::EventLevel;
pub use events::Events;
pub use load::Load;
pub use load::LunLoad;
pub use load::SessionLoad;
pub use take_over::AddedLun;
pub use take_over::Carried;
pub use take_over::CarriedDisk;
pub use take_over::CarriedReservations;
pub use take_over::CarriedState;
pub use take_over::Offer;
pub use take_over::OfferedSocket;
pub use take_over::RemovedLun;
pub use take_over::SocketKind;
pub use take_over::TAKE_OVER_PROTOCOL;
pub use take_over::Word;

/// Longest request, bytes: one carries a path, which the system bounds to 4096 and JSON may double.
pub const REQUEST_LEN_MAX: usize = 16 << 10;

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
#[expect(clippy::exhaustive_enums)] // the daemon must answer each
pub enum Request {
    /// What the daemon is and does.
    Status,
    /// The sessions.
    Sessions,
    /// Ask the initiator of the session with this TSIH to log out, and end the session if it has
    /// not after `timeout_s`.
    LogoutSession {
        /// Target session identifying handle.
        tsih: u16,
        /// Seconds.
        timeout_s: u16,
    },
    /// Where the time of commands went.
    Layers,
    /// What disks and sessions have done, for who makes rates of it.
    Load,
    /// What has happened.
    Events {
        /// Those behind this one; 0 for all that are kept.
        #[serde(default)]
        after: u64,
    },
    /// The target port groups of all units.
    PortGroups,
    /// Change the state of a target port group.
    SetPortGroup {
        /// Target name.
        target: String,
        /// One unit; all of the target if None.
        lun: Option<u16>,
        /// Target port group.
        group: u16,
        /// As in the configuration.
        state: String,
    },
    /// Limit a LUN, or an initiator; what is None is not limited, and with nothing else than None
    /// there is no limit any more.
    SetLimit {
        /// The target; none where there is only one.
        target: Option<String>,
        /// The LUN.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lun: Option<u16>,
        /// The initiator, or `*` for each; this or the LUN.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initiator: Option<String>,
        /// Commands in a second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        iops: Option<u64>,
        /// Bytes in a second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bandwidth: Option<u64>,
        /// Sessions of an initiator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sessions: Option<u64>,
    },
    /// End the session with this TSIH.
    DropSession {
        /// Target session identifying handle.
        tsih: u16,
    },
    /// Give a disk another size.
    ResizeLun {
        /// The target; none where there is only one.
        target: Option<String>,
        /// Number of the disk.
        lun: u16,
        /// The new size.
        bytes: u64,
        /// Whether it may become smaller.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shrink: bool,
    },
    /// Serve one more logical unit, until the daemon ends.
    AddLun {
        /// The target; none where there is only one.
        target: Option<String>,
        /// Its number; if None the lowest one that no unit had since the daemon began.
        number: Option<u16>,
        /// What it is.
        lun: NewLun,
    },
    /// Serve a logical unit no more.
    RemoveLun {
        /// The target; none where there is only one.
        target: Option<String>,
        /// Its number.
        lun: u16,
        /// Whether what was written to memory may be lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        destroy_data: bool,
    },
    /// What is attached: asked of who attaches a disk, not of a daemon that serves some.
    Attachment,
    /// Attach the disk no more, and end; asked as `Attachment`.
    Detach {
        /// Even if somebody uses it, or what was written may be lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
        /// The device stays, for the next process that attaches the disk.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        leave: bool,
    },
    /// Look whether the files behind disks have another size.
    RescanLuns,
    /// Read the configuration again, and serve what it says now: all of it or nothing.
    Reload {
        /// Only tell what would be otherwise.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
        /// Whether what was written to memory may be lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        destroy_data: bool,
    },
    /// Write down what is served as a configuration file.
    Dump,
    /// Hand over sockets, disks and state to the process that asks.
    TakeOver {
        /// See [`TAKE_OVER_PROTOCOL`].
        protocol: u32,
        /// Version of the program that asks.
        version: String,
    },
    /// Tell what sessions say from now on; parts of a capture follow the answer.
    Trace(TraceOrder),
    /// Make a file with the present content of a disk.
    SnapshotLun {
        /// The target; none where there is only one.
        target: Option<String>,
        /// Number of the disk.
        lun: u16,
        /// Absolute path of the file, which must not exist.
        path: String,
        /// The same as it was asked for, if that can be a name: of an image, which has snapshots of
        /// its own kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

impl Request {
    /// What a line asks for. Read here once for all who are asked: it is some 50 KB of code.
    ///
    /// # Errors
    /// It is none; says where.
    pub fn of_line(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // who asks must read each
pub enum Reply {
    /// To `Status`.
    Status(Status),
    /// To `Sessions`.
    Sessions {
        /// By TSIH.
        sessions: Vec<Session>,
        /// Reactors that do not answer, whose sessions are missing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        silent_reactors: Vec<usize>,
    },
    /// To `Layers`.
    Layers(Layers),
    /// To `Load`.
    Load(Load),
    /// To `Events`.
    Events(Events),
    /// To `PortGroups`.
    PortGroups {
        /// By target, number and group.
        groups: Vec<PortGroup>,
    },
    /// To `TakeOver`; what follows is told in [`Word`]s.
    Offer(Offer),
    /// To an order that was carried out.
    Done,
    /// To `ResizeLun`.
    Resized {
        /// Where it is.
        target: String,
        /// Number of the disk.
        lun: u16,
        /// What hosts saw before, bytes.
        before: u64,
        /// What they see now.
        now: u64,
        /// What is to be thought of, such as a file system with less room.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `AddLun`.
    Added {
        /// Where it is.
        target: String,
        /// Number of the disk.
        lun: u16,
        /// What it is.
        disk: Lun,
        /// No initiator sees it: each has a list of numbers, and this one is on none.
        #[serde(default)]
        for_nobody: bool,
        /// What is to be thought of, such as more disks in memory than the machine has.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `RemoveLun`.
    Removed {
        /// Where it was.
        target: String,
        /// Number of the disk.
        lun: u16,
        /// What is to be thought of.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `RescanLuns`.
    Rescanned {
        /// The disks whose file is another size than what hosts saw.
        luns: Vec<RescannedLun>,
        /// What is to be thought of, such as a disk that has become smaller, or one that could not
        /// be looked at.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `Reload`.
    Reloaded(Reloaded),
    /// To `Dump`.
    Dumped {
        /// The file.
        text: String,
        /// What it does not say.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// To `SnapshotLun`.
    Snapshotted {
        /// Where the disk is.
        target: String,
        /// Number of the disk.
        lun: u16,
        /// Its size, bytes.
        bytes: u64,
        /// What it is called, where it is no file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// What is to be thought of.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `Attachment`.
    Attachment(Attachment),
    /// To `Detach`.
    Detached {
        /// What is lost.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `Trace`: what follows are parts of a capture.
    Tracing,
    /// After the last one of them.
    Traced {
        /// PDUs that were recorded.
        pdus: u64,
        /// Bytes of the whole capture.
        bytes: u64,
        /// PDUs that are missing: they came faster than they could be passed on.
        lost: u64,
        /// Connections that the trace was about.
        connections: u64,
        /// Why it is over: `limit`, `time`, `reader`, `stalled` or `process`.
        end: String,
    },
    /// The request cannot be met.
    Error {
        /// Why, and what to do.
        message: String,
    },
}

impl Reply {
    /// As it is written down, with the end of its line. Made here once for all who tell it: it is
    /// some 30 KB of code.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        // All of it can be written down.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

/// A trace that is asked for. What is None is not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceOrder {
    /// Of sessions with this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Of this initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// Of the session with this TSIH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u16>,
    /// Of what is for a unit only those for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// Bytes of the whole capture.
    pub limit_bytes: u64,
    /// Bytes that are kept of each data segment of a user.
    pub data_bytes: u64,
    /// How long, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
}

/// What is otherwise in a configuration that was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Whether it is served now; else nothing has changed.
    pub applied: bool,
    /// What comes, changes and goes.
    pub differences: Vec<Difference>,
    /// What cannot change while the daemon runs. With any of these nothing does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Sessions that end by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<EndedSession>,
    /// What is to be thought of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One thing that is otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What becomes of it.
    pub change: Change,
    /// Such as `target iqn.2026-01.com.example:disk` or `portal 127.0.0.1:3260`.
    pub what: String,
    /// The keys that say something else now; of a disk that comes or goes, its store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// What becomes of a part of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // there is no fourth
pub enum Change {
    /// It comes.
    Added,
    /// It stays, and something about it is otherwise.
    Changed,
    /// It goes.
    Removed,
}

/// What cannot change while a daemon runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The key, or the part of the configuration.
    pub what: String,
    /// Why, and what to do.
    pub why: String,
}

/// A session that ends because what is served has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedSession {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// None: a discovery session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why.
    pub why: String,
}

/// A disk that is attached. Who attaches one keeps this in a file, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// By which it is found.
    pub name: String,
    /// The disk, without secrets.
    pub url: String,
    /// `nbd`, `file`, `loop` or `ublk`.
    pub kind: String,
    /// Where it is used: the address of an NBD server, a file, a device.
    pub place: String,
    /// The mounted directory, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Size, bytes.
    pub bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// The process.
    pub pid: u32,
    /// What becomes of requests.
    #[serde(default)]
    pub state: AttachmentState,
}

/// What becomes of requests to an attached disk. Times are in seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums)] // there is no fourth
pub enum AttachmentState {
    /// They are carried out.
    #[default]
    Works,
    /// They wait for the target.
    Waits {
        /// Since when.
        since: u64,
        /// What failed last.
        cause: String,
    },
    /// They fail: until the disk is attached anew, or it answers otherwise.
    Fails {
        /// Since when.
        since: u64,
        /// Why.
        cause: String,
    },
}

/// A logical unit that is to be served; each value as in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewLun {
    /// Its store; paths are absolute.
    pub store: String,
    /// Logical block length, bytes.
    pub block: Option<u32>,
    /// Type of protection information.
    pub protection: Option<u8>,
    /// Serial number.
    pub serial: Option<String>,
    /// Space left at which hosts are warned.
    pub space_warning: Option<String>,
    /// Names of the initiators that see it; if empty, those whom the configuration lets.
    #[serde(default)]
    pub initiators: Vec<String>,
}

/// A disk whose file is another size than what hosts saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescannedLun {
    /// The target.
    pub target: String,
    /// Number of the disk.
    pub lun: u16,
    /// What hosts saw before, bytes.
    pub before: u64,
    /// Size of the file: hosts see it now if it is larger.
    pub now: u64,
}

/// What a daemon is and does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it began to serve.
    pub uptime_s: u64,
    /// `uring` or `epoll`.
    pub engine: String,
    /// `smp` or `amp`.
    pub mode: String,
    /// Name of the CRC32C kernel in use.
    pub crc32c: String,
    /// How many threads serve.
    pub reactors: usize,
    /// Addresses it listens on.
    pub portals: Vec<String>,
    /// Those that speak iSER, too, and what there is of that.
    #[serde(default)]
    pub iser: Iser,
    /// Where it takes connections over raw Ethernet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stations: Vec<Station>,
    /// What it serves.
    pub targets: Vec<Target>,
    /// Sessions now.
    pub sessions: usize,
    /// Reactors that do not answer, whose sessions are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent_reactors: Vec<usize>,
    /// How much LUNs and initiators may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// Where it speaks HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Whether it is spoken by TLS, and not otherwise.
    #[serde(default)]
    pub http_tls: bool,
    /// Where connections are captured to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    /// What it has given up: `privileges`, `calls`, `programs`, `signals`, `files`, `ports`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<String>,
}

/// How much a LUN or an initiator may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The target.
    pub target: String,
    /// The LUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// The initiator, or `*` for each; this or the LUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// Commands in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    /// Sessions of an initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Commands of the LUN or initiator that are held now, by whatever limit.
    pub held: usize,
    /// Commands that began since the limit is there.
    pub begun: u64,
    /// Those of them that had to wait for it.
    pub delayed: u64,
}

/// A station on an Ethernet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    /// Its interface.
    pub interface: String,
    /// Its address.
    pub mac: String,
    /// Bytes that a frame carries there.
    pub mtu: usize,
    /// Which way frames come and go, and why not by xdp where it was wanted.
    #[serde(default)]
    pub frames: String,
    /// Connections that stand.
    pub connections: Vec<StationConnection>,
}

/// A connection over raw Ethernet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StationConnection {
    /// Address of the initiator's station.
    pub peer: String,
    /// Longest payload of a frame, bytes.
    pub payload_bytes: usize,
    /// Bytes that were sent, and those of them that have come.
    pub sent_bytes: u64,
    /// See there.
    pub acknowledged_bytes: u64,
    /// Bytes that have come from the initiator.
    pub received_bytes: u64,
    /// Bytes under way, and how many may be.
    pub in_flight_bytes: u64,
    /// See there.
    pub window_bytes: u64,
    /// Frames that were sent once more.
    pub resent_frames: u64,
    /// How long a round trip takes, microseconds; None: it was not measured yet.
    pub round_trip_us: Option<u64>,
}

/// iSER as a daemon speaks it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iser {
    /// Who moves the data: `software iWARP`, `RDMA adapters`, or both; None: no portal speaks it.
    pub provider: Option<String>,
    /// The portals that do, by software iWARP.
    pub portals: Vec<String>,
    /// Those at which RDMA adapters take connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapter_portals: Vec<String>,
    /// Connections over it, of sessions.
    pub connections: usize,
    /// Bytes of memory that are registered with them now.
    pub registered_bytes: usize,
}

/// A capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Where it is.
    pub file: String,
    /// Bytes that it has, or is going to have.
    pub bytes: u64,
    /// Segments of TCP in it.
    pub segments: u64,
    /// Segments that are missing, since they came faster than they could be written.
    pub lost: u64,
    /// Why nothing more is captured, if so.
    #[serde(default)]
    pub ended: Option<String>,
}

/// A target as it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// iSCSI name.
    pub name: String,
    /// Names of the initiators that may log in; if empty, everybody.
    #[serde(default)]
    pub access: Vec<String>,
    /// What initiators have to prove, as in the configuration: `off`, `optional`, `required` or
    /// `mutual`; empty: an earlier version did not tell.
    #[serde(default)]
    pub authentication: String,
    /// Logical units.
    pub luns: Vec<Lun>,
}

/// A logical unit as it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lun {
    /// Its number.
    #[serde(rename = "lun")]
    pub number: u16,
    /// Its store, as configured.
    pub store: String,
    /// Serial number.
    #[serde(default)]
    pub serial: String,
    /// Names of the initiators that see it; none: all that may log in.
    #[serde(default)]
    pub initiators: Option<Vec<String>>,
    /// Size, bytes.
    pub bytes: u64,
    /// Logical block length, bytes.
    #[serde(rename = "block_bytes")]
    pub block: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Type of its protection information.
    #[serde(default)]
    pub protection: Option<u8>,
    /// Blocks that were acknowledged may be lost, and were not written again since: flushes fail.
    #[serde(default)]
    pub lost_writes: bool,
    /// What has become of its file, if that is not found by its path: `deleted`, `replaced` or
    /// `moved`.
    #[serde(default)]
    pub file_lost: Option<String>,
    /// Commands that wait for its store for a second and longer.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// The bytes that are left behind it, where these are less than hosts see.
    #[serde(default)]
    pub shrunk: Option<u64>,
    /// What an image of a cluster is by now.
    #[serde(default)]
    pub image: Option<Image>,
}

/// Commands that wait for a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Who does not answer, in a word.
    pub who: String,
    /// How many.
    pub commands: usize,
    /// How long the oldest of them has waited, seconds.
    pub oldest_s: u64,
    /// New ones are told BUSY.
    pub busy: bool,
}

/// What an image of a cluster is by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The cache of its client: `none`, `writethrough`, `writeback` or `persistent`.
    pub cache: String,
    /// Other clients that have it open, beside a cache that does not hear of them; None: nobody has
    /// looked, as where there is no such cache.
    #[serde(default)]
    pub others: Option<usize>,
    /// The cluster has shut the daemon's client out (blocklisted): all commands fail until the LUN
    /// is removed and added.
    #[serde(default)]
    pub shut_out: bool,
    /// What has become of it, if it is not found by its name: `moved`, `replaced`, or, of a
    /// snapshot, `removed`.
    #[serde(default)]
    pub lost: Option<String>,
}

impl Lun {
    /// Who sees it, where that are not all that may log in.
    #[must_use]
    pub fn initiators_shown(&self) -> Option<String> {
        let names = self.initiators.as_ref()?;
        Some(match names.is_empty() {
            true => "nobody".to_owned(),
            false => format!("{} alone", names.join(", ")),
        })
    }

    /// Its protection information, to follow what is said of it otherwise.
    #[must_use]
    pub fn protection_shown(&self) -> String {
        self.protection.map(|kind| format!(", protection type {kind}")).unwrap_or_default()
    }
}

/// Where the time of all reactors went since they began, and which bytes they touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Counts of the time-stamp counter in a second.
    pub cycles_per_second: u64,
    /// Commands that were timed: one in a few.
    pub commands: u64,
    /// In the order in which a command passes them.
    pub layers: Vec<LayerTime>,
    /// Bytes of data moved.
    pub payload: u64,
    /// Payload bytes copied.
    pub copied: u64,
    /// Payload bytes that stores took at once, which is a copy if they keep them in memory.
    pub stored: u64,
    /// Payload bytes run through CRC32C.
    pub digested: u64,
}

/// Time in one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTime {
    /// Its name.
    pub name: String,
    /// Counts of the time-stamp counter.
    pub cycles: u64,
    /// How often it was left.
    pub laps: u64,
    /// Stays by length: four steps for each doubling of the counts.
    pub lengths: Vec<u32>,
}

/// A target port group of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortGroup {
    /// iSCSI name of the target.
    pub target: String,
    /// Number of the unit.
    pub lun: u16,
    /// Target port group.
    pub group: u16,
    /// Whether hosts do well to use it.
    pub preferred: bool,
    /// As in the configuration.
    pub state: String,
    /// Tags of its portal groups.
    pub portal_groups: Vec<u16>,
    /// It is a portal group by itself, for the configuration has none: its state stays.
    #[serde(default)]
    pub fixed: bool,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Target session identifying handle.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The initiator's alias.
    pub initiator_alias: Option<String>,
    /// ISID, twelve hexadecimal digits.
    pub isid: String,
    /// The target's name; none in a discovery session without one.
    pub target: Option<String>,
    /// Whether it is a discovery session.
    pub discovery: bool,
    /// Seconds since login.
    pub age_s: u64,
    /// Which reactor serves it.
    pub reactor: usize,
    /// Commands under way.
    pub tasks: usize,
    /// Those of them that a limit holds.
    #[serde(default)]
    pub held: usize,
    /// Commands since login.
    pub commands: u64,
    /// Data that the initiator has read, bytes.
    pub read_bytes: u64,
    /// Data that it has written, bytes.
    pub written_bytes: u64,
    /// Negotiated values, by key.
    pub negotiated: Vec<(String, String)>,
    /// Its connections.
    pub connections: Vec<Connection>,
}

/// A connection of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Connection id.
    pub cid: u16,
    /// The initiator's address.
    pub peer: String,
    /// The portal's address.
    pub portal: String,
    /// What carries it: tcp, iser, ether or local.
    #[serde(default)]
    pub transport: String,
    /// Of one over iSER: what RDMA does on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaStream>,
}

/// What RDMA does on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaStream {
    /// Who does it: `software iWARP`, or `RDMA adapter`.
    pub provider: String,
    /// The adapter's name; what follows of CRCs, markers and FPDUs it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// RDMA Reads of the initiator that are served at once.
    pub ird: usize,
    /// RDMA Reads of the target that the initiator serves at once.
    pub ord: usize,
    /// What software iWARP has agreed on.
    #[serde(flatten)]
    pub iwarp: Option<IwarpStream>,
    /// STags of the target that are good now.
    pub stags: usize,
    /// Bytes of the memory that they name.
    pub registered_bytes: usize,
}

/// What software iWARP has agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IwarpStream {
    /// Whether FPDUs have a CRC.
    pub crc: bool,
    /// Whether what the target sends has markers.
    pub markers_sent: bool,
    /// Whether what it receives has them.
    pub markers_received: bool,
    /// Bytes of the longest FPDU that it sends, without markers.
    pub fpdu_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let orders = [
            Request::Status,
            Request::Sessions,
            Request::Layers,
            Request::Load,
            Request::LogoutSession { tsih: 7, timeout_s: 10 },
            Request::DropSession { tsih: 7 },
            Request::ResizeLun { target: None, lun: 1, bytes: 1 << 40, shrink: false },
            Request::AddLun {
                target: None,
                number: Some(3),
                lun: NewLun {
                    store: "memory:1G".into(),
                    block: Some(4096),
                    protection: None,
                    serial: Some("one".into()),
                    space_warning: None,
                    initiators: vec!["iqn.b".into()],
                },
            },
            Request::RemoveLun { target: Some("iqn.a".into()), lun: 3, destroy_data: true },
            Request::RescanLuns,
            Request::SnapshotLun {
                target: Some("iqn.a".into()),
                lun: 0,
                path: "/a".into(),
                name: Some("a".into()),
            },
        ];
        for request in orders {
            let line = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        }
        let reply = Reply::Error { message: "no session 7".into() };
        let line = serde_json::to_string(&reply).unwrap();
        assert_eq!(line, r#"{"reply":"error","message":"no session 7"}"#);
    }

    /// What is one thing has one name in all that is told: `inspect` and `bench` say it so, too.
    #[test]
    fn a_disk_is_told_in_the_words_of_the_other_outputs() {
        let lun = Lun {
            number: 3,
            store: "memory:1G".into(),
            serial: "a".into(),
            initiators: None,
            bytes: 1 << 30,
            block: 4096,
            read_only: false,
            protection: None,
            lost_writes: false,
            file_lost: None,
            waiting: None,
            shrunk: None,
            image: None,
        };
        let told = serde_json::to_string(&lun).unwrap();
        assert!(
            told.starts_with(r#"{"lun":3,"#) && told.contains(r#""block_bytes":4096"#),
            "{told}"
        );
    }

    /// Who reads what earlier versions told reads this, and the other way round.
    #[test]
    fn reactors_are_named_only_if_they_are_silent() {
        let told = |silent_reactors| {
            let reply = Reply::Sessions { sessions: Vec::new(), silent_reactors };
            serde_json::to_string(&reply).unwrap()
        };
        let before = r#"{"reply":"sessions","sessions":[]}"#;
        assert_eq!(told(Vec::new()), before);
        assert_eq!(told(vec![1]), r#"{"reply":"sessions","sessions":[],"silent_reactors":[1]}"#);
        let Reply::Sessions { silent_reactors, .. } = serde_json::from_str(before).unwrap() else {
            panic!("of another kind")
        };
        assert!(silent_reactors.is_empty());
    }

    #[test]
    fn unknown_requests_are_refused() {
        for line in ["{}", "[]", r#"{"request":"reboot"}"#, r#"{"request":"drop-session"}"#] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }
}
