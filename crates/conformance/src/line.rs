// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A slow line between an initiator and a target. It takes what it is given at once and passes it
//! on at its own speed, also when whoever gave it is gone: as the queues of systems and networks
//! do.

use std::collections::HashMap;
use std::io::Read;
use std::io::Write;
use std::net::Ipv4Addr;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

/// What passes at once, bytes.
const CHUNK: usize = 8 << 10;

/// A running line; its connections end with it.
#[derive(Debug)]
pub struct Line {
    portal: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    /// Bytes a second of each connection, and of those that have no speed of their own.
    rates: Mutex<HashMap<usize, u64>>,
    rate: Mutex<u64>,
    /// So many new connections are reset.
    refused: AtomicUsize,
    made: AtomicUsize,
    held: AtomicUsize,
    over: AtomicBool,
}

impl Line {
    /// Listens, and connects whoever comes to `target`, at `rate` bytes a second to there. The way
    /// back is quick.
    #[must_use]
    pub fn start(target: SocketAddr, rate: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let portal = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target,
            rates: Mutex::default(),
            rate: Mutex::new(rate),
            refused: AtomicUsize::new(0),
            made: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_thread));
        Self { portal, shared }
    }

    /// Where it listens.
    #[must_use]
    pub const fn portal(&self) -> SocketAddr {
        self.portal
    }

    /// From now on a connection, by the order in which they were made, has this speed, bytes a
    /// second. At 0 nothing passes.
    pub fn slow(&self, connection: usize, rate: u64) {
        lock(&self.shared.rates).insert(connection, rate);
    }

    /// The same for all that have no speed of their own.
    pub fn slow_others(&self, rate: u64) {
        *lock(&self.shared.rate) = rate;
    }

    /// The next connections are reset, so many of them.
    pub fn refuse(&self, count: usize) {
        self.shared.refused.store(count, Ordering::SeqCst);
    }

    /// How many connections came so far.
    #[must_use]
    pub fn made(&self) -> usize {
        self.shared.made.load(Ordering::SeqCst)
    }

    /// Bytes that are on it towards the target.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.portal);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(near) = stream else { return };
        let connection = shared.made.fetch_add(1, Ordering::SeqCst);
        let less = |left: usize| left.checked_sub(1);
        if shared.refused.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            continue;
        }
        let Ok(far) = TcpStream::connect(shared.target) else { continue };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let (Ok(near_twin), Ok(far_twin)) = (near.try_clone(), far.try_clone()) else { continue };
        let (give, take) = mpsc::channel();
        let (of_taker, of_giver) = (Arc::clone(shared), Arc::clone(shared));
        thread::spawn(move || take_all(near, &give, &of_taker));
        thread::spawn(move || pass(&take, far, connection, &of_giver));
        thread::spawn(move || pass_back(far_twin, near_twin));
    }
}

/// Takes what the initiator sends, as fast as it comes.
fn take_all(mut near: TcpStream, give: &Sender<Vec<u8>>, shared: &Shared) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = near.read(&mut bytes) {
        shared.held.fetch_add(count, Ordering::SeqCst);
        let Some(taken) = bytes.get(..count) else { return };
        if give.send(taken.to_vec()).is_err() {
            return;
        }
    }
}

/// Passes it on to the target, at the speed of the line.
fn pass(take: &Receiver<Vec<u8>>, mut far: TcpStream, connection: usize, shared: &Shared) {
    let mut is_good = true;
    for bytes in take {
        for chunk in bytes.chunks(CHUNK) {
            let speed = || {
                let own = lock(&shared.rates).get(&connection).copied();
                own.unwrap_or_else(|| *lock(&shared.rate))
            };
            let mut rate = speed();
            while rate == 0 && !shared.over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(20));
                rate = speed();
            }
            if is_good && !shared.over.load(Ordering::SeqCst) {
                is_good = far.write_all(chunk).is_ok();
                thread::sleep(Duration::from_secs_f64(chunk.len() as f64 / rate.max(1) as f64));
            }
            shared.held.fetch_sub(chunk.len(), Ordering::SeqCst);
        }
    }
    let _ = far.shutdown(Shutdown::Write);
}

/// What the target says. Where nobody hears it any more it is dropped: the target does not know.
fn pass_back(mut far: TcpStream, mut near: TcpStream) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = far.read(&mut bytes) {
        let _ = bytes.get(..count).map(|said| near.write_all(said));
    }
    let _ = near.shutdown(Shutdown::Both);
}
