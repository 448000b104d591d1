// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of its own for loopback, with the congestion control that Linux comes with: timers by
//! which others pace loopback would cost the load most of its time, whoever serves.

use std::fs;
use std::process::{Command, Stdio};

use engine::network::Network;

use crate::programs::installed;

const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What a namespace may have; the first one is Linux's own choice.
const WANTED: [&str; 2] = ["cubic", "reno"];

/// Where the calling thread is.
#[derive(Debug)]
pub(super) struct Space {
    why_not: Option<String>,
}

impl Space {
    /// Takes the calling thread there, if it can be had.
    pub(super) fn enter() -> Self {
        Self { why_not: try_enter().err() }
    }

    /// What was done.
    pub(super) fn told(&self) -> String {
        let control = fs::read_to_string(CONGESTION).unwrap_or_default();
        let control = control.trim_end();
        match &self.why_not {
            None => format!("All is on loopback in a network of its own, with TCP {control}."),
            Some(why) => format!(
                "All is on the machine's own loopback, with TCP {control}: a network of its own \
                 cannot be had ({why})."
            ),
        }
    }
}

fn try_enter() -> Result<(), String> {
    let ip = installed("ip", "iproute2")?;
    let network = Network::new().map_err(|error| error.to_string())?;
    let ready = network.within(|| {
        let up = Command::new(&ip)
            .args(["link", "set", "lo", "up"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        WANTED.iter().find(|control| fs::write(CONGESTION, control).is_ok());
        up.is_ok_and(|status| status.success())
    });
    match ready.map_err(|error| error.to_string())? {
        true => network.enter().map_err(|error| error.to_string()),
        false => Err("its loopback cannot be brought up".to_owned()),
    }
}
