// From points to what uPlot strokes and fills, and the marks that tell lines apart without colour.

const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3], [14, 5]];
const MARKERS = ["circle", "square", "up", "diamond", "down"];
const BY_MARK = { dashed: [7, 4], dotted: [2, 4] };

const FORCED = matchMedia("(forced-colors: active)");

/** The dash of a line: by the arm's variant, or by what kind of curve it is.

Where the system's colours leave two of the hues, the others are told apart by further dashes. */
function dashOf(line) {
  const { variant, hue } = arms[line.arm];
  const further = FORCED.matches && hue > 0 ? 2 * Math.floor(hue / 2) : 0;
  return BY_MARK[line.mark] ?? DASHES[(variant + further) % DASHES.length];
}

/** The points that the axes can show, in canvas pixels; null where the line has a gap. */
function points(u, xs, values) {
  const logX = u.scales.x.distr === 3, logY = u.scales.y.distr === 3;
  return values.map((value, i) => {
    if (value === null || (logY && value <= 0) || (logX && xs[i] <= 0)) return null;
    return [u.valToPos(xs[i], "x", true), u.valToPos(value, "y", true)];
  });
}

function strokeOf(u, xs, values) {
  const path = new Path2D();
  let drawing = false;
  for (const point of points(u, xs, values)) {
    if (point && drawing) path.lineTo(...point);
    else if (point) path.moveTo(...point);
    drawing = point !== null;
  }
  return { stroke: path, fill: null, flags: 0 };
}

/** The band between two curves, in one piece for each stretch without a gap. */
function bandOf(u, xs, lows, highs) {
  const path = new Path2D(), low = points(u, xs, lows), high = points(u, xs, highs);
  for (let start = 0; start < xs.length; start++) {
    let end = start;
    while (end < xs.length && low[end] && high[end]) end++;
    if (end > start) {
      path.moveTo(...high[start]);
      for (let i = start + 1; i < end; i++) path.lineTo(...high[i]);
      for (let i = end - 1; i >= start; i--) path.lineTo(...low[i]);
      path.closePath();
      start = end;
    }
  }
  return { stroke: null, fill: path, flags: 0 };
}

function marker(context, shape, [x, y], size) {
  context.beginPath();
  if (shape === "circle") context.arc(x, y, size, 0, 2 * Math.PI);
  else if (shape === "square") context.rect(x - size, y - size, 2 * size, 2 * size);
  else {
    const corners = {
      up: [[0, -1.2], [1.1, 0.9], [-1.1, 0.9]],
      down: [[0, 1.2], [1.1, -0.9], [-1.1, -0.9]],
      diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]],
    }[shape];
    corners.forEach(([dx, dy], i) => context[i ? "lineTo" : "moveTo"](x + dx * size, y + dy * size));
    context.closePath();
  }
}

/** A cross where a run was stopped by a value that is not finite. */
function cross(context, [x, y], size) {
  context.beginPath();
  for (const [dx, dy] of [[1, 1], [1, -1]]) {
    context.moveTo(x - dx * size, y - dy * size);
    context.lineTo(x + dx * size, y + dy * size);
  }
  context.stroke();
}
