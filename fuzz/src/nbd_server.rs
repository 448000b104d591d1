// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A whole server of a disk: its thread and its sockets, an initiator, and a target with a volatile
//! cache which it loses now and then. Whatever a stranger sends and however it goes, a good client
//! is served, and reads what it wrote.

use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::time::Duration;

use ::initiator::Config;
use ::initiator::Disk;
use ::initiator::Initiator;
use ::initiator::Options;
use ::target::Io;
use ::target::IoResult;
use ::target::Op;
use ::target::OpError;
use ::target::Outcome;
use ::target::Slice;
use ::target::Store;
use ::target::Submitted;
use arbitrary::Arbitrary;
use arbitrary::Unstructured;
use attach::Address;
use attach::NbdServer;
use attach::News;
use attach::Settings;

const IQN: &str = "iqn.2026-01.com.example:disks";
const BLOCK: usize = 512;
/// Strangers reach what two bytes can name, and a request behind it.
const BYTES: usize = 256 << 10;
/// The good client's own, at the end.
const OWN: usize = 3000;
/// Few of the good client's writes fill it.
const KEPT: u64 = 32 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// What a stranger does.
#[derive(Arbitrary, Debug)]
enum Move {
    Option {
        number: u8,
        data: Vec<u8>,
    },
    Request {
        flags: u8,
        kind: u8,
        offset: u16,
        length: u16,
        data: bool,
    },
    Read(u8),
    /// The last thing, as it may be half of something.
    Raw(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Stranger {
    /// Whether it names its export before.
    negotiates: bool,
    /// The target loses its power meanwhile, if this is 0x77: seldom, as it
    /// takes as long as many others.
    power: u8,
    moves: Vec<Move>,
    /// Waits for all answers.
    stays: bool,
}

/// What a target has of its ground: it outlives it.
#[derive(Debug)]
struct Ground {
    stable: Vec<u8>,
    now: Vec<u8>,
}

#[derive(Debug)]
struct Lossy(Arc<Mutex<Ground>>);

impl Store for Lossy {
    fn geometry(&self) -> ::target::Geometry {
        ::target::Geometry {
            bytes: BYTES as u64,
            read_only: false,
            discard_granularity: Some(4096),
            anchors: false,
            volatile_cache: true,
            physical_block: 512,
            rotational: false,
        }
    }

    fn submit(&self, op: &Op) -> Submitted {
        if let Err(error) = self.geometry().check(op) {
            return Submitted::Done(Outcome::Failed(error));
        }
        let mut ground = lock(&self.0);
        let (offset, length) = op.range();
        let start = usize::try_from(offset).expect("a small disk");
        let range = start..start + usize::try_from(length).expect("a small disk");
        let outcome = match op {
            Op::Read { .. } => Outcome::Data(Slice::from(ground.now[range].to_vec())),
            Op::Write { data, durable, .. } => {
                data.copy_to(&mut ground.now[range.clone()]);
                if *durable {
                    data.copy_to(&mut ground.stable[range]);
                }
                Outcome::Done
            }
            Op::Clear { .. } => {
                ground.now[range].fill(0);
                Outcome::Done
            }
            Op::Flush => {
                let Ground { stable, now } = &mut *ground;
                stable.copy_from_slice(now);
                Outcome::Done
            }
            _ => Outcome::Failed(OpError::Unsupported),
        };
        Submitted::Done(outcome)
    }

    fn complete(&self, _: &Op, _: &Io, _: IoResult) -> Submitted {
        Submitted::Done(Outcome::Failed(OpError::Internal))
    }
}

struct Lab {
    ground: Arc<Mutex<Ground>>,
    target: Option<::target::Target>,
    portal: SocketAddr,
    socket: PathBuf,
    good: UnixStream,
    round: u8,
    _server: NbdServer,
    _initiator: Initiator,
}

impl Lab {
    fn new() -> Mutex<Self> {
        let ground = Arc::new(Mutex::new(Ground { stable: vec![0; BYTES], now: vec![0; BYTES] }));
        let target = serve(([127, 0, 0, 1], 0).into(), &ground);
        let portal = target.portals()[0];
        let initiator = Initiator::start(&Config::default()).expect("an initiator");
        let mut options = Options::new(portal.to_string(), Some(IQN.to_owned()));
        options.reconnect_patience = PATIENCE;
        let session = initiator.connect(options).expect("a session");
        let disk = Disk::open(&session, 0).expect("a disk");
        let socket = std::env::temp_dir().join(format!("lunwire-fuzz-{}", std::process::id()));
        let settings = Settings { keep_bytes: KEPT, ..Settings::default() };
        let address = Address::Path(socket.clone());
        let pool = session.pool().clone();
        let (server, news) = NbdServer::start(disk, pool, "disk", "", &address, &settings)
            .expect("nobody else has the socket");
        std::thread::spawn(move || {
            for news in news {
                assert!(!matches!(news, News::Broken { .. }), "{news:?}");
            }
        });
        let good = greeted(&socket, true).expect("a server");
        Mutex::new(Self {
            ground,
            target: Some(target),
            portal,
            socket,
            good,
            round: 0,
            _server: server,
            _initiator: initiator,
        })
    }

    /// All that was not flushed is gone.
    fn lose_power(&mut self) {
        if let Some(target) = self.target.take() {
            target.stop(Duration::ZERO).expect("a target that stops");
        }
        {
            let mut ground = lock(&self.ground);
            ground.now = ground.stable.clone();
        }
        self.target = Some(serve(self.portal, &self.ground));
    }

    fn ask(&mut self, kind: u8, data: &[u8]) -> Vec<u8> {
        let offset = BYTES - OWN;
        self.good.write_all(&request(0, kind, offset, OWN)).expect("a server");
        self.good.write_all(data).expect("a server");
        let mut head = [0; 16];
        self.good.read_exact(&mut head).expect("an answer");
        assert_eq!(head[..8], *b"\x67\x44\x66\x98\0\0\0\0", "a good request");
        let mut read = vec![0; if kind == 0 { OWN } else { 0 }];
        self.good.read_exact(&mut read).expect("data");
        read
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(listen: SocketAddr, ground: &Arc<Mutex<Ground>>) -> ::target::Target {
    let identity = ::target::Identity::derive(IQN, 0, "EXAMPLE", "LOSSY");
    let store = Arc::new(Lossy(Arc::clone(ground)));
    let block = u32::try_from(BLOCK).expect("a small number");
    let unit = ::target::LogicalUnit::new(identity, store, block).expect("a unit");
    let node = ::target::Node::new(IQN.to_owned(), vec![(0, Arc::new(unit))]);
    let plan = ::target::Plan::new(vec![listen.into()], vec![node], ::target::Stores::new());
    ::target::Target::start(plan).expect("a target")
}

/// A client with its flags; `names`: and its export.
fn greeted(socket: &PathBuf, names: bool) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&3_u32.to_be_bytes())?;
    if names {
        stream.write_all(&option(1, b"disk"))?;
        stream.read_exact(&mut [0; 10])?;
    }
    Ok(stream)
}

fn option(number: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT\0\0\0".to_vec();
    bytes.push(number);
    bytes.extend(u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn request(flags: u8, kind: u8, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, flags, 0, kind]);
    bytes.extend([0; 8]);
    bytes.extend((offset as u64).to_be_bytes());
    bytes.extend(u32::try_from(length).unwrap_or(0).to_be_bytes());
    bytes
}

/// One stranger, beside a good client.
pub fn nbd_server(data: &[u8]) {
    static LAB: OnceLock<Mutex<Lab>> = OnceLock::new();
    let Ok(stranger) = Stranger::arbitrary(&mut Unstructured::new(data)) else { return };
    let mut lab = lock(LAB.get_or_init(Lab::new));
    lab.round = lab.round.wrapping_add(1);
    let own = vec![lab.round; OWN];
    lab.ask(1, &own);
    let mut stream = greeted(&lab.socket, stranger.negotiates).expect("a server");
    // It may be sent away at any time.
    let _ = act(&mut stream, &stranger.moves);
    if stranger.power == 0x77 {
        lab.lose_power();
    }
    if stranger.stays {
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = [0; 4096];
        loop {
            match stream.read(&mut rest) {
                Ok(1..) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("a connection has no end")
                }
                _ => break,
            }
        }
    }
    drop(stream);
    assert!(lab.ask(0, &[]) == own, "the good client's bytes");
}

fn act(stream: &mut UnixStream, moves: &[Move]) -> std::io::Result<()> {
    for one in moves {
        match one {
            Move::Option { number, data } => stream.write_all(&option(*number, data))?,
            Move::Request { flags, kind, offset, length, data } => {
                let (offset, length) = (usize::from(*offset), usize::from(*length));
                stream.write_all(&request(*flags, *kind % 9, offset, length))?;
                if *data {
                    stream.write_all(&vec![*flags; length])?;
                }
            }
            Move::Read(count) => {
                stream.set_nonblocking(true)?;
                let read = stream.read(&mut vec![0; usize::from(*count)]);
                stream.set_nonblocking(false)?;
                if read.is_ok_and(|read| read == 0 && *count > 0) {
                    return Ok(());
                }
            }
            Move::Raw(bytes) => return stream.write_all(bytes.get(..27).unwrap_or(bytes)),
        }
    }
    Ok(())
}
