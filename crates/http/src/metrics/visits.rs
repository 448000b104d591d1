// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of logins and losses, by reactor.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use target::Visits;

use super::table::Column;
use super::table::Family;
use super::table::Table;
use super::table::number;
use crate::looks::Serving;

pub(super) const EACH: Table<Visits> = Table {
    labels: &["reactor"],
    columns: &[
        Column::new(
            Family::counter(
                "lunwire_logins",
                None,
                "Logins that went well: of sessions, and of further connections of sessions",
            ),
            |of| number(of.logins),
        ),
        Column::new(
            Family::counter(
                "lunwire_logins_given_up",
                None,
                "Connections that were closed before their login was over, as they broke the \
                 protocol or took too long",
            ),
            |of| number(of.closed_early),
        ),
        Column::new(
            Family::counter(
                "lunwire_connections_lost",
                None,
                "Connections of sessions that ended by an error of the network",
            ),
            |of| number(of.lost_connections),
        ),
        Column::new(
            Family::counter(
                "lunwire_sessions_reinstated",
                None,
                "Sessions that ended since their initiator logged in anew in their place",
            ),
            |of| number(of.reinstated_sessions),
        ),
    ],
};

pub(super) const REFUSED: Table<u64> = Table {
    labels: &["reactor", "status", "reason"],
    columns: &[Column::new(
        Family::counter(
            "lunwire_logins_refused",
            None,
            "Logins that were refused, by the status that the initiator got",
        ),
        |count| number(*count),
    )],
};

pub(super) fn encode(serving: &Serving, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let each = serving.figures.iter().map(|of| (of.reactor.to_string(), &of.visits));
    let rows: Vec<_> = each.clone().map(|(reactor, visits)| (vec![reactor], visits)).collect();
    EACH.encode(encoder, &rows)?;
    let refused = each.flat_map(|(reactor, visits)| {
        let rows = visits.refused.iter().flat_map(|(status, count)| {
            // Who was refused by a limit got the status of those for whom there was no room.
            let limited = if *status == OUT_OF_RESOURCES { visits.limited } else { 0 };
            let by_limit = (limited > 0).then_some((*status, "limit of sessions", limited));
            let others = (*status, reason(*status), count.saturating_sub(limited));
            let others = Some(others).filter(|(_, _, count)| *count > 0);
            others.into_iter().chain(by_limit)
        });
        rows.map(move |(status, reason, count)| {
            (vec![reactor.clone(), format!("{status:04x}"), reason.to_owned()], count)
        })
    });
    REFUSED.encode(encoder, &refused.collect::<Vec<_>>())
}

const OUT_OF_RESOURCES: u16 = 0x0302;

/// What a status says (RFC 7143 §11.13.5).
const fn reason(status: u16) -> &'static str {
    match status {
        0x0101 | 0x0102 => "target moved",
        0x0201 => "authentication failure",
        0x0202 => "authorization failure",
        0x0203 => "not found",
        0x0204 => "target removed",
        0x0205 => "unsupported version",
        0x0206 => "too many connections",
        0x0207 => "missing parameter",
        0x0208 => "can't include in session",
        0x0209 => "session type not supported",
        0x020a => "session does not exist",
        0x020b => "invalid during login",
        0x0300 => "target error",
        0x0301 => "service unavailable",
        OUT_OF_RESOURCES => "out of resources",
        _ => "initiator error",
    }
}
