// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands behind the bytes of an image, run by run.

use std::ffi::c_int;
use std::ffi::c_void;
use store::Run;
use store::Space;

/// What is known of the bytes from `offset` on.
#[derive(Debug)]
pub(crate) struct Look {
    offset: u64,
    /// The first run that is mapped: begin and end.
    mapped: Option<(u64, u64)>,
}

impl Look {
    pub(crate) const fn at(offset: u64) -> Self {
        Self { offset, mapped: None }
    }

    fn note(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        match &mut self.mapped {
            None => self.mapped = Some((offset, end)),
            Some((_, known)) if *known == offset => *known = end,
            Some(_) => {}
        }
    }

    /// What stands behind the first of `length` bytes, and of how many.
    pub(crate) fn run(&self, length: u64) -> Run {
        let end = self.offset.saturating_add(length);
        match self.mapped {
            Some((from, to)) if from <= self.offset && to > self.offset => {
                Run { space: Space::Mapped, length: to.min(end) - self.offset }
            }
            Some((from, _)) if from > self.offset => {
                Run { space: Space::Deallocated, length: from.min(end) - self.offset }
            }
            _ => Run { space: Space::Deallocated, length },
        }
    }
}

/// Called for each run of bytes that is there or is not, with a [`Look`].
pub(crate) unsafe extern "C" fn extent(
    offset: u64,
    length: usize,
    exists: c_int,
    look: *mut c_void,
) -> c_int {
    // SAFETY: the library hands on what `status` has given it, calls one after the other, and not
    // after `status` has returned.
    let look = unsafe { look.cast::<Look>().as_mut() };
    if let Some(look) = look
        && exists != 0
    {
        look.note(offset, length as u64);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_begin_where_they_are_asked_for() {
        let run = |extents: &[(u64, u64)]| {
            let mut look = Look { offset: 1000, mapped: None };
            extents.iter().for_each(|(offset, length)| look.note(*offset, *length));
            let Run { space, length } = look.run(500);
            (space, length)
        };
        assert_eq!(run(&[]), (Space::Deallocated, 500));
        assert_eq!(run(&[(1000, 100), (1100, 100), (1300, 9)]), (Space::Mapped, 200));
        assert_eq!(run(&[(0, 4096)]), (Space::Mapped, 500));
        assert_eq!(run(&[(1200, 9)]), (Space::Deallocated, 200));
        assert_eq!(run(&[(0, 10)]), (Space::Deallocated, 500));
        assert_eq!(run(&[(9000, 10)]), (Space::Deallocated, 500));
    }
}
