// SPDX-License-Identifier: Apache-2.0 OR MIT
// Lines over the last minutes.

const SVG = "http://www.w3.org/2000/svg";
const [LEFT, RIGHT, TOP, BOTTOM] = [58, 8, 10, 20];

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A round number that is no less: 1, 2 or 5 and zeros. */
function round(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value) * power;
}

/** A path through what is known; where nothing is, there is no line. */
function path(points, x, y) {
  let [text, open] = ["", false];
  for (const [at, value] of points) {
    if (value === null || value === undefined) { open = false; continue; }
    text += `${open ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  }
  return text;
}

/** The ground under what is known. */
function area(points, x, y, ground) {
  const known = points.filter(([, value]) => value !== null && value !== undefined);
  if (known.length < 2) return "";
  const [first, last] = [known[0][0], known.at(-1)[0]];
  return `${path(known, x, y)}L${x(last).toFixed(1)} ${ground}L${x(first).toFixed(1)} ${ground}Z`;
}

/**
 * Draws `series` (`name`, `kind`, `points` of [ms, value]) of the last `span` ms before `now`;
 * `write` writes a value.
 */
export function draw(svg, legend, { series, now, span, write, floor, title }) {
  const [width, height] = [Math.max(svg.clientWidth, 200), svg.clientHeight || 170];
  const values = series.flatMap(({ points }) => points.map(([, value]) => value ?? 0));
  const most = round(values.reduce((one, other) => Math.max(one, other), floor));
  const ground = height - BOTTOM;
  const x = (at) => LEFT + (width - LEFT - RIGHT) * (1 - (now - at) / span);
  const y = (value) => ground - (ground - TOP) * value / most;
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const at = y(share * most);
    parts.push(element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    parts.push(element("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" },
      share === 0 ? "0" : write(share * most)));
  }
  const step = span > 60000 ? 60000 : 15000;
  for (let back = span; back >= 0; back -= step) {
    const anchor = back === 0 ? "end" : back === span ? "start" : "middle";
    const text = back === 0 ? "now" : back < 60000 ? `${back / 1000} s` : `${back / 60000} min`;
    parts.push(element("text", { x: x(now - back), y: height - 5, "text-anchor": anchor }, text));
  }
  const [first] = series;
  if (first) parts.push(element("path", { class: "area", d: area(first.points, x, y, ground) }));
  for (const { kind, points } of series) {
    parts.push(element("path", { class: kind, d: path(points, x, y) }));
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...parts);
  const told = series.map(({ name, points }) => [name, write(points.at(-1)?.[1])]);
  const said = told.map(([name, value]) => `${name} ${value}`).join(", ");
  svg.setAttribute("aria-label", `${title}: ${said || "nothing is known"}`);
  legend.replaceChildren(...series.map(({ kind }, at) => {
    const part = document.createElement("span");
    part.className = kind;
    part.textContent = told[at].join(" ");
    return part;
  }));
}
