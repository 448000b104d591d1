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
    let said = stream.write_all(&text);
    // Who hears nobody any more may have said so before.
    let heard = match said.as_ref().map_err(std::io::Error::kind) {
        Ok(()) | Err(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
            read_answer(&stream, &mut answer, patience, tell)
        }
        Err(_) => Ok(()),
    };
    if answer.ends_with('\n') {
        return understood(answer.as_bytes(), &daemon, path);
    }
    let asked = match said.and(heard) {
        Ok(()) => bail!(hung_up(&stream, &daemon, Order::MayBeHeard)),
        Err(error) if is_unheard(&error) => bail!(hung_up(&stream, &daemon, Order::Unheard)),
        Err(error) => anyhow::Error::from(error),
    };
    Err(asked.context({
        let seconds = patience.as_secs();
        format!(
            "no answer from the daemon at {daemon} within {seconds} s; try: again, or look at its \
             log"
        )
    }))
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
        match stream.read(&mut part) {
            Ok(0) if said.is_err() => bail!(hung_up(&stream, &daemon, Order::Unheard)),
            Ok(0) => bail!(hung_up(&stream, &daemon, Order::MayBeHeard)),
            Ok(length) => came.extend(part.iter().take(length)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_unheard(&error) => {
                bail!(hung_up(&stream, &daemon, Order::Unheard));
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

/// Whether the other end was closed before it had taken all that was said: a socket of this family
/// says so, and a daemon does nothing before it has the whole line.
fn is_unheard(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// What a daemon may have of an order that it has not answered.
#[derive(Clone, Copy, Debug)]
enum Order {
    Unheard,
    MayBeHeard,
}

/// Why the daemon behind `stream` has hung up without an answer.
fn hung_up(stream: &UnixStream, daemon: &std::path::Display<'_>, order: Order) -> String {
    let user = rustix::process::geteuid();
    let owner = rustix::net::sockopt::socket_peercred(stream).map(|owner| owner.uid);
    if user.is_root() || owner.is_ok_and(|owner| owner == user) {
        return match order {
            Order::Unheard => format!(
                "the daemon at {daemon} has ended before it heard what it was asked, and has done \
                 nothing; try: again, when it runs"
            ),
            Order::MayBeHeard => format!(
                "the daemon at {daemon} has ended before it answered, and may have done what it \
                 was asked; try: lunwire status, when it runs again, or look at its log"
            ),
        };
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
    let mut result = Ok(());
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
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    *answer = String::from_utf8(bytes).map_err(std::io::Error::other)?;
    result
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

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::io::BufReader;
    use std::os::unix::net::UnixListener;

    use rustix::event::PollFd;
    use rustix::event::PollFlags;

    use super::*;

    /// What is said to who gives an order, of which the daemon makes `what` before it ends.
    fn said(what: impl FnOnce(&mut UnixStream) + Send) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let listener = UnixListener::bind(&path).expect("a socket");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().expect("somebody");
                what(&mut stream);
            });
            let answer = ask(Some(&path), &Request::RescanLuns);
            answer.expect_err("it is not done").to_string()
        })
    }

    fn hear(stream: &UnixStream) {
        BufReader::new(stream).read_line(&mut String::new()).expect("an order");
    }

    #[test]
    fn who_was_not_heard_is_told_that_nothing_is_done() {
        let unheard = said(|stream| await_order(stream));
        assert!(unheard.contains("has done nothing; try: again"), "{unheard}");
        let heard = said(|stream| hear(stream));
        assert!(heard.contains("may have done what it was asked"), "{heard}");
    }

    /// A daemon that hears nobody any more says why, and the order comes behind that.
    #[test]
    fn the_answer_is_heard_that_came_before_the_order() {
        let reply = Reply::Error { message: "another process takes over".to_owned() };
        let line = reply.line();
        let early = said(|stream| stream.write_all(&line).expect("somebody hears it"));
        assert_eq!(early, "another process takes over");
        let unread = said(|stream| {
            await_order(stream);
            stream.write_all(&line).expect("somebody hears it");
        });
        assert_eq!(unread, "another process takes over");
    }

    /// Waits until something has come, which is left.
    fn await_order(stream: &UnixStream) {
        let mut fds = [PollFd::new(stream, PollFlags::IN)];
        rustix::event::poll(&mut fds, None).expect("a socket");
    }
}
