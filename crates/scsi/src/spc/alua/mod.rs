// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPORT and SET TARGET PORT GROUPS (SPC-4 §6.37, §6.45).

pub(crate) mod groups;
pub(crate) mod reach;
#[cfg(test)]
mod tests;

use crate::attention::Attention;
use crate::limits;
use crate::lun::Context;
use crate::sense;
use crate::sense::Fault;
use crate::spc::parameters;
use crate::task;
use crate::task::Started;
use crate::task::data;
use wire::scsi::alua;
use wire::scsi::alua::AccessState;
use wire::scsi::alua::Format;

/// REPORT TARGET PORT GROUPS; states change at once, so that an implicit transition takes no time.
pub(crate) fn report_groups(context: &Context<'_>) -> Result<Started, Fault> {
    let format = match context.cdb.byte(1) >> 5 {
        0 => Format::Short,
        1 => Format::Extended(0),
        _ => return Err(sense::invalid_bit(1, 7).into()),
    };
    let groups = context.unit.access().shown(context.nexus.names());
    Ok(data(alua::emit(&groups, format), context.cdb.u32_at(6)))
}

/// SET TARGET PORT GROUPS.
pub(crate) fn set_groups(context: &Context<'_>) -> Result<Started, Fault> {
    let length = context.cdb.u32_at(6);
    if length == 0 {
        return Ok(task::good(0));
    }
    if length > limits::SET_GROUPS_LEN_MAX {
        return Err(sense::PARAMETER_LIST_LENGTH.into());
    }
    parameters::receive(context, length, set)
}

/// All groups of a list, or none. Other nexuses hear of it (SPC-4 §5.15.2.6).
fn set(context: &Context<'_>, list: &[u8]) -> Result<Started, Fault> {
    let wanted = alua::wanted(list).ok_or(sense::PARAMETER_LIST_LENGTH)?;
    let access = context.unit.access();
    let mut changes = alloc::vec::Vec::with_capacity(wanted.len());
    for (one, at) in wanted.iter().zip((4_u16..).step_by(alua::SET_DESCRIPTOR_LEN)) {
        let state = match AccessState::from_code(one.state) {
            Some(AccessState::Transitioning) | None => {
                return Err(sense::invalid_parameter_bit(at, 3).into());
            }
            Some(state) => state,
        };
        let group = access.find(one.group).ok_or_else(|| sense::invalid_parameter(at + 2))?;
        changes.push((group, state));
    }
    let mut changed = false;
    for (group, state) in changes {
        changed |= group.change(state, alua::StatusCode::Explicit);
    }
    if changed {
        context.unit.show_access();
        context.unit.establish_elsewhere(context.nexus_state, Attention::AccessStateChanged);
    }
    Ok(task::good(u64::try_from(list.len()).unwrap_or(u64::MAX)))
}
