// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--isid`: half of the name of an initiator port, which has one session with a portal group.

use anyhow::Result;
use initiator::OptionsError;
use wire::iscsi::Isid;

use super::usage;
use crate::args::ClientOptions;

/// Six bytes in hex.
pub(super) fn parse(text: &str) -> Result<Isid> {
    let digits = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 12);
    let Some(digits) = digits.filter(|_| text.bytes().all(|byte| byte.is_ascii_hexdigit())) else {
        return Err(usage("--isid", text, "12 hex digits are right, for example 80c0ffee0001"));
    };
    let [_, _, isid @ ..] = digits.to_be_bytes();
    let isid = Isid(isid);
    if !isid.is_proper() {
        return Err(usage("--isid", text, OptionsError::Isid(isid)));
    }
    Ok(isid)
}

/// Fails for `--isid` where a command has two sessions with one target: `which`.
pub(crate) fn refuse_for_two(options: &ClientOptions, which: &str) -> Result<()> {
    let Some(given) = &options.isid else { return Ok(()) };
    let why = format!(
        "one session {which} would end the other, since both go to one target with this ISID; \
         try: without --isid"
    );
    Err(usage("--isid", given, why))
}
