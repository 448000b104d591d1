// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A look at what a configuration needs of the machine besides files.

use std::io;

use anyhow::Result;
use engine::Choice;
use target::Error;
use target::Portal;

use super::Draft;

impl Draft {
    /// Whether a target could start, as far as can be seen without listening; who has its portals
    /// now does not count.
    pub(crate) fn examine_machine(&self) -> Result<()> {
        for Portal { address, .. } in self.portals() {
            let failed = |source| Error::Listen { address, source };
            engine::examine_address(address).map_err(failed)?;
        }
        if self.engine == Choice::Uring {
            let engine = self.engine.name();
            let failed = |refusal| Error::Engine { engine, source: io::Error::other(refusal) };
            engine::probe().uring.map_err(failed)?;
        }
        Ok(())
    }
}
