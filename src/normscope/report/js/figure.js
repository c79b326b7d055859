// Puts charts into the figures of the page, in place of the pictures, which stay for print.

const HEIGHT = 280;
const views = [];

/** All charts of a figure, before its picture. */
function mountFigure(figure, of) {
  const box = make("div", { class: of.length > 1 ? "charts several" : "charts" });
  for (const chart of of) {
    const view = { chart, height: HEIGHT };
    views.push(view);
    box.append(mountChart(view, of.length > 1 || !figure.querySelector("h3")));
  }
  figure.insertBefore(box, figure.querySelector("svg"));
  figure.classList.add("explored");
}

function mountChart(view, titled) {
  const { chart } = view;
  const number = charts.indexOf(chart), title = `chart-${number}-title`;
  view.host = make("div", {
    class: "plot", tabindex: "0", role: "group", "aria-labelledby": title, "aria-describedby": "explore-keys",
    onkeydown: (event) => pressed(view, event),
  });
  view.readout = make("p", { class: "readout" });
  view.out = make("button", { type: "button", onclick: () => zoom(view, null) }, "Zoom out");
  const tools = make("div", { class: "tools" }, view.out,
    make("button", { type: "button", "aria-label": `CSV of ${chart.title}`, onclick: () => saveCsv(view) }, "CSV"),
    make("button", { type: "button", "aria-label": `PNG of ${chart.title}`, onclick: () => savePng(view) }, "PNG"));
  const head = make("div", { class: "head" },
    make("p", { class: "name" }, make("strong", { id: title, class: titled ? "" : "unseen" }, chart.title), " ", make("span", {}, chart.y)), tools);
  const parts = [head, view.host];
  if (chart.frames.length > 1) parts.push(sliderOf(view, number));
  return make("div", { class: "chart" }, ...parts, view.readout, legendOf(view));
}

/** A slider over the updates at which a curve was recorded. */
function sliderOf(view, number) {
  const { frames } = view.chart;
  const output = make("output", { for: `chart-${number}-frame` });
  const slider = make("input", {
    type: "range", id: `chart-${number}-frame`, min: 0, max: frames.length - 1, step: 1, value: 0,
    oninput: () => change({ frames: new Map(state.frames).set(number, Number(slider.value)) }),
  });
  view.showFrame = () => {
    slider.value = String(state.frames.get(number) ?? 0);
    output.textContent = frames[Number(slider.value)];
    slider.setAttribute("aria-valuetext", output.textContent);
  };
  return make("div", { class: "frame" }, make("label", { for: slider.id }, "Recorded at "), slider, output);
}

/** Draws one chart with all that belongs to it, or remembers to do so when it comes near the window. */
function showView(view) {
  view.stale = !view.near;
  if (view.stale) return;
  view.out.hidden = !state.zoom.has(group(view.chart));
  showLegend(view);
  view.showFrame?.();
  drawChart(view);
  showCrosshair(view);
}

/** Draws the first chart that waits and then, whenever the browser is idle, the others: a page saved unscrolled has all. */
function drawWaiting() {
  const waiting = views.find((view) => view.stale);
  if (!waiting) return;
  waiting.near = true;
  showView(waiting);
  setTimeout(drawWaiting);
}

/** Charts are drawn when they come near the window, and the others after them: a page of a hundred opens at once. */
function watchViews() {
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const view = views.find((one) => one.host === entry.target);
      view.near = entry.isIntersecting;
      if (view.near && view.stale) showView(view);
    }
  }, { rootMargin: "600px" });
  const sized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const view = views.find((one) => one.host === entry.target);
      const width = Math.max(120, view.host.clientWidth);
      if (view.plot && view.host.clientWidth && view.plot.width !== width) view.plot.setSize({ width, height: view.height });
    }
  });
  for (const view of views) {
    near.observe(view.host);
    sized.observe(view.host);
  }
  setTimeout(drawWaiting);
  // Whoever prints at once waits for all of them.
  addEventListener("beforeprint", () => {
    for (const view of views) if (view.stale) { view.near = true; showView(view); }
  });
}
