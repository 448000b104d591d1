// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that speak TLS, and those that do not.

use std::net::TcpStream;
use std::path::Path;

use lunwire_attach::Tls;
use lunwire_attach::TlsFiles;
use rustls::ClientConfig;
use rustls::ClientConnection;
use rustls::RootCertStore;
use rustls::StreamOwned;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;

use super::*;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Made by `make`, which lies beside them.
fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls"))
}

fn settings(authority: Option<PathBuf>) -> Settings {
    let files = TlsFiles { authority, ..TlsFiles::of_server(folder()) };
    Settings { tls: Some(Tls::load(&files).unwrap()), ..Settings::default() }
}

struct Served {
    server: NbdServer,
    news: Receiver<News>,
    _initiator: Initiator,
    _target: target::Target,
}

fn served(settings: &Settings) -> Served {
    let target = target(([127, 0, 0, 1], 0).into(), 512);
    let initiator = Initiator::start(&Config::default()).unwrap();
    let portal = target.portals()[0].to_string();
    let session = initiator.connect(Options::new(portal, Some(IQN.to_owned()))).unwrap();
    let disk = Disk::open(&session, 0).unwrap();
    let address = Address::Tcp("127.0.0.1:0".into());
    let pool = session.pool().clone();
    let (server, news) = NbdServer::start(disk, pool, "disk", "", &address, settings).unwrap();
    Served { server, news, _initiator: initiator, _target: target }
}

impl Served {
    /// Greeted, and with the client's flags.
    fn connect(&self) -> TcpStream {
        let at = self.server.address().strip_prefix("nbds://").unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        stream
    }

    fn hears(&self, words: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Ok(News::Client(text)) = self.news.recv_timeout(Duration::from_millis(50))
                && text.contains(words)
            {
                return;
            }
        }
        panic!("nobody says {words}");
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The kind of the answer to an option.
fn answer(stream: &mut impl Read) -> u32 {
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    stream.read_exact(&mut vec![0; number(16) as usize]).unwrap();
    number(12)
}

const START_TLS: u32 = 5;
const ACK: u32 = 1;
const TLS_REQUIRED: u32 = 1 << 31 | 5;

/// `own`: whose certificate it shows.
fn secure(
    mut stream: TcpStream,
    version: &'static rustls::SupportedProtocolVersion,
    own: Option<&Path>,
) -> Stream {
    stream.write_all(&option(START_TLS, &[])).unwrap();
    assert_eq!(answer(&mut stream), ACK);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder().join("ca-cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_file(own.join("client-cert.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(own.join("client-key.pem")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Names its export; None: the connection was closed instead.
fn go(stream: &mut Stream) -> Option<()> {
    stream.write_all(&option(1, b"disk")).ok()?;
    stream.read_exact(&mut [0; 10]).ok()
}

fn ask(stream: &mut Stream, kind: Kind, offset: u64, length: usize, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend((kind as u16).to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
    stream.write_all(&bytes).unwrap();
    stream.write_all(data).unwrap();
    let mut head = [0; 16];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..8], *b"\x67\x44\x66\x98\0\0\0\0");
    let mut data = vec![0; if matches!(kind, Kind::Read) { length } else { 0 }];
    stream.read_exact(&mut data).unwrap();
    data
}

/// Both versions carry requests of any length; the end is told.
#[test]
fn all_is_said_inside_of_tls() {
    for engine in [Choice::Auto, Choice::Epoll] {
        let served = served(&Settings { engine, ..settings(None) });
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let mut stream = secure(served.connect(), version, None);
            go(&mut stream).unwrap();
            let mut data = vec![0; 9 << 20];
            let mut dice = Dice(3);
            data.fill_with(|| u8::try_from(dice.below(256)).unwrap());
            ask(&mut stream, Kind::Write, 777, data.len(), &data);
            assert!(ask(&mut stream, Kind::Read, 777, data.len(), &[]) == data);
            assert_eq!(ask(&mut stream, Kind::Read, 776, 3, &[])[1..], data[..2]);
            ask(&mut stream, Kind::Flush, 0, 0, &[]);
            let mut leave = 0x2560_9513_u32.to_be_bytes().to_vec();
            leave.extend([0, 0, 0, Kind::Leave as u8]);
            leave.resize(28, 0);
            stream.write_all(&leave).unwrap();
            assert_eq!(
                stream.read_to_end(&mut Vec::new()).unwrap(),
                0,
                "an end without a word is an error"
            );
        }
        served.server.stop(Duration::from_secs(5)).unwrap();
    }
}

/// Nothing of the disk is said outside.
#[test]
fn who_does_not_speak_tls_learns_nothing() {
    let served = served(&settings(None));
    let mut stream = served.connect();
    // LIST, INFO, GO.
    for number in [3, 6, 7] {
        stream.write_all(&option(number, b"\0\0\0\x04disk\0\0")).unwrap();
        assert_eq!(answer(&mut stream), TLS_REQUIRED);
    }
    stream.write_all(&option(1, b"disk")).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "there is no answer to that");
    served.hears("without TLS");
    // Requests, or anything, where TLS begins.
    let mut stream = served.connect();
    stream.write_all(&option(START_TLS, &[])).unwrap();
    assert_eq!(answer(&mut stream), ACK);
    stream.write_all(&option(1, b"disk")).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(said.len() < 16, "an alert at most: {said:?}");
    served.hears("TLS: ");
    // What somebody puts in before the client's TLS begins is not taken for the client's.
    let mut stream = served.connect();
    stream.write_all(&[option(START_TLS, &[]), option(3, &[])].concat()).unwrap();
    said.clear();
    let _ = stream.read_to_end(&mut said);
    assert!(said.len() <= 20, "{said:?}");
    served.hears("between STARTTLS and TLS");
    // Others are served meanwhile, and after it.
    let mut good = secure(served.connect(), &rustls::version::TLS13, None);
    go(&mut good).unwrap();
    ask(&mut good, Kind::Write, 0, 512, &[1; 512]);
    drop(good);
    served.server.stop(Duration::from_secs(5)).unwrap();
}

/// Who must show a certificate, and shows none or that of another authority, gets nothing.
#[test]
fn clients_show_who_they_are() {
    let served = served(&settings(Some(TlsFiles::authority_of(folder()))));
    let stranger = folder().join("stranger");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (own, is_let_in) in
            [(Some(folder()), true), (None, false), (Some(stranger.as_path()), false)]
        {
            let mut stream = secure(served.connect(), version, own);
            assert_eq!(go(&mut stream).is_some(), is_let_in, "{version:?} {own:?}");
            if !is_let_in {
                served.hears("TLS: ");
            }
        }
    }
    served.server.stop(Duration::from_secs(5)).unwrap();
}

/// A handshake that stays half open ends with the negotiation.
#[test]
fn a_handshake_of_tls_has_an_end() {
    let handshake_timeout = Duration::from_millis(300);
    let served = served(&Settings { handshake_timeout, ..settings(None) });
    let mut stream = served.connect();
    stream.write_all(&option(START_TLS, &[])).unwrap();
    assert_eq!(answer(&mut stream), ACK);
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    served.hears("too long");
    served.server.stop(Duration::from_secs(5)).unwrap();
}

#[test]
fn what_is_no_certificate_is_said() {
    let good = TlsFiles::of_server(folder());
    let lacks = folder().join("none.pem");
    let place = tempfile::tempdir().unwrap();
    let broken = place.path().join("broken.pem");
    std::fs::write(&broken, "-----BEGIN X\u{1b}-----\nAAAA\n").unwrap();
    let key = good.key.clone();
    for (files, words) in [
        (TlsFiles { certificate: lacks.clone(), ..good.clone() }, "none.pem"),
        (TlsFiles { key: lacks, ..good.clone() }, "none.pem"),
        (TlsFiles { certificate: key.clone(), ..good.clone() }, "no certificate"),
        (
            TlsFiles { key: folder().join("client-key.pem"), ..good.clone() },
            "client-key.pem is not the key of the certificate in",
        ),
        (TlsFiles { certificate: folder().join("old-cert.pem"), ..good.clone() }, "version 1"),
        (TlsFiles { key: broken.clone(), ..good.clone() }, "a part of it has no -----END"),
        (TlsFiles { certificate: broken, ..good.clone() }, "a part of it has no -----END"),
        (TlsFiles { authority: Some(key), ..good }, "no certificate"),
    ] {
        let error = Tls::load(&files).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let is_of_file = matches!(error, lunwire_attach::TlsError::File { .. });
        assert!(!is_of_file || std::error::Error::source(&error).is_none(), "{error:?}");
    }
}
