// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The port as others than this machine meet it: by TLS, and with a token.

use std::os::unix::fs::PermissionsExt;

use rustls::ClientConfig;
use rustls::ClientConnection;
use rustls::RootCertStore;
use rustls::StreamOwned;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;

use super::*;
use crate::Tls;
use crate::TlsError;
use crate::TlsFiles;
use crate::tokens::tests::CHANGE;
use crate::tokens::tests::file;

// Made by `make`, which lies beside them.
const AUTHORITY: &str = include_str!("../../../attach/tests/tls/ca-cert.pem");
const CERTIFICATE: &str = include_str!("../../../attach/tests/tls/server-cert.pem");
const KEY: &str = include_str!("../../../attach/tests/tls/server-key.pem");
const OTHER_CERTIFICATE: &str = include_str!("../../../attach/tests/tls/client-cert.pem");
const OTHER_KEY: &str = include_str!("../../../attach/tests/tls/client-key.pem");
const OLD: &str = include_str!("../../../attach/tests/tls/old-cert.pem");

const READ: &str = "fedcba9876543210fedcba9876543210";

/// Files of their own, that go with the folder.
fn files(certificate: &str, key: &str) -> (tempfile::TempDir, TlsFiles) {
    let folder = tempfile::tempdir().unwrap();
    let files =
        TlsFiles { certificate: folder.path().join("cert"), key: folder.path().join("key") };
    std::fs::write(&files.certificate, certificate).unwrap();
    std::fs::write(&files.key, key).unwrap();
    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o600)).unwrap();
    (folder, files)
}

fn loaded(certificate: &str, key: &str) -> Tls {
    let (_folder, files) = files(certificate, key);
    Tls::load(&files).unwrap()
}

/// For `localhost` and 127.0.0.1.
pub(crate) fn shown() -> Tls {
    loaded(CERTIFICATE, KEY)
}

/// Where others reach it.
fn public() -> (Http, Tls, tempfile::NamedTempFile) {
    at("0.0.0.0:0")
}

fn at(address: &str) -> (Http, Tls, tempfile::NamedTempFile) {
    let file = file(&format!("change {CHANGE}\nread {READ}\n"), 0o600);
    let tls = shown();
    let tokens = Some(Tokens::of(file.path()).unwrap());
    let listener = Listener::bind(address.parse().unwrap()).unwrap();
    let access = Access { tokens, tls: Some(tls.clone()) };
    let gate = Gate::of(access, listener.address()).unwrap();
    (Http::within(LIMITS, listener, Looks::new("1.2.3", gate)).unwrap(), tls, file)
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// One that trusts who has signed the certificates.
fn secure(http: &Http, protocols: &[&str]) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(client, connect(http))
}

fn ask(stream: &mut Stream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = Vec::new();
    // Its end is told by TLS: no part of an answer is taken for the whole.
    stream.read_to_end(&mut said).unwrap();
    String::from_utf8(said).unwrap()
}

fn said_by(http: &Http, path: &str, lines: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n");
    ask(&mut secure(http, &["h2", "http/1.1"]), &request)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn who_reads_from_elsewhere_shows_a_token() {
    let (http, _, _file) = public();
    assert_eq!(http.scheme(), "https");
    let (target, clerk) = (Arc::new(target()), Arc::new(Clerk::default()));
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let kept = ["/metrics", "/api/v1/status", "/api/v1/events", "/api/v1/stream"];
    for path in kept {
        let said = said_by(&http, path, "");
        assert_eq!(status(&said), 401, "{path}: {said}");
        assert!(said.to_lowercase().contains("www-authenticate: bearer"), "{said}");
        assert!(said.contains("a token with the right to read is missing"), "{said}");
        for wrong in [bearer(&READ.to_uppercase()), format!("Authorization: Basic {READ}\r\n")] {
            assert_eq!(status(&said_by(&http, path, &wrong)), 401, "{path}: {wrong}");
        }
        let query = format!("{path}?token={READ}&access_token={READ}");
        assert_eq!(status(&said_by(&http, &query, "")), 401, "no address has a token");
    }
    assert!(clerk.asked.lock().unwrap().is_empty(), "nobody was asked");
    for token in [READ, CHANGE] {
        for path in &kept[..3] {
            assert_eq!(status(&said_by(&http, path, &bearer(token))), 200, "{path}");
        }
    }
    for path in ["/", "/page.js", "/page.css", "/api/v1/openapi.json", "/healthz", "/readyz"] {
        assert_eq!(status(&said_by(&http, path, "")), 200, "{path} is for all");
    }
    let order = "{\"request\":\"drop-session\",\"tsih\":7}";
    let post = |token: &str, lines: &str| {
        let request = format!(
            "POST /api/v1/orders HTTP/1.1\r\nHost: localhost:9260\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{}{lines}\r\n{order}",
            order.len(),
            bearer(token)
        );
        status(&ask(&mut secure(&http, &[]), &request))
    };
    assert_eq!(post(READ, ""), 403, "it reads alone");
    assert_eq!(post(CHANGE, "Origin: http://localhost:9260\r\n"), 403, "unencrypted, is another");
    assert_eq!(post(CHANGE, "Origin: https://localhost\r\n"), 403);
    assert_eq!(post(CHANGE, "Origin: https://localhost:9260\r\n"), 200);
    target.stop(Duration::ZERO).unwrap();
}

/// What is wrong has names in it.
#[test]
fn a_probe_without_a_token_is_told_how_it_is_and_not_why() {
    let (http, _, _file) = public();
    let (without, with) = (said_by(&http, "/readyz", ""), said_by(&http, "/readyz", &bearer(READ)));
    assert_eq!((status(&without), status(&with)), (503, 503));
    assert!(!without.contains("disks") && without.contains("token"), "{without}");
    assert!(with.contains("disks are being opened"), "{with}");
}

#[test]
fn names_are_those_of_the_certificate() {
    let (http, tls, _file) = public();
    let asked_as =
        |http: &Http, host: &str| status(&said_by(http, "/healthz", &format!("Host: {host}\r\n")));
    // No name, so none that could be made to lead here.
    for good in ["localhost:9260", "127.0.0.1", "192.0.2.1:9260", "[2001:db8::1]:9260"] {
        assert_eq!(asked_as(&http, good), 200, "{good}");
    }
    for bad in ["example.com", "server", "localhost.example.com:9260", "127.0.0.1.example.com"] {
        assert_eq!(asked_as(&http, bad), 421, "{bad}");
    }
    let said = said_by(&http, "/", "Host: example.com\r\n");
    assert!(said.contains("that the certificate has"), "{said}");
    assert!(tls.names("LocalHost") && !tls.names("") && !tls.names("a b"));
    let (local, _, _file) = at("127.0.0.1:0");
    assert_eq!(asked_as(&local, "192.0.2.1:9260"), 421, "nobody else reaches it");
    assert_eq!(status(&said_by(&local, "/metrics", "Host: localhost\r\n")), 200, "it is here");
}

#[test]
fn who_speaks_no_tls_is_told_and_let_go() {
    let (http, _, _file) = public();
    for asked in ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "G", "\0\0", "\r\n"] {
        let said = said_to(&http, asked.as_bytes());
        assert_eq!(status(&said), 400, "{said}");
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{said}");
        assert_eq!(body, "this port speaks TLS; try: https://\n");
    }
    // What begins as TLS does, and is none, hears of it in TLS.
    let mut broken = connect(&http);
    broken.write_all(b"\x16\x03\x01\x00\x04\x01\0\0\0").unwrap();
    let mut heard = Vec::new();
    let _ = broken.read_to_end(&mut heard);
    assert_eq!(heard.first(), Some(&21), "an alert");
    let mut other = secure(&http, &["h2"]);
    assert!(other.write_all(b"PRI").and_then(|()| other.flush()).is_err(), "no HTTP/2 is here");
}

/// One of each kind, and all connections that there may be.
#[test]
fn who_begins_and_goes_on_no_further_is_let_go_while_others_are_served() {
    let (http, _, _file) = public();
    let begun = Instant::now();
    let mut held: Vec<TcpStream> = (0..2 * LIMITS.connections).map(|_| connect(&http)).collect();
    for stream in held.iter_mut().skip(1).step_by(2) {
        // It may have made room for others by now.
        let _ = stream.write_all(b"\x16\x03\x01\x02\x00\x01");
    }
    assert_eq!(status(&said_by(&http, "/healthz", "")), 200);
    assert!(begun.elapsed() < LIMITS.head, "it waits for nobody: {:?}", begun.elapsed());
    for stream in &mut held {
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        assert!(heard.is_empty());
    }
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
}

/// The handshake of somebody else goes on while all places are taken again and again.
#[test]
fn handshakes_that_stop_half_way_push_out_those_of_their_own_address() {
    let (http, _, _file) = public();
    let mut slow = secure(&http, &[]);
    let to = SocketAddr::new([127, 0, 0, 1].into(), http.address().port());
    let held: Vec<_> = (0..3 * LIMITS.connections).map(|_| from("127.0.0.2", to)).collect();
    // All of them have come then.
    assert_eq!(status(&said_by(&http, "/healthz", "")), 200);
    let said = ask(&mut slow, "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&said), 200);
    drop(held);
}

/// A connection from that address of this machine.
fn from(address: &str, to: SocketAddr) -> TcpStream {
    use rustix::net;
    let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
    net::connect(&socket, &to).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"\x16\x03\x01").unwrap();
    stream
}

#[test]
fn who_shows_a_wrong_token_or_none_is_counted_where_it_matters() {
    let (http, tls, _file) = public();
    for path in ["/healthz", "/"] {
        assert_ne!(status(&said_by(&http, path, "")), 401);
    }
    assert_eq!(status(&said_by(&http, "/metrics", "")), 401);
    assert_eq!(status(&said_by(&http, "/api/v1/status", &bearer(&READ.to_uppercase()))), 401);
    said_by(&http, "/readyz", &bearer(&READ.to_uppercase()));
    let page = said_by(&http, "/metrics", &bearer(READ));
    for (reason, count) in
        [("no token", 1), ("unknown token", 2), ("token for less", 0), ("tokens unreadable", 0)]
    {
        let line = format!("\nlunwire_http_denied_total{{reason=\"{reason}\"}} {count}\n");
        assert!(page.contains(&line), "{line}{page}");
    }
    let end = "\nlunwire_http_certificate_expiry_timestamp_seconds 4949291587\n";
    assert!(page.contains(end), "{page}");
    tls.renew(&loaded(OTHER_CERTIFICATE, OTHER_KEY));
    let local = port();
    let page = get(&local, "/metrics").1;
    assert!(!page.contains("certificate_expiry") && !page.contains("denied"), "{page}");
}

#[test]
fn who_has_shown_a_token_keeps_his_connection_before_strangers() {
    let (http, _, _file) = public();
    let mut known = secure(&http, &[]);
    let lines = format!("Connection: close\r\n{}", bearer(READ));
    let request = format!("GET /api/v1/stream HTTP/1.1\r\n{lines}\r\n");
    known.write_all(request.as_bytes()).unwrap();
    let mut some = [0; 1024];
    assert!(known.read(&mut some).unwrap() > 0);
    let strangers: Vec<_> = (0..2 * LIMITS.connections).map(|_| connect(&http)).collect();
    // All of them have come then.
    assert_eq!(status(&said_by(&http, "/healthz", "")), 200);
    http.stops();
    let mut said = Vec::new();
    known.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("event: end"), "it was there until the end");
    drop(strangers);
}

#[test]
fn a_stream_ends_with_the_right_to_read() {
    let (http, _, file) = public();
    let begin = |token| {
        let mut stream = secure(&http, &[]);
        let lines = format!("Connection: close\r\n{}", bearer(token));
        let request = format!("GET /api/v1/stream HTTP/1.1\r\n{lines}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream
    };
    let (mut gone, mut kept) = (begin(READ), begin(CHANGE));
    std::fs::write(file.path(), format!("change {CHANGE}\n")).unwrap();
    let mut said = Vec::new();
    gone.sock.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    gone.read_to_end(&mut said).expect("it ends");
    http.stops();
    said.clear();
    kept.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("event: end"), "it was there until the end");
}

#[test]
fn another_certificate_is_shown_to_those_who_come_then() {
    let (http, tls, _file) = public();
    let mut before = secure(&http, &[]);
    before.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    assert!(before.read(&mut [0; 4096]).unwrap() > 0);
    let other = loaded(OTHER_CERTIFICATE, OTHER_KEY);
    assert!(!tls.shows_what(&other) && tls.shows_what(&shown()));
    let chained = loaded(&[CERTIFICATE, AUTHORITY].concat(), KEY);
    assert!(!tls.shows_what(&chained), "who has signed it is shown, too");
    // 2 November 2126, 11:13:07.
    let end = std::time::UNIX_EPOCH + Duration::from_secs(4_949_291_587);
    assert_eq!(tls.end(), Some(end));
    tls.renew(&other);
    assert!(tls.shows_what(&other));
    let said = ask(&mut before, "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&said), 200, "it goes on");
    let mut after = secure(&http, &[]);
    let error = after.write_all(b"GET").and_then(|()| after.flush()).unwrap_err();
    assert!(error.to_string().contains("certificate"), "it is for nobody by that name: {error}");
}

#[test]
fn files_that_are_wrong_are_named() {
    let said = |certificate: &str, key: &str| {
        let (_folder, files) = files(certificate, key);
        let error = Tls::load(&files).map(drop).unwrap_err();
        (error.to_string().replace(&*files.key.parent().unwrap().to_string_lossy(), ""), error)
    };
    assert_eq!(said(CERTIFICATE, OTHER_KEY).0, "/key is not the key of the certificate in /cert");
    assert_eq!(said("", KEY).0, "/cert: there is no certificate in it");
    assert!(said(CERTIFICATE, "").0.starts_with("/key: "));
    assert!(said(CERTIFICATE, CERTIFICATE).0.starts_with("/key: "), "there is no key in it");
    assert!(said(&CERTIFICATE[..CERTIFICATE.len() / 2], KEY).0.starts_with("/cert: "));
    let broken = "-----BEGIN CERT\u{1b}[2J\u{e9}\nAAAA\n";
    for (text, why) in [
        (broken.to_owned(), "a line that begins with -----BEGIN does not end with -----"),
        ("-----BEGIN X\u{1b}-----\nAAAA\n".to_owned(), "a part of it has no -----END"),
        (KEY.replace('M', "!"), "what stands between -----BEGIN and -----END is no base64"),
    ] {
        let (of_certificate, first) = said(&text.replace("PRIVATE KEY", "CERTIFICATE"), KEY);
        let (of_key, second) = said(CERTIFICATE, &text);
        for error in [first, second] {
            assert!(std::error::Error::source(&error).is_none(), "it has what is in the file");
        }
        assert_eq!(of_certificate, format!("/cert: {why}"));
        assert_eq!(of_key, format!("/key: {why}"));
    }
    let (old, _) = said(OLD, KEY);
    assert!(old.contains("X.509 version 3"), "{old}");
    assert!(said(CERTIFICATE, &"#".repeat(65 << 10)).0.contains("more than 65536 bytes"));
    let (_folder, files) = files(CERTIFICATE, KEY);
    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o644)).unwrap();
    let error = Tls::load(&files).map(drop).unwrap_err();
    assert!(matches!(error, TlsError::Open { mode: 0o644, .. }), "{error}");
    assert!(error.to_string().contains("chmod 600"), "{error}");
    std::fs::remove_file(&files.key).unwrap();
    let error = Tls::load(&files).map(drop).unwrap_err();
    assert!(error.to_string().contains("/key: No such file"), "{error}");
    std::fs::remove_file(&files.certificate).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &files.certificate,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let error = Tls::load(&files).map(drop).unwrap_err();
    assert!(error.to_string().contains("/cert: it is no file"), "nobody waits for it: {error}");
    assert_eq!(format!("{:?}", shown()), "Tls", "nobody writes a key down");
}
