// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of sessions, as far as there are not too many.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use target::SessionSnapshot;
use target::TIMED_SESSIONS_MAX;

use super::table::Column;
use super::table::Family;
use super::table::In;
use super::table::Labels;
use super::table::Table;
use super::table::number;
use super::table::with;
use super::times::Times;
use crate::limits::SESSIONS_MAX;
use crate::looks::About;
use crate::looks::Serving;

pub(super) const OF_TARGET: Table<usize> = Table {
    labels: &["target"],
    columns: &[Column::new(
        Family::gauge("lunwire_target_sessions", None, "Sessions that are logged in to the target"),
        |count| number(*count),
    )],
};

pub(super) const EACH: Table<SessionSnapshot> = Table {
    labels: &["target", "initiator", "tsih"],
    columns: &[
        Column::new(
            Family::gauge("lunwire_session_connections", None, "Connections of the session"),
            |session| number(session.connections.len()),
        ),
        Column::new(
            Family::gauge(
                "lunwire_session_commands_under_way",
                None,
                "Commands in the hands of the device server, which is the queue depth",
            ),
            |session| number(session.tasks),
        ),
        Column::new(
            Family::gauge(
                "lunwire_session_commands_held",
                None,
                "Those of them that wait for a limit",
            ),
            |session| number(session.held),
        ),
        Column::new(
            Family::counter("lunwire_session_commands", None, "SCSI commands since the login"),
            |session| number(session.commands),
        ),
        Column::new(
            Family::counter(
                "lunwire_session_read",
                Some(In::Bytes),
                "Data sent to the initiator since the login",
            ),
            |session| number(session.bytes_in),
        ),
        Column::new(
            Family::counter(
                "lunwire_session_written",
                Some(In::Bytes),
                "Data taken from the initiator since the login",
            ),
            |session| number(session.bytes_out),
        ),
    ],
};

/// Whose times are told.
pub(super) const TIMES: Table<Times> = Table {
    labels: &["target", "initiator", "tsih", "operation"],
    columns: &[Column::new(
        Family::seconds(
            "lunwire_session_command",
            "How long commands of the session took, as lunwire_lun_command_seconds has it for LUNs",
        ),
        |times| Some(times.histogram()),
    )],
};

/// How many have no metrics of their own.
pub(super) fn left_out(serving: &Serving) -> usize {
    all(serving).count().saturating_sub(SESSIONS_MAX)
}

/// How many sessions have times that are not told.
pub(super) fn untimed(serving: &Serving) -> usize {
    all(serving).count().saturating_sub(TIMED_SESSIONS_MAX)
}

fn all(serving: &Serving) -> impl Iterator<Item = &SessionSnapshot> {
    serving.figures.iter().flat_map(|figures| &figures.sessions)
}

pub(super) fn encode(
    about: About,
    serving: &Serving,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let names = serving.targets.iter().map(|target| target.name.as_str());
    let mut counts: BTreeMap<&str, usize> = names.map(|name| (name, 0)).collect();
    let normal = all(serving).filter(|session| !session.discovery);
    for name in normal.filter_map(|session| session.target.as_deref()) {
        *counts.entry(name).or_default() += 1;
    }
    let counts: Vec<_> =
        counts.iter().map(|(name, count)| (vec![(*name).into()], *count)).collect();
    OF_TARGET.encode(encoder, &counts)?;
    let mut sessions: Vec<&SessionSnapshot> = all(serving).collect();
    // The oldest ones stay, whoever comes.
    sessions.sort_by_key(|session| std::cmp::Reverse(session.age));
    sessions.truncate(SESSIONS_MAX);
    let rows: Vec<_> = sessions.into_iter().map(|session| (labels(session), session)).collect();
    EACH.encode(encoder, &rows)?;
    let timed = rows.iter().take(TIMED_SESSIONS_MAX).flat_map(|(of, session)| {
        let each = session.took.iter();
        each.map(|(operation, took)| (with(of, operation.name()), Times::new(about, took)))
    });
    TIMES.encode(encoder, &timed.collect::<Vec<_>>())
}

fn labels(session: &SessionSnapshot) -> Labels {
    let target = session.target.clone().unwrap_or_default();
    vec![target, session.initiator.clone(), session.tsih.to_string()]
}
