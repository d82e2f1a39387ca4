/** The theme: the system's unless one was chosen, and its colours for canvases. */
import { Emitter } from "./emitter.js";
import { load, save } from "./storage.js";

const NAMES = [
  "ground", "panel", "raised", "line", "text", "muted", "faint", "bid", "ask", "bid-soft", "ask-soft", "bid-faint",
  "ask-faint", "accent", "accent-soft", "alert", "heat-0", "heat-1", "heat-2", "heat-3", "heat-4", "centre",
];
const dark = matchMedia("(prefers-color-scheme: dark)");

export const theme = new Emitter();

/** Colours by name in camel case, and the fonts of numbers. */
theme.colours = {};

function read() {
  const style = getComputedStyle(document.documentElement);
  for (const name of NAMES) {
    const key = name.replace(/-(.)/g, (_, letter) => letter.toUpperCase());
    theme.colours[key] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.numbers = style.getPropertyValue("--numbers").trim();
  theme.words = style.getPropertyValue("--words").trim();
  theme.emit("change");
}

/** "system", "light" or "dark". */
export const chosenTheme = () => load("theme", "system");

export function chooseTheme(name) {
  save("theme", name);
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  read();
}

dark.addEventListener("change", read);
read();
