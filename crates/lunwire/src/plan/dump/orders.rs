// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What orders have changed of a target: its disks, and the states of its port groups.

use std::collections::BTreeSet;

use anyhow::Context;
use anyhow::Result;
use scsi::Explicit;
use toml_edit::ArrayOfTables;
use toml_edit::Item;
use toml_edit::Table;
use toml_edit::Value;
use toml_edit::value;

use super::Served;
use super::rewrite;
use crate::plan::difference::without_size;
use crate::plan::lun::DraftLun;
use crate::plan::lun::store_of_now;
use crate::plan::node::DraftTarget;
use crate::plan::place;
use crate::ports;

/// The access states that somebody has set.
pub(super) fn take_states(
    table: &mut Table,
    draft: &DraftTarget,
    served: &dyn Served,
    warnings: &mut Vec<String>,
) {
    // Those that hosts set are theirs.
    if draft.explicit == Explicit::Yes {
        return;
    }
    let groups = table.get_mut("port-group").and_then(Item::as_array_of_tables_mut);
    for group in groups.into_iter().flat_map(ArrayOfTables::iter_mut) {
        let number = group.get("number").and_then(Item::as_integer);
        let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else { continue };
        let states = served.states_of(&draft.name, number);
        let Some(state) = states.first() else { continue };
        if states.iter().any(|other| other != state) {
            warnings.push(format!(
                "port group {number} of {} is not the same for all disks, which a file cannot say",
                draft.name
            ));
            continue;
        }
        let said = group.get("state").and_then(Item::as_str).unwrap_or("active-optimized");
        let state = ports::name_of(*state);
        if said != state {
            group["state"] = value(state);
        }
    }
}

/// Disks that came, went or have another size.
pub(super) fn take_luns(
    target: &mut Table,
    draft: &DraftTarget,
    of_file: &[DraftLun],
    served: &dyn Served,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let luns = target.entry("lun").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let luns = luns.as_array_of_tables_mut().context("lun is no list of tables")?;
    let number_of = |table: &Table, place: usize| {
        let number = table.get("number").and_then(Item::as_integer);
        number.and_then(|number| u16::try_from(number).ok()).or_else(|| u16::try_from(place).ok())
    };
    let numbers: Vec<Option<u16>> =
        luns.iter().enumerate().map(|(place, table)| number_of(table, place)).collect();
    // Another disk may have come by the same number.
    let is_as_in_file = |lun: &&DraftLun| {
        of_file.iter().any(|known| known.number == lun.number && is_same(known, lun))
    };
    let stay: BTreeSet<u16> =
        draft.luns.iter().filter(is_as_in_file).map(|lun| lun.number).collect();
    let is_there = |number: &Option<u16>| number.is_some_and(|number| stay.contains(&number));
    let is_changed = numbers.iter().any(|number| !is_there(number));
    for (table, number) in luns.iter_mut().zip(&numbers) {
        let Some(number) = *number else { continue };
        // Its place will not say it any more.
        if is_changed && !table.contains_key("number") {
            table.insert("number", value(i64::from(number)));
        }
        if let Some(bytes) = served.bytes_of(&draft.name, number) {
            rewrite(table, "store", &|store| Ok(store_of_now(store, bytes)))?;
        }
    }
    let mut place = 0..;
    luns.retain(|_| place.next().and_then(|at| numbers.get(at)).is_some_and(&is_there));
    for lun in &draft.luns {
        if stay.contains(&lun.number) {
            continue;
        }
        if !lun.only.is_empty() {
            warnings.push(format!(
                "LUN {} of {} is left out: it was added for some initiators alone, which a file \
                 cannot say",
                lun.number, draft.name
            ));
            continue;
        }
        luns.push(of_lun(lun, served.bytes_of(&draft.name, lun.number))?);
    }
    if luns.is_empty() {
        target.remove("lun");
    }
    let gone: Vec<i64> = numbers
        .iter()
        .filter(|number| !is_there(number))
        .flatten()
        .map(|it| (*it).into())
        .collect();
    let initiators = target.get_mut("initiator").and_then(Item::as_array_of_tables_mut);
    for initiator in initiators.into_iter().flat_map(ArrayOfTables::iter_mut) {
        if let Some(seen) = initiator.get_mut("luns").and_then(Item::as_array_mut) {
            seen.retain(|number| !number.as_integer().is_some_and(|number| gone.contains(&number)));
        }
    }
    Ok(())
}

/// Whether a disk that is served is the one of a file.
fn is_same(of_file: &DraftLun, served: &DraftLun) -> bool {
    let store = |lun: &DraftLun| place::absolute(&lun.store).ok().map(|store| without_size(&store));
    let rest = |lun: &DraftLun| (lun.block, lun.protection, lun.space_warning);
    store(of_file) == store(served)
        && rest(of_file) == rest(served)
        && of_file.serial == served.serial
        && served.only.is_empty()
}

fn of_lun(lun: &DraftLun, bytes: Option<u64>) -> Result<Table> {
    let mut table = Table::new();
    table["number"] = value(i64::from(lun.number));
    let store = place::absolute(&lun.store)?;
    table["store"] =
        value(bytes.map_or_else(|| store.clone(), |bytes| store_of_now(&store, bytes)));
    if lun.block != DraftLun::BLOCK {
        table["block"] = value(i64::from(lun.block));
    }
    if let Some(kind) = lun.protection {
        table["protection"] = value(i64::from(kind.number()));
    }
    if lun.space_warning > 0 {
        let size = store::spec::Exactly(lun.space_warning);
        table["space-warning"] = Item::Value(Value::from(size.to_string()));
    }
    if let Some(serial) = &lun.serial {
        table["serial"] = value(serial);
    }
    Ok(table)
}
