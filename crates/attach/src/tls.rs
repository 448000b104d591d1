// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS of NBD clients ("TLS support"): what the server shows and asks for, and one connection. No
//! sockets.
//!
//! TLS 1.2 and 1.3 by `rustls`, which has no renegotiation; sessions are not taken up again, so
//! that each connection shows its certificate.

use std::io;
use std::io::Read;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use buf::SgList;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::ServerConnection;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem;
use rustls::pki_types::pem::PemObject;
use rustls::server::NoServerSessionStorage;
use rustls::server::WebPkiClientVerifier;

/// Where keys and certificates are, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs)] // there is no more that a server shows or asks for
pub struct TlsFiles {
    /// What the server shows: its certificate, then those of who has signed it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Whose certificates clients must show; None: they need none.
    pub authority: Option<PathBuf>,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or has not what it should have.
    #[error("{}: {}", path.display(), told(wrong))]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong. No source: its text has bytes of the file.
        wrong: pem::Error,
    },
    /// No certificate is in there.
    #[error("{}: there is no certificate in it", .0.display())]
    Empty(PathBuf),
    /// A certificate without extensions names no host and is trusted by nobody.
    #[error(
        "{}: the certificate is of X.509 version 1; one of version 3, which has extensions, is \
         needed (openssl x509 -extfile)",
        .0.display()
    )]
    Old(PathBuf),
    /// The key is not that of the certificate.
    #[error("{} is not the key of the certificate in {}", key.display(), certificate.display())]
    OtherKey {
        /// Of the key.
        key: PathBuf,
        /// Of the certificate.
        certificate: PathBuf,
    },
    /// It is of no kind that is known.
    #[error("{}: {source}", path.display())]
    Unfit {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// Nobody can be verified by that.
    #[error("{}: {source}", path.display())]
    Verifier {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
}

/// What a server shows its clients, and asks of them.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ServerConfig>);

impl TlsFiles {
    /// As QEMU's `tls-creds-x509` names them in a folder.
    #[must_use]
    pub fn of_server(folder: &Path) -> Self {
        Self {
            certificate: folder.join("server-cert.pem"),
            key: folder.join("server-key.pem"),
            authority: None,
        }
    }

    /// The authority of a folder, by the same names.
    #[must_use]
    pub fn authority_of(folder: &Path) -> PathBuf {
        folder.join("ca-cert.pem")
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// With them no connection could be made.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let TlsFiles { certificate, key: key_path, authority } = files;
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key_path)
            .map_err(|wrong| TlsError::File { path: key_path.clone(), wrong })?;
        let unfit = |source| TlsError::Unfit { path: certificate.clone(), source };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unfit)?;
        let builder = match authority {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(verifier(path, provider)?),
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|source| match is_old(&source) {
                true => TlsError::Old(certificate.clone()),
                false if matches!(source, rustls::Error::InconsistentKeys(_)) => {
                    TlsError::OtherKey { key: key_path.clone(), certificate: certificate.clone() }
                }
                false => unfit(source),
            })?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }
}

fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|source| TlsError::Unfit { path: path.to_owned(), source })?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.build().map_err(|source| TlsError::Verifier { path: path.to_owned(), source })
}

/// Whether it is one of version 1, which has no name of its own among the errors.
fn is_old(error: &rustls::Error) -> bool {
    use std::error::Error;
    let rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other)) = error else {
        return false;
    };
    let version =
        |error: &(dyn Error + 'static)| error.to_string().contains("UnsupportedCertVersion");
    version(&*other.0)
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
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|wrong| TlsError::File { path: path.to_owned(), wrong })?;
    match certificates.is_empty() {
        true => Err(TlsError::Empty(path.to_owned())),
        false => Ok(certificates),
    }
}

/// A connection inside of TLS.
#[derive(Debug)]
pub(crate) struct Secure {
    tls: ServerConnection,
    /// Bytes of what is to be sent that are sealed.
    sealed: usize,
    has_left: bool,
}

/// Whether the client sends more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Goes,
    HasLeft,
}

impl Secure {
    pub(crate) fn begin(tls: &Tls) -> Result<Self, rustls::Error> {
        let mut tls = ServerConnection::new(Arc::clone(&tls.0))?;
        // Its owner gives it no more than is sent at a time.
        tls.set_buffer_limit(None);
        Ok(Self { tls, sealed: 0, has_left: false })
    }

    /// Takes what has come, and puts what stands in it behind `plain`.
    pub(crate) fn open(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Peer, rustls::Error> {
        let mut peer = Peer::Goes;
        while !bytes.is_empty() && peer == Peer::Goes {
            let full = |error: io::Error| rustls::Error::General(error.to_string());
            if self.tls.read_tls(&mut bytes).map_err(full)? == 0 {
                return Ok(Peer::HasLeft);
            }
            let state = self.tls.process_new_packets()?;
            if state.peer_has_closed() {
                peer = Peer::HasLeft;
            }
            let there = state.plaintext_bytes_to_read() as u64;
            self.tls.reader().take(there).read_to_end(plain).map_err(full)?;
        }
        Ok(peer)
    }

    /// Seals what comes next of `out`, at most `most` bytes, and puts it behind `wire` with what
    /// TLS itself has to say. True: that was all of it.
    pub(crate) fn seal(&mut self, out: &SgList, most: usize, wire: &mut SgList) -> bool {
        let (mut skip, mut left) = (self.sealed, most);
        for part in out.parts() {
            let start = skip.min(part.len());
            let end = part.len().min(start + left);
            skip -= start;
            if let Some(here) = part.get(start..end) {
                // It takes all: its buffer has no limit.
                let _ = self.tls.writer().write_all(here);
                (self.sealed, left) = (self.sealed + here.len(), left - here.len());
            }
            if left == 0 {
                break;
            }
        }
        self.speak(wire);
        let all = self.sealed >= out.len();
        if all {
            self.sealed = 0;
        }
        all
    }

    /// Says that nothing more comes, once.
    pub(crate) fn leave(&mut self) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.tls.send_close_notify();
        }
    }

    fn speak(&mut self, wire: &mut SgList) {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            // A vector takes all.
            let _ = self.tls.write_tls(&mut bytes);
        }
        if !bytes.is_empty() {
            wire.push(bytes.into());
        }
    }
}
