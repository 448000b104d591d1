// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses as the C library has them.

use crate::abi::SocketAddress;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::net::SocketAddrV6;

/// `AF_INET` and `AF_INET6`.
const IPV4: u16 = 2;
const IPV6: u16 = 10;

impl SocketAddress {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.part(2)?);
        match u16::from_ne_bytes(self.part(0)?) {
            IPV4 => Some((Ipv4Addr::from(self.part::<4>(4)?), port).into()),
            IPV6 => {
                let ip = Ipv6Addr::from(self.part::<16>(8)?);
                let flow = u32::from_be_bytes(self.part(4)?);
                let scope = u32::from_ne_bytes(self.part(24)?);
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }

    fn part<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self([0; 128]);
        raw.put(2, &address.port().to_be_bytes());
        match address {
            SocketAddr::V4(address) => {
                raw.put(0, &IPV4.to_ne_bytes());
                raw.put(4, &address.ip().octets());
            }
            SocketAddr::V6(address) => {
                raw.put(0, &IPV6.to_ne_bytes());
                raw.put(4, &address.flowinfo().to_be_bytes());
                raw.put(8, &address.ip().octets());
                raw.put(24, &address.scope_id().to_ne_bytes());
            }
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive() {
        for text in ["192.0.2.1:3260", "[2001:db8::1]:3260", "[fe80::1%2]:9", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("it is one");
            assert_eq!(SocketAddress::from(address).address(), Some(address));
        }
        let raw = SocketAddress::from(SocketAddr::from(([1, 2, 3, 4], 0x1234)));
        assert_eq!(raw.0[..8], [2, 0, 0x12, 0x34, 1, 2, 3, 4]);
        assert_eq!(SocketAddress([0; 128]).address(), None);
    }
}
