// The charts over rounds, with faults as bands, and the traffic of links over time.

import { $, colour, el, key, say } from "./dom.js";
import { number, percent, plural, rate } from "./format.js";

/* global uPlot */
const drawn = new Map();
const LINK_HEIGHT = 96;

export function restyle() {
  for (const { chart } of drawn.values()) chart.redraw(false);
}

export function resizeCharts() {
  for (const { chart, box, height } of drawn.values()) chart.setSize({ width: box.clientWidth, height: height() });
}

const PRINT_WIDTH = 640;

// Gives every chart the width that it has on paper; page.css shrinks it on narrower paper.
export function printCharts() {
  for (const { chart, height } of drawn.values()) chart.setSize({ width: PRINT_WIDTH, height: height() });
}

function line(name, label, show, more = {}) {
  return { label, stroke: () => colour(name), width: 2, spanGaps: true, points: { show: (plot) => plot.data[0].length < 3 }, value: (_, value) => show(value), ...more };
}

function axis(more = {}) {
  return { stroke: () => colour("muted"), grid: { stroke: () => colour("line"), width: 1 }, ticks: { show: false },
    font: "12px Inter, system-ui, sans-serif", ...more };
}

function chart(box, options, data, height) {
  const known = drawn.get(box.id);
  if (known) {
    known.chart.setData(data);
    return known.chart;
  }
  const made = new uPlot({ width: box.clientWidth, height: height(), cursor: { points: { size: 6 } }, ...options }, data, box);
  made.root.setAttribute("aria-hidden", "true");
  drawn.set(box.id, { chart: made, box, height });
  return made;
}

// What is left of a box below the key, which takes two lines on a phone.
const inBox = (box) => () => Math.max(120, box.clientHeight - (box.clientWidth < 420 ? 58 : 34));

// Draws a band for every occurrence of a fault, behind the lines.
function bands(faults) {
  return { hooks: { drawAxes: [(plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = colour("band");
    for (const fault of faults()) {
      for (const { first, healed } of fault.rounds) {
        if (first === null || fault.state === "planned") continue;
        const left = Math.max(plot.valToPos(first - 0.5, "x", true), bbox.left);
        const end = healed === null ? plot.scales.x.max : healed - 0.5;
        const right = Math.min(plot.valToPos(Math.max(end, first + 0.5), "x", true), bbox.left + bbox.width);
        if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
      }
    }
    ctx.restore();
  }] } };
}

const span = (_, low, high) => [Math.min(low ?? 0, 1), Math.max(high ?? 1, 2)];

const rounds = (_, values) => values.map((value) => (Number.isInteger(value) ? number(value) : ""));

export function drawQuality(model) {
  const { run } = model.sections;
  const rows = model.series.evaluations ?? [];
  const box = $("quality");
  chart(box, {
    scales: { x: { time: false, range: span }, accuracy: { range: [0, 1] }, loss: { range: (_, low, high) => [0, high ? 1.08 * high : 1] } },
    axes: [axis({ values: rounds }), axis({ scale: "loss", size: 46 }),
      axis({ scale: "accuracy", side: 1, size: 50, grid: { show: false }, values: (_, values) => values.map((value) => `${Math.round(100 * value)} %`) })],
    series: [{ label: "round", value: (_, value) => number(value) },
      line("transfer", "loss (left)", (value) => number(value), { scale: "loss" }),
      line("uncounted", "accuracy (right)", percent, { scale: "accuracy", dash: [6, 4] })],
    plugins: [bands(() => model.sections.faults)],
  }, [0, 2, 3].map((column) => rows.map((row) => row[column])), inBox(box));
  const fact = run.loss === null ? "No version has been evaluated yet."
    : `Loss ${number(run.loss)}${run.accuracy === null ? "" : `, accuracy ${percent(run.accuracy)}`} after round ${number(run.evaluated_round)}.`;
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
  const box = $("weights");
  const peak = (_, low, high) => [0, Math.max(1, high ?? 1) * 1.08];
  chart(box, {
    scales: { x: { time: false, range: span }, y: { range: peak } },
    axes: [axis({ values: rounds }), axis({ size: 46 })],
    series: [{ label: "round", value: (_, value) => number(value) },
      line("other", "called", number, { width: 1.5 }),
      line("arrived", "counted", number),
      line("transfer", "effective size", (value) => number(value, 3), { dash: [6, 4] })],
    plugins: [bands(() => model.sections.faults)],
  }, [0, 2, 4, 8].map((column) => rows.map((row) => row[column])), inBox(box));
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
    key($("links-key"), [["transfer", "up"], ["arrived", "down"], ["uncounted", "capacity up of the shared link (dashed)"]]);
    $("links").replaceChildren(...names.map((name, place) => el("div", { class: "bar-row" },
      el("div", { class: "head" }, el("h3", {}, name), el("span", {}, "no traffic yet")), el("div", { id: `link-${place}` }))));
    for (let place = 0; place < names.length; place += 1) $(`link-${place}`).style.height = `${LINK_HEIGHT}px`;
  }
  names.forEach((name, place) => {
    const link = links[name];
    if (!link || !link.at.length) return;
    say($("links").children[place].querySelector(".head span"), traffic(link));
    const cap = link.at.map(() => link.cap_up_bps);
    chart($(`link-${place}`), {
      legend: { show: false }, cursor: { show: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 1, 1) * 1.08] } },
      axes: [axis({ size: 24, values: [[1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]], space: 90 }),
        axis({ size: 74, space: 26, values: (_, values) => values.map(rate) })],
      series: [{}, line("transfer", "up", rate), line("arrived", "down", rate),
        line("uncounted", "capacity up", rate, { width: 1, dash: [3, 4] })],
    }, [link.at, link.up_bps, link.down_bps, cap], () => LINK_HEIGHT);
  });
}

function traffic(link) {
  return ["up", "down"].map((way) => {
    const now = link[`${way}_bps`].at(-1);
    const cap = link[`cap_${way}_bps`];
    return `${rate(now)} ${way}${cap ? ` of ${rate(cap)}` : ""}`;
  }).join(" · ");
}
