// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What who started this process wants of it.

/// Those of `signals` that it is not to outlive (nohup, `&` in a script).
pub(crate) fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let ignored = ignored();
    signals.iter().copied().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// The signals that are ignored: bit 0 is signal 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
