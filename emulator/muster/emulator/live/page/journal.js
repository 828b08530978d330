// The newest events of the journal. Rows stay where they are, and get the text of other events.

import { $, el, fill, say } from "./dom.js";
import { clockTime } from "./format.js";

const MOST_ROWS = 150;
const PROBLEMS = new Set(["died", "refused", "disk_ran_full", "warned", "revoked", "training_failed",
  "left_out"]);
let kinds = "";

export function startJournal(draw) {
  $("filter").addEventListener("input", draw);
  $("filter").addEventListener("submit", (event) => event.preventDefault());
}

export function drawJournal(model) {
  offerKinds(model);
  const wanted = new FormData($("filter"));
  const words = wanted.get("text").toLowerCase();
  const kind = wanted.get("kind");
  const frequent = model.sections.setup.frequent_events;
  const shown = [];
  for (let place = model.lines.length - 1; place >= 0 && shown.length < MOST_ROWS; place -= 1) {
    const line = model.lines[place];
    if (kind === "all" || (kind === "main" ? !frequent.includes(line.event) : kind === line.event)) {
      const text = describe(line.fields);
      if (!words || `${line.event} ${text}`.toLowerCase().includes(words)) shown.push([line, text]);
    }
  }
  fill($("journal"), shown,
    () => el("div", { class: "line" }, el("span", { class: "t" }), el("span", { class: "k" }), el("span", { class: "d" })),
    (row, [line, text]) => {
      const role = PROBLEMS.has(line.event) ? " problem" : line.event.startsWith("fault_") ? " fault" : "";
      if (row.className !== `line${role}`) row.className = `line${role}`;
      say(row.children[0], clockTime(line.at));
      say(row.children[1], line.event.replaceAll("_", " "));
      say(row.children[2], text);
      row.children[2].title = text;
    });
}

function offerKinds(model) {
  const found = [...new Set(model.lines.map((line) => line.event))].sort();
  if (found.join() === kinds) return;
  kinds = found.join();
  const select = $("filter").elements.kind;
  const chosen = select.value || "main";
  select.replaceChildren(el("option", { value: "main" }, "all but those of single devices"), el("option", { value: "all" }, "all"),
    ...found.map((name) => el("option", { value: name }, name.replaceAll("_", " "))));
  select.value = chosen;
}

function describe(fields) {
  return Object.entries(fields).filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${text(value)}`).join(", ");
}

function text(value) {
  if (Array.isArray(value)) return value.join(" ");
  if (typeof value === "object") return Object.entries(value).map(([name, each]) => `${text(each)} ${name}`).join(" ");
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(5))) : String(value);
}
