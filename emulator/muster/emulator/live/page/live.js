// The page of a run whose data come as frames from the page's program, and which can act on the run.

import { emptyModel } from "./model.js";
import { beginPage, model, notice, take } from "./page.js";
import { showDevice } from "./device.js";
import { ask } from "./operator.js";

async function openDevice(name) {
  const reply = await fetch(`devices/${encodeURIComponent(name)}`).catch(() => null);
  if (reply?.ok) showDevice(await reply.json());
  else notice(reply ? await reply.text() : "The page's program does not answer.");
}

const buttons = document.querySelectorAll("[data-action]");
for (const button of buttons) {
  button.addEventListener("click", () => ask(button.dataset.action, model, notice));
}

function drawActions() {
  const { run, setup } = model.sections;
  for (const button of buttons) {
    button.disabled = run.state !== "running";
    button.hidden = !setup.has_supervisor && button.dataset.action !== "stop";
  }
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

beginPage({ openDevice, heal: (name) => ask("heal", model, notice, { name }), drawActions });
follow();
