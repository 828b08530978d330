// Asks the run for something: faults, pauses, and its end. Every request is confirmed in a dialog.

import { $, el } from "./dom.js";

let token = new URLSearchParams(location.hash.slice(1)).get("operator") ?? "";

export function ask(action, model, notice, given = {}) {
  const { setup } = model.sections;
  const forms = {
    inject: ["Inject a fault", "The fault begins at once. By default it heals by itself after 5 seconds.", [kind(setup), target(setup), lasts(), settings()]],
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
    const reply = await send(action, { ...given, ...values(new FormData(form)) });
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

function kind(setup) {
  return field("Kind", el("select", { name: "kind" }, ...setup.fault_kinds.map((name) => el("option", { selected: name === "pause" }, name))));
}

function target(setup) {
  return field("Target", el("select", { name: "target" }, el("option", { value: "all" }, "all devices"),
    ...setup.groups.map((group) => el("option", { value: `group:${group.name}` }, `group ${group.name}`)),
    ...setup.groups.map((group) => el("option", { value: `one:${group.name}` }, `one device of ${group.name}`)),
    el("option", { value: "server" }, "the server")));
}

function lasts() {
  return field("Seconds", el("input", { name: "for_s", type: "number", min: "0.1", step: "any", placeholder: "5 by default" }));
}

function settings() {
  return field("Settings", el("input", { name: "settings", placeholder: "KEY=VALUE …, as for muster inject", spellcheck: "false" }));
}

function values(form) {
  const found = {};
  if (form.has("kind")) found.kind = form.get("kind");
  const [how, group] = (form.get("target") ?? "").split(/:(.*)/s);
  if (how === "group") found.target = { group };
  if (how === "one") found.target = { group, count: 1 };
  if (how === "server") found.target = { role: "server" };
  if (form.get("for_s")) found.for_s = Number(form.get("for_s"));
  const pairs = (form.get("settings") ?? "").split(/\s+/).filter(Boolean).map((pair) => pair.split(/=(.*)/s));
  if (pairs.length) found.settings = Object.fromEntries(pairs.map(([name, value]) => [name, parsed(value ?? "")]));
  return found;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
