// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is not to become the contents of a disk unless somebody says so, and names that are none
//! of a file.

use std::path::Path;

use anyhow::Result;
use anyhow::bail;
use engine::files;

use super::Local;
use super::Place;

impl Place {
    /// Whether what is written here is on a disk, of which nothing but its contents stays.
    pub(crate) const fn is_disk(&self) -> bool {
        match self {
            Self::Disk(_) => true,
            Self::File(local) => !local.regular,
            Self::Stream => false,
        }
    }

    /// Fails for a file that is empty, or the image of a virtual machine, where it would become the
    /// contents of `to`.
    pub(crate) fn expect_contents(&self, to: &Self) -> Result<()> {
        match self {
            Self::File(local) if local.regular && to.is_disk() => local.expect_contents(to),
            _ => Ok(()),
        }
    }
}

impl Local {
    fn expect_contents(&self, to: &Place) -> Result<()> {
        let (path, to) = (&self.path, to.name());
        if self.size == 0 {
            bail!("{path} is empty; nothing was written to {to}");
        }
        match files::image_format(Path::new(path), &self.file)? {
            Some(format) => bail!(
                "{path} is an image in the format {format}, whose bytes are not those of the disk \
                 in it; nothing was written to {to}; try: qemu-img convert -O raw {path} RAW, and \
                 RAW instead, or cat {path} | lunwire copy - {to} if these bytes are meant"
            ),
            None => Ok(()),
        }
    }
}

/// Fails for a name that is one of a folder, by what is there or by its last character, and for one
/// in a folder that is not there.
pub(super) fn expect_folder(text: &str) -> Result<()> {
    let named = text.trim_end_matches('/');
    if Path::new(text).is_dir() {
        bail!("cannot write {text}: it is a folder; try: {named}/NAME");
    }
    if text.ends_with('/') {
        bail!(
            "cannot write {text}: there is no such folder; try: mkdir -p {text}, and {text}NAME, \
             or without / at the end"
        );
    }
    let folder = Path::new(text).parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| expect_there(folder, &format!("cannot write {text}")))
}

/// Fails for a folder that is not there, or cannot be told to be: `cannot` says what for.
pub(crate) fn expect_there(folder: &Path, cannot: &str) -> Result<()> {
    let shown = folder.display();
    match folder.try_exists() {
        Ok(true) => {}
        Ok(false) => {
            bail!("{cannot}: the folder {shown} does not exist; try: mkdir -p {shown}");
        }
        Err(error) => bail!(
            "{cannot}: the folder {shown} cannot be reached: {error}; try: namei -l {shown}, which \
             shows where the way there ends"
        ),
    }
    Ok(())
}
