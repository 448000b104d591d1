// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reactors: one thread each, one port, one pump.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::sync::mpsc::Sender;
use std::thread;
use std::thread::JoinHandle;

use buf::Pool;
use engine::Choice;
use engine::Port;
use engine::ppe::Ppe;
use engine::ppe::Seat;
use engine::ppe::Settings;

use crate::plan::Mode;
use crate::plan::Plan;
use crate::pump::Pump;
use crate::pump::Shared;
use crate::stores::StoreFile;

/// The reactor that listens at all portals, and deals the connections out.
pub(crate) const LISTENING_REACTOR: usize = 0;

/// What a reactor's thread waits for once its port exists.
pub(crate) struct Start {
    pub(crate) shared: Arc<Shared>,
    /// With the addresses that they really listen on.
    pub(crate) listeners: Vec<(OwnedFd, SocketAddr)>,
    pub(crate) adapters: Vec<verbs::Listener>,
}

/// A reactor whose thread runs but does not serve yet.
pub(crate) struct Starting {
    pub(crate) waker: mpsc::Receiver<io::Result<engine::Waker>>,
    pub(crate) start: Sender<Start>,
    pub(crate) thread: JoinHandle<()>,
}

impl Starting {
    pub(crate) fn spawn(
        index: usize,
        engine: Choice,
        seat: Option<Seat>,
        plan: &Plan,
    ) -> io::Result<Self> {
        let (waker_to, waker) = mpsc::channel();
        let (start, start_from) = mpsc::channel();
        let config = engine::Config { spin_max: plan.spin_max, ..engine::Config::default() };
        let pool = Pool::new(plan.pool_bytes_max)?;
        let files = plan.stores.files.clone();
        let cpu = plan.cpus.get(index % plan.cpus.len().max(1)).copied();
        let builder = thread::Builder::new().name(format!("reactor-{index}"));
        let thread = builder.spawn(move || {
            if let Some(cpu) = cpu
                && let Err(error) = engine::affinity::pin(cpu)
            {
                tracing::warn!(cpu, %error, "cannot pin a reactor");
            }
            let setup = Setup { index, pool, files, waker_to, start_from };
            match (seat, engine) {
                (Some(seat), _) => setup.serve(Ok(Ppe::from(seat))),
                (None, Choice::Epoll) => setup.serve(engine::epoll::Epoll::new(&config)),
                (None, _) => setup.serve(engine::uring::Uring::new(&config)),
            }
        })?;
        Ok(Self { waker, start, thread })
    }
}

/// Starts the polling cores; a seat at one of them for each reactor, none in the symmetric mode.
pub(crate) fn seats(engine: Choice, reactors: usize, plan: &Plan) -> io::Result<Vec<Option<Seat>>> {
    let Mode::Amp { cores, idle } = plan.mode else { return Ok(Vec::new()) };
    let cores = cores.clamp(1, reactors);
    let mut seats: Vec<Option<Seat>> = (0..reactors).map(|_| None).collect();
    for core in 0..cores {
        let port = engine::Config {
            spin_max: plan.spin_max,
            name: format!("ppe-{core}"),
            ..engine::Config::default()
        };
        let cpu = plan.cpus.get((reactors + core) % plan.cpus.len().max(1)).copied();
        let places = seats.iter_mut().skip(core).step_by(cores);
        let settings = Settings { engine, port, cpu, idle };
        for (place, seat) in
            places.zip(engine::ppe::start(&settings, (reactors - core).div_ceil(cores))?)
        {
            *place = Some(seat);
        }
    }
    Ok(seats)
}

/// What a reactor's thread owns before it serves.
struct Setup {
    index: usize,
    pool: Pool,
    files: Vec<StoreFile>,
    waker_to: Sender<io::Result<engine::Waker>>,
    start_from: mpsc::Receiver<Start>,
}

impl Setup {
    fn serve<P: Port>(self, port: io::Result<P>) {
        let mut port = match port {
            Ok(port) => port,
            Err(error) => {
                // The starter has gone only if it failed itself.
                let _ = self.waker_to.send(Err(error));
                return;
            }
        };
        for file in self.files {
            if let Err(error) = port.add_file(file.id.0, file.fd, file.direct) {
                let _ = self.waker_to.send(Err(io::Error::other(error)));
                return;
            }
        }
        if self.waker_to.send(Ok(port.waker())).is_err() {
            return;
        }
        let Ok(start) = self.start_from.recv() else { return };
        let mut pump = Pump::new(port, self.pool, start.shared, self.index);
        for (fd, address) in start.listeners {
            pump.listen(fd, address);
        }
        for listener in start.adapters {
            pump.listen_at_adapters(listener);
        }
        pump.serve();
    }
}
