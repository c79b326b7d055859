// What a reader takes along: the values of a chart as CSV, and its picture as PNG.

const LEGEND_ROW = 20;

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function fileName(view, ending) {
  const plain = view.chart.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60).replace(/^-|-$/g, "");
  return `${plain || "chart"}.${ending}`;
}

/** A cell in which no quotation mark ends it early, and which no spreadsheet takes for a formula. */
function cell(value) {
  if (typeof value === "number") return String(value);
  if (value === null || value === undefined) return "";
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return `"${text.replace(/"/g, '""')}"`;
}

/** The lines that are drawn, a row for each of their points: the arm, x, the mean, the band, and every seed. */
function csvOf(view) {
  const { chart } = view, seeds = Math.max(0, ...view.drawn.lines.map((line) => line.rows.length));
  const heads = ["arm", nameOfX(chart), "mean", "lowest", "highest", ...Array.from({ length: seeds }, (_, i) => `seed ${i + 1}`)];
  const rows = [heads.map(cell)];
  const [from, to] = view.drawn.x;
  for (const line of view.drawn.lines) {
    const xs = places(chart, line);
    xs.forEach((x, i) => {
      if (x < from || x > to) return;
      const values = [line.mean[i], line.lows[i], line.highs[i], ...line.rows.map((row) => row[i])];
      rows.push([arms[line.arm].label, chart.ticks[x] ?? x, ...values].map(cell));
    });
  }
  return rows.map((row) => row.join(",")).join("\r\n") + "\r\n";
}

function saveCsv(view) {
  if (!view.plot) drawChart(view);
  save(new Blob([csvOf(view)], { type: "text/csv" }), fileName(view, "csv"));
}

/** The chart on the page's ground, with its title above and the arms that are on below. */
function pngOf(view) {
  if (!view.plot) drawChart(view);
  const chart = view.plot.ctx.canvas, scale = devicePixelRatio, colours = theme();
  const named = [...new Map(view.drawn.lines.map((line) => [line.arm, line])).values()];
  const canvas = make("canvas", { width: chart.width, height: chart.height + (28 + LEGEND_ROW * (named.length + 1)) * scale });
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--figure").trim();
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(chart, 0, 28 * scale);
  context.scale(scale, scale);
  context.font = "13px system-ui, sans-serif";
  context.textBaseline = "middle";
  const width = canvas.width / scale;
  context.fillStyle = colours.ink;
  context.fillText(`${view.chart.title}, ${view.chart.y}`, 8, 14, width - 16);
  named.forEach((line, i) => {
    const y = 28 + chart.height / scale + LEGEND_ROW * (i + 0.5);
    context.strokeStyle = colourOf(line.arm, colours);
    context.lineWidth = 2.4;
    context.setLineDash(dashOf(line));
    context.beginPath();
    context.moveTo(8, y);
    context.lineTo(44, y);
    context.stroke();
    context.fillText(arms[line.arm].label.slice(0, 200), 52, y, width - 60);
  });
  return canvas;
}

function savePng(view) {
  pngOf(view).toBlob((blob) => save(blob, fileName(view, "png")), "image/png");
}
