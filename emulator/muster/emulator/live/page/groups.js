// What each group contributes, and for whom rounds wait: bars by group, and the sentence above them.

import { $, barRow, fill, key, say, updateBarRow } from "./dom.js";
import { metrics, number, percent, plural, seconds } from "./format.js";

const PARTS = [
  ["train", "training", "train_s"],
  ["transfer", "transfer", "transfer_s"],
  ["wait", "waiting for a turn to transfer", "wait_s"],
];

export function startGroups({ lockstep }) {
  key($("participation-key"), [["arrived", "counted"], ["uncounted", "did not count"], ["declined", "declined"]]);
  say($("waits-window"), `newest round, ${lockstep ? "modelled" : "wall"} time`);
  key($("waits-key"), lockstep ? [["train", "training and transfers"]]
    : [...PARTS.map(([name, text]) => [name, text]), ["other", "other"]]);
  key($("shares-key"), [["transfer", "share of the weight"], ["ink", "share of the devices (line)"]]);
}

export function drawGroups(model) {
  const { groups, run, setup } = model.sections;
  for (const small of document.querySelectorAll(".window")) {
    say(small, run.looked_at ? `newest ${plural(run.looked_at, "round")}` : "");
  }
  fill($("participation"), groups, barRow, (row, group) => updateBarRow(row, participation(group)));
  const longest = Math.max(...groups.map((group) => group.slowest?.after_s ?? 0), 1e-9);
  fill($("waits"), groups, barRow, (row, group) => updateBarRow(row, waits(group, longest, setup)));
  fill($("shares"), groups, barRow, (row, group) => updateBarRow(row, shares(group)));
  const { finding } = model.sections;
  say($("headline").children[0], finding.text);
  say($("headline").children[1], finding.more);
  $("headline").classList.toggle("holding", finding.holding);
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

// All that a row says of a group is of one device, the slowest.
function waits(group, longest, { deadline_s, lockstep }) {
  const last = group.slowest;
  if (!last) return { name: group.name, number: "no update yet", parts: [], why: "" };
  const known = lockstep ? [[last.after_s / longest, "train"]] : PARTS.map(([name, , field]) => [last[field] / longest, name]);
  const rest = lockstep ? 0 : last.after_s - PARTS.reduce((total, [, , field]) => total + last[field], 0);
  return {
    name: group.name,
    number: lockstep ? `longest work ${seconds(last.after_s)}` : `last update after ${seconds(last.after_s)}`,
    parts: [...known, [Math.max(0, rest) / longest, "other"]],
    why: lockstep && deadline_s ? `${last.client} · deadline ${seconds(deadline_s)}` : last.client,
  };
}

function shares(group) {
  return {
    name: group.name,
    number: `${percent(group.weight_share)} of the weight`,
    parts: [[group.weight_share, "transfer"]],
    mark: group.device_share,
    why: [`${percent(group.device_share)} of the devices`,
      ...metrics(group),
      group.weight_share > 0 ? `${number(group.weight_share / group.device_share, 2)} × its share of the devices` : "",
    ].filter(Boolean).join(" · "),
  };
}

const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);
