// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces that somebody asks for at the control socket, and reads there.
//!
//! After the answer `Tracing` come parts of a capture, each of whole records and with its length
//! before it (32 bits, little-endian); behind one of no length `Traced` is the last word. Who says
//! that nothing more comes from him has the trace end.

use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use control::admin::Reply;
use control::admin::TraceOrder;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use target::Target;
use target::Trace;
use target::TraceEnd;
use target::TraceFilter;
use target::TraceTaken;
use target::TraceTerms;
use target::Tracing;

use crate::output;

/// At a time: each has memory of its own, and costs each PDU that it is about.
const TRACES_MAX: usize = 4;

/// A reader who takes nothing for so long while something is there for him is none.
const STALL_MAX: Duration = Duration::from_secs(60);

/// The same, when the trace is over.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// From one look at reader and clock to the next.
const LOOK: Duration = Duration::from_millis(100);

/// How long a process that ends waits for readers to take the rest.
const END_WAIT: Duration = Duration::from_secs(1);

/// Those that are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: Mutex<Open>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    /// Those that have a place, whether they have begun or not.
    places: usize,
    traces: Vec<Trace>,
    is_over: bool,
}

/// One of the few that may go on at a time, until it is dropped.
#[derive(Debug)]
struct Place<'a>(&'a Traces);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().places -= 1;
        self.0.0.left.notify_all();
    }
}

/// Ends them when it is dropped, and waits a moment for their readers.
#[derive(Debug)]
pub(crate) struct EndsTraces(pub(crate) Traces);

impl Traces {
    /// Serves the reader of a trace until that is over. What it keeps of the target it lets go of
    /// then, however slowly the rest is read: another process may wait for its disks.
    pub(crate) fn serve(&self, target: Arc<Target>, order: &TraceOrder, stream: &UnixStream) {
        let terms = match terms(&target, order) {
            Ok(terms) => terms,
            Err(message) => return answer(stream, &Reply::Error { message }),
        };
        let place = match self.enter() {
            Ok(place) => place,
            Err(message) => return answer(stream, &Reply::Error { message }),
        };
        let tracing = target.trace(terms);
        drop(target);
        let trace = tracing.trace().clone();
        self.begin(&trace);
        let peer = rustix::net::sockopt::socket_peercred(stream);
        let (pid, user) =
            peer.map_or((0, 0), |peer| (peer.pid.as_raw_nonzero().get(), peer.uid.as_raw()));
        let TraceOrder { target, initiator, session, lun, data_bytes, .. } = order;
        tracing::info!(pid, user, target, initiator, session, lun, data_bytes, "a trace begins");
        answer(stream, &Reply::Tracing);
        let deadline = order.time_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        let is_heard = pass_on(&trace, tracing, deadline, stream);
        let figures = trace.figures();
        let TraceTaken::Over(end) = drain(&trace) else { return self.leave(&trace, place) };
        tracing::info!(pid, pdus = figures.pdus, lost = figures.lost, %end, "a trace is over");
        if is_heard {
            let (pdus, bytes, lost) = (figures.pdus, figures.bytes, figures.lost);
            let end = end.to_string();
            let last = Reply::Traced { pdus, bytes, lost, connections: figures.connections, end };
            let _ = say(stream, &[&0_u32.to_le_bytes()[..], &last.line()].concat());
        }
        self.leave(&trace, place);
    }

    fn enter(&self) -> Result<Place<'_>, String> {
        let mut open = self.lock();
        if open.is_over {
            return Err("the daemon ends; try: again in a moment".to_owned());
        }
        if open.places >= TRACES_MAX {
            return Err(format!(
                "there are {TRACES_MAX} traces already, and no more at a time; try: again when \
                 one is over"
            ));
        }
        open.places += 1;
        Ok(Place(self))
    }

    /// Who ends them all knows of it from now on.
    fn begin(&self, trace: &Trace) {
        let mut open = self.lock();
        if open.is_over {
            trace.stop(TraceEnd::Process);
        }
        open.traces.push(trace.clone());
    }

    fn leave(&self, trace: &Trace, place: Place<'_>) {
        self.lock().traces.retain(|one| !one.is(trace));
        drop(place);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EndsTraces {
    fn drop(&mut self) {
        let mut open = self.0.lock();
        open.is_over = true;
        open.traces.iter().for_each(|trace| trace.stop(TraceEnd::Process));
        let left = &self.0.0.left;
        drop(left.wait_timeout_while(open, END_WAIT, |open| open.places > 0));
    }
}

/// What is ordered, if that can be.
fn terms(target: &Target, order: &TraceOrder) -> Result<TraceTerms, String> {
    let TraceOrder { target: name, initiator, session, lun, limit_bytes, data_bytes, .. } = order;
    let names = target.names();
    if let Some(name) = name.as_ref().filter(|name| !names.contains(name)) {
        return Err(format!("no target {}; try: lunwire status", output::on_one_line(name)));
    }
    if let Some(lun) = lun {
        let named = |known: &&String| name.as_ref().is_none_or(|name| name == *known);
        let mut units = names.iter().filter(named).filter_map(|name| target.units(name)).flatten();
        if !units.any(|(number, _)| number == *lun) {
            return Err(format!("no LUN {lun}; try: lunwire status"));
        }
    }
    if *data_bytes > target::TRACE_DATA_MAX as u64 {
        let most = target::TRACE_DATA_MAX;
        return Err(format!(
            "no record has room for {data_bytes} bytes of data; try: --data {most}"
        ));
    }
    if let Some(tsih) = session {
        let figures = target.figures(LAST_WORDS);
        let mut sessions = figures.answers.iter().flat_map(|figures| &figures.sessions);
        if figures.silent.is_empty() && !sessions.any(|session| session.tsih == *tsih) {
            return Err(format!("no session {tsih}; try: lunwire sessions"));
        }
    }
    let filter = TraceFilter {
        target: name.clone(),
        initiator: initiator.clone(),
        tsih: *session,
        lun: *lun,
    };
    let data_max = usize::try_from(*data_bytes).unwrap_or(target::TRACE_DATA_MAX);
    Ok(TraceTerms { filter, data_max, limit: *limit_bytes })
}

/// Gives the reader what there is, until it is over; false if there is no reader any more.
fn pass_on(
    trace: &Trace,
    tracing: Tracing,
    deadline: Option<Instant>,
    stream: &UnixStream,
) -> bool {
    let mut tracing = Some(tracing);
    let (mut part, mut at, mut moved) = (Vec::new(), 0, Instant::now());
    loop {
        if part.len() == at {
            match trace.take(LOOK) {
                TraceTaken::Records(records) => {
                    let length = u32::try_from(records.len()).unwrap_or_default();
                    part = [&length.to_le_bytes()[..], &records].concat();
                    (at, moved) = (0, Instant::now());
                }
                TraceTaken::Nothing => {}
                TraceTaken::Over(_) => return true,
            }
        }
        if trace.is_open() {
            look_after(trace, deadline, stream);
        } else {
            drop(tracing.take());
        }
        let Some(rest) = part.get(at..).filter(|rest| !rest.is_empty()) else { continue };
        match write_some(stream, rest) {
            Ok(0) => {
                let patience = if trace.is_open() { STALL_MAX } else { LAST_WORDS };
                if moved.elapsed() >= patience {
                    trace.stop(TraceEnd::Stalled);
                    return false;
                }
            }
            Ok(length) => {
                at += length;
                moved = Instant::now();
            }
            Err(_) => {
                trace.stop(TraceEnd::Reader);
                return false;
            }
        }
    }
}

/// Ends a trace whose time is over, or whose reader wants no more.
fn look_after(trace: &Trace, deadline: Option<Instant>, stream: &UnixStream) {
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        trace.stop(TraceEnd::Time);
    }
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let known = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    if known.is_err() || fds.iter().any(|fd| fd.revents().intersects(gone)) {
        trace.stop(TraceEnd::Reader);
    }
}

/// What the reader takes of it before the next look.
fn write_some(mut stream: &UnixStream, bytes: &[u8]) -> std::io::Result<usize> {
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    let pause = Timespec::try_from(LOOK).unwrap_or_default();
    match rustix::event::poll(&mut fds, Some(&pause)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(0),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    match stream.write(bytes) {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        result => result,
    }
}

/// Why it is over; what is left is for nobody.
fn drain(trace: &Trace) -> TraceTaken {
    loop {
        match trace.take(Duration::ZERO) {
            TraceTaken::Records(_) => {}
            taken => return taken,
        }
    }
}

fn answer(stream: &UnixStream, reply: &Reply) {
    // Who has gone is noticed soon.
    let _ = say(stream, &reply.line());
}

/// All of a short word.
fn say(stream: &UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    let (mut rest, begun) = (bytes, Instant::now());
    while !rest.is_empty() && begun.elapsed() < LAST_WORDS {
        let length = write_some(stream, rest)?;
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(())
}
