// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MPA: DDP segments on a stream of bytes (RFC 5044, RFC 6581).

mod depths;
mod initiator;
mod receiver;
mod responder;
mod sender;
mod start;

pub use depths::Depths;
pub use depths::ReadyType;
pub use initiator::Initiator;
pub use initiator::Reply;
pub use receiver::Receiver;
pub use responder::Request;
pub use responder::Responder;
pub use sender::Sender;
pub use start::Agreed;
pub use start::Offer;
pub use start::PrivateData;
pub use start::Side;

use wire::iwarp::Markers;

/// Whether FPDUs have a CRC that counts. The field is there in any case (RFC 5044 §4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // it counts, or it does not
pub enum Checks {
    /// It is zero, and not looked at.
    None,
    /// It is right, or the stream ends.
    #[default]
    Crc,
}

/// What FPDUs of a connection look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Of both directions: if one side asks for it, both do it.
    pub checks: Checks,
    /// Of what we send: the peer asked for them.
    pub sent: Markers,
    /// Of what we receive: we asked for them.
    pub received: Markers,
}

#[cfg(test)]
mod tests {
    mod framing;
    mod start;
}
