// The page's data, which stands in it once, as JSON: columns, arms, and the lines of every chart.

const page = JSON.parse(document.getElementById("explored").textContent);

/** Columns by name: counts are written as their differences, and epochs as a share of the first column. */
function columnsOf(written) {
  const columns = new Map();
  for (const [name, kind, numbers] of written) {
    let sum = 0;
    if (kind === "steps") columns.set(name, numbers.map((step) => (sum += step)));
    else if (kind === "share") columns.set(name, [...columns.values()][0].map((value) => value * numbers));
    else columns.set(name, numbers);
  }
  return columns;
}

const tables = page.tables.map(columnsOf);
const arms = page.arms;
const charts = page.charts;
for (const chart of charts) for (const line of chart.lines) {
  // Whole multiples of a decimal unit: the division gives the decimal number itself.
  if (line.digits !== undefined) line.rows = line.rows.map((row) => row.map((value) => value && scaled(value, line.digits)));
  Object.assign(line, spread(line));
}

function scaled(value, digits) {
  return digits >= 0 ? value / 10 ** digits : value * 10 ** -digits;
}

/** The mean of the seeds that have a value at each point, and the band from the lowest to the highest of them. */
function spread({ rows, low, high }) {
  const mean = [], lows = low ?? [], highs = high ?? [];
  for (let i = 0; i < rows[0].length; i++) {
    const here = rows.map((row) => row[i]).filter((value) => value !== null && value !== undefined);
    mean.push(here.length ? here.reduce((sum, value) => sum + value, 0) / here.length : null);
    if (low) continue;
    lows.push(here.length ? Math.min(...here) : null);
    highs.push(here.length ? Math.max(...here) : null);
  }
  return { mean, lows, highs, banded: Boolean(low) || rows.length > 1 };
}

/** What a chart's curves can stand over: the names of the columns that all of them have. */
function choices(chart) {
  const every = chart.lines.map((line) => [...tables[line.table].keys()]);
  return every[0].filter((name) => every.every((names) => names.includes(name)));
}

/** What the chart stands over now: the reader's choice, where its curves have that. */
function chosen(chart) {
  const names = choices(chart);
  return names.includes(state.x) ? state.x : names[0];
}

/** The places of a line's points on the x axis. */
function places(chart, line) {
  return tables[line.table].get(chosen(chart));
}

/** Charts over the same quantity have one crosshair and are zoomed together, whatever the reader lets that be. */
function group(chart) {
  return choices(chart)[0];
}

/** The point of rising places that is nearest to x; -1 of none. */
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return high < 0 ? -1 : x - xs[low] <= xs[high] - x ? low : high;
}
