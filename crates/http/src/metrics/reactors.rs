// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of reactors. Each has its own: sums would become less while one does not answer.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use target::Figures;
use target::PdusIn;
use target::PdusOut;
use target::engine::laps::TURNS;

use super::table::Column;
use super::table::Family;
use super::table::In;
use super::table::Table;
use super::table::Value;
use super::table::number;
use super::times::Times;
use crate::looks::About;
use crate::looks::Serving;

pub(super) const ANSWERS: Table<bool> = Table {
    labels: &["reactor"],
    columns: &[Column::new(
        Family::gauge(
            "lunwire_reactor_answers",
            None,
            "1 if the reactor answers; if 0, all else that is told of it is missing",
        ),
        |answers| number(u64::from(*answers)),
    )],
};

pub(super) const EACH: Table<Figures> = Table {
    labels: &["reactor"],
    columns: &[
        Column::new(
            Family::gauge("lunwire_reactor_connections", None, "Connections, of whatever phase"),
            |of| number(of.holdings.connections),
        ),
        Column::new(
            Family::gauge("lunwire_reactor_sessions", None, "Sessions, of whatever state"),
            |of| number(of.holdings.sessions),
        ),
        Column::new(
            Family::gauge("lunwire_reactor_store_work", None, "Operations of stores under way"),
            |of| number(of.holdings.ios),
        ),
        Column::new(
            Family::gauge(
                "lunwire_reactor_waiting_commands",
                None,
                "Commands that wait for other commands",
            ),
            |of| number(of.holdings.waiting),
        ),
        Column::new(
            Family::gauge(
                "lunwire_reactor_task_managements",
                None,
                "Task management functions under way",
            ),
            |of| number(of.holdings.managements),
        ),
        Column::new(
            Family::gauge(
                "lunwire_reactor_jobs",
                None,
                "Jobs under way that belong to no session, such as copies and wipes",
            ),
            |of| number(of.holdings.jobs),
        ),
        Column::new(
            Family::gauge("lunwire_pool_used", Some(In::Bytes), "Memory for data that is in use"),
            |of| number(of.holdings.pool_bytes),
        ),
        Column::new(
            Family::gauge(
                "lunwire_pool_resident",
                Some(In::Bytes),
                "Memory for data that the system has given, in use or not",
            ),
            |of| number(of.holdings.warm_bytes),
        ),
        Column::new(
            Family::gauge("lunwire_pool_limit", Some(In::Bytes), "Bound on memory for data"),
            |of| number(of.pool_bytes_max),
        ),
        Column::new(Family::counter("lunwire_reactor_commands", None, "SCSI commands"), |of| {
            number(of.traffic.commands)
        }),
        Column::new(
            Family::counter("lunwire_reactor_read", Some(In::Bytes), "Data sent to initiators"),
            |of| number(of.traffic.bytes_in),
        ),
        Column::new(
            Family::counter(
                "lunwire_reactor_written",
                Some(In::Bytes),
                "Data taken from initiators",
            ),
            |of| number(of.traffic.bytes_out),
        ),
        Column::new(
            Family::counter(
                "lunwire_reactor_received",
                Some(In::Bytes),
                "Bytes that came on connections, with headers and digests",
            ),
            |of| number(of.traffic.connections.bytes_in),
        ),
        Column::new(
            Family::counter(
                "lunwire_reactor_sent",
                Some(In::Bytes),
                "Bytes handed out to be sent on connections, with headers and digests",
            ),
            |of| number(of.traffic.connections.bytes_out),
        ),
        Column::new(
            Family::counter(
                "lunwire_reactor_copied",
                Some(In::Bytes),
                "Data that was copied from one buffer to another",
            ),
            |of| number(of.times.copied),
        ),
        Column::new(
            Family::counter(
                "lunwire_reactor_stored",
                Some(In::Bytes),
                "Data that stores took at once, as those in memory do",
            ),
            |of| number(of.times.stored),
        ),
        Column::new(
            Family::counter(
                "lunwire_reactor_digested",
                Some(In::Bytes),
                "Bytes run through CRC32C for digests",
            ),
            |of| number(of.times.digested),
        ),
    ],
};

/// Digests that were wrong: of headers, of data.
pub(super) const DIGESTS: Table<u64> = Table {
    labels: &["reactor", "part"],
    columns: &[Column::new(
        Family::counter(
            "lunwire_digest_errors",
            None,
            "PDUs whose digest was wrong: of the header, which ends the connection, or of the data",
        ),
        |count| number(*count),
    )],
};

pub(super) const PDUS: Table<u64> = Table {
    labels: &["reactor", "direction", "pdu"],
    columns: &[Column::new(
        Family::counter(
            "lunwire_pdus",
            None,
            "PDUs of iSCSI that were received (in) and sent (out), by kind",
        ),
        |count| number(*count),
    )],
};

pub(super) const LAYERS: Table<Times> = Table {
    labels: &["reactor", "layer"],
    columns: &[
        Column::new(
            Family::counter(
                "lunwire_reactor_time",
                Some(In::Seconds),
                "Where the reactor's time went, estimated from one turn of it in 127; idle is \
                 what it did not work, store-wait is no time of the reactor",
            ),
            |stay| Some(Value::Seconds(stay.seconds() * f64::from(TURNS))),
        ),
        Column::new(
            Family::seconds(
                "lunwire_layer",
                "Time in a layer at a stretch, in the turns that were timed: one in 127; \
                 store-wait is from an operation of a store to its end",
            ),
            |stay| Some(stay.histogram()),
        ),
    ],
};

pub(super) fn encode(
    about: About,
    serving: &Serving,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let reactors = serving.figures.iter().map(|figures| (figures.reactor, true));
    let reactors = reactors.chain(serving.silent.iter().map(|reactor| (*reactor, false)));
    let answers = reactors.map(|(reactor, answers)| (vec![reactor.to_string()], answers));
    ANSWERS.encode(encoder, &answers.collect::<Vec<_>>())?;
    let each = || serving.figures.iter().map(|figures| (figures.reactor.to_string(), figures));
    let rows: Vec<_> = each().map(|(reactor, figures)| (vec![reactor], figures)).collect();
    EACH.encode(encoder, &rows)?;
    let digests = each().flat_map(|(reactor, figures)| {
        let of = &figures.traffic.connections;
        let parts = [("header", of.header_digest_errors), ("data", of.data_digest_errors)];
        parts.map(|(part, count)| (vec![reactor.clone(), part.to_owned()], count))
    });
    DIGESTS.encode(encoder, &digests.collect::<Vec<_>>())?;
    let pdus = each().flat_map(|(reactor, figures)| {
        let counters = &figures.traffic.connections;
        let received = pdus_in(&counters.pdus_in).map(|(pdu, count)| ("in", pdu, count));
        let sent = pdus_out(&counters.pdus_out).map(|(pdu, count)| ("out", pdu, count));
        received.into_iter().chain(sent).map(move |(direction, pdu, count)| {
            (vec![reactor.clone(), direction.to_owned(), pdu.to_owned()], count)
        })
    });
    PDUS.encode(encoder, &pdus.collect::<Vec<_>>())?;
    let layers = each().flat_map(|(reactor, figures)| {
        let layers = figures.times.layers.iter();
        layers.map(move |(name, layer)| {
            (vec![reactor.clone(), (*name).to_owned()], Times::new(about, layer))
        })
    });
    LAYERS.encode(encoder, &layers.collect::<Vec<_>>())
}

const fn pdus_in(of: &PdusIn) -> [(&'static str, u64); 9] {
    [
        ("nop-out", of.nop_out),
        ("scsi-command", of.scsi_command),
        ("task-management", of.task_management),
        ("login", of.login),
        ("text", of.text),
        ("data-out", of.data_out),
        ("logout", of.logout),
        ("snack", of.snack),
        ("malformed", of.malformed),
    ]
}

const fn pdus_out(of: &PdusOut) -> [(&'static str, u64); 10] {
    [
        ("nop-in", of.nop_in),
        ("scsi-response", of.scsi_response),
        ("task-management", of.task_management),
        ("login", of.login),
        ("text", of.text),
        ("data-in", of.data_in),
        ("logout", of.logout),
        ("r2t", of.r2t),
        ("async-message", of.async_message),
        ("reject", of.reject),
    ]
}
