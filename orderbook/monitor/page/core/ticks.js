/** Round places on axes. */

const STEPS = [1, 2, 5];
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];

/** The smallest of 1, 2, 5, 10, 20, … that is at least `least`; whole where `whole` is set. */
export function roundStep(least, whole = true) {
  let power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-12)));
  if (whole && power < 1) power = 1;
  for (;;) {
    for (const step of STEPS) if (step * power >= least) return step * power;
    power *= 10;
  }
}

/** Decimals that tell places apart that are `step` apart. */
export const decimals = (step) => Math.min(12, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));

/** Milliseconds between marks of a time axis that are at least `least` apart. */
export const timeStep = (least) => 1000 * (SECONDS.find((seconds) => seconds * 1000 >= least) ?? 3600);
