// The charts of the live page: what became of the model, of updates and of links.

import { $, el, key, say } from "./dom.js";
import { drawChart, drawCharts } from "./chart.js";
import { valuesOf } from "./model.js";
import { metrics, number, percent, plural, rate } from "./format.js";

const LINK_HEIGHT = 64;
const AXIS = { label: "", text: "number", low: null, high: null, log: false, ticks: [] };
const ROUND = { ...AXIS, label: "round", text: "count" };

const layer = (kind, x, y, colour, more = {}) =>
  ({ kind, x, y, colour, label: "", ends: [], low: [], width: 2, dashed: false, opacity: 1, ...more });

const chart = (layers, x, y) => ({ title: "", layers, x: { ...AXIS, ...x }, y: { ...AXIS, low: 0, ...y }, rows: 0, over_rounds: x === ROUND, cells: null });

// The rounds in which a fault acted or acts.
function shaded({ faults, run }) {
  return faults.filter((fault) => fault.state !== "planned").flatMap((fault) => fault.rounds)
    .filter(({ first }) => first !== null)
    .map(({ first, healed }) => [first, healed === null ? Math.max(first, run.round) : Math.max(first, healed - 1)]);
}

export function drawQuality(model) {
  const { run } = model.sections;
  const values = valuesOf(model.series.evaluations);
  const rounds = values("round");
  const measured = [["loss", { label: "loss" }], ["accuracy", { label: "accuracy", text: "percent", high: 1 }]]
    .filter(([name]) => name === "loss" || run.accuracy !== null || !rounds.length);
  drawCharts($("quality"), measured.map(([name, y]) => chart([layer("steps", rounds, values(name), "blue")], ROUND, y)), shaded(model.sections));
  const fact = run.loss === null ? "No version has been evaluated yet."
    : `${[`Loss ${number(run.loss)}`, ...metrics(run)].join(", ")} after round ${number(run.evaluated_round)}.`;
  say($("quality-text"), `${fact}${model.sections.faults.length ? " Bands: rounds with a fault." : ""}`);
  drawAppMetrics(model.sections.app_metrics);
}

// What the server side of a Flower app has measured last.
function drawAppMetrics(measured) {
  $("app-metrics").hidden = !measured;
  if (!measured) return;
  const shown = Object.entries(measured.metrics).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : value}`);
  say($("app-metrics"), `Measured by the app ${measured.round ? `after round ${number(measured.round)}` : "before the first round"}: ${shown.join(", ")}.`);
}

export function drawWeights(model) {
  const values = valuesOf(model.series.rounds);
  const over = (name, colour, label, more) => layer("line", values("round"), values(name), colour, { label, ...more });
  drawChart($("weights"), chart([over("called", "grey", "called", { width: 1.5 }), over("folded", "green", "counted"),
    over("effective_size", "blue", "effective size", { dashed: true })], ROUND, { label: "updates" }), shaded(model.sections));
  const last = (name) => values(name).at(-1);
  const size = last("effective_size") ?? null;
  say($("weights-text"), size !== null
    ? `Round ${number(last("round"))}: ${plural(last("folded"), "update")} counted, with an effective size of ${number(size, 3)} (so many updates of equal weight average noise as well); the largest weighs ${percent(last("largest_share"))}. ${staleness(model)}`
    : "No update has counted yet.");
}

function staleness(model) {
  const counts = new Map();
  for (const group of model.sections.groups) {
    for (const [stale, count] of Object.entries(group.staleness)) counts.set(Number(stale), (counts.get(Number(stale)) ?? 0) + count);
  }
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const stale = total - (counts.get(0) ?? 0);
  if (!stale) return "None was stale.";
  return `${percent(stale / total)} of the newest updates were stale, by at most ${Math.max(...counts.keys())} versions.`;
}

export function drawLinks(model) {
  const { setup } = model.sections;
  const links = model.sections.links.filter((link) => setup.has_traffic || link.at.length);
  $("links-card").hidden = !links.length;
  $("journal-card").classList.toggle("full", !links.length);
  if (!links.length) return;
  if ($("links").children.length !== links.length) {
    key($("links-key"), [["c-blue", "up"], ["c-green", "down"], ["c-orange", "capacity up of the shared link (dashed)"]]);
    $("links").replaceChildren(...links.map((link) => el("div", { class: "bar-row" },
      el("div", { class: "head" }, el("h3", {}, linkTitle(link)), el("span", {}, "no traffic yet")), el("div", { class: "chart" }), el("ul", { class: "cells" }))));
  }
  links.forEach((link, place) => {
    if (!link.at.length) return;
    const row = $("links").children[place];
    say(row.querySelector(".head span"), traffic(link, link.up_bps.at(-1), link.down_bps.at(-1)));
    const over = (values, colour, more) => layer("line", link.at, values, colour, more);
    const cap = link.cap_up_bps === null ? [] : [layer("across", [], [link.cap_up_bps], "orange", { width: 1, dashed: true })];
    const shown = chart([over(link.up_bps, "blue"), over(link.down_bps, "green"), ...cap], { label: "time of day", text: "clock" }, { text: "rate" });
    drawChart(row.children[1], { ...shown, height: LINK_HEIGHT });
    drawCells(row.lastElementChild, link);
  });
}

const linkTitle = ({ name, groups }) => (groups.length === 1 && groups[0] === name ? name : `${name} (${groups.join(", ")})`);

// The cells of a shared link, each indented below the one that it is a part of.
function drawCells(list, { cells, cell_count: count }) {
  const lines = cells.map((cell) => el("li", { class: `depth-${Math.min(cell.depth, 4)}` },
    el("span", {}, cell.name), el("span", {}, traffic(cell, cell.up_bps, cell.down_bps))));
  if (count > cells.length && cells.length) lines.push(el("li", { class: "depth-1" }, `${plural(count - cells.length, "more cell")} with less traffic`));
  list.replaceChildren(...lines);
}

function traffic(link, up, down) {
  return [["up", up], ["down", down]].map(([way, now]) => {
    const cap = link[`cap_${way}_bps`];
    return `${rate(now)} ${way}${cap ? ` of ${rate(cap)}` : ""}`;
  }).join(" · ");
}
