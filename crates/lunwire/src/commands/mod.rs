// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file a command.

pub(crate) mod alua;
pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod lun;
pub(crate) mod serve;
pub(crate) mod status;
