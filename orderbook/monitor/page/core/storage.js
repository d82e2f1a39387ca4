/** What the browser keeps of the page's settings; where it keeps nothing, settings last as long as the page. */
const memory = new Map();

/** The setting `name`, or `otherwise` where there is none or it cannot be read. */
export function load(name, otherwise) {
  try {
    const text = localStorage.getItem(`orderbook.${name}`);
    return text === null ? (memory.get(name) ?? otherwise) : JSON.parse(text);
  } catch {
    return memory.get(name) ?? otherwise;
  }
}

/** Keeps `value`, anything JSON can write, under `name`. */
export function save(name, value) {
  memory.set(name, value);
  try {
    localStorage.setItem(`orderbook.${name}`, JSON.stringify(value));
  } catch {
    // Full or forbidden: the value stays in memory.
  }
}

export function forget(name) {
  memory.delete(name);
  try {
    localStorage.removeItem(`orderbook.${name}`);
  } catch {
    // Nothing was kept.
  }
}

/** An object of settings under `name`, over `defaults`; `set` keeps changes and calls `changed`. */
export function settings(name, defaults, changed = () => {}) {
  const values = { ...defaults, ...load(name, {}) };
  return {
    values,
    set(changes) {
      Object.assign(values, changes);
      save(name, values);
      changed(values);
    },
  };
}
