// SPDX-License-Identifier: Apache-2.0 OR MIT
// LUNs that come and go, and states of the paths to them: orders that hosts notice, so that each is
// asked about with what they will see.

import { some } from "/figures.js";
import { count, give, sure } from "/orders.js";
import { Table, say } from "/table.js";

const at = (id) => document.getElementById(id);

/** What is lost with the process is lost with its LUN, too. */
const isInMemory = (store) => /(^|[(;])memory:/.test(store);

/** Only a file and an image of Ceph have another size in time; a device has its own. */
export const mayGrow = (store) => /^(file:(?!\/dev\/)|rbd:)/.test(store);

/** Sessions that have a LUN: those of its target, but for the initiators that do not see it. */
export function users({ target, initiators }, sessions) {
  return sessions.filter((session) => (
    session.target === target && (initiators?.includes(session.initiator) ?? true)));
}

/** In words, the first few of them by name. */
function named(sessions, verb) {
  if (sessions.length === 0) return "No session has it now.";
  const names = Array.from(new Set(sessions.map(({ initiator }) => initiator)));
  const more = names.length > 3 ? ` and ${some(names.length - 3, "other")}` : "";
  return `${some(sessions.length, "session")} ${sessions.length === 1 ? "has" : "have"} it, of `
    + `${names.slice(0, 3).join(", ")}${more}: ${verb}`;
}

/** Removes a LUN; `change` has an order done and tells of it. */
export async function remove(lun, sessions, change) {
  const what = `Remove LUN ${lun.lun} of ${lun.target}`;
  const memory = isInMemory(lun.store);
  const said = await sure([
    `${what}, ${lun.store}?`,
    named(users(lun, sessions), "their commands end, and hosts that have not unmounted it see the "
      + "disk fail."),
    memory ? "It is in memory: what was written to it is lost."
      : "What is behind it stays. It comes back with the daemon if the file has it.",
  ].join(" "), { yes: memory ? "Remove it and what is on it" : "Remove it" });
  if (said === null) return;
  const { target } = lun;
  await change(what, { request: "remove-lun", target, lun: lun.lun, destroy_data: memory });
}

/** What has come: who cannot see it will look for it. */
function came({ lun, disk, for_nobody: nobody }) {
  const seen = nobody ? " No initiator sees it: each has a list of LUNs, and it is on none." : "";
  return `It is LUN ${lun}, ${disk.store}.${seen}`;
}

/** Adds the LUN that was typed. */
export async function add(sessions, change) {
  const target = at("add-to").value;
  const kind = at("add-kind").value;
  const text = at("add-number").value.trim();
  try {
    const bytes = count(at("add-size").value.trim(), "size");
    if (bytes === null || bytes === 0 || bytes % 512 !== 0) {
      throw new Error("size: a multiple of 512 bytes is right, such as 20G");
    }
    if (!/^[0-9]{0,5}$/.test(text)) throw new Error("number: 0 to 16383 is right, or nothing");
    const number = text === "" ? null : Number(text);
    const what = `Add a LUN to ${target}`;
    const told = sessions.filter((session) => session.target === target).length;
    const said = await sure(`${what}, ${kind}:${bytes}? ${some(told, "session")} of the target `
      + "will be told that there is one more. It is served until the daemon ends, and what is "
      + "written to it is nowhere else.", { yes: "Add it" });
    if (said === null) return;
    await change(what, { request: "add-lun", target, number, lun: { store: `${kind}:${bytes}` } },
      came);
    at("add-size").value = "";
    at("add-number").value = "";
  } catch (error) {
    say(at("done"), error.message);
  }
}

/** Has the options of a list, of which the same one stays chosen. */
export function offer(select, options) {
  const wanted = JSON.stringify(options);
  if (select.dataset.choices === wanted) return;
  select.dataset.choices = wanted;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => (
    new Option(text, value, false, value === chosen))));
}

let table = null;

/** 0-3, 7 of 0, 1, 2, 3, 7, which rise. */
export function ranges(numbers) {
  const all = [];
  for (const number of numbers) {
    const last = all.at(-1);
    if (last && number === last[1] + 1) {
      last[1] = number;
    } else {
      all.push([number, number]);
    }
  }
  return all.map(([from, to]) => (from === to ? String(from) : `${from}\u2013${to}`)).join(", ");
}

/** Groups of all LUNs, those that are alike in a row. */
function rows(groups) {
  const all = new Map();
  for (const group of groups) {
    const { target, group: number, state, preferred, portal_groups: portals } = group;
    const key = JSON.stringify([target, number, state, preferred, portals]);
    const one = all.get(key) ?? { ...group, key, luns: [] };
    one.luns.push(group.lun);
    all.set(key, one);
  }
  return Array.from(all.values());
}

/** Shows groups. Those that the configuration has may have another state. */
export function paths(groups, most) {
  table ??= new Table(at("paths-table"));
  const all = rows(groups);
  const shown = all.slice(0, most);
  say(at("paths-count"), shown.length < all.length ? `The first ${most} of ${all.length} are shown.` : "");
  const marks = { standby: "warn", transitioning: "warn", unavailable: "bad" };
  table.show(shown.map((group) => ({
    key: group.key,
    cells: [group.target, String(group.group), ranges(group.luns),
      ranges(group.portal_groups),
      { text: group.preferred ? `${group.state}, preferred` : group.state, kind: marks[group.state] }],
  })));
  const own = groups.filter(({ fixed }) => !fixed);
  const choices = new Map();
  const option = (target, group, lun, luns) => {
    const value = JSON.stringify({ target, group, lun });
    choices.set(value, `group ${group} of ${target}, ${luns}`);
  };
  for (const { target, group } of own) option(target, group, null, "all LUNs");
  for (const { target, group, lun } of own.slice(0, most)) option(target, group, lun, `LUN ${lun}`);
  offer(at("path-of"), Array.from(choices));
  at("path").hidden = own.length === 0;
  at("paths-fixed").hidden = own.length > 0;
}

/** What hosts see of a state. */
const SEEN = {
  "active-optimized": "Hosts may use these paths, and do well to.",
  "active-non-optimized": "Hosts may use these paths, and use better ones if they have some.",
  standby: "Reads and writes by these paths fail: hosts that have no other one lose the disk.",
  unavailable: "Reads and writes by these paths fail: hosts that have no other one lose the disk.",
  transitioning: "Commands by these paths wait at the hosts until there is another state.",
};

/** Gives a group the state that was chosen. */
export async function setPath(sessions, change) {
  const of = JSON.parse(at("path-of").value || "null");
  if (of === null) return;
  const state = at("path-state").value;
  const luns = of.lun === null ? "" : ` for LUN ${of.lun}`;
  const what = `Set group ${of.group} of ${of.target} to ${state}${luns}`;
  const told = sessions.filter(({ target }) => target === of.target).length;
  const said = await sure(`${what}? ${SEEN[state]} ${some(told, "session")} of the target will be `
    + "told that it has changed. It is so until a reload or the end of the daemon.",
  { yes: "Set it" });
  if (said !== null) await change(what, { request: "set-port-group", ...of, state });
}
