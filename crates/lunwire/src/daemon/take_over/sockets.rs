// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that are listened at already when a process begins to serve.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::admin::OfferedSocket;
use control::admin::SocketKind;
use http::Listener;

/// By their addresses in the configuration, which has port 0 for any port.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    pub(crate) portals: Vec<(SocketAddr, OwnedFd)>,
    pub(crate) http: Option<(SocketAddr, OwnedFd)>,
    pub(crate) control: Option<OwnedFd>,
}

impl Sockets {
    /// Those of the service manager, for who listens at `portals` and for HTTP at `http`. Gives the
    /// addresses of those that nobody wants, which are closed.
    pub(crate) fn of_manager(
        sockets: Vec<(SocketAddr, OwnedFd)>,
        portals: &[SocketAddr],
        http: Option<SocketAddr>,
    ) -> (Self, Vec<SocketAddr>) {
        let (mut ours, mut unwanted) = (Self::default(), Vec::new());
        for (address, socket) in sockets {
            let is_new = !ours.portals.iter().any(|(known, _)| *known == address);
            if portals.contains(&address) && is_new {
                ours.portals.push((address, socket));
            } else if http == Some(address) {
                ours.http = Some((address, socket));
            } else if is_new {
                unwanted.push(address);
            }
        }
        (ours, unwanted)
    }

    /// As they are offered, each with its descriptor.
    pub(super) fn offered(&self) -> Vec<(OfferedSocket, BorrowedFd<'_>)> {
        let socket = |kind, address: String, fd| (OfferedSocket { kind, address }, fd);
        let mut all = Vec::new();
        for (address, fd) in &self.portals {
            all.push(socket(SocketKind::Portal, address.to_string(), fd.as_fd()));
        }
        if let Some((address, fd)) = &self.http {
            all.push(socket(SocketKind::Http, address.to_string(), fd.as_fd()));
        }
        if let Some(fd) = &self.control {
            all.push(socket(SocketKind::Control, String::new(), fd.as_fd()));
        }
        all
    }

    /// What was offered, with the descriptors that came behind.
    pub(super) fn taken(offered: &[OfferedSocket], fds: Vec<OwnedFd>) -> Result<Self> {
        if offered.len() != fds.len() {
            bail!("{} sockets came, and {} were offered", fds.len(), offered.len());
        }
        let mut sockets = Self::default();
        for (OfferedSocket { kind, address }, fd) in offered.iter().zip(fds) {
            let parsed = || address.parse().with_context(|| format!("socket at {address:?}"));
            match kind {
                SocketKind::Portal => sockets.portals.push((parsed()?, fd)),
                SocketKind::Http => sockets.http = Some((parsed()?, fd)),
                SocketKind::Control => sockets.control = Some(fd),
            }
        }
        Ok(sockets)
    }

    /// The same for who listens at these addresses: others are closed, and what is not there is
    /// listened at now, before anybody depends on it.
    pub(super) fn for_configuration(
        self,
        portals: &[SocketAddr],
        http: Option<SocketAddr>,
    ) -> Result<Self> {
        let Self { portals: mut there, http: http_there, control } = self;
        let mut taken = Vec::new();
        let mut missing = Vec::new();
        for address in portals {
            let known = there.iter().position(|(known, _)| known == address);
            let real = || there.iter().position(|(_, socket)| is_at(socket, *address));
            match known.or_else(real) {
                Some(index) => taken.push((*address, there.swap_remove(index).1)),
                None => missing.push(*address),
            }
        }
        let listen = |address: SocketAddr| {
            let failed = |source| target::Error::Listen { address, source };
            anyhow::Ok((address, engine::listen(address).map_err(failed)?))
        };
        for address in missing {
            taken.push(listen(address)?);
        }
        let http = match (http, http_there) {
            (None, _) => None,
            (Some(address), Some((known, fd))) if known == address || is_at(&fd, address) => {
                Some((address, fd))
            }
            (Some(address), _) => {
                // As at a first start: all of IPv6 is all of IPv4, too.
                let listener = Listener::bind(address).context("--http (http)")?;
                Some((address, listener.socket()?))
            }
        };
        Ok(Self { portals: taken, http, control })
    }
}

/// Whether `socket` listens at `address`, which the configuration before had with port 0.
fn is_at(socket: &OwnedFd, address: SocketAddr) -> bool {
    let at = rustix::net::getsockname(socket).ok().and_then(|at| at.try_into().ok());
    at == Some(address)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn socket() -> (SocketAddr, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        (listener.local_addr().expect("it has one"), listener.into())
    }

    #[test]
    fn what_is_there_is_kept_and_what_is_missing_is_listened_at() {
        let ((one, first), (other, second)) = (socket(), socket());
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let portals = vec![(one, first), (other, second)];
        let sockets = Sockets { portals, http: Some(socket()), control: None };
        let offered: Vec<OfferedSocket> =
            sockets.offered().into_iter().map(|(offered, _)| offered).collect();
        assert_eq!(offered.len(), 3);
        assert!(Sockets::taken(&offered, Vec::new()).is_err());
        let taken = sockets.for_configuration(&[other, any], None).expect("ports");
        let addresses: Vec<SocketAddr> =
            taken.portals.iter().map(|(address, _)| *address).collect();
        assert_eq!((addresses, taken.http.is_none()), (vec![other, any], true));
        let ((real, inner), http) = (socket(), socket());
        let at = http.0;
        let of_any =
            Sockets { portals: vec![(any, inner)], http: Some((any, http.1)), control: None };
        let taken = of_any.for_configuration(&[real], Some(at)).expect("they are there");
        assert!(is_at(&taken.portals[0].1, real) && taken.http.is_some_and(|(it, _)| it == at));
        drop(TcpListener::bind(one).expect("nobody listens there any more"));
        let managed = vec![socket(), socket(), socket()];
        let [first, second, third] = [0, 1, 2].map(|index: usize| managed[index].0);
        let (sockets, unwanted) = Sockets::of_manager(managed, &[second], Some(third));
        assert_eq!((sockets.portals[0].0, unwanted), (second, vec![first]));
        assert!(sockets.http.is_some_and(|(address, _)| address == third));
        let error = Sockets::default().for_configuration(&[other], None);
        assert!(error.expect_err("somebody is there").to_string().contains("cannot listen"));
    }

    #[test]
    fn http_is_listened_at_as_at_a_first_start() {
        let Ok(all) = "[::]:0".parse::<SocketAddr>() else { panic!("it is an address") };
        let Ok(first) = Listener::bind(all).map(|listener| listener.socket()) else { return };
        let sockets = Sockets::default().for_configuration(&[], Some(all)).expect("a port");
        let (_, taken) = sockets.http.expect("it is listened at");
        let is_alone = |socket: &OwnedFd| rustix::net::sockopt::ipv6_v6only(socket).expect("IPv6");
        assert_eq!(is_alone(&taken), is_alone(&first.expect("a socket")));
        let (other, _there) = socket();
        let error = Sockets::default().for_configuration(&[], Some(other));
        let said = format!("{:#}", error.expect_err("somebody is there"));
        assert!(said.contains("--http") && said.contains("cannot listen"), "{said}");
    }
}
