// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How work is divided between threads: file, options, and whether they fit together.

use std::fmt;

use anyhow::Result;
use control::config::Config;
use control::config::Source;
use target::Idle;
use target::Mode;

use super::check;
use super::checked;
use super::option;
use crate::args::ServeOptions;
use crate::args::Usage;

/// What was said of it so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DraftMode {
    pub(super) amp: bool,
    pub(super) ppes: Option<usize>,
    pub(super) poll: bool,
}

impl DraftMode {
    pub(super) fn take_file(&mut self, source: &Source, config: &Config) -> Result<()> {
        if let Some(value) = &config.mode {
            self.amp = checked(source, "mode", value, |text| check::mode(text))?;
        }
        if let Some(value) = &config.ppes {
            self.ppes = Some(checked(source, "ppes", value, |count| check::reactors(*count))?);
        }
        if let Some(value) = &config.poll {
            self.poll = *value.get_ref();
        }
        Ok(())
    }

    pub(super) fn take_options(&mut self, options: &ServeOptions) -> Result<()> {
        if let Some(text) = &options.mode {
            self.amp = option("--mode", text, check::mode(text))?;
        }
        if let Some(count) = options.ppes {
            self.ppes = Some(option("--ppes", count, check::reactors(count))?);
        }
        self.poll |= options.poll;
        Ok(())
    }

    /// Whether all that was said goes together, for so many reactors.
    pub(super) fn check(&self, reactors: usize) -> Result<()> {
        let wrong = |problem: &dyn fmt::Display| Err(Usage(problem.to_string()).into());
        match self.ppes {
            _ if !self.amp && (self.ppes.is_some() || self.poll) => wrong(
                &"ppes and poll are for polling cores, which mode smp has none of; try: --mode amp",
            ),
            Some(ppes) if ppes > reactors => wrong(&format_args!(
                "{ppes} polling cores for {reactors} reactors: some would have nothing to do; \
                 try: --reactors {ppes}"
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn mode(&self, reactors: usize) -> Mode {
        let idle = if self.poll { Idle::Poll } else { Idle::Sleep };
        match self.amp {
            false => Mode::Smp,
            true => Mode::Amp { cores: self.ppes.unwrap_or(reactors), idle },
        }
    }
}
