// Draws charts as SVG. What a chart is, report/chart.py says; the live page makes its own.
//
// Colours are those of page.css, so that a change of the scheme, and paper, need no new drawing.

import { el, say } from "./dom.js";
import { clockTime, number, percent, rate } from "./format.js";

const PLOT_HEIGHT = 150;
const ROW_HEIGHT = 15;
const TALLEST = 460;
const TOP = 24;
const LETTER = 6.4;
const LONGEST_LABEL = 22;

const WRITTEN = {
  number: (value) => number(value),
  count: (value) => (Number.isInteger(value) ? number(value) : ""),
  percent: (value) => (Math.abs(100 * value - Math.round(100 * value)) < 1e-6 ? `${Math.round(100 * value)} %` : percent(value)),
  rate,
  clock: clockTime,
};

const drawn = new Map();
const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const known = drawn.get(target);
    if (known && target.clientWidth && target.clientWidth !== known.width) draw(target, known);
  }
});

// Draws a chart into a box, or brings it up to date. `shaded` are intervals of rounds.
export function drawChart(box, chart, shaded = []) {
  const known = drawn.get(box) ?? { at: null };
  drawn.set(box, Object.assign(known, { chart, shaded }));
  if (!known.root) begin(box, known);
  draw(box, known);
}

// Draws several charts beside each other.
export function drawCharts(box, charts, shaded) {
  while (box.children.length < charts.length) box.append(el("div", { class: "chart" }));
  charts.forEach((chart, place) => drawChart(box.children[place], chart, shaded));
}

function begin(box, known) {
  known.root = el("svg", { role: "img" });
  known.key = el("ul", { class: "legend" });
  box.replaceChildren(...(known.chart.title ? [el("h3", {}, known.chart.title)] : []), known.key, known.root);
  known.root.addEventListener("pointermove", (event) => point(box, known, event));
  known.root.addEventListener("pointerleave", () => { known.at = null; draw(box, known); });
  resized.observe(box);
}

function point(box, known, event) {
  const { left, width } = known.root.getBoundingClientRect();
  const { x } = known.scales;
  known.at = x.back((event.clientX - left) / width * known.width);
  if (known.at < x.low || known.at > x.high) known.at = null;
  draw(box, known);
}

function draw(box, known) {
  const { chart, shaded } = known;
  known.width = box.clientWidth || known.width || 640;
  const tall = chart.rows ? Math.min(Math.max(chart.rows * ROW_HEIGHT, 30), TALLEST) : chart.height ?? PLOT_HEIGHT;
  const scales = scalesOf(chart, known.width, tall);
  const height = TOP + tall + (scales.x.ticks.some(([, label]) => label.includes("\n")) ? 46 : 32);
  known.scales = scales;
  known.root.setAttribute("viewBox", `0 0 ${known.width} ${height}`);
  known.root.setAttribute("aria-label", [chart.title, chart.y.label, chart.x.label].filter(Boolean).join(", "));
  const { x, y } = scales;
  const plot = el("svg", { x: x.from - 3, y: y.to - 3, width: x.to - x.from + 6, height: y.from - y.to + 6,
    viewBox: `${x.from - 3} ${y.to - 3} ${x.to - x.from + 6} ${y.from - y.to + 6}`, overflow: "hidden" });
  if (chart.over_rounds) for (const [first, last] of shaded) plot.append(rect(x.at(first - 0.5), y.to, x.at(last + 0.5), y.from, "band"));
  if (chart.cells) drawCells(plot, chart, scales);
  for (const layer of chart.layers) drawLayer(plot, layer, scales);
  if (known.at !== null) plot.append(path(`M${x.at(known.at)} ${y.to}V${y.from}`, "muted", 1));
  known.root.replaceChildren(...axes(chart, scales, known.width), plot);
  drawKey(known);
}

// --- scales --------------------------------------------------------------------------------------

function scalesOf(chart, width, tall) {
  const places = (layer) => [...layer.x, ...layer.ends];
  const values = (layer) => (layer.kind === "spans" ? [] : [...layer.y, ...layer.low]);
  const ends = { y: extent(chart.y, chart.layers.flatMap(values), chart.layers.some((layer) => layer.kind === "bars")),
    x: extent(chart.x, chart.layers.flatMap((layer) => (layer.kind === "spans" || layer.kind === "bars" ? places(layer) : layer.x))) };
  if (chart.rows) ends.y = [-0.5, chart.rows - 0.5];
  else if (chart.y.high === null && !chart.y.log) ends.y[1] += 0.06 * (ends.y[1] - ends.y[0]);
  const yTicks = ticksOf(chart.y, ends.y, chart.rows ? 0 : Math.round(tall / 38));
  const longest = Math.max(0, ...yTicks.map(([, label]) => Math.min(label.length, LONGEST_LABEL)));
  const left = Math.min(10 + LETTER * longest, width / 3);
  const y = chart.rows ? scale(chart.y, ends.y, TOP + tall, TOP, true) : scale(chart.y, ends.y, TOP + tall, TOP);
  const x = scale(chart.x, ends.x, left, width - 8);
  const most = Math.max(2, Math.floor((x.to - x.from) / 70));
  return { x: { ...x, ticks: ticksOf(chart.x, ends.x, most) }, y: { ...y, ticks: yTicks } };
}

function extent(axis, values, fromZero = false) {
  const finite = values.filter((value) => value !== null && (!axis.log || value > 0));
  if (fromZero) finite.push(0);
  let low = axis.low ?? finite.reduce((least, value) => Math.min(least, value), Infinity);
  let high = axis.high ?? finite.reduce((most, value) => Math.max(most, value), -Infinity);
  if (!Number.isFinite(low)) low = 0;
  if (!(high > low)) high = axis.log ? low * 2 : low + (axis.low === 0 || axis.text === "count" ? 1 : Math.abs(low) / 10 || 1);
  return [low, high];
}

function scale({ log }, [low, high], from, to, down = false) {
  const on = log ? Math.log : (value) => value;
  const off = log ? Math.exp : (value) => value;
  const [first, last] = down ? [on(high), on(low)] : [on(low), on(high)];
  return { low, high, from, to,
    at: (value) => Math.round(100 * (from + (on(value) - first) / (last - first) * (to - from))) / 100,
    back: (place) => off(first + (place - from) / (to - from) * (last - first)) };
}

function ticksOf(axis, [low, high], most) {
  if (axis.ticks.length) return axis.ticks.filter(([place]) => place >= low && place <= high);
  if (!most) return [];
  const write = WRITTEN[axis.text];
  return (axis.log ? powers(low, high) : steps(low, high, most, axis.text === "count")).map((value) => [value, write(value)]);
}

function steps(low, high, most, whole) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = power * [1, 2, whole ? 2 : 2.5, 5, 10].find((each) => each * power >= rough * 0.999);
  if (whole) step = Math.max(1, step);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + 1e-9 * step; place += 1) found.push(Number((place * step).toPrecision(12)));
  return found;
}

function powers(low, high) {
  const found = [];
  const parts = high < 300 * low ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) {
    for (const part of parts) found.push(Number((part * 10 ** power).toPrecision(3)));
  }
  return found.filter((value) => value >= low && value <= high);
}

// --- axes ----------------------------------------------------------------------------------------

function axes(chart, { x, y }, width) {
  const found = [write(0, 11, chart.y.label, "axis")];
  for (const [place, label] of y.ticks) {
    const at = y.at(place);
    if (!chart.rows) found.push(path(`M${x.from} ${at}H${x.to}`, "line", 1));
    found.push(write(x.from - 6, at + 4, shortened(label), "end", label));
  }
  found.push(path(`M${x.from} ${y.from + 0.5}H${x.to}`, "muted", 1));
  let free = -Infinity;
  for (const [place, label] of x.ticks) {
    const lines = label.split("\n");
    const half = LETTER * Math.max(...lines.map((text) => text.length)) / 2;
    const at = Math.min(Math.max(x.at(place), half), width - half);
    if (at - half < free) continue; // it would be written over the last one
    free = at + half + 6;
    lines.forEach((text, row) => found.push(write(at, y.from + 15 + 14 * row, text, "middle")));
  }
  const under = x.ticks.some(([, label]) => label.includes("\n")) ? 42 : 29;
  found.push(write(x.to, y.from + under, chart.x.label, "end"));
  return found;
}

const shortened = (label) => (label.length > LONGEST_LABEL ? `${label.slice(0, LONGEST_LABEL - 1)}…` : label);

function write(x, y, text, role, full) {
  const made = el("text", { x, y, class: role }, text);
  if (full && full !== text) made.append(el("title", {}, full));
  return made;
}

// --- layers --------------------------------------------------------------------------------------

function path(d, name, width, looks = {}) {
  const made = el("path", { d, fill: "none", "stroke-width": width });
  Object.assign(made.style, { stroke: `var(--${name})` }, looks);
  return made;
}

function area(d, name, opacity = 1) {
  const made = el("path", { d });
  Object.assign(made.style, { fill: `var(--${name})`, opacity });
  return made;
}

function rect(left, top, right, bottom, name) {
  return area(box(left, top, right, bottom), name);
}

const box = (left, top, right, bottom) => `M${left} ${top}H${right}V${bottom}H${left}Z`;

function drawLayer(plot, layer, scales) {
  const name = variable(layer.colour);
  const d = SHAPES[layer.kind](layer, scales);
  if (!d) return;
  if (["filled", "bars", "spans"].includes(layer.kind)) plot.append(area(d, name, layer.opacity));
  else if (layer.kind === "dots") plot.append(path(d, name, 5, { strokeLinecap: "round", opacity: layer.opacity }));
  else plot.append(path(d, name, layer.width, { strokeDasharray: layer.dashed ? "6 4" : "none", opacity: layer.opacity, strokeLinejoin: "round" }));
}

const variable = (colour) => `c-${colour.replace(" ", "-")}`;

const SHAPES = {
  line: ({ x, y }, scales) => joined(x, y, scales, (at, to) => `L${at} ${to}`),
  steps: ({ x, y }, scales) => joined(x, y, scales, (at, to) => `H${at}V${to}`),
  dots: ({ x, y }, scales) => each(x, y, (place, value) => `M${scales.x.at(place)} ${scales.y.at(value)}h0`),
  across: ({ y }, scales) => each(y, y, (value) => `M${scales.x.from} ${scales.y.at(value)}H${scales.x.to}`),
  down: ({ x }, scales) => each(x, x, (place) => `M${scales.x.at(place)} ${scales.y.to}V${scales.y.from}`),
  bars: ({ x, y, ends }, scales) => each(x, y, (place, value, index) => box(scales.x.at(place), scales.y.at(value), scales.x.at(ends[index]), scales.y.at(0))),
  spans: ({ x, y, ends }, scales) => each(x, y, (place, row, index) => box(scales.x.at(place), scales.y.at(row + 0.39), scales.x.at(ends[index]), scales.y.at(row - 0.39))),
  levels: levels,
  filled: filled,
};

function each(x, y, draw) {
  return x.map((place, index) => (place === null || y[index] === null ? "" : draw(place, y[index], index))).join("");
}

// A single point, which no line joins to another, becomes a dot.
function joined(x, y, scales, to) {
  let open = false;
  return x.map((place, index) => {
    if (place === null || y[index] === null) {
      open = false;
      return "";
    }
    const [at, value] = [scales.x.at(place), scales.y.at(y[index])];
    const alone = !open && (y[index + 1] ?? null) === null;
    const d = open ? to(at, value) : `M${at} ${value}${alone ? "h3" : ""}`;
    open = true;
    return d;
  }).join("");
}

function levels({ x, y }, scales) {
  let open = false;
  return y.map((value, index) => {
    if (value === null) {
      open = false;
      return "";
    }
    const [at, level] = [scales.x.at(x[index]), scales.y.at(value)];
    const d = `${open ? `V${level}` : `M${at} ${level}`}H${scales.x.at(x[index + 1])}`;
    open = true;
    return d;
  }).join("");
}

function filled({ x, y, low }, scales) {
  const floor = (index) => scales.y.at(low.length ? low[index] ?? 0 : Math.max(0, scales.y.low));
  let d = "";
  for (let first = 0; first < y.length; first += 1) {
    if (y[first] === null) continue;
    let last = first;
    while (last + 1 < y.length && y[last + 1] !== null) last += 1;
    d += `M${scales.x.at(x[first])} ${floor(first)}`;
    for (let index = first; index <= last; index += 1) d += `V${scales.y.at(y[index])}H${scales.x.at(x[index + 1])}`;
    for (let index = last; index >= first; index -= 1) d += `V${floor(index)}H${scales.x.at(x[index])}`;
    d += "Z";
    first = last;
  }
  return d;
}

// Cells of the same colour beside each other become one rectangle.
function drawCells(plot, { cells }, { x, y }) {
  const columns = cells.rows[0].length;
  const wide = (x.high - x.low) / columns;
  const shapes = cells.key.map(() => "");
  const gap = (x.to - x.from) / columns > 8 ? 1 : 0;
  cells.rows.forEach((row, place) => {
    for (let first = 0; first < columns; first += 1) {
      const code = row.charCodeAt(first) - 97;
      let last = first;
      while (!gap && last + 1 < columns && row[last + 1] === row[first]) last += 1;
      if (row[first] !== " ") shapes[code] += box(x.at(x.low + first * wide), y.at(place + 0.5) - gap, x.at(x.low + (last + 1) * wide) - gap, y.at(place - 0.5));
      first = last;
    }
  });
  shapes.forEach((d, code) => { if (d) plot.append(area(d, variable(cells.key[code][0]))); });
  cells.texts.forEach((texts, row) => texts.forEach((text, column) =>
    plot.append(write(x.at(x.low + (column + 0.5) * wide), y.at(row) + 4, text, "in-cell"))));
}

// --- the key -------------------------------------------------------------------------------------

function drawKey({ chart, key, at }) {
  const there = new Set(chart.cells ? chart.cells.rows.join("") : "");
  const cells = chart.cells ? chart.cells.key.filter((_, code) => there.has(String.fromCharCode(97 + code))) : [];
  const entries = [...cells.map(([colour, label]) => [colour, label, null]),
    ...chart.layers.filter((layer) => layer.label).map((layer) => [layer.colour, layer.label, layer])];
  if (key.children.length !== entries.length + 1) {
    key.replaceChildren(...entries.map(() => el("li", {}, el("span", { class: "swatch", "aria-hidden": "true" }), el("span"))), el("li"));
  }
  entries.forEach(([colour, label, layer], place) => {
    const item = key.children[place];
    const value = at === null || !layer ? null : valueAt(layer, at);
    item.firstChild.style.background = `var(--${variable(colour)})`;
    item.firstChild.style.opacity = layer?.opacity ?? 1;
    say(item.lastChild, value === null ? label : `${label}: ${WRITTEN[chart.y.text](value) || number(value)}`);
  });
  key.hidden = !entries.length;
  const named = at !== null && !chart.x.ticks.length;
  say(key.lastChild, named ? `${chart.x.label} ${WRITTEN[chart.x.text](chart.x.text === "count" ? Math.round(at) : at)}` : "");
}

function valueAt({ kind, x, y, ends }, at) {
  if (kind === "across") return y[0];
  if (kind === "bars") return y[x.findIndex((begin, index) => begin <= at && at < ends[index])] ?? null;
  if (["dots", "down", "spans"].includes(kind)) return null;
  let place = x.findLastIndex((begin) => begin !== null && begin <= at);
  if (kind === "line" && place + 1 < x.length && x[place + 1] - at < at - x[place]) place += 1;
  return y[place] ?? null;
}
