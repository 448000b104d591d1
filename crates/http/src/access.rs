// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may ask what, and by which name: where the port is for this machine alone everybody may
//! read; where others reach it there is TLS, and who reads shows a token.

use std::fmt;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use hyper::Request;
use hyper::StatusCode;
use hyper::header;
use hyper::http::uri::Authority;
use zeroize::Zeroizing;

use crate::HttpError;
use crate::orders::Refusal;
use crate::tls::Tls;
use crate::tokens::Right;
use crate::tokens::Shown;
use crate::tokens::Tokens;

/// What lets people in.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs)] // one more way in is a matter of all who give them
pub struct Access {
    /// Of those who may change what is served, and of those who may read where not everybody may.
    pub tokens: Option<Tokens>,
    /// Without it the port is for this machine alone.
    pub tls: Option<Tls>,
}

impl Access {
    /// Whether that is enough for a port at `address`.
    ///
    /// # Errors
    /// Others reach it, and there is no TLS, or nobody has a token.
    pub const fn check(&self, address: SocketAddr) -> Result<(), HttpError> {
        match (address.ip().is_loopback(), &self.tls, &self.tokens) {
            (true, ..) | (false, Some(_), Some(_)) => Ok(()),
            (false, None, _) => Err(HttpError::Public(address)),
            (false, Some(_), None) => Err(HttpError::Tokenless(address)),
        }
    }
}

/// Who is let in at one port.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    access: Access,
    /// Others than this machine reach it.
    is_public: bool,
    denied: [AtomicU64; Denied::ALL.len()],
}

/// Why a token does not let somebody do what he wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// He has shown none.
    Missing,
    /// There is no such token.
    Unknown,
    /// It is for less.
    Right,
    /// The file of tokens cannot be read.
    Unread,
}

impl Denied {
    pub(crate) const ALL: [Self; 4] = [Self::Missing, Self::Unknown, Self::Right, Self::Unread];

    /// As the metrics have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Missing => "no token",
            Self::Unknown => "unknown token",
            Self::Right => "token for less",
            Self::Unread => "tokens unreadable",
        }
    }
}

impl Gate {
    /// # Errors
    /// See [`Access::check`].
    pub(crate) fn of(access: Access, address: SocketAddr) -> Result<Self, HttpError> {
        access.check(address)?;
        let is_public = !address.ip().is_loopback();
        Ok(Self { access, is_public, denied: Default::default() })
    }

    /// Somebody is refused, and counted if it is for want of a token.
    pub(crate) fn count(&self, refusal: &Refusal) {
        let counter = refusal.denied.and_then(|denied| self.denied.get(denied as usize));
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often, by reason.
    pub(crate) fn denied(&self) -> [(Denied, u64); Denied::ALL.len()] {
        Denied::ALL.map(|denied| {
            let counter = self.denied.get(denied as usize);
            (denied, counter.map_or(0, |counter| counter.load(Ordering::Relaxed)))
        })
    }

    pub(crate) const fn tls(&self) -> Option<&Tls> {
        self.access.tls.as_ref()
    }

    pub(crate) const fn tokens(&self) -> Option<&Tokens> {
        self.access.tokens.as_ref()
    }

    /// What an origin of this port begins with.
    pub(crate) const fn scheme(&self) -> &'static [u8] {
        match self.access.tls {
            Some(_) => b"https://",
            None => b"http://",
        }
    }

    /// For who asks by a name that is not ours.
    pub(crate) const fn right_names(&self) -> &'static str {
        match self.access.tls {
            Some(_) => "ask by an address, or by a name that the certificate has\n",
            None => "ask by an address of this machine, or localhost\n",
        }
    }

    /// Whether it was sent to a name of this port: that of somebody else who has made it lead here
    /// is that of a page which wants to read in a browser what is told here.
    ///
    /// An address is no name that could lead elsewhere. One of another machine is wrong where
    /// nobody else reaches this one; where others do they may have it translated on the way.
    pub(crate) fn is_meant<B>(&self, request: &Request<B>) -> bool {
        let mut hosts = request.headers().get_all(header::HOST).into_iter();
        let Some(host) = hosts.next() else { return true };
        let Some(host) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else {
            return false;
        };
        let name = host.host();
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_meant = match address.unwrap_or(name).parse::<IpAddr>() {
            Ok(address) => self.is_public || address.to_canonical().is_loopback(),
            Err(_) if name.eq_ignore_ascii_case("localhost") => true,
            Err(_) => self.tls().is_some_and(|tls| tls.names(name)),
        };
        is_meant && hosts.next().is_none()
    }

    /// As whom somebody may read.
    pub(crate) fn reader<B>(&self, request: &Request<B>) -> Result<Reader, Refusal> {
        match (self.is_public, self.tokens()) {
            (false, _) => Ok(Reader::Anybody),
            (true, Some(tokens)) => {
                expect_right(Right::Read, tokens, request).map(|_| Reader::Known)
            }
            (true, None) => Err(Refusal::new(StatusCode::FORBIDDEN, "there are no tokens")),
        }
    }

    /// What somebody has shown who reads on for long; None where everybody may read.
    pub(crate) fn pass<B>(&self, request: &Request<B>) -> Option<Pass> {
        let tokens = self.tokens().filter(|_| self.is_public)?.clone();
        let shown = shown(request).unwrap_or_default();
        Some(Pass { tokens, shown: Zeroizing::new(shown.to_vec()) })
    }
}

/// A token that was shown.
pub(crate) struct Pass {
    tokens: Tokens,
    shown: Zeroizing<Vec<u8>>,
}

impl Pass {
    /// Whether it still lets somebody read.
    pub(crate) fn holds(&self) -> bool {
        matches!(self.tokens.right_of(&self.shown), Ok(Some(it)) if it.right >= Right::Read)
    }
}

// The token is in it.
impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass")
    }
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Somebody of this machine.
    Anybody,
    /// He has shown a token.
    Known,
}

/// Which token a request shows, if that has this right, or more.
pub(crate) fn expect_right<B>(
    wanted: Right,
    tokens: &Tokens,
    request: &Request<B>,
) -> Result<Shown, Refusal> {
    let denied = |denied, status, why: String| Refusal::new(status, why).denied(denied);
    let missing = || {
        let what = wanted.name();
        let why = format!(
            "a token with the right to {what} is missing; try: Authorization: Bearer TOKEN"
        );
        denied(Denied::Missing, StatusCode::UNAUTHORIZED, why)
    };
    match tokens.right_of(shown(request).ok_or_else(missing)?) {
        Ok(Some(shown)) if shown.right >= wanted => Ok(shown),
        Ok(Some(_)) => {
            let why = "the token lets its owner read, and not change".to_owned();
            Err(denied(Denied::Right, StatusCode::FORBIDDEN, why))
        }
        Ok(None) => {
            let why = "there is no such token".to_owned();
            Err(denied(Denied::Unknown, StatusCode::UNAUTHORIZED, why))
        }
        Err(error) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Err(denied(Denied::Unread, status, error.to_string()))
        }
    }
}

/// The token that a request shows (RFC 6750 section 2.1).
fn shown<B>(request: &Request<B>) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let said = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = said.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii())
}
