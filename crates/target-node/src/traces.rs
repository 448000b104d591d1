// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces of sessions while they go on.

use std::sync::Arc;

use capture::Terms;
use capture::Trace;

use crate::pump::Letter;
use crate::pump::Shared;

/// A trace that reactors tell what connections carry, until this is dropped.
#[derive(Debug)]
pub struct Tracing {
    trace: Trace,
    shared: Arc<Shared>,
}

impl Tracing {
    pub(crate) fn begin(shared: Arc<Shared>, terms: Terms) -> Self {
        let trace = Trace::new(terms);
        for mailbox in &shared.mailboxes {
            mailbox.send(Letter::Trace { trace: trace.clone() });
        }
        Self { trace, shared }
    }

    /// What it gives.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Letter::Untrace { trace: self.trace.clone() });
        }
    }
}
