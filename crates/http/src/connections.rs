// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections: so many, each for a bounded time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::task;
use tokio::task::AbortHandle;
use tokio::time;
use tokio::time::Instant;

use crate::limits::ACCEPT_PAUSE;
use crate::limits::CONNECTIONS_MAX;
use crate::limits::HEAD_LEN_MAX;
use crate::limits::HEAD_WAIT;
use crate::limits::HEADERS_MAX;
use crate::limits::SILENCE_MAX;
use crate::looks::Looks;
use crate::routes;

/// How many, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    pub(crate) head: Duration,
    pub(crate) silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: CONNECTIONS_MAX, head: HEAD_WAIT, silence: SILENCE_MAX }
    }
}

/// Takes connections, each in a task of this thread, as long as the tasks are there.
pub(crate) async fn accept(listener: TcpListener, looks: Arc<Looks>, limits: Limits) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        // Who holds them all keeps out nobody who takes his answer at once.
        while open.len() >= limits.connections {
            if let Some(oldest) = open.pop_front() {
                oldest.abort();
            }
        }
        let connection = task::spawn_local(serve(stream, Arc::clone(&looks), limits));
        open.push_back(connection.abort_handle());
    }
}

/// Answers on a connection until it ends, or asks for nothing for too long. What it lacks then is a
/// request, or that it takes its answer: nothing more is read before that has left.
async fn serve(stream: TcpStream, looks: Arc<Looks>, limits: Limits) {
    let (asked, is_asked) = (Cell::new(Instant::now()), Cell::new(false));
    let service = service_fn(|request: Request<Incoming>| {
        is_asked.set(true);
        let (looks, asked, is_asked) = (Arc::clone(&looks), &asked, &is_asked);
        async move {
            let answer = routes::answer(&looks, request).await;
            // An order may take its time.
            asked.set(Instant::now());
            is_asked.set(false);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_LEN_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let silence = async {
        loop {
            let begun = if is_asked.get() { Instant::now() } else { asked.get() };
            let end = begun + limits.silence;
            if Instant::now() >= end {
                return;
            }
            time::sleep_until(end).await;
        }
    };
    let (mut connection, mut silence) = (pin!(connection), pin!(silence));
    poll_fn(|context| match silence.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        // How it ended is its client's matter.
        Poll::Pending => connection.as_mut().poll(context).map(drop),
    })
    .await;
}
