// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is told of the daemon as a whole.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::luns;
use super::sessions;
use super::table::Column;
use super::table::Family;
use super::table::In;
use super::table::Table;
use super::table::Value;
use super::table::number;
use crate::looks::Look;
use crate::looks::Seen;
use crate::looks::Serving;

pub(super) const BUILD: Table<()> = Table {
    labels: &["version", "engine", "mode", "crc32c"],
    columns: &[Column::new(
        Family::info("lunwire_build", "The program, and what it has chosen on this machine"),
        |()| Some(Value::Known),
    )],
};

pub(super) const READY: Table<bool> = Table {
    labels: &[],
    columns: &[Column::new(
        Family::gauge("lunwire_ready", None, "1 if /readyz says so, else 0"),
        |is_ready| number(u64::from(*is_ready)),
    )],
};

pub(super) const ALL: Table<Serving> = Table {
    labels: &[],
    columns: &[
        Column::new(Family::gauge("lunwire_targets", None, "Targets"), |serving| {
            number(serving.targets.len())
        }),
        Column::new(
            Family::gauge("lunwire_portals", None, "Addresses that are listened on"),
            |of| number(of.portals.len()),
        ),
    ],
};

/// What there was too much of.
pub(super) const LEFT_OUT: Table<usize> = Table {
    labels: &["what"],
    columns: &[Column::new(
        Family::gauge(
            "lunwire_metrics_left_out",
            None,
            "Sessions and LUNs that have no metrics of their own, since there are too many",
        ),
        |count| number(*count),
    )],
};

/// Of the port itself.
pub(super) const CERTIFICATE: Table<u64> = Table {
    labels: &[],
    columns: &[Column::new(
        Family::gauge(
            "lunwire_http_certificate_expiry_timestamp",
            Some(In::Seconds),
            "When the certificate that HTTP shows ends, in seconds since 1970",
        ),
        |end| number(*end),
    )],
};

pub(super) const DENIED: Table<u64> = Table {
    labels: &["reason"],
    columns: &[Column::new(
        Family::counter(
            "lunwire_http_denied",
            None,
            "Requests over HTTP that were refused for want of a token that is good for them",
        ),
        |count| number(*count),
    )],
};

pub(super) fn encode(look: &Look, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let about = match &look.seen {
        Seen::Serving(serving) => [serving.engine, serving.mode, serving.crc32c],
        Seen::Opening | Seen::Stopping => [""; 3],
    };
    let about = [look.about.version].into_iter().chain(about).map(str::to_owned).collect();
    BUILD.encode(encoder, &[(about, ())])?;
    READY.encode(encoder, &[(Vec::new(), look.readiness().is_well)])?;
    let end = look.port.certificate_end.map(|end| (Vec::new(), end));
    CERTIFICATE.encode(encoder, end.as_slice())?;
    let denied = look.port.denied.iter().flatten();
    let denied: Vec<_> = denied.map(|(by, count)| (vec![by.name().to_owned()], *count)).collect();
    DENIED.encode(encoder, &denied)?;
    let Seen::Serving(serving) = &look.seen else { return Ok(()) };
    ALL.encode(encoder, &[(Vec::new(), &**serving)])?;
    let left_out = [
        ("luns", luns::left_out(serving)),
        ("times of luns", luns::untimed(serving)),
        ("sessions", sessions::left_out(serving)),
        ("times of sessions", sessions::untimed(serving)),
    ];
    let left_out = left_out.map(|(what, count)| (vec![what.to_owned()], count));
    LEFT_OUT.encode(encoder, &left_out)
}
