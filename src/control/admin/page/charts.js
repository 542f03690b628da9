// Counts as they were in the last five minutes.

import { element, number, setText } from "./text.js";

const WINDOW_MS = 300_000;
const WINDOW_LEAST_MS = 60_000;
const WIDTH = 300;
const HEIGHT = 48;
const SVG = "http://www.w3.org/2000/svg";

/** What is shown, and how it comes out of two answers of `api/info`. */
const CHARTS = [
  ["Sessions", (now) => now.sessions, (now) => `room for ${number(now.session_slots)}`],
  ["Locks held", (now) => now.locks],
  ["Waiters", (now) => now.waiters],
  ["Grants a second", rate((totals) => totals.grants)],
  ["Heartbeats a second", rate((totals) => totals.heartbeats)],
  ["Expiries a second", rate((totals) => totals.releases.expired)],
];

function rate(count) {
  return (now, before) => {
    const seconds = (now.uptime_ms - before.uptime_ms) / 1000;
    return seconds > 0 ? (count(now.totals) - count(before.totals)) / seconds : undefined;
  };
}

class Chart {
  constructor(label, read, note) {
    Object.assign(this, { read, note, points: [] });
    this.value = element("strong", {}, "–");
    this.remark = element("small");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("aria-hidden", "true");
    [this.area, this.line] = ["polygon", "polyline"].map((shape) =>
      this.svg.appendChild(document.createElementNS(SVG, shape)),
    );
    this.tile = element(
      "div",
      { class: "chart", role: "group", "aria-label": label },
      element("span", {}, label),
      element("div", {}, this.value, this.remark),
      this.svg,
    );
  }

  add(now, before) {
    const value = this.read(now, before);
    if (value === undefined) return;
    this.points.push({ at: now.uptime_ms, value });
    while (this.points[0].at < now.uptime_ms - WINDOW_MS) this.points.shift();
    const most = Math.max(...this.points.map((point) => point.value));
    setText(this.value, number(value));
    setText(this.remark, this.note ? this.note(now) : `most ${number(most)}`);
    this.draw(now.uptime_ms, most);
  }

  draw(now, most) {
    const span = Math.max(now - this.points[0].at, WINDOW_LEAST_MS);
    const x = (at) => (WIDTH * (1 - (now - at) / span)).toFixed(1);
    const y = (value) => (HEIGHT - 1 - (HEIGHT - 3) * (value / Math.max(most, 1))).toFixed(1);
    const points = this.points.map((point) => `${x(point.at)},${y(point.value)}`);
    this.line.setAttribute("points", points.join(" "));
    const [from, to] = [x(this.points[0].at), x(now)];
    this.area.setAttribute("points", `${from},${HEIGHT} ${points.join(" ")} ${to},${HEIGHT}`);
  }
}

/** All charts, in this section of the page. */
export class Charts {
  constructor(section) {
    this.charts = CHARTS.map((chart) => new Chart(...chart));
    section.append(...this.charts.map((chart) => chart.tile));
  }

  /** Goes on with one more answer of `api/info`. */
  add(info) {
    // A server that was started again counts from the beginning.
    if (this.last && info.uptime_ms < this.last.uptime_ms) {
      this.last = undefined;
      for (const chart of this.charts) chart.points = [];
    }
    for (const chart of this.charts) chart.add(info, this.last ?? info);
    this.last = info;
  }
}
