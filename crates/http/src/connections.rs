// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections: so many, each for a bounded time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::future::poll_fn;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
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
use crate::orders;
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
    let mut open: VecDeque<Open> = VecDeque::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.task.is_finished());
        while open.len() >= limits.connections {
            let all: Vec<_> = open.iter().map(|one| (one.standing.get(), one.network)).collect();
            if let Some(one) = open.remove(who_goes(&all)) {
                one.task.abort();
            }
        }
        let standing = Rc::new(Cell::new(Standing::Stranger));
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let serve = begin((stream, peer), Arc::clone(&looks), limits, Rc::clone(&standing));
        let (task, network) = (task::spawn_local(serve).abort_handle(), network(peer.ip()));
        open.push_back(Open { task, network, standing });
    }
}

/// A connection.
struct Open {
    task: AbortHandle,
    network: IpAddr,
    standing: Rc<Cell<Standing>>,
}

/// From where a request comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// What is known of who has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Stranger,
    /// He has shown a token.
    Known,
    /// He waits for what becomes of an order.
    Orders,
}

/// Whose an address is: who has one of IPv6 has all of a network of 64 bits.
fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Which of these, the oldest one first, makes room for another one. Who holds them all keeps out
/// nobody who takes his answer at once, nor who waits for what becomes of an order, for which a
/// token was shown; and strangers have half of them at most where others need them who are known.
/// Of strangers one goes of the network that has most of them: who floods us pushes out his own,
/// and nobody whose handshake is under way.
fn who_goes(all: &[(Standing, IpAddr)]) -> usize {
    let strangers = all.iter().filter(|(one, _)| *one == Standing::Stranger).count();
    let order = match 2 * strangers >= all.len() {
        true => [Standing::Stranger, Standing::Known],
        false => [Standing::Known, Standing::Stranger],
    };
    let share = |one: &(Standing, IpAddr)| match one.0 {
        Standing::Stranger => all.iter().filter(|other| *other == one).count(),
        Standing::Known | Standing::Orders => 0,
    };
    let oldest = order.into_iter().find_map(|wanted| {
        let those = all.iter().enumerate().filter(|(_, (standing, _))| *standing == wanted);
        // The first one of several.
        those.rev().max_by_key(|(_, one)| share(one)).map(|(index, _)| index)
    });
    oldest.unwrap_or(0)
}

/// What is read and written, in TLS or not: hyper is in the program once for both.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Answers on a connection, inside of TLS if there is to be TLS.
async fn begin(
    (stream, peer): (TcpStream, SocketAddr),
    looks: Arc<Looks>,
    limits: Limits,
    standing: Rc<Cell<Standing>>,
) {
    let Some(tls) = looks.gate().tls().cloned() else {
        return serve((Box::new(stream), peer), looks, limits, standing).await;
    };
    if let Ok(Some(stream)) = time::timeout(limits.head, tls.accept(stream)).await {
        serve((Box::new(stream), peer), looks, limits, standing).await;
    }
}

/// Answers on a connection until it ends, or asks for nothing for too long. What it lacks then is a
/// request, or that it takes its answer: nothing more is read before that has left.
async fn serve(
    (stream, peer): (Box<dyn Stream>, SocketAddr),
    looks: Arc<Looks>,
    limits: Limits,
    standing: Rc<Cell<Standing>>,
) {
    let (asked, is_asked) = (Rc::new(Cell::new(Instant::now())), Cell::new(false));
    let service = service_fn(|mut request: Request<Incoming>| {
        is_asked.set(true);
        request.extensions_mut().insert(Peer(peer));
        let before = standing.get();
        if request.uri().path() == orders::PATH {
            standing.set(Standing::Orders);
        }
        let (looks, asked, is_asked) = (Arc::clone(&looks), &asked, &is_asked);
        let standing = &standing;
        async move {
            let mut answer = routes::answer(&looks, request).await;
            answer.body_mut().is_timed_by(asked);
            // An order may take its time.
            asked.set(Instant::now());
            is_asked.set(false);
            standing.set(answer.extensions_mut().remove::<Standing>().unwrap_or(before));
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

#[cfg(test)]
mod tests {
    use super::Standing::Known;
    use super::Standing::Orders;
    use super::Standing::Stranger;
    use super::*;

    #[test]
    fn strangers_make_room_for_those_who_are_known() {
        for (all, wanted) in [
            (&[Stranger, Stranger, Stranger][..], 0),
            (&[Orders, Stranger, Stranger], 1),
            (&[Known, Orders, Stranger, Stranger], 2),
            // Who comes new is a stranger until he is heard.
            (&[Orders, Known, Known, Stranger], 1),
            (&[Known, Known], 0),
            (&[Orders, Orders], 0),
            (&[Orders, Known], 1),
        ] {
            let all: Vec<_> = all.iter().map(|one| (*one, address("192.0.2.1"))).collect();
            assert_eq!(who_goes(&all), wanted, "{all:?}");
        }
    }

    #[test]
    fn who_floods_us_pushes_out_his_own() {
        let (a, b) = ("192.0.2.1", "192.0.2.2");
        let net = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
        for (all, wanted) in [
            (&[(Stranger, a), (Stranger, b), (Stranger, b)][..], 1),
            (&[(Stranger, a), (Stranger, b)], 0),
            (&[(Stranger, net[2]), (Stranger, net[0]), (Stranger, net[1])], 1),
            (&[(Known, b), (Known, b), (Stranger, a), (Stranger, b), (Stranger, b)], 3),
            (&[(Known, a), (Known, b), (Known, b)], 0),
        ] {
            let of: Vec<_> = all.iter().map(|(one, at)| (*one, network(address(at)))).collect();
            assert_eq!(who_goes(&of), wanted, "{all:?}");
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }
}
