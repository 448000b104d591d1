// SPDX-License-Identifier: Apache-2.0 OR MIT
// The entrance, where the daemon tells nobody anything who shows no token.

import { shown, use } from "/orders.js";
import { say } from "/table.js";

const at = (id) => document.getElementById(id);

/** Whether reading takes a token here. */
let isNeeded = false;

/** Whether an answer lets somebody in; where not it is asked for a token. */
export function admits({ status }) {
  const isShut = status === 401;
  isNeeded ||= isShut;
  if (isShut === at("entrance").hidden) {
    at("entrance").hidden = !isShut;
    document.body.classList.toggle("shut", isShut);
    if (isShut) at("entrance-token").focus();
  }
  if (isShut && "Authorization" in shown()) say(at("entrance-said"), "There is no such token.");
  return !isShut;
}

/** Nobody is asked anything then. */
export const isShut = () => document.body.classList.contains("shut");

/** Whether the token is for changes, too: asked by an order that changes nothing. */
async function mayChange() {
  const answer = await fetch("/api/v1/orders", {
    method: "POST", cache: "no-store", credentials: "omit",
    headers: { "Content-Type": "application/json", ...shown() },
    body: JSON.stringify({ request: "reload", dry_run: true }),
  });
  return answer.status !== 401 && answer.status !== 403;
}

/** Links to what takes a token are no addresses then: what they lead to is asked for, and saved. */
export function links(tell) {
  for (const link of document.querySelectorAll("a[data-file]")) {
    link.addEventListener("click", async (event) => {
      if (!isNeeded) return;
      event.preventDefault();
      try {
        const answer = await fetch(link.href,
          { cache: "no-store", credentials: "omit", headers: shown() });
        if (!admits(answer)) return;
        const saved = document.createElement("a");
        saved.href = URL.createObjectURL(await answer.blob());
        saved.download = link.dataset.file;
        saved.click();
        setTimeout(() => URL.revokeObjectURL(saved.href), 60000);
      } catch {
        tell("the daemon does not answer");
      }
    });
  }
}

/** Calls `enter` when there is a token. */
export function entrance(enter) {
  const take = async () => {
    use(at("entrance-token").value);
    at("entrance-token").value = "";
    say(at("entrance-said"), "The daemon is asked.");
    await enter();
    if (!at("entrance").hidden) return;
    document.body.classList.toggle("may", await mayChange().catch(() => false));
    at("main").focus();
  };
  at("entrance-use").addEventListener("click", take);
  at("entrance-token").addEventListener("keydown", ({ key }) => {
    if (key === "Enter") take();
  });
}
