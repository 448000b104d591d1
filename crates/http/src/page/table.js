// SPDX-License-Identifier: Apache-2.0 OR MIT
// Tables whose rows stay while their figures change. All that is shown is set as text.

// What leaves nothing to see, or turns the direction of others, as control/words.rs has it.
const HIDDEN = /[^\S ]|[\p{Cc}\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\u2800\ufff0-\ufffb]/gu;

/** A text that others chose, with its hidden letters as numbers. */
export function visible(text) {
  return String(text).replace(HIDDEN, (letter) => letter === "\n" ? letter :
    `\\u{${letter.codePointAt(0).toString(16)}}`);
}

/** Sets a text if it is another one: who listens to changes hears of no other. */
export function say(element, said) {
  const text = visible(said);
  if (element.textContent !== text) element.textContent = text;
}

/** Pairs as a description list. */
export function pairs(list, all) {
  const wanted = JSON.stringify(all);
  if (list.dataset.pairs === wanted) return;
  list.dataset.pairs = wanted;
  list.replaceChildren(...all.flatMap(([name, value]) => {
    const [term, said] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = visible(name);
    said.textContent = visible(value);
    return [term, said];
  }));
}

/** A table of rows by key. */
export class Table {
  #body;
  #heads;
  #rows = new Map();

  constructor(table) {
    this.#body = table.tBodies[0];
    this.#heads = Array.from(table.tHead.rows[0].cells);
    // Where it is shown as cards, a browser forgets that it is a table.
    table.setAttribute("role", "table");
    for (const part of [table.tHead, this.#body]) part.setAttribute("role", "rowgroup");
    table.tHead.rows[0].setAttribute("role", "row");
    for (const head of this.#heads) head.setAttribute("role", "columnheader");
  }

  /** `rows`: key and cells, each a text, or `{ text, kind }`, or `{ summary, list }`, or
   * `{ acts }`, buttons of `{ act, label, does }` that are called `label` by programs that read
   * them out. */
  show(rows) {
    const gone = new Set(this.#rows.keys());
    let place = this.#body.firstElementChild;
    for (const { key, cells } of rows) {
      gone.delete(key);
      const row = this.#rows.get(key) ?? this.#make(key, cells.length);
      cells.forEach((cell, at) => fill(row.cells[at], cell));
      if (row === place) {
        place = place.nextElementSibling;
      } else {
        this.#body.insertBefore(row, place);
      }
    }
    for (const key of gone) {
      this.#rows.get(key).remove();
      this.#rows.delete(key);
    }
  }

  #make(key, length) {
    const row = document.createElement("tr");
    row.setAttribute("role", "row");
    for (let at = 0; at < length; at += 1) {
      const cell = row.insertCell();
      cell.setAttribute("role", "cell");
      cell.dataset.label = this.#heads[at].textContent;
      for (const kind of ["number", "act"]) {
        if (this.#heads[at].classList.contains(kind)) cell.classList.add(kind);
      }
    }
    this.#rows.set(key, row);
    return row;
  }
}

function fill(cell, said) {
  if (typeof said === "string") return say(cell, said);
  if (said.acts !== undefined) {
    said.acts.forEach(({ act, label, does }, place) => {
      const button = cell.children[place] ?? document.createElement("button");
      if (!button.isConnected) cell.append(button);
      button.type = "button";
      say(button, act);
      button.setAttribute("aria-label", visible(label));
      button.onclick = does;
    });
    return undefined;
  }
  if (said.list === undefined) {
    say(cell, said.text);
    for (const kind of ["bad", "warn"]) cell.classList.toggle(kind, said.kind === kind);
    return undefined;
  }
  if (!(cell.firstElementChild instanceof HTMLDetailsElement)) {
    const [details, summary] = ["details", "summary"].map((name) => document.createElement(name));
    const list = document.createElement("dl");
    list.className = "pairs";
    details.append(summary, list);
    cell.replaceChildren(details);
  }
  const [summary, list] = cell.firstElementChild.children;
  say(summary, said.summary);
  return pairs(list, said.list);
}
