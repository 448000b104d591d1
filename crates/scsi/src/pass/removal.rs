// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PREVENT ALLOW MEDIUM REMOVAL (SPC-4 §6.14) of a unit that is a device: the device prevents
//! removal for the one nexus that it knows, and is told to allow it when no nexus prevents it any
//! more.

use super::After;
use super::pass;
use crate::lun::Context;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::good;

/// PREVENT ALLOW MEDIUM REMOVAL. The persistent forms of MMC concern the device alone.
pub(crate) fn prevent_allow(context: &Context<'_>) -> Result<Started, Fault> {
    let own = context.nexus_state;
    if context.cdb.bit(4, 1) {
        return super::command(context);
    }
    let prevents = context.cdb.bit(4, 0);
    let others =
        || context.unit.any_nexus(|other| !core::ptr::eq(own, other) && other.medium.prevents());
    if !prevents && others() {
        own.medium.allow_removal();
        return Ok(good(0));
    }
    pass(context, context.request.cdb, context.request.expected_in, After::Removal { prevents })
}
