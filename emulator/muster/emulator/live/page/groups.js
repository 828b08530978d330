// What each group contributes, and for whom rounds wait: bars by group, and the sentence above them.

import { $, barRow, fill, key, say, updateBarRow } from "./dom.js";
import { number, percent, plural, seconds } from "./format.js";

const PARTS = [
  ["train", "training", "train_s"],
  ["transfer", "transfer", "transfer_s"],
  ["wait", "waiting for a turn to transfer", "wait_s"],
];

export function startGroups() {
  key($("participation-key"), [["arrived", "counted"], ["uncounted", "did not count"], ["declined", "declined"]]);
  key($("waits-key"), [...PARTS.map(([name, text]) => [name, text]), ["other", "other"]]);
  key($("shares-key"), [["transfer", "share of the weight"], ["ink", "share of the devices (line)"]]);
}

export function drawGroups(model) {
  const { groups, run } = model.sections;
  for (const small of document.querySelectorAll(".window")) {
    say(small, run.looked_at ? `newest ${plural(run.looked_at, "round")}` : "");
  }
  fill($("participation"), groups, barRow, (row, group) => updateBarRow(row, participation(group)));
  const longest = Math.max(...groups.map((group) => group.slowest?.after_s ?? 0), 1e-9);
  fill($("waits"), groups, barRow, (row, group) => updateBarRow(row, waits(group, longest, model)));
  fill($("shares"), groups, barRow, (row, group) => updateBarRow(row, shares(group)));
  const { finding, more, holding } = headline(model);
  say($("headline").children[0], finding);
  say($("headline").children[1], more.filter(Boolean).join(" "));
  $("headline").classList.toggle("holding", holding);
}

function participation(group) {
  const uncounted = sum(group.uncounted);
  const of = Math.max(group.called, group.folded + uncounted, 1);
  const reasons = { ...group.uncounted };
  for (const [reason, count] of Object.entries(group.reasons)) reasons[reason] = (reasons[reason] ?? 0) + count;
  const why = Object.entries(reasons).sort((a, b) => b[1] - a[1]).map(([reason, count]) => `${number(count)} ${reason}`);
  return {
    name: group.name,
    number: group.called ? `${percent(group.folded / of)} of ${plural(group.called, "call")}` : "not called yet",
    parts: [[group.folded / of, "arrived"], [uncounted / of, "uncounted"],
      [group.called ? Math.max(0, of - group.folded - uncounted) / of : 0, "declined"]],
    why: why.join(" · ") || (group.called ? "all took part" : ""),
  };
}

function waits(group, longest, model) {
  const last = group.slowest;
  const { setup } = model.sections;
  if (!last) return { name: group.name, number: "no update yet", parts: [], why: "" };
  const known = PARTS.map(([name, , field]) => [last[field] / longest, name]);
  const rest = last.after_s - PARTS.reduce((total, [, , field]) => total + last[field], 0);
  const modelled = group.modelled_s === null || setup.clock !== "rounds" ? []
    : [`modelled ${seconds(group.modelled_s)}${setup.deadline_s ? `, modelled deadline ${seconds(setup.deadline_s)}` : ""}`];
  return {
    name: group.name,
    number: `last update after ${seconds(last.after_s)}`,
    parts: [...known, [Math.max(0, rest) / longest, "other"]],
    why: [last.client, ...modelled].join(" · "),
  };
}

function shares(group) {
  return {
    name: group.name,
    number: `${percent(group.weight_share)} of the weight`,
    parts: [[group.weight_share, "transfer"]],
    mark: group.device_share,
    why: [`${percent(group.device_share)} of the devices`,
      group.accuracy === null ? "" : `accuracy ${percent(group.accuracy)}`,
      group.weight_share > 0 ? `${number(group.weight_share / group.device_share, 2)} × its share of the devices` : "",
    ].filter(Boolean).join(" · "),
  };
}

const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);

// Which group holds the rounds up, and why.
export function headline(model) {
  const { run, holds, groups } = model.sections;
  const open = openRound(run, groups);
  const [holder] = holds;
  if (!holder) return { finding: "No update has arrived yet.", more: [open], holding: false };
  const often = holder.of === 1 ? "in the only round so far" : `in ${holder.last} of the newest ${plural(holder.of, "round")}`;
  const over = run.state !== "running";
  if (groups.length === 1) {
    return { finding: "There is one group, so no group waits for another.", more: [open], holding: false };
  }
  if (holder.last < 0.6 * holder.of || holder.lead_s < 0.1 * holder.after_s) {
    const how = `${holder.group} ${over ? "was" : "is"} last ${often}, ${seconds(holder.lead_s)} after the others.`;
    return { finding: `No group ${over ? "held" : "holds"} the rounds up.`, more: [how, open], holding: false };
  }
  const [[most, what]] = PARTS.map(([, text, field]) => [holder[field], text]).sort((a, b) => b[0] - a[0]);
  const link = model.sections.links[holder.group];
  const full = what !== "training" && link ? fullness(link) : "";
  const why = most < 0.3 * holder.after_s
    ? "Most of this time is neither training nor transfer: programs start, stand still, or wait for the processor."
    : `${whole(most / holder.after_s)} of its time is ${what}${full}.`;
  return {
    finding: `The rounds ${over ? "waited" : "wait"} for ${holder.group}.`,
    more: [`Its last update came ${seconds(holder.lead_s)} after those of all other groups, ${often}.`, why, open],
    holding: true,
  };
}

const whole = (share) => `${Math.round(100 * Math.min(1, share))} %`;

function openRound(run, groups) {
  const { open } = run;
  if (!open || run.state !== "running") return "";
  const silent = open.called - open.arrived - open.declined - open.gave_up;
  if (silent <= 0) return "";
  const who = groups.filter((group) => group.working).map((group) => `${number(group.working)} of ${group.name}`);
  return `Round ${open.number} is open: ${number(open.arrived)} of ${number(open.called)} updates have arrived, and the answers of ${plural(silent, "device")} are missing${who.length ? ` (at work: ${who.join(", ")})` : ""}.`;
}

function fullness(link) {
  const found = ["up", "down"].map((way) => {
    const cap = link[`cap_${way}_bps`];
    const busy = link[`${way}_bps`].slice(-20);
    return cap && busy.length ? [Math.max(...busy) / cap, way] : [0, way];
  }).sort((a, b) => b[0] - a[0])[0];
  return found[0] > 0.5 ? `, over a shared link that is up to ${whole(found[0])} full ${found[1]}wards` : "";
}
