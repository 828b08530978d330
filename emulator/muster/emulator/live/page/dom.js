// Makes and updates elements. Names in a run come from peers, so text is only ever set as text.

export const $ = (id) => document.getElementById(id);

const DRAWN = new Set(["svg", "rect", "path", "text", "title"]);

export function el(tag, properties = {}, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Sets text only where it differs, so that nothing is laid out anew for nothing.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A text as nodes: what stands between backticks is code.
export function coded(text) {
  return text.split("`").map((part, place) => (place % 2 ? el("code", {}, part) : part)).filter((part) => part !== "");
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Fills a list with as many children as there are items, and updates those that are there.
export function fill(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make(items[parent.children.length]));
  items.forEach((item, place) => update(parent.children[place], item));
}

// A key of colours; `entries` are pairs of a colour's name and what it stands for.
export function key(list, entries) {
  list.replaceChildren(...entries.map(([name, text, glyph]) => {
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = `var(--${name})`;
    if (name === "away") swatch.style.border = "1px dashed var(--muted)";
    return el("li", {}, swatch, glyph ? `${glyph} ${text}` : text);
  }));
}

// A bar of parts, each with its share of the whole in [0, 1] and the name of its colour.
// `mark` is a place in [0, 1] that gets a line.
export function bar(svg, parts, mark) {
  let from = 0;
  const drawn = [];
  for (const [share, name] of parts) {
    drawn.push([from, share, name]);
    from += share;
  }
  if (mark !== undefined) drawn.push([mark, 0.006, "ink"]);
  fill(svg, drawn, () => el("rect", { y: "0", height: "14" }), (rect, [x, share, name]) => {
    rect.setAttribute("x", `${100 * x}%`);
    rect.setAttribute("width", `${Math.max(0, 100 * share)}%`);
    rect.style.fill = `var(--${name})`;
  });
}

// A row with a name, a number at its right, a bar and a line of reasons.
export function barRow() {
  return el("div", { class: "bar-row" },
    el("div", { class: "head" }, el("h3"), el("span")),
    el("svg", { "aria-hidden": "true" }),
    el("div", { class: "why" }));
}

export function updateBarRow(row, { name, number, parts, mark, why }) {
  say(row.querySelector("h3"), name);
  say(row.querySelector(".head span"), number);
  bar(row.querySelector("svg"), parts, mark);
  const line = row.querySelector(".why");
  say(line, why);
  if (line.title !== why) line.title = why;
}
