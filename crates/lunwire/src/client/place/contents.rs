// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is not to become the contents of a disk unless somebody says so.

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
