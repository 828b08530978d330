// The charts of the live page: what became of the model, of updates and of links.

import { $, el, key, say } from "./dom.js";
import { drawChart, drawCharts } from "./chart.js";
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
  const rows = model.series.evaluations ?? [];
  const column = (place) => rows.map((row) => row[place]);
  const measured = [["loss", 2, { label: "loss" }], ["accuracy", 3, { label: "accuracy", text: "percent", high: 1 }]]
    .filter(([name]) => name === "loss" || run.accuracy !== null || !rows.length);
  drawCharts($("quality"), measured.map(([, place, y]) => chart([layer("steps", column(0), column(place), "blue")], ROUND, y)), shaded(model.sections));
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
  const rows = model.series.rounds ?? [];
  const column = (place) => rows.map((row) => row[place]);
  const over = (place, colour, label, more) => layer("line", column(0), column(place), colour, { label, ...more });
  drawChart($("weights"), chart([over(2, "grey", "called", { width: 1.5 }), over(4, "green", "counted"),
    over(8, "blue", "effective size", { dashed: true })], ROUND, { label: "updates" }), shaded(model.sections));
  const last = rows.at(-1);
  say($("weights-text"), last && last[8] !== null
    ? `Round ${number(last[0])}: ${plural(last[4], "update")} counted, with an effective size of ${number(last[8], 3)} (so many updates of equal weight average noise as well); the largest weighs ${percent(last[9])}. ${staleness(model)}`
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
  const { setup, links } = model.sections;
  const names = setup.groups.map((group) => group.name).filter((name) => setup.has_traffic || links[name]);
  $("links-card").hidden = !names.length;
  $("journal-card").classList.toggle("full", !names.length);
  if (!names.length) return;
  if (!$("links").children.length) {
    key($("links-key"), [["c-blue", "up"], ["c-green", "down"], ["c-orange", "capacity up of the shared link (dashed)"]]);
    $("links").replaceChildren(...names.map((name) => el("div", { class: "bar-row" },
      el("div", { class: "head" }, el("h3", {}, name), el("span", {}, "no traffic yet")), el("div", { class: "chart" }))));
  }
  names.forEach((name, place) => {
    const link = links[name];
    if (!link || !link.at.length) return;
    const row = $("links").children[place];
    say(row.querySelector(".head span"), traffic(link));
    const over = (values, colour, more) => layer("line", link.at, values, colour, more);
    const cap = link.cap_up_bps === null ? [] : [layer("across", [], [link.cap_up_bps], "orange", { width: 1, dashed: true })];
    const shown = chart([over(link.up_bps, "blue"), over(link.down_bps, "green"), ...cap], { label: "time of day", text: "clock" }, { text: "rate" });
    drawChart(row.lastElementChild, { ...shown, height: LINK_HEIGHT });
  });
}

function traffic(link) {
  return ["up", "down"].map((way) => {
    const now = link[`${way}_bps`].at(-1);
    const cap = link[`cap_${way}_bps`];
    return `${rate(now)} ${way}${cap ? ` of ${rate(cap)}` : ""}`;
  }).join(" · ");
}
