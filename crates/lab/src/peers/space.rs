// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of its own for loopback, with the congestion control that Linux comes with: timers by
//! which others pace loopback would cost the load most of its time, whoever serves.

use std::process::{Command, Stdio};

use engine::network::Network;

use crate::congestion;
use crate::programs::installed;

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
        let control = congestion::current();
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
    let network = Network::new().map_err(|error| {
        format!(
            "it needs root, CAP_SYS_ADMIN: {error}; try: unshare --user --map-root-user lunwire \
             lab run peers"
        )
    })?;
    let ready = network.within(|| {
        let up = Command::new(&ip)
            .args(["link", "set", "lo", "up"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        congestion::set_plain();
        up.is_ok_and(|status| status.success())
    });
    match ready.map_err(|error| error.to_string())? {
        true => network.enter().map_err(|error| error.to_string()),
        false => Err("its loopback cannot be brought up".to_owned()),
    }
}
