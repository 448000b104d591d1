// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT TARGET PORT GROUPS (SPC-4 §6.37): asymmetric access with one group, which is always
//! active and optimized. Hosts that want a group find one; changes would be implicit.

use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::task::Started;
use crate::task::data;
use alloc::vec::Vec;

/// ASYMMETRIC ACCESS STATE active/optimized.
const ACTIVE_OPTIMIZED: u8 = 0x0;
/// AO_SUP: the only state there is.
const ACTIVE_OPTIMIZED_SUPPORTED: u8 = 0x01;

/// REPORT TARGET PORT GROUPS.
pub(crate) fn report_groups(context: &Context<'_>) -> Result<Started, Fault> {
    let header: &[u8] = match context.cdb.byte(1) >> 5 {
        0 => &[],
        // Format type 1 with no time for implicit transitions.
        1 => &[0x10, 0, 0, 0],
        _ => return Err(sense::invalid_bit(1, 7).into()),
    };
    let names = context.nexus.names();
    let [group_high, group_low] = names.portal_group_tag.to_be_bytes();
    let [port_high, port_low] = names.relative_port.to_be_bytes();
    let group = [
        ACTIVE_OPTIMIZED,
        ACTIVE_OPTIMIZED_SUPPORTED,
        group_high,
        group_low,
        0,
        0,
        0,
        1,
        0,
        0,
        port_high,
        port_low,
    ];
    let length = u32::try_from(header.len() + group.len()).unwrap_or(u32::MAX);
    let mut bytes: Vec<u8> = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(&group);
    Ok(data(bytes, context.cdb.u32_at(6)))
}
