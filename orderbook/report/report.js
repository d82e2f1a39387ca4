"use strict";
// Tells the values under the pointer.
const readout = document.getElementById("readout");
const shown = value => Math.abs(value) >= 1e-4 || !value
  ? value.toLocaleString("en", { maximumSignificantDigits: 8 }) : value.toExponential(3);
for (const svg of document.querySelectorAll("svg.chart[data-chart]")) {
  const chart = JSON.parse(svg.dataset.chart), line = svg.querySelector(".pointer");
  const leave = () => { readout.hidden = true; line.style.visibility = "hidden"; };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * chart.width;
    if (at < chart.left || at > chart.right) return leave();
    const share = (at - chart.left) / (chart.right - chart.left), span = chart.high - chart.low;
    const x = chart.times ? share * span : chart.low + share * span;
    const rows = chart.series.map(one => {
      let low = 0, high = one.x.length;
      while (low < high) { const middle = low + high >> 1; if (one.x[middle] <= x) low = middle + 1; else high = middle; }
      return `${one.name}  ${shown(one.y[Math.max(0, low - 1)])}`;
    });
    const head = chart.times ? new Date(chart.low + x).toISOString().replace("T", " ").replace("Z", "") : shown(x);
    readout.textContent = [head, ...rows].join("\n");
    readout.hidden = false;
    const width = readout.offsetWidth, left = event.clientX + 14 + width > innerWidth ? event.clientX - 14 - width : event.clientX + 14;
    readout.style.left = `${left}px`;
    readout.style.top = `${event.clientY + 14}px`;
    line.setAttribute("x1", at); line.setAttribute("x2", at); line.style.visibility = "visible";
  });
}
