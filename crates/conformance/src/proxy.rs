// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bad network between an initiator and a target: it knows PDUs, writes down which pass, and
//! damages, drops, doubles or cuts them as a test wants.

use std::io;
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
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use wire::iscsi::BHS_LEN;
use wire::iscsi::BhsView;
use wire::iscsi::Request;
use wire::iscsi::Response;
use wire::iscsi::pad4;

/// Login Request and Login Response: without digests.
const LOGIN: [u8; 2] = [0x03, 0x23];

/// Length of a digest, bytes.
const DIGEST_LEN: usize = 4;

/// Between two questions about a PDU that waits.
const WAIT_INTERVAL: Duration = Duration::from_millis(1);

/// What becomes of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // tests choose
pub enum Fate {
    /// It passes.
    Pass,
    /// A bit of its data segment is turned; one without data passes.
    Damage,
    /// A bit of its header is turned.
    DamageHeader,
    /// It is swallowed.
    Drop,
    /// It passes twice.
    Twice,
    /// The connection ends before it, both ways.
    Cut,
    /// It waits, and all behind it; the script is asked again soon.
    Wait,
}

/// A PDU on its way.
#[derive(Clone, Debug)]
pub struct Passing {
    /// The connection, in the order in which they were made.
    pub connection: usize,
    /// How many PDUs came before it in this direction of its connection.
    pub index: usize,
    /// From the initiator to the target.
    pub outward: bool,
    /// Its BHS.
    pub header: [u8; BHS_LEN],
    /// Its data segment.
    pub data: Vec<u8>,
    /// What became of it.
    pub fate: Fate,
    /// When it came.
    pub at: Instant,
}

impl Passing {
    /// What an initiator says; None the other way.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        self.outward.then(|| Request::parse(&self.header).ok()).flatten()
    }

    /// What a target says; None the other way.
    #[must_use]
    pub fn response(&self) -> Option<Response> {
        if self.outward { None } else { Response::parse(&self.header).ok() }
    }
}

/// Which digests PDUs have after the login.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digests {
    /// Over headers.
    pub header: bool,
    /// Over data segments.
    pub data: bool,
}

type Script = Box<dyn FnMut(&Passing) -> Fate + Send>;

/// A running proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    portal: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    digests: Digests,
    script: Mutex<Script>,
    passed: Mutex<Vec<Passing>>,
    streams: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
    /// No new connection gets through.
    shut: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Listens, and connects whoever comes to `target`. `script` decides what becomes of each PDU.
    #[must_use]
    pub fn start(
        target: SocketAddr,
        digests: Digests,
        script: impl FnMut(&Passing) -> Fate + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let portal = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target,
            digests,
            script: Mutex::new(Box::new(script)),
            passed: Mutex::default(),
            streams: Mutex::default(),
            over: AtomicBool::new(false),
            shut: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_thread));
        Self { portal, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn portal(&self) -> SocketAddr {
        self.portal
    }

    /// Everything that came so far, in the order in which it came.
    #[must_use]
    pub fn passed(&self) -> Vec<Passing> {
        lock(&self.shared.passed).clone()
    }

    /// What initiators said so far, with the connection of each PDU.
    #[must_use]
    pub fn requests(&self) -> Vec<(usize, Request)> {
        let of = |pdu: &Passing| Some((pdu.connection, pdu.request()?));
        self.passed().iter().filter_map(of).collect()
    }

    /// As a firewall that begins to refuse: cuts what is there and takes nothing new, until
    /// [`Proxy::open`].
    pub fn shut(&self) {
        self.shared.shut.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Takes connections again.
    pub fn open(&self) {
        self.shared.shut.store(false, Ordering::SeqCst);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in lock(&self.shared.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.portal);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (connection, stream) in listener.incoming().enumerate() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(near) = stream else { return };
        if shared.shut.load(Ordering::SeqCst) {
            continue;
        }
        let Ok(far) = TcpStream::connect(shared.target) else { continue };
        for stream in [&near, &far] {
            let _ = stream.set_nodelay(true);
            lock(&shared.streams).extend(stream.try_clone());
        }
        for outward in [true, false] {
            let (Ok(near), Ok(far)) = (near.try_clone(), far.try_clone()) else { return };
            let (from, to) = if outward { (near, far) } else { (far, near) };
            let shared = Arc::clone(shared);
            thread::spawn(move || {
                let _ = forward(connection, outward, &from, &to, &shared);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}

fn forward(
    connection: usize,
    outward: bool,
    mut from: &TcpStream,
    mut to: &TcpStream,
    shared: &Shared,
) -> io::Result<()> {
    for index in 0.. {
        let mut header = [0; BHS_LEN];
        from.read_exact(&mut header)?;
        let (rest, data_at) = read_rest(from, &header, shared.digests)?;
        let length = data_len(&header);
        let data = rest.get(data_at..data_at + length).unwrap_or_default().to_vec();
        let (fate, at) = (Fate::Pass, Instant::now());
        let mut pdu = Passing { connection, index, outward, header, data, fate, at };
        let fate = loop {
            // Not held while it waits: what comes the other way may be what it waits for.
            let fate = lock(&shared.script)(&pdu);
            match fate {
                Fate::Wait if shared.over.load(Ordering::SeqCst) => return Ok(()),
                Fate::Wait => thread::sleep(WAIT_INTERVAL),
                _ => break fate,
            }
        };
        pdu.fate = fate;
        lock(&shared.passed).push(pdu);
        let mut bytes = [header.as_slice(), rest.as_slice()].concat();
        match fate {
            Fate::Damage if length > 0 => flip(&mut bytes, BHS_LEN + data_at + length / 2),
            // A reserved byte, so that only the digest can tell.
            Fate::DamageHeader => flip(&mut bytes, 3),
            Fate::Drop => continue,
            Fate::Twice => to.write_all(&bytes)?,
            Fate::Cut => return Ok(()),
            Fate::Pass | Fate::Damage | Fate::Wait => {}
        }
        to.write_all(&bytes)?;
    }
    Ok(())
}

/// What follows a header, and where its data segment begins in it.
fn read_rest(
    mut from: &TcpStream,
    header: &[u8; BHS_LEN],
    digests: Digests,
) -> io::Result<(Vec<u8>, usize)> {
    let [opcode, _, _, _, ahs, ..] = *header;
    let is_login = LOGIN.contains(&(opcode & 0x3f));
    let before = usize::from(ahs) * 4 + digest_len(digests.header && !is_login);
    let length = data_len(header);
    let after = digest_len(digests.data && !is_login && length > 0);
    let mut rest = vec![0; before + pad4(length) + after];
    from.read_exact(&mut rest)?;
    Ok((rest, before))
}

fn digest_len(on: bool) -> usize {
    if on { DIGEST_LEN } else { 0 }
}

fn data_len(header: &[u8; BHS_LEN]) -> usize {
    BhsView::new_checked(header).map_or(0, |bhs| bhs.data_segment_length() as usize)
}

fn flip(bytes: &mut [u8], at: usize) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 0x10;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
