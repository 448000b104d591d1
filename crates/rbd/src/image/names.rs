// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has become of an open image by its name, and of a snapshot.

use super::ENOENT;
use super::Fate;
use super::Image;
use super::Snap;
use crate::cluster::Refused;
use crate::cluster::check;
use crate::cluster::text;
use crate::cluster::until_zero;
use crate::error::Doing;
use crate::limits::SNAPSHOT_NAME_MAX;
use std::ffi::c_char;
use std::ffi::c_int;

impl Image {
    /// Whether the name still leads to the image, whose number is `id`, and that of the snapshot to
    /// the snapshot.
    pub(crate) fn fate(&self, id: Option<&str>, snapshot: Option<&Snap>) -> Result<Fate, Refused> {
        if let Some(Snap { name, number }) = snapshot {
            match self.snapshot_name(*number)? {
                None => return Ok(Fate::Removed),
                Some(now) if now == *name => {}
                Some(_) => {
                    let another = self.snapshot_number(name)?;
                    return Ok(another.map_or(Fate::Moved, |_| Fate::Replaced));
                }
            }
        }
        // Images of old form have no number.
        let Some(id) = id else { return Ok(Fate::Kept) };
        let mut buffer = [0_u8; 128];
        let to = buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: the context is open, the name ends with a zero, and as many bytes as are said are
        // there.
        let result = unsafe {
            let read = self.api().rados_read;
            read(self.context.handle.0, self.object.as_ptr(), to, buffer.len(), 0)
        };
        match check(Doing::Facts, result) {
            Err(Refused { errno: ENOENT, .. }) => return Ok(Fate::Moved),
            checked => checked?,
        }
        // Its length in four bytes, and the number.
        let number = buffer.get(4..usize::try_from(result).unwrap_or(0)).unwrap_or_default();
        Ok(if number == id.as_bytes() { Fate::Kept } else { Fate::Replaced })
    }

    /// The number of the snapshot that has this name; None: there is none.
    pub(super) fn snapshot_number(&self, name: &str) -> Result<Option<u64>, Refused> {
        let (name, mut number) = (text(Doing::Facts, name)?, 0);
        // SAFETY: the image is open, the name ends with a zero, the place is ours.
        let result = unsafe {
            (self.api().rbd_snap_get_id)(self.core.handle.0, name.as_ptr(), &raw mut number)
        };
        found(result).map(|is_there| is_there.then_some(number))
    }

    /// The name of the snapshot that has this number; None: there is none.
    fn snapshot_name(&self, number: u64) -> Result<Option<String>, Refused> {
        let mut buffer = [0_u8; SNAPSHOT_NAME_MAX];
        let to = buffer.as_mut_ptr().cast::<c_char>();
        // Behind a name that is as long the library puts its end.
        let mut room = buffer.len() - 1;
        // SAFETY: the image is open, and one byte more than is said is there.
        let result = unsafe {
            (self.api().rbd_snap_get_name)(self.core.handle.0, number, to, &raw mut room)
        };
        found(result).map(|is_there| is_there.then(|| until_zero(&buffer)))
    }
}

/// Whether what was asked for is there.
fn found(result: c_int) -> Result<bool, Refused> {
    match check(Doing::Facts, result) {
        Err(Refused { errno: ENOENT, .. }) => Ok(false),
        checked => checked.map(|()| true),
    }
}
