// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The studies that this project implements, re-run on the reader's machine; the command line
//! calls it.
//!
//! A study gives a [`Report`]: what it measured beside what was published, as tables, as figures
//! and as a conclusion for each figure.
#![forbid(unsafe_code)]

pub mod amp;
pub mod fast05;
mod figure;
mod html;
mod measure;
mod report;
mod threads;
pub mod unh;

pub use report::{Conclusion, PAGE, RESULTS, Report, Section, Table, is_report};

/// Why a study cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not enough memory for the buffers.
    #[error("no memory for {0} bytes of buffers")]
    Memory(usize),
    /// The fast path did not do what it was driven to do: a defect of ours.
    #[error("the sandbox went wrong: {0}")]
    Sandbox(String),
    /// Target and initiator did not run together: not enough memory, threads or descriptors, or a
    /// defect of ours.
    #[error("the rig of target and initiator failed: {0}")]
    Rig(String),
}
