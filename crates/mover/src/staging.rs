// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for immediate data (RFC 7143 §11.3).

use buf::BUF_LEN_MAX;
use buf::Buf;
use buf::Claim;
use buf::Pool;
use wire::iscsi::ScsiCommand;

/// A buffer for `length` bytes of immediate data that can become that of the task: see
/// [`iscsi::datamover::Immediate`].
pub(crate) fn stage(command: &ScsiCommand, length: u32, pool: &Pool) -> Option<Buf> {
    let expected = if command.write { command.expected_length as usize } else { 0 };
    let segment = length as usize;
    let wanted = if expected <= BUF_LEN_MAX { expected.max(segment) } else { segment };
    // What others could use is not taken for what only comes when it is asked for.
    let whole = pool.take_as(wanted, Claim::Convenience);
    whole.or_else(|| pool.take(segment))
}
