// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders: what each does, and that none does anything while another process takes over.

use std::path::Path;

use anyhow::Result;
use anyhow::bail;
use control::admin::Reply;
use control::admin::Request;
use target::Event;
use target::LimitSnapshot;
use target::Shrink;
use target::SnapshotPlace;
use target::VolumeError;

use super::Shared;
use crate::daemon::clients::TAKEN_OVER;
use crate::daemon::limits;
use crate::output;
use crate::plan;
use crate::plan::Dumped;
use crate::ports;

impl Shared {
    /// The answer of an order once it is done, or to a question.
    pub(super) fn carry_out(&self, request: &Request, is_wanted: &dyn Fn() -> bool) -> Reply {
        let Some(pass) = self.configuration.gate().enter() else {
            return Reply::Error { message: TAKEN_OVER.to_owned() };
        };
        match request {
            Request::ResizeLun { target, lun, bytes, shrink } => {
                let shrink = if *shrink { Shrink::Allowed } else { Shrink::Refused };
                self.resize(target.as_deref(), *lun, (*bytes, shrink), is_wanted)
            }
            Request::AddLun { target, number, lun } => {
                told(self.add(target.as_deref(), *number, lun, is_wanted))
            }
            Request::RemoveLun { target, lun, destroy_data } => {
                told(self.remove(target.as_deref(), *lun, *destroy_data))
            }
            Request::RescanLuns => self.rescan(),
            Request::SnapshotLun { target, lun, path, name } => {
                let place = SnapshotPlace { path: Path::new(path), name: name.as_deref() };
                self.snapshot(target.as_deref(), *lun, place, is_wanted)
            }
            Request::Reload { dry_run, destroy_data } => {
                let reloaded = self.configuration.reload(&pass, *dry_run, *destroy_data);
                told(reloaded.map(Reply::Reloaded))
            }
            Request::Dump => {
                let dumped = |Dumped { text, warnings }| Reply::Dumped { text, warnings };
                told(self.configuration.dump().map(dumped))
            }
            Request::SetLimit { target, lun, initiator, iops, bandwidth, sessions } => {
                let (of, most) = ((*lun, initiator.as_deref()), (*iops, *bandwidth, *sessions));
                done(self.limit(target.as_deref(), of, most))
            }
            Request::SetPortGroup { target, lun, group, state } => {
                done(self.set_state(target, *lun, *group, state))
            }
            // Whoever speaks with them has a thread.
            Request::Trace(_) | Request::TakeOver { .. } => Reply::Error {
                message:
                    "there is no thread or descriptor for that now; try: again in a moment, or \
                          higher bounds (ulimit -n, TasksMax)"
                        .to_owned(),
            },
            other => self.answer(other).unwrap_or_else(|| Reply::Error {
                message: "this daemon does not know that order".to_owned(),
            }),
        }
    }

    /// The answer of `order` about a target, or about the only one there is.
    pub(super) fn of_target(
        &self,
        name: Option<&str>,
        order: impl FnOnce(&str) -> Result<Reply, VolumeError>,
    ) -> Reply {
        told(self.name_of(name).and_then(|name| Ok(order(&name)?)))
    }

    /// The target that is meant, by the name that it has: who names it may do so as logins do.
    pub(super) fn name_of(&self, name: Option<&str>) -> Result<String> {
        match (name, &self.target.names()[..]) {
            (Some(name), all) => {
                let prepared = iscsi::name::prepared(name);
                let known = all.iter().find(|known| **known == prepared);
                Ok(known.map_or_else(|| name.to_owned(), String::clone))
            }
            (None, [only]) => Ok(only.clone()),
            (None, _) => bail!("there are several targets; try: --target IQN"),
        }
    }

    /// Gives a target port group another state, of one disk or of all.
    fn set_state(
        &self,
        name: &str,
        lun: Option<u16>,
        group: u16,
        state: &str,
    ) -> Result<(), String> {
        let name = self.name_of(Some(name)).map_err(|error| output::chain(&error))?;
        match lun {
            None => self.configuration.set_state(&name, group, state),
            Some(_) => ports::set(&self.target, &name, lun, group, state).map(drop),
        }
    }

    /// Limits a unit or an initiator, or does so no more.
    fn limit(
        &self,
        name: Option<&str>,
        of: (Option<u16>, Option<&str>),
        most: (Option<u64>, Option<u64>, Option<u64>),
    ) -> Result<(), String> {
        let name = self.name_of(name).map_err(|error| output::chain(&error))?;
        let limit = limits::of_order(&self.target, &name, of, most)?;
        let of = plan::limit::shown(&limit.of);
        let is_it = |known: &LimitSnapshot| known.target == name && known.limit.of == limit.of;
        match most {
            (None, None, None) if !self.target.limits().iter().any(is_it) => {
                return Err(format!("{of} of {name} has no limit; try: lunwire limit"));
            }
            (None, None, None) => tracing::info!(
                name: Event::Limit.name(), target = name, of, "limited no more"
            ),
            (iops, bandwidth, sessions) => {
                tracing::info!(
                    name: Event::Limit.name(), target = name, of, iops, bandwidth, sessions,
                    "limited"
                );
            }
        }
        self.configuration.limit(&name, limit);
        Ok(())
    }
}

/// The answer of an order that may not be met.
fn told(reply: Result<Reply>) -> Reply {
    reply.unwrap_or_else(|error| Reply::Error { message: output::chain(&error) })
}

/// The same, where there is nothing to tell.
fn done(done: Result<(), String>) -> Reply {
    match done {
        Ok(()) => Reply::Done,
        Err(message) => Reply::Error { message },
    }
}
