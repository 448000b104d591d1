// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a queue is made, and how a session is.

use std::sync::Arc;
use std::time::Duration;

use capture::Capture;
use engine::Choice;
use iscsi::chap::Account;
use iscsi::chap::Algorithm;
use iscsi::initiator::Settings;
use iscsi::name;
use iscsi::name::NameError;
use wire::iscsi::Isid;

use crate::Auth;
use crate::Checks;
use crate::LocalTarget;
use crate::Url;
use crate::Witness;
use crate::limits;

/// The strongest first, but SHA-256 last: some targets mean SHA-1 by its number.
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Sha3_256, Algorithm::Sha1, Algorithm::Md5, Algorithm::Sha256];

/// Enterprise numbers have 24 bits in an ISID.
const ENTERPRISE_MAX: u32 = (1 << 24) - 1;

/// How a [`Queue`](crate::Queue) or an [`Initiator`](crate::Initiator) is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which engine to run on.
    pub engine: Choice,
    /// Longest busy wait before sleeping; zero: never spin.
    pub spin_max: Duration,
    /// Bound on data buffers, bytes.
    pub pool_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: Choice::Auto,
            spin_max: engine::limits::SPIN_MAX,
            pool_bytes_max: limits::POOL_BYTES,
        }
    }
}

/// What carries a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // callers choose
pub enum Transport {
    /// PDUs on a byte stream.
    #[default]
    Tcp,
    /// iSER (RFC 7145) over software iWARP, with CRCs or not; discovery is plain text where the
    /// session begins with its login.
    Iser(Begin, Checks),
    /// iSER over an RDMA adapter of this machine (rdma-core).
    Verbs,
    /// PDUs on a byte stream over raw Ethernet frames; a portal is `MAC%INTERFACE`.
    Ether,
}

/// How a session over iSER begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there are two ways
pub enum Begin {
    /// With MPA, and the login follows, as deployed stacks do.
    Rdma,
    /// With the login on a byte stream, and MPA follows (RFC 7145 §5.1).
    Login,
}

/// One session: with whom, as whom, and how patient.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port` of each portal; the first one has a short head start, then all are tried side by
    /// side.
    pub portals: Vec<String>,
    /// A target in this process, which is then connected to instead of a portal.
    pub local: Option<LocalTarget>,
    /// What carries the session, where the target is not in this process.
    pub transport: Transport,
    /// iSCSI name of the target; None for a discovery session.
    pub target: Option<String>,
    /// Our own iSCSI name; letters are put in lower case.
    pub initiator: String,
    /// The enterprise number that IANA gave to our vendor, 24 bits: it goes into the ISID (RFC 7143
    /// §11.12.5). None: random bits do.
    pub enterprise: Option<u32>,
    /// The initiator's part of the session id, where the caller has one to keep: the same one for
    /// different portal groups shows them one initiator port (RFC 7143 §10.1.1). A second one with
    /// the same portal is refused; at another portal of the same group it would end the first one.
    /// None: random, of this session alone.
    pub isid: Option<Isid>,
    /// A process that is gone had a session with this ISID, of which something may still be on its
    /// way: it ends when the new one is there. Several paths begin when all of these are, or not at
    /// all: what is late on one would come over what is written over another.
    pub takes_over: bool,
    /// Who hears of each session, before anything goes over it.
    pub witness: Option<Arc<dyn Witness>>,
    /// Our alias, for the target's display.
    pub alias: Option<String>,
    /// By what we prove who we are and, if a target is in it, what it has to prove.
    pub account: Option<Arc<Account>>,
    /// Hash functions of CHAP, most wanted first.
    pub algorithms: Vec<Algorithm>,
    /// What is negotiated, and time-outs.
    pub settings: Settings,
    /// How long to go on trying before the first login, which cuts `settings.login_timeout` short;
    /// zero: one try.
    pub connect_patience: Duration,
    /// How long to go on trying after a session was lost; zero: not at all. So long a command is
    /// tried that loses one session after the other, or that the target answers and does not carry
    /// out (BUSY, TASK SET FULL, TASK ABORTED, a unit that is becoming ready; that for
    /// `settings.command_timeout` where this is zero).
    pub reconnect_patience: Duration,
    /// Where its connections are captured to, as far as they are no local ones.
    pub capture: Option<Capture>,
}

/// Why options make no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// RFC 7143 §4.2.7.
    #[error("the initiator cannot be named {name:?}: {reason}")]
    Initiator {
        /// As it was given.
        name: String,
        /// What is wrong with it.
        reason: NameError,
    },
    /// RFC 7143 §4.2.7.1: what no target can be called.
    #[error("no target is named {name:?}: {reason}")]
    Target {
        /// As it was given.
        name: String,
        /// What is wrong with it.
        reason: NameError,
    },
    /// RFC 7143 §11.12.5.
    #[error(
        "the ISID {0} has none of the forms of RFC 7143: its first byte is 00 to 3f and an OUI \
         follows, 40 and an enterprise number follows, or 80"
    )]
    Isid(Isid),
    /// RFC 7143 §11.12.5.
    #[error("the enterprise number {0} does not fit into the 24 bits that an ISID has for it")]
    Enterprise(u32),
    /// RFC 7143 §4.4.3: the new session would end the one that is there.
    #[error("a session with the ISID {0} is there already, with the same target and portal")]
    IsidInUse(Isid),
}

impl Options {
    /// As they go on the wire.
    pub(crate) fn checked(mut self) -> Result<Self, OptionsError> {
        let name = self.initiator;
        self.initiator = match name::normalize_configured(&name) {
            Ok(name) => name,
            Err(reason) => return Err(OptionsError::Initiator { name, reason }),
        };
        if let Some(Err(reason)) = self.target.as_deref().map(name::validate_received) {
            let name = self.target.unwrap_or_default();
            return Err(OptionsError::Target { name, reason });
        }
        if let Some(isid) = self.isid.filter(|isid| !isid.is_proper()) {
            return Err(OptionsError::Isid(isid));
        }
        if let Some(number) = self.enterprise.filter(|number| *number > ENTERPRISE_MAX) {
            return Err(OptionsError::Enterprise(number));
        }
        Ok(self)
    }

    /// How long a target may be busy for one command.
    pub(crate) fn busy_patience(&self) -> Duration {
        let limits = [self.reconnect_patience, self.settings.command_timeout];
        let given = limits.into_iter().find(|limit| !limit.is_zero());
        given.unwrap_or(limits::BUSY_PATIENCE)
    }

    /// For a target behind one portal, without authentication.
    #[must_use]
    pub fn new(portal: String, target: Option<String>) -> Self {
        Self {
            portals: vec![portal],
            local: None,
            transport: Transport::Tcp,
            target,
            initiator: default_initiator(),
            enterprise: None,
            isid: None,
            takes_over: false,
            witness: None,
            alias: None,
            account: None,
            algorithms: ALGORITHMS.to_vec(),
            settings: Settings::default(),
            connect_patience: Duration::ZERO,
            reconnect_patience: Duration::from_secs(60),
            capture: None,
        }
    }

    /// For a target in this process, without authentication.
    #[must_use]
    pub fn within_process(at: LocalTarget, target: Option<String>) -> Self {
        let (portals, local) = (Vec::new(), Some(at));
        Self { portals, local, ..Self::new(String::new(), target) }
    }

    /// Portal, target, transport and digests of `url`, and the hash function that it names. Its
    /// users and secrets are the caller's business: whether a secret may stand there is a matter of
    /// policy.
    #[must_use]
    pub fn of_url(url: &Url) -> Self {
        let mut options = Self::new(url.portal(), url.target.clone());
        if let Some(offer) = url.header_digest {
            options.settings.header_digest = offer;
        }
        if let Some(offer) = url.data_digest {
            options.settings.data_digest = offer;
        }
        options.transport = url.transport;
        if let Some(Auth::Chap(Some(algorithm))) = url.auth {
            options.algorithms = vec![algorithm];
        }
        options
    }
}

/// The initiator's part of a session id (RFC 7143 §11.12.5): with an enterprise number type 01,
/// else type 10, 24 random bits; then a qualifier.
pub(crate) const fn isid(enterprise: Option<u32>, random: [u8; 5]) -> Isid {
    let [a, b, c, d, e] = random;
    match enterprise {
        Some(number) => {
            let [_, high, middle, low] = number.to_be_bytes();
            Isid([0x40, high, middle, low, d, e])
        }
        None => Isid([0x80, a, b, c, d, e]),
    }
}

/// `drawn`, or the next one that nobody has: after it come those with other qualifiers.
pub(crate) fn distinct(drawn: Isid, is_taken: impl Fn(Isid) -> bool) -> Isid {
    let Isid([a, b, c, d, high, low]) = drawn;
    let first = u16::from_be_bytes([high, low]);
    let all = (0..=u16::MAX).map(|step| {
        let [high, low] = first.wrapping_add(step).to_be_bytes();
        Isid([a, b, c, d, high, low])
    });
    let free = all.into_iter().find(|isid| !is_taken(*isid));
    free.unwrap_or(drawn)
}

/// A name for this machine: the same each time, as far as it has a host name.
#[must_use]
pub fn default_initiator() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host
        .trim()
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '-' })
        .take(64)
        .collect();
    let host = if host.is_empty() { "host" } else { host.as_str() };
    format!("iqn.2026-01.local.lunwire:{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: SES-25, SES-26.
    #[test]
    fn session_ids_name_the_vendor_where_it_has_a_number() {
        let random = [0xff, 0xfe, 0xfd, 0xfc, 0xfb];
        assert_eq!(isid(None, random), Isid([0x80, 0xff, 0xfe, 0xfd, 0xfc, 0xfb]));
        assert_eq!(isid(Some(32473), random), Isid([0x40, 0, 0x7e, 0xd9, 0xfc, 0xfb]));
        assert_eq!(isid(Some(0x00ab_cdef), random), Isid([0x40, 0xab, 0xcd, 0xef, 0xfc, 0xfb]));
    }

    fn options() -> Options {
        Options::new("192.0.2.1:3260".to_owned(), Some("iqn.2026-01.com.example:disk".to_owned()))
    }

    /// The 16 bits of a qualifier are soon drawn twice.
    ///
    /// Covers: SES-02.
    #[test]
    fn what_was_drawn_before_is_not_drawn_again() {
        let drawn = isid(Some(32473), [0, 0, 0, 0xff, 0xfe]);
        let qualified = |high, low| Isid([0x40, 0, 0x7e, 0xd9, high, low]);
        assert_eq!(distinct(drawn, |_| false), drawn);
        assert_eq!(distinct(drawn, |isid| isid == drawn), qualified(0xff, 0xff));
        let taken = |isid: Isid| isid.0[4] == 0xff;
        assert_eq!(distinct(drawn, taken), qualified(0, 0), "around the end");
    }

    /// Covers: SES-25.
    #[test]
    fn a_session_id_of_the_caller_has_one_of_the_three_forms() {
        for first in 0..=0xff {
            let isid = Isid([first, 1, 2, 3, 4, 5]);
            let checked = Options { isid: Some(isid), ..options() }.checked();
            let proper = matches!(first, 0..=0x3f | 0x40 | 0x80);
            assert_eq!(checked.is_ok(), proper, "{first:#x}");
            assert_eq!(checked.err(), (!proper).then_some(OptionsError::Isid(isid)));
        }
        for (number, fits) in [(0, true), (0x00ff_ffff, true), (1 << 24, false), (u32::MAX, false)]
        {
            let checked = Options { enterprise: Some(number), ..options() }.checked();
            assert_eq!(checked.err(), (!fits).then_some(OptionsError::Enterprise(number)));
        }
    }

    /// Covers: NAM-08/I.
    #[test]
    fn an_initiator_has_an_iscsi_name() {
        let named = |name: &str| Options { initiator: name.to_owned(), ..options() }.checked();
        for good in ["iqn.2026-01.com.example:a", "eui.02004567a425678d", "naa.52004567ba64678d"] {
            assert_eq!(named(good).map(|options| options.initiator).as_deref(), Ok(good));
        }
        let lower = named("IQN.2026-01.com.example:A").map(|options| options.initiator);
        assert_eq!(lower.as_deref(), Ok("iqn.2026-01.com.example:a"));
        for bad in ["host", "t10.abc", "xiqn.2026-01.com.example", "iqniqn.2026-01.com.example", ""]
        {
            let error = named(bad).err();
            let is_name =
                matches!(&error, Some(OptionsError::Initiator { name, .. }) if name == bad);
            assert!(is_name, "{bad}: {error:?}");
        }
        let target = |name: &str| Options { target: Some(name.to_owned()), ..options() }.checked();
        for bad in ["", "a b", &"x".repeat(224)] {
            assert!(matches!(target(bad), Err(OptionsError::Target { .. })), "{bad}");
        }
        assert!(target("iqn.test:My_Disk").is_ok(), "targets are called as they are");
    }
}
