// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS, which keeps others from hearing and being told instead: a certificate and its key, which
//! can become other ones while connections go on.
//!
//! TLS 1.2 and 1.3 by `rustls`. Sessions are not taken up again: clients keep their connections.

mod expiry;

use std::fmt;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem;
use rustls::pki_types::pem::PemObject;
use rustls::server::NoServerSessionStorage;
use rustls::server::ParsedCertificate;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::kept;
use crate::kept::Unkept;
use crate::limits::KEY_LEN_MAX;

/// What a record of TLS begins with that a client sends first.
const HANDSHAKE: u8 = 22;

/// For who does not speak TLS here.
const SPEAK_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 36\r\nConnection: close\r\n\r\nthis port speaks TLS; try: https://\n";

/// Where certificate and key are, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // there is no more that a server shows
pub struct TlsFiles {
    /// The certificate, then those of who has signed it.
    pub certificate: PathBuf,
    /// Its key, which no other account can read.
    pub key: PathBuf,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file has not what it should have.
    #[error("{}: {}", path.display(), told(wrong))]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong. No source: its text has bytes of the file.
        wrong: pem::Error,
    },
    /// It is no file.
    #[error("{}: it is no file", .0.display())]
    NoFile(PathBuf),
    /// The key cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Key {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others can read the key.
    #[error(
        "{} is open to others than its owner (mode {mode:04o}); try: chmod 600", path.display()
    )]
    Open {
        /// Where the key is.
        path: PathBuf,
        /// The rights of the file.
        mode: u32,
    },
    /// The file of the key is longer than any.
    #[error("{} has more than {KEY_LEN_MAX} bytes, and no key has", .0.display())]
    Long(PathBuf),
    /// No certificate is in there.
    #[error("{}: there is no certificate in it", .0.display())]
    Empty(PathBuf),
    /// The key is not that of the certificate.
    #[error("{} is not the key of the certificate in {}", key.display(), certificate.display())]
    OtherKey {
        /// Of the key.
        key: PathBuf,
        /// Of the certificate.
        certificate: PathBuf,
    },
    /// It is of no kind that is known.
    #[error("{}: {source}; try: a certificate of X.509 version 3", path.display())]
    Unfit {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// What is shown to who connects. Clones are the same one.
#[derive(Clone)]
pub struct Tls(Arc<Mutex<Shown>>);

#[derive(Clone)]
struct Shown {
    config: Arc<ServerConfig>,
    /// The certificate, then those of who has signed it: others may see them.
    chain: Vec<CertificateDer<'static>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// With them no connection could be made.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let TlsFiles { certificate: path, key: key_path } = files;
        let chain = certificates(path)?;
        if chain.is_empty() {
            return Err(TlsError::Empty(path.clone()));
        }
        let key = key(key_path)?;
        let unfit = |source| TlsError::Unfit { path: path.clone(), source };
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unfit)?;
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key)
            .map_err(|source| match source {
                rustls::Error::InconsistentKeys(_) => {
                    TlsError::OtherKey { key: key_path.clone(), certificate: path.clone() }
                }
                source => unfit(source),
            })?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(Mutex::new(Shown { config: Arc::new(config), chain }))))
    }

    /// From now on it shows what `by` shows; connections that are there go on.
    pub fn renew(&self, by: &Self) {
        let shown = by.shown();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    /// Whether both show the same certificates, of which the first has one key.
    #[must_use]
    pub fn shows_what(&self, other: &Self) -> bool {
        self.shown().chain == other.shown().chain
    }

    /// After this moment no client takes the certificate for good. None: it cannot be told.
    #[must_use]
    pub fn end(&self) -> Option<SystemTime> {
        expiry::end(self.shown().chain.first()?)
    }

    /// Whether the certificate is for a host of this name.
    pub(crate) fn names(&self, host: &str) -> bool {
        let Shown { chain, .. } = self.shown();
        let Ok(name) = ServerName::try_from(host) else { return false };
        let parsed = chain.first().map(ParsedCertificate::try_from);
        parsed.is_some_and(|parsed| {
            parsed.is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
        })
    }

    /// The connection inside of TLS; None: there is none, and its client was told if it spoke no
    /// TLS at all.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first == [HANDSHAKE] => {}
            Ok(1) => {
                // What is left unread would make a reset of its end.
                let _ = stream.try_read(&mut [0; 4096]);
                let _ = stream.try_write(SPEAK_TLS);
                return None;
            }
            _ => return None,
        }
        TlsAcceptor::from(self.shown().config).accept(stream).await.ok()
    }

    fn shown(&self) -> Shown {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// The key is behind it.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// What is wrong with a file of PEM, without what stands in it.
fn told(error: &pem::Error) -> String {
    match error {
        pem::Error::IllegalSectionStart { .. } => {
            "a line that begins with -----BEGIN does not end with -----".into()
        }
        pem::Error::MissingSectionEnd { .. } => "a part of it has no -----END".into(),
        pem::Error::Base64Decode(_) => {
            "what stands between -----BEGIN and -----END is no base64".into()
        }
        other => other.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    // Who opens a pipe may wait for ever.
    if std::fs::metadata(path).is_ok_and(|facts| !facts.is_file()) {
        return Err(TlsError::NoFile(path.to_owned()));
    }
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|wrong| TlsError::File { path: path.to_owned(), wrong })
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let path = path.to_owned();
    let text = match kept::read(&path, KEY_LEN_MAX) {
        Ok(text) => text,
        Err(Unkept::Read(source)) => return Err(TlsError::Key { path, source }),
        Err(Unkept::Open(mode)) => return Err(TlsError::Open { path, mode }),
        Err(Unkept::Long) => return Err(TlsError::Long(path)),
    };
    PrivateKeyDer::from_pem_slice(&text).map_err(|wrong| TlsError::File { path, wrong })
}
