// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCSI command descriptor blocks, parameter data and sense data (SPC-4, SBC-3, SAM-5).

pub mod alua;
pub mod asc;
pub mod buffer;
pub mod capacity;
pub mod cdb;
pub mod command;
pub mod copy;
mod field;
pub mod format;
pub mod identification;
pub mod inquiry;
pub mod log;
pub mod lun;
pub mod luns;
pub mod mmc;
pub mod mode;
pub mod opcode;
pub mod persistent;
pub mod protection;
pub mod provisioning;
pub mod reservations;
pub mod rsoc;
pub mod sam;
pub mod sense;
pub mod status;
pub mod third_party;
pub mod timestamp;
pub mod token;
pub mod unmap;
pub mod vpd;

pub use lun::Lun;
pub use sense::FieldPointer;
pub use sense::Sense;
pub use sense::SenseKey;
