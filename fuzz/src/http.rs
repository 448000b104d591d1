// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The port for HTTP: its thread and its sockets. Whatever a stranger sends, each connection has an
//! end, each answer is one, nothing is changed without the token, and a good client is served.

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::time::Duration;

use ::http::Access;
use ::http::Desk;
use ::http::Giver;
use ::http::Http;
use ::http::Listener;
use ::http::Tokens;
use arbitrary::Arbitrary;
use arbitrary::Unstructured;
use control::admin::Reply;
use control::admin::Request;
use signal_hook::consts::SIGPIPE;

/// What alone lets anybody change something.
const TOKEN: &str = "fuzz-token-of-twenty-and-more-bytes";
const READING: &str = "fuzz-token-that-reads-and-no-more";
const PATIENCE: Duration = Duration::from_secs(20);

/// One request, of which parts may be wrong.
#[derive(Arbitrary, Debug)]
struct Asked {
    method: u8,
    path: u8,
    version: u8,
    headers: Vec<Header>,
    body: Body,
}

#[derive(Arbitrary, Debug)]
enum Header {
    Host(u8),
    Token(u8),
    Kind(u8),
    Origin(u8),
    Length(u16),
    Chunked,
    Expect,
    Closes,
    Accept(u8),
    Raw(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Body {
    None,
    Order(u8),
    Pieces(Vec<Vec<u8>>),
    Raw(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Stranger {
    asked: Vec<Asked>,
    /// Behind them.
    rest: Vec<u8>,
    /// How much goes out at a time.
    piece: u8,
    /// Takes its answers.
    stays: bool,
}

/// Counts orders, and answers all.
#[derive(Default)]
struct Counting(Mutex<usize>);

impl Desk for Counting {
    fn answer(&self, request: &Request) -> Reply {
        assert!(!is_order(request), "an order of nobody: {request:?}");
        Reply::Done
    }

    fn order(&self, order: &Request, giver: &Giver) -> Reply {
        assert!(!giver.token.is_empty(), "without a token: {order:?}");
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += usize::from(is_order(order));
        let names_a_place = match order {
            Request::AddLun { lun, .. } => lun.store.contains("file:"),
            Request::SnapshotLun { .. } => true,
            _ => false,
        };
        assert!(!names_a_place, "that is for the control socket: {order:?}");
        Reply::Done
    }
}

/// Something is changed by it.
fn is_order(request: &Request) -> bool {
    matches!(
        request,
        Request::Reload { dry_run: false, .. }
            | Request::DropSession { .. }
            | Request::LogoutSession { .. }
            | Request::SetPortGroup { .. }
            | Request::SetLimit { .. }
            | Request::ResizeLun { .. }
            | Request::AddLun { .. }
            | Request::RemoveLun { .. }
    )
}

struct Lab {
    http: Http,
    desk: Arc<Counting>,
}

impl Lab {
    fn new() -> Mutex<Self> {
        // As in every process that begins in Rust, and not in libFuzzer.
        let pipe = signal_hook::flag::register(SIGPIPE, Arc::default());
        pipe.expect("a signal that may be caught");
        let path = std::env::temp_dir().join(format!("lunwire-fuzz-tokens-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .expect("a file");
        writeln!(file, "change {TOKEN}\nread {READING}").expect("room for it");
        let tokens = Tokens::of(&path).expect("two tokens");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(listen).expect("a port");
        let access = Access { tokens: Some(tokens), tls: None };
        let http = Http::start(listener, "1", access).expect("a thread");
        let plan = ::target::Plan::new(vec![listen.into()], Vec::new(), ::target::Stores::new());
        let target = Arc::new(::target::Target::start(plan).expect("a target"));
        let desk = Arc::new(Counting::default());
        http.serves(target, Arc::clone(&desk) as Arc<dyn Desk>);
        Mutex::new(Self { http, desk })
    }

    fn orders(&self) -> usize {
        *self.desk.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.http.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time");
        stream
    }
}

fn pick<'a>(all: &[&'a str], which: u8) -> &'a str {
    all.get(usize::from(which) % all.len()).copied().unwrap_or_default()
}

impl Asked {
    fn write(&self, out: &mut Vec<u8>) {
        let method = pick(&["GET", "POST", "HEAD", "PUT", "OPTIONS", "get", ""], self.method);
        let paths = [
            "/api/v1/orders",
            "/metrics",
            "/healthz",
            "/readyz",
            "/",
            "/api/v1/status",
            "/api/v1/sessions",
            "/api/v1/difference",
            "/api/v1/openapi.json",
            "/api/v1/../orders",
            "http://localhost/api/v1/orders",
            "*",
            "/%00",
        ];
        let version = pick(&["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", ""], self.version);
        out.extend(format!("{method} {} {version}\r\n", pick(&paths, self.path)).bytes());
        let body = self.body.bytes(self.headers.iter().any(|one| matches!(one, Header::Chunked)));
        let mut has_length = false;
        for header in &self.headers {
            has_length |= matches!(header, Header::Length(_) | Header::Chunked);
            header.write(out);
        }
        if !has_length && !body.is_empty() {
            out.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
        }
        out.extend(b"\r\n");
        out.extend(body);
    }
}

impl Header {
    fn write(&self, out: &mut Vec<u8>) {
        let line = match self {
            Self::Host(which) => {
                let hosts = ["localhost", "127.0.0.1", "[::1]:9", "example.com", "[", "a b"];
                format!("Host: {}", pick(&hosts, *which))
            }
            Self::Token(which) => {
                let tokens = [
                    &format!("Bearer {TOKEN}"),
                    &format!("bearer  {TOKEN} "),
                    &format!("Bearer {READING}"),
                    "Bearer",
                    "Basic Og==",
                ];
                format!("Authorization: {}", pick(&tokens.map(|one| one), *which))
            }
            Self::Kind(which) => {
                let kinds = ["application/json", "Application/JSON ; a=b", "text/plain", ";"];
                format!("Content-Type: {}", pick(&kinds, *which))
            }
            Self::Origin(which) => {
                let origins =
                    ["http://localhost", "http://127.0.0.1", "null", "http://example.com"];
                format!("Origin: {}", pick(&origins, *which))
            }
            Self::Length(length) => format!("Content-Length: {length}"),
            Self::Chunked => "Transfer-Encoding: chunked".into(),
            Self::Expect => "Expect: 100-continue".into(),
            Self::Closes => "Connection: close".into(),
            Self::Accept(which) => {
                let kinds = ["text/plain", "application/openmetrics-text", "*/*"];
                format!("Accept: {}\r\nSec-Fetch-Site: cross-site", pick(&kinds, *which))
            }
            Self::Raw(bytes) => return out.extend(bytes.iter().chain(b"\r\n")),
        };
        out.extend(line.bytes().chain(*b"\r\n"));
    }
}

impl Body {
    fn bytes(&self, chunked: bool) -> Vec<u8> {
        let orders = [
            r#"{"request":"reload"}"#,
            r#"{"request":"drop-session","tsih":1}"#,
            r#"{"request":"set-limit","target":null,"lun":0,"iops":1}"#,
            r#"{"request":"resize-lun","target":null,"lun":0,"bytes":1,"shrink":false}"#,
            r#"{"request":"remove-lun","target":null,"lun":0}"#,
            r#"{"request":"snapshot-lun","target":null,"lun":0,"path":"/x"}"#,
            r#"{"request":"reload","request":"status"}"#,
            r#"[[[[[[[[[[[[[[[["#,
        ];
        let pieces: Vec<Vec<u8>> = match self {
            Self::None => return Vec::new(),
            Self::Order(which) => vec![pick(&orders, *which).as_bytes().to_vec()],
            Self::Pieces(pieces) => pieces.clone(),
            Self::Raw(bytes) => return bytes.clone(),
        };
        if !chunked {
            return pieces.concat();
        }
        let chunk = |piece: &Vec<u8>| {
            [format!("{:x}\r\n", piece.len()).as_bytes(), piece.as_slice(), b"\r\n"].concat()
        };
        let mut bytes: Vec<u8> = pieces.iter().flat_map(chunk).collect();
        bytes.extend(b"0\r\n\r\n");
        bytes
    }
}

/// All that comes until the other end has said all.
fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return all,
            Ok(length) => all.extend(part.iter().take(length)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("a connection has no end")
            }
            // It may be cut off where it sends what is not taken.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return all,
        }
    }
}

/// One stranger, then a good client.
pub fn http(data: &[u8]) {
    static LAB: OnceLock<Mutex<Lab>> = OnceLock::new();
    let Ok(stranger) = Stranger::arbitrary(&mut Unstructured::new(data)) else { return };
    let lab = LAB.get_or_init(Lab::new).lock().unwrap_or_else(PoisonError::into_inner);
    let before = lab.orders();
    let mut sent = Vec::new();
    stranger.asked.iter().for_each(|asked| asked.write(&mut sent));
    sent.extend(&stranger.rest);
    let mut stream = lab.connect();
    for piece in sent.chunks(usize::from(stranger.piece).max(1) * 16) {
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    if stranger.stays {
        let _ = stream.shutdown(Shutdown::Write);
        let answer = read_all(&mut stream);
        let begins = b"HTTP/1.";
        assert!(answer.iter().zip(begins).all(|(one, other)| one == other), "{answer:?}");
    }
    drop(stream);
    let mut good = lab.connect();
    good.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("it takes a request");
    let answer = read_all(&mut good);
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&answer));
    let has_token = sent.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes());
    assert!(has_token || lab.orders() == before, "an order without the token");
}
