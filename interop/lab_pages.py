# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The pages of the laboratory in Debian's Chromium: on a phone and on a wide screen, light and
dark, no text lies over another, what scrolls shows that it does, nothing is cut off, no plot is
empty, and all can be told from its ground. PICTURES: a folder for pictures of them.
"""
import os

import browser

WIDTHS, SCHEMES = [390, 1280], ["light", "dark"]
# Of WCAG 2.1, AA: of text that is not large, and of what is drawn.
TEXT_MIN, DRAWN_MIN = 4.5, 3
# What letters leave free of their boxes, CSS pixels of the picture.
SLACK = 1.5
# Smaller letters are not read, CSS pixels on the screen.
LETTER_MIN = 8.5

SEEN = """
const [slack, textMin, drawnMin, letterMin] = arguments;
const wrong = [];
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth)
    wrong.push(`the page scrolls sideways: ${page.scrollWidth} of ${page.clientWidth}`);
const parse = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
const shine = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
const contrast = (a, b) => {
    const [more, less] = [shine(parse(a)), shine(parse(b))].sort((a, b) => b - a);
    return (more + 0.05) / (less + 0.05);
};
const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
        const color = getComputedStyle(at).backgroundColor;
        if (parse(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
};
const cross = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > slack
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > slack;
let drawn = 0;
for (const svg of document.querySelectorAll("svg")) {
    const title = svg.querySelector("title").textContent;
    const [frame, scale] = [svg.getBoundingClientRect(), svg.getBoundingClientRect().width
        / svg.viewBox.baseVal.width];
    const texts = [...svg.querySelectorAll("text")].map((text) =>
        ({words: text.textContent, box: text.getBoundingClientRect()}));
    for (const [at, {words, box}] of texts.entries()) {
        if (box.left < frame.left - slack || box.right > frame.right + slack
            || box.top < frame.top - slack || box.bottom > frame.bottom + slack)
            wrong.push(`${title}: "${words}" is cut off`);
        for (const other of texts.slice(at + 1))
            if (cross(box, other.box)) wrong.push(`${title}: "${words}" over "${other.words}"`);
    }
    const size = parseFloat(getComputedStyle(svg).fontSize) * scale;
    if (size < letterMin) wrong.push(`${title}: letters of ${size.toFixed(1)} px`);
    const under = getComputedStyle(svg.querySelector(".bg")).fill;
    const shapes = [...svg.querySelectorAll("circle, polyline, rect[class^=f]")];
    const shown = shapes.filter((shape) => !shape.matches("[width='10'][height='10']"));
    // A bar of nothing is as wide as nothing, and may be all that there is of some.
    const seen = shown.filter((shape) => {
        const box = shape.getBoundingClientRect();
        return box.width > 0.5 && box.height > 0.5;
    });
    if (!seen.length) wrong.push(`${title}: nothing is drawn`);
    drawn += 1;
    for (const shape of shapes) {
        const style = getComputedStyle(shape);
        const color = shape.tagName === "polyline" ? style.stroke : style.fill;
        if (contrast(color, under) < drawnMin) wrong.push(`${title}: ${color} on ${under}`);
    }
    const ink = getComputedStyle(svg.querySelector("text")).fill;
    if (contrast(ink, under) < textMin) wrong.push(`${title}: text ${ink} on ${under}`);
}
// Part of a table or of a picture that is not seen shows at its edge, over the ground of a page.
for (const wide of document.querySelectorAll("div.wide")) {
    if (wide.scrollWidth <= wide.clientWidth + 1) continue;
    const edge = getComputedStyle(wide).backgroundImage.includes("gradient");
    const under = wide.querySelector("svg .bg");
    if (!edge || under && getComputedStyle(under).fillOpacity !== "0")
        wrong.push(`${wide.textContent.trim().slice(0, 30)}: nothing shows that it scrolls`);
    if (wide.tabIndex !== 0) wrong.push("what scrolls is not reached by keys");
}
const blocks = [...document.querySelectorAll("h1, h2, p, li, summary, td, th, b, a, code")];
for (const block of blocks) {
    const color = getComputedStyle(block).color;
    const under = ground(block);
    if (block.textContent.trim() && contrast(color, under) < textMin)
        wrong.push(`${block.tagName} "${block.textContent.slice(0, 40)}": ${color} on ${under}`);
}
// What stands one after the other does not lie over the next one.
const after = [...document.body.children].map((one) => [one, one.getBoundingClientRect()])
    .filter(([, box]) => box.height > 0);
for (const [at, [one, box]] of after.entries()) {
    const next = after[at + 1];
    if (next && next[1].top < box.bottom - slack)
        wrong.push(`${one.tagName} "${one.textContent.slice(0, 40)}" over what follows`);
}
return {wrong: [...new Set(wrong)], drawn};
"""


def check(out, studies):
    """Gives how many pictures were looked at; complains of all that is wrong."""
    folder, wrong, drawn = os.environ.get("PICTURES"), [], 0
    if folder:
        os.makedirs(folder, exist_ok=True)
    names = ["index.html", *(f"{name}/index.html" for name in studies)]
    with browser.Browser() as chromium:
        for name in names:
            chromium.go(f"file://{os.path.abspath(out)}/{name}")
            for width in WIDTHS:
                for scheme in SCHEMES:
                    chromium.look(width, 900, scheme)
                    told = chromium.run(SEEN, SLACK, TEXT_MIN, DRAWN_MIN, LETTER_MIN)
                    wrong += [f"{name}, {width} px, {scheme}: {one}" for one in told["wrong"]]
                    drawn += told["drawn"]
                    if folder:
                        file = name.replace("/index.html", "").replace(".html", "")
                        chromium.picture(f"{folder}/{file}-{width}-{scheme}.png")
            wrong += [f"{name}: {one}" for one in chromium.complaints()]
    return drawn, wrong
