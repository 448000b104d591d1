// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served, as a configuration file: the file as it was read last, with the options of the
//! command line in it, and with what orders have changed since.

mod orders;

use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use control::config::Source;
use scsi::AccessState;
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
use super::addresses;
use super::check;
use super::lun::DraftLun;
use super::node::DraftTarget;
use super::place;
use crate::args::ServeOptions;

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
        let mut of_file = Self::new();
        if let Some(source) = &self.source {
            name_places(&mut document, source)?;
            // What is wrong with it now was right when it was read.
            let _ = of_file.take_document(source);
        }
        let root = document.as_table_mut();
        self.write_options(root, options)?;
        for draft in &self.targets {
            if draft.luns.is_empty() && draft.redirect.is_none() {
                warnings.push(format!("target {} is left out: it has no disk now", draft.name));
                remove_target(root, &draft.name);
                continue;
            }
            let known = of_file.targets.iter().find(|known| known.name == draft.name);
            write_target(root, draft, known, options, served, &mut warnings)?;
        }
        if root.get("target").and_then(Item::as_array_of_tables).is_none_or(ArrayOfTables::is_empty)
        {
            bail!("no target has a disk: there is nothing to write down");
        }
        put_in_order(root, &mut 0);
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
        self.check(&text, served)?;
        Ok(Dumped { text, warnings })
    }

    /// The options of the daemon itself: they take the place of what the file says.
    fn write_options(&self, root: &mut Table, options: &ServeOptions) -> Result<()> {
        let texts = [
            ("engine", &options.engine),
            ("mode", &options.mode),
            ("spin", &options.spin),
            ("login-timeout", &options.login_timeout),
            ("slow", &options.slow),
            ("http", &options.http),
            ("log", &options.log),
            ("isns", &options.isns),
            ("rdma", &options.rdma),
            ("sandbox", &options.sandbox),
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
        let whole_word = |word: &String| match &**word {
            "connect" | "listen" => Ok(word.clone()),
            path => whole(path.as_ref()),
        };
        let sandbox_allow: Vec<String> =
            options.sandbox_allow.iter().map(whole_word).collect::<Result<_>>()?;
        let lists = [
            ("listen", &options.listen),
            ("rdma-listen", &options.rdma_listen),
            ("ether", &options.ether),
            ("sandbox-allow", &sandbox_allow),
        ];
        for (key, list) in lists {
            if !list.is_empty() {
                root[key] = value(list.iter().map(String::as_str).collect::<Array>());
            }
        }
        if !options.cpus.is_empty() {
            let cpus: Result<Array, _> =
                options.cpus.iter().map(|cpu| i64::try_from(*cpu)).collect();
            root["cpus"] = value(cpus?);
        }
        if options.poll {
            root["poll"] = value(true);
        }
        for (key, path) in [
            ("control-socket", &options.control_socket),
            ("state-dir", &options.state_dir),
            ("http-token-file", &options.http_token_file),
            ("http-certificate", &options.http_certificate),
            ("http-key", &options.http_key),
        ] {
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
        if !options.listen.is_empty()
            && let Some(portals) = root.get_mut("portal").and_then(Item::as_array_of_tables_mut)
        {
            let known: Vec<SocketAddr> =
                self.portals().iter().map(|portal| portal.address).collect();
            let is_known = |table: &Table| {
                let text = table.get("address").and_then(Item::as_str).unwrap_or_default();
                addresses(text).is_ok_and(|found| found.iter().all(|one| known.contains(one)))
            };
            portals.retain(is_known);
        }
        let most = self.connections.strangers;
        if options.unauthenticated_max.is_some() && self.connections.strangers_of_address > most {
            root["unauthenticated-per-address"] = value(i64::try_from(most)?);
        }
        Ok(())
    }

    /// Whether the file `text` says what is served, but for what it cannot say.
    fn check(&self, text: &str, served: &dyn Served) -> Result<()> {
        let cannot = "what is served cannot be written down";
        let mut read = Self::new();
        let source = Source::new("the file".into(), text.to_owned());
        if let Some(wrong) = read.take_document(&source).into_iter().next() {
            return Err(wrong.context(cannot));
        }
        read.take_defaults()?;
        let is_same_place = |ours: &Option<PathBuf>, theirs: &Option<PathBuf>| {
            ours.as_deref().map(std::path::absolute).transpose().ok() == Some(theirs.clone())
        };
        let is_expected = |what: &str, keys: &[String]| match what {
            "control-socket" => is_same_place(&self.control_socket, &read.control_socket),
            "state-dir" => is_same_place(&self.state_dir, &read.state_dir),
            "sandbox-allow" => true,
            // More than all is all.
            "unauthenticated-per-address" => {
                self.connections.strangers_of_address >= self.connections.strangers
            }
            _ => self.targets.iter().any(|target| target.is_unsayable(what, keys)),
        };
        let Difference { told, refused, .. } = Difference::between(self, &read, served)?;
        let told = told.into_iter().map(|one| (one.what, one.keys));
        let refused = refused.into_iter().map(|one| (one.what, vec![one.why]));
        match told.chain(refused).find(|(what, keys)| !is_expected(what, keys)) {
            Some((what, how)) => bail!("{cannot}: {what}: {}", how.join(", ")),
            None => Ok(()),
        }
    }
}

impl DraftTarget {
    /// Whether a file cannot say this of it; that is told, or changes nothing.
    fn is_unsayable(&self, what: &str, keys: &[String]) -> bool {
        let name = &self.name;
        let is_left_out = |lun: &DraftLun| {
            !lun.only.is_empty() && what == format!("LUN {} of {name}", lun.number)
        };
        let has_gone = self.luns.is_empty() && self.redirect.is_none();
        // Of a list that names a disk which is gone.
        let is_of_lists = what == format!("target {name}") && keys == ["initiator"];
        let is_of_states =
            what.starts_with("port group ") && what.ends_with(&format!(" of {name}"));
        has_gone && what == format!("target {name}")
            || is_of_lists && self.lists_name_others()
            || is_of_states && keys == ["state"]
            || self.luns.iter().any(is_left_out)
    }

    /// Whether an initiator's list has the number of no disk.
    fn lists_name_others(&self) -> bool {
        let lists = self.access.iter().filter_map(|rule| rule.luns.as_ref());
        let is_there = |number: &u16| self.luns.iter().any(|lun| lun.number == *number);
        lists.flatten().any(|number| !is_there(number))
    }
}

fn write_target(
    root: &mut Table,
    draft: &DraftTarget,
    of_file: Option<&DraftTarget>,
    options: &ServeOptions,
    served: &dyn Served,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let targets = root.entry("target").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let targets = targets.as_array_of_tables_mut().context("target is no list of tables")?;
    let is_new = !targets.iter().any(|table| is_named(table, &draft.name));
    if is_new {
        targets.push(of_options(draft, options)?);
    }
    let table = targets.iter_mut().find(|table| is_named(table, &draft.name));
    let table = table.context("the target is not there")?;
    if options.markers {
        table["markers"] = value(true);
    }
    orders::take_states(table, draft, served, warnings);
    let luns = of_file.map_or(&[][..], |known| &known.luns);
    orders::take_luns(table, draft, luns, served, warnings)?;
    draft.write_limits(table, of_file.map_or(&[], |known| &known.limits));
    if is_new && options.chap_user.is_some() {
        let discovery = root.entry("discovery").or_insert(Item::Table(Table::new()));
        take_discovery(discovery, options)?;
    }
    Ok(())
}

fn remove_target(root: &mut Table, name: &str) {
    if let Some(targets) = root.get_mut("target").and_then(Item::as_array_of_tables_mut) {
        targets.retain(|table| !is_named(table, name));
    }
}

/// Gives each table its place behind those before it: of a list of tables, one that is behind
/// another entry belongs to that one.
fn put_in_order(table: &mut Table, place: &mut isize) {
    table.set_position(Some(*place));
    *place += 1;
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(table) => put_in_order(table, place),
            Item::ArrayOfTables(tables) => {
                tables.iter_mut().for_each(|table| put_in_order(table, place));
            }
            Item::None | Item::Value(_) => {}
        }
    }
}

/// Lists of inline tables as tables of their own.
fn unfold(table: &mut dyn TableLike, key: &str) {
    let Some(item) = table.get_mut(key) else { return };
    if !item.is_array_of_tables() {
        let folded = std::mem::take(item);
        *item = match folded.into_array_of_tables() {
            Ok(tables) => Item::ArrayOfTables(tables),
            // Without any of them.
            Err(Item::Value(Value::Array(list))) if list.is_empty() => {
                Item::ArrayOfTables(ArrayOfTables::new())
            }
            Err(other) => other,
        };
    }
    let tables = item.as_array_of_tables_mut().into_iter().flat_map(ArrayOfTables::iter_mut);
    for table in tables {
        for key in ["lun", "initiator", "port-group", "limit"] {
            unfold(table, key);
        }
    }
}

/// Makes paths whole, so that the file is the same wherever it is put.
fn name_places(document: &mut DocumentMut, source: &Source) -> Result<()> {
    let of_file = |text: &str| {
        let named = place::of_file(source, text).map_err(anyhow::Error::msg)?;
        // What came through a pipe has no folder.
        whole(Path::new(&named))
    };
    let path = |table: &mut dyn TableLike, key: &str| rewrite(table, key, &of_file);
    for key in ["control-socket", "state-dir", "http-token-file", "http-certificate", "http-key"] {
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
            let store = |text: &str| {
                let named = place::store_of_file(source, text).map_err(anyhow::Error::msg)?;
                place::absolute(&named)
            };
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
    if new != old
        && let Some(value) = item.as_value_mut()
    {
        // With the comment behind it.
        let decor = value.decor().clone();
        *value = Value::from(new);
        *value.decor_mut() = decor;
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
    table.remove("chap-algorithms");
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
