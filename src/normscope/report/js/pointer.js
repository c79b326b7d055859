// The crosshair, which stands over all charts at once; zooming; and lighting a run.

const NEAR_PIXELS = 24;
let crosshair = null; // { group, x }

/** uPlot's own pointer: a vertical line, and a drag that selects a stretch of x. */
function cursorOf(view) {
  return {
    y: false,
    points: { show: false },
    drag: { x: true, y: false, setScale: false, dist: 5 },
    bind: { dblclick: () => () => zoom(view, null) },
  };
}

function pointerHooks(view) {
  return {
    setCursor: [(u) => {
      if (u.cursor.left < 0 || !u.cursor.event) return; // moved by us, or away
      point(view, u.posToVal(u.cursor.left, "x"));
    }],
    setSelect: [(u) => {
      if (u.select.width < 5) return;
      const ends = [u.select.left, u.select.left + u.select.width].map((left) => u.posToVal(left, "x"));
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      zoom(view, ends);
    }],
  };
}

/** Puts the crosshair at x of this chart, and of all that stand over the same; null takes it away. */
function point(view, x) {
  crosshair = x === null ? null : { group: group(view.chart), x };
  for (const other of views) showCrosshair(other);
}

/** Draws the crosshair where it stands, and writes the values beside the legend's names. */
function showCrosshair(view) {
  const { plot } = view;
  if (!plot) return;
  const here = crosshair && crosshair.group === group(view.chart);
  const [low, high] = view.drawn.x;
  const inside = here && crosshair.x >= low && crosshair.x <= high;
  const left = inside ? plot.valToPos(crosshair.x, "x") : -10;
  if (Math.abs((plot.cursor.left ?? -10) - left) > 0.5) plot.setCursor({ left, top: inside ? 10 : -10 }, false);
  writeValues(view, inside ? crosshair.x : null);
}

/** Zooms all charts over the same x to its ends; null is everything. */
function zoom(view, ends) {
  const zooms = new Map(state.zoom);
  if (ends && ends[0] < ends[1]) zooms.set(group(view.chart), ends);
  else zooms.delete(group(view.chart));
  change({ zoom: zooms });
}

/** The arms that a click or the return key can light at a place: [arm, seed, distance in pixels], nearest first. */
function candidates(view, left, top) {
  const found = [], { plot, chart } = view;
  const x = plot.posToVal(left, "x");
  for (const line of view.drawn.lines) {
    const xs = places(chart, line), i = nearest(xs, x);
    if (i < 0) continue;
    const distance = (value) => Math.hypot(plot.valToPos(xs[i], "x") - left, top === null ? 0 : plot.valToPos(value, "y") - top);
    if (!line.lights) {
      if (line.mean[i] !== null) found.push([line.arm, null, line.mark === "points" ? distance(line.mean[i]) : Math.abs(plot.valToPos(line.shown?.[i] ?? line.mean[i], "y") - (top ?? 0))]);
    } else if (line.lights[i] >= 0) {
      line.rows.forEach((row, seed) => { if (row[i] !== null) found.push([line.lights[i], seed, distance(row[i])]); });
    }
  }
  return top === null ? found : found.sort((one, other) => one[2] - other[2]);
}

/** Lights a run: its curves stand out in every chart. The same again puts it out. */
function light(arm, seed) {
  const same = state.lit?.arm === arm && state.lit?.seed === seed;
  change({ lit: same ? null : { arm, seed } });
}

/** A click that was no drag lights the nearest run. */
function followClicks(view) {
  const { over } = view.plot;
  let pressed = null;
  over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
  over.addEventListener("click", (event) => {
    if (pressed === null || Math.abs(event.clientX - pressed) >= 5) return;
    const edge = over.getBoundingClientRect();
    const [found] = candidates(view, event.clientX - edge.left, event.clientY - edge.top);
    if (found && found[2] <= NEAR_PIXELS) light(found[0], found[1]);
    else if (state.lit) change({ lit: null });
  });
  over.addEventListener("mouseleave", () => point(view, null));
}

/** What the keys do on a chart that has the focus. */
function pressed(view, event) {
  const { plot, drawn } = view;
  const width = plot.over.clientWidth;
  const from = crosshair && crosshair.group === group(view.chart) ? plot.valToPos(crosshair.x, "x") : width / 2;
  const at = (left) => plot.posToVal(Math.min(width, Math.max(0, left)), "x");
  const step = (event.shiftKey ? 0.1 : 0.01) * width;
  const scaled = (factor) => [at(0), at(width)].map((end) => {
    const place = plot.valToPos(end, "x");
    return plot.posToVal(from + (place - from) * factor, "x");
  });
  const keys = {
    ArrowLeft: () => point(view, at(from - step)),
    ArrowRight: () => point(view, at(from + step)),
    Home: () => point(view, at(0)),
    End: () => point(view, at(width)),
    "+": () => zoom(view, scaled(0.5)),
    "=": () => zoom(view, scaled(0.5)),
    "-": () => zoom(view, state.zoom.has(group(view.chart)) ? scaled(2) : null),
    0: () => zoom(view, null),
    Enter: () => lightNext(view, from),
    Escape: () => { point(view, null); if (state.lit) change({ lit: null }); },
  };
  if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  keys[event.key]();
  if (drawn) announce(view);
}

/** The return key goes through the runs at the crosshair, one after the other. */
function lightNext(view, left) {
  const found = candidates(view, left, null);
  if (!found.length) return;
  const last = found.findIndex(([arm, seed]) => state.lit?.arm === arm && state.lit?.seed === seed);
  const [arm, seed] = found[(last + 1) % found.length];
  light(arm, seed);
}
