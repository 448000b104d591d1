// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the library knows of targets and sessions, in the words of the control socket.

use std::collections::BTreeMap;
use std::time::Duration;

use capture::Capture;
use control::admin;
use control::units;
use iscsi::target_role::TaskReporting;
use scsi::ProtectionType;
use target::AdapterFacts;
use target::Checks;
use target::Demand;
use target::Framing;
use target::IserFacts;
use target::LunSnapshot;
use target::Markers;
use target::Place;
use target::SessionSnapshot;
use target::StationFigures;
use target::Target;
use target::TargetSnapshot;
use target::Unseen;
use target::Wait;

use crate::plan;

/// Says which reactors have not answered.
pub(crate) fn silent(reactors: &[usize]) -> String {
    let numbers: Vec<String> = reactors.iter().map(usize::to_string).collect();
    let (what, verb) = match reactors {
        [_] => ("reactor", "does"),
        _ => ("reactors", "do"),
    };
    let numbers = numbers.join(", ");
    format!("{what} {numbers} {verb} not answer; try: again, or look at the log of the daemon")
}

/// What reactors wait for, by disk: commands, and for how long the oldest of them has waited.
pub(super) type Waits = BTreeMap<String, (usize, Duration)>;

pub(super) fn by_disk<'a>(all: impl IntoIterator<Item = &'a Wait>) -> Waits {
    let mut waits = Waits::new();
    for Wait { disk, commands, oldest, .. } in all {
        let (sum, longest) = waits.entry(disk.clone()).or_default();
        (*sum, *longest) = (*sum + commands, (*longest).max(*oldest));
    }
    waits
}

/// The target; `waits` is what reactors wait for.
pub(super) fn target(target: TargetSnapshot, waits: &Waits) -> admin::Target {
    admin::Target {
        name: target.name,
        access: target.access,
        authentication: demand(target.demand).to_owned(),
        luns: target.luns.into_iter().map(|one| lun(one, waits)).collect(),
    }
}

const fn demand(demand: Demand) -> &'static str {
    match demand {
        Demand::Off => "off",
        Demand::Optional => "optional",
        Demand::Required => "required",
        Demand::Mutual => "mutual",
    }
}

pub(super) fn lun(lun: LunSnapshot, waits: &Waits) -> admin::Lun {
    admin::Lun {
        waiting: waiting(&lun, waits),
        shrunk: lun.shrunk,
        image: lun.elsewhere.map(|elsewhere| admin::Image {
            cache: elsewhere.cache.to_owned(),
            others: elsewhere.others,
            shut_out: elsewhere.shut_out,
            lost: elsewhere.lost.map(str::to_owned),
        }),
        number: lun.number,
        store: plan::store_of_now(&lun.label, lun.bytes),
        serial: lun.serial,
        initiators: lun.initiators,
        bytes: lun.bytes,
        block: lun.block,
        read_only: lun.read_only,
        protection: lun.protection.map(ProtectionType::number),
        lost_writes: lun.lost_writes,
        file_lost: lun.astray.map(str::to_owned),
    }
}

/// Says that a disk has become smaller than hosts see it.
pub(crate) fn smaller(found: &admin::RescannedLun) -> String {
    let admin::RescannedLun { target, lun, before, now } = found;
    let (before, size) = (units::bytes(*before), units::bytes(*now));
    format!(
        "{target} LUN {lun}: {size} are left of the {before} that hosts see: what reaches behind \
         that fails; try: make it as large as before, or, after the file system on it was made \
         smaller, lunwire lun resize {lun} {now} --shrink"
    )
}

/// Says that a snapshot is not one of the image that has the name of the disk now.
pub(super) fn kept_elsewhere(lun: u16, how: &str) -> String {
    format!(
        "the image of LUN {lun} was {how} while it is served, and the snapshot is one of it: it is \
         not found under the name that the LUN has; try: rbd ls -l POOL"
    )
}

/// Says why nobody knows what is behind a disk.
pub(super) fn unseen(unseen: &Unseen) -> String {
    let Unseen { target, lun, why, .. } = unseen;
    format!("{target} LUN {lun}: not looked at: {why}")
}

fn waiting(lun: &LunSnapshot, waits: &Waits) -> Option<admin::Waiting> {
    let (commands, oldest) = waits.get(&lun.serial).copied()?;
    let elsewhere = lun.elsewhere;
    Some(admin::Waiting {
        who: elsewhere.map_or("store", |elsewhere| elsewhere.who).to_owned(),
        commands,
        oldest_s: oldest.as_secs(),
        busy: lun.is_fenced || elsewhere.is_some_and(|elsewhere| elsewhere.is_busy),
    })
}

fn reporting(value: TaskReporting) -> &'static str {
    match value {
        TaskReporting::Rfc3720 => "RFC3720",
        TaskReporting::ResponseFence => "ResponseFence",
        TaskReporting::FastAbort => "FastAbort",
    }
}

pub(super) fn session(session: SessionSnapshot) -> admin::Session {
    let of = &session.parameters;
    let yes = |on: bool| String::from(if on { "Yes" } else { "No" });
    let digest = |on: bool| String::from(if on { "CRC32C" } else { "None" });
    let negotiated = [
        ("HeaderDigest", digest(of.header_digest)),
        ("DataDigest", digest(of.data_digest)),
        ("MaxRecvDataSegmentLength", of.max_recv_data_segment_length.to_string()),
        ("MaxXmitDataSegmentLength", of.max_send_data_segment_length.to_string()),
        ("MaxBurstLength", of.max_burst_length.to_string()),
        ("FirstBurstLength", of.first_burst_length.to_string()),
        ("InitialR2T", yes(of.initial_r2t)),
        ("ImmediateData", yes(of.immediate_data)),
        ("MaxOutstandingR2T", of.max_outstanding_r2t.to_string()),
        ("MaxConnections", of.max_connections.to_string()),
        ("ErrorRecoveryLevel", of.error_recovery_level.to_string()),
        ("TaskReporting", reporting(of.task_reporting).to_owned()),
        ("iSCSIProtocolLevel", of.protocol_level.to_string()),
    ];
    admin::Session {
        tsih: session.tsih,
        initiator: session.initiator,
        initiator_alias: session.initiator_alias,
        isid: session.isid,
        target: session.target,
        discovery: session.discovery,
        age_s: session.age.as_secs(),
        reactor: session.reactor,
        tasks: session.tasks,
        held: session.held,
        commands: session.commands,
        read_bytes: session.bytes_in,
        written_bytes: session.bytes_out,
        negotiated: negotiated.map(|(key, value)| (key.to_owned(), value)).to_vec(),
        connections: session
            .connections
            .into_iter()
            .map(|connection| admin::Connection {
                cid: connection.cid,
                peer: connection.peer.to_string(),
                portal: connection.local.to_string(),
                transport: connection.transport.to_owned(),
                rdma: match (&connection.iser, &connection.adapter) {
                    (Some(facts), _) => Some(rdma(facts)),
                    (None, facts) => facts.as_ref().map(rdma_of_adapter),
                },
            })
            .collect(),
    }
}

/// Who does RDMA here.
pub(crate) const IWARP: &str = "software iWARP";

/// The same where somebody else does.
const ADAPTERS: &str = "RDMA adapters";
pub(crate) const ADAPTER: &str = "RDMA adapter";

fn rdma_of_adapter(facts: &AdapterFacts) -> admin::RdmaStream {
    admin::RdmaStream {
        provider: ADAPTER.to_owned(),
        device: Some(facts.device.clone()),
        ird: facts.ird,
        ord: facts.ord,
        iwarp: None,
        stags: facts.keys,
        registered_bytes: facts.registered,
    }
}

/// What RDMA does on a connection.
fn rdma(facts: &IserFacts) -> admin::RdmaStream {
    let Framing { checks, sent, received } = facts.framing;
    admin::RdmaStream {
        provider: IWARP.to_owned(),
        device: None,
        ird: facts.ird,
        ord: facts.ord,
        iwarp: Some(admin::IwarpStream {
            crc: checks == Checks::Crc,
            markers_sent: sent == Markers::Sent,
            markers_received: received == Markers::Sent,
            fpdu_bytes: facts.fpdu_len,
        }),
        stags: facts.stags,
        registered_bytes: facts.registered,
    }
}

/// iSER as the daemon speaks it; these sessions are there.
pub(super) fn iser<'a>(
    target: &Target,
    sessions: impl Iterator<Item = &'a SessionSnapshot>,
) -> admin::Iser {
    let connections = sessions.flat_map(|session| &session.connections);
    let registered = connections.filter_map(|connection| {
        let adapter = connection.adapter.as_ref().map(|facts| facts.registered);
        connection.iser.map(|facts| facts.registered).or(adapter)
    });
    let registered: Vec<usize> = registered.collect();
    let (portals, adapter_portals) = (target.iser_portals(), target.adapter_portals());
    let providers = [(IWARP, portals.is_empty()), (ADAPTERS, adapter_portals.is_empty())];
    let providers = providers.iter().filter(|(_, nowhere)| !nowhere).map(|(name, _)| *name);
    let providers: Vec<&str> = providers.collect();
    admin::Iser {
        provider: (!providers.is_empty()).then(|| providers.join(" and ")),
        portals: portals.iter().map(ToString::to_string).collect(),
        adapter_portals: adapter_portals.iter().map(ToString::to_string).collect(),
        connections: registered.len(),
        registered_bytes: registered.iter().sum(),
    }
}

/// Where frames are taken, and what connections there do.
pub(super) fn stations(target: &Target, patience: Duration) -> Vec<admin::Station> {
    let figures = target.station_figures(patience);
    let all = target.stations().into_iter().zip(target.station_frames()).zip(figures);
    let shown = |(((place, mtu), frames), figures): (_, Vec<StationFigures>)| {
        let Place { mac, interface } = place;
        admin::Station {
            interface: interface.name,
            mac: mac.to_string(),
            mtu,
            frames,
            connections: figures.iter().map(over_frames).collect(),
        }
    };
    all.map(shown).collect()
}

fn over_frames(figures: &StationFigures) -> admin::StationConnection {
    admin::StationConnection {
        peer: figures.peer.to_string(),
        payload_bytes: figures.payload_max,
        sent_bytes: figures.sent,
        acknowledged_bytes: figures.acknowledged,
        received_bytes: figures.come,
        in_flight_bytes: figures.in_flight,
        window_bytes: figures.window,
        resent_frames: figures.resent,
        round_trip_us: figures
            .round_trip
            .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
    }
}

/// How far a capture is.
pub(super) fn capture(capture: &Capture) -> admin::Capture {
    let figures = capture.figures();
    admin::Capture {
        file: capture.path().display().to_string(),
        bytes: figures.bytes,
        segments: figures.segments,
        lost: figures.lost,
        ended: figures.end.map(|end| end.to_string()),
    }
}
