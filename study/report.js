"use strict";
// Draws the panels described by the JSON in #data as SVG, with a crosshair and a legend that switches.

const NS = "http://www.w3.org/2000/svg";
const MARGIN = { left: 46, right: 20, top: 8, bottom: 34 };
const HEIGHT = 230;
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const ink = (colour) => (dark.matches && data.dark[colour]) || colour;
const hidden = new Set(); // labels switched off in the legend

function svg(name, attributes, parent) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}

function html(name, text, parent, className) {
  const element = document.createElement(name);
  element.textContent = text;
  if (className) element.className = className;
  parent?.append(element);
  return element;
}

function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const ticks = [];
  for (let tick = Math.ceil(low / step); tick * step <= high + step * 1e-6; tick++) ticks.push(tick * step);
  return ticks;
}

function short(number) {
  const size = Math.abs(number);
  const shown = (value) => String(+value.toPrecision(4));
  return size >= 1e6 ? shown(number / 1e6) + "M" : size >= 1e3 ? shown(number / 1e3) + "k" : shown(number);
}

const score = (value) => (Math.abs(value) >= 10 ? value.toFixed(0) : +value.toPrecision(3));

// The value of a curve at a step, linear between its points; null outside them.
function at(steps, values, step) {
  let after = steps.findIndex((here) => here >= step);
  if (after === -1 || (after === 0 && steps[0] > step)) return null;
  if (steps[after] === step) return values[after];
  const share = (step - steps[after - 1]) / (steps[after] - steps[after - 1]);
  const [from, to] = [values[after - 1], values[after]];
  return from === null || to === null ? null : from + share * (to - from);
}

class Panel {
  constructor(panel, parent) {
    this.panel = panel;
    this.figure = html("figure", "", parent, "panel");
    html("span", panel.unit, html("figcaption", `${panel.title} `, this.figure), "unit");
    this.picture = svg("svg", { height: HEIGHT, role: "img", "aria-label": `${panel.title}: ${panel.unit}` }, this.figure);
    this.tip = html("div", "", this.figure, "tip");
    this.tip.hidden = true;
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerdown", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.leave());
    new ResizeObserver(() => this.draw()).observe(this.figure);
  }

  shown() {
    return this.panel.lines.filter((line) => !hidden.has(line.label));
  }

  draw() {
    const width = this.figure.clientWidth;
    if (!width || this.figure.closest("details:not([open])")) return;
    this.leave();
    this.picture.replaceChildren();
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute("width", width);
    this.scale(width);
    this.axes(width);
    for (const line of this.shown()) this.curve(line);
    this.cross = svg("line", { class: "cross", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" }, this.picture);
  }

  scale(width) {
    const lines = this.panel.lines; // hidden ones too: the axes stay where they are
    const values = lines.flatMap((line) => [...line.values, ...(line.low ?? []), ...(line.high ?? [])]);
    const known = values.filter((value) => value !== null);
    let [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
    low = Math.min(low, 0);
    high = high > low ? high + 0.03 * (high - low) : low + 1;
    const last = Math.max(1, ...lines.flatMap((line) => line.steps));
    [this.low, this.high, this.last] = [low, high, last];
    this.x = (step) => MARGIN.left + (step / last) * (width - MARGIN.left - MARGIN.right);
    this.y = (value) => HEIGHT - MARGIN.bottom - ((value - low) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  axes(width) {
    for (const tick of niceTicks(this.low, this.high, 6)) {
      svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: this.y(tick), y2: this.y(tick) }, this.picture);
      svg("text", { x: MARGIN.left - 5, y: this.y(tick) + 4, "text-anchor": "end" }, this.picture).textContent = short(tick);
    }
    for (const tick of niceTicks(0, this.last, 5)) {
      const text = svg("text", { x: this.x(tick), y: HEIGHT - MARGIN.bottom + 15, "text-anchor": "middle" }, this.picture);
      text.textContent = short(tick);
    }
    const middle = (MARGIN.left + width - MARGIN.right) / 2;
    svg("text", { x: middle, y: HEIGHT - 4, "text-anchor": "middle" }, this.picture).textContent = this.panel.axis ?? "environment steps";
  }

  curve(line) {
    const point = (values) => (step, place) => `${this.x(step).toFixed(1)},${this.y(values[place]).toFixed(1)}`;
    const banded = line.low ? line.steps.map((_, place) => place).filter((place) => line.low[place] !== null) : [];
    if (banded.length) {
      const up = banded.map((place) => point(line.high)(line.steps[place], place));
      const down = banded.map((place) => point(line.low)(line.steps[place], place)).reverse();
      svg("polygon", { points: [...up, ...down].join(" "), fill: ink(line.colour), "fill-opacity": 0.18 }, this.picture);
    }
    const fewer = (place) => line.fewer?.[place];
    // A segment is dotted where either end lacks a run; neighbours of one kind are one polyline.
    let [start, dotted] = [0, false];
    const path = (end) => {
      const points = line.steps.slice(start, end + 1).map((step, place) => point(line.values)(step, start + place));
      const dash = dotted ? data.fewer : line.dash;
      const style = { fill: "none", stroke: ink(line.colour), "stroke-width": line.width, class: "curve" };
      if (dash.length) style["stroke-dasharray"] = dash.map((length) => length * line.width).join(" ");
      svg("polyline", { ...style, points: points.join(" "), "data-label": line.label }, this.picture);
    };
    line.steps.forEach((_, place) => {
      const kind = Boolean(fewer(place - 1) || fewer(place)); // of the segment that ends here
      if (place > 1 && kind !== dotted) {
        path(place - 1);
        start = place - 1;
      }
      if (place > 0) dotted = kind;
    });
    if (line.steps.length) path(line.steps.length - 1);
    if (line.steps.length === 1) {
      svg("circle", { cx: this.x(line.steps[0]), cy: this.y(line.values[0]), r: 3, fill: ink(line.colour) }, this.picture);
    }
    for (const end of line.ends ?? []) this.end(end, line);
  }

  end({ step, value, seed }, line) {
    const [x, y] = [this.x(step), this.y(value)];
    const cross = `M${x - 4},${y - 4}l8,8m0,-8l-8,8`;
    const mark = svg("path", { d: cross, stroke: ink(line.colour), "stroke-width": 1.6, class: "end" }, this.picture);
    svg("title", {}, mark).textContent = `seed ${seed} is unfinished: ${short(step)} steps`;
  }

  point(event) {
    const lines = this.shown().filter((line) => line.steps.length);
    if (!lines.length) return;
    const box = this.picture.getBoundingClientRect();
    const wanted = ((event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right)) * this.last;
    const steps = lines.flatMap((line) => line.steps);
    const step = steps.reduce((best, here) => (Math.abs(here - wanted) < Math.abs(best - wanted) ? here : best));
    this.cross.setAttribute("x1", this.x(step));
    this.cross.setAttribute("x2", this.x(step));
    this.cross.setAttribute("visibility", "visible");
    const { axis } = this.panel; // of all panels but those over steps
    const shown = (value) => (axis ? value.toFixed(2) : score(value));
    this.tip.replaceChildren(html("strong", axis ? `${axis} = ${short(step)}` : `${short(step)} steps`));
    for (const line of lines) {
      const value = at(line.steps, line.values, step);
      if (value === null) continue;
      const row = html("div", "", this.tip);
      html("span", "", row, "swatch").style.background = ink(line.colour);
      const [low, high] = line.low ? [at(line.steps, line.low, step), at(line.steps, line.high, step)] : [null, null];
      const interval = low === null || high === null ? "" : ` [${shown(low)}, ${shown(high)}]`;
      row.append(`${line.label}: ${shown(value)}${interval}`);
    }
    this.tip.hidden = false;
    const left = event.clientX - box.left + 14;
    const room = this.figure.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(left, room))}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.cross?.setAttribute("visibility", "hidden");
  }
}

const places = [...document.querySelectorAll(".panels")];
const panels = places.flatMap((place, index) => data.panels[index].map((panel) => new Panel(panel, place)));

for (const { label, colour, dash } of data.legend) {
  const button = html("button", "", document.getElementById("legend"));
  const sample = svg("svg", { width: 28, height: 10, "aria-hidden": "true" }, button);
  const stroke = { x1: 0, x2: 28, y1: 5, y2: 5, stroke: ink(colour), "stroke-width": 2.5 };
  if (dash.length) stroke["stroke-dasharray"] = dash.map((length) => length * 2).join(" ");
  const drawn = svg("line", stroke, sample);
  dark.addEventListener("change", () => drawn.setAttribute("stroke", ink(colour)));
  button.append(label);
  button.type = "button";
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    hidden.has(label) ? hidden.delete(label) : hidden.add(label);
    button.setAttribute("aria-pressed", String(!hidden.has(label)));
    panels.forEach((panel) => panel.draw());
  });
}

dark.addEventListener("change", () => panels.forEach((panel) => panel.draw()));
