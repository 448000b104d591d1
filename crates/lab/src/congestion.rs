// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP's congestion control in networks of a run's own: a network begins with that of the machine,
//! and one that paces by timers takes more of the processor for a frame than all else together.

use std::fs;

const CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What a namespace may have; the first one is Linux's own choice.
const WANTED: [&str; 2] = ["cubic", "reno"];

/// Sets it in the calling thread's network as Linux has it without anybody's choice.
pub(crate) fn set_plain() {
    let _ = WANTED.iter().find(|control| fs::write(CONTROL, control).is_ok());
}

/// That of the calling thread's network.
pub(crate) fn current() -> String {
    fs::read_to_string(CONTROL).unwrap_or_default().trim_end().to_owned()
}
