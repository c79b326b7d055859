// What the reader has chosen. It stands in the address behind "#", also of a file, so that a link shows the same view.

const first = () => ({
  x: "update",
  logX: "", // "" as printed, "log", or "linear"
  logY: "",
  smooth: 0,
  off: new Set(arms.flatMap((arm, i) => (arm.shown ? [] : [i]))),
  zoom: new Map(), // group of charts -> [from, to]
  lit: null, // { arm, seed }: seed is a row of its lines, or null
  frames: new Map(), // chart -> position of its slider
  sort: null, // { table, column, down }
});

let state = first();

/** The choices that differ from those of a fresh page, as the part of an address. */
function written() {
  const usual = first(), said = new URLSearchParams();
  if (state.x !== usual.x) said.set("x", state.x);
  if (state.logX) said.set("logx", state.logX);
  if (state.logY) said.set("logy", state.logY);
  if (state.smooth) said.set("smooth", String(state.smooth));
  const changed = arms.map((_, i) => i).filter((i) => state.off.has(i) !== usual.off.has(i));
  if (changed.length) said.set("arms", changed.join("."));
  for (const [name, ends] of state.zoom) said.append("zoom", [name, ...ends.map((end) => Number(end.toPrecision(6)))].join("_"));
  if (state.lit) said.set("lit", [state.lit.arm, state.lit.seed ?? ""].join("_"));
  for (const [chart, frame] of state.frames) if (frame) said.append("frame", `${chart}_${frame}`);
  if (state.sort) said.set("sort", [state.sort.table, state.sort.column, state.sort.down ? "down" : "up"].join("_"));
  return said.toString();
}

/** The choices of an address. What it says of arms and charts that the page does not have is left out. */
function read(text) {
  const said = new URLSearchParams(text), found = first();
  const scales = ["", "log", "linear"];
  const whole = (value, below) => /^\d{1,6}$/.test(value ?? "") && Number(value) < below;
  if (said.has("x")) found.x = said.get("x");
  found.logX = scales.includes(said.get("logx")) ? said.get("logx") : "";
  found.logY = scales.includes(said.get("logy")) ? said.get("logy") : "";
  found.smooth = Math.min(0.99, Math.max(0, Number(said.get("smooth")) || 0));
  for (const i of (said.get("arms") ?? "").split(".").filter((part) => whole(part, arms.length)).map(Number))
    if (!found.off.delete(i)) found.off.add(i);
  for (const zoom of said.getAll("zoom")) {
    const parts = zoom.split("_"), [from, to] = parts.splice(-2).map(Number);
    if (from < to && Number.isFinite(to - from)) found.zoom.set(parts.join("_"), [from, to]);
  }
  const [arm, seed] = (said.get("lit") ?? "").split("_");
  if (whole(arm, arms.length)) found.lit = { arm: Number(arm), seed: whole(seed, 1e6) ? Number(seed) : null };
  for (const pair of said.getAll("frame")) {
    const [chart, frame] = pair.split("_");
    if (whole(chart, charts.length) && whole(frame, charts[chart].frames.length)) found.frames.set(Number(chart), Number(frame));
  }
  const [table, column, way] = (said.get("sort") ?? "").split("_");
  if (whole(table, 1e3) && whole(column, 1e3)) found.sort = { table: Number(table), column: Number(column), down: way === "down" };
  return found;
}

/** Puts the choices into the address without a step in the browser's history. */
function keep() {
  try {
    history.replaceState(null, "", `#${written()}`);
  } catch {
    // A page inside of another, such as a notebook's, has no address of its own.
  }
}

/** Whether an arm is drawn: it is on, or it is the one that is lit. */
function isOn(arm) {
  return !state.off.has(arm) || state.lit?.arm === arm;
}

/** Changes choices, keeps them in the address, and draws everything anew. */
function change(changes) {
  Object.assign(state, changes);
  keep();
  refresh();
}
