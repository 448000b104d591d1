// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire status`, `sessions` and `session`: talk to a running daemon.

use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use anyhow::bail;
use control::admin::Capture;
use control::admin::Iser;
use control::admin::Lun;
use control::admin::RdmaStream;
use control::admin::Reply;
use control::admin::Request;
use control::admin::Station;
use control::admin::Waiting;
use control::units;
use control::words;
use serde_json::json;

use crate::args::AdminOptions;
use crate::args::SessionAction;
use crate::args::SessionOptions;
use crate::control_socket::advice::reaching;
use crate::control_socket::asking;
use crate::daemon::shown;
use crate::output;
use crate::plan;

/// What the daemon is and does.
pub(crate) fn status(options: &AdminOptions) -> Result<()> {
    let socket = options.daemon.control_socket.as_deref();
    let reply = asking::ask(socket, &Request::Status)?;
    if options.json {
        output::result(serde_json::to_value(&reply)?);
        return Ok(());
    }
    let Reply::Status(status) = reply else { return Err(asking::unexpected(socket)) };
    output::table(&[
        vec!["version".into(), status.version],
        vec!["process".into(), status.pid.to_string()],
        vec!["uptime".into(), format!("{} s", status.uptime_s)],
        vec!["engine".into(), {
            let reactors = words::count(status.reactors as u64, "reactor");
            format!("{}, {}, {reactors}", status.engine, status.mode)
        }],
        vec!["CRC32C".into(), status.crc32c],
        vec!["portals".into(), status.portals.join(", ")],
        vec!["iSER".into(), iser_shown(&status.iser)],
        vec!["sessions".into(), status.sessions.to_string()],
        vec!["sandbox".into(), sandbox_shown(&status.sandbox)],
    ]);
    tell_silent(&status.silent_reactors);
    if let Some(address) = &status.http {
        let at = format!("{}://{address}", if status.http_tls { "https" } else { "http" });
        output::line(format!("a page at {at}/, metrics at {at}/metrics"));
    }
    if let Some(Capture { file, bytes, segments, lost, ended }) = &status.capture {
        let missing = if *lost > 0 { format!(", {lost} are missing") } else { String::new() };
        let ended = ended.as_ref().map(|why| format!("; over: {why}")).unwrap_or_default();
        let (bytes, segments) = (units::bytes(*bytes), words::count(*segments, "segment"));
        output::line(format!("capture to {file}: {segments}, {bytes}{missing}{ended}"));
    }
    for limit in &status.limits {
        output::line(format!("limit of {} {}", limit.target, super::limit::shown(limit)));
    }
    status.stations.iter().flat_map(station_shown).for_each(output::line);
    for target in status.targets {
        output::line(format!("target {}", target.name));
        let who = match target.access.is_empty() {
            true => "everybody".to_owned(),
            false => target.access.join(", "),
        };
        let proof = match &*target.authentication {
            "off" => ", without a proof of who that is",
            "optional" => ", with or without a proof (CHAP)",
            "required" => ", with a proof (CHAP)",
            "mutual" => ", with proofs of both (mutual CHAP)",
            _ => "",
        };
        output::line(format!("  for {who}{proof}"));
        for lun in target.luns {
            let access = if lun.read_only { ", read only" } else { "" };
            let protection = lun.protection_shown();
            let size = match lun.bytes {
                0 => "a device without a capacity".to_owned(),
                bytes => format!("{}, {}-byte blocks", units::bytes(bytes), lun.block),
            };
            let seen = lun.initiators_shown().map(|by| format!(", seen by {by}"));
            let cache = lun.image.as_ref().map(|image| format!(", cache: {}", image.cache));
            let (number, store, serial) = (lun.number, &lun.store, &lun.serial);
            let (seen, cache) = (seen.unwrap_or_default(), cache.unwrap_or_default());
            output::line(format!(
                "  LUN {number}: {store} ({size}{access}{protection}{cache}), serial {serial}{seen}"
            ));
            tell_store(&lun);
            if let Some(how) = &lun.file_lost {
                output::line(format!(
                    "    its file was {how}: nobody will find there what hosts write; try: lunwire \
                     copy the disk to another file before the LUN is removed or the daemon ends"
                ));
            }
            if lun.lost_writes {
                let is_shut_out = lun.image.as_ref().is_some_and(|image| image.shut_out);
                // Nobody knows of a disk elsewhere what it has lost.
                let is_remote = lun.store.contains("://");
                output::line(match is_shut_out || is_remote {
                    true => {
                        "    what was acknowledged and not flushed may be lost; flushes fail until \
                         the LUN is removed and added"
                    }
                    false => {
                        "    could not write back: blocks may be lost; flushes fail until they are \
                         written again, or the LUN is removed and added"
                    }
                });
            }
        }
    }
    Ok(())
}

/// What the daemon has given up.
fn sandbox_shown(given_up: &[String]) -> String {
    let in_words = |word: &String| match &**word {
        "privileges" => "new privileges".to_owned(),
        "calls" => "system calls of administration".to_owned(),
        "programs" => "executing programs".to_owned(),
        "signals" => "signals to others".to_owned(),
        "files" => "other files".to_owned(),
        "ports" => "other ports".to_owned(),
        other => other.to_owned(),
    };
    match given_up {
        [] => "off".into(),
        given_up => {
            let words: Vec<String> = given_up.iter().map(in_words).collect();
            format!("given up: {}", words.join(", "))
        }
    }
}

/// A station, and what its connections do.
fn station_shown(station: &Station) -> Vec<String> {
    let Station { interface, mac, mtu, frames, connections } = station;
    let first = format!("station {mac} at {interface}, {mtu} bytes in a frame, {frames}");
    let shown = connections.iter().map(|one| {
        let trip = one.round_trip_us.map_or_else(|| "not measured".into(), |us| format!("{us} us"));
        format!(
            "  {}: {} in a frame, {} of {} in flight, {} sent again, round trip {trip}",
            one.peer,
            units::bytes(one.payload_bytes as u64),
            units::bytes(one.in_flight_bytes),
            units::bytes(one.window_bytes),
            words::count(one.resent_frames, "frame"),
        )
    });
    std::iter::once(first).chain(shown).collect()
}

/// Which portals speak iSER, by whom, and what is moved by that now.
fn iser_shown(iser: &Iser) -> String {
    let both = [("software iWARP", &iser.portals), ("RDMA adapters", &iser.adapter_portals)];
    let both = both.iter().filter(|(_, portals)| !portals.is_empty());
    let both: Vec<String> =
        both.map(|(provider, portals)| format!("{provider} at {}", portals.join(", "))).collect();
    if both.is_empty() {
        return "off".into();
    }
    let connections = words::count(iser.connections as u64, "connection");
    let registered = units::bytes(iser.registered_bytes as u64);
    format!("{}; {connections}, {registered} of memory registered", both.join("; "))
}

/// What RDMA does on a connection.
fn rdma_shown(rdma: &RdmaStream) -> String {
    let device = rdma.device.iter().map(|device| format!(" {device}")).collect::<String>();
    let iwarp = rdma.iwarp.iter().map(|iwarp| {
        let markers = match (iwarp.markers_sent, iwarp.markers_received) {
            (false, false) => "none",
            (true, false) => "sent",
            (false, true) => "received",
            (true, true) => "both ways",
        };
        let crc = if iwarp.crc { "on" } else { "off" };
        format!("CRC {crc}, markers {markers}, FPDUs up to {} bytes, ", iwarp.fpdu_bytes)
    });
    format!(
        "    {}{device}: IRD {}, ORD {}, {}{} in {} registered",
        rdma.provider,
        rdma.ird,
        rdma.ord,
        iwarp.collect::<String>(),
        units::bytes(rdma.registered_bytes as u64),
        words::count(rdma.stags as u64, "STag"),
    )
}

/// What is wrong with what is behind a disk.
fn tell_store(lun: &Lun) {
    if let Some(Waiting { who, commands, oldest_s, busy }) = &lun.waiting {
        let (verb, oldest) = match commands {
            1 => ("waits", "".to_owned()),
            _ => ("wait", ", the oldest".to_owned()),
        };
        let commands = words::count(*commands as u64, "command");
        let hosts = if *busy { "; hosts hear BUSY" } else { "" };
        output::line(format!(
            "    {commands} {verb} for the {who}{oldest} for {oldest_s} s{hosts}"
        ));
    }
    if let Some(bytes) = lun.shrunk {
        let left = units::bytes(bytes);
        output::line(format!(
            "    {left} are left of it: what reaches behind that fails; try: make it as large as \
             before, or, after the file system on it was made smaller, lunwire lun resize {} \
             {bytes} --shrink",
            lun.number
        ));
    }
    let Some(image) = &lun.image else { return };
    match image.lost.as_deref() {
        None => {}
        Some("removed") => output::line("    the snapshot was removed: reads fail"),
        Some(how) => {
            let next = match how {
                "replaced" => "the next start serves the one that has its name",
                _ if plan::makes_images(&lun.store) => "the next start makes an empty one",
                _ => "the daemon will not find it by this name at its next start",
            };
            let (what, rename) = match plan::is_of_snapshots(&lun.store) {
                true => ("snapshot", "rbd snap rename or rbd mv"),
                false => ("image", "rbd mv"),
            };
            output::line(format!(
                "    the {what} was {how}: {next}; try: the new name in the configuration, or \
                 {rename} it back"
            ));
        }
    }
    if image.shut_out {
        output::line(format!(
            "    the cluster has shut this client out (blocklisted): all commands fail; try: \
             lunwire lun remove {} and lunwire lun add, when nobody else is to have the image",
            lun.number
        ));
    }
    if let Some(others @ 1..) = image.others {
        let clients = words::count(others as u64, "other client");
        output::line(format!(
            "    {clients} with the image open beside this cache: what they write is not seen \
             here; try: rbd config image set POOL/IMAGE rbd_cache false, and start the daemon again"
        ));
    }
}

/// The sessions of the daemon.
pub(crate) fn sessions(options: &AdminOptions) -> Result<()> {
    let socket = options.daemon.control_socket.as_deref();
    let reply = asking::ask(socket, &Request::Sessions)?;
    if options.json {
        output::result(serde_json::to_value(&reply)?);
        return Ok(());
    }
    let Reply::Sessions { sessions, silent_reactors } = reply else {
        return Err(asking::unexpected(socket));
    };
    tell_silent(&silent_reactors);
    if sessions.is_empty() && silent_reactors.is_empty() {
        output::line("no sessions");
    }
    for session in sessions {
        let target = session.target.as_deref().unwrap_or("(discovery)");
        output::line(format!("session {} from {} to {target}", session.tsih, session.initiator));
        if session.connections.is_empty() {
            output::line("  no connection; kept for its initiator to come back");
        }
        for connection in &session.connections {
            let (cid, peer, portal) = (connection.cid, &connection.peer, &connection.portal);
            let transport = match connection.transport.as_str() {
                "iser" => " over iser",
                "ether" => " over raw Ethernet",
                _ => "",
            };
            output::line(format!("  connection {cid}: {peer} at {portal}{transport}"));
            connection.rdma.iter().for_each(|rdma| output::line(rdma_shown(rdma)));
        }
        let held = match session.held {
            0 => String::new(),
            held => format!(", {held} of them held by limits"),
        };
        output::line(format!(
            "  ISID {}, age {} s, reactor {}, {} ({} under way{held}), {} read, {} written",
            session.isid,
            session.age_s,
            session.reactor,
            words::count(session.commands, "command"),
            session.tasks,
            units::bytes(session.read_bytes),
            units::bytes(session.written_bytes),
        ));
        let pairs = session.negotiated.iter().map(|(key, value)| format!("{key}={value}"));
        output::line(format!("  {}", pairs.collect::<Vec<_>>().join(" ")));
    }
    Ok(())
}

/// Sessions of reactors that do not answer are missing.
fn tell_silent(reactors: &[usize]) {
    if !reactors.is_empty() {
        output::warn(shown::silent(reactors));
    }
}

/// One session: returns when it has ended, whatever its initiator does.
pub(crate) fn session(options: &SessionOptions) -> Result<()> {
    let (tsih, request, daemon, patience) = match &options.action {
        SessionAction::Drop { tsih, daemon } => {
            (*tsih, Request::DropSession { tsih: *tsih }, daemon, DROP_WAIT)
        }
        SessionAction::Logout { tsih, timeout, daemon } => {
            let patience = Duration::from_secs(u64::from(*timeout)) + DROP_WAIT;
            let request = Request::LogoutSession { tsih: *tsih, timeout_s: *timeout };
            (*tsih, request, daemon, patience)
        }
    };
    let socket = daemon.daemon.control_socket.as_deref();
    let look = || match asking::ask(socket, &Request::Sessions)? {
        Reply::Sessions { sessions, silent_reactors } => {
            let reactor = sessions.iter().find(|one| one.tsih == tsih).map(|one| one.reactor);
            Ok((reactor, silent_reactors))
        }
        _ => Err(asking::unexpected(socket)),
    };
    let (home, _) = look()?;
    let Reply::Done = asking::ask(socket, &request)? else {
        return Err(asking::unexpected(socket));
    };
    let deadline = Instant::now() + patience;
    loop {
        let (found, silent) = look()?;
        // Nobody waits for a reactor that never had it.
        let is_told = home.map_or(silent.is_empty(), |home| !silent.contains(&home));
        if is_told && found.is_none() {
            if daemon.json {
                output::result(json!({ "reply": "done", "tsih": tsih }));
            } else {
                output::line(format!("session {tsih} has ended"));
            }
            return Ok(());
        }
        if Instant::now() > deadline {
            match &options.action {
                SessionAction::Drop { .. } => bail!("session {tsih} has not ended in time"),
                SessionAction::Logout { .. } => {
                    let drop = format!("lunwire session drop {tsih}");
                    let drop = reaching(&drop, socket);
                    bail!("session {tsih} has not ended in time; try: {drop}")
                }
            }
        }
        std::thread::sleep(POLL);
    }
}

/// A session that was ended is gone after so long, whatever its initiator does.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Between two looks at the sessions.
const POLL: Duration = Duration::from_millis(50);
