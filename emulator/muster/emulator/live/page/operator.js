// Asks the run for something: faults, pauses, and its end. Every request is confirmed in a dialog.

import { $, coded, el } from "./dom.js";
import { number } from "./format.js";

let token = new URLSearchParams(location.hash.slice(1)).get("operator") ?? "";

export async function ask(action, model, notice, given = {}) {
  const { setup } = model.sections;
  const faults = action === "inject" ? await faultForms() : [];
  if (!faults) return notice("The page's program does not answer.");
  const forms = {
    inject: ["Inject a fault", "The fault begins at once. By default it heals by itself after 5 seconds.", faultFields(faults, setup)],
    pause: ["Pause programs", "The programs are stopped without ending them. By default they go on after 5 seconds.", [target(setup), lasts()]],
    unpause: ["Let paused programs go on", "All paused programs go on.", []],
    heal: [`Heal ${given.name}`, "The fault ends now on all its targets.", []],
    stop: ["Stop the run", "The server ends the run. Committed rounds stay, and the run can be resumed.", []],
  };
  const [title, what, fields] = forms[action];
  const dialog = $("operator");
  const error = el("p", { class: "error", role: "alert" });
  const shown = el("input", { name: "token", type: "password", required: true, autocomplete: "off" });
  shown.value = token;
  const form = el("form", {},
    el("h2", { id: "operator-title" }, title), el("p", {}, what), ...fields,
    field("Operator's token", shown), error,
    el("div", { class: "buttons" },
      el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      el("button", { class: "primary" }, title)));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    token = shown.value.trim();
    error.textContent = "";
    const button = form.querySelector("button.primary");
    button.disabled = true;
    const reply = await send(action, { ...given, ...values(new FormData(form)), ...settingsOf(form) });
    button.disabled = false;
    if (reply.done) {
      dialog.close();
      notice(reply.done);
    } else error.textContent = reply.error;
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}

async function send(action, body) {
  const reply = await fetch(`actions/${action}`, { method: "POST", headers: { "X-Muster-Operator": token, "Content-Type": "application/json" }, body: JSON.stringify(body) })
    .catch(() => null);
  if (!reply) return { error: "The page's program does not answer." };
  return reply.ok ? reply.json() : { error: await reply.text() };
}

const field = (label, input) => el("label", { class: "field" }, label, input);

// The kinds of fault with their settings, as the fault's classes have them.
async function faultForms() {
  const reply = await fetch("faults").catch(() => null);
  return reply?.ok ? reply.json() : null;
}

// The fields of a fault, for the dialog that injects one. Those after its kind follow the kind that is chosen.
function faultFields(faults, setup) {
  if (!faults.length) return [];
  const kind = el("select", { name: "kind" }, ...faults.map((fault) => el("option", { selected: fault.kind === "pause" }, fault.kind)));
  const about = el("p", { id: "fault-about", class: "note", "aria-live": "polite" });
  const rest = el("div", {});
  const show = () => {
    const fault = faults.find((each) => each.kind === kind.value);
    about.replaceChildren(...coded(fault.about));
    rest.replaceChildren(target(setup, fault.roles), ...(fault.lasts ? [lasts()] : []), ...fault.fields.map(setting));
  };
  kind.addEventListener("change", show);
  show();
  return [field("Kind", kind), about, rest];
}

function setting(given) {
  const { name, unit, about, type } = given;
  const input = inputOf(given);
  input.dataset.setting = name;
  input.dataset.type = type;
  input.setAttribute("aria-describedby", `about-${name}`);
  const limits = type === "choice" || type === "switch" ? "" : limitsOf(given);
  return el("div", {}, field(`${name}${unit ? ` (${unit})` : ""}`, input),
    el("p", { id: `about-${name}`, class: "note" }, ...coded([about, limits].filter(Boolean).join(" "))));
}

function inputOf({ name, type, default: preset, least, most, choices, example }) {
  if (type === "choice") return el("select", { name }, ...choices.map((each) => el("option", { selected: each === preset }, each)));
  if (type === "switch") return el("input", { name, type: "checkbox", checked: preset === "true" });
  const shared = { name, required: preset === null, spellcheck: "false", autocomplete: "off" };
  const made = type === "quantity" || type === "text"
    ? el("input", { ...shared, placeholder: `such as ${example}` })
    : el("input", { ...shared, type: "number", min: least, max: most, step: type === "whole number" ? "1" : "any" });
  made.value = preset ?? "";
  return made;
}

function limitsOf({ least, most }) {
  if (least === null && most === null) return "";
  if (most === null) return `At least ${number(least)}.`;
  return least === null ? `At most ${number(most)}.` : `From ${number(least)} to ${number(most)}.`;
}

// The settings that are filled in. An empty field means the default.
function settingsOf(form) {
  const found = {};
  for (const input of form.querySelectorAll("[data-setting]")) {
    const { setting: name, type } = input.dataset;
    if (type === "switch") found[name] = input.checked;
    else if (input.value) found[name] = type.endsWith("number") ? Number(input.value) : input.value;
  }
  return Object.keys(found).length ? { settings: found } : {};
}

function target(setup, roles = ["device", "server"]) {
  const devices = [el("option", { value: "all" }, "all devices"),
    ...setup.groups.map((group) => el("option", { value: `group:${group.name}` }, `group ${group.name}`)),
    ...setup.groups.map((group) => el("option", { value: `one:${group.name}` }, `one device of ${group.name}`))];
  return field("Target", el("select", { name: "target" }, ...(roles.includes("device") ? devices : []),
    ...(roles.includes("server") ? [el("option", { value: "server" }, "the server")] : [])));
}

function lasts() {
  return field("Duration (s)", el("input", { name: "for_s", type: "number", min: "0.1", step: "any", placeholder: "5 by default" }));
}

function values(form) {
  const found = {};
  if (form.has("kind")) found.kind = form.get("kind");
  const [how, group] = (form.get("target") ?? "").split(/:(.*)/s);
  if (how === "group") found.target = { group };
  if (how === "one") found.target = { group, count: 1 };
  if (how === "server") found.target = { role: "server" };
  if (form.get("for_s")) found.for_s = Number(form.get("for_s"));
  return found;
}
