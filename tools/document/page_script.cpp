#include <ampscope/tools/document/page_parts.h>

namespace amp {

const std::string_view page_script = R"js(
const assign = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const make = (name, parent, attributes = {}) =>
  assign(parent.appendChild(document.createElementNS(parent.namespaceURI, name)), attributes);
// Headers become buttons that sort their table; without script it stays as it is.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, i) => {
    const name = [...head.childNodes], button = make("button", head);
    button.append(...name);
    button.onclick = () => {
      const up = head.ariaSort !== "ascending";
      heads.forEach(h => { h.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[i].dataset.v ?? row.cells[i].textContent;
      const order = (a, b) => key(a).localeCompare(key(b), "en", {numeric: true});
      const value = row => Number.isNaN(Number(key(row))) ? -Infinity : Number(key(row));
      const number = (a, b) => value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : order(a, b);
      const rows = [...body.rows], numeric = rows.some(row => row.cells[i].dataset.v);
      rows.sort(numeric ? number : order);
      body.append(...up ? rows : rows.reverse());
    };
  });
}
// What is wider than the page says so.
const markWide = () => {
  for (const box of document.querySelectorAll(".scroll"))
    box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1);
};
addEventListener("resize", markWide);
document.addEventListener("toggle", markWide, true);
markWide();
// A box beside the pointer: a heading, and rows of a text, its colour, and whether it is nearest.
const tip = make("div", document.body, {class: "tip", hidden: ""});
addEventListener("scroll", () => { tip.hidden = true; }, true);
function showTip(event, heading, rows) {
  tip.replaceChildren(heading);
  for (const {text, colour = "", nearest = false} of rows) {
    const row = make("div", tip, {class: nearest ? "nearest" : ""});
    row.append(text);
    row.style.borderLeftColor = colour;
  }
  tip.hidden = false;
  const place = (at, size, room) => `${Math.max(4, at + 14 + size < room ? at + 14 : at - 14 - size)}px`;
  tip.style.left = place(event.clientX, tip.offsetWidth, document.documentElement.clientWidth);
  tip.style.top = place(event.clientY, tip.offsetHeight, innerHeight);
}
const short = (value, digits) => String(Number(value.toPrecision(digits)));
const texts = { // of a value, by the unit of its axis
  log2: v => Number.isInteger(v) ? `2^${v}` : short(2 ** v, 3),
  share: v => `${short(100 * v, 3)} %`,
  plain: v => short(v, 4)
};
// The axes and lines of a panel: see plot_data() and Path::values() in tools/chart.
function panelOf(group) {
  const [x0, x1, left, right, y0, y1, bottom, top] = group.dataset.plot.split(" ").map(Number);
  const {unit, x: label, xunit = ""} = group.dataset, ticks = group.querySelector("[data-ticks]");
  const height = unit !== "share" ? v => v : v => v > 0 ? Math.max(Math.log10(v), y0 + 0.5) : y0; // 0 is at the foot
  const drawn = v => bottom + (Math.min(Math.max(height(v), y0), y1) - y0) / (y1 - y0) * (top - bottom);
  const lines = [...group.querySelectorAll("[data-p]")].map(line => ({
    line, holds: line.dataset.holds, name: line.dataset.n, path: line.querySelector("path:not(.band)"),
    steps: JSON.parse(line.dataset.p)})).sort((a, b) => (a.holds ?? 0) - (b.holds ?? 0)); // limits come last
  return {left, right, bottom, top, lines, drawn, y: drawn, x: v => left + (v - x0) / (x1 - x0) * (right - left),
          at: pixel => x0 + (pixel - left) / (right - left) * (x1 - x0), text: texts[unit],
          heading: v => `${label} ${xunit ? texts[xunit](v) : short(v, 12)}`, ticks};
}
// What the lines of a panel are at the point of theirs that is nearest to a position; null where none is shown.
function valuesAt(panel, position) {
  const shown = panel.lines.filter(({line}) => line.style.display !== "none");
  const far = point => Math.abs(panel.x(point[0]) - position.x), off = value => Math.abs(value.y - position.y);
  const points = shown.filter(({holds}) => !holds).flatMap(({steps}) => steps.filter(Boolean));
  const x = points.length ? points.reduce((a, b) => far(b) < far(a) ? b : a)[0] : Math.round(panel.at(position.x));
  const values = shown.flatMap(({name, path, steps, holds}) => {
    const known = steps.filter(p => p && (holds ? p[0] <= x : Math.abs(panel.x(p[0]) - panel.x(x)) < 2)).at(-1);
    if (!known) return [];
    const [, v, low = null, high = null] = known, {text} = panel;
    const band = low === null || high === null ? "" : ` (${text(low)} to ${text(high)})`;
    return [{y: panel.y(v), colour: getComputedStyle(path).stroke, text: `${name}: ${text(v)}${band}`}];
  });
  if (values.length > 1) values.reduce((a, b) => off(b) < off(a) ? b : a).nearest = true;
  return values.length ? {x, values} : null;
}
// A button that switches between the axis as drawn and a logarithmic one.
function addAxisSwitch(figure, panels) {
  const values = panels.flatMap(p => p.lines.flatMap(({steps}) => steps.map(s => s && s[1]))).filter(v => v > 0);
  const low = Math.log10(Math.min(...values)) - 0.05, high = Math.log10(Math.max(...values)) + 0.05, marks = [];
  for (let decade = Math.floor(low); decade <= high; ++decade)
    for (const m of high - low < 2 ? [1, 2, 5] : [1]) marks.push(Number(`${m}e${decade}`));
  const drawn = panels.map(p => ({curves: p.lines.map(l => l.path.getAttribute("d")), ticks: [...p.ticks.childNodes]}));
  const button = make("button", figure, {class: "axis-switch", "aria-pressed": "false"});
  button.append("logarithmic axis");
  figure.prepend(button);
  button.onclick = () => {
    const log = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(log));
    panels.forEach((p, i) => {
      const height = v => (Math.max(Math.log10(v), low) - low) / (high - low); // 0 is at the foot
      p.y = log ? v => p.bottom + height(v) * (p.top - p.bottom) : p.drawn;
      p.lines.forEach(({path, steps}, j) => path.setAttribute("d", !log ? drawn[i].curves[j] : steps.map((s, k) =>
        s ? `${k && steps[k - 1] ? "L" : "M"}${p.x(s[0]).toFixed(2)} ${p.y(s[1]).toFixed(2)}` : "").join("")));
      p.ticks.replaceChildren(...log ? [] : drawn[i].ticks);
      for (const v of log ? marks.filter(m => Math.log10(m) > low && Math.log10(m) < high) : []) {
        make("line", p.ticks, {class: "grid", x1: p.left, x2: p.right, y1: p.y(v), y2: p.y(v)});
        make("text", p.ticks, {class: "small quiet", x: p.left - 6, y: p.y(v) + 4, "text-anchor": "end"})
          .append(short(v, 4));
      }
    });
  };
}
for (const svg of document.querySelectorAll("figure svg")) {
  // Tooltips are shown at once, and under a finger, too: the browser's own would come beside ours.
  const notes = new Map([...svg.querySelectorAll(":scope * > title")].map(t => [t.parentNode, t.textContent]));
  for (const shape of notes.keys()) shape.querySelector("title").remove();
  make("defs", svg).append(svg.querySelector("title"));
  const panels = [...svg.querySelectorAll("[data-plot]")].map(panelOf), hair = make("path", svg, {class: "hair"});
  if (svg.querySelector("[data-log]")) addAxisSwitch(svg.closest("figure"), panels);
  svg.onpointerleave = () => { tip.hidden = true; hair.removeAttribute("d"); };
  svg.onpointermove = svg.onpointerdown = event => {
    svg.onpointerleave();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const panel = panels.find(p => p.left - 4 < at.x && at.x < p.right + 4 && p.top - 4 < at.y && at.y < p.bottom + 4);
    const found = panel && valuesAt(panel, at), note = notes.get(event.target);
    const row = event.target.closest("[data-cells]");
    if (found) {
      const {y} = found.values.find(v => v.nearest) ?? found.values[0];
      hair.setAttribute("d", `M${panel.x(found.x)} ${panel.top}V${panel.bottom}M${panel.left} ${y}H${panel.right}`);
      showTip(event, panel.heading(found.x), found.values);
    } else if (row) {
      const cells = JSON.parse(row.dataset.cells), {columns, x} = row.closest("[data-columns]").dataset;
      const box = event.target.getBBox(), i = Math.floor((at.x - box.x) / box.width * cells.length);
      const cell = cells[i] === null ? "not known" : `${cells[i]} %`;
      showTip(event, note, i in cells ? [{text: `${x} ${columns.split("|")[i]}: ${cell}`}] : []);
    } else if (note) showTip(event, note, []);
  };
  for (const key of svg.querySelectorAll("[data-key]")) {
    svg.setAttribute("role", "group"); // a picture has no buttons
    assign(key, {role: "button", tabindex: "0", "aria-pressed": "true"});
    key.onclick = () => {
      const off = key.classList.toggle("off");
      key.setAttribute("aria-pressed", String(!off));
      for (const line of svg.querySelectorAll("[data-k]"))
        if (line.dataset.k === key.dataset.key) line.style.display = off ? "none" : "";
    };
    key.onkeydown = event => { if (event.key === "Enter" || event.key === " ") event.preventDefault(), key.onclick(); };
  }
}
)js";

} // namespace amp
