// Puts everything in its place once the page has been read.

function start() {
  state = read(location.hash.slice(1));
  const figures = new Map();
  for (const chart of charts) {
    const figure = document.getElementById(`f-${chart.figure}`);
    if (figure) figures.set(figure, [...(figures.get(figure) ?? []), chart]);
  }
  // Above the first chart: verdicts and claims come before.
  const first = [...document.querySelectorAll("figure")].find((figure) => figures.has(figure));
  if (first) (first.closest("main > section") ?? first).before(controls());
  for (const [figure, of] of figures) mountFigure(figure, of);
  makeSortable();
  refresh();
  watchViews();
  addEventListener("hashchange", () => {
    state = read(location.hash.slice(1));
    refresh();
  });
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
    matchMedia(query).addEventListener("change", () => refresh());
  // For the console of the browser, and for tests: what is drawn, and what was chosen.
  const xs = (line) => places(charts.find((chart) => chart.lines.includes(line)), line);
  window.normscope = { views, charts, arms, xs, get state() { return state; }, csvOf, pngOf };
}

start();
