// A page whose runs still train is loaded again every few seconds. The address keeps what the reader has chosen.

const RELOAD_SECONDS = Number(document.documentElement.dataset.reloadSeconds ?? 0);
const FOCUSABLE = "a[href], button, input, select, [tabindex]";

/** Loads the page again and again, but not under a reader's hand, nor where nobody looks. */
function reloadWhileRunning() {
  if (!RELOAD_SECONDS) return;
  const places = [...document.querySelectorAll(FOCUSABLE)];
  places[history.state?.focus]?.focus({ preventScroll: true });
  let held = false;
  for (const [name, now] of [["pointerdown", true], ["pointerup", false], ["pointercancel", false]])
    addEventListener(name, () => { held = now; }, true);
  setInterval(() => {
    if (held || state.still || document.hidden) return;
    const focus = [...document.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
    try {
      history.replaceState({ focus }, "");
    } catch {
      // A page inside of another has no history of its own.
    }
    location.reload();
  }, 1000 * RELOAD_SECONDS);
}

/** The button that keeps the page as it is for a while. */
function pause() {
  const button = make("button", { type: "button", id: "explore-still", onclick: () => change({ still: !state.still }) });
  shown.push(() => {
    button.textContent = state.still ? "Load again as runs go on" : "Keep as it is";
  });
  return button;
}
