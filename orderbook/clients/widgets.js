// What widgets.py shows in a notebook. Texts are put in as texts, never as HTML.
const BID = "#2f8f6b", ASK = "#c2504b";
const LINE = "border-bottom:1px solid color-mix(in srgb, currentColor 15%, transparent)";
const CELL = "padding:1px 8px;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap";

function node(name, style, text) {
  const made = document.createElement(name);
  if (style) made.style.cssText = style;
  if (text !== undefined) made.textContent = text;
  return made;
}

function table(model, box) {
  let before = new Map();
  const show = () => {
    const [columns, rows] = [model.get("columns"), model.get("rows")];
    const made = node("table", "border-collapse:collapse;font:12px/1.5 system-ui,sans-serif");
    const head = made.appendChild(node("tr"));
    for (const name of columns) head.appendChild(node("th", `${CELL};${LINE};font-weight:600`, name));
    const seen = new Map();
    rows.forEach((row, place) => {
      const line = made.appendChild(node("tr"));
      row.forEach((value, column) => {
        const cell = line.appendChild(node("td", CELL, value));
        const old = before.get(place)?.[column];
        if (old !== undefined && old !== value) cell.style.background = "color-mix(in srgb, #d9a520 30%, transparent)";
      });
      seen.set(place, row);
    });
    before = seen;
    const count = model.get("count");
    const more = count > rows.length ? `, ${rows.length} of them shown` : "";
    const title = node("div", "font:600 12px system-ui,sans-serif;margin-bottom:4px",
      `${model.get("title")}: ${count.toLocaleString("en")} rows${more}`);
    box.replaceChildren(title, made);
  };
  return [show, ["change:rows", "change:count"]];
}

function ladder(model, box) {
  const show = () => {
    const [bids, asks] = [model.get("bids"), model.get("asks")];
    const most = Math.max(...[...bids, ...asks].map(([, volume]) => Number(volume)), 1e-12);
    const made = node("table", "border-collapse:collapse;font:12px/1.5 system-ui,sans-serif");
    const line = ([price, volume], colour, left) => {
      const row = made.appendChild(node("tr"));
      const share = Math.round((100 * Number(volume)) / most);
      const side = left ? "left" : "right";
      const bar = `background:linear-gradient(to ${side},color-mix(in srgb,${colour} 35%,transparent) ${share}%,transparent ${share}%)`;
      row.appendChild(node("td", `${CELL};min-width:80px;${left ? bar : ""}`, left ? volume : ""));
      row.appendChild(node("td", `${CELL};font-weight:600;color:${colour}`, price));
      row.appendChild(node("td", `${CELL};min-width:80px;text-align:left;${left ? "" : bar}`, left ? "" : volume));
    };
    [...asks].reverse().forEach((level) => line(level, ASK, false));
    bids.forEach((level) => line(level, BID, true));
    box.replaceChildren(node("div", "font:600 12px system-ui,sans-serif;margin-bottom:4px", model.get("title")), made);
  };
  return [show, ["change:bids", "change:asks"]];
}

function heat(model, box) {
  const [wide, high, kept] = [600, 240, 600];
  const canvas = node("canvas", "width:600px;height:240px;border-radius:4px;background:#10151c");
  [canvas.width, canvas.height] = [wide, high];
  const low = node("span"), top = node("span");
  const scale = node("div", "display:flex;justify-content:space-between;width:600px;font:11px system-ui,sans-serif");
  scale.append(low, top);
  box.replaceChildren(
    node("div", "font:600 12px system-ui,sans-serif;margin-bottom:4px", model.get("title")), canvas, scale);
  let columns = [];
  const show = () => {
    const paint = canvas.getContext("2d");
    paint.clearRect(0, 0, wide, high);
    let [least, greatest, most] = [Infinity, -Infinity, 0];
    for (const side of columns.flat())
      for (let at = 0; at < side.length; at += 2) {
        least = Math.min(least, side[at]);
        greatest = Math.max(greatest, side[at]);
        most = Math.max(most, side[at + 1]);
      }
    if (!(greatest > least)) return;
    const step = Math.max(2, wide / Math.max(columns.length, 60));
    const first = Math.max(0, columns.length - Math.floor(wide / step));
    columns.slice(first).forEach((sides, place) => sides.forEach((side, which) => {
      const levels = side.length / 2;
      for (let at = 0; at < side.length; at += 2) {
        const y = high - ((side[at] - least) / (greatest - least)) * (high - 4) - 4;
        paint.globalAlpha = Math.sqrt(side[at + 1] / most);
        paint.fillStyle = which ? ASK : BID;
        paint.fillRect(place * step, y, Math.ceil(step), Math.max(2, high / (4 * levels)));
      }
    }));
    paint.globalAlpha = 1;
    low.textContent = `from ${least}`;
    top.textContent = `to ${greatest}`;
  };
  model.on("msg:custom", (said) => {
    columns = said.all ? said.columns : [...columns, ...said.columns].slice(-kept);
    show();
  });
  model.send({ all: true });
  return [show, []];
}

function render({ model, el }) {
  const box = el.appendChild(node("div", "overflow:auto"));
  const [show, events] = { table, ladder, heat }[model.get("kind")](model, box);
  for (const event of events) model.on(event, show);
  show();
}

export default { render };
