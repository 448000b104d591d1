// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file a command.

pub(crate) mod alua;
pub(crate) mod attach;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod discover;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod lab;
pub(crate) mod limit;
pub(crate) mod lun;
pub(crate) mod reload;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod transfer;
