// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire attached` and `lunwire detach`.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use anyhow::bail;
use control::admin::Attachment;
use control::admin::AttachmentState;
use control::admin::Reply;
use control::admin::Request;
use control::units;
use engine::ublk::UblkDevice;
use serde_json::json;

use super::book;
use super::book::Book;
use super::book::Entry;
use super::ublk;
use crate::args::AttachedOptions;
use crate::args::DetachOptions;
use crate::control_socket::asking;
use crate::output;

/// How long a process may take to end an attachment: its users, the last flush and the logout.
const PATIENCE: Duration = Duration::from_secs(40);

/// A process that was killed gives its memory back before the sockets that show it.
const DYING_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether it is gone.
const DYING_LOOK: Duration = Duration::from_millis(20);

/// Lists what is attached.
pub(crate) fn attached(options: &AttachedOptions) -> Result<()> {
    let book = Book::required(&options.place)?;
    let (mut alive, mut gone) = (Vec::new(), Vec::new());
    for Entry { attachment, alive: lives } in book.entries()? {
        if !lives {
            gone.push(attachment);
            continue;
        }
        let asked = asking::ask(Some(&book.socket(&attachment.name)), &Request::Attachment);
        alive.push(match asked {
            Ok(Reply::Attachment(now)) => now,
            // What it said of itself when it began is better than nothing.
            _ => attachment,
        });
    }
    for attachment in &gone {
        match ublk::is_left(attachment) {
            true => tell_waiting(attachment),
            false => tell_gone(attachment, clean(&book, attachment)),
        }
    }
    if options.json {
        output::result(json!({ "attached": alive, "gone": gone }));
        return Ok(());
    }
    if alive.is_empty() {
        output::line("nothing is attached");
        return Ok(());
    }
    let heads = ["NAME", "WHERE", "SIZE", "ACCESS", "STATE", "PROCESS", "URL"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for one in alive {
        let (state, since) = match &one.state {
            AttachmentState::Works => ("works", None),
            AttachmentState::Waits { since, cause } => ("waits", Some((since, cause))),
            AttachmentState::Fails { since, cause } => ("fails", Some((since, cause))),
        };
        if let Some((since, cause)) = since {
            let name = &one.name;
            let since = match super::now().saturating_sub(*since) {
                0 => "since just now".to_owned(),
                seconds => format!("since {seconds} s"),
            };
            output::say(format_args!("{name}: it {state} {since}: {cause}"));
        }
        let access = if one.read_only { "read only" } else { "read, write" };
        let (size, process) = (units::bytes(one.bytes), one.pid.to_string());
        let (access, state) = (access.to_owned(), state.to_owned());
        rows.push(vec![one.name, one.place, size, access, state, process, one.url]);
    }
    output::table(&rows);
    Ok(())
}

/// Attaches a disk no more.
pub(crate) fn detach(options: &DetachOptions) -> Result<()> {
    let book = Book::required(&options.place)?;
    let meant = &*options.meant;
    let entries = book.entries()?;
    let found: Vec<&Entry> =
        entries.iter().filter(|one| is_meant(&one.attachment, meant)).collect();
    let entry = match found[..] {
        [one] => one,
        // Its process was killed before it wrote the device down, or the book is gone.
        [] if ublk::exists(meant) => {
            ublk::take_away(meant, options.force)?;
            match options.json {
                true => output::result(json!({ "detached": meant, "warnings": [GONE] })),
                false => output::line(format_args!("{meant} is taken away")),
            }
            return Ok(());
        }
        [] => bail!("nothing is attached as {meant}; try: lunwire attached"),
        _ => bail!(
            "several disks are attached as {meant}; try: one of the names of lunwire attached"
        ),
    };
    let Attachment { name, url, place, .. } = &entry.attachment;
    if !entry.alive {
        return detach_gone(&book, &entry.attachment, options);
    }
    if !book.socket(name).exists() {
        let Attachment { pid, .. } = entry.attachment;
        let is_there = book.entries()?.iter().any(|one| one.alive && one.attachment.pid == pid);
        if !is_there {
            bail!("nothing is attached as {meant} any more: it has just ended");
        }
        bail!("{name}: somebody has removed the socket of process {pid}; try: kill {pid}");
    }
    let order = Request::Detach { force: options.force, leave: options.leave };
    let reply = match asking::ask_patiently(Some(&book.socket(name)), &order, PATIENCE, |_| {}) {
        Err(_) if has_gone(&book, &entry.attachment)? => {
            return detach_gone(&book, &entry.attachment, options);
        }
        reply => reply?,
    };
    let Reply::Detached { warnings } = reply else {
        bail!("{name}: its process is of another version")
    };
    for warning in &warnings {
        output::warn(warning);
    }
    if options.json {
        output::result(json!({ "detached": name, "warnings": warnings }));
    } else {
        let how =
            if options.leave { "waits for the next process as" } else { "is attached no more as" };
        output::line(format_args!("{url} {how} {}", output::on_one_line(place)));
    }
    Ok(())
}

/// Takes away what a process has left that was killed.
fn detach_gone(book: &Book, gone: &Attachment, options: &DetachOptions) -> Result<()> {
    let Attachment { name, place, .. } = gone;
    if options.leave {
        bail!("{name}: its process is gone already");
    }
    if ublk::is_left(gone) {
        ublk::take_away(place, options.force)?;
    }
    tell_gone(gone, clean(book, gone));
    if options.json {
        output::result(json!({ "detached": name, "warnings": [GONE] }));
    }
    Ok(())
}

/// Whether the process of `attachment` was killed, perhaps as it was asked: it hangs up before it
/// is gone.
fn has_gone(book: &Book, attachment: &Attachment) -> Result<bool> {
    let Attachment { name, pid, .. } = attachment;
    let is_it = |one: &&Entry| one.attachment.name == *name && one.attachment.pid == *pid;
    let until = Instant::now() + DYING_MAX;
    loop {
        match book.entries()?.iter().find(is_it) {
            None => return Ok(false),
            Some(one) if !one.alive => return Ok(true),
            Some(_) if Instant::now() >= until => return Ok(false),
            Some(_) => thread::sleep(DYING_LOOK),
        }
    }
}

const GONE: &str = "its process had gone: what was written and not flushed may be lost";

fn is_meant(attachment: &Attachment, meant: &str) -> bool {
    let same = |path: &str| {
        let full = Path::new(meant).canonicalize();
        path == meant || full.is_ok_and(|full| full == Path::new(path))
    };
    // By the name of its machine, too.
    let addresses: Vec<_> = match meant.contains(':') {
        true => meant.to_socket_addrs().into_iter().flatten().collect(),
        false => Vec::new(),
    };
    let port = ["nbd://", "nbds://"].iter().find_map(|way| attachment.place.strip_prefix(way));
    // By the name of its queue, too.
    let device = UblkDevice::at(Path::new(meant));
    attachment.name == meant
        || same(&attachment.place)
        || device.is_some_and(|device| device.path() == Path::new(&attachment.place))
        || attachment.folder.as_deref().is_some_and(same)
        || socket_of(&attachment.place).is_some_and(|socket| {
            let full = std::path::absolute(meant);
            full.is_ok_and(|full| full == Path::new(socket))
        })
        || port.is_some_and(|port| {
            let is_there = |port: SocketAddr| addresses.contains(&port);
            port == meant || port.parse().is_ok_and(is_there)
        })
}

/// The path in the address of an NBD server at a socket.
fn socket_of(place: &str) -> Option<&str> {
    let ways = ["nbd+unix:///?socket=", "nbds+unix:///?socket="];
    ways.iter().find_map(|way| place.strip_prefix(way))
}

/// Takes away what a process has left that is gone; what could not be done comes back.
fn clean(book: &Book, attachment: &Attachment) -> Result<()> {
    // Since it was found there may be another one by its name, at its place.
    let Some(_alone) = book.hold(attachment)? else { return Ok(()) };
    if let Some(folder) = &attachment.folder {
        book::take_away(Path::new(folder))?;
    }
    if let Some(socket) = socket_of(&attachment.place) {
        attach::forget_socket(Path::new(socket))?;
    }
    ublk::take_stopped(attachment)?;
    book.clean(&attachment.name);
    Ok(())
}

fn tell_waiting(attachment: &Attachment) {
    let Attachment { name, place, url, pid, .. } = attachment;
    let url = as_word(url);
    output::say(format_args!(
        "{name}: process {pid}, which attached it as {place}, is gone, and its users wait; try: \
         lunwire attach {url} --ublk, or lunwire detach {name}"
    ));
}

/// An address as a shell takes it for one word.
fn as_word(address: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ":/.-_@%,=+".contains(letter);
    match address.chars().all(is_plain) {
        true => address.into(),
        false => format!("'{address}'").into(),
    }
}

fn tell_gone(attachment: &Attachment, cleaned: Result<()>) {
    let Attachment { name, place, pid, .. } = attachment;
    let place = output::on_one_line(place);
    let what =
        format!("{name}: process {pid}, which attached it as {place}, is gone without an end");
    match cleaned {
        Ok(()) => output::say(format_args!("{what}; what it left behind is taken away")),
        Err(error) => output::say(format_args!("{what}, and {}", output::chain(&error))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;
    use crate::args::AttachedPlace;

    #[test]
    fn what_another_one_has_taken_meanwhile_is_not_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let place = AttachedPlace { state_dir: Some(folder.path().join("state")) };
        let book = Book::of(&place).unwrap();
        book.make().unwrap();
        let gone = Attachment {
            name: "disk-0".into(),
            url: "iscsi://host/iqn.x:disk/0".into(),
            kind: "nbd".into(),
            place: "nbd://127.0.0.1:10809".into(),
            folder: None,
            bytes: 1 << 20,
            read_only: false,
            pid: 7,
            state: AttachmentState::Works,
        };
        book.enter(&gone).unwrap();
        let taken = book.reserve_again(&gone.name).unwrap();
        clean(&book, &gone).unwrap();
        assert!(book.socket(&gone.name).exists(), "its socket is gone");
        drop(taken);
        book.enter(&Attachment { pid: 8, ..gone.clone() }).unwrap();
        clean(&book, &gone).unwrap();
        assert_eq!(book.entries().unwrap().len(), 1, "another one is struck out");
        book.enter(&gone).unwrap();
        clean(&book, &gone).unwrap();
        assert!(book.entries().unwrap().is_empty());
    }

    /// By whatever `lunwire attached` shows, and by the address alone.
    #[test]
    fn what_is_attached_is_found_by_its_address() {
        let at = |place: &str| Attachment {
            name: "disk-0".into(),
            url: String::new(),
            kind: "nbd".into(),
            place: place.into(),
            folder: None,
            bytes: 0,
            read_only: false,
            pid: 1,
            state: AttachmentState::Works,
        };
        for (place, meant) in [
            ("nbd://127.0.0.1:10809", "127.0.0.1:10809"),
            ("nbds://127.0.0.1:10809", "127.0.0.1:10809"),
            ("nbds://127.0.0.1:10809", "nbds://127.0.0.1:10809"),
            ("nbd://127.0.0.1:10809", "localhost:10809"),
            ("nbd+unix:///?socket=/run/disk.sock", "/run/disk.sock"),
            ("nbds+unix:///?socket=/run/disk.sock", "/run/disk.sock"),
        ] {
            assert!(is_meant(&at(place), meant), "{place} {meant}");
            assert!(!is_meant(&at(place), "127.0.0.1:1080"), "{place}");
        }
        let ublk = Attachment { kind: "ublk".into(), ..at("/dev/ublkb3") };
        for meant in ["/dev/ublkb3", "/dev/ublkc3"] {
            assert!(is_meant(&ublk, meant), "{meant}");
        }
        assert!(!is_meant(&ublk, "/dev/ublkc30"));
    }

    #[test]
    fn what_is_to_be_typed_can_be_typed() {
        assert_eq!(as_word("iscsi://host:3260/iqn.x:d-1_a/0"), "iscsi://host:3260/iqn.x:d-1_a/0");
        assert_eq!(as_word("stripe:64K(a;b c)"), "'stripe:64K(a;b c)'");
    }
}
