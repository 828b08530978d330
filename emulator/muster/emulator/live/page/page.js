// The page of a run. Its data come as frames from the page's program; a page whose data are inside
// the file (an element #run-data with a first frame) shows the same without a program.

import { applyFrame, emptyModel } from "./model.js";
import { $, el, fill, say } from "./dom.js";
import { bytes, clockTime, number, percent, seconds } from "./format.js";
import { drawFleet, startFleet } from "./fleet.js";
import { drawGroups, startGroups } from "./groups.js";
import { drawLinks, drawQuality, drawWeights, resizeCharts, restyle } from "./charts.js";
import { drawFaults } from "./faults.js";
import { drawJournal, startJournal } from "./journal.js";
import { openDevice } from "./device.js";
import { ask } from "./operator.js";

const model = emptyModel();
let started = false;
let waiting = false;
let noticeEnds = 0;

function notice(text, lasts_s = 8) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
  clearTimeout(noticeEnds);
  if (text && lasts_s) noticeEnds = setTimeout(() => notice(""), 1000 * lasts_s);
}

function start() {
  const { setup } = model.sections;
  started = true;
  $("loading").hidden = true;
  $("page").hidden = false;
  document.title = `${setup.name} – muster`;
  startFleet(setup, (name) => openDevice(name, notice));
  startGroups();
  startJournal(() => drawJournal(model));
  for (const button of document.querySelectorAll("[data-action]")) {
    button.addEventListener("click", () => ask(button.dataset.action, model, notice));
  }
  if (!setup.has_supervisor) document.querySelectorAll("[data-action]:not([data-action=stop])").forEach((button) => { button.hidden = true; });
  addEventListener("resize", resizeCharts);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { restyle(); drawFleet(model); });
}

function draw() {
  waiting = false;
  if (!started) start();
  drawHeader();
  drawFleet(model);
  drawGroups(model);
  drawLinks(model);
  drawQuality(model);
  drawWeights(model);
  drawFaults(model, (name) => ask("heal", model, notice, { name }));
  drawJournal(model);
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
    ["updates counted", number(run.folded), run.called ? `of ${number(run.called)}` : ""],
    [setup.clock === "rounds" ? "scenario time (modelled)" : "scenario time", seconds(run.scenario_s), ""],
    ["time in rounds", seconds(run.seconds), ""],
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
  for (const button of document.querySelectorAll("[data-action]")) button.disabled = run.state !== "running";
  const newest = model.lines.at(-1);
  say($("updated"), newest ? `Newest event: ${clockTime(newest.at)}.` : "");
}

function take(frame) {
  applyFrame(model, frame);
  if (!model.sections.run || waiting) return;
  waiting = true;
  requestAnimationFrame(draw);
}

function follow() {
  const source = new EventSource("events");
  let ended = false;
  source.addEventListener("open", () => {
    Object.assign(model, emptyModel());
    notice("");
  });
  source.addEventListener("message", (event) => take(JSON.parse(event.data)));
  source.addEventListener("bye", () => {
    ended = true;
    source.close();
    notice("The page's program has ended. `muster live` opens the run again.", 0);
  });
  source.addEventListener("error", () => {
    if (ended) return;
    notice(source.readyState === EventSource.CLOSED
      ? "The page's program refuses this page: too many are open, or the address is of an earlier start."
      : "The page's program does not answer. The run is not affected; trying again…", 0);
  });
}

const inside = $("run-data");
if (inside) take(JSON.parse(inside.textContent));
else follow();
