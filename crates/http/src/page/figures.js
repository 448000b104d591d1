// SPDX-License-Identifier: Apache-2.0 OR MIT
// Rates and times out of two loads (/api/v1/load), and how they are written.

/** The longest length that a step of `lengths` has, in counts of the time-stamp counter. */
export function endOf(step) {
  if (step < 4) return step;
  return (5 + step % 4) * 2 ** (Math.floor(step / 4) - 1) - 1;
}

/** The length that `share` of the stays do not exceed, in seconds; null: there were none. */
export function percentile(lengths, share, cyclesPerSecond) {
  const laps = lengths.reduce((sum, count) => sum + count, 0);
  if (laps === 0) return null;
  let seen = 0;
  for (const [step, count] of lengths.entries()) {
    seen += count;
    if (count > 0 && seen >= share * laps) return endOf(step) / cyclesPerSecond;
  }
  return null;
}

/** What came since `before`, of a count that begins anew with what it counts. */
function came(now, before) {
  return before === undefined || before > now ? now : now - before;
}

/** Times of one name that came since; `before` may be missing. */
function timesSince(now, before) {
  const anew = before === undefined || before.laps > now.laps;
  return {
    name: now.name,
    cycles: anew ? now.cycles : now.cycles - before.cycles,
    lengths: now.lengths.map((count, step) => anew ? count : count - (before.lengths[step] ?? 0)),
  };
}

/** The same for a list of them. */
export function allSince(now, before) {
  const known = new Map((before ?? []).map((times) => [times.name, times]));
  return now.map((times) => timesSince(times, known.get(times.name)));
}

/** Lengths of several times, together. */
export function joined(all) {
  const sum = [];
  for (const { lengths } of all) {
    lengths.forEach((count, step) => { sum[step] = (sum[step] ?? 0) + count; });
  }
  return Array.from(sum, (count) => count ?? 0);
}

export const keyOfLun = ({ target, lun }) => JSON.stringify(["lun", target, lun]);
export const keyOfSession = ({ tsih, initiator }) => JSON.stringify(["session", tsih, initiator]);

/** Whether two loads are of one daemon, one behind the other, and have the same reactors. */
export function follow(now, before) {
  const silent = (load) => String(load.silent_reactors ?? []);
  return now.uptime_ms > before.uptime_ms && silent(now) === silent(before);
}

/** What each did in a second, by key; `long`: a load of some seconds ago, for times. */
export function rates(now, before, long) {
  const seconds = (now.uptime_ms - before.uptime_ms) / 1000;
  const all = new Map();
  const by = (load, list, key) => new Map(load[list].map((one) => [key(one), one]));
  const [luns, lunsLong] = [by(before, "luns", keyOfLun), by(long, "luns", keyOfLun)];
  const sum = { reads: 0, writes: 0, read: 0, written: 0, tasks: 0 };
  const timed = [];
  for (const lun of now.luns) {
    const known = luns.get(keyOfLun(lun));
    const rate = (name) => came(lun[name], known?.[name]) / seconds;
    const times = dataTimes(lun, lunsLong.get(keyOfLun(lun)));
    timed.push(...times);
    const one = {
      reads: rate("reads"), writes: rate("writes"), read: rate("read_bytes"),
      written: rate("written_bytes"), errors: lun.errors, ...shares(times, now),
    };
    all.set(keyOfLun(lun), one);
    for (const name of ["reads", "writes", "read", "written"]) sum[name] += one[name];
  }
  const sessions = by(before, "sessions", keyOfSession);
  const sessionsLong = by(long, "sessions", keyOfSession);
  for (const session of now.sessions) {
    const known = sessions.get(keyOfSession(session));
    const rate = (name) => came(session[name], known?.[name]) / seconds;
    const times = dataTimes(session, sessionsLong.get(keyOfSession(session)));
    all.set(keyOfSession(session), {
      commands: rate("commands"), read: rate("read_bytes"), written: rate("written_bytes"),
      tasks: session.tasks, ...shares(times, now),
    });
    sum.tasks += session.tasks;
  }
  all.set("all", { ...sum, ...shares(timed, now) });
  return all;
}

/** Times of reads and writes that came since. */
function dataTimes(now, before) {
  return allSince(now.times, before?.times).filter(({ name }) => name !== "other");
}

function shares(times, load) {
  const lengths = joined(times);
  const of = (share) => percentile(lengths, share, load.cycles_per_second);
  return { p50: of(0.5), p99: of(0.99) };
}

/** What reactors worked in the time between, by layer; waiting is no work. */
export function layers(now, before) {
  const all = allSince(now.layers, before.layers).map((layer) => ({
    name: layer.name,
    seconds: Math.max(0, layer.cycles) / now.cycles_per_second,
    median: percentile(layer.lengths, 0.5, now.cycles_per_second),
  }));
  const work = all.filter(({ name }) => name !== "idle" && name !== "store-wait");
  const total = work.reduce((sum, { seconds }) => sum + seconds, 0);
  const idle = all.find(({ name }) => name === "idle")?.seconds ?? 0;
  const wait = all.find(({ name }) => name === "store-wait");
  const rows = work.map((layer) => ({ ...layer, share: total > 0 ? layer.seconds / total : 0 }));
  return { rows, busy: total + idle > 0 ? total / (total + idle) : null, wait };
}

/** Three digits that matter, at least whole numbers. */
function digits(value) {
  if (value >= 100 || value === 0) return String(Math.round(value));
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function count(value) {
  if (value === null || value === undefined) return "\u2013";
  if (value >= 1e6) return `${digits(value / 1e6)} M`;
  if (value >= 1e4) return `${digits(value / 1e3)} k`;
  return value >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

/** So many of something, in words. */
export const some = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

/** Bytes in a second. */
export function speed(value) {
  if (value === null || value === undefined) return "\u2013";
  return value >= 1e9 ? `${digits(value / 1e9)} GB/s` : `${digits(value / 1e6)} MB/s`;
}

export function time(seconds) {
  if (seconds === null || seconds === undefined) return "\u2013";
  if (seconds < 1e-3) return `${digits(seconds * 1e6)} \u00b5s`;
  return seconds < 1 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds)} s`;
}

/** As `lunwire status` writes sizes. */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${Number.isInteger(value) ? value : value.toFixed(1)} ${units[unit]}`;
}

/** How long something is there. */
export function age(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([unit]) => seconds >= unit);
  if (at < 0) return "0 s";
  const [unit, name] = parts[at];
  const whole = `${Math.floor(seconds / unit)} ${name}`;
  const next = parts[at + 1];
  const rest = next ? Math.floor(seconds % unit / next[0]) : 0;
  return rest > 0 ? `${whole} ${rest} ${next[1]}` : whole;
}
