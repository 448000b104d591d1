// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How frames of a disk over raw Ethernet come and go.

use std::io;

use station::Interface;
use station::Place;
use station::Way;

use super::Url;
use crate::Transport;

/// How frames come and go at an interface of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frames {
    /// The interface.
    pub interface: String,
    /// Which way, and why not another one that was wanted, if so.
    pub by: String,
    /// The user left the choice to us (`frames=auto`).
    pub is_chosen: bool,
}

impl Url {
    /// Has what frames of this URL need that come by AF_XDP, until this process ends: for one that
    /// gives up the right to it before it connects. Of other URLs there is nothing to be had.
    ///
    /// # Errors
    /// The interface does not take it, or we may not; the error says what helps.
    pub fn prepare_frames(&self) -> io::Result<()> {
        match self.interface() {
            Some(interface) if interface.way != Way::Packet => station::prepare(&interface),
            _ => Ok(()),
        }
    }

    /// How frames come and go while there is a connection; None where it is not one of frames.
    #[must_use]
    pub fn frames(&self) -> Option<Frames> {
        let interface = self.interface()?;
        let (by, is_chosen) = (station::frames_of(&interface)?, interface.way == Way::Auto);
        Some(Frames { interface: interface.name, by, is_chosen })
    }

    fn interface(&self) -> Option<Interface> {
        let place = || self.host.parse::<Place>().ok();
        let is_it = self.transport == Transport::Ether;
        is_it.then(place).flatten().map(|place| place.interface)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that panics has failed
mod tests {
    use super::*;

    #[test]
    fn only_frames_past_the_network_stack_are_prepared() {
        for place in ["iscsi://192.0.2.1", "ether://02:00:5e:10:00:01%nowhere0"] {
            let url = Url::parse(&format!("{place}/iqn.2026-01.com.example:disks/0")).unwrap();
            url.prepare_frames().unwrap();
            assert_eq!(url.frames(), None, "there is no connection");
        }
        let past = "ether://02:00:5e:10:00:01%nowhere0/iqn.2026-01.com.example:disks/0?frames=xdp";
        Url::parse(past).unwrap().prepare_frames().unwrap_err();
    }
}
