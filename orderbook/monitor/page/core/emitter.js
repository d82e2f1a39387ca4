/** Tells listeners by name; a listener that throws does not keep the others from hearing. */
export class Emitter {
  #listeners = new Map();

  /** Calls `listener` at every `emit(name)`; returns what ends that. */
  on(name, listener) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
    this.#listeners.get(name).add(listener);
    return () => this.#listeners.get(name).delete(listener);
  }

  emit(name, value) {
    for (const listener of this.#listeners.get(name) ?? []) {
      try {
        listener(value);
      } catch (error) {
        console.error(error);
      }
    }
  }
}
