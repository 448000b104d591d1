// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NBD as its servers speak it: fixed newstyle negotiation, requests, replies. No I/O.
//!
//! The standard is `doc/proto.md` of the NBD project (version 3.25 of its reference server);
//! sections are cited by their names. All numbers on the wire are big-endian.
//!
//! A connection is a [`Handshake`] until it gives [`Outcome::Begin`], then a [`Receiver`]. Both
//! take bytes as they come. Whatever a client sends, they keep at most [`OPTION_BYTES_MAX`] of it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod export;
mod handshake;
mod number;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use export::BlockSizes;
pub use export::Export;
pub use handshake::Agreed;
pub use handshake::Handshake;
pub use handshake::OPTION_BYTES_MAX;
pub use handshake::Outcome;
pub use handshake::Tls;
pub use reply::Errno;
pub use reply::Extent;
pub use reply::Reply;
pub use request::Command;
pub use request::Item;
pub use request::PAYLOAD_MAX;
pub use request::Receiver;
pub use request::Request;

/// What ends a connection at once: the client does not speak the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Flags of the client that nobody offered ("Newstyle negotiation").
    #[error("client flags {0:#x} were not offered")]
    ClientFlags(u32),
    /// An option without its magic number.
    #[error("an option begins with {0:#018x}")]
    OptionMagic(u64),
    /// More data of an option than any has.
    #[error("an option has {0} bytes of data")]
    OptionLength(u32),
    /// `NBD_OPT_EXPORT_NAME` of an export that is not here, which has no answer.
    #[error("there is no such export")]
    NoExport,
    /// `NBD_OPT_EXPORT_NAME` outside of TLS, which has no answer.
    #[error("it wants an export without TLS")]
    NoTls,
    /// Bytes behind `NBD_OPT_STARTTLS`, which would be taken for what comes inside of TLS.
    #[error("something came between STARTTLS and TLS")]
    BeforeTls,
    /// A request without its magic number.
    #[error("a request begins with {0:#010x}")]
    RequestMagic(u32),
    /// More data of a write than this server has said that it takes.
    #[error("a write has {0} bytes of data")]
    Payload(u32),
}
