// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who asks at a control socket: one JSON line each way, and what is wrong where no answer comes.

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::admin::Reply;
use control::admin::Request;

use super::advice::reaching;
use super::default_path;

/// How long a daemon may take for what is no work.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whoever waits for an answer hears so as often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Longest answer that a client takes, bytes: many thousand sessions.
const REPLY_LEN_MAX: u64 = 64 << 20;

/// Asks the daemon behind `path`, or behind the default control socket.
pub(crate) fn ask(path: Option<&Path>, request: &Request) -> Result<Reply> {
    ask_patiently(path, request, TIMEOUT, |_| {})
}

/// The same, for orders that take longer: `tell` hears now and then for how long.
pub(crate) fn ask_patiently(
    path: Option<&Path>,
    request: &Request,
    patience: Duration,
    tell: impl FnMut(Duration),
) -> Result<Reply> {
    let (mut stream, place) = connect(path)?;
    let daemon = place.display();
    stream.set_read_timeout(Some(TELL_EVERY.min(patience)))?;
    let text = line(request)?;
    let mut answer = String::new();
    let asked =
        stream.write_all(&text).and_then(|()| read_answer(&stream, &mut answer, patience, tell));
    let is_cut = match &asked {
        Ok(()) => !answer.ends_with('\n'),
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    };
    if is_cut {
        bail!(hung_up(&stream, &daemon));
    }
    asked.with_context(|| {
        let seconds = patience.as_secs();
        format!(
            "no answer from the daemon at {daemon} within {seconds} s; try: again, or look at its \
             log"
        )
    })?;
    understood(answer.as_bytes(), &daemon, path)
}

/// Begins what goes on at the socket after the answer: the stream, the answer, and what has come
/// behind it.
pub(crate) fn begin(
    path: Option<&Path>,
    request: &Request,
) -> Result<(UnixStream, Reply, Vec<u8>)> {
    let (mut stream, place) = connect(path)?;
    let daemon = place.display();
    stream.set_read_timeout(Some(TIMEOUT))?;
    let text = line(request)?;
    let mut came = Vec::new();
    let mut part = [0; 4096];
    let said = stream.write_all(&text);
    let end = loop {
        if let Some(end) = came.iter().position(|byte| *byte == b'\n') {
            break end;
        }
        match said.as_ref().map_or(Ok(0), |()| stream.read(&mut part)) {
            Ok(0) => bail!(hung_up(&stream, &daemon)),
            Ok(length) => came.extend(part.iter().take(length)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                bail!(hung_up(&stream, &daemon));
            }
            Err(error) => {
                let why = format!("no answer from the daemon at {daemon}; try: again");
                return Err(anyhow::Error::from(error).context(why));
            }
        }
    };
    let rest = came.split_off(end + 1);
    let reply = understood(&came, &daemon, path)?;
    Ok((stream, reply, rest))
}

/// Who answers behind `path`, or behind the default control socket, and where that is.
fn connect(path: Option<&Path>) -> Result<(UnixStream, PathBuf)> {
    let Some(path) = path.map(Path::to_path_buf).or_else(default_path) else {
        bail!("no default control socket here; try: --control-socket PATH");
    };
    let stream = UnixStream::connect(&path).map_err(|error| unreachable(&path, error))?;
    Ok((stream, path))
}

/// A request as it goes over the socket.
fn line(request: &Request) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    Ok(text)
}

/// What an answer says; the error of one that is an error. `given`: the socket, if it was named.
fn understood(
    answer: &[u8],
    daemon: &std::path::Display<'_>,
    given: Option<&Path>,
) -> Result<Reply> {
    match serde_json::from_slice(answer).with_context(|| other_version(daemon))? {
        Reply::Error { message } => bail!(reaching(&message, given)),
        reply => Ok(reply),
    }
}

/// Why the daemon behind `stream` has hung up without an answer.
fn hung_up(stream: &UnixStream, daemon: &std::path::Display<'_>) -> String {
    let user = rustix::process::geteuid();
    let owner = rustix::net::sockopt::socket_peercred(stream).map(|owner| owner.uid);
    if user.is_root() || owner.is_ok_and(|owner| owner == user) {
        return format!(
            "the daemon at {daemon} has ended before it answered, and may have done what it was \
             asked; try: lunwire status, when it runs again, or look at its log"
        );
    }
    format!(
        "the daemon at {daemon} does not answer user {}; try: as root, or as the user that it runs \
         as",
        user.as_raw()
    )
}

/// All that comes until the other end has said all, in so much time at most between two parts.
fn read_answer(
    stream: &UnixStream,
    answer: &mut String,
    patience: Duration,
    mut tell: impl FnMut(Duration),
) -> std::io::Result<()> {
    let (mut stream, mut bytes) = (stream.take(REPLY_LEN_MAX), Vec::new());
    let (begun, mut last) = (Instant::now(), Instant::now());
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => {
                bytes.extend(part.iter().take(length));
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && last.elapsed() < patience => {
                tell(begun.elapsed());
            }
            Err(error) => return Err(error),
        }
    }
    *answer = String::from_utf8(bytes).map_err(std::io::Error::other)?;
    Ok(())
}

/// Why nobody can be asked at `path`, and what to do.
pub(crate) fn unreachable(path: &Path, error: std::io::Error) -> anyhow::Error {
    let daemon = path.display();
    let what = match error.kind() {
        ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            format!(
                "user {user} may not ask the daemon at {daemon}; \
                 try: as root, or as the user that it runs as"
            )
        }
        _ if path.metadata().is_ok_and(|facts| !facts.file_type().is_socket()) => {
            return anyhow::anyhow!(
                "{daemon} is no socket; try: the path that the daemon got as --control-socket"
            );
        }
        _ => format!(
            "cannot reach a daemon at {daemon}; try: lunwire serve --control-socket {daemon}, or \
             the --control-socket that a running one was started with"
        ),
    };
    anyhow::Error::from(error).context(what)
}

/// What is wrong with an answer that does not belong to the request.
pub(crate) fn unexpected(path: Option<&Path>) -> anyhow::Error {
    let path = path.map(Path::to_path_buf).or_else(default_path).unwrap_or_default();
    anyhow::Error::msg(other_version(&path.display()))
}

fn other_version(daemon: &std::path::Display<'_>) -> String {
    format!(
        "the answer of the daemon at {daemon} is not understood; is it of another version? \
         try: the lunwire that it was started with"
    )
}
