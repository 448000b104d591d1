// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of limits.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use target::LimitSnapshot;
use target::Limited;

use super::table::Column;
use super::table::Family;
use super::table::In;
use super::table::Labels;
use super::table::Table;
use super::table::number;
use crate::limits::LIMITS_MAX;
use crate::looks::Serving;

pub(super) const EACH: Table<(LimitSnapshot, usize)> = Table {
    labels: &["target", "lun", "initiator"],
    columns: &[
        Column::new(
            Family::gauge("lunwire_limit_iops", None, "Commands that it may have in a second"),
            |(one, _)| one.limit.operations.and_then(|count| number(count.get())),
        ),
        Column::new(
            Family::gauge(
                "lunwire_limit_bandwidth",
                Some(In::Bytes),
                "Data that it may have in a second",
            ),
            |(one, _)| one.limit.bytes.and_then(|bytes| number(bytes.get())),
        ),
        Column::new(
            Family::gauge("lunwire_limit_sessions", None, "Sessions that it may have"),
            |(one, _)| one.limit.sessions.and_then(|count| number(count.get())),
        ),
        Column::new(
            Family::gauge(
                "lunwire_limit_held_commands",
                None,
                "Commands of the LUN or initiator that wait for a limit now, this one or another",
            ),
            |(_, held)| number(*held),
        ),
        Column::new(
            Family::counter(
                "lunwire_limit_commands",
                None,
                "Commands that began since the limit is there",
            ),
            |(one, _)| number(one.begun),
        ),
        Column::new(
            Family::counter(
                "lunwire_limit_delayed_commands",
                None,
                "Those that had to wait for the limit",
            ),
            |(one, _)| number(one.held),
        ),
    ],
};

pub(super) fn encode(serving: &Serving, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let rows: Vec<_> = serving
        .limits
        .iter()
        .take(LIMITS_MAX)
        .map(|one| {
            let held = serving.figures.iter().flat_map(|figures| &figures.held);
            let held = held.filter(|held| one.is_for(held)).map(|held| held.commands).sum();
            (labels(one), (one.clone(), held))
        })
        .collect();
    EACH.encode(encoder, &rows)
}

fn labels(one: &LimitSnapshot) -> Labels {
    let (lun, initiator) = match &one.limit.of {
        Limited::Lun(number) => (number.to_string(), String::new()),
        Limited::Initiator(name) => (String::new(), name.clone()),
        Limited::EachInitiator => (String::new(), "*".to_owned()),
    };
    vec![one.target.clone(), lun, initiator]
}
