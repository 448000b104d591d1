// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire trace`: what sessions of a running daemon say, as a capture.

use std::fs::File;
use std::io::ErrorKind;
use std::io::IsTerminal;
use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::admin::Reply;
use control::admin::Request;
use control::admin::TraceOrder;
use control::units;
use control::words;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;

use crate::args::TraceOptions;
use crate::args::Usage;
use crate::client;
use crate::client::place::room;
use crate::control_socket::asking;
use crate::output;

/// Where `-` writes to.
const STANDARD: &str = "-";

/// How large a trace gets where nobody says otherwise.
const LIMIT_DEFAULT: u64 = 1 << 30;

/// Less has no PDU in it.
const LIMIT_MIN: u64 = 1 << 10;

/// From one look for signals to the next.
const LOOK: Duration = Duration::from_millis(100);

/// How long the last words of the daemon may take, once they are asked for.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What a pipe takes that has room, without waiting.
const PIPE_PART: usize = 4096;

/// Longest word of the daemon, bytes.
const LINE_LEN_MAX: usize = 64 << 10;

/// Records what is asked for.
pub(crate) fn run(options: &TraceOptions) -> Result<()> {
    let order = order(options)?;
    let interrupted = interrupted().context("cannot hear signals")?;
    let place = Place::open(&options.output)?;
    let socket = options.daemon.control_socket.as_deref();
    let (stream, reply, rest) = asking::begin(socket, &Request::Trace(order.clone()))?;
    if !matches!(reply, Reply::Tracing) {
        return Err(asking::unexpected(socket));
    }
    let mut sink = place.begin()?;
    let place = match options.output == Path::new(STANDARD) {
        true => "standard output".into(),
        false => options.output.display().to_string(),
    };
    output::say(format_args!("tracing to {place}; Ctrl-C ends it"));
    let heard = listen(&stream, rest, &mut sink, &interrupted)?;
    tell(&order, &options.output, heard, sink.is_gone())
}

/// What is ordered.
fn order(options: &TraceOptions) -> Result<TraceOrder> {
    let limit_bytes = match options.limit.as_deref() {
        None => LIMIT_DEFAULT,
        Some(text) => match client::size("--limit", text)? {
            limit if limit < LIMIT_MIN => {
                return Err(client::usage("--limit", text, "1K or more is right"));
            }
            limit => limit,
        },
    };
    let data_bytes = match options.data.as_deref() {
        None => 0,
        Some("all") => target::TRACE_DATA_MAX as u64,
        Some(text) => match client::size("--data", text)? {
            bytes if bytes > target::TRACE_DATA_MAX as u64 => {
                let most = target::TRACE_DATA_MAX;
                return Err(client::usage(
                    "--data",
                    text,
                    format_args!("{most} or less is right, or all"),
                ));
            }
            bytes => bytes,
        },
    };
    let time = options.time.as_deref().map(|text| client::time("--time", text)).transpose()?;
    let time_ms = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    Ok(TraceOrder {
        target: options.target.clone(),
        initiator: options.initiator.clone(),
        session: options.session,
        lun: options.lun,
        limit_bytes,
        data_bytes,
        time_ms,
    })
}

/// Set by the first signal; the second one ends the process.
fn interrupted() -> std::io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Where it is to go; what is there stays until the trace begins.
enum Place {
    File(capture::Opened),
    Standard,
}

impl Place {
    fn open(path: &Path) -> Result<Self> {
        if path != Path::new(STANDARD) {
            return Ok(Self::File(capture::open_file(path)?));
        }
        if std::io::stdout().is_terminal() {
            let why = "-o -: standard output is a terminal, and a capture is no text; try: \
                       lunwire trace -o - | tshark -r -, or -o FILE";
            return Err(Usage(why.into()).into());
        }
        Ok(Self::Standard)
    }

    fn begin(self) -> Result<Sink> {
        Ok(match self {
            Self::File(opened) => Sink::File { file: opened.emptied()?, written: 0 },
            Self::Standard => Sink::Standard { is_gone: false },
        })
    }
}

/// Where it goes.
enum Sink {
    File {
        file: File,
        /// Bytes of whole records.
        written: u64,
    },
    /// Whoever reads it may do so slowly, or go.
    Standard { is_gone: bool },
}

impl Sink {
    const fn is_gone(&self) -> bool {
        matches!(self, Self::Standard { is_gone: true })
    }

    /// Writes whole records.
    fn write(&mut self, records: &[u8], interrupted: &AtomicBool) -> Result<()> {
        match self {
            Self::File { file, written } => match capture::append(file, records, *written) {
                Ok(()) => {
                    *written += records.len() as u64;
                    Ok(())
                }
                Err(short) => {
                    // A reader wants whole records.
                    let _ = file.set_len(*written + short.bytes);
                    let cannot = format!("cannot write the trace{}", room(&short.error));
                    Err(short.error).context(cannot)
                }
            },
            Self::Standard { is_gone: true } => Ok(()),
            Self::Standard { is_gone } => {
                *is_gone = !pipe(records, interrupted)?;
                Ok(())
            }
        }
    }
}

/// Writes to standard output; false if nobody reads it any more.
fn pipe(mut rest: &[u8], interrupted: &AtomicBool) -> Result<bool> {
    let mut stdout = std::io::stdout();
    let mut since = None;
    while !rest.is_empty() {
        let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
        let pause = Timespec::try_from(LOOK).unwrap_or_default();
        let ready = rustix::event::poll(&mut fds, Some(&pause)).unwrap_or(0);
        if ready == 0 {
            if interrupted.load(Ordering::Relaxed)
                && since.get_or_insert_with(Instant::now).elapsed() > LAST_WORDS
            {
                bail!("standard output takes nothing more: the trace is cut");
            }
            continue;
        }
        let part = rest.get(..PIPE_PART).unwrap_or(rest);
        match stdout.write_all(part).and_then(|()| stdout.flush()) {
            Ok(()) => rest = rest.get(part.len()..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
            Err(error) => return Err(error).context("cannot write to standard output"),
        }
    }
    Ok(true)
}

/// Writes what comes, and gives the last word; None: the daemon went without one.
fn listen(
    mut stream: &UnixStream,
    mut came: Vec<u8>,
    sink: &mut Sink,
    interrupted: &AtomicBool,
) -> Result<Option<Reply>> {
    let mut asked: Option<Instant> = None;
    let mut bytes = vec![0; 256 << 10];
    loop {
        let (used, last) = sort_out(&came, |records| sink.write(records, interrupted))?;
        if last.is_some() {
            return Ok(last);
        }
        came.drain(..used);
        if asked.is_none() && (interrupted.load(Ordering::Relaxed) || sink.is_gone()) {
            asked = Some(Instant::now());
            // If it has gone, the next look says so.
            let _ = stream.shutdown(Shutdown::Write);
        }
        if asked.is_some_and(|asked| asked.elapsed() > LAST_WORDS) {
            return Ok(None);
        }
        let mut fds = [PollFd::new(stream, PollFlags::IN)];
        let pause = Timespec::try_from(LOOK).unwrap_or_default();
        if rustix::event::poll(&mut fds, Some(&pause)).unwrap_or(0) == 0 {
            continue;
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(length) => came.extend(bytes.iter().take(length)),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => return Ok(None),
        }
    }
}

/// Gives each whole part to `write`; how many bytes were used, and the last word if it is there.
fn sort_out(
    came: &[u8],
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<(usize, Option<Reply>)> {
    let mut rest = came;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            let Some(end) = behind.iter().position(|byte| *byte == b'\n') else {
                if behind.len() > LINE_LEN_MAX {
                    bail!("the last word of the daemon is not understood");
                }
                break;
            };
            let line = behind.get(..end).unwrap_or_default();
            let reply = serde_json::from_slice(line)
                .context("the last word of the daemon is not understood")?;
            return Ok((came.len(), Some(reply)));
        }
        let Some((records, behind)) = behind.split_at_checked(length) else { break };
        write(records)?;
        rest = behind;
    }
    Ok((came.len() - rest.len(), None))
}

/// What it came to.
fn tell(order: &TraceOrder, path: &Path, heard: Option<Reply>, is_gone: bool) -> Result<()> {
    let Some(Reply::Traced { pdus, bytes, lost, connections, end }) = heard else {
        bail!(
            "the daemon has ended before the trace; what was recorded until then is whole; \
             try: lunwire status"
        );
    };
    let place = match path == Path::new(STANDARD) {
        true => String::new(),
        false => format!(" in {}", path.display()),
    };
    let why = match end.as_str() {
        "limit" => "; ended: it is as large as it may get (--limit)",
        "time" => "; ended: its time is over",
        "process" => "; ended: the daemon stops, or another process takes over",
        "stalled" => "; ended: it was not read",
        _ if is_gone => "; ended: its reader has gone",
        _ => "",
    };
    let of = words::count(connections, "connection");
    let (counted, bytes) = (words::count(pdus, "PDU"), units::bytes(bytes));
    output::say(format_args!("{counted} of {of}, {bytes}{place}{why}"));
    if lost > 0 {
        let counted = words::count(lost, "PDU");
        output::say(format_args!(
            "{counted} not recorded: they came faster than they could be written; try: --lun, \
             --session or less --data"
        ));
    }
    let filters = [&order.target, &order.initiator].iter().any(|filter| filter.is_some());
    let filters = filters || order.session.is_some() || order.lun.is_some();
    match (pdus, connections) {
        (1.., _) => Ok(()),
        _ if lost > 0 => Ok(()),
        (0, 1..) => bail!("nothing was said meanwhile that the trace is about"),
        (0, 0) if filters => {
            bail!(
                "no session matched what was asked for (--target, --initiator, --session, --lun); \
                 try: lunwire sessions"
            )
        }
        (0, 0) => bail!("there was no session meanwhile"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However it comes.
    #[test]
    fn parts_are_written_when_they_are_whole() {
        let last = Reply::Traced { pdus: 3, bytes: 9, lost: 0, connections: 1, end: "time".into() };
        let parts: [&[u8]; 5] = [&[3, 0, 0, 0], b"abc", &[2, 0, 0, 0], b"de", &[0, 0, 0, 0]];
        let all = [parts.concat(), last.line()].concat();
        for size in 1..=all.len() {
            let (mut came, mut written, mut heard) = (Vec::new(), Vec::new(), None);
            for part in all.chunks(size) {
                came.extend_from_slice(part);
                let (used, last) = sort_out(&came, |records| {
                    written.extend_from_slice(records);
                    Ok(())
                })
                .unwrap();
                came.drain(..used);
                heard = last;
            }
            assert_eq!((written.as_slice(), heard), (&b"abcde"[..], Some(last.clone())));
        }
    }

    #[test]
    fn a_last_word_that_is_none_is_told() {
        let not_json = [&[0; 4][..], b"what?\n"].concat();
        sort_out(&not_json, |_| Ok(())).unwrap_err();
        let endless = [&[0; 4][..], &vec![b' '; LINE_LEN_MAX + 1]].concat();
        sort_out(&endless, |_| Ok(())).unwrap_err();
    }
}
