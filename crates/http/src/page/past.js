// SPDX-License-Identifier: Apache-2.0 OR MIT
// The last minutes: rates that were, of everything and of each, and the plots of what is chosen.

import * as figures from "/figures.js";
import { draw } from "/plot.js";
import { visible } from "/table.js";

/** What plots show at most, ms, and by what that grows until then. */
const [SPAN, STEP] = [300000, 60000];

/** LUNs and sessions whose past is kept, beside that of all. */
export const KEPT_MAX = 64;

const at = (id) => document.getElementById(id);

/** Points of [ms, rates], by key. */
const past = new Map();

/** Keeps the rates of now for the plots. */
export function keep(load, rates) {
  const now = performance.now();
  const keys = ["all", ...load.luns.slice(0, KEPT_MAX).map(figures.keyOfLun),
    ...load.sessions.slice(0, KEPT_MAX).map(figures.keyOfSession)];
  for (const key of keys) {
    if (!past.has(key)) past.set(key, []);
  }
  for (const [key, points] of past) {
    const rate = keys.includes(key) ? rates.get(key) : undefined;
    if (rate) points.push([now, rate]);
    while (points.length > 0 && now - points[0][0] > SPAN) points.shift();
    if (points.length === 0) past.delete(key);
  }
  choices(load);
}

/** What plots can be of. */
function choices(load) {
  const part = (name, all, key, label) => ({
    label: all.length > KEPT_MAX ? `${name}: the first ${KEPT_MAX} of ${all.length}` : name,
    options: all.slice(0, KEPT_MAX).map((one) => [key(one), label(one)]),
  });
  const parts = [
    part("LUNs", load.luns, figures.keyOfLun, ({ target, lun }) => `LUN ${lun} of ${target}`),
    part("Sessions", load.sessions, figures.keyOfSession,
      ({ tsih, initiator }) => `session ${tsih} of ${initiator}`),
  ];
  const select = at("shown");
  const wanted = JSON.stringify(parts);
  if (select.dataset.parts === wanted) return;
  select.dataset.parts = wanted;
  const chosen = select.value || "all";
  const option = ([value, text]) => new Option(visible(text), value, false, value === chosen);
  select.replaceChildren(option(["all", "everything"]), ...parts.map(({ label, options }) => {
    const group = document.createElement("optgroup");
    group.label = visible(label);
    group.append(...options.map(option));
    return group;
  }).filter((group) => group.childElementCount > 0));
}

/** Draws what is chosen. */
export function plots() {
  const key = at("shown").value || "all";
  const points = past.get(key) ?? [];
  const now = performance.now();
  const line = (name, kind, value) => (
    { name, kind, points: points.map(([when, rate]) => [when, value(rate)]) });
  const first = Math.min(...Array.from(past.values(), (all) => all[0]?.[0] ?? now));
  const span = Math.min(SPAN, STEP * Math.max(1, Math.ceil((now - first) / STEP)));
  const isSession = points.some(([, rate]) => "commands" in rate);
  const plot = (id, title, write, floor, series) => draw(at(id), at(`${id}-legend`),
    { title, write, floor, series, now, span });
  plot("operations", "Operations a second", figures.count, 10, isSession
    ? [line("commands", "one", (rate) => rate.commands)]
    : [line("reads", "one", (rate) => rate.reads), line("writes", "two", (rate) => rate.writes)]);
  plot("bytes", "MB a second", (value) => figures.speed(value).replace("/s", ""), 1e6, [
    line("read", "one", (rate) => rate.read), line("written", "two", (rate) => rate.written)]);
  plot("times", "Time of reads and writes", figures.time, 1e-5, [
    line("median", "one", (rate) => rate.p50), line("p99", "two", (rate) => rate.p99)]);
}
