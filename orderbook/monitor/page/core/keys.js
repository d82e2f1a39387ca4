/** Keys of the whole page, and the list of all keys. */
import { make } from "./dom.js";

const HELP = [
  ["Page", [["1 – 9", "instrument"], ["L  H  K  D", "ladder, heat map, candles, depth"], ["S", "time & sales"], ["V", "views"], ["Q", "SQL"], ["X", "explain"], ["P", "strategies"], ["O", "log"], ["R", "alerts and rules"], ["E", "engine and feeds"], ["T", "theme: system, light, dark"], ["Z", "the focused pane alone, or all"], ["?", "this list"], ["Tab", "next control; splitters move by arrow keys"]]],
  ["Ladder", [["Space  C", "recentre"], ["A", "auto recentre"], ["G  Shift G", "coarser, finer prices"], ["N", "hide prices without orders"], ["↑ ↓  PgUp PgDn  wheel", "scroll"]]],
  ["Heat map", [["F", "freeze, or go on"], ["+ −  wheel", "zoom time"], ["Shift ↑ ↓  Shift wheel", "zoom price; also wheel on the axis, and pinch"], ["arrows, drag", "move"], ["Home", "newest, market in the middle"]]],
  ["SQL", [["Ctrl Enter", "run"], ["Alt ↑ ↓", "earlier statements"]]],
];

/** Whether a key belongs to what has the keyboard. */
const writes = (target) => target.closest?.("input, textarea, select, dialog") !== null && target.type !== "checkbox";

/** Listens for keys of the page; acts: by key, functions. `number(n)`: a digit. */
export function listenForKeys(acts, number) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || writes(event.target)) return;
    // Space presses the button that has the keyboard.
    if (event.key === " " && event.target.closest?.("button, summary, a, [type=checkbox]")) return;
    const act = /^[1-9]$/.test(event.key) ? () => number(Number(event.key)) : acts[event.key] ?? acts[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

let open = null;

/** Shows the list of keys, or takes it away. */
export function help() {
  if (open) {
    open.close();
    return;
  }
  const parts = HELP.map(([title, keys]) => make("section", {}, make("h3", {}, title),
    make("dl", {}, ...keys.map(([key, what]) => make("div", {}, make("dt", {}, make("kbd", {}, key)), make("dd", {}, what))))));
  const dialog = make("dialog.help", { "aria-label": "Keys", "data-testid": "help" }, make("h2", {}, "Keys"), make("div.help-parts", {}, ...parts),
    make("form", { method: "dialog" }, make("button.primary", {}, "Close")));
  dialog.addEventListener("close", () => {
    dialog.remove();
    open = null;
  });
  dialog.addEventListener("keydown", (event) => event.key === "?" && dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  open = dialog;
}
