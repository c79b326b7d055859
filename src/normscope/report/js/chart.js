// One chart, drawn by uPlot: scales, axes, lines with their bands, and what is marked on top.

const FAINT = 0.28, FADED = 0.13, BAND = 0.18;
const MARKERS_A_LINE = 8;

/** The colours of the page's theme, and the system's where the reader forces those. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  return { ink: colour("--ink"), soft: colour("--soft"), grid: colour("--grid"), hues: [0, 1, 2, 3, 4, 5].map((i) => colour(`--hue-${i}`)) };
}

function colourOf(arm, colours) {
  return arms[arm].hue < 0 ? colours.ink : colours.hues[arms[arm].hue % colours.hues.length];
}

/** Scales are as printed until the reader says otherwise; an axis without a value above 0 stays linear. */
function scalesOf(view, lines) {
  const { chart } = view;
  const wanted = (choice, printed) => (choice ? choice === "log" : printed);
  const logX = wanted(state.logX, chart.logX) && lines.some((line) => places(chart, line).some((x) => x > 0));
  const logY = wanted(state.logY, chart.logY) && lines.some((line) => line.mean.some((y) => y > 0));
  return { logX, logY };
}

/** The ends of the x axis: the zoom, or all points. */
function xEnds(view, lines, logX) {
  const zoom = state.zoom.get(group(view.chart));
  if (zoom && (!logX || zoom[0] > 0)) return zoom;
  let low = Infinity, high = -Infinity;
  for (const line of lines) for (const x of places(view.chart, line)) if (!logX || x > 0) {
    low = Math.min(low, x);
    high = Math.max(high, x);
  }
  if (!(low <= high)) return logX ? [1, 10] : [0, 1];
  if (logX) return low < high ? [low / (high / low) ** 0.03, high * (high / low) ** 0.03] : [low / 2, high * 2];
  const room = low < high ? 0.02 * (high - low) : 0.5;
  return [low - room, high + room];
}

/** The ends of the y axis: what is drawn between the ends of x, the printed ones while nothing is zoomed. */
function yEnds(view, lines, [from, to], logY) {
  const { chart } = view;
  const whole = !state.zoom.has(group(chart));
  if (chart.range && whole && (!logY || chart.range[0] > 0)) return chart.range;
  let low = Infinity, high = -Infinity;
  const see = (value) => {
    if (value === null || value === undefined || (logY && value <= 0)) return;
    low = Math.min(low, value);
    high = Math.max(high, value);
  };
  for (const line of lines) {
    const xs = places(chart, line);
    for (let i = 0; i < xs.length; i++) if (xs[i] >= from && xs[i] <= to) {
      see(line.lows[i]);
      see(line.highs[i]);
    }
  }
  if (chart.level && whole) see(chart.level[1]);
  if (!(low <= high)) return logY ? [0.1, 10] : [0, 1];
  if (logY) return low < high ? [low / (high / low) ** 0.05, high * (high / low) ** 0.05] : [low / 2, high * 2];
  const room = low < high ? 0.05 * (high - low) : Math.abs(low) || 1;
  return [low - room, high + room];
}

/** The lines that are drawn now: of arms that are on, at the slider's position. */
function drawnLines(view) {
  const frame = state.frames.get(charts.indexOf(view.chart)) ?? 0;
  return view.chart.lines.filter((line) => isOn(line.arm) && (line.frame === undefined || line.frame === frame));
}

/** How far a line stands out: those beside the one that is lit fade, where the chart has that one. */
function strength(view, line) {
  if (!state.lit || !view.chart.lines.some((other) => other.arm === state.lit.arm)) return 1;
  return line.arm === state.lit.arm ? 1 : FADED;
}

/** uPlot's series: bands below, then raw lines that were smoothed, then the lines, the lit one last. */
function seriesOf(view, lines, colours) {
  const bands = [], raw = [], strokes = [];
  for (const line of lines) {
    const xs = places(view.chart, line), colour = colourOf(line.arm, colours), alpha = strength(view, line);
    const lit = state.lit?.arm === line.arm, width = lit ? 3 : 1.8, dash = dashOf(line);
    if (line.mark === "points") continue;
    const weight = group(view.chart) === "update" ? state.smooth : 0;
    const fade = weight ? FAINT : 1;
    if (line.banded)
      bands.push({ fill: colour, width: 0, alpha: BAND * alpha * fade, paths: (u) => bandOf(u, xs, line.lows, line.highs) });
    if (weight) raw.push({ stroke: colour, width: 1, alpha: FAINT * alpha, paths: (u) => strokeOf(u, xs, line.mean) });
    if (lit && state.lit.seed !== null && line.rows[state.lit.seed])
      strokes.push({ stroke: colours.ink, width: 1.2, alpha, paths: (u) => strokeOf(u, xs, line.rows[state.lit.seed]) });
    line.shown = smoothed(xs, line.mean, weight);
    strokes.push({ stroke: colour, width, dash, alpha, lit, paths: (u) => strokeOf(u, xs, line.shown) });
  }
  strokes.sort((one, other) => Boolean(one.lit) - Boolean(other.lit));
  return [...bands, ...raw, ...strokes].map((one) => ({ scale: "y", points: { show: false }, ...one }));
}

/** Ticks of a logarithmic axis: 1, 2, 5 within three decades, powers of ten beyond, and even steps where those are few. */
function logTicks(u, axis, low, high) {
  const wide = high / low >= 1e3, found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const digit of wide ? [1] : [1, 2, 5]) found.push(Number(`${digit}e${power}`));
  const inside = found.filter((value) => value >= low && value <= high);
  if (inside.length > 2) {
    const every = Math.ceil(inside.length / 9);
    return inside.filter((_, i) => i % every === 0);
  }
  const step = 10 ** Math.floor(Math.log10(high - low)), fine = (high - low) / step < 3 ? step / 2 : step;
  return Array.from({ length: 12 }, (_, i) => Number(((Math.ceil(low / fine) + i) * fine).toPrecision(6))).filter((value) => value <= high);
}

/** Steps between ticks where every place is a whole number, as of updates and blocks. */
const WHOLE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));

function axesOf(view, colours, { logX, logY }) {
  const { chart } = view;
  const common = { font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", stroke: colours.ink };
  const lines = { grid: { stroke: colours.grid, width: 1, dash: FORCED.matches ? [1, 5] : [] }, ticks: { stroke: colours.grid, width: 1, size: 5 } };
  const logarithmic = { splits: logTicks, filter: (u, at) => at };
  const texts = (u, at) => at.map(tick);
  const x = { ...common, ...lines, ...(logX ? logarithmic : {}), label: nameOfX(chart), labelSize: 18, labelGap: 0, size: 28, values: texts };
  const every = chart.lines.map((line) => places(chart, line));
  if (!logX && every.every((xs) => xs.every(Number.isInteger))) x.incrs = WHOLE;
  // Rates that were tried, and none between them.
  const tried = [...new Set(chart.lines.flatMap((line, i) => (line.lights ? every[i] : [])))].sort((one, other) => one - other);
  // Trials may lie so near one another that their names would not stand beside each other.
  const least = 0.08 * Math.log(tried.at(-1) / tried[0]);
  const apart = tried.every((rate, i) => i === 0 || Math.log(rate / tried[i - 1]) > least);
  if (tried.length && tried.length <= 10 && apart) Object.assign(x, { splits: () => tried, filter: (u, at) => at });
  if (chart.ticks.length) nameTicks(x, chart.ticks);
  const size = (u, shown) => 14 + 7 * Math.max(3, ...(shown ?? []).map((text) => text.length));
  return [x, { ...common, ...lines, ...(logY ? logarithmic : {}), values: texts, size }];
}

/** Names in place of numbers, as many as stand beside each other. */
function nameTicks(axis, names) {
  axis.splits = (u, _, low, high) => {
    const longest = Math.max(...names.map((name) => name.length));
    const every = Math.ceil(names.length / Math.max(1, u.bbox.width / devicePixelRatio / (7 * longest + 12)));
    return names.map((_, i) => i).filter((i) => i % every === 0 && i >= low && i <= high);
  };
  axis.filter = (u, at) => at;
  axis.values = (u, at) => at.map((i) => names[i]);
}

/** Draws the chart anew with all that is chosen now. */
function drawChart(view) {
  const started = performance.now();
  const { chart, host } = view;
  const colours = theme(), lines = drawnLines(view);
  const { logX, logY } = scalesOf(view, lines);
  const x = xEnds(view, lines, logX), y = yEnds(view, lines, x, logY);
  const series = seriesOf(view, lines, colours);
  view.plot?.destroy();
  view.drawn = { lines, logX, logY, x, y };
  view.plot = new uPlot({
    width: Math.max(120, host.clientWidth),
    height: view.height,
    legend: { show: false },
    scales: { x: { time: false, distr: logX ? 3 : 1, range: () => x }, y: { distr: logY ? 3 : 1, range: () => y } },
    axes: axesOf(view, colours, { logX, logY }),
    padding: [8, 12, 0, 0],
    series: [{}, ...series],
    cursor: cursorOf(view),
    hooks: { draw: [(u) => drawMarks(u, view, colours)], ...pointerHooks(view) },
  }, [x, ...series.map(() => [null, null])], host);
  view.drawn.milliseconds = performance.now() - started;
  followClicks(view);
}

/** On top of the lines: the level, markers, points, crosses, and a ring around the run that is lit. */
function drawMarks(u, view, colours) {
  const context = u.ctx, scale = devicePixelRatio;
  const { left, top, width, height } = u.bbox;
  const at = (x, y) => [u.valToPos(x, "x", true), y === null ? top + 6 * scale : u.valToPos(y, "y", true)];
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  if (view.chart.level) {
    const height = u.valToPos(view.chart.level[1], "y", true);
    context.strokeStyle = colours.ink;
    context.lineWidth = 1.2 * scale;
    context.setLineDash([8 * scale, 5 * scale]);
    context.beginPath();
    context.moveTo(left, height);
    context.lineTo(left + width, height);
    context.stroke();
    context.setLineDash([]);
  }
  view.drawn.lines.forEach((line, order) => {
    const xs = places(view.chart, line), shape = MARKERS[arms[line.arm].variant % MARKERS.length];
    context.globalAlpha = strength(view, line);
    context.fillStyle = context.strokeStyle = colourOf(line.arm, colours);
    const shown = points(u, xs, line.shown ?? line.mean);
    const every = line.mark === "points" ? 1 : Math.max(1, Math.floor(xs.length / MARKERS_A_LINE));
    // Markers start at different points, so that lines on top of each other can still be seen apart.
    if (line.mark === "line" || line.mark === undefined || line.mark === "points")
      for (let i = every > 1 ? (2 * order) % every : 0; i < xs.length; i += every) if (shown[i]) {
        marker(context, shape, shown[i], 3.2 * scale);
        context.fill();
      }
    if (line.lights) for (const row of line.rows) for (const point of points(u, xs, row)) if (point) {
      marker(context, shape, point, 2.4 * scale);
      context.fill();
    }
    context.lineWidth = 2.4 * scale;
    for (const [x, y] of line.crosses ?? []) cross(context, at(moved(view.chart, line, x), y), 4.5 * scale);
    const run = line.lights && state.lit ? line.lights.indexOf(state.lit.arm) : -1;
    const value = run >= 0 ? (line.rows[state.lit.seed] ?? line.mean)[run] : null;
    if (value !== null) {
      context.strokeStyle = colours.ink;
      marker(context, "circle", at(xs[run], value), 7 * scale);
      context.stroke();
    }
  });
  context.restore();
}

/** A place over the first column, such as an update, over what the chart stands over now. */
function moved(chart, line, x) {
  const [before] = tables[line.table].values();
  return places(chart, line)[nearest(before, x)];
}
