"use strict";
// The values at the pointer, or at the place that the arrow keys chose, and the switches of lines.
//
// A figure has a picture for each width, and for each of its views; a switch is for all of them.
// What was found is written to <html> for tests: `data-curves` (figures), last of all `data-ready`.
(() => {
  const root = document.documentElement;
  const { showTip, hideTip } = window.shell;
  const charts = JSON.parse(document.getElementById("data").textContent);
  const figures = [...document.querySelectorAll("[data-curves]")];

  /** The values at the pointer on one picture. */
  const point_at = (picture, shown, sign) => {
    const chart = charts[Number(picture.dataset.picture)];
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({ class: "cursor", y1: chart.top, y2: chart.bottom, visibility: "hidden" })) cursor.setAttribute(key, value);
    picture.prepend(cursor);
    let at = -1;
    const leave = () => {
      at = -1;
      cursor.setAttribute("visibility", "hidden");
      hideTip();
    };
    /** Tells the values at a place, the largest first, beside `y` of the window. */
    const tell = (place, y) => {
      at = place;
      cursor.setAttribute("x1", chart.places[at]);
      cursor.setAttribute("x2", chart.places[at]);
      cursor.setAttribute("visibility", "visible");
      const box = picture.getBoundingClientRect();
      const found = chart.values
        .map((values, n) => ({ n, value: values[at] }))
        .filter(({ n, value }) => value && shown(n))
        .sort((a, b) => b.value[0] - a.value[0]);
      const x = box.left + (chart.places[at] * box.width) / chart.width;
      showTip(x, y ?? box.top + box.height / 2, chart.titles[at], found.map(({ n, value }) => [sign(n), chart.names[n], value[1]]));
    };
    const nearest = (x) => chart.places.reduce((best, place, i) => (Math.abs(place - x) < Math.abs(chart.places[best] - x) ? i : best), 0);
    const point = (event) => {
      if (!chart.places.length) return;
      const box = picture.getBoundingClientRect();
      tell(nearest(((event.clientX - box.left) * chart.width) / box.width), event.clientY);
    };
    picture.addEventListener("pointermove", point);
    picture.addEventListener("pointerdown", point);
    picture.addEventListener("pointerleave", leave);
    picture.addEventListener("blur", leave);
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") leave();
      if (!step || !chart.places.length) return;
      event.preventDefault();
      tell(Math.min(Math.max(at + step, 0), chart.places.length - 1));
    });
  };

  for (const figure of figures) {
    const switches = [...figure.querySelectorAll("[data-switch]")];
    /** The line and the name of a series, in every picture. */
    const marked = (n) => [...figure.querySelectorAll(`[data-series="${n}"], [data-name="${n}"]`)];
    const off = new Set();
    const shown = (n) => !off.has(n);
    /** The sign of a series, as in the legend. */
    const sign = (n) => {
      const key = switches[n]?.querySelector("svg").cloneNode(true);
      key?.setAttribute("class", switches[n].className);
      return key;
    };
    for (const picture of figure.querySelectorAll("[data-picture]")) point_at(picture, shown, sign);

    const choose = (n, on) => () => {
      figure.classList.toggle("chosen", on && shown(n));
      for (const mark of marked(n)) mark.classList.toggle("on", on);
    };
    switches.forEach((button, n) => {
      button.addEventListener("click", () => {
        if (shown(n)) off.add(n);
        else off.delete(n);
        for (const mark of marked(n)) mark.classList.toggle("off", !shown(n));
        button.setAttribute("aria-pressed", String(shown(n)));
        choose(n, true)();
      });
      button.addEventListener("pointerenter", choose(n, true));
      button.addEventListener("pointerleave", choose(n, false));
    });
    for (const name of figure.querySelectorAll("[data-name]")) {
      const n = Number(name.dataset.name);
      name.addEventListener("pointerenter", choose(n, true));
      name.addEventListener("pointerleave", choose(n, false));
    }
  }
  root.dataset.curves = String(figures.length);
  root.dataset.overflow = String(Math.max(0, root.scrollWidth - root.clientWidth));
  root.dataset.ready = "1";
})();
