/** Builds elements without markup in text, so that no value can become markup. */

/** `make("button.small", {title: "…"}, "text", child)`; properties named on… listen, aria-… and data-… are attributes. */
export function make(selector, properties = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for" || name === "list") element.setAttribute(name, value);
    else element[name] = value;
  }
  const there = children.filter((child) => child !== null && child !== undefined);
  element.append(...there.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

// Controls, formats such as bidirectional overrides, surrogates, and the ends of lines and paragraphs.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Text from outside as one line that shows all there is, as the terminal does. */
export function visible(text) {
  return String(text).replace(HIDDEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}

/** Sets the text only where it changed, which spares the browser a layout. */
export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** A <select> of [value, label] pairs or plain values. */
export function choice(label, options, value, changed, testId) {
  const select = make("select", { title: label, "aria-label": label, "data-testid": testId });
  fillChoice(select, options, value);
  select.addEventListener("change", () => changed(select.value));
  return select;
}

/** Replaces the options of a <select>, where they differ. */
export function fillChoice(select, options, value) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const key = JSON.stringify(pairs);
  if (select.dataset.options !== key) {
    select.dataset.options = key;
    select.replaceChildren(...pairs.map(([given, text]) => make("option", { value: String(given) }, String(text))));
  }
  if (value !== undefined && select.value !== String(value)) select.value = String(value);
}

/** A button that saves what `text` gives as a file of this name. */
export function saving(label, title, name, text, testId) {
  const save = () => {
    const url = URL.createObjectURL(new Blob([text()], { type: "text/csv;charset=utf-8" }));
    make("a", { href: url, download: name() }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return make("button", { type: "button", title, "aria-label": title, onclick: save, "data-testid": testId }, label);
}

/** A button that is pressed or not. */
export function toggle(text, title, pressed, changed, testId) {
  const button = make("button.toggle", { type: "button", title, "aria-label": title, "data-testid": testId }, text);
  const show = (value) => button.setAttribute("aria-pressed", String(value));
  show(pressed);
  button.addEventListener("click", () => changed(button.getAttribute("aria-pressed") !== "true"));
  return { element: button, show };
}
