// The controls above all charts.

const SCALES = [["", "as printed"], ["log", "logarithmic"], ["linear", "linear"]];
let shown = []; // what brings each control to where the choices stand

/** The box of controls: those alone that the page's charts have a use for. */
function controls() {
  const parts = [...facets(), knobs()];
  return make("section", { id: "explore", "aria-labelledby": "h-explore" },
    make("h2", { id: "h-explore" }, "Explore"),
    make("p", { class: "soft", id: "explore-keys" },
      "Drag along a chart to zoom, double-click to zoom out, click a curve or a point to highlight it. With the keys: arrows move the crosshair, + and − zoom, 0 zooms out, Enter highlights, Escape ends that."),
    ...parts,
    make("p", { class: "unseen", id: "explore-said", role: "status" }));
}

/** A group of switches for each thing that tells arms apart. */
function facets() {
  const names = [...new Set(arms.flatMap((arm) => Object.keys(arm.facets)))];
  return names.flatMap((name) => {
    const values = [...new Set(arms.map((arm) => arm.facets[name]).filter((value) => value !== undefined))];
    if (values.length < 2) return [];
    const rows = values.map((value) => {
      const members = arms.map((_, i) => i).filter((i) => arms[i].facets[name] === value);
      const box = make("input", { type: "checkbox", "data-facet": name, "data-value": value, onchange: () => switchAll(members, box.checked) });
      shown.push(() => {
        const on = members.filter((arm) => !state.off.has(arm)).length;
        box.checked = on > 0;
        box.indeterminate = on > 0 && on < members.length;
      });
      return make("label", {}, box, make("bdi", {}, value));
    });
    return [make("fieldset", { class: "facet" }, make("legend", {}, name), ...rows)];
  });
}

function switchAll(members, on) {
  const off = new Set(state.off);
  for (const arm of members) if (on) off.delete(arm); else off.add(arm);
  change({ off });
}

function choice(label, id, options, get, set) {
  const select = make("select", { id, onchange: () => change(set(select.value)) }, ...options.map(([value, text]) => make("option", { value }, text)));
  shown.push(() => { select.value = get(); });
  return make("label", { class: "knob" }, `${label} `, select);
}

/** Scales, smoothing, what x is, the run that is lit, and reset. */
function knobs() {
  const parts = [
    choice("x axis", "explore-logx", SCALES, () => state.logX, (value) => ({ logX: value })),
    choice("y axis", "explore-logy", SCALES, () => state.logY, (value) => ({ logY: value })),
  ];
  const columns = [...new Set(charts.flatMap((chart) => (group(chart) === "update" ? choices(chart) : [])))];
  if (columns.length) parts.push(smoothing());
  if (columns.length > 1)
    parts.push(choice("x is", "explore-x", columns.map((name) => [name, name]), () => (columns.includes(state.x) ? state.x : columns[0]), (x) => ({ x, zoom: without("update") })));
  const lit = make("button", { type: "button", id: "explore-lit", onclick: () => change({ lit: null }) });
  shown.push(() => {
    lit.hidden = !state.lit;
    lit.textContent = state.lit ? `Put out ${nameOfLit()}` : "";
  });
  parts.push(lit, make("button", { type: "button", id: "explore-reset", onclick: reset }, "Reset"));
  return make("div", { class: "knobs" }, ...parts);
}

function smoothing() {
  const output = make("output", { for: "explore-smooth" });
  const slider = make("input", { type: "range", id: "explore-smooth", min: 0, max: 0.99, step: 0.01, oninput: () => change({ smooth: Number(slider.value) }) });
  shown.push(() => {
    slider.value = String(state.smooth);
    output.textContent = state.smooth ? state.smooth.toFixed(2) : "off";
    slider.setAttribute("aria-valuetext", output.textContent);
  });
  return make("label", { class: "knob" }, "smoothing ", slider, output);
}

/** A zoom is in the units of x, so another x has none. */
function without(name) {
  const zooms = new Map(state.zoom);
  zooms.delete(name);
  return zooms;
}

function reset() {
  state = first();
  crosshair = null;
  keep();
  refresh();
}

/** Brings controls, charts and tables to where the choices stand. */
function refresh() {
  for (const show of shown) show();
  for (const view of views) showView(view);
  sortTables();
}
