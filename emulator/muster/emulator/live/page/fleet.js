// The devices of every group: a tile each, or a point each if there are many.

import { clientName, clientsOf } from "./model.js";
import { $, colour, el, key, say } from "./dom.js";
import { number } from "./format.js";

const MOST_TILES = 400;
const MANY_TILES = 120;
const STATES = {
  w: ["working", "works on a call", "●"],
  u: ["arrived", "update arrived, or counted in the last round", "✓"],
  d: ["declined", "declined", "–"],
  x: ["uncounted", "late, gave up or refused", "✕"],
  i: ["idle", "connected, nothing to do", ""],
  o: ["away", "not connected", ""],
  "-": ["outside", "not enrolled", ""],
};
const NETWORKS = { e: "ethernet", w: "Wi-Fi", c: "mobile network" };
const ON_COLUMNS = 96;

export function startFleet(setup, open) {
  key($("legend"), Object.values(STATES).map(([name, text, glyph]) => [name, text, glyph]));
  const total = setup.groups.reduce((sum, group) => sum + group.count, 0);
  if (total <= 5000) $("clients").replaceChildren(...[...clientsOf(setup)].map((name) => el("option", { value: name })));
  $("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = new FormData(event.target).get("client").trim();
    if (name) open(name);
  });
  $("find").hidden = !open;
  $("marks").hidden = total > MANY_TILES;
  $("fleet").replaceChildren(...setup.groups.map((group) => {
    const title = el("div", { class: "group-title" }, el("h3", {}, group.name), el("span"));
    const drawn = total <= MOST_TILES ? tiles(group, total > MANY_TILES, open) : density(group, open);
    return el("div", { class: "group" }, title, drawn);
  }));
}

function tiles(group, small, open) {
  const size = small ? " small" : "";
  const grid = el("div", { class: `tiles${size}` });
  for (let place = 0; place < group.count; place += 1) {
    const name = clientName(group, place);
    grid.append(el("button", { type: "button", class: `tile${size}`, onclick: () => open(name) },
      el("span", { class: "glyph", "aria-hidden": "true" }),
      small ? null : el("span", { class: "net", "aria-hidden": "true" }),
      small ? null : el("span", { class: "mark", "aria-hidden": "true" }),
      small ? null : el("span", { class: "battery", "aria-hidden": "true", hidden: true }, el("i"))));
  }
  return grid;
}

function density(group, open) {
  const rows = Math.ceil(group.count / ON_COLUMNS);
  const canvas = el("canvas", { class: "density", role: "img", width: ON_COLUMNS, height: rows });
  canvas.style.aspectRatio = `${ON_COLUMNS} / ${rows}`;
  canvas.classList.toggle("selectable", Boolean(open));
  if (open) canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * ON_COLUMNS);
    const place = Math.floor((event.clientY - box.top) / box.height * rows) * ON_COLUMNS + column;
    if (place < group.count) open(clientName(group, place));
  });
  return canvas;
}

export function drawFleet(model) {
  const { setup, groups } = model.sections;
  setup.groups.forEach((group, index) => {
    const box = $("fleet").children[index];
    const counts = groups[index].states;
    const text = Object.entries(STATES).filter(([code]) => counts[code])
      .map(([code, [, what]]) => `${number(counts[code])} ${short(code, what)}`).join(", ");
    say(box.querySelector("span"), text);
    const drawn = box.lastElementChild;
    if (drawn.tagName === "CANVAS") paint(drawn, group, model.columns, text);
    else [...drawn.children].forEach((tile, place) => updateTile(tile, group, place, model.columns));
  });
}

const SHORT = { u: "arrived", x: "not counted", i: "idle", o: "away", w: "at work" };
const short = (code, what) => SHORT[code] ?? what;

function updateTile(tile, group, place, columns) {
  const at = group.first + place;
  const now = ["state", "battery", "power", "network", "staleness", "fault"].map((name) => columns[name][at]);
  if (tile.dataset.now === now.join("")) return;
  tile.dataset.now = now.join("");
  const [state, battery, power, network, staleness, fault] = now;
  const [, what, glyph] = STATES[state];
  const size = tile.classList.contains("small") ? " small" : "";
  tile.className = `tile${size} s-${state}${fault === "f" ? " fault" : ""}`;
  const stale = staleness > "0" && staleness !== " ";
  const says = [`${clientName(group, place)}: ${what}`];
  if (battery !== " ") says.push(`battery about ${10 * battery + 5} %${power === "c" ? ", charging" : ""}`);
  if (network !== " ") says.push(NETWORKS[network]);
  if (stale) says.push(`staleness ${staleness === "+" ? "10 or more" : staleness}`);
  if (fault === "f") says.push("under a fault");
  tile.title = says.join(", ");
  tile.setAttribute("aria-label", tile.title);
  say(tile.querySelector(".glyph"), glyph);
  if (size) return;
  // Not as text, which the label of the button would have to repeat.
  tile.querySelector(".mark").dataset.shown = stale ? staleness : power === "c" ? "ϟ" : "";
  tile.querySelector(".net").dataset.shown = network === "c" ? "m" : "";
  const meter = tile.querySelector(".battery");
  meter.hidden = battery === " ";
  if (battery !== " ") meter.firstElementChild.style.transform = `scaleX(${(Number(battery) + 0.5) / 10})`;
}

function paint(canvas, group, columns, text) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const colours = Object.fromEntries(Object.entries(STATES).map(([code, [name]]) => [code, rgb(colour(name))]));
  const struck = rgb(colour("ink"));
  for (let place = 0; place < group.count; place += 1) {
    const at = group.first + place;
    const [red, green, blue] = columns.fault[at] === "f" ? struck : colours[columns.state[at]];
    image.data.set([red, green, blue, 255], 4 * place);
  }
  context.putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", `${group.count} devices of ${group.name}: ${text}`);
}

const rgb = (hex) => [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16));
