// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fixed interval marker (RFC 3720 §A.1).

/// Bytes of a marker.
pub const MARKER_LEN: usize = 8;

/// Where the next PDU begins, said twice: a marker that spans two TCP segments leaves one copy
/// whole in one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Payload bytes from the marker to the next header: the first copy.
    pub first: u32,
    /// The second copy.
    pub second: u32,
}

impl Marker {
    /// A marker with two equal copies.
    #[must_use]
    pub const fn new(pointer: u32) -> Self {
        Self { first: pointer, second: pointer }
    }

    /// Total: whatever the bytes say.
    #[must_use]
    pub const fn parse([a, b, c, d, e, f, g, h]: [u8; MARKER_LEN]) -> Self {
        Self { first: u32::from_be_bytes([a, b, c, d]), second: u32::from_be_bytes([e, f, g, h]) }
    }

    /// The bytes.
    #[must_use]
    pub fn emit(self) -> [u8; MARKER_LEN] {
        let mut bytes = [0; MARKER_LEN];
        let (first, second) = bytes.split_at_mut(MARKER_LEN / 2);
        first.copy_from_slice(&self.first.to_be_bytes());
        second.copy_from_slice(&self.second.to_be_bytes());
        bytes
    }

    /// The pointer, if both copies say the same.
    #[must_use]
    pub fn pointer(self) -> Option<u32> {
        (self.first == self.second).then_some(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let marker = Marker::new(0x0102_0304);
        assert_eq!(marker.emit(), [1, 2, 3, 4, 1, 2, 3, 4]);
        assert_eq!(Marker::parse(marker.emit()), marker);
        assert_eq!(marker.pointer(), Some(0x0102_0304));
        let torn = Marker::parse([0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!((torn.first, torn.second, torn.pointer()), (1, 2, None));
        assert_eq!(torn.emit(), [0, 0, 0, 1, 0, 0, 0, 2]);
    }
}
