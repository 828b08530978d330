// What the page knows of the run. Frames bring it up to date; components only read it.

export function emptyModel() {
  return { sections: {}, columns: {}, series: {}, lines: [] };
}

const MOST_LINES = 3000;

export function applyFrame(model, frame) {
  Object.assign(model.sections, frame.sections);
  for (const [name, change] of Object.entries(frame.columns ?? {})) {
    model.columns[name] = typeof change === "string" ? change : replaced(model.columns[name], change);
  }
  for (const [name, { fields, keeps, rows }] of Object.entries(frame.series ?? {})) {
    model.series[name] = { fields, rows: [...(model.series[name]?.rows ?? []).slice(0, keeps), ...rows] };
  }
  if (frame.lines) model.lines = [...model.lines, ...frame.lines].slice(-MOST_LINES);
}

// The values of a series by the name of the field: a function.
export function valuesOf(series) {
  const { fields, rows } = series ?? { fields: [], rows: [] };
  return (field) => rows.map((row) => row[fields.indexOf(field)]);
}

function replaced(old, { at, to }) {
  const characters = [...old];
  at.forEach((place, index) => { characters[place] = to[index]; });
  return characters.join("");
}

export function clientName(group, place) {
  return `${group.name}-${String(place).padStart(4, "0")}`;
}

export function* clientsOf(setup) {
  for (const group of setup.groups) {
    for (let place = 0; place < group.count; place += 1) yield clientName(group, place);
  }
}
