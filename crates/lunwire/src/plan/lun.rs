// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A logical unit of the configuration.

use anyhow::Result;
use control::admin::NewLun;
use control::config;
use control::config::Source;
use scsi::ProtectionType;
use store::spec::Filter;
use store::spec::Spec;
use target::LUN_NUMBER_MAX;

use super::checked;
use super::place;

#[derive(Clone, Debug)]
pub(crate) struct DraftLun {
    pub(super) number: u16,
    pub(super) store: String,
    pub(super) spec: Spec,
    pub(super) block: u32,
    pub(super) protection: Option<ProtectionType>,
    pub(super) serial: Option<String>,
    /// Bytes; zero: hosts are not warned.
    pub(super) space_warning: u64,
    /// Those that alone see it, whatever the rules of its target say: of one that was added while
    /// the daemon runs. Without any the rules say who does.
    pub(super) only: Vec<String>,
}

impl DraftLun {
    /// Bytes of a block, if nobody says otherwise.
    pub(super) const BLOCK: u32 = 512;

    pub(crate) fn new(number: u16, word: &str, spec: Spec) -> Self {
        Self {
            number,
            store: word.to_owned(),
            spec,
            block: Self::BLOCK,
            protection: None,
            serial: None,
            space_warning: 0,
            only: Vec::new(),
        }
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    /// The same, which these initiators alone see.
    pub(crate) fn only_for(self, only: Vec<String>) -> Self {
        Self { only, ..self }
    }

    /// One that is to be added to a running daemon; the error names the option and says what is
    /// right.
    pub(crate) fn from_order(number: u16, order: &NewLun) -> Result<Self, String> {
        let of = |option: &str, value: &dyn std::fmt::Display, problem: &dyn std::fmt::Display| {
            format!("{option} {value}: {problem}")
        };
        let (word, place) = (&order.store, "STORE");
        let spec = word.parse::<Spec>().map_err(|error| of(place, word, &error))?;
        let mut draft = Self::new(number, word, spec);
        let optical = draft.spec.is_optical();
        if optical && (order.block.is_some() || order.space_warning.is_some()) {
            return Err(of(place, word, &"a CD or DVD has neither --block nor --space-warning"));
        }
        if draft.spec.is_device() {
            let options = [
                ("--block", order.block.is_some()),
                ("--space-warning", order.space_warning.is_some()),
                ("--serial", order.serial.is_some()),
            ];
            if let Some((option, _)) = options.iter().find(|(_, given)| *given) {
                return Err(format!("{option}: {DEVICE_HAS_ITS_OWN}"));
            }
        }
        if let Some(length) = order.block {
            draft.block = block(length).map_err(|right| of("--block", &length, &right))?;
        }
        if let Some(kind) = order.protection {
            let checked = protection(kind, &draft.spec);
            draft.protection = Some(checked.map_err(|right| of("--protection", &kind, &right))?);
        }
        if let Some(text) = &order.serial {
            let checked = serial(text);
            draft.serial = Some(checked.map_err(|right| of("--serial", text, &right))?);
        }
        if let Some(text) = &order.space_warning {
            let size = store::spec::parse_size(text);
            draft.space_warning = size.map_err(|right| of("--space-warning", text, &right))?;
        }
        Ok(draft)
    }

    /// As an order for another daemon has it.
    ///
    /// # Errors
    /// Its path cannot be named.
    pub(super) fn to_order(&self) -> Result<NewLun> {
        let is_plain = self.spec.is_optical() || self.spec.is_device();
        let space_warning = (self.space_warning > 0).then(|| self.space_warning.to_string());
        Ok(NewLun {
            store: place::absolute(&self.store)?,
            block: (!is_plain).then_some(self.block),
            protection: self.protection.map(|kind| match kind {
                ProtectionType::One => 1,
                ProtectionType::Two => 2,
                ProtectionType::Three => 3,
            }),
            serial: self.serial.clone(),
            space_warning,
            initiators: self.only.clone(),
        })
    }

    pub(super) fn from_file(source: &Source, number: u16, lun: &config::Lun) -> Result<Self> {
        let field = "target.lun.store";
        let word = checked(source, field, &lun.store, |text| place::store_of_file(source, text))?;
        let spec = checked(source, field, &lun.store, |_| word.parse::<Spec>())?;
        let mut draft = Self::new(number, &word, spec);
        for word in &lun.filters {
            draft.spec = checked(source, "target.lun.filters", word, |text| {
                let filter: Filter = text.parse()?;
                format!("{},{filter}", draft.spec).parse::<Spec>()
            })?;
            draft.store = format!("{},{}", draft.store, word.get_ref());
        }
        if let Some(value) = &lun.block {
            draft.block = checked(source, "target.lun.block", value, |b| {
                if draft.spec.is_optical() {
                    return Err("a CD or DVD has blocks of 2048 bytes; leave it out");
                }
                if draft.spec.is_device() {
                    return Err(DEVICE_HAS_ITS_OWN);
                }
                block(*b)
            })?;
        }
        if let Some(value) = &lun.protection {
            draft.protection = Some(checked(source, "target.lun.protection", value, |n| {
                protection(*n, &draft.spec)
            })?);
        }
        if let Some(value) = &lun.space_warning {
            draft.space_warning = checked(source, "target.lun.space-warning", value, |text| {
                if draft.spec.is_optical() {
                    return Err("a CD or DVD takes no space; leave it out".to_owned());
                }
                if draft.spec.is_device() {
                    return Err(DEVICE_HAS_ITS_OWN.to_owned());
                }
                store::spec::parse_size(text).map_err(|error| error.to_string())
            })?;
        }
        if let Some(value) = &lun.serial {
            let serial = checked(source, "target.lun.serial", value, |text| {
                if draft.spec.is_device() {
                    return Err(DEVICE_HAS_ITS_OWN.to_owned());
                }
                serial(text)
            })?;
            draft.serial = Some(serial);
        }
        Ok(draft)
    }
}

/// Why a setting of a disk is none of a device that is passed through.
const DEVICE_HAS_ITS_OWN: &str = "a device says that itself; leave it out";

/// The word of a store whose disk has `bytes` now: `size=` is for making a file, which may have had
/// another size, or may have got one.
pub(crate) fn store_of_now(word: &str, bytes: u64) -> String {
    if !word.starts_with("file:") {
        return word.to_owned();
    }
    let now = |option: &str| match option.strip_prefix("size=").map(store::spec::parse_size) {
        Some(size) if size != Ok(bytes) => format!("size={}", store::spec::Exactly(bytes)),
        _ => option.to_owned(),
    };
    word.split(',').map(now).collect::<Vec<_>>().join(",")
}

/// Whether a store is memory, or a part of it is.
pub(crate) fn is_in_memory(spec: &Spec) -> bool {
    match spec {
        Spec::Memory { .. } => true,
        Spec::Stripe { stores, .. } => stores.iter().any(is_in_memory),
        Spec::Filtered { behind, .. } => is_in_memory(behind),
        Spec::File(_)
        | Spec::Iso { .. }
        | Spec::Null { .. }
        | Spec::Rbd(_)
        | Spec::Remote(_)
        | Spec::Scsi(_) => false,
    }
}

/// Whether something of it begins anew with each process.
pub(crate) fn is_fleeting(spec: &Spec) -> bool {
    match spec {
        Spec::Memory { .. } | Spec::Null { .. } => true,
        Spec::Stripe { stores, .. } => stores.iter().any(is_fleeting),
        Spec::Filtered { behind, .. } => is_fleeting(behind),
        Spec::File(_) | Spec::Iso { .. } | Spec::Rbd(_) | Spec::Remote(_) | Spec::Scsi(_) => false,
    }
}

/// The same without what is in front of it, which makes no other disk of it.
pub(crate) fn without_filters(spec: &Spec) -> Spec {
    match spec {
        Spec::Filtered { behind, .. } => without_filters(behind),
        Spec::Stripe { chunk, stores } => {
            Spec::Stripe { chunk: *chunk, stores: stores.iter().map(without_filters).collect() }
        }
        other => other.clone(),
    }
}

/// Bytes of memory that hosts can fill.
pub(crate) fn memory_of(spec: &Spec) -> u64 {
    match spec {
        Spec::Memory { bytes } => *bytes,
        Spec::Stripe { stores, .. } => memory_of_all(stores),
        Spec::Filtered { behind, .. } => memory_of(behind),
        Spec::File(_)
        | Spec::Iso { .. }
        | Spec::Null { .. }
        | Spec::Rbd(_)
        | Spec::Remote(_)
        | Spec::Scsi(_) => 0,
    }
}

/// Bytes of memory that all of these can take.
pub(crate) fn memory_of_all<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> u64 {
    specs.into_iter().map(memory_of).fold(0, u64::saturating_add)
}

/// The initiators that an order names, normalized; the error names the option.
pub(crate) fn initiators(order: &NewLun) -> Result<Vec<String>, String> {
    let normalized = |name: &String| {
        iscsi::name::normalize_configured(name)
            .map_err(|error| format!("--initiator {name}: {error}"))
    };
    order.initiators.iter().map(normalized).collect()
}

pub(crate) fn number(number: u16) -> Result<u16, &'static str> {
    if number <= LUN_NUMBER_MAX { Ok(number) } else { Err("0 to 16383 is right") }
}

fn block(length: u32) -> Result<u32, &'static str> {
    if matches!(length, 512 | 4096) { Ok(length) } else { Err("512 or 4096 is right") }
}

pub(super) fn protection(number: u8, spec: &Spec) -> Result<ProtectionType, String> {
    spec.protectable().map_err(|error| error.to_string())?;
    ProtectionType::from_number(number).ok_or_else(|| "1, 2 or 3 is right".into())
}

pub(super) fn serial(text: &str) -> Result<String, String> {
    const RIGHT: &str = "1 to 32 printable ASCII characters without blanks are right";
    if let Some(wrong) = text.chars().find(|one| !one.is_ascii_graphic()) {
        return Err(format!("{RIGHT}, and {wrong:?} is none"));
    }
    match text.len() {
        1..=32 => Ok(text.to_owned()),
        length => Err(format!("{RIGHT}, and it has {length}")),
    }
}
