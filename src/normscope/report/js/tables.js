// Tables that can be sorted by any of their columns.

const sortable = [];
let sortedBy = null;

/** A button in each column's head. A third press brings back the order in which the page was written. */
function makeSortable() {
  for (const table of document.querySelectorAll("table.wide:not(.claims)")) {
    const body = table.tBodies[0], heads = [...(table.tHead?.rows[0]?.cells ?? [])];
    if (!body || body.rows.length < 2 || !heads.length) continue;
    const number = sortable.length;
    const rows = [...body.rows];
    sortable.push({ body, heads, rows, firsts: rows.map((row) => row.classList.contains("first")) });
    heads.forEach((head, column) => {
      // What a head explains has the focus of its own, which no button may hold.
      const apart = head.querySelector("[tabindex]") !== null, name = head.textContent.trim();
      const button = make("button", {
        type: "button", class: "sort", "aria-label": apart ? `sort by ${name}` : null, onclick: () => nextOrder(number, column),
      });
      if (!apart) button.append(...head.childNodes);
      head.append(button);
    });
  }
}

function nextOrder(table, column) {
  const now = state.sort?.table === table && state.sort.column === column ? state.sort : null;
  change({ sort: now === null ? { table, column, down: false } : now.down ? null : { table, column, down: true } });
}

/** What a row has in the column; a cell that spans several has nothing in those after its first. */
function keyOf(row, column) {
  const text = row.cells[column]?.textContent ?? "";
  return { number: numberIn(text), text: text.trim() };
}

/** Numbers before text, text by its letters, and what was not measured at the end in either direction. */
function compare(one, other, down) {
  const missing = (key) => key.text === "" || key.text === MISSING;
  if (missing(one) || missing(other)) return Number(missing(one)) - Number(missing(other));
  const both = one.number !== null && other.number !== null;
  const order = both ? (one.number === other.number ? 0 : one.number < other.number ? -1 : 1) : one.text.localeCompare(other.text, "en", { numeric: true });
  return down ? -order : order;
}

/** Puts the rows of every table into the order that was chosen, or into their own. */
function sortTables() {
  if (sortedBy === state.sort) return;
  sortedBy = state.sort;
  sortable.forEach(({ body, heads, rows, firsts }, number) => {
    const chosen = state.sort?.table === number && state.sort.column < heads.length ? state.sort : null;
    heads.forEach((head, column) => {
      if (chosen?.column === column) head.setAttribute("aria-sort", chosen.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const order = rows.map((row, i) => ({ row, i, key: chosen && keyOf(row, chosen.column) }));
    if (chosen) order.sort((one, other) => compare(one.key, other.key, chosen.down) || one.i - other.i);
    if (order.every(({ row }, place) => body.rows[place] === row)) return;
    // The lines between groups of rows mean something in the written order alone.
    for (const { row, i } of order) row.classList.toggle("first", firsts[i] && !chosen);
    body.append(...order.map(({ row }) => row));
  });
}
