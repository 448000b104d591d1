// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections of whom nothing is known yet: how many there may be, and which of them goes.
//!
//! A stranger is a connection that has not logged in, or a discovery session that nobody had to
//! prove anything for. When there are too many, the oldest one goes: whoever means to log in does
//! so within milliseconds, and whoever floods us pushes out his own. All reactors share the table;
//! it is asked when a connection comes, logs in, or goes.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::table::Key;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Of all kinds, on all reactors.
    pub all: usize,
    /// Of strangers.
    pub strangers: usize,
    /// Of strangers from one address; for IPv6 from one network of 64 bits, since who has an
    /// address there has all of them.
    pub strangers_of_address: usize,
}

/// Strangers that a daemon holds by default: each may cost 64 KiB.
pub(crate) const STRANGERS_DEFAULT: usize = 4096;

/// Strangers of one address by default: far more paths than a host opens at once, even where many
/// hosts share an address.
pub(crate) const STRANGERS_OF_ADDRESS_DEFAULT: usize = 256;

/// More strangers cannot be configured: their discovery sessions need TSIHs beside
/// [`SESSIONS_MAX`](crate::SESSIONS_MAX) others.
pub const STRANGERS_MAX: usize = 32_768;

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            all: usize::MAX,
            strangers: STRANGERS_DEFAULT,
            strangers_of_address: STRANGERS_OF_ADDRESS_DEFAULT,
        }
    }
}

impl ConnectionLimits {
    /// What fits into so many descriptors: half of them are for sessions.
    #[must_use]
    pub fn within(self, descriptors: usize) -> Self {
        let all = self.all.min(descriptors).max(2);
        Self { all, strangers: self.strangers.min(all / 2), ..self }
    }
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionPlace {
    pub(crate) reactor: usize,
    pub(crate) connection: Key,
}

/// A stranger's entry in the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    network: IpAddr,
    number: u64,
}

#[derive(Debug)]
pub(crate) struct Strangers {
    limits: ConnectionLimits,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By network, the oldest first.
    networks: HashMap<IpAddr, BTreeMap<u64, ConnectionPlace>>,
    count: usize,
    next: u64,
    /// Connections of all kinds.
    connections: usize,
}

/// What becomes of a connection that has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It may stay; another one may have to go for it.
    In { ticket: Ticket, instead_of: Option<ConnectionPlace> },
    /// There is no room, and no stranger to make it.
    Full,
}

impl Strangers {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        let strangers = limits.strangers.clamp(1, STRANGERS_MAX);
        let limits = ConnectionLimits { strangers, ..limits };
        Self { limits, inner: Mutex::default() }
    }

    /// A connection from `peer` has come.
    pub(crate) fn enter(&self, peer: IpAddr, place: ConnectionPlace) -> Entry {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(peer);
        let of_network = inner.networks.get(&network).map_or(0, BTreeMap::len);
        let instead_of = if of_network >= self.limits.strangers_of_address.max(1) {
            inner.take_oldest(network)
        } else if inner.count >= self.limits.strangers || inner.connections >= self.limits.all {
            inner.take_from_largest()
        } else {
            None
        };
        if inner.connections >= self.limits.all && instead_of.is_none() {
            return Entry::Full;
        }
        inner.next += 1;
        let number = inner.next;
        inner.networks.entry(network).or_default().insert(number, place);
        inner.count += 1;
        inner.connections += 1;
        Entry::In { ticket: Ticket { network, number }, instead_of }
    }

    /// A stranger is known now, or goes; one that was told to go is not in the table any more.
    pub(crate) fn forget(&self, ticket: &Ticket) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.remove(ticket.network, ticket.number);
    }

    /// A connection has gone.
    pub(crate) fn leave(&self, ticket: Option<&Ticket>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.connections = inner.connections.saturating_sub(1);
        if let Some(ticket) = ticket {
            inner.remove(ticket.network, ticket.number);
        }
    }
}

impl Inner {
    fn remove(&mut self, network: IpAddr, number: u64) -> Option<ConnectionPlace> {
        let places = self.networks.get_mut(&network)?;
        let place = places.remove(&number)?;
        if places.is_empty() {
            self.networks.remove(&network);
        }
        self.count -= 1;
        Some(place)
    }

    fn take_oldest(&mut self, network: IpAddr) -> Option<ConnectionPlace> {
        let oldest = *self.networks.get(&network)?.first_key_value()?.0;
        self.remove(network, oldest)
    }

    /// Whoever has most strangers here gives one up.
    fn take_from_largest(&mut self) -> Option<ConnectionPlace> {
        let (network, _) = self.networks.iter().max_by_key(|(_, places)| places.len())?;
        self.take_oldest(*network)
    }
}

fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u64) -> ConnectionPlace {
        ConnectionPlace { reactor: 0, connection: Key::from_bits(number) }
    }

    fn limits(all: usize, strangers: usize, strangers_of_address: usize) -> Strangers {
        Strangers::new(ConnectionLimits { all, strangers, strangers_of_address })
    }

    fn enter(strangers: &Strangers, peer: &str, number: u64) -> (Ticket, Option<ConnectionPlace>) {
        match strangers.enter(peer.parse().unwrap(), place(number)) {
            Entry::In { ticket, instead_of } => (ticket, instead_of),
            Entry::Full => panic!("no room for {peer}"),
        }
    }

    #[test]
    fn the_oldest_of_an_address_makes_room_for_the_newest() {
        let strangers = limits(100, 100, 2);
        let (first, none) = enter(&strangers, "192.0.2.1", 1);
        assert_eq!(none, None);
        enter(&strangers, "192.0.2.1", 2);
        assert_eq!(enter(&strangers, "192.0.2.2", 3).1, None);
        assert_eq!(enter(&strangers, "192.0.2.1", 4).1, Some(place(1)));
        // It goes only now, and is counted once.
        strangers.leave(Some(&first));
        assert_eq!(enter(&strangers, "192.0.2.1", 5).1, Some(place(2)));
        assert_eq!(strangers.inner.lock().unwrap().count, 3);
    }

    #[test]
    fn whoever_has_most_makes_room_for_others() {
        let strangers = limits(100, 4, 100);
        enter(&strangers, "192.0.2.1", 1);
        for number in 2..=4 {
            enter(&strangers, "192.0.2.2", number);
        }
        assert_eq!(enter(&strangers, "192.0.2.3", 5).1, Some(place(2)));
        assert_eq!(enter(&strangers, "192.0.2.4", 6).1, Some(place(3)));
    }

    #[test]
    fn who_is_known_never_makes_room() {
        let strangers = limits(2, 2, 2);
        let (first, _) = enter(&strangers, "192.0.2.1", 1);
        strangers.forget(&first);
        let (second, _) = enter(&strangers, "192.0.2.1", 2);
        assert_eq!(enter(&strangers, "192.0.2.1", 3).1, Some(place(2)));
        strangers.leave(Some(&second));
        let (third, _) = enter(&strangers, "192.0.2.1", 4);
        strangers.forget(&third);
    }

    #[test]
    fn without_strangers_there_is_an_end() {
        let strangers = limits(1, 1, 1);
        let (first, _) = enter(&strangers, "192.0.2.1", 1);
        strangers.forget(&first);
        assert_eq!(strangers.enter("192.0.2.2".parse().unwrap(), place(2)), Entry::Full);
        strangers.leave(None);
        enter(&strangers, "192.0.2.2", 2);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let strangers = limits(100, 100, 2);
        for number in 1..=2 {
            assert_eq!(enter(&strangers, &format!("2001:db8::{number}"), number).1, None);
        }
        assert_eq!(enter(&strangers, "2001:db8::ffff:3", 3).1, Some(place(1)));
        assert_eq!(enter(&strangers, "2001:db8:0:1::1", 4).1, None);
        assert_eq!(enter(&strangers, "::ffff:192.0.2.1", 5).1, None);
    }

    #[test]
    fn half_of_the_descriptors_are_for_sessions() {
        let limits = ConnectionLimits::default().within(100);
        assert_eq!((limits.all, limits.strangers), (100, 50));
        assert_eq!(ConnectionLimits::default().within(1 << 20).strangers, STRANGERS_DEFAULT);
    }
}
