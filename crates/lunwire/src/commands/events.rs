// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire events`: what has happened at a running daemon, and what happens.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use control::admin::Event;
use control::admin::EventKind;
use control::admin::EventLevel;
use control::admin::Events;
use control::admin::Reply;
use control::admin::Request;
use control::words;

use crate::args::EventsOptions;
use crate::control_socket::asking;
use crate::output;

/// Between two looks at what is new.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a daemon that has answered once may give no answer: another one takes over, hosts are
/// asked to log out first, and disks may take 300 s to open.
const PATIENCE: Duration = Duration::from_secs(360);

/// Shows the events there are, and those that come.
pub(crate) fn run(options: &EventsOptions) -> Result<()> {
    let socket = options.admin.daemon.control_socket.as_deref();
    let (mut after, mut since, mut left_out) = (options.after, None, 0);
    loop {
        let mut told = match since {
            None => ask(socket, after)?,
            Some(_) => ask_again(socket, after)?,
        };
        if since.is_some_and(|since| since != told.since_ms) {
            output::warn("another daemon answers now, which counts from 1");
            (told, left_out) = (ask_again(socket, 0)?, 0);
        }
        let is_first = since.replace(told.since_ms).is_none();
        let missed = missed(after, &told);
        if !is_first && missed > 0 {
            let counted = words::count(missed, "event");
            output::warn(format_args!(
                "{counted} missed: they were forgotten before they were read"
            ));
        }
        after = told.last;
        let more = told.more;
        let is_told = |event: &Event| {
            options.kind.is_empty() || options.kind.iter().any(|kind| kind == event.kind.word())
        };
        // It is what they come from that changes, whatever they are.
        let hidden = told.events.iter().filter(|event| !is_told(event));
        let hidden = hidden.filter(|event| event.kind == EventKind::TakeOver && !is_first);
        hidden.for_each(|event| output::warn(line(event)));
        told.events.retain(is_told);
        if options.admin.json {
            if !told.events.is_empty() || is_first {
                output::result(serde_json::to_value(Reply::Events(told))?);
            }
        } else {
            told.events.iter().for_each(|event| output::line(line(event)));
            if told.left_out > left_out {
                let more = told.left_out - left_out;
                let counted = words::count(more, "event");
                output::warn(format_args!("{counted} not kept: too many came in a second"));
            }
            left_out = told.left_out;
        }
        if !output::written()? {
            return Ok(());
        }
        match (more, options.follow) {
            (true, _) => {}
            (false, true) => std::thread::sleep(LOOK_EVERY),
            (false, false) => return Ok(()),
        }
    }
}

fn ask(socket: Option<&Path>, after: u64) -> Result<Events> {
    match asking::ask(socket, &Request::Events { after })? {
        Reply::Events(told) => Ok(told),
        _ => Err(asking::unexpected(socket)),
    }
}

/// How many came behind the one with the number `after` and are kept no more.
fn missed(after: u64, told: &Events) -> u64 {
    told.last.saturating_sub(after).saturating_sub(told.events.len() as u64)
}

/// The same, of a daemon that may be just handing over.
fn ask_again(socket: Option<&Path>, after: u64) -> Result<Events> {
    let begun = Instant::now();
    loop {
        match ask(socket, after) {
            Err(error) if !is_gone(&error) && begun.elapsed() < PATIENCE => {
                std::thread::sleep(LOOK_EVERY);
            }
            answer => return answer,
        }
    }
}

/// Nobody listens there.
fn is_gone(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    let mut kinds = kinds.map(std::io::Error::kind);
    kinds.any(|kind| matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

/// An event as a line: when, what, and about whom.
fn line(event: &Event) -> String {
    let level = match event.level {
        EventLevel::Info => "",
        EventLevel::Warning => "WARN ",
        EventLevel::Error => "ERROR ",
    };
    let place = [
        ("peer", event.peer.clone()),
        ("initiator", event.initiator.clone()),
        ("tsih", event.tsih.map(|tsih| tsih.to_string())),
        ("target", event.target.clone()),
        ("lun", event.lun.map(|lun| lun.to_string())),
    ];
    let place = place.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let details = event.details.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let fields = place.chain(details).map(|(name, value)| match value.contains([' ', '"']) {
        true => format!(" {name}={value:?}"),
        false => format!(" {name}={value}"),
    });
    let fields: String = fields.collect();
    let (time, kind) = (utc(event.time_ms), event.kind.word());
    output::on_one_line(&format!("{} {time} {level}{kind}: {}{fields}", event.number, event.text))
}

/// As RFC 3339 has it, in UTC.
fn utc(time_ms: u64) -> String {
    let (days, within) = (time_ms / 86_400_000, time_ms % 86_400_000);
    // Years begin in March: the day that some do not have comes last.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (within / 3_600_000, within / 60_000 % 60);
    let (second, millisecond) = (within / 1000 % 60, within % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (time_ms, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_798_761_599_001, "2026-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(time_ms), wanted);
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let event = Event {
            number: 7,
            time_ms: 0,
            kind: EventKind::TakeOver,
            level: EventLevel::Warning,
            text: "a\nb".into(),
            peer: Some("192.0.2.1:1".into()),
            initiator: Some("iqn.a b".into()),
            tsih: Some(1),
            target: None,
            lun: Some(0),
            details: vec![("why".into(), "\u{1b}[1m".into())],
        };
        assert_eq!(
            line(&event),
            "7 1970-01-01T00:00:00.000Z WARN take-over: a\\nb peer=192.0.2.1:1 \
             initiator=\"iqn.a b\" tsih=1 lun=0 why=\\u{1b}[1m"
        );
    }
}
