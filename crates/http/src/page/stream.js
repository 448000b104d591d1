// SPDX-License-Identifier: Apache-2.0 OR MIT
// The stream of what is new. The browser's own kind of stream shows no token.

import { shown } from "/orders.js";

/** The last event that was told of, for the next stream. */
let last = "";

/** Calls `hear` with what a stream tells, by the name of it, until `close()` of what is returned;
 * `isOpen`: it may tell more. */
export function listen(hear) {
  const abort = new AbortController();
  const stream = { isOpen: true };
  stream.close = () => {
    stream.isOpen = false;
    abort.abort();
  };
  follow(stream, hear, abort.signal).catch(() => {}).finally(stream.close);
  return stream;
}

async function follow(stream, hear, signal) {
  const headers = { Accept: "text/event-stream", ...shown() };
  if (last !== "") headers["Last-Event-ID"] = last;
  const answer = await fetch("/api/v1/stream", {
    cache: "no-store", credentials: "omit", signal, headers });
  if (!answer.ok) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      if (stream.isOpen) tell(part, hear);
    }
  }
}

/** A message, whose fields stand in a line each. */
function tell(part, hear) {
  const fields = new Map(part.split("\n").map((line) => {
    const end = line.indexOf(":");
    return [line.slice(0, end), line.slice(end + 1).trimStart()];
  }));
  if (fields.has("id")) last = fields.get("id");
  if (!fields.has("event")) return;
  let told;
  try {
    told = JSON.parse(fields.get("data"));
  } catch {
    return;
  }
  hear(fields.get("event"), told);
}
