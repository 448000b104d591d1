// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served, as a configuration file: the file as it was read last, with the options of the
//! command line in it, and with what orders have changed since.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use control::config::Source;
use scsi::AccessState;
use scsi::Explicit;
use toml_edit::Array;
use toml_edit::ArrayOfTables;
use toml_edit::DocumentMut;
use toml_edit::Item;
use toml_edit::Table;
use toml_edit::TableLike;
use toml_edit::Value;
use toml_edit::value;

use super::Difference;
use super::Draft;
use super::check;
use super::lun::DraftLun;
use super::lun::store_of_now;
use super::node::DraftTarget;
use super::place;
use crate::args::ServeOptions;
use crate::ports;

/// The beginning of a file that was none before.
const HEAD: &str = "# What a daemon served, by lunwire dump.\n";

/// What the units say of themselves, which a draft does not know.
pub(crate) trait Served {
    /// What hosts see of a disk; None: it is served no more.
    fn bytes_of(&self, target: &str, lun: u16) -> Option<u64>;

    /// The access states of a target port group, one for each disk.
    fn states_of(&self, target: &str, group: u16) -> Vec<AccessState>;
}

/// The file, and what it does not say.
#[derive(Debug)]
pub(crate) struct Dumped {
    pub(crate) text: String,
    pub(crate) warnings: Vec<String>,
}

impl Draft {
    /// What is served of this draft, to which `options` belong.
    ///
    /// # Errors
    /// Paths that cannot be named.
    pub(crate) fn dump(&self, options: &ServeOptions, served: &dyn Served) -> Result<Dumped> {
        let mut document: DocumentMut = match &self.source {
            Some(source) => source.text().parse().context("the file as it was read")?,
            None => DocumentMut::new(),
        };
        let mut warnings = Vec::new();
        for key in ["portal", "portal-group", "target"] {
            unfold(document.as_table_mut(), key);
        }
        if let Some(source) = &self.source {
            name_places(&mut document, source)?;
        }
        let root = document.as_table_mut();
        take_options(root, options)?;
        for draft in &self.targets {
            self.write_target(root, draft, options, served, &mut warnings)?;
        }
        let of_command_line = [
            ("--capture", options.capture.is_some()),
            ("--log-json", options.log_json),
            ("--watch", options.watch),
        ];
        for (option, is_given) in of_command_line {
            if is_given {
                warnings.push(format!("{option} is for the command line alone: no file has it"));
            }
        }
        let head = if self.source.is_none() { HEAD } else { "" };
        let text = format!("{head}{document}");
        warnings.extend(self.unlike(&text, served)?);
        Ok(Dumped { text, warnings })
    }

    fn write_target(
        &self,
        root: &mut Table,
        draft: &DraftTarget,
        options: &ServeOptions,
        served: &dyn Served,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let targets = root.entry("target").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        let Some(targets) = targets.as_array_of_tables_mut() else { return Ok(()) };
        if !targets.iter().any(|table| is_named(table, &draft.name)) {
            targets.push(of_options(draft, options)?);
            if options.chap_user.is_some() {
                let discovery = root.entry("discovery").or_insert(Item::Table(Table::new()));
                take_discovery(discovery, options)?;
            }
        }
        let Some(targets) = root.get_mut("target").and_then(Item::as_array_of_tables_mut) else {
            return Ok(());
        };
        let table = targets.iter_mut().find(|table| is_named(table, &draft.name));
        let Some(table) = table else { return Ok(()) };
        if options.markers {
            table["markers"] = value(true);
        }
        take_states(table, draft, served, warnings);
        take_luns(table, draft, served, warnings)
    }

    /// What of this draft the file `text` says otherwise.
    fn unlike(&self, text: &str, served: &dyn Served) -> Result<Vec<String>> {
        let mut read = Self::new();
        let source = Source::new("the file".into(), text.to_owned());
        if let Some(wrong) = read.take_document(&source).into_iter().next() {
            return Err(wrong.context("what is served is no configuration"));
        }
        read.take_defaults()?;
        let difference = Difference::between(self, &read, served)?;
        let is_same_place = |ours: &Option<PathBuf>, theirs: &Option<PathBuf>| {
            ours.as_deref().map(std::path::absolute).transpose().ok() == Some(theirs.clone())
        };
        let is_left_out = |what: &str| {
            let only = |target: &DraftTarget, lun: &DraftLun| {
                !lun.only.is_empty() && what == format!("LUN {} of {}", lun.number, target.name)
            };
            self.targets.iter().any(|target| target.luns.iter().any(|lun| only(target, lun)))
        };
        let is_told = |what: &str| match what {
            "control-socket" => is_same_place(&self.control_socket, &read.control_socket),
            "state-dir" => is_same_place(&self.state_dir, &read.state_dir),
            _ => is_left_out(what),
        };
        let told = difference.told.into_iter().map(|one| (one.what, one.keys.join(", ")));
        let refused = difference.refused.into_iter().map(|one| (one.what, one.why));
        let all = told.chain(refused).filter(|(what, _)| !is_told(what));
        Ok(all.map(|(what, how)| format!("{what}: the file says otherwise: {how}")).collect())
    }
}

/// Lists of inline tables as tables of their own.
fn unfold(table: &mut dyn TableLike, key: &str) {
    let Some(item) = table.get_mut(key) else { return };
    if !item.is_array_of_tables() {
        let folded = std::mem::take(item);
        *item = match folded.into_array_of_tables() {
            Ok(tables) => Item::ArrayOfTables(tables),
            Err(other) => other,
        };
    }
    let tables = item.as_array_of_tables_mut().into_iter().flat_map(ArrayOfTables::iter_mut);
    for table in tables {
        for key in ["lun", "initiator", "port-group"] {
            unfold(table, key);
        }
    }
}

/// Makes paths whole, so that the file is the same wherever it is put.
fn name_places(document: &mut DocumentMut, source: &Source) -> Result<()> {
    let of_file = |text: &str| place::of_file(source, text).map_err(anyhow::Error::msg);
    let path = |table: &mut dyn TableLike, key: &str| rewrite(table, key, &of_file);
    for key in ["control-socket", "state-dir"] {
        path(document.as_table_mut(), key)?;
    }
    let secrets = |table: &mut dyn TableLike| {
        ["chap-secret-file", "mutual-secret-file"].iter().try_for_each(|key| path(table, key))
    };
    if let Some(table) = document.get_mut("discovery").and_then(Item::as_table_like_mut) {
        secrets(table)?;
    }
    let targets = document.get_mut("target").and_then(Item::as_array_of_tables_mut);
    for target in targets.into_iter().flat_map(ArrayOfTables::iter_mut) {
        secrets(target)?;
        let initiators = target.get_mut("initiator").and_then(Item::as_array_of_tables_mut);
        initiators
            .into_iter()
            .flat_map(ArrayOfTables::iter_mut)
            .try_for_each(|one| secrets(one))?;
        let luns = target.get_mut("lun").and_then(Item::as_array_of_tables_mut);
        for lun in luns.into_iter().flat_map(ArrayOfTables::iter_mut) {
            let store = |text: &str| place::store_of_file(source, text).map_err(anyhow::Error::msg);
            rewrite(lun, "store", &store)?;
        }
    }
    Ok(())
}

/// Gives a text another value, if it has another one.
fn rewrite(
    table: &mut dyn TableLike,
    key: &str,
    how: &dyn Fn(&str) -> Result<String>,
) -> Result<()> {
    let Some(item) = table.get_mut(key) else { return Ok(()) };
    let Some(old) = item.as_str() else { return Ok(()) };
    let new = how(old)?;
    if new != old {
        *item = value(new);
    }
    Ok(())
}

/// The options of the daemon itself: they take the place of what the file says.
fn take_options(root: &mut Table, options: &ServeOptions) -> Result<()> {
    let texts = [
        ("engine", &options.engine),
        ("mode", &options.mode),
        ("spin", &options.spin),
        ("login-timeout", &options.login_timeout),
        ("http", &options.http),
        ("log", &options.log),
        ("isns", &options.isns),
        ("rdma", &options.rdma),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            root[key] = value(text);
        }
    }
    let numbers = [
        ("ppes", options.ppes),
        ("reactors", options.reactors),
        ("unauthenticated-max", options.unauthenticated_max),
        ("unauthenticated-per-address", options.unauthenticated_per_address),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            root[key] = value(i64::try_from(number)?);
        }
    }
    let lists = [
        ("listen", &options.listen),
        ("rdma-listen", &options.rdma_listen),
        ("ether", &options.ether),
    ];
    for (key, list) in lists {
        if !list.is_empty() {
            root[key] = value(list.iter().map(String::as_str).collect::<Array>());
        }
    }
    if !options.cpus.is_empty() {
        let cpus: Result<Array, _> = options.cpus.iter().map(|cpu| i64::try_from(*cpu)).collect();
        root["cpus"] = value(cpus?);
    }
    if options.poll {
        root["poll"] = value(true);
    }
    for (key, path) in
        [("control-socket", &options.control_socket), ("state-dir", &options.state_dir)]
    {
        if let Some(path) = path {
            root[key] = value(whole(path)?);
        }
    }
    if let Some(text) = &options.rdma {
        let portals = root.get_mut("portal").and_then(Item::as_array_of_tables_mut);
        for portal in portals.into_iter().flat_map(ArrayOfTables::iter_mut) {
            portal.remove("rdma");
        }
        let has_adapters = check::rdma(text).is_ok_and(|provider| provider.has_adapters());
        if !has_adapters {
            root.remove("rdma-listen");
        }
    }
    Ok(())
}

/// The target of the command line, or the one that nobody has named, without its disks.
fn of_options(draft: &DraftTarget, options: &ServeOptions) -> Result<Table> {
    let mut table = Table::new();
    table["name"] = value(&draft.name);
    if let Some(identity) = &options.identity {
        table["identity"] = value(identity);
    }
    take_accounts(&mut table, options)?;
    Ok(table)
}

/// The accounts of the command line are those of discovery, too, unless the file says who may ask.
fn take_discovery(discovery: &mut Item, options: &ServeOptions) -> Result<()> {
    let Some(table) = discovery.as_table_like_mut() else { return Ok(()) };
    let demand = table.get("authentication").and_then(Item::as_str);
    if table.contains_key("chap-user") || demand.is_some_and(|demand| demand != "off") {
        return Ok(());
    }
    table.remove("authentication");
    take_accounts(table, options)
}

fn take_accounts(table: &mut dyn TableLike, options: &ServeOptions) -> Result<()> {
    for (key, name) in [("chap-user", &options.chap_user), ("mutual-user", &options.mutual_user)] {
        if let Some(name) = name {
            table.insert(key, value(name));
        }
    }
    for (key, path) in [
        ("chap-secret-file", &options.chap_secret_file),
        ("mutual-secret-file", &options.mutual_secret_file),
    ] {
        if let Some(path) = path {
            table.insert(key, value(whole(Path::new(path))?));
        }
    }
    Ok(())
}

fn whole(path: &Path) -> Result<String> {
    let whole = std::path::absolute(path)?;
    let text = whole.to_str();
    text.map(str::to_owned).with_context(|| format!("the name of {} is no text", path.display()))
}

fn is_named(table: &Table, name: &str) -> bool {
    let text = table.get("name").and_then(Item::as_str);
    text.and_then(|text| iscsi::name::normalize_configured(text).ok()).is_some_and(|it| it == name)
}

/// The access states that somebody has set.
fn take_states(
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
fn take_luns(
    target: &mut Table,
    draft: &DraftTarget,
    served: &dyn Served,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let luns = target.entry("lun").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let Some(luns) = luns.as_array_of_tables_mut() else { return Ok(()) };
    let number_of = |table: &Table, place: usize| {
        let number = table.get("number").and_then(Item::as_integer);
        number.and_then(|number| u16::try_from(number).ok()).or_else(|| u16::try_from(place).ok())
    };
    let numbers: Vec<Option<u16>> =
        luns.iter().enumerate().map(|(place, table)| number_of(table, place)).collect();
    let is_there = |number: &Option<u16>| draft.luns.iter().any(|lun| Some(lun.number) == *number);
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
        if numbers.contains(&Some(lun.number)) {
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
