// The page of a run whose data are inside the file. It can be read, and printed, without a program.

import { $ } from "./dom.js";
import { beginPage, model, notice, take } from "./page.js";
import { drawCharts } from "./chart.js";
import { showDevice } from "./device.js";
import { drawFleet } from "./fleet.js";

const { run, figures, shaded } = JSON.parse($("run-data").textContent);

function openDevice(name) {
  if (Object.hasOwn(run.lives, name)) showDevice(run.lives[name]);
  else notice(`The run has no device ${name}.`);
}

// Paper is white, and has no pointer that unfolds anything.
let folded = [];
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const details of folded) details.open = true;
  if (run) drawFleet(model);
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  for (const details of folded) details.open = false;
  if (run) drawFleet(model);
});

for (const box of document.querySelectorAll("[data-figure]")) drawCharts(box, figures[box.dataset.figure], shaded);
// A link to a section that is folded opens it.
addEventListener("hashchange", () => {
  const details = document.getElementById(location.hash.slice(1))?.querySelector("details");
  if (details) details.open = true;
});

if (run) {
  // With one group there is nothing to compare.
  const several = run.frame.sections.setup.groups.length > 1;
  for (const card of ["participation", "waits", "shares"]) $(card).closest("section").hidden = !several;
  beginPage({ openDevice: run.lives && openDevice });
  $("without-lives").hidden = run.lives !== null;
  take(run.frame);
}
