// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unsolicited data, which may come before the SCSI side asks for any: the command waits for its
//! turn in CmdSN order, or for other tasks (RFC 7143 §4.2.2.1, §4.2.5.2, §11.7).
//!
//! ```text
//!   command with F=0 --> Undeclared --+-- receive_data_out --> Open ------+--> None: F has come
//!                                     +-- Reserve, a buffer -> Open ------+
//!                                     +-- Reserve, no buffer > Discarded -+
//!                                     +-- complete, fail ----> Discarded -+
//! ```
//!
//! The buffer comes from the SCSI side, if it asks for data before any has come, or else from the
//! pump by [`Output::Reserve`](crate::target_role::Output::Reserve). Only data for which there is
//! no memory is dropped; its command ends with TASK SET FULL.

/// The buffer that a task needs for its write data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferNeed {
    /// Bytes: what the SCSI side wants and the initiator has, and more where the initiator sends
    /// more than that unasked.
    pub length: u32,
    /// The mover has a buffer of the task already, with data of it: it goes on in that one, or in a
    /// longer copy.
    pub is_reserved: bool,
}

/// What became of an [`Output::Reserve`](crate::target_role::Output::Reserve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // there is no third
pub enum Room {
    /// The mover has the buffer.
    Attached,
    /// There was no memory.
    None,
}
