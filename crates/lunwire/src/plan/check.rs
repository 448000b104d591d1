// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single values of the file and of the command line.

use std::fmt::Display;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use control::config::Source;
use control::units;
use engine::Choice;
use target::IdentityPolicy;
use target::Interface;
use target::InterfaceError;

use super::rdma::Provider;
use target::SESSIONS_MAX;
use target::STRANGERS_MAX;
use toml::Spanned;

use crate::args::Usage;

/// More threads than this serve no machine that we know.
const REACTORS_MAX: usize = 256;

/// A value of a file, checked; a problem gets its place.
pub(crate) fn checked<T: Display, V, E: Display>(
    source: &Source,
    field: &str,
    value: &Spanned<T>,
    check: impl FnOnce(&T) -> Result<V, E>,
) -> Result<V> {
    check(value.get_ref()).map_err(|problem| source.error(field, value, problem).into())
}

/// A value of the command line, checked.
pub(crate) fn option<V, E: Display>(
    flag: &str,
    value: impl Display,
    checked: Result<V, E>,
) -> Result<V> {
    checked.map_err(|problem| Usage(format!("{flag} {value}: {problem}")).into())
}

/// The addresses of `text`: one, or all those of a name such as `localhost`.
pub(crate) fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    const RIGHT: &str = "ADDRESS:PORT or NAME:PORT is right, for example 127.0.0.1:3260, \
                         [::1]:3260 or localhost:3260";
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let named = text.rsplit_once(':').filter(|(name, port)| {
        !name.is_empty() && !name.contains([':', '@', '/', '%']) && port.parse::<u16>().is_ok()
    });
    if named.is_none() {
        return Err(RIGHT.to_owned());
    }
    let found = text.to_socket_addrs().map_err(|error| format!("{error}; {RIGHT}"))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort();
    addresses.dedup();
    if addresses.is_empty() { Err(RIGHT.to_owned()) } else { Ok(addresses) }
}

/// Whether `new` can be listened on beside `others`: port 0 is another one each time, and the
/// address of all interfaces has those of each.
pub(crate) fn listened_once(others: &[SocketAddr], new: &[SocketAddr]) -> Result<(), String> {
    let all = |address: &SocketAddr| address.ip().is_unspecified();
    let meet = |a: &SocketAddr, b: &SocketAddr| {
        let covers = a.ip() == b.ip() || a.is_ipv4() == b.is_ipv4() && (all(a) || all(b));
        a.port() == b.port() && a.port() != 0 && covers
    };
    for address in new {
        if let Some(other) = others.iter().find(|other| meet(address, other)) {
            return Err(match other == address {
                true => format!("{address} is given twice; once will do"),
                false => format!("{address} cannot be beside {other}; one of them will do"),
            });
        }
    }
    Ok(())
}

pub(super) fn engine(text: &str) -> Result<Choice, &'static str> {
    match text {
        "auto" => Ok(Choice::Auto),
        "uring" => Ok(Choice::Uring),
        "epoll" => Ok(Choice::Epoll),
        _ => Err("auto, uring or epoll is right"),
    }
}

pub(super) fn rdma(text: &str) -> Result<Provider, &'static str> {
    match text {
        "off" => Ok(Provider::Off),
        "iwarp" => Ok(Provider::Iwarp),
        "verbs" => Ok(Provider::Verbs),
        "auto" => Ok(Provider::Auto),
        _ => Err("iwarp, verbs, auto or off is right"),
    }
}

/// The name of an interface that `others` do not have.
pub(super) fn interface(text: &str, others: &[Interface]) -> Result<Interface, String> {
    let interface: Interface = text.parse().map_err(|error: InterfaceError| error.to_string())?;
    match others.iter().any(|other| other.name == interface.name) {
        true => Err("it is named twice".into()),
        false => Ok(interface),
    }
}

/// Where HTTP is spoken.
pub(super) fn http(text: &str) -> Result<SocketAddr, String> {
    const RIGHT: &str = "ADDRESS:PORT is right, for example 127.0.0.1:9260 or [::1]:9260";
    text.parse().map_err(|_| RIGHT.to_owned())
}

/// Whether a file of tokens is one.
pub(super) fn tokens(path: &Path) -> Result<(), String> {
    http::Tokens::of(path).map(drop).map_err(|error| error.to_string())
}

/// True: amp.
pub(super) fn mode(text: &str) -> Result<bool, &'static str> {
    match text {
        "smp" => Ok(false),
        "amp" => Ok(true),
        _ => Err("smp or amp is right"),
    }
}

pub(super) fn identity(text: &str) -> Result<IdentityPolicy, &'static str> {
    match text {
        "own" => Ok(IdentityPolicy::Own),
        "name" => Ok(IdentityPolicy::Name),
        _ => Err("own or name is right"),
    }
}

pub(super) fn reactors(count: usize) -> Result<usize, &'static str> {
    if (1..=REACTORS_MAX).contains(&count) { Ok(count) } else { Err("1 to 256 is right") }
}

pub(crate) fn allowed_cpu(cpu: usize) -> Result<usize, String> {
    let allowed = engine::affinity::allowed_cpus();
    if allowed.contains(&cpu) { Ok(cpu) } else { Err(format!("one of {allowed:?} is right")) }
}

pub(super) fn login_timeout(text: &str) -> Result<Duration, &'static str> {
    match units::duration(text)? {
        Duration::ZERO => Err("it cannot be zero; 15s is a good value"),
        time => Ok(time),
    }
}

pub(super) fn sessions(count: usize) -> Result<usize, String> {
    match count {
        1..=SESSIONS_MAX => Ok(count),
        _ => Err(format!("1 to {SESSIONS_MAX} is right")),
    }
}

pub(super) fn strangers(count: usize) -> Result<usize, String> {
    match count {
        1..=STRANGERS_MAX => Ok(count),
        _ => Err(format!("1 to {STRANGERS_MAX} is right")),
    }
}

/// One address cannot have more than all have together.
pub(super) fn strangers_of_address(count: usize, all: usize) -> Result<usize, String> {
    if count <= all { Ok(count) } else { Err(format!("unauthenticated-max allows {all} in all")) }
}

pub(super) fn log_level(text: &str) -> Result<String, &'static str> {
    match text {
        "error" | "warn" | "info" | "debug" | "trace" => Ok(text.to_owned()),
        _ => Err("error, warn, info, debug or trace is right"),
    }
}
