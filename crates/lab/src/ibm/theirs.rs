// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the study published: J. Menon, C. Fuente, "iSCSI Performance and Architecture and
//! Comparison to Other Network Protocols", IBM Research Report, 2000, on two Pentium III at 450 MHz
//! with Gigabit Ethernet (ACEnic) and Fibre Channel (QLogic). The plots of section 3.3.3 are not in
//! its text; what is here is what the text says of them, and the tables of section 3.3.4.3.

/// Times the processor of Fibre Channel, reads and writes (section 3.3.3): over TCP/IP, ...
pub(super) const TCP: [f64; 2] = [30.0, 45.0];
/// ... over raw Ethernet with one copy, ...
pub(super) const ONE_COPY: [f64; 2] = [10.0, 20.0];
/// ... and with none.
pub(super) const NO_COPY: [f64; 2] = [7.0, 6.0];

/// A table of section 3.3.4.3: utilization of the target, percent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Total {
    pub(super) tcp: f64,
    pub(super) one_copy: f64,
    pub(super) no_copy: f64,
    pub(super) nfs: f64,
    pub(super) fibre_channel: f64,
}

pub(super) const TRANSMIT: Total =
    Total { tcp: 17.4, one_copy: 5.86, no_copy: 3.99, nfs: 66.6, fibre_channel: 0.85 };

pub(super) const RECEIVE: Total =
    Total { tcp: 27.15, one_copy: 11.75, no_copy: 3.67, nfs: 86.4, fibre_channel: 0.87 };
