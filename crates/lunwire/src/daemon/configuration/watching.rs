// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks at the files of a daemon from time to time.

use std::fs::Metadata;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use super::Configuration;
use super::LOOK;
use super::files::are_same;
use super::files::facts;
use super::files::is_same;
use crate::daemon::periodic::Periodic;
use crate::output;

/// # Errors
/// The file of `configuration` cannot be looked at.
pub(crate) fn expect_file(configuration: &Configuration) -> Result<()> {
    let file = configuration.options.config.as_deref();
    file.map_or(Ok(()), |path| facts(path).map(drop).context("--watch"))
}

/// Looks whether the file of `configuration` has changed, or one of the certificate of HTTP, and
/// calls `changed` with what has if it has, until it is dropped. None: there is no file.
pub(crate) fn watch(
    configuration: &Arc<Configuration>,
    changed: impl Fn(&'static str) + Send + 'static,
) -> Result<Option<Periodic>> {
    let Some(path) = configuration.options.config.clone() else { return Ok(None) };
    let configuration = Arc::clone(configuration);
    let (mut seen, mut told): (Option<Metadata>, Option<String>) = (None, None);
    let mut warn = move |error: Option<&anyhow::Error>| {
        let text = error.map(output::chain);
        if let Some(text) = text.as_ref().filter(|_| told != text) {
            tracing::warn!("the configuration stays as it is: {text}");
        }
        told = text;
    };
    let mut certificate = Certificate::default();
    let look = move || {
        if certificate.has_changed(&configuration) {
            changed("the certificate of HTTP, or its key, has changed");
        }
        let now = match facts(&path) {
            Ok(now) => now,
            Err(error) => return warn(Some(&error)),
        };
        if seen.as_ref().is_some_and(|seen| is_same(seen, &now)) {
            return;
        }
        match configuration.is_as_read(&path) {
            // It is looked at again.
            None => {}
            Some(Err(error)) => warn(Some(&error)),
            Some(Ok(is_as_read)) => {
                warn(None);
                seen = Some(now);
                if !is_as_read {
                    changed("it has changed");
                }
            }
        }
    };
    Periodic::start("configuration", LOOK, look).map(Some)
}

/// The files of the certificate of HTTP, which come one after the other.
#[derive(Default)]
struct Certificate {
    /// As they were at the last look.
    seen: Vec<Option<Metadata>>,
    /// Those that were told of last: they may be no good.
    told: Vec<Option<Metadata>>,
}

impl Certificate {
    /// Whether they are others than were read, and stand still: certificate and key belong
    /// together.
    fn has_changed(&mut self, configuration: &Configuration) -> bool {
        // Who has it in hand reads them.
        let Ok(known) = configuration.now.try_lock() else { return false };
        let tls = &known.draft.http_tls;
        let now = tls.facts();
        let is_other = |known: &[Option<Metadata>]| !Self::are_same(known, &now);
        let has_changed =
            !is_other(&self.seen) && is_other(tls.facts_as_read()) && is_other(&self.told);
        if has_changed {
            self.told.clone_from(&now);
        }
        self.seen = now;
        has_changed
    }

    fn are_same(one: &[Option<Metadata>], other: &[Option<Metadata>]) -> bool {
        let mut pairs = one.iter().zip(other);
        one.len() == other.len() && pairs.all(|(one, other)| are_same(one.as_ref(), other.as_ref()))
    }
}
