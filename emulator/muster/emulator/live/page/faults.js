// The faults of a run with their states.

import { $, el } from "./dom.js";
import { number } from "./format.js";

const STEPS = ["planned", "applied", "observed", "healed", "verified"];

export function drawFaults(model, heal) {
  const { faults, setup, run } = model.sections;
  const now = JSON.stringify([faults, run.state]);
  const box = $("faults");
  if (box.dataset.now === now) return;
  box.dataset.now = now;
  if (!faults.length) {
    box.replaceChildren(el("p", { class: "note" }, "The scenario plans no fault, and none was injected."));
    return;
  }
  const rows = faults.map((fault) => el("tr", {},
    el("td", {}, el("b", {}, fault.fault), el("br"), el("small", {}, [fault.do, times(fault)].filter(Boolean).join(", "))),
    el("td", {}, targets(fault)),
    el("td", {}, steps(fault), fault.seen ? el("small", {}, fault.seen) : null),
    el("td", { class: "n" }, fault.acting && heal && setup.has_supervisor && run.state === "running"
      ? el("button", { type: "button", onclick: () => heal(fault.fault) }, "Heal…") : null)));
  box.replaceChildren(el("table", {},
    el("thead", {}, el("tr", {}, ...["Fault", "Targets", "State", ""].map((title) => el("th", { scope: "col" }, title || el("span", { class: "skip" }, "Action"))))),
    el("tbody", {}, ...rows)));
}

function times(fault) {
  const { first } = fault;
  if (first === null) return "";
  const last = fault.rounds.at(-1);
  const begin = fault.state === "planned" ? `from round ${first}` : `round ${first}`;
  // The round in which it was healed is the first without it.
  const until = last.healed === null ? null : Math.max(last.first, last.healed - 1);
  const end = until !== null && until !== first ? ` to ${until}` : "";
  return `${begin}${end}${fault.times > 1 ? `, ${fault.times} times` : ""}`;
}

function targets(fault) {
  const shown = fault.targets.slice(0, 3).join(", ");
  const more = fault.target_count - Math.min(3, fault.targets.length);
  return more > 0 ? `${shown} and ${number(more)} more` : shown;
}

function steps(fault) {
  const reached = STEPS.indexOf(fault.state);
  return el("div", { class: "steps" }, ...STEPS.slice(0, reached + 1).map((step, place) => {
    const class_ = fault.acting && place === reached ? "now" : null;
    return place === reached ? el("b", { class: class_ }, fault.acting ? `${step}, acts now` : step) : el("span", {}, step);
  }));
}
