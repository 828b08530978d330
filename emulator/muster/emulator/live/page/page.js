// The page of a run, wherever its data come from: live.js gets them from the page's program, and
// report.js from inside the file.

import { applyFrame, emptyModel } from "./model.js";
import { $, coded, el, fill, say } from "./dom.js";
import { bytes, clockTime, number, percent, seconds } from "./format.js";
import { drawFleet, startFleet } from "./fleet.js";
import { drawGroups, startGroups } from "./groups.js";
import { drawLinks, drawQuality, drawWeights } from "./charts.js";
import { drawFaults } from "./faults.js";
import { drawJournal, startJournal } from "./journal.js";

export const model = emptyModel();
let abilities = {};
let started = false;
let waiting = false;
let noticeEnds = 0;

// What the page can do besides showing: `openDevice(name)`, `heal(fault)`, and `drawActions()`. Each
// may be missing; then the page does not offer it.
export function beginPage(given) {
  abilities = given;
}

export function notice(text, lasts_s = 8) {
  $("notice").replaceChildren(...coded(text));
  $("notice").hidden = !text;
  clearTimeout(noticeEnds);
  if (text && lasts_s) noticeEnds = setTimeout(() => notice(""), 1000 * lasts_s);
}

function start() {
  const { setup } = model.sections;
  started = true;
  $("loading")?.remove();
  $("page").hidden = false;
  document.title = `${setup.name} – muster`;
  startFleet(setup, abilities.openDevice);
  startGroups(setup);
  startJournal(() => drawJournal(model));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawFleet(model));
}

// The report has some of these cards as sections, which show the whole run, and draws the others.
const CARDS = {
  facts: drawHeader,
  fleet: drawFleet,
  participation: drawGroups,
  links: drawLinks,
  quality: drawQuality,
  weights: drawWeights,
  faults: (known) => drawFaults(known, abilities.heal),
  journal: drawJournal,
};

function draw() {
  waiting = false;
  if (!started) start();
  for (const [name, drawCard] of Object.entries(CARDS)) if ($(name)) drawCard(model);
  abilities.drawActions?.();
  const newest = model.lines.at(-1);
  say($("updated"), newest ? `Newest event: ${clockTime(newest.at)}.` : "");
}

function drawHeader() {
  const { run, setup } = model.sections;
  say($("name"), setup.name);
  say($("state"), run.state);
  $("state").className = `badge ${run.state}`;
  say($("stage"), run.stage);
  const [done, of] = run.starting ? [run.enrolled, run.population] : [run.done, run.of];
  $("done").max = Math.max(of, 1);
  $("done").value = done;
  say($("left"), run.left_s && run.state === "running" ? `about ${seconds(run.left_s)} left` : run.detail);
  const facts = [
    ["loss", number(run.loss), ""],
    ["accuracy", percent(run.accuracy), ""],
    [run.state === "running" ? "devices connected" : "devices", number(run.state === "running" ? run.present : run.population), run.state === "running" ? `of ${number(run.population)}` : ""],
    ["updates, newest round", number(run.folded), run.called ? `of ${number(run.called)}` : ""],
    ["scenario time", seconds(run.scenario_s), ""],
    ["time in rounds on this machine", seconds(run.seconds), ""],
    ["up", bytes(run.bytes_up), ""],
    ["down", bytes(run.bytes_down), ""],
    ...(run.epsilon === null ? [] : [["ε spent", number(run.epsilon), ""]]),
    ...(run.empty ? [["empty rounds", number(run.empty), ""]] : []),
  ];
  fill($("facts"), facts, () => el("div", {}, el("dt"), el("dd", {}, el("span"), " ", el("small"))), (box, [label, value, more]) => {
    say(box.children[0], label);
    say(box.children[1].children[0], value);
    say(box.children[1].children[1], more);
  });
}

export function take(frame) {
  applyFrame(model, frame);
  if (!model.sections.run || waiting) return;
  waiting = true;
  requestAnimationFrame(draw);
}
