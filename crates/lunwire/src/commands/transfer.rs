// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire read`, `write` and `copy`.

use std::io::IsTerminal;
use std::time::Instant;

use anyhow::Result;
use anyhow::bail;
use control::units;
use initiator::Url;
use serde_json::json;

use crate::args::ClientOptions;
use crate::args::CopyOptions;
use crate::args::ReadOptions;
use crate::args::Usage;
use crate::args::WriteOptions;
use crate::client;
use crate::client::meant;
use crate::client::pipeline;
use crate::client::pipeline::Journal;
use crate::client::pipeline::Plan;
use crate::client::pipeline::Wanted;
use crate::client::place::Place;
use crate::client::place::STANDARD;
use crate::output;

/// From a disk to a file or standard output.
pub(crate) fn read(options: &ReadOptions) -> Result<()> {
    let offset = client::size("--offset", &options.offset)?;
    let length = options.length.as_deref().map(|text| client::size("--length", text));
    let length = length.transpose()?;
    client::disk_address(&options.disk.url)?;
    if options.verify && options.file == STANDARD {
        return Err(Usage("--verify: standard output cannot be read back".into()).into());
    }
    refuse_json_beside_data(&options.file, options.json)?;
    refuse_terminal(&options.file)?;
    expect_no_url(&options.file)?;
    client::capture::spare(&options.disk.client, &options.file)?;
    let mut queue = client::queue(&options.disk.client)?;
    let from = Place::source(&mut queue, &options.disk.client, &options.disk.url)?;
    let size = from.size().unwrap_or(0);
    let flags = if length.is_some() { "--offset and --length" } else { "--offset" };
    let length = length.unwrap_or_else(|| size.saturating_sub(offset));
    check_range(&from, offset, length, flags)?;
    let to = Place::destination(&mut queue, &options.disk.client, &options.file)?;
    let plan = Plan {
        from,
        from_offset: offset,
        to,
        to_offset: 0,
        length: Some(length),
        what: "read",
        quiet: options.quiet,
        wanted: Wanted::default(),
        verify: options.verify,
        overwrite: options.overwrite,
        different: false,
        journal: None,
    };
    carry_out(&mut queue, plan, options.json)
}

/// From a file or standard input to a disk.
pub(crate) fn write(options: &WriteOptions) -> Result<()> {
    let offset = client::size("--offset", &options.offset)?;
    client::disk_address(&options.disk.url)?;
    client::capture::spare(&options.disk.client, &options.file)?;
    let mut queue = client::queue(&options.disk.client)?;
    let from = file_or_stream(&mut queue, &options.disk.client, &options.file)?;
    let to = Place::destination(&mut queue, &options.disk.client, &options.disk.url)?;
    check_range(&to, offset, 0, "--offset")?;
    from.expect_contents(&to)?;
    let length = from.size();
    check_end(&to, offset, length, &options.offset)?;
    let plan = Plan {
        from,
        from_offset: 0,
        to,
        to_offset: offset,
        length,
        what: "written",
        quiet: options.quiet,
        wanted: Wanted::default(),
        verify: options.verify,
        overwrite: true,
        different: false,
        journal: None,
    };
    carry_out(&mut queue, plan, options.json)
}

/// Between any two places.
pub(crate) fn copy(options: &CopyOptions) -> Result<()> {
    let (source, destination) = (&options.source, &options.destination);
    let from_name = plain_name("SOURCE", source)?;
    let to_name = plain_name("DESTINATION", destination)?;
    let wanted = wanted(options)?;
    expect_two_ports(options)?;
    if destination == STANDARD && (options.verify || options.resume.is_some()) {
        let text = "--verify and --resume: standard output cannot be read back";
        return Err(Usage(text.into()).into());
    }
    if source == STANDARD && options.resume.is_some() {
        return Err(Usage("--resume: standard input cannot be read again".into()).into());
    }
    if options.at_destination.is_given() && !client::is_url(destination) {
        let text = "--to-chap-user and the like: DESTINATION is no disk that one logs in to";
        return Err(Usage(text.into()).into());
    }
    refuse_json_beside_data(destination, options.json)?;
    refuse_terminal(destination)?;
    for end in [source, destination] {
        client::capture::spare(&options.client, end)?;
    }
    let mut queue = client::queue(&options.client)?;
    let from = Place::source(&mut queue, &options.client, source)?;
    let length = from.size();
    let mut journal = match (&options.resume, length) {
        (Some(path), Some(length)) => Some(Journal::open(path, from_name, to_name, length)?),
        _ => None,
    };
    if let Some(journal) = journal.as_ref().filter(|_| !client::is_url(destination)) {
        journal.expect(destination)?;
    }
    let there = options.at_destination.over(&options.client);
    let to = Place::destination(&mut queue, &there, destination)?;
    from.expect_contents(&to)?;
    if let Some(journal) = &mut journal {
        journal.meet(&mut queue, &from, &to)?;
    }
    let plan = Plan {
        from,
        from_offset: 0,
        to,
        to_offset: 0,
        length,
        what: "copied",
        quiet: options.quiet,
        wanted,
        verify: options.verify,
        overwrite: options.overwrite,
        different: options.different_disks,
        journal,
    };
    carry_out(&mut queue, plan, options.json)
}

/// How much may be under way, as far as the user says so.
fn wanted(options: &CopyOptions) -> Result<Wanted> {
    let depth = options.depth.map(usize::from);
    let Some(given) = &options.block else { return Ok(Wanted { depth, block: None }) };
    let block = client::size("--block", given)?;
    let fits = u32::try_from(block).ok().filter(|block| {
        (BLOCK_LEAST..=BLOCK_MOST).contains(block) && block.is_multiple_of(BLOCK_LEAST)
    });
    let Some(block) = fits else {
        let text =
            format!("--block {given}: a command moves 512 bytes to 4 MiB here, a multiple of 512");
        return Err(Usage(text).into());
    };
    let at_once = u64::from(block) * depth.unwrap_or(1) as u64;
    if at_once > AT_ONCE_MOST {
        let text = format!(
            "--depth {} --block {given}: {} would be under way at once, {} at most",
            depth.unwrap_or(1),
            units::bytes(at_once),
            units::bytes(AT_ONCE_MOST)
        );
        return Err(Usage(text).into());
    }
    Ok(Wanted { depth, block: Some(block) })
}

/// Blocks of disks have as many bytes at least.
const BLOCK_LEAST: u32 = 512;

/// What one command moves at most, however much a disk takes.
const BLOCK_MOST: u32 = 4 << 20;

/// Half of the buffers that a client has: what is read on one side is written on the other.
const AT_ONCE_MOST: u64 = 128 << 20;

/// What an end is called, whose URL may have more in it.
fn plain_name(what: &str, text: &str) -> Result<String> {
    if client::is_url(text) {
        return client::disk_name(text);
    }
    meant::expect_file(what, text)?;
    Ok(text.to_owned())
}

/// Both ends log in: where that is at one target, the sessions of one ISID end each other.
fn expect_two_ports(options: &CopyOptions) -> Result<()> {
    let (source, destination) = (&options.source, &options.destination);
    if !client::is_url(source) || !client::is_url(destination) {
        return Ok(());
    }
    let (from, to) = (client::disk_address(source)?, client::disk_address(destination)?);
    let is_one_target = |(from, to): (&Url, &Url)| {
        let is_one_portal = from.portal() == to.portal() || !options.client.portal.is_empty();
        from.target == to.target && is_one_portal
    };
    if from.urls().any(|from| to.urls().any(|to| is_one_target((from, to)))) {
        client::isid::refuse_for_two(&options.client, "of the copy")?;
    }
    Ok(())
}

/// Moves everything, and tells a program what came of it.
fn carry_out(queue: &mut initiator::Queue, plan: Plan, json: bool) -> Result<()> {
    let (begin, verified) = (Instant::now(), plan.verify);
    let source = match &plan.from {
        Place::Stream => "standard input".to_owned(),
        from => from.name(),
    };
    let destination = plan.to.name();
    if matches!(plan.from, Place::Stream) && std::io::stdin().is_terminal() {
        output::say(format_args!(
            "standard input is a terminal: what is typed there goes to {destination}, up to \
             Ctrl-D; Ctrl-C to leave"
        ));
    }
    let may_be_empty = !matches!(plan.from, Place::Stream) || !plan.to.is_disk();
    let bytes = pipeline::run(queue, plan)?;
    if bytes == 0 && !may_be_empty {
        bail!(
            "nothing came from standard input, and nothing was written to {destination}; try: \
             whether the program that was to write it has failed (set -o pipefail)"
        );
    }
    if json {
        output::result(json!({
            "source": source,
            "destination": destination,
            "bytes": bytes,
            "seconds": output::rounded(begin.elapsed().as_secs_f64()).max(0.001),
            "verified": verified,
        }));
    }
    Ok(())
}

/// Two things would come on one stream.
fn refuse_json_beside_data(destination: &str, json: bool) -> Result<()> {
    match json && destination == STANDARD {
        true => Err(Usage("--json: standard output has the data; name a FILE".into()).into()),
        false => Ok(()),
    }
}

/// Nobody reads the bytes of a disk there, and some of them change how it shows text.
fn refuse_terminal(destination: &str) -> Result<()> {
    match destination == STANDARD && std::io::stdout().is_terminal() {
        true => Err(Usage(
            "standard output is a terminal, which cannot show the bytes of a disk; try: a FILE, \
             or | xxd"
                .into(),
        )
        .into()),
        false => Ok(()),
    }
}

fn file_or_stream(
    queue: &mut initiator::Queue,
    options: &ClientOptions,
    file: &str,
) -> Result<Place> {
    expect_no_url(file)?;
    Place::source(queue, options, file)
}

fn expect_no_url(file: &str) -> Result<()> {
    if client::is_url(file) {
        let text = format!("FILE {}: a URL; try: lunwire copy", initiator::without_secrets(file));
        return Err(Usage(text).into());
    }
    meant::expect_file("FILE", file)
}

/// Disks are read and written in whole blocks. `flags`: those that said which.
fn check_range(place: &Place, offset: u64, length: u64, flags: &str) -> Result<()> {
    let Place::Disk(disk) = place else { return Ok(()) };
    match disk.geometry.blocks_of(offset, length) {
        Ok(_) => Ok(()),
        Err(error) => Err(Usage(format!("{}: {flags}: {error}", disk.url)).into()),
    }
}

/// What is written from `offset` on, which was `given`, has to fit; of a stream at least one byte.
fn check_end(place: &Place, offset: u64, length: Option<u64>, given: &str) -> Result<()> {
    let Place::Disk(disk) = place else { return Ok(()) };
    let (end, size) = (offset.saturating_add(length.unwrap_or(1)), disk.geometry.bytes());
    if offset == 0 || end <= size {
        return Ok(());
    }
    let url = &disk.url;
    let text = match length {
        Some(_) => {
            format!("--offset {given}: the range ends at byte {end}, the disk at byte {size}")
        }
        None => format!("--offset {given}: the disk ends at byte {size}"),
    };
    Err(Usage(format!("{url}: {text}")).into())
}
