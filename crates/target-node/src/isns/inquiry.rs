// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entity Status Inquiries (ESI, RFC 4171 §5.7.5.13, §6.3.4, §6.3.5): a server asks each portal now
//! and then whether it is still there, and forgets those that do not answer.
//!
//! A server asks at the address of the portal, so each address has a socket and a thread of its
//! own, which sleeps until somebody asks. It answers whoever names our entity, with what he sent
//! and nothing else; only what comes from the server's address counts as a sign of life of it.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Instant;
use wire::isns::Attributes;
use wire::isns::Flags;
use wire::isns::Function;
use wire::isns::HEADER_LEN;
use wire::isns::Header;
use wire::isns::Status;
use wire::isns::Tag;

/// Where inquiries are answered. Dropped, nobody answers any more.
#[derive(Debug)]
pub(super) struct Posts {
    open: Vec<Post>,
    shared: Arc<Shared>,
}

/// One address.
#[derive(Debug)]
struct Post {
    address: SocketAddr,
    socket: Arc<UdpSocket>,
}

#[derive(Debug)]
struct Shared {
    entity: String,
    begun: std::time::Instant,
    /// Who is registered with.
    server: Mutex<Option<IpAddr>>,
    /// When that one asked last, nanoseconds since `begun`; 0: never.
    asked: AtomicU64,
    over: AtomicBool,
}

impl Posts {
    /// `begun`: the zero of our time.
    pub(super) fn new(entity: String, begun: std::time::Instant) -> Self {
        let (server, asked) = (Mutex::new(None), AtomicU64::new(0));
        let shared = Shared { entity, begun, server, asked, over: AtomicBool::new(false) };
        Self { open: Vec::new(), shared: Arc::new(shared) }
    }

    /// Listens at these addresses for what `server` asks; gives the ports. An address where nobody
    /// can listen has none.
    pub(super) fn open(&mut self, addresses: &[IpAddr], server: IpAddr) -> Vec<SocketAddr> {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        for address in addresses.iter().take(POSTS_MAX) {
            if self.open.iter().all(|post| post.address.ip() != *address)
                && self.open.len() < POSTS_MAX
                && let Err(error) = self.listen(*address)
            {
                tracing::debug!(%address, %error, "no inquiries of the name server here");
            }
        }
        let open = self.open.iter().map(|post| post.address);
        open.filter(|post| addresses.contains(&post.ip())).collect()
    }

    /// When the server asked last.
    pub(super) fn asked(&self) -> Option<Instant> {
        match self.shared.asked.load(Ordering::Relaxed) {
            0 => None,
            at => Some(Instant(at)),
        }
    }

    fn listen(&mut self, address: IpAddr) -> std::io::Result<()> {
        let socket = Arc::new(UdpSocket::bind((address, 0))?);
        let address = socket.local_addr()?;
        let (shared, listening) = (Arc::clone(&self.shared), Arc::clone(&socket));
        let builder = std::thread::Builder::new().name("isns-inquiry".into());
        builder.stack_size(STACK_BYTES).spawn(move || shared.serve(&listening))?;
        self.open.push(Post { address, socket });
        Ok(())
    }
}

impl Drop for Posts {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        for Post { address, socket } in &self.open {
            // Wakes whoever listens. One that does not hear it ends with the process.
            let _ = socket.send_to(&[], address);
        }
    }
}

impl Shared {
    fn serve(&self, socket: &UdpSocket) {
        let mut datagram = [0; DATAGRAM_MAX];
        loop {
            let received = socket.recv_from(&mut datagram);
            if self.over.load(Ordering::Acquire) {
                return;
            }
            let (length, from) = match received {
                Ok(received) => received,
                Err(error) => {
                    // What is told of an answer that found nobody; it must not become a busy loop.
                    tracing::debug!(%error, "an inquiry of the name server was not received");
                    std::thread::sleep(ERROR_PAUSE);
                    continue;
                }
            };
            let datagram = datagram.get(..length).unwrap_or_default();
            let Some(answer) = answer(datagram, &self.entity) else { continue };
            // One that is lost is asked for again.
            let _ = socket.send_to(&answer, from);
            let server = *self.server.lock().unwrap_or_else(PoisonError::into_inner);
            if server.map(|server| server.to_canonical()) == Some(from.ip().to_canonical()) {
                let at = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.asked.store(at.max(1), Ordering::Relaxed);
            }
        }
    }
}

/// The answer to an inquiry after `entity`: success, and what was asked. None if it is no inquiry,
/// or one after somebody else.
pub(super) fn answer(datagram: &[u8], entity: &str) -> Option<Vec<u8>> {
    let (header, rest) = datagram.split_first_chunk::<HEADER_LEN>()?;
    let header = Header::parse(*header).ok()?;
    let whole = Flags::FIRST.with(Flags::LAST);
    if header.function != Function::INQUIRY || header.sequence != 0 || !header.flags.has(whole) {
        return None;
    }
    let payload = rest.get(..usize::from(header.length))?;
    let mut is_ours = false;
    for attribute in Attributes::new(payload) {
        let attribute = attribute.ok()?;
        is_ours |= attribute.tag == Tag::ENTITY && attribute.text() == Some(entity);
    }
    if !is_ours {
        return None;
    }
    let status = Status::SUCCESS.0.to_be_bytes();
    let answer = Header {
        function: Function::INQUIRY.response(),
        length: header.length.checked_add(u16::try_from(status.len()).ok()?)?,
        flags: whole.with(Flags::CLIENT),
        ..header
    };
    Some([&answer.emit()[..], &status, payload].concat())
}

/// Addresses that are asked after: the others of a big machine are registered without.
const POSTS_MAX: usize = 8;

/// Longest inquiry, bytes: a time, a name of 223 bytes at most, an address and a port.
const DATAGRAM_MAX: usize = 2048;

/// A thread that answers needs little.
const STACK_BYTES: usize = 64 << 10;

/// Pause after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::isns::Payload;

    use super::*;

    const ENTITY: &str = "iqn.2026-01.com.example:disk";

    fn inquiry(entity: &str) -> Vec<u8> {
        let mut payload = Payload::new();
        payload.push_number(Tag::TIMESTAMP, 7);
        payload.push_text(Tag::ENTITY, entity);
        payload.push_address(Tag::PORTAL_ADDRESS, IpAddr::from([192, 0, 2, 1]));
        payload.push_port(Tag::PORTAL_PORT, 3260);
        let header = Header {
            function: Function::INQUIRY,
            length: u16::try_from(payload.as_bytes().len()).unwrap(),
            flags: Flags::SERVER.with(Flags::FIRST).with(Flags::LAST),
            transaction: 0x1234,
            sequence: 0,
        };
        [&header.emit()[..], payload.as_bytes()].concat()
    }

    #[test]
    fn an_inquiry_is_answered_with_what_it_said() {
        let asked = inquiry(ENTITY);
        let told = answer(&asked, ENTITY).unwrap();
        let length = (asked.len() - HEADER_LEN + 4).to_be_bytes();
        assert_eq!(told[..4], [0, 1, 0x80, 0x0d]);
        assert_eq!(told[4..6], length[6..]);
        assert_eq!(told[6..HEADER_LEN], [0x8c, 0, 0x12, 0x34, 0, 0]);
        assert_eq!(told[HEADER_LEN..HEADER_LEN + 4], [0; 4]);
        assert_eq!(told[HEADER_LEN + 4..], asked[HEADER_LEN..]);
    }

    #[test]
    fn what_is_no_inquiry_after_us_stays_without_answer() {
        let good = inquiry(ENTITY);
        let bent = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            bytes
        };
        let cases = [
            Vec::new(),
            good[..HEADER_LEN].to_vec(),
            good[..good.len() - 1].to_vec(),
            inquiry("iqn.2026-01.com.example:other"),
            bent(1, 2),
            bent(2, 0x80),
            bent(3, 1),
            bent(5, 3),
            bent(6, 0x48),
            bent(11, 1),
            bent(HEADER_LEN + 7, 0x7f),
        ];
        for (index, datagram) in cases.iter().enumerate() {
            assert_eq!(answer(datagram, ENTITY), None, "case {index}");
        }
    }

    proptest! {
        #[test]
        fn no_datagram_harms(mut bytes in prop::collection::vec(any::<u8>(), 0..200), real: bool) {
            if real {
                let good = inquiry(ENTITY);
                for (to, from) in bytes.iter_mut().zip(&good).take(HEADER_LEN) {
                    *to = *from;
                }
            }
            if let Some(told) = answer(&bytes, ENTITY) {
                prop_assert!(told.len() <= bytes.len() + 4);
            }
        }
    }
}
