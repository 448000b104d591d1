// SPDX-License-Identifier: Apache-2.0 OR MIT
// Orders: what changes something, by a token that is kept as long as the page is there, and nowhere
// else.

import { visible } from "/table.js";

const PATIENCE = 120000;

let token = "";

export function use(text) {
  token = text.trim();
}

/** What shows the token to who is asked. */
export const shown = () => (token === "" ? {} : { Authorization: `Bearer ${token}` });

/** Has `order` done; an error says why it is not. */
export async function give(order) {
  const answer = await fetch("/api/v1/orders", {
    method: "POST", cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(PATIENCE),
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(order),
  });
  const told = await answer.json();
  if (told.reply === "error") throw new Error(told.message);
  return told;
}

let asked = new AbortController();

/** Whether somebody is sure, in a dialog, and what he typed; null if not. `input`: its label. */
export function sure(what, { yes, input } = {}) {
  const at = (id) => document.getElementById(id);
  const dialog = at("sure");
  at("sure-what").textContent = visible(what);
  at("sure-yes").textContent = yes;
  at("sure-field").hidden = input === undefined;
  at("sure-label").textContent = visible(input ?? "");
  at("sure-input").value = "";
  // A browser tells of a close later: perhaps when the dialog is open again, for another question.
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  dialog.returnValue = "";
  dialog.showModal();
  (input === undefined ? at("sure-no") : at("sure-input")).focus();
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(null));
    dialog.addEventListener("close", () => {
      if (!dialog.open) resolve(dialog.returnValue === "yes" ? at("sure-input").value.trim() : null);
    }, { signal });
  });
}

/** A count as it was typed, such as 500, 20G; null: nothing; an error: none. */
export function count(text, what) {
  if (text === "") return null;
  const [, digits, unit] = /^([0-9]{1,15})([KMGT]?)$/i.exec(text) ?? [];
  if (digits === undefined) throw new Error(`${what}: a number is right, such as 500 or 20G`);
  return Number(digits) * 1024 ** " KMGT".indexOf(unit.toUpperCase() || " ");
}
