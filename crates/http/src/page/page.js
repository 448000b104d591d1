// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page: asks the API again and again, and shows what it says.

import { add, mayGrow, offer, paths, remove, setPath } from "/disks.js";
import { admits, entrance, isShut, links } from "/entrance.js";
import { Events, about as aboutEvent, details } from "/events.js";
import * as figures from "/figures.js";
import { count, give, shown, sure, use } from "/orders.js";
import { KEPT_MAX, keep, plots } from "/past.js";
import { listen } from "/stream.js";
import { Table, pairs, say, visible } from "/table.js";

/** Between two questions, and how long one may take, ms. */
const [LOAD_EVERY, STATUS_EVERY, DIFFERENCE_EVERY, PATIENCE] = [1000, 4000, 15000, 10000];

/** A stream that has said nothing for so long is none, and another is tried after so long, ms. */
const [STREAM_PATIENCE, STREAM_AGAIN] = [3000, 10000];

/** Times are of so long, ms. */
const TIMES_OVER = 10000;

/** Rows of a table: with more, a filter helps. */
const ROWS_MAX = 200;

const at = (id) => document.getElementById(id);
const seen = { loads: [], rates: new Map(), status: null, sessions: null, groups: null, paused: false };
const events = new Events();
/** What tells without being asked, and when it last did. */
const live = { stream: null, told: -Infinity, again: 0 };
const tables = { luns: new Table(at("luns-table")), sessions: new Table(at("sessions-table")),
  events: new Table(at("events-table")), limits: new Table(at("limits-table")) };

/** The answer of the daemon; an error says why there is none. */
async function ask(name) {
  const signal = AbortSignal.timeout(PATIENCE);
  const answer = await fetch(`/api/v1/${name}`,
    { cache: "no-store", credentials: "omit", signal, headers: shown() });
  if (!admits(answer)) throw new Said("who shows a token may read what this daemon does");
  const told = await answer.json();
  if (told.reply === "error") throw new Said(told.message);
  return told;
}

/** What the daemon said, rather than a browser. */
class Said extends Error {}

/** Does `work` each so many milliseconds, while somebody may look. */
async function every(period, work) {
  for (;;) {
    const begun = performance.now();
    if (!document.hidden && !seen.paused && !isShut()) await work();
    const took = performance.now() - begun;
    await new Promise((resolve) => { setTimeout(resolve, Math.max(50, period - took)); });
  }
}

function state(kind, text) {
  at("state").className = `state ${kind}`;
  say(at("state"), text);
}

/** Whether a stream tells what is new: then nobody asks. */
const isTold = () => performance.now() - live.told < STREAM_PATIENCE;

async function load() {
  follow();
  if (isTold()) return;
  let now;
  try {
    now = await ask("load");
  } catch (error) {
    const since = seen.loads.length > 0 ? "; what is shown is of before" : "";
    state("bad", error instanceof Said ? error.message : `the daemon does not answer${since}`);
    return;
  }
  took(now);
}

/** There is another load. */
function took(now) {
  const silent = now.silent_reactors ?? [];
  state(silent.length > 0 ? "bad" : "good",
    silent.length > 0 ? `reactor${silent.length === 1 ? "" : "s"} ${silent.join(", ")} ${
      silent.length === 1 ? "does" : "do"} not answer` : "serving");
  const before = seen.loads.at(-1);
  if (before && now.uptime_ms === before.uptime_ms) return;
  if (before && !figures.follow(now, before)) {
    // Another daemon, or reactors that are silent now: its counts are no continuation.
    seen.loads = [];
  }
  seen.loads.push(now);
  while (seen.loads.length > 2 && now.uptime_ms - seen.loads[1].uptime_ms >= TIMES_OVER) {
    seen.loads.shift();
  }
  if (seen.loads.length < 2) return;
  const [long, last] = [seen.loads[0], seen.loads.at(-2)];
  seen.rates = figures.rates(now, last, long);
  keep(now, seen.rates);
  overview();
  plots();
  layers(figures.layers(now, long));
  luns();
  sessions();
}

/** Has a stream, if there may be one: a daemon has some at a time, and a browser is told why not. */
function follow() {
  if (live.stream?.isOpen) return;
  if (performance.now() < live.again) return;
  live.again = performance.now() + STREAM_AGAIN;
  live.stream = listen((name, told) => {
    if (name === "end") return leave();
    live.told = performance.now();
    if (name === "load") return took(told);
    events.take(told);
    return happened();
  });
}

function leave() {
  live.stream?.close();
  [live.stream, live.told, live.again] = [null, -Infinity, 0];
}

/** Asks for events where no stream tells them. */
async function askEvents() {
  if (isTold()) return;
  try {
    let told = await ask(`events?after=${events.last}`);
    if (events.isOther(told)) told = await ask("events");
    events.take(told);
  } catch {
    // Who asks for the load tells it.
    return;
  }
  happened();
}

function happened() {
  const kind = at("events-kind").value;
  const all = events.newest;
  const kinds = JSON.stringify(Array.from(new Set(all.map((event) => event.kind))).sort());
  const select = at("events-kind");
  if (select.dataset.kinds !== kinds) {
    select.dataset.kinds = kinds;
    const words = new Set([...JSON.parse(kinds), kind].filter(Boolean));
    select.replaceChildren(new Option("all", "", false, kind === ""),
      ...Array.from(words, (word) => new Option(word, word, false, word === kind)));
  }
  const wanted = all.filter((event) => kind === "" || event.kind === kind);
  const words = (event) => [event.kind, event.text, aboutEvent(event), details(event)];
  const time = (ms) => new Date(ms).toLocaleString([], { dateStyle: "short", timeStyle: "medium" });
  const marks = { error: "bad", warning: "warn" };
  tables.events.show(filtered("events", "event", wanted, words).map((event) => ({
    key: `${event.number} ${event.time_ms}`,
    cells: [time(event.time_ms), event.kind, { text: event.text, kind: marks[event.level] },
      aboutEvent(event), details(event)],
  })));
}

function overview() {
  const all = seen.rates.get("all");
  say(at("all-operations"), `${figures.count(all.reads + all.writes)}/s`);
  say(at("all-read"), figures.speed(all.read));
  say(at("all-written"), figures.speed(all.written));
  say(at("all-p50"), figures.time(all.p50));
  say(at("all-p99"), figures.time(all.p99));
  say(at("all-tasks"), figures.count(all.tasks));
}

const layerTable = new Table(at("layers"));

/** What a layer is. */
const LAYERS = {
  receive: "receive: bytes to messages", copy: "copy: received data into its buffer",
  protocol: "protocol: iSCSI", scsi: "scsi: the device server", store: "store",
  send: "send: messages to bytes", kernel: "kernel: sockets and files", other: "other",
};

function layers({ rows, busy, wait }) {
  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
  layerTable.show(rows.map(({ name, share, median }) => ({
    key: name, cells: [LAYERS[name] ?? name, "", percent(share), figures.time(median)],
  })));
  rows.forEach(({ share }, row) => bar(at("layers").tBodies[0].rows[row].cells[1], share));
  const waits = wait && wait.median !== null
    ? ` Operations of stores took ${figures.time(wait.median)}, the median.` : "";
  say(at("time-said"), busy === null ? "Nothing was timed in the last ten seconds."
    : `Reactors worked ${percent(busy)} of the last ten seconds, estimated from one turn in 127.${waits}`);
}

/** A bar of so much of the width; the figure stands beside it. */
function bar(cell, share) {
  const name = "http://www.w3.org/2000/svg";
  if (!cell.firstElementChild) {
    const svg = document.createElementNS(name, "svg");
    svg.setAttribute("class", "bar");
    svg.setAttribute("aria-hidden", "true");
    for (const kind of ["rest", "part"]) {
      const rect = document.createElementNS(name, "rect");
      rect.setAttribute("class", kind);
      rect.setAttribute("width", "100%");
      rect.setAttribute("height", "100%");
      rect.setAttribute("rx", "3");
      svg.append(rect);
    }
    cell.append(svg);
  }
  cell.firstElementChild.lastElementChild.setAttribute("width", `${(100 * share).toFixed(1)}%`);
}

/** What there is to say of a LUN, the worst first. */
function stateOf(lun, errors) {
  const { waiting, image } = lun;
  const bad = [
    lun.lost_writes && "writes may be lost",
    lun.file_lost && `its file was ${lun.file_lost}`,
    image?.shut_out && "shut out by its cluster",
    image?.lost && `its image was ${image.lost}`,
    waiting?.busy && "hosts hear BUSY",
    lun.shrunk !== null && lun.shrunk !== undefined && `${figures.size(lun.shrunk)} are left of it`,
  ].filter(Boolean);
  const warn = [
    waiting && `${figures.some(waiting.commands, "command")} ${
      waiting.commands === 1 ? "waits" : "wait"} for the ${waiting.who} for ${waiting.oldest_s} s`,
    errors > 0 && figures.some(errors, "medium error"),
  ].filter(Boolean);
  const plain = [lun.read_only && "read only",
    lun.protection !== null && lun.protection !== undefined && `protection type ${lun.protection}`,
  ].filter(Boolean);
  const kind = bad.length > 0 ? "bad" : warn.length > 0 ? "warn" : "";
  return { text: [...bad, ...warn, ...plain].join("; ") || "good", kind };
}

/** Those whose words have all that was typed, as far as there are not too many; `what`: one. */
function filtered(name, what, all, words) {
  const wanted = at(`${name}-filter`).value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((one) => {
    const text = words(one).join(" ").toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  const shown = found.slice(0, ROWS_MAX);
  const of = `${found.length < all.length ? `${found.length} of ` : ""}${
    figures.some(all.length, what)}`;
  say(at(`${name}-count`), shown.length < found.length ? `${of}, the first ${ROWS_MAX} shown` : of);
  return shown;
}

function luns() {
  if (!seen.status) return;
  const all = seen.status.targets.flatMap((target) => (
    target.luns.map((lun) => ({ ...lun, target: target.name }))));
  tables.luns.show(filtered("luns", "LUN", all, (lun) => [lun.target, `lun ${lun.lun}`, lun.store, lun.serial])
    .map((lun) => {
      const key = figures.keyOfLun(lun);
      const rate = seen.rates.get(key) ?? {};
      return { key, cells: [
        lun.target, String(lun.lun), lun.store, figures.size(lun.bytes),
        figures.count(rate.reads), figures.count(rate.writes),
        figures.speed(rate.read), figures.speed(rate.written),
        figures.time(rate.p50), figures.time(rate.p99), stateOf(lun, rate.errors ?? 0),
        { acts: [
          ...(mayGrow(lun.store) ? [{ act: "Resize", label: `Resize LUN ${lun.lun} of ${lun.target}`,
            does: () => resize(lun) }] : []),
          { act: "Remove", label: `Remove LUN ${lun.lun} of ${lun.target}`,
            does: () => now((its) => remove(lun, its, change)) },
        ] },
      ] };
    }));
}

function sessions() {
  if (!seen.sessions) return;
  const all = seen.sessions.sessions;
  const words = ({ initiator, target, connections }) => (
    [initiator, target ?? "discovery", ...connections.map(({ peer }) => peer)]);
  tables.sessions.show(filtered("sessions", "session", all, words).map((session) => {
    const key = figures.keyOfSession(session);
    const rate = seen.rates.get(key) ?? {};
    const connections = session.connections.map(({ peer, transport }) => `${peer} ${transport}`);
    return { key, cells: [
      session.initiator, session.target ?? "discovery", String(session.tsih),
      figures.age(session.age_s), figures.count(rate.tasks ?? session.tasks),
      figures.count(rate.commands), figures.speed(rate.read), figures.speed(rate.written),
      figures.time(rate.p50), figures.time(rate.p99),
      connections.join(", ") || "none",
      { summary: figures.some(session.negotiated.length, "value"), list: session.negotiated },
      { acts: [{ act: "Drop", label: `Drop session ${session.tsih} of ${session.initiator}`,
        does: () => drop(session) }] },
    ] };
  }));
}

async function status() {
  try {
    const all = ["status", "sessions", "port-groups"].map((name) => ask(name));
    [seen.status, seen.sessions, seen.groups] = await Promise.all(all);
  } catch {
    // Who asks for the load tells it.
    return;
  }
  const { targets } = seen.status;
  const count = targets.reduce((sum, { luns: its }) => sum + its.length, 0);
  say(at("all-sessions"), String(seen.sessions.sessions.length));
  say(at("all-targets"), `LUNs of ${figures.some(targets.length, "target")}`);
  say(at("all-luns"), String(count));
  about(seen.status);
  limits(seen.status);
  offer(at("add-to"), targets.map(({ name }) => [name, name]));
  paths(seen.groups.groups, ROWS_MAX);
  luns();
  sessions();
}

const ofLimit = ({ lun, initiator }) => (
  lun !== undefined ? `LUN ${lun}` : initiator === "*" ? "each initiator" : initiator);

function limits(told) {
  const all = told.limits ?? [];
  at("limits-none").hidden = all.length > 0;
  at("limits-table").hidden = all.length === 0;
  tables.limits.show(all.map((limit) => ({
    key: JSON.stringify([limit.target, limit.lun, limit.initiator]),
    cells: [limit.target, ofLimit(limit), figures.count(limit.iops), figures.speed(limit.bandwidth),
      figures.count(limit.sessions), String(limit.held), figures.count(limit.delayed),
      { acts: [{ act: "Lift", label: `Lift the limit of ${ofLimit(limit)} of ${limit.target}`,
        does: () => lift(limit) }] }],
  })));
  const option = (target, name, of) => [JSON.stringify({ target, ...of }), `${name} of ${target}`];
  const choices = told.targets.flatMap(({ name, luns: its }) => [
    option(name, "each initiator", { initiator: "*" }),
    ...its.slice(0, KEPT_MAX).map(({ lun }) => option(name, `LUN ${lun}`, { lun }))]);
  offer(at("limit-of"), choices);
}

/** Has an order done, and tells what became of it, as `tell` has it. */
async function change(what, order, tell = () => "") {
  say(at("done"), `${what}: it is being done.`);
  try {
    const told = await give(order);
    const said = [`${what}: done.`, tell(told), ...(told.warnings ?? [])];
    say(at("done"), said.filter(Boolean).join(" "));
  } catch (error) {
    say(at("done"), `${what}: not done: ${error.message}`);
  }
  await Promise.all([status(), difference()]);
}

/** Does something with the sessions of now, also where nothing else is asked meanwhile. */
async function now(work) {
  try {
    await work((await ask("sessions")).sessions);
  } catch (error) {
    say(at("done"), error instanceof Said ? error.message : "the daemon does not answer");
  }
}

async function drop({ tsih, initiator }) {
  const what = `Drop session ${tsih} of ${initiator}`;
  const said = await sure(`${what}? Its commands end at once; it may log in again.`, { yes: "Drop it" });
  if (said !== null) await change(what, { request: "drop-session", tsih });
}

async function resize({ target, lun, bytes }) {
  const what = `Resize LUN ${lun} of ${target}`;
  const said = await sure(`${what}, which has ${figures.size(bytes)}? It can only grow here.`,
    { yes: "Resize it", input: "New size, bytes or such as 20G" });
  if (said === null) return;
  try {
    const size = count(said, "size");
    if (size === null) return;
    if (size < bytes) throw new Error(`size: ${figures.size(bytes)} and more are right here`);
    await change(what, { request: "resize-lun", target, lun, bytes: size, shrink: false });
  } catch (error) {
    say(at("done"), error.message);
  }
}

async function lift({ target, lun, initiator }) {
  const what = `Lift the limit of ${ofLimit({ lun, initiator })} of ${target}`;
  if (await sure(`${what}?`, { yes: "Lift it" }) === null) return;
  await change(what, { request: "set-limit", target, lun, initiator });
}

async function setLimit() {
  const of = JSON.parse(at("limit-of").value || "null");
  if (of === null) return;
  try {
    const iops = count(at("limit-iops").value.trim(), "operations");
    const bandwidth = count(at("limit-bytes").value.trim(), "bytes");
    if (iops === null && bandwidth === null) throw new Error("operations or bytes are to be given");
    // An order says all of a limit: that of sessions, which has no field here, stays as it is.
    const same = (limit) => (limit.target === of.target && limit.lun === of.lun
      && limit.initiator === of.initiator);
    const sessions = seen.status.limits?.find(same)?.sessions;
    await change(`Limit ${ofLimit(of)} of ${of.target}`,
      { request: "set-limit", ...of, iops, bandwidth, sessions });
  } catch (error) {
    say(at("done"), error.message);
  }
}

async function reload() {
  const said = await sure(`Reload? ${at("difference").textContent} ${at("differences").innerText}`,
    { yes: "Reload" });
  if (said !== null) await change("Reload", { request: "reload" });
}

function about(told) {
  const capture = told.capture;
  pairs(at("about"), [
    ["Version", told.version], ["Process", String(told.pid)],
    ["Serves for", figures.age(told.uptime_s)],
    ["Engine", `${told.engine}, ${told.mode}, ${figures.some(told.reactors, "reactor")}`],
    ["CRC32C", told.crc32c], ["Portals", told.portals.join(", ") || "none"],
    ["iSER", told.iser.provider
      ? `${told.iser.provider}: ${figures.some(told.iser.connections, "connection")}` : "off"],
    ...(told.stations ?? []).map(({ interface: name, mac, connections }) => (
      ["Raw Ethernet", `${mac} at ${name}, ${figures.some(connections.length, "connection")}`])),
    ...(capture ? [["Capture", `${capture.file}, ${figures.size(capture.bytes)}${
      capture.ended ? `; over: ${capture.ended}` : ""}`]] : []),
  ]);
}

const MARKS = { added: "comes", changed: "changes", removed: "goes" };

async function difference() {
  const rows = [];
  let said;
  let may = false;
  try {
    const told = await ask("difference");
    const count = told.differences.length + (told.refused ?? []).length;
    said = count === 0 ? "What is served is what the file says."
      : `The file says ${figures.some(count, "thing")} otherwise than what is served.`;
    may = told.differences.length > 0 && (told.refused ?? []).length === 0;
    for (const { change, what, keys } of told.differences) {
      const of = keys?.length > 0 ? `: ${keys.join(", ")}` : "";
      rows.push([`${MARKS[change] ?? change}: ${what}${of}`, ""]);
    }
    for (const { what, why } of told.refused ?? []) {
      rows.push([`cannot be so while the daemon runs: ${what}: ${why}`, "bad"]);
    }
    for (const { tsih, initiator, why } of told.sessions ?? []) {
      rows.push([`session ${tsih} of ${initiator} would end: ${why}`, ""]);
    }
    for (const warning of told.warnings ?? []) rows.push([warning, ""]);
  } catch (error) {
    if (!(error instanceof Said)) return;
    said = error.message;
  }
  say(at("difference"), said);
  at("reload").disabled = !may;
  const list = at("differences");
  if (list.dataset.rows === JSON.stringify(rows)) return;
  list.dataset.rows = JSON.stringify(rows);
  list.replaceChildren(...rows.map(([text, kind]) => {
    const item = document.createElement("li");
    item.textContent = visible(text);
    item.className = kind;
    return item;
  }));
}

at("pause").addEventListener("click", () => {
  seen.paused = !seen.paused;
  at("pause").setAttribute("aria-pressed", String(seen.paused));
  if (!seen.paused) return;
  leave();
  state("", "paused");
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) leave();
});
window.addEventListener("pagehide", leave);
at("events-kind").addEventListener("change", happened);
at("events-filter").addEventListener("input", happened);
at("look").addEventListener("click", difference);
at("shown").addEventListener("change", plots);
at("luns-filter").addEventListener("input", luns);
at("sessions-filter").addEventListener("input", sessions);
at("reload").addEventListener("click", reload);
at("limit-set").addEventListener("click", setLimit);
at("add").addEventListener("click", () => now((its) => add(its, change)));
at("path-set").addEventListener("click", () => now((its) => setPath(its, change)));
at("token-use").addEventListener("click", () => {
  use(at("token").value);
  document.body.classList.toggle("may", at("token").value.trim() !== "");
  at("token").value = "";
  say(at("done"), document.body.classList.contains("may")
    ? "What can be changed has buttons now; whether the token is good, the first change tells."
    : "No token is used.");
});
at("sure-yes").addEventListener("click", () => at("sure").close("yes"));
at("sure-no").addEventListener("click", () => at("sure").close("no"));
at("sure-input").addEventListener("keydown", ({ key }) => {
  if (key === "Enter") at("sure").close("yes");
});
window.addEventListener("resize", plots);
links((said) => state("bad", said));
entrance(() => {
  leave();
  return Promise.all([load(), status(), difference(), askEvents()]);
});

plots();
every(LOAD_EVERY, load);
every(STATUS_EVERY, status);
every(STATUS_EVERY, askEvents);
every(DIFFERENCE_EVERY, difference);
