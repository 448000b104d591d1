// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who answers at the control socket, one JSON line each way, and what is done by orders.

mod desk;
mod luns;
mod orders;
mod questions;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use capture::Capture;
use control::admin::Reply;
use control::admin::Request;
use control::admin::TraceOrder;
use target::Target;

use self::desk::Desk;
pub(super) use self::luns::has_data_in_memory;
use super::clients::Clients;
use super::clients::Questions;
use super::clients::Stopper;
use super::configuration::Configuration;
use super::events::Events;
use super::sandboxed::Sandbox;
use super::take_over::giving;
use super::take_over::giving::Handing;
use super::traces::EndsTraces;
use super::traces::Traces;
use crate::control_socket;
use crate::control_socket::Socket;
use crate::control_socket::identity;
use crate::output;

/// Answers on the control socket until it is dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    desk: Desk,
    door: Option<Door>,
}

/// The socket, and who serves those that come to it.
#[derive(Debug)]
struct Door {
    socket: Socket,
    stopper: Stopper,
    threads: [JoinHandle<()>; 2],
    traces: EndsTraces,
}

impl Admin {
    /// `path`: as the user gave it; otherwise the default place, and if that cannot be had, none,
    /// with a warning. `there`: a socket that listens there already.
    pub(crate) fn start(
        path: Option<PathBuf>,
        there: Option<OwnedFd>,
        target: Arc<Target>,
        configuration: Arc<Configuration>,
        beside: Beside,
    ) -> Result<Self> {
        let begun = Instant::now();
        let traces = Traces::default();
        let shared =
            Arc::new(Shared { target, configuration, begun, beside, traces: traces.clone() });
        let desk = Desk::new(Arc::clone(&shared));
        let (path, wanted) = match path {
            Some(path) => (path, true),
            None => match control_socket::default_path() {
                Some(path) => (path, false),
                None => {
                    tracing::warn!(
                        "no control socket: XDG_RUNTIME_DIR is not set; try: --control-socket PATH"
                    );
                    return Ok(Self { desk, door: None });
                }
            },
        };
        let is_handed = there.is_some();
        // Its file may have gone meanwhile: nobody would find it.
        let there = there.filter(|_| identity(&path).is_ok());
        let listener = match there
            .map_or_else(|| control_socket::bind(&path), |fd| Ok(UnixListener::from(fd)))
        {
            Ok(listener) => listener,
            // Hosts do not wait for it.
            Err(error) if wanted && !is_handed => return Err(error),
            Err(error) => {
                tracing::warn!("no control socket: {error:#}");
                return Ok(Self { desk, door: None });
            }
        };
        tracing::debug!(path = %path.display(), "control socket");
        let socket = Socket::of(path, &listener)?;
        let doorplate = socket.listener().try_clone().context("the control socket")?;
        let asked = Asked { shared: Arc::clone(&shared), socket: Arc::new(doorplate.into()) };
        let (mut clients, orders) =
            Clients::new(listener, asked).context("cannot serve the control socket")?;
        let stopper = clients.stopper(&orders).context("cannot serve the control socket")?;
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let carrying = thread("orders")
            .spawn(move || orders.run(|order, is_wanted| shared.carry_out(order, is_wanted)))
            .context("cannot start the thread for orders")?;
        let serving = thread("admin")
            .spawn(move || while clients.turn() {})
            .context("cannot start the control thread")?;
        let threads = [serving, carrying];
        let traces = EndsTraces(traces);
        Ok(Self { desk, door: Some(Door { socket, stopper, threads, traces }) })
    }

    /// Answers nobody any more, and leaves the socket to the process that listens at it next.
    pub(crate) fn hand_over(self) {
        let Some(Door { mut socket, stopper, threads, traces }) = self.door else { return };
        socket.hand_over();
        stopper.stop();
        drop(traces);
        for thread in threads {
            // It has panicked at worst, and told so.
            let _ = thread.join();
        }
    }

    /// Who answers, with or without a socket.
    pub(crate) fn desk(&self) -> Desk {
        self.desk.clone()
    }
}

/// What questions and orders are about.
#[derive(Debug)]
struct Shared {
    target: Arc<Target>,
    configuration: Arc<Configuration>,
    begun: Instant,
    beside: Beside,
    traces: Traces,
}

/// What the daemon does beside serving.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    /// Where it speaks HTTP.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) http_tls: bool,
    /// Its address in the configuration, and the socket.
    pub(crate) http_socket: Option<(SocketAddr, Arc<OwnedFd>)>,
    /// Who hears that another process takes over.
    pub(crate) ends: Sender<End>,
    pub(crate) capture: Option<Capture>,
    pub(crate) events: Events,
    pub(crate) sandbox: Sandbox,
}

/// Why a daemon ends.
#[derive(Debug)]
pub(crate) enum End {
    /// A signal asked for it.
    Asked,
    /// Another process serves next.
    Handing(Box<Handing>),
}

/// Answers what takes no time.
struct Asked {
    shared: Arc<Shared>,
    socket: Arc<OwnedFd>,
}

impl Questions for Asked {
    fn answer(&self, request: &Request) -> Option<Reply> {
        self.shared.answer(request)
    }

    fn converse(&self, request: &Request, stream: &UnixStream) -> bool {
        if let Request::Trace(order) = request {
            return self.trace(order, stream);
        }
        let Request::TakeOver { protocol, version } = request else { return false };
        let Ok(stream) = stream.try_clone() else { return false };
        let (shared, socket) = (Arc::clone(&self.shared), Arc::clone(&self.socket));
        let (protocol, version) = (*protocol, version.clone());
        let thread = std::thread::Builder::new().name("take-over".into());
        let spawned = thread.spawn(move || {
            match shared.offer((protocol, &version), stream, &socket) {
                // Who would hear it ends for another reason.
                Ok(handing) => drop(shared.beside.ends.send(End::Handing(Box::new(handing)))),
                Err(error) => {
                    let why = output::chain(&error);
                    tracing::warn!(version, why, "another process does not take over");
                }
            }
        });
        spawned.is_ok()
    }
}

impl Asked {
    /// Whether somebody serves the reader of a trace.
    fn trace(&self, order: &TraceOrder, stream: &UnixStream) -> bool {
        let Ok(stream) = stream.try_clone() else { return false };
        let (target, traces) = (Arc::clone(&self.shared.target), self.shared.traces.clone());
        let order = order.clone();
        let thread = std::thread::Builder::new().name("trace".into());
        let serve = move || traces.serve(target, &order, &stream);
        thread.spawn(serve).is_ok()
    }
}

impl Shared {
    /// All that another process needs to take over.
    fn offer(
        &self,
        who: (u32, &str),
        stream: UnixStream,
        control: &Arc<OwnedFd>,
    ) -> Result<Handing> {
        let http = self.beside.http_socket.as_ref().map(|(address, fd)| (*address, fd));
        giving::offer(who, stream, (&self.configuration, &self.target), |portals| {
            giving::all_sockets(&self.target, portals, http, Some(control))
        })
    }
}
