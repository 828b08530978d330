// Numbers and times for people.

export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`);

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 1e10) return value.toExponential(digits - 2);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6 });
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit === 0 ? count : count.toFixed(1)} ${units[unit]}`;
}

export function rate(bps) {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
  let unit = 0;
  while (bps >= 1000 && unit < units.length - 1) { bps /= 1000; unit += 1; }
  return `${bps < 10 && unit ? bps.toFixed(1) : Math.round(bps)} ${units[unit]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(value / 60);
  const rest = Math.floor(value % 60);
  if (minutes < 60) return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// Accuracy and the task's other metrics, as words.
export const metrics = ({ accuracy, metrics }) => [
  ...(accuracy === null ? [] : [`accuracy ${percent(accuracy)}`]),
  ...Object.entries(metrics).map(([name, value]) => `${name} ${number(value)}`)];

export const clockTime = (at) => new Date(1000 * at).toLocaleTimeString("en-GB");

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
