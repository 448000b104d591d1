// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CRC over lists whose elements say whether they count: the `C` bit of the FAST05 study, which
//! leaves markers out of a digest that is taken while the bytes are copied.

use crate::Crc32c;

/// An element of a list to be gathered.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Where the bytes are.
    pub bytes: &'a [u8],
    /// The `C` bit: whether the digest covers them.
    pub counts: bool,
}

/// An element of a list to be scattered to.
#[derive(Debug)]
pub struct PieceMut<'a> {
    /// Where the bytes go.
    pub bytes: &'a mut [u8],
    /// The `C` bit: whether the digest covers them.
    pub counts: bool,
}

impl Crc32c {
    /// Takes in the pieces that count.
    pub fn update_list<'a>(&mut self, pieces: impl IntoIterator<Item = Piece<'a>>) {
        for piece in pieces.into_iter().filter(|piece| piece.counts) {
            self.update(piece.bytes);
        }
    }

    /// Copies all pieces, one behind the other, to the front of `dst`, and takes in those that
    /// count; how many bytes were copied. What does not fit `dst` is left out.
    pub fn gather<'a>(
        &mut self,
        dst: &mut [u8],
        pieces: impl IntoIterator<Item = Piece<'a>>,
    ) -> usize {
        let mut done = 0;
        for piece in pieces {
            let len = piece.bytes.len().min(dst.len() - done);
            let (from, to) = (&piece.bytes[..len], &mut dst[done..done + len]);
            self.copy_piece(to, from, piece.counts);
            done += len;
        }
        done
    }

    /// Copies the front of `src` to all pieces, one after the other, and takes in what goes to
    /// those that count; how many bytes were copied. Pieces that `src` does not reach stay as they
    /// are.
    pub fn scatter<'a>(
        &mut self,
        pieces: impl IntoIterator<Item = PieceMut<'a>>,
        src: &[u8],
    ) -> usize {
        let mut done = 0;
        for piece in pieces {
            let len = piece.bytes.len().min(src.len() - done);
            self.copy_piece(&mut piece.bytes[..len], &src[done..done + len], piece.counts);
            done += len;
        }
        done
    }

    fn copy_piece(&mut self, dst: &mut [u8], src: &[u8], counts: bool) {
        if counts {
            self.copy_update(dst, src);
        } else {
            dst.copy_from_slice(src);
        }
    }
}
