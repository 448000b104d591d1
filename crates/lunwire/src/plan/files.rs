// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at the files of a configuration that opens none for writing, and locks and makes none: a
//! daemon may serve them.

use anyhow::Result;
use anyhow::bail;
use engine::files::Examined;
use engine::files::OpenOptions;
use engine::files::examine;
use store::spec::FileSpec;
use store::spec::Spec;

use super::Draft;

/// A file of the configuration.
struct Seen {
    /// Target, number and store of its disk.
    place: String,
    file: Examined,
}

impl Draft {
    /// Whether all files behind the disks are there, or can be made, and none is two disks.
    pub(crate) fn examine_files(&self) -> Result<()> {
        let mut all: Vec<Seen> = Vec::new();
        for target in &self.targets {
            for lun in &target.luns {
                let place =
                    format!("target {}, LUN {}, store {}", target.name, lun.number, lun.store);
                for file in files_of(&lun.spec) {
                    let seen =
                        look(&file, lun.block).map_err(|error| error.context(place.clone()))?;
                    if let Some(other) = all.iter().find(|other| other.file.collides(&seen)) {
                        bail!(
                            "{place}: {} is a file of {} already; \
                             try: each file once, or readonly each time",
                            file.path,
                            other.place
                        );
                    }
                    all.push(Seen { place: place.clone(), file: seen });
                }
            }
        }
        Ok(())
    }
}

fn look(file: &FileSpec, block: u32) -> Result<Examined> {
    let FileSpec { path, size, direct, read_only, raw, .. } = file;
    let (direct, read_only, raw) = (*direct, *read_only, *raw);
    let options = OpenOptions { read_only, direct, create_size: *size, raw };
    let seen = examine(path.as_ref(), &options)?;
    if direct && block < seen.direct_block {
        bail!(
            "{path} has blocks of {needs} bytes: past the page cache nothing less can be read or \
             written; try: block = {needs}, or without direct",
            needs = seen.direct_block
        );
    }
    Ok(seen)
}

/// All files of a store.
fn files_of(spec: &Spec) -> Vec<FileSpec> {
    match spec {
        Spec::File(file) => vec![file.clone()],
        Spec::Iso { path } => vec![FileSpec::disc(path.clone())],
        Spec::Stripe { stores, .. } => stores.iter().flat_map(files_of).collect(),
        Spec::Filtered { behind, .. } => files_of(behind),
        Spec::Memory { .. } | Spec::Null { .. } => Vec::new(),
    }
}
