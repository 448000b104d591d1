// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who comes to a target and breaks the rules of iWARP before anybody knows him.

/// What a rogue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rogue {
    /// Half a request for a connection, and no more.
    HalfRequest,
    /// Half an FPDU, and no more.
    HalfFrame,
    /// An FPDU whose CRC is wrong.
    BrokenCrc,
    /// The second Send first.
    WrongMsn,
    /// A Send that does not begin with its first byte.
    WrongOffset,
    /// A queue that there is not.
    WrongQueue,
    /// An RDMA Write to memory that nobody has named.
    ForeignStag,
    /// An RDMA Read of memory that nobody has named.
    ForeignSource,
    /// A Login Request behind another one that is not answered.
    TwoLogins,
    /// An FPDU that is longer than a login can be.
    TooLong,
    /// A length that no segment has.
    TooShort,
    /// Markers are asked for, and the first one is wrong.
    Markers,
    /// A message that iSER does not have.
    NoPdu,
    /// He says that he is somebody else, as an impostor does.
    Impostor,
}

impl Rogue {
    /// Each of them.
    pub const ALL: [Self; 14] = [
        Self::HalfRequest,
        Self::HalfFrame,
        Self::BrokenCrc,
        Self::WrongMsn,
        Self::WrongOffset,
        Self::WrongQueue,
        Self::ForeignStag,
        Self::ForeignSource,
        Self::TwoLogins,
        Self::TooLong,
        Self::TooShort,
        Self::Markers,
        Self::NoPdu,
        Self::Impostor,
    ];
}
