// SPDX-License-Identifier: Apache-2.0 OR MIT
// What has happened: the events of a daemon, in order, as far as they are kept here.

/** Events that are kept. */
const KEPT_MAX = 1000;

/** The events of one daemon. */
export class Events {
  #since = null;
  #all = [];

  /** Takes an answer of /api/v1/events; another daemon begins anew. */
  take({ since_ms: since, events }) {
    if (since !== this.#since) [this.#since, this.#all] = [since, []];
    const { last } = this;
    this.#all.push(...events.filter(({ number }) => number > last));
    if (this.#all.length > KEPT_MAX) this.#all.splice(0, this.#all.length - KEPT_MAX);
  }

  /** Whether an answer is of another daemon. */
  isOther({ since_ms: since }) {
    return this.#since !== null && since !== this.#since;
  }

  /** Number of the last one. */
  get last() {
    return this.#all.at(-1)?.number ?? 0;
  }

  /** The newest first. */
  get newest() {
    return this.#all.toReversed();
  }
}

/** Whom and what an event is about. */
export function about({ peer, initiator, tsih, target, lun }) {
  return [initiator, peer, tsih !== undefined && `session ${tsih}`,
    lun !== undefined && `LUN ${lun}`, target].filter(Boolean).join(", ");
}

export const details = ({ details: all }) => (
  (all ?? []).map(([name, value]) => `${name} ${value}`).join(", "));
