// The life of one device, in a dialog.

import { $, el } from "./dom.js";
import { metrics, number, percent, seconds } from "./format.js";

const COLOURS = { folded: "arrived", declined: "declined", absent: "away", "no update": "other" };

export function showDevice(life) {
  const dialog = $("device");
  const folded = life.calls.filter((call) => call.fate === "folded").length;
  dialog.replaceChildren(
    el("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close"),
    el("h2", { id: "device-title" }, life.client),
    el("p", { class: "note" }, [`Group ${life.group}`, `${number(life.examples)} examples`,
      life.enrolled ? "" : "not enrolled", `${number(life.sessions)} ${life.sessions === 1 ? "session" : "sessions"}`,
      `${number(folded)} of the newest ${number(life.calls.length)} calls counted`].filter(Boolean).join(" · ")),
    life.evaluation ? el("p", {}, `Version ${number(life.evaluation.version)} of the model on its examples: ${
      [`loss ${number(life.evaluation.loss)}`, ...metrics(life.evaluation)].join(", ")}.`) : null,
    ...(life.calls.length ? [strip(life.calls), battery(life.calls), table(life.calls)]
      : [el("p", {}, "It has not been called in the newest rounds.")]));
  if (!dialog.open) dialog.showModal();
}

function strip(calls) {
  const svg = el("svg", { class: "strip", viewBox: `0 0 ${calls.length} 10`, preserveAspectRatio: "none", role: "img",
    "aria-label": "What became of its calls, oldest first; the table below has the same." });
  calls.forEach((call, place) => {
    const rect = el("rect", { x: place, y: 0, width: 0.88, height: 10 });
    rect.style.fill = `var(--${COLOURS[call.fate] ?? "uncounted"})`;
    svg.append(rect);
  });
  return svg;
}

function battery(calls) {
  const known = calls.filter((call) => call.battery !== null && call.battery !== undefined);
  if (known.length < 2) return null;
  const svg = el("svg", { class: "strip", viewBox: `0 0 ${calls.length} 10`, preserveAspectRatio: "none", role: "img",
    "aria-label": `Battery, ${percent(known[0].battery)} at first and ${percent(known.at(-1).battery)} at last` });
  const points = calls.flatMap((call, place) => (call.battery === null || call.battery === undefined ? [] : [`${place + 0.44},${10 - 10 * call.battery}`]));
  const path = el("path", { d: `M${points.join("L")}`, fill: "none", "vector-effect": "non-scaling-stroke", "stroke-width": "2" });
  path.style.stroke = "var(--transfer)";
  svg.append(path);
  return el("div", {}, el("small", {}, `Battery: ${percent(known.at(-1).battery)} now`), svg);
}

function table(calls) {
  const titles = ["Round", "What became of the call", "Battery", "Staleness", "Training", "Transfer", "Loss"];
  const rows = [...calls].reverse().map((call) => el("tr", {},
    el("td", {}, number(call.round)), el("td", {}, [call.fate, call.reason].filter(Boolean).join(": ")),
    ...[call.battery === null || call.battery === undefined ? "" : percent(call.battery),
      call.staleness ?? "", call.train_s ? seconds(call.train_s) : "", call.transfer_s ? seconds(call.transfer_s) : "",
      call.loss === null || call.loss === undefined ? "" : number(call.loss)].map((text) => el("td", { class: "n" }, String(text)))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Its calls, newest first" },
    el("table", {}, el("thead", {}, el("tr", {}, ...titles.map((title, place) => el("th", { scope: "col", class: place > 1 ? "n" : null }, title)))),
      el("tbody", {}, ...rows)));
}
