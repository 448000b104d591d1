// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proves that the simulator sees: breaks one line of the product in a copy, and the simulator must
//! notice within two minutes, by a seed that fails with nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::proofs::table;
use crate::tree;
use crate::workspace;

/// One broken line.
struct Mutant {
    name: &'static str,
    file: &'static str,
    /// What is there, once.
    from: &'static str,
    to: &'static str,
    /// The class of faults that shows it.
    class: &'static str,
}

/// Real time within which each must be noticed; the slowest takes 62 s on two processors that do
/// nothing else.
const LIMIT: Duration = Duration::from_secs(120);

/// The seed that the search begins with, where one in so many hundreds or thousands shows it: a
/// kept one, or one close before the first that does.
const RARE: &[(&str, u64)] =
    &[("claims-take-turns", 100_000), ("work-is-not-waited-for-without-end", 800)];

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "data-digest-initiator",
        file: "crates/mover/src/tcp/initiator/rx.rs",
        from: "Integrity::Corrupt => self.damage(pdu.length, context.tasks),",
        to: "Integrity::Corrupt => self.complete(pdu.control, context.tasks),",
        class: "network",
    },
    Mutant {
        name: "data-digest-target",
        file: "crates/mover/src/tcp/rx.rs",
        from: "Ok(self.end_sink(integrity, context))",
        to: "Ok(self.end_sink(Integrity::Good, context))",
        class: "network",
    },
    Mutant {
        name: "data-digest",
        file: "crates/mover/src/tcp/frame.rs",
        from: "if computed == Some(self.digest.value()) {",
        to: "if computed.is_some() {",
        class: "network",
    },
    Mutant {
        name: "header-digest",
        file: "crates/mover/src/tcp/frame.rs",
        from: "if self.digest.value() != crc::crc32c(&self.header) {",
        to: "if false {",
        class: "network",
    },
    Mutant {
        name: "lent-pages",
        file: "crates/buf/src/region.rs",
        from: "            if free {",
        to: "            if true {",
        class: "calm",
    },
    Mutant {
        name: "flush",
        file: "crates/store/src/file.rs",
        from: "Op::Flush => Some(Io::Sync { file }),",
        to: "Op::Flush => None,",
        class: "target",
    },
    Mutant {
        name: "fua",
        file: "crates/scsi/src/sbc/rw.rs",
        from: "let durable = context.cdb.fua();",
        to: "let durable = false;",
        class: "target",
    },
    Mutant {
        name: "write-through",
        file: "crates/store/src/file.rs",
        from: "let durable = *durable || self.sync;",
        to: "let durable = *durable;",
        class: "target",
    },
    Mutant {
        name: "stat-sn",
        file: "crates/iscsi/src/status.rs",
        from: "self.next = number.plus(1);",
        to: "self.next = number;",
        class: "calm",
    },
    Mutant {
        name: "data-sn-check-initiator",
        file: "crates/mover/src/tcp/initiator/task.rs",
        from: "if got == expected {",
        to: "if got >= expected {",
        class: "liar",
    },
    Mutant {
        name: "r2t-limit",
        file: "crates/iscsi/src/target_role/task/transfer.rs",
        from: "|| self.open_r2t >= open_max {",
        to: "|| self.open_r2t > open_max {",
        class: "calm",
    },
    Mutant {
        name: "ping-time-out",
        file: "crates/iscsi/src/initiator/session/control.rs",
        from: "if connection.ping.is_some() {",
        to: "if false {",
        class: "network",
    },
    Mutant {
        name: "socket-closed",
        file: "crates/target-node/src/pump/transport.rs",
        from: "port.close(socket);",
        to: "let _ = socket;",
        class: "calm",
    },
    Mutant {
        name: "reservation",
        file: "crates/scsi/src/spc/persistent/rights.rs",
        from: "_ => standing.holds || (standing.registered && kind.lets_registrants()),",
        to: "_ => true,",
        class: "calm",
    },
    Mutant {
        name: "reservation-reads",
        file: "crates/scsi/src/spc/persistent/rights.rs",
        from: "Guard::Reads if kind.lets_read() => true,",
        to: "Guard::Reads => true,",
        class: "calm",
    },
    Mutant {
        name: "reservation-registrants",
        file: "crates/wire/src/scsi/persistent.rs",
        from: "!matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)",
        to: "!matches!(self, Self::WriteExclusive)",
        class: "calm",
    },
    Mutant {
        name: "order-initiator",
        file: "crates/iscsi/src/initiator/mod.rs",
        from: "data_in_order: agreed.data_pdu_in_order && agreed.data_sequence_in_order,",
        to: "data_in_order: agreed.data_pdu_in_order || agreed.data_sequence_in_order,",
        class: "calm",
    },
    Mutant {
        name: "order-target",
        file: "crates/mover/src/tcp/burst.rs",
        from: "self.any_order = !in_order;",
        to: "self.any_order = false;",
        class: "calm",
    },
    Mutant {
        name: "compare",
        file: "crates/scsi/src/sbc/compare.rs",
        from: "match first_difference(read.bytes(), old.bytes()) {",
        to: "match first_difference(read.bytes(), read.bytes()) {",
        class: "calm",
    },
    Mutant {
        name: "portal-group",
        file: "crates/initiator/src/link/portals.rs",
        from: "self.home.filter(|_| self.in_doubt)",
        to: "self.home.filter(|_| false)",
        class: "network",
    },
    Mutant {
        name: "paths-wait-for-what-is-in-doubt",
        file: "crates/initiator/src/multipath/doubt.rs",
        from: "entry.serial != serial && entry.extent.meets(extent)",
        to: "false && entry.serial != serial && entry.extent.meets(extent)",
        class: "paths",
    },
    Mutant {
        name: "power-cycle-initiator",
        file: "crates/initiator/src/link/caches.rs",
        from: "if is_reset {",
        to: "if is_reset && false {",
        class: "target",
    },
    Mutant {
        name: "deferred-errors-initiator",
        file: "crates/initiator/src/link/caches.rs",
        from: "_ if sense.deferred => Some(Says::Failed),",
        to: "_ if sense.deferred => Some(Says::Ready),",
        class: "disk",
    },
    Mutant {
        name: "failed-flushes-initiator",
        file: "crates/initiator/src/link/caches.rs",
        from: "(None, sense) if flushes && !is_untouched(sense) => Says::Failed,",
        to: "(None, sense) if flushes && !is_untouched(sense) => Says::Ready,",
        class: "disk",
    },
    Mutant {
        name: "zeroes-are-synced",
        file: "crates/store/src/file.rs",
        from: "(_, Io::Clear { .. }) if self.sync =>",
        to: "(_, Io::Clear { .. }) if false =>",
        class: "target",
    },
    Mutant {
        name: "discovery-has-a-scope",
        file: "crates/target-node/src/registry.rs",
        from: "Some(name) if request.discovery => Scope::Discovery",
        to: "Some(name) if request.discovery => Scope::Target",
        class: "calm",
    },
    Mutant {
        name: "identity-of-reinstatement",
        file: "crates/target-node/src/registry.rs",
        from: "Some(owner) if user != Some(owner) => Claim::Foreign,",
        to: "Some(owner) if owner.is_empty() => Claim::Foreign,",
        class: "calm",
    },
    Mutant {
        name: "failure-is-kept",
        file: "crates/store/src/health.rs",
        from: "self.failure.store(log.failures, SeqCst);",
        to: "self.failure.store(0, SeqCst);",
        class: "disk",
    },
    Mutant {
        name: "shares",
        file: "crates/buf/src/pool/lists.rs",
        from: "if account == OPEN || claim == Claim::Completion {",
        to: "if true {",
        class: "calm",
    },
    Mutant {
        name: "claims-take-turns",
        file: "crates/scsi/src/exclusion.rs",
        from: "since == Some(former) || self.count(former).load(Ordering::SeqCst) == 0",
        to: "since == Some(former) || since != Some(former)",
        class: "calm",
    },
    Mutant {
        name: "slow-lines-have-time",
        file: "crates/iscsi/src/target_role/ping.rs",
        from: "            ping.deadline = now + timeout;",
        to: "            let _ = now + timeout;",
        class: "calm",
    },
    Mutant {
        name: "limit-gives-up",
        file: "crates/target-node/src/pump/management.rs",
        from: "store.give_up(op, io);",
        to: "let _ = (store, op, io);",
        class: "calm",
    },
    Mutant {
        name: "token-in-use-is-kept",
        file: "crates/scsi/src/copy/tokens.rs",
        from: "tokens.retain(|token| !token.is_expired(now) || is_in_use(token));",
        to: "tokens.retain(|token| !token.is_expired(now));",
        class: "calm",
    },
    Mutant {
        name: "shrink-waits-for-jobs",
        file: "crates/target-node/src/pump/quiescence.rs",
        from: "Key::NOBODY => jobs.get(jobs::key_of(io.task)).map(jobs::Job::task),",
        to: "Key::NOBODY => jobs.get(Key::NOBODY).map(jobs::Job::task),",
        class: "calm",
    },
    Mutant {
        name: "functions-spare-what-came-behind",
        file: "crates/target-node/src/pump/management.rs",
        from: "By::Function(id) => !session.machine.ends(id, task.id),",
        to: "By::Function(_) => false,",
        class: "network",
    },
    Mutant {
        name: "keeping-syncs-the-content",
        file: "crates/target-node/src/keep.rs",
        from: "        draft.sync()?;",
        to: "        drop(draft);",
        class: "target",
    },
    Mutant {
        name: "keeping-syncs-the-name",
        file: "crates/target-node/src/keep.rs",
        from: "if let Err(error) = self.shelf.sync() {",
        to: "if let Err(error) = io::Result::Ok(()) {",
        class: "target",
    },
    Mutant {
        name: "keeping-tells-of-failures",
        file: "crates/target-node/src/pump/keeping.rs",
        from: "self.0.run().map_err(|KeepFailed| EIO)",
        to: "self.0.run().map_err(|KeepFailed| EIO).or(Ok(()))",
        class: "target",
    },
    Mutant {
        name: "kept-before-it-is-acknowledged",
        file: "crates/target-node/src/pump/services.rs",
        from: "Step::Keep(keep) => return self.submit_keep(id, keep),",
        to: "Step::Keep(keep) => {
                    let io = self.context.remember((Key::NOBODY, id), super::Doing::Keep, None);
                    self.context.submit_keep(io, keep);
                    drop(self.context.ios.remove(io));
                    return self.resume(id, Input::Kept(Ok(())));
                }",
        class: "target",
    },
    Mutant {
        name: "keeping-is-off-the-reactor",
        file: "crates/target-node/src/pump/keeping.rs",
        from: "let chore = Box::new(Keeping(keep));",
        to: "let mut chore = Box::new(Keeping(keep)); let _ = chore.run();",
        class: "target",
    },
    Mutant {
        name: "dropped-answers-fail",
        file: "crates/store/src/foreign.rs",
        from: "        self.answer(Outcome::Failed(Error::Internal));",
        to: "        self.is_open = false;",
        class: "disk",
    },
    Mutant {
        name: "shrink-waits-for-foreign-work",
        file: "crates/target-node/src/pump/storing.rs",
        from: "Doing::Store { io, .. } => !is_pause(io),",
        to: "Doing::Store { io, .. } => !is_pause(io) && self.errand().is_none(),",
        class: "calm",
    },
    Mutant {
        name: "oldest-token-makes-room",
        file: "crates/scsi/src/copy/tokens.rs",
        from: "if tokens.len() >= limits::TOKENS_MAX {",
        to: "if false {",
        class: "calm",
    },
    Mutant {
        name: "disk-is-the-same",
        file: "crates/initiator/src/link/identity.rs",
        from: "let is_same = unit.known.is_of(&check.fresh);",
        to: "let is_same = check.asked.contains(&question);",
        class: "target",
    },
    Mutant {
        name: "disk-is-asked-again",
        file: "crates/initiator/src/link.rs",
        from: "                self.identities.is_up();\n",
        to: "",
        class: "target",
    },
    Mutant {
        name: "reset-waits-for-other-reactors",
        file: "crates/target-node/src/pump/management.rs",
        from: "self.context.wait_for_ended_work(local);",
        to: "",
        class: "disk",
    },
    Mutant {
        name: "what-is-left-fences",
        file: "crates/scsi/src/task.rs",
        from: "        mapped.is_some_and(|mapped| self.hold.fence(&mapped.unit))\n",
        to: "        let _ = mapped;\n        self.release_hold();\n        false\n",
        class: "disk",
    },
    Mutant {
        name: "work-is-not-waited-for-without-end",
        file: "crates/target-node/src/pump/fencing.rs",
        from: "since + self.shared.end_wait",
        to: "since + self.shared.end_wait * 1000",
        class: "cluster",
    },
    Mutant {
        name: "joins-keep-what-came-early",
        file: "crates/target-node/src/pump/join.rs",
        from: "self.received(key, &early);",
        to: "drop(early);",
        class: "calm",
    },
    Mutant {
        name: "shrink-waits-for-all-reactors",
        file: "crates/target-node/src/mail.rs",
        from: "        self.open.is_empty()\n",
        to: "        !self.answers.is_empty()\n",
        class: "calm",
    },
    Mutant {
        name: "reinstatement-on-another-reactor",
        file: "crates/target-node/src/registry.rs",
        from: "inner.sessions.get(identity) {",
        to: "inner.sessions.get(identity) && home.reactor == reactor {",
        class: "network",
    },
    Mutant {
        name: "token-expires",
        file: "crates/scsi/src/copy/tokens.rs",
        from: "now >= self.ends || now.0 >= self.idle_until.load(Ordering::Relaxed)",
        to: "now >= self.ends",
        class: "calm",
    },
    Mutant {
        name: "image-order-of-an-object",
        file: "crates/sim/src/rados/image.rs",
        from: "line.pieces.push_back(piece);",
        to: "line.pieces.insert(line.pieces.len().min(1), piece);",
        class: "cluster",
    },
    Mutant {
        name: "image-waits-for-the-last-piece",
        file: "crates/sim/src/rados/image.rs",
        from: "        if deed.left > 0 {",
        to: "        if deed.left > 0 && !matches!(deed.kind, Kind::Change(..)) {",
        class: "cluster",
    },
    Mutant {
        name: "image-flush-is-told-of-failures",
        file: "crates/sim/src/rados/flushes.rs",
        from: "let news = self.news.take();",
        to: "let news = self.news.take().filter(|_| false);",
        class: "cluster",
    },
    Mutant {
        name: "image-flush-waits-for-the-cache",
        file: "crates/sim/src/rados/image.rs",
        from: "        self.write_back(u64::MAX, ground);\n",
        to: "",
        class: "cluster",
    },
    Mutant {
        name: "image-durable-writes-are-flushed",
        file: "crates/sim/src/rados/front.rs",
        from: "!self.geometry.volatile_cache || !matches!",
        to: "self.geometry.volatile_cache || !matches!",
        class: "cluster",
    },
    Mutant {
        name: "image-shrink-is-noticed",
        file: "crates/sim/src/rados/front.rs",
        from: "is_some_and(|end| offset.saturating_add(length) > end)",
        to: "is_some_and(|end| offset > end)",
        class: "cluster",
    },
    Mutant {
        name: "image-silence-is-told",
        file: "crates/sim/src/rados/front.rs",
        from: "if self.sight.is_silent() {",
        to: "if false {",
        class: "cluster",
    },
    Mutant {
        name: "image-silence-is-of-its-group",
        file: "crates/sim/src/rados.rs",
        from: "self.troubles.inactive.get(&group).copied()",
        to: "self.troubles.inactive.values().max().copied()",
        class: "cluster",
    },
    Mutant {
        name: "silence-is-busy",
        file: "crates/scsi/src/sense.rs",
        from: "Error::Silent => return Fault::BUSY,",
        to: "Error::Silent => Sense::new(SenseKey::HardwareError, 0x44, 0),",
        class: "cluster",
    },
];

/// Those of them that must be noticed where all sessions go over iSER, too.
const OVER_ISER: &[&str] = &[
    "lent-pages",
    "flush",
    "fua",
    "stat-sn",
    "r2t-limit",
    "ping-time-out",
    "socket-closed",
    "reservation",
    "compare",
    "shares",
];

/// And over adapters, with room for everything.
const OVER_VERBS: &[&str] = &["flush", "fua", "stat-sn", "compare"];

/// Those that only they meet.
const VERBS_ALONE: &[Mutant] = &[Mutant {
    name: "more-reads-than-an-adapter-has",
    file: "crates/rdma/src/adapter.rs",
    from: "self.depths.reads.saturating_sub(self.reads)",
    to: "self.depths.reads.saturating_sub(0)",
    class: "calm",
}];

/// Those that nobody else meets.
const ISER_ALONE: &[Mutant] = &[
    Mutant {
        name: "mpa-crc",
        file: "crates/rdma/src/mpa/receiver.rs",
        from: "if self.checks == Checks::Crc && crc != crc32c(covered)",
        to: "if crc.is_empty() && crc != crc32c(covered)",
        class: "network",
    },
    Mutant {
        name: "stag-ends-with-its-task",
        file: "crates/rdma/src/region.rs",
        from: "        self.find(stream, stag)?;\n        self.invalidate(stag)",
        to: "        let Region { memory, filled, .. } = self.find(stream, stag)?;
        if let Memory::Source(slice) = memory {
            let filled = u64::try_from(filled.whole()).unwrap_or(u64::MAX);
            return Ok(Withdrawn { memory: Memory::Source(slice.clone()), filled });
        }
        self.invalidate(stag)",
        class: "liar",
    },
    Mutant {
        name: "memory-has-a-first-byte",
        file: "crates/rdma/src/region.rs",
        from: "place.offset.0.checked_sub(region.base.0).ok_or(Denied::Bounds)?;",
        to: "place.offset.0.saturating_sub(region.base.0);",
        class: "liar",
    },
    Mutant {
        name: "data-is-placed-before-it-is-told",
        file: "crates/mover/src/iser/target/output.rs",
        from: "        let (wanted, fresh) = (true, true);",
        to: "        self.events.push_back(Event::DataDone { task, offset, length });
        let (wanted, fresh) = (false, true);",
        class: "calm",
    },
];

/// These are of raw Ethernet.
const ETHER_ALONE: &[Mutant] = &[
    Mutant {
        name: "what-is-acknowledged-has-come",
        file: "crates/ether/src/receiver.rs",
        from: "(self.acknowledged(), u32::try_from",
        to: "(self.ranges.last().map_or(self.acknowledged(), |range| range.end), u32::try_from",
        class: "calm",
    },
    Mutant {
        name: "what-comes-twice-is-taken-once",
        file: "crates/ether/src/receiver.rs",
        from: "if !payload.is_empty() && end > self.next && end <= edge {",
        to: "if !payload.is_empty() && end <= edge {",
        class: "calm",
    },
    Mutant {
        name: "what-is-lost-is-sent-again",
        file: "crates/ether/src/sender.rs",
        from: "let first = self.segments.iter().position(|segment| segment.fate == Fate::Lost)?;",
        to: "let first = self.segments.iter().rposition(|segment| segment.fate == Fate::Come)?;",
        class: "ether",
    },
];

/// A mutant, and what all sessions go over; None: what is drawn.
type Trial = (&'static Mutant, Option<&'static str>);

fn trials() -> impl Iterator<Item = Trial> {
    let is_over_iser = |mutant: &&Mutant| OVER_ISER.contains(&mutant.name);
    let over_iser = MUTANTS.iter().filter(is_over_iser).chain(ISER_ALONE);
    let is_over_verbs = |mutant: &&Mutant| OVER_VERBS.contains(&mutant.name);
    let over_verbs = MUTANTS.iter().filter(is_over_verbs).chain(VERBS_ALONE);
    let drawn = MUTANTS.iter().map(|mutant| (mutant, None));
    let carried = over_iser.map(|mutant| (mutant, ISER));
    let over_frames = ETHER_ALONE.iter().map(|mutant| (mutant, ETHER));
    drawn.chain(carried).chain(over_verbs.map(|mutant| (mutant, VERBS))).chain(over_frames)
}

const ISER: Option<&str> = Some("iser");
const VERBS: Option<&str> = Some("verbs");
const ETHER: Option<&str> = Some("ether");

/// `stat-sn`, or `stat-sn/iser`.
fn name((mutant, transport): Trial) -> String {
    let over = transport.map(|transport| format!("/{transport}"));
    format!("{}{}", mutant.name, over.unwrap_or_default())
}

fn is_meant(trial: Trial, names: &[&str]) -> bool {
    let is_called = |wanted: &&str| *wanted == name(trial) || trial.1 == Some(*wanted);
    names.is_empty() || names.iter().any(is_called)
}

/// Runs the mutants with these names, or all; `iser` stands for all that are tried over iSER, and
/// `ether` for those over raw Ethernet. Of
/// these as many as follow `--random`, drawn by the commit.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (names, count) = match words {
        [names @ .., "--random", count] => (names, count.parse().context("--random: how many?")?),
        names => (names, usize::MAX),
    };
    let mut chosen: Vec<Trial> = trials().filter(|trial| is_meant(*trial, names)).collect();
    if count < chosen.len() {
        let commit = workspace::output_of("git", &["rev-parse", "HEAD"])?;
        chosen.sort_by_key(|trial| table::hash([commit.trim(), &name(*trial)]));
        chosen.truncate(count);
    }
    let tree = workspace::root().join("target/mutants/tree");
    tree::write(&tree, &BTreeMap::new())?;
    let whole = whole(&tree)?;
    let mut missed = Vec::new();
    let ran = chosen.len();
    for trial in chosen {
        match trial.0.try_on(&tree, trial.1, &whole)? {
            Some(what) => println!("{}: {what}", name(trial)),
            None => missed.push(name(trial)),
        }
    }
    match (ran, missed.as_slice()) {
        (0, _) => bail!("no mutant has that name"),
        (_, []) => Ok(()),
        (_, missed) => bail!("mutants that nobody noticed: {}", missed.join(", ")),
    }
}

/// The simulator with nothing broken.
fn whole(tree: &Path) -> Result<PathBuf> {
    let whole = workspace::root().join("target/mutants/whole");
    std::fs::copy(build(tree)?, &whole).with_context(|| whole.display().to_string())?;
    Ok(whole)
}

/// A seed that fails, and what the simulator says of it.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    seed: u64,
    text: String,
}

impl Failure {
    /// None: all went well. A simulator that does not run at all has noticed nothing.
    fn of(output: &Output) -> Result<Option<Self>> {
        if output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.lines().find_map(|line| {
            let (seed, _) = line.strip_prefix("FAILED seed ")?.split_once(' ')?;
            Some(Self { seed: seed.parse().ok()?, text: line.chars().take(200).collect() })
        });
        if found.is_none() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("the simulator ends with {} and names no seed: {}", output.status, said.trim());
        }
        Ok(found)
    }
}

impl Mutant {
    /// What the simulator said, and when; None: nothing. The seed must be good in the `whole` one.
    fn try_on(&self, tree: &Path, transport: Option<&str>, whole: &Path) -> Result<Option<String>> {
        let path = tree.join(self.file);
        let original = self.original(tree)?;
        std::fs::write(&path, original.replace(self.from, self.to))?;
        let built = build(tree);
        std::fs::write(&path, original)?;
        let tried = built.and_then(|program| self.simulate(&program, transport, whole));
        tried.with_context(|| format!("mutant {}", self.name))
    }

    fn simulate(
        &self,
        program: &Path,
        transport: Option<&str>,
        whole: &Path,
    ) -> Result<Option<String>> {
        let over = transport.into_iter().flat_map(|transport| ["--transport", transport]);
        let drawn: Vec<&str> = ["--class", self.class].into_iter().chain(over).collect();
        let (first, limit) = (self.first_seed().to_string(), LIMIT.as_secs().to_string());
        let search = ["--fail-fast", "--from", &first, "--time", &limit];
        let begun = Instant::now();
        let output = Command::new(program).args(search).args(&drawn).output()?;
        let took = begun.elapsed().as_secs_f64();
        let Some(Failure { seed, text }) = Failure::of(&output)? else { return Ok(None) };
        let again = ["--fail-fast", "--from", &seed.to_string(), "--count", "1"];
        let output = Command::new(whole).args(again).args(&drawn).output()?;
        if let Some(failure) = Failure::of(&output)? {
            bail!("with nothing broken: {}", failure.text);
        }
        Ok(Some(format!("noticed after {took:.1} s: {text}")))
    }

    fn first_seed(&self) -> u64 {
        RARE.iter().find(|(name, _)| *name == self.name).map_or(1, |(_, seed)| *seed)
    }

    /// Its file, in which its line stands once.
    fn original(&self, tree: &Path) -> Result<String> {
        let original = std::fs::read_to_string(tree.join(self.file))?;
        if original.matches(self.from).count() != 1 {
            bail!("{}: {} is not once in {}", self.name, self.from, self.file);
        }
        Ok(original)
    }
}

/// Builds the simulator of `tree`.
fn build(tree: &Path) -> Result<PathBuf> {
    let target = workspace::root().join("target/mutants/build");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "lunwire-sim"])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", &target)
        // Quick to build is better here than quick to run.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("RUSTFLAGS", "-A warnings")
        .status()?;
    if !built.success() {
        bail!("does not build");
    }
    Ok(target.join("release/lunwire-sim"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn who_names_no_seed_has_noticed_nothing() {
        let ended = |script: &str| {
            let output = Command::new("sh").args(["-c", script]).output().unwrap();
            Failure::of(&output).map_err(|error| error.to_string())
        };
        let line = "FAILED seed 17 class calm: a write is lost";
        let failure = Failure { seed: 17, text: line.to_owned() };
        assert_eq!(ended(&format!("echo seeds from 1; echo '{line}'; exit 1")), Ok(Some(failure)));
        assert_eq!(ended("echo 0 failures"), Ok(None));
        // As with a class that is none, or where the program breaks down.
        for script in ["echo no class clam >&2; exit 2", "kill -SEGV $$", "echo FAILED; exit 1"] {
            assert!(ended(script).is_err(), "{script}");
        }
    }

    #[test]
    fn a_seed_that_fails_with_nothing_broken_proves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, script: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            path
        };
        let fails = program("fails", "echo FAILED seed $3 class $7: no; exit 1");
        let works = program("works", "exit 0");
        let mutant = &MUTANTS[0];
        let tried = |broken, whole| mutant.simulate(broken, ISER, whole);
        assert!(tried(&fails, &works).unwrap().unwrap().contains("FAILED seed 1"));
        assert_eq!(tried(&works, &works).unwrap(), None);
        assert!(tried(&fails, &fails).is_err());
    }

    #[test]
    fn every_rare_seed_is_of_a_mutant() {
        for (name, _) in RARE {
            assert!(MUTANTS.iter().any(|mutant| mutant.name == *name), "{name}");
        }
    }

    #[test]
    fn those_over_iser_are_there() {
        for wanted in OVER_ISER.iter().chain(OVER_VERBS) {
            assert!(MUTANTS.iter().any(|mutant| mutant.name == *wanted), "{wanted}");
        }
        let mut names: Vec<String> = trials().map(name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "each trial has a name of its own");
    }

    #[test]
    fn every_mutant_has_its_line() {
        let root = workspace::root();
        for mutant in MUTANTS.iter().chain(ISER_ALONE).chain(VERBS_ALONE).chain(ETHER_ALONE) {
            mutant.original(&root).unwrap();
            assert_ne!(mutant.from, mutant.to, "{}", mutant.name);
        }
    }
}
