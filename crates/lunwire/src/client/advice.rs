// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What to do about an error.

use anyhow::anyhow;
use initiator::Begin;
use initiator::Ending;
use initiator::Error;
use initiator::Kind;
use initiator::Queue;
use initiator::SessionId;
use initiator::StripeError;
use initiator::Transport;
use initiator::Url;
use iscsi::initiator::LoginError;
use iscsi::initiator::SessionError;
use wire::scsi::Sense;
use wire::scsi::sam::BUSY;
use wire::scsi::sam::RESERVATION_CONFLICT;
use wire::scsi::sam::TASK_ABORTED;
use wire::scsi::sam::TASK_SET_FULL;

use super::account::for_destination;
use crate::output;

/// An error with what to do about it, where there is something to do.
pub(crate) fn advised(error: Error, url: &Url) -> anyhow::Error {
    let what = besides(&error, url);
    match advice(&error, url) {
        Some(advice) => anyhow!("{url}: {what}; {advice}"),
        None => anyhow!("{url}: {what}"),
    }
}

/// What an error says besides the target and the LUN that `url` names before it.
pub(crate) fn besides(error: &Error, url: &Url) -> String {
    let text = error.to_string();
    let target = url.target.as_deref().unwrap_or_default().escape_debug().to_string();
    let lun = format!(", LUN {}", url.lun.unwrap_or(0));
    let rest = text.strip_prefix(&target).map(|rest| rest.strip_prefix(&lun).unwrap_or(rest));
    match rest.and_then(|rest| rest.strip_prefix(": ")) {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

/// Why the unit of `url` is not one to work with. Where it is not there, those that are.
pub(crate) fn no_unit(
    queue: &mut Queue,
    session: SessionId,
    error: Error,
    url: &Url,
) -> anyhow::Error {
    let may_be_missing = matches!(error.kind(), Kind::NotADisk(_))
        || error.sense().is_some_and(|sense| sense.asc == LOGICAL_UNIT_NOT_SUPPORTED);
    // Any LUN takes it, also one that is not there (SPC-4 §6.33); 0 does at all targets.
    let told = may_be_missing.then(|| initiator::scsi::report_luns(&mut queue.unit(session, 0)));
    let Some(Ok(mut luns)) = told else { return advised(error, url) };
    if luns.contains(&url.lun.unwrap_or(0)) {
        return advised(error, url);
    }
    luns.sort_unstable();
    let error = besides(&error, url);
    let shown: Vec<_> = luns.iter().take(LUNS_SHOWN_MAX).map(u16::to_string).collect();
    match (shown.join(", "), luns.len().saturating_sub(LUNS_SHOWN_MAX)) {
        (_, _) if luns.is_empty() => anyhow!("{url}: {error}, and no other one for us"),
        (shown, 0) => anyhow!("{url}: {error}; LUNs that are there: {shown}"),
        (shown, more) => anyhow!("{url}: {error}; LUNs that are there: {shown} and {more} more"),
    }
}

/// ASC of LOGICAL UNIT NOT SUPPORTED (SPC-4 §F.2).
const LOGICAL_UNIT_NOT_SUPPORTED: u8 = 0x25;

/// More LUNs than these are only counted.
const LUNS_SHOWN_MAX: usize = 32;

/// `; try: lunwire COMMAND WHERE`, unless that is what is being done.
pub(crate) fn try_command(command: &str, place: impl std::fmt::Display) -> String {
    match output::command().is_some_and(|running| running == command) {
        true => String::new(),
        false => format!("; try: lunwire {command} {place}"),
    }
}

const fn begins_with_rdma(url: &Url) -> bool {
    matches!(url.transport, Transport::Iser(Begin::Rdma, _))
}

/// What to do about an error.
fn advice(error: &Error, url: &Url) -> Option<String> {
    let discover = try_command("discover", url.portal());
    let inspect = try_command("inspect", url);
    let alone = |command: &str| command.strip_prefix("; ").map(str::to_owned);
    Some(match error.kind() {
        // It is not the other side that lacks something.
        Kind::Unreachable { .. } if error.to_string().contains("; try: ") => return None,
        Kind::Unreachable { .. } if url.transport == Transport::Ether => {
            let host = &url.host;
            format!(
                "is lunwire serve --ether running there, at the interface with that address, \
                     and is {host} on the same wire?"
            )
        }
        Kind::Unreachable { .. } => {
            let discover = discover.trim_start_matches(';');
            format!("is the target running there?{discover}")
        }
        Kind::Login(LoginError::NotIscsi) => "is the port right? That of iSCSI is 3260".into(),
        Kind::Login(LoginError::NoRdma) => {
            "try: iscsi:// here, or lunwire serve --rdma iwarp there".into()
        }
        Kind::Login(LoginError::Disconnected) if begins_with_rdma(url) => {
            "does it speak iSER, and does its connection begin so? try: ?iser_start=login, \
             iscsi:// in place of iser://, or lunwire serve --rdma iwarp there"
                .into()
        }
        Kind::Login(LoginError::Timeout) => {
            "is it an iSCSI target that listens there, and the port right? --patience TIME says \
             how long to try"
                .into()
        }
        Kind::Login(LoginError::Refused(0x0203)) => return alone(&discover),
        Kind::Login(LoginError::Refused(0x0201 | 0x0202) | LoginError::AuthMethod) => {
            format!(
                "try: --chap-user NAME --chap-secret-file FILE{}, or another --initiator",
                for_destination()
            )
        }
        Kind::Login(LoginError::DigestRequired(key)) => {
            let flag = if *key == "HeaderDigest" { "--header-digest" } else { "--data-digest" };
            format!("try: {flag} preferred")
        }
        Kind::Session(SessionError::TextTimeout(_)) => {
            "is it an iSCSI target? --command-timeout TIME says how long to wait for an answer"
                .into()
        }
        Kind::Session(_) => {
            "try: again; --patience TIME says how long to try to get a session back".into()
        }
        Kind::Status { status: RESERVATION_CONFLICT, .. } => {
            format!("another host has reserved the disk{inspect}")
        }
        Kind::Status { sense: Some(Sense { asc: 0x04, ascq: 0x0b | 0x0c, .. }), .. } => {
            format!(
                "another portal group may be active; try: --portal with a portal of it, of those \
                 that lunwire discover {} shows",
                url.portal()
            )
        }
        Kind::Status { status: BUSY, .. } if error.busy_for().is_some() => {
            "its store does not answer; look at lunwire status there, or wait for longer with \
             --patience TIME"
                .into()
        }
        Kind::Status { status: BUSY | TASK_SET_FULL, .. } => {
            "the target has more to do than it takes; try: again later".into()
        }
        Kind::Status { status: TASK_ABORTED, .. } => {
            "another host ends what is under way there; try: again when it does not".into()
        }
        Kind::OtherDisk { .. } => match output::command().as_deref() {
            Some("shell") => format!("try: login {url}, to go on with the new one"),
            _ => "try: again, from the beginning, if this is the disk that is meant".into(),
        },
        Kind::Ending(Ending::TimedOut) => {
            "try: --command-timeout with more TIME, where the disk is only slow".into()
        }
        Kind::CannotFlush => {
            "try: with its write cache turned off (WCE in the Caching mode page)".into()
        }
        Kind::NotADisk(_) => {
            let target = Url { lun: None, ..url.clone() };
            return alone(&try_command("inspect", format_args!("{target}, which lists its units")));
        }
        Kind::Range { .. } | Kind::Unaligned(_) | Kind::Reformatted { .. } => {
            return alone(&inspect);
        }
        Kind::Fenced { expected, .. } => {
            format!("try: a portal of group {expected} too; nothing is sent before")
        }
        Kind::GroupUntold => "try: when the portal of the lost session is there again".into(),
        Kind::Unsettled { .. } => {
            "try: again, when nobody changes the LUNs of the target; if that is the same the \
             target is at fault"
                .into()
        }
        Kind::Stripe(StripeError::ReadOnly { .. } | StripeError::Same { .. }) => {
            "try: lunwire inspect with each URL".into()
        }
        Kind::OtherPath { .. } | Kind::OtherSize { .. } => {
            "try: lunwire inspect with each URL, which shows names and size of the disk".into()
        }
        Kind::OtherProtection { .. } => {
            "try: the protection of the disk made the same behind both, or the URLs of one kind \
             alone; lunwire inspect shows it"
                .into()
        }
        Kind::InDoubt => {
            "try: a portal of each group in the list of paths, or the lost path brought back".into()
        }
        Kind::WritesLost => "try: again; what was not flushed has to be written once more".into(),
        Kind::Full => "try: fewer or smaller requests at once".into(),
        _ => return None,
    })
}
