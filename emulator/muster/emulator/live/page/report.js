// The page of a run whose data are inside the file. It can be read, and printed, without a program.

import { $ } from "./dom.js";
import { beginPage, model, notice, take } from "./page.js";
import { printCharts, resizeCharts } from "./charts.js";
import { showDevice } from "./device.js";
import { drawFleet } from "./fleet.js";

const { frame, lives } = JSON.parse($("run-data").textContent);

function openDevice(name) {
  if (Object.hasOwn(lives, name)) showDevice(lives[name]);
  else notice(`The run has no device ${name}.`);
}

// Paper is white, has no pointer that unfolds anything, and is narrower than most windows.
let folded = [];
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const details of folded) details.open = true;
  drawFleet(model);
  printCharts();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  for (const details of folded) details.open = false;
  drawFleet(model);
  resizeCharts();
});

beginPage({ openDevice: lives && openDevice });
$("without-lives").hidden = lives !== null;
take(frame);
