// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire bench --layers`: where the time of a command went on both sides, and how often each
//! byte of data was touched.

use anyhow::Result;
use anyhow::bail;
use control::admin;
use control::admin::LayerTime;
use control::admin::Reply;
use control::admin::Request;
use engine::laps::Layer;
use initiator::Queue;
use serde_json::Value;
use serde_json::json;
use std::path::Path;
use std::path::PathBuf;

use crate::control_socket::asking::ask;
use crate::control_socket::asking::unexpected;
use crate::output;

/// What one side has counted.
#[derive(Clone, Debug)]
struct Side {
    /// Timed commands.
    commands: u64,
    layers: Vec<(String, Layer)>,
    copied: u64,
    /// Taken by stores in memory; none at an initiator.
    stored: u64,
    digested: u64,
    cycles_per_second: f64,
}

/// Where the target's side is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// None: the target is not asked.
    control_socket: Option<Option<PathBuf>>,
    cycles_per_second: f64,
}

/// Both sides before a measurement, or what came meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    initiator: Side,
    target: Option<Side>,
}

/// The session that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own<'a> {
    pub(crate) target: &'a str,
    pub(crate) initiator: &'a str,
}

impl Own<'_> {
    /// Fails if the daemon behind `socket` has no such session: its figures are of others.
    fn expect_at(&self, socket: Option<&Path>) -> Result<()> {
        let Reply::Sessions { sessions, silent_reactors } = ask(socket, &Request::Sessions)? else {
            return Err(unexpected(socket));
        };
        let is_own = |session: &admin::Session| {
            session.target.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(self.target))
                && session.initiator.eq_ignore_ascii_case(self.initiator)
        };
        if !silent_reactors.is_empty() || sessions.iter().any(is_own) {
            return Ok(());
        }
        let daemon = socket.map_or_else(String::new, |path| format!(" at {}", path.display()));
        let target = output::on_one_line(self.target);
        bail!(
            "the daemon{daemon} does not serve this session with {target}; try: --control-socket \
             with the path of the daemon that does"
        )
    }
}

impl Watch {
    /// `socket`: that of the daemon that serves, if it is ours; None: its default place. A target
    /// that cannot be asked, or is another one than that of `own`, is left out, unless a socket was
    /// named.
    pub(crate) fn new(socket: Option<PathBuf>, own: &Own<'_>) -> Result<Self> {
        let named = socket.is_some();
        let cycles_per_second = engine::cycles::per_second();
        let mut watch = Self { control_socket: Some(socket.clone()), cycles_per_second };
        let asked = own.expect_at(socket.as_deref()).and_then(|()| watch.target());
        if let Err(error) = asked {
            if named {
                return Err(error);
            }
            watch.control_socket = None;
        }
        Ok(watch)
    }

    fn target(&self) -> Result<Option<Side>> {
        let Some(socket) = &self.control_socket else { return Ok(None) };
        let Reply::Layers(told) = ask(socket.as_deref(), &Request::Layers)? else {
            return Err(unexpected(socket.as_deref()));
        };
        let layer = |time: &LayerTime| Layer::of(time.cycles, time.laps, &time.lengths);
        Ok(Some(Side {
            commands: told.commands,
            layers: told.layers.iter().map(|time| (time.name.clone(), layer(time))).collect(),
            copied: told.copied,
            stored: told.stored,
            digested: told.digested,
            cycles_per_second: told.cycles_per_second as f64,
        }))
    }

    /// What both sides have counted so far.
    pub(crate) fn now(&self, queue: &mut Queue) -> Result<Watched> {
        let times = queue.times();
        let layers = times.layers.into_iter().map(|(name, layer)| (name.to_owned(), layer));
        let initiator = Side {
            commands: times.requests,
            layers: layers.collect(),
            copied: times.copied,
            stored: 0,
            digested: times.digested,
            cycles_per_second: self.cycles_per_second,
        };
        Ok(Watched { initiator, target: self.target()? })
    }
}

impl Watched {
    /// What came since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        self.initiator.subtract(&before.initiator);
        if let (Some(side), Some(before)) = (&mut self.target, &before.target) {
            side.subtract(before);
        }
        self
    }

    fn sides(&self) -> impl Iterator<Item = (&'static str, &Side)> {
        let target = self.target.iter().map(|side| ("target", side));
        std::iter::once(("initiator", &self.initiator)).chain(target)
    }

    /// `payload`: bytes of data that were moved.
    pub(crate) fn print(&self, payload: u64) {
        for (name, side) in self.sides() {
            output::line(format!("  {name}: {}", side.touched(payload)));
            output::table(&side.rows());
        }
        if self.target.is_none() {
            output::line("  the target is not ours, or try: --control-socket PATH");
        }
    }

    pub(crate) fn json(&self, payload: u64) -> Value {
        let sides = self.sides().map(|(name, side)| (name.to_owned(), side.json(payload)));
        Value::Object(sides.collect())
    }
}

impl Side {
    fn subtract(&mut self, before: &Self) {
        self.commands = self.commands.saturating_sub(before.commands);
        self.copied = self.copied.saturating_sub(before.copied);
        self.stored = self.stored.saturating_sub(before.stored);
        self.digested = self.digested.saturating_sub(before.digested);
        for ((_, layer), (_, before)) in self.layers.iter_mut().zip(&before.layers) {
            layer.subtract(before);
        }
    }

    fn touched(&self, payload: u64) -> String {
        let times = |bytes: u64| bytes as f64 / payload.max(1) as f64;
        let stored = match self.stored {
            0 => String::new(),
            stored => format!(", taken by the store {:.2} times", times(stored)),
        };
        let (copied, digested) = (times(self.copied), times(self.digested));
        format!("each byte of data copied {copied:.2} times, digested {digested:.2} times{stored}")
    }

    fn microseconds(&self, cycles: u64) -> f64 {
        cycles as f64 / self.cycles_per_second * 1e6
    }

    /// Microseconds of a command that are spent in a layer.
    fn share(&self, layer: &Layer) -> f64 {
        self.microseconds(layer.cycles) / self.commands.max(1) as f64
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let head = ["    layer", "us a command", "steps", "p50 us", "p99 us"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for (name, layer) in self.layers.iter().filter(|(_, layer)| layer.laps > 0) {
            rows.push(vec![
                format!("    {name}"),
                format!("{:.3}", self.share(layer)),
                format!("{:.2}", layer.laps as f64 / self.commands.max(1) as f64),
                format!("{:.3}", self.microseconds(layer.percentile(0.5))),
                format!("{:.3}", self.microseconds(layer.percentile(0.99))),
            ]);
        }
        rows
    }

    fn json(&self, payload: u64) -> Value {
        let times = |bytes: u64| bytes as f64 / payload.max(1) as f64;
        let layers = self.layers.iter().filter(|(_, layer)| layer.laps > 0).map(|(name, layer)| {
            let value = json!({
                "us_per_command": self.share(layer),
                "steps_per_command": layer.laps as f64 / self.commands.max(1) as f64,
                "p50_us": self.microseconds(layer.percentile(0.5)),
                "p99_us": self.microseconds(layer.percentile(0.99)),
            });
            (name.clone(), value)
        });
        json!({
            "timed_commands": self.commands,
            "copied_per_byte": times(self.copied),
            "stored_per_byte": times(self.stored),
            "digested_per_byte": times(self.digested),
            "layers": Value::Object(layers.collect()),
        })
    }
}

/// What the daemon tells.
pub(crate) fn told(times: &target::Times) -> admin::Layers {
    let layer = |(name, layer): &(&'static str, Layer)| LayerTime {
        name: (*name).to_owned(),
        cycles: layer.cycles,
        laps: layer.laps,
        lengths: layer.lengths().to_vec(),
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some billions
    let cycles_per_second = engine::cycles::per_second() as u64;
    admin::Layers {
        cycles_per_second,
        commands: times.commands,
        layers: times.layers.iter().map(layer).collect(),
        payload: times.payload,
        copied: times.copied,
        stored: times.stored,
        digested: times.digested,
    }
}
