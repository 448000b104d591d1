// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Target transfer tags of a connection that name no burst: of pings, texts and DataACKs.

use wire::iscsi::Ttt;

/// Draws tags: each unlike the one before, never the reserved one.
#[derive(Debug, Default)]
pub(super) struct Tags {
    last: u32,
}

impl Tags {
    pub(super) fn next(&mut self) -> Ttt {
        self.last = self.last.wrapping_add(1);
        if Ttt(self.last) == Ttt::NONE {
            self.last = 1;
        }
        Ttt(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_tag_is_never_drawn() {
        let mut tags = Tags { last: u32::MAX - 2 };
        assert_eq!([tags.next(), tags.next(), tags.next()], [Ttt(u32::MAX - 1), Ttt(1), Ttt(2)]);
    }
}
