// How numbers are written: as report/numbers.py writes them in the tables of the same page.

const MISSING = "–";

/** Four significant digits unless asked for others; counts in full; powers of ten for very large and very small. */
function significant(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return MISSING;
  if (!Number.isFinite(value)) return "non-finite";
  if (value === 0) return "0";
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  const exponent = Number(power);
  if (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) return `${mantissa}e${exponent}`;
  const decimals = Math.max(0, digits - 1 - exponent);
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** A place on the x axis: a count in full, anything else with four digits. */
function placed(value) {
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? value.toLocaleString("en-US") : significant(value);
}

/** A label of an axis: as short as it can be. */
function tick(value) {
  if (value === null || value === undefined) return "";
  const short = Number(value.toPrecision(6));
  const size = Math.abs(short);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return short.toExponential().replace("e+", "e");
  return String(short);
}

/** The number that a table's cell shows, its first line alone; null where it shows none. */
function numberIn(text) {
  const plain = text.trim().replace(/,/g, "").replace(/−/g, "-");
  const found = plain.match(/^-?\d+(\.\d+)?(e-?\d+)?/i);
  if (found) return Number(found[0]);
  return plain.startsWith("non-finite") ? Infinity : null;
}
