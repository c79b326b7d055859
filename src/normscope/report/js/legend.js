// Below each chart: its arms by name, each a switch, with the value at the crosshair.

/** An element with attributes and contents; text is always text, whatever it looks like. */
function make(tag, attributes = {}, ...contents) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...contents);
  return element;
}

/** A piece of the line as the chart draws it. */
function swatch(line) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg"), colour = arms[line.arm].hue < 0 ? "var(--ink)" : `var(--hue-${arms[line.arm].hue % 6})`;
  for (const [name, value] of [["viewBox", "0 0 30 10"], ["width", 30], ["height", 10], ["aria-hidden", "true"], ["class", "swatch"]]) svg.setAttribute(name, value);
  const piece = document.createElementNS(space, line.mark === "points" ? "circle" : "line");
  const shape = line.mark === "points" ? { cx: 15, cy: 5, r: 4 } : { x1: 1, y1: 5, x2: 29, y2: 5, "stroke-width": 2.4, "stroke-dasharray": dashOf(line).join(" ") };
  for (const [name, value] of Object.entries(shape)) piece.setAttribute(name, value);
  piece.style.stroke = colour;
  if (line.mark === "points") piece.style.fill = colour;
  svg.append(piece);
  return svg;
}

/** The list of a chart's arms. */
function legendOf(view) {
  view.rows = new Map();
  const list = make("ul", { class: "legend" });
  for (const line of view.chart.lines) {
    if (view.rows.has(line.arm)) continue;
    const value = make("span", { class: "value" });
    const button = make("button", { type: "button", onclick: () => switchArm(line.arm) }, swatch(line), make("bdi", {}, arms[line.arm].label), value);
    view.rows.set(line.arm, { button, value });
    list.append(make("li", {}, button));
  }
  if (view.chart.level) list.append(make("li", { class: "level" }, `dashed level: ${view.chart.level[0]}, ${significant(view.chart.level[1])}`));
  return list;
}

function switchArm(arm) {
  const off = new Set(state.off);
  if (!off.delete(arm)) off.add(arm);
  change({ off, lit: state.lit?.arm === arm ? null : state.lit });
}

/** The switches as they stand, and no value for an arm that is off. */
function showLegend(view) {
  for (const [arm, { button }] of view.rows) button.setAttribute("aria-pressed", String(isOn(arm)));
}

/** The mean and the band of every arm at the point nearest to x; nothing without a crosshair. */
function writeValues(view, x) {
  const said = new Map();
  let place = null;
  if (x !== null) for (const line of view.drawn.lines) {
    const xs = places(view.chart, line), i = nearest(xs, x);
    if (i < 0 || (line.shown ?? line.mean)[i] === null) continue;
    const band = line.banded && line.lows[i] !== line.highs[i] ? ` (${significant(line.lows[i])} to ${significant(line.highs[i])})` : "";
    if (!said.has(line.arm)) said.set(line.arm, significant((line.shown ?? line.mean)[i]) + band);
    place ??= view.chart.ticks[Math.round(xs[i])] ?? placed(xs[i]);
  }
  for (const [arm, { value }] of view.rows) value.textContent = said.get(arm) ?? "";
  view.readout.textContent = place === null ? "" : `at ${view.chart.ticks.length ? "" : `${nameOfX(view.chart)} `}${place}`;
  view.said = said;
}

function nameOfX(chart) {
  return choices(chart).length > 1 ? chosen(chart) : chart.x;
}

/** Tells readers of the screen what the keys have done: the place, and the first values. */
function announce(view) {
  const values = [...(view.said ?? [])].slice(0, 6).map(([arm, value]) => `${arms[arm].label} ${value}`);
  const lit = state.lit ? `Lit: ${nameOfLit()}. ` : "";
  document.getElementById("explore-said").textContent = `${lit}${view.readout.textContent}: ${values.join("; ")}`;
}

function nameOfLit() {
  const { arm, seed } = state.lit;
  const seeds = charts.flatMap((chart) => chart.lines).find((line) => line.lights?.includes(arm) && line.seeds)?.seeds;
  return `${arms[arm].label}${seed !== null && seeds ? `, seed ${seeds[seed]}` : ""}`;
}
