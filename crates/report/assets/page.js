"use strict";
// Draws the charts of the page from the JSON in #data.
//
//   lines     streams -> figure, a line a policy, the device's limit dashed
//   requests  time -> file offset, a bar a request; panels of a set share axes and zoom
//   windows   the same, a bar a readahead window, its wasted share on top
//
// What was drawn is written to the document for tests: `data-drawn` on every figure (points or bars
// within the plot), with `#check` in the address also `data-inked` (those whose pixel has a colour
// of the chart), on <html> `data-charts` (charts drawn), `data-overflow` (pixels too wide, of
// the document and of its folded tables) and,
// last of all, `data-ready`.
(() => {
  const root = document.documentElement;
  const { showTip, hideTip } = window.shell;
  const data = JSON.parse(document.getElementById("data").textContent);
  const checking = location.hash === "#check";
  /** Of a chart that is folded away, until it is opened. */
  const UNSEEN_WIDTH = 600;
  const KINDS = ["demand", "readahead", "write", "read"];
  /** The colours of causes by their number, and in which order they are drawn: those that read nothing ahead first. */
  const CAUSES = data.causes;
  const CAUSES_DRAWN = [0, 6, 2, 5, 3, 1, 4];
  const COLOURS = 8;
  const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", "DejaVu Sans", Arial, sans-serif';

  // --- colours and shapes ------------------------------------------------------------------------

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  /** The present value of a colour of the style sheet, as rgb(). */
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  // Where the page is narrow a table's head is hidden, and stands beside each figure.
  for (const table of document.querySelectorAll("table.stacked")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, at) => { if (cell.tagName === "TD" && heads[at]) cell.dataset.head = heads[at]; });
    }
  }

  const policyColour = (policy) => colour(`p${policy % COLOURS}`);
  /** Lines beyond the eighth repeat a colour: they are dashed. */
  const policyDash = (policy) => (policy < COLOURS ? [] : [6, 3 + 2 * Math.floor(policy / COLOURS)]);

  /** Corners of a policy's mark around (0, 0), or none for a disc. */
  const shape = (policy, r) => [
    [],
    [[-r, -r], [r, -r], [r, r], [-r, r]].map(([x, y]) => [x * 0.88, y * 0.88]),
    [[0, -1.25 * r], [1.15 * r, 0.85 * r], [-1.15 * r, 0.85 * r]],
    [[0, -1.3 * r], [1.3 * r, 0], [0, 1.3 * r], [-1.3 * r, 0]],
    [[0, 1.25 * r], [1.15 * r, -0.85 * r], [-1.15 * r, -0.85 * r]],
  ][policy % 5];

  const svg = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  for (const mark of document.querySelectorAll(".mark[data-policy]")) {
    const policy = Number(mark.dataset.policy);
    const paint = `var(--p${policy % COLOURS})`;
    const picture = svg("svg", { viewBox: "-11 -6 22 12", width: 22, height: 12, "aria-hidden": "true" });
    picture.append(svg("line", { x1: -11, x2: 11, y1: 0, y2: 0, style: `stroke:${paint}`, "stroke-width": 2, "stroke-dasharray": policyDash(policy).join(" ") }));
    const corners = shape(policy, 4.2);
    picture.append(corners.length
      ? svg("polygon", { points: corners.join(" "), style: `fill:${paint}` })
      : svg("circle", { r: 4.4, style: `fill:${paint}` }));
    mark.append(picture);
  }

  // --- figures -----------------------------------------------------------------------------------

  const number = (value) => {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
    if (size >= 99.95) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(3)));
  };
  /** Largest factor of `steps` that leaves `max` at 1 or more. */
  const unitFor = (max, steps) => steps.reduce((best, step) => (max >= step[0] ? step : best), steps[0]);
  const timeUnit = (us) => unitFor(us, [[0, 1, "\u00b5s"], [2e3, 1e3, "ms"], [60e6, 1e6, "s"]]);
  const sizeUnit = (bytes) => unitFor(bytes, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].map((name, i) => [i ? 2 * 1024 ** i : 0, 1024 ** i, name]));
  const inUnit = (value, [, factor, name]) => `${number(value / factor)} ${name}`;
  const bytesText = (bytes) => inUnit(bytes, unitFor(bytes, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].map((name, i) => [i ? 1024 ** i : 0, 1024 ** i, name])));

  const policyMark = (policy) => document.querySelector(`.mark[data-policy="${policy}"]`)?.cloneNode(true);
  const block = (paint) => {
    const mark = document.createElement("i");
    mark.className = "kind";
    mark.style.background = paint;
    return mark;
  };

  // --- shared by all charts ----------------------------------------------------------------------

  const widest = (u, values) => {
    u.ctx.save();
    u.ctx.font = FONT;
    const width = Math.max(0, ...(values ?? []).map((text) => u.ctx.measureText(text ?? "").width));
    u.ctx.restore();
    return Math.ceil(width);
  };
  const axis = (more) => ({
    stroke: colour("ink-2"),
    font: FONT,
    labelFont: FONT,
    labelSize: 18,
    labelGap: 2,
    gap: 6,
    size: 26,
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { stroke: colour("rule"), width: 1, size: 4 },
    ...more,
  });
  const sideAxis = (more) => axis({
    size: (u, values) => widest(u, values) + 14,
    ticks: { show: false },
    ...more,
  });

  /** How many of the marks' middles have one of the colours: the charts' own proof of ink. */
  const inked = (u, marks, paints) => {
    const wanted = paints.map((paint) => paint.match(/[\d.]+/g).slice(0, 3).map(Number));
    const { width, height } = u.ctx.canvas;
    const pixels = u.ctx.getImageData(0, 0, width, height).data;
    return marks.filter(([x, y]) => {
      const at = 4 * (Math.min(height - 1, Math.floor(y)) * width + Math.min(width - 1, Math.floor(x)));
      return pixels[at + 3] > 0 && wanted.some((rgb) => rgb.every((v, i) => Math.abs(v - pixels[at + i]) < 48));
    }).length;
  };
  const report = (figure, u, marks, paints) => {
    figure.dataset.drawn = String(marks.length);
    if (checking) figure.dataset.inked = String(inked(u, marks, paints));
  };
  const clipped = (u, draw) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    // Marks on the edge are shown whole.
    const room = 8 * devicePixelRatio;
    ctx.rect(bbox.left - room, bbox.top - room, bbox.width + 2 * room, bbox.height + 2 * room);
    ctx.clip();
    draw(ctx);
    ctx.restore();
  };

  // --- lines -------------------------------------------------------------------------------------

  /** Ticks of a log axis: powers of ten, with 2 and 5 between few of them, fewer of many. */
  const decades = (_u, _axis, min, max) => {
    const [low, high] = [Math.floor(Math.log10(min) + 1e-9), Math.ceil(Math.log10(max) - 1e-9)];
    const splits = [];
    for (let power = low; power <= high; power += Math.ceil((high - low) / 6) || 1) {
      for (const digit of high - low <= 2 ? [1, 2, 5] : [1]) splits.push(Number(`${digit}e${power}`));
    }
    return splits.filter((v) => v >= min * 0.999 && v <= max * 1.001);
  };

  const lines = (chart, figure, place) => {
    const box = figure.querySelector("input.log");
    const all = [...chart.series.flatMap((s) => [...s.y, ...s.spread.flatMap((v) => v ?? [])]), ...(chart.limit ?? [])];
    const positive = all.filter((v) => v !== null && v > 0);
    const top = Math.max(0, ...positive);
    const bottom = Math.min(top, ...positive);
    if (box && !box.dataset.set) {
      box.checked = top / bottom > 200;
      box.dataset.set = "1";
      box.addEventListener("change", () => rebuild(chart.id));
      box.parentElement.hidden = positive.length === 0;
    }
    const log = Boolean(box?.checked) && positive.length > 0;
    // A scale of plain size: beyond it, powers of 1000 go into the unit.
    const power = top >= 1e6 || (top > 0 && top < 1e-3) ? 3 * Math.floor(Math.log10(top) / 3) : 0;
    const factor = 10 ** power;
    const unit = power ? `\u00d7 10^${power} ${chart.unit}` : chart.unit;
    figure.querySelector(".unit").textContent = unit;
    // Twelve decades are more than an eye can use.
    const least = Math.max(bottom, top / 1e12);
    const scaled = (v) => (v === null || v === undefined || (log && v <= 0) ? null : (log ? Math.max(v, least) : v) / factor);

    const { x } = chart;
    const wide = x.length > 1 && x[0] > 0 && x[x.length - 1] / x[0] > 24;
    const margin = x.length > 1 ? 0.04 * (x[x.length - 1] - x[0]) : 1;
    const xRange = wide ? [x[0] / 1.25, x[x.length - 1] * 1.25] : [x[0] - margin, x[x.length - 1] + margin];
    const yRange = () => {
      if (log) return [10 ** Math.floor(Math.log10(least / factor) + 1e-9), 10 ** Math.ceil(Math.log10(top / factor) - 1e-9) * (top === least ? 10 : 1)];
      const low = Math.min(0, ...all.filter((v) => v !== null)) / factor;
      return [low, top > 0 ? (top / factor) * 1.08 : 1];
    };
    const rows = [
      ...(chart.limit ? [{ limit: true, y: chart.limit.map(scaled), paint: colour("limit"), dash: [6, 5] }] : []),
      ...chart.series.map((s) => ({ policy: s.policy, y: s.y.map(scaled), spread: s.spread, paint: policyColour(s.policy), dash: policyDash(s.policy) })),
    ];

    // With one number of streams there are no lines: the policies stand side by side on stems.
    const alone = x.length === 1;
    const drawMarks = (u) => clipped(u, (ctx) => {
      const marks = [];
      const r = 4.2 * devicePixelRatio;
      const { top: above, width, height } = u.bbox;
      const step = Math.min(56 * devicePixelRatio, width / (chart.series.length + 1));
      rows.forEach((row, k) => {
        ctx.strokeStyle = ctx.fillStyle = row.paint;
        const place = k - (rows.length - chart.series.length) - (chart.series.length - 1) / 2;
        row.y.forEach((y, i) => {
          if (y === null) return;
          const shift = alone && !row.limit ? Math.round(place * step) : 0;
          const [cx, cy] = [u.valToPos(x[i], "x", true) + shift, u.valToPos(y, "y", true)];
          if (row.limit) {
            // A line with gaps may end on either side of a point: here it has one piece for sure.
            ctx.lineWidth = 1.5 * devicePixelRatio;
            ctx.setLineDash(alone ? row.dash.map((d) => d * devicePixelRatio) : []);
            const reach = alone ? width / 2 : 3 * devicePixelRatio;
            for (const side of [-reach, reach]) {
              ctx.beginPath();
              ctx.moveTo(cx, cy);
              ctx.lineTo(cx + side, cy);
              ctx.stroke();
            }
            ctx.setLineDash([]);
          } else {
            if (alone) {
              const floor = Math.min(above + height, log ? Infinity : u.valToPos(0, "y", true));
              ctx.globalAlpha = 0.28;
              ctx.fillRect(cx - 2 * r, Math.min(cy, floor), 4 * r, Math.abs(floor - cy));
              ctx.globalAlpha = 1;
            }
            const [low, high] = (row.spread[i] ?? []).map(scaled);
            if (low !== undefined && low !== null && high !== null) {
              ctx.lineWidth = 1.5 * devicePixelRatio;
              const [yl, yh] = [u.valToPos(low, "y", true), u.valToPos(high, "y", true)];
              ctx.beginPath();
              ctx.moveTo(cx, yl); ctx.lineTo(cx, yh);
              for (const end of [yl, yh]) { ctx.moveTo(cx - r, end); ctx.lineTo(cx + r, end); }
              ctx.stroke();
            }
            ctx.beginPath();
            const corners = shape(row.policy, r);
            if (corners.length) corners.forEach(([dx, dy]) => ctx.lineTo(cx + dx, cy + dy));
            else ctx.arc(cx, cy, r, 0, 2 * Math.PI);
            ctx.closePath();
            ctx.fill();
          }
          marks.push([cx, cy]);
        });
      });
      report(figure, u, marks, rows.map((row) => row.paint));
    });

    const hover = (u) => {
      const { left, top: y, idx } = u.cursor;
      if (left === undefined || left < 0 || idx === null || idx === undefined) return hideTip();
      const box = u.over.getBoundingClientRect();
      const found = rows.filter((row) => row.y[idx] !== null).sort((a, b) => b.y[idx] - a.y[idx]);
      const source = (row) => (row.limit ? chart.limit[idx] : chart.series.find((s) => s.policy === row.policy).y[idx]);
      showTip(box.left + left, box.top + y, `${x[idx].toLocaleString("en-US")} ${x[idx] === 1 ? "stream" : "streams"}`, found.map((row) => [
        row.limit ? block(row.paint) : policyMark(row.policy),
        row.limit ? "device limit" : data.policies[row.policy],
        `${number(source(row))} ${chart.unit}`,
      ]));
    };

    return new uPlot({
      width: place.clientWidth || UNSEEN_WIDTH,
      height: 300,
      padding: [12, 12, 0, 4],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: {
        x: { time: false, distr: wide ? 3 : 1, range: () => xRange },
        y: { distr: log ? 3 : 1, range: yRange },
      },
      axes: [
        axis({
          label: "streams read at the same time",
          grid: { show: false },
          // A tick for every number of streams that ran, as far as there is room.
          splits: (u) => {
            const kept = [];
            let last = -Infinity;
            for (const value of x) {
              const at = u.valToPos(value, "x");
              if (!(at - last < 12 + 7 * String(value).length)) { kept.push(value); last = at; }
            }
            return kept.length ? kept : [x[0]];
          },
          filter: (_u, splits) => splits,
          values: (_u, splits) => splits.map((v) => v.toLocaleString("en-US")),
        }),
        sideAxis({
          ...(log ? { splits: decades, filter: (_u, splits) => splits } : {}),
          values: (_u, splits) => splits.map((v) => (v === null ? "" : number(v))),
        }),
      ],
      series: [{}, ...rows.map((row) => ({ stroke: row.paint, width: row.limit ? 1.5 : 2, dash: row.dash, spanGaps: true, points: { show: false } }))],
      hooks: { draw: [drawMarks], setCursor: [hover] },
    }, [x, ...rows.map((row) => row.y)], place);
  };

  // --- requests and windows ----------------------------------------------------------------------

  /** What panels are zoomed in on, by id: { x: [from, to], y: [from, to] } in their axes' units. */
  const zooms = new Map();
  /** The extent that the panels of a set share. */
  const sets = new Map();
  for (const chart of data.charts.filter((c) => c.type !== "lines")) {
    const set = sets.get(chart.set) ?? { panels: [], end: 0, ends: new Map(), low: Infinity, high: 0 };
    chart.rows = chart.requests ?? chart.windows;
    for (const [, done, offset, bytes] of chart.rows) {
      set.ends.set(chart.policy, Math.max(set.ends.get(chart.policy) ?? 0, done));
      set.end = Math.max(set.end, done);
      set.low = Math.min(set.low, offset);
      set.high = Math.max(set.high, offset + bytes);
    }
    set.panels.push(chart);
    sets.set(chart.set, set);
  }

  const bars = (chart, figure, place) => {
    const set = sets.get(chart.set);
    const owns = [...figure.closest("[data-set]").querySelectorAll("input.own")];
    const own = owns[0];
    for (const box of owns.filter((box) => !box.dataset.set)) {
      box.dataset.set = "1";
      box.parentElement.hidden = set.ends.size < 2;
      box.addEventListener("change", () => {
        for (const twin of owns) twin.checked = box.checked;
        set.panels.forEach((panel) => zooms.delete(panel.id));
        set.panels.forEach((panel) => rebuild(panel.id));
      });
    }
    const end = own.checked ? set.ends.get(chart.policy) : set.end;
    const time = timeUnit(end);
    const size = sizeUnit(set.high);
    const full = {
      x: [0, Math.max(end, 1) * 1.01 / time[1]],
      y: [Math.max(0, set.low - 0.03 * (set.high - set.low)) / size[1], Math.max(set.low + 1, set.high + 0.03 * (set.high - set.low)) / size[1]],
    };
    const view = () => zooms.get(chart.id) ?? full;
    const windows = chart.type === "windows";
    const paints = (windows ? CAUSES : KINDS).map(colour);
    const wastedPaint = colour("wasted");
    let drawn = [];

    const drawBars = (u) => clipped(u, (ctx) => {
      const { left, top, width, height } = u.bbox;
      ctx.beginPath();
      ctx.rect(left, top, width, height);
      ctx.clip();
      const line = Math.max(1, Math.round(devicePixelRatio));
      const least = (windows ? 3 : 2) * line;
      const marks = [];
      drawn = [];
      // Demand last: a wait is never hidden.
      for (const kind of windows ? CAUSES_DRAWN : [3, 1, 2, 0]) {
        chart.rows.forEach(([at, done, offset, bytes, of, wasted], i) => {
          if (of !== kind) return;
          const x0 = Math.floor(u.valToPos(at / time[1], "x", true));
          const x1 = Math.round(u.valToPos(done / time[1], "x", true));
          const y0 = Math.floor(u.valToPos((offset + bytes) / size[1], "y", true));
          const y1 = Math.round(u.valToPos(offset / size[1], "y", true));
          // A line of the ground between windows that touch.
          const [w, h] = [Math.max(least, x1 - x0), Math.max(least, y1 - y0 - (windows ? line : 0))];
          if (x0 + w < left || x0 > left + width || y0 + h < top || y0 > top + height) return;
          ctx.fillStyle = paints[kind];
          ctx.fillRect(x0, y0, w, h);
          if (wasted > 0) {
            ctx.fillStyle = wastedPaint;
            ctx.fillRect(x0, y0, w, Math.min(h, Math.max(line, Math.round((h * wasted) / bytes))));
          }
          drawn.push([x0, y0, w, h, i]);
          const inside = (v, lowest, extent) => Math.min(Math.max(v, lowest), lowest + extent - 1);
          marks.push([inside(x0 + w / 2, left, width), inside(y0 + h / 2, top, height)]);
        });
      }
      report(figure, u, marks, [...paints, wastedPaint]);
    });

    const tellRequest = ([at, done, offset, bytes, kind]) => [KINDS[kind], [
      [null, "offset", bytesText(offset)],
      [null, "size", bytesText(bytes)],
      [null, "submitted at", inUnit(at, timeUnit(at))],
      [null, "took", inUnit(done - at, timeUnit(done - at))],
    ]];
    const tellWindow = ([at, last, offset, bytes, cause, wasted, used, late, unread, fresh, tail, failed, handle, stream]) => [CAUSES[cause], [
      stream === undefined ? [null, "handle", String(handle)] : [null, "stream", String(stream)],
      [null, "offset", bytesText(offset)],
      [null, "size", bytesText(bytes)],
      [null, "tail", bytesText(tail)],
      [null, "fresh", bytesText(fresh)],
      [null, "used", bytesText(used)],
      [null, "late", bytesText(late)],
      [null, "wasted", bytesText(wasted)],
      ...(failed ? [[null, "failed", bytesText(failed)]] : []),
      [null, "unread", bytesText(unread)],
      [null, "opened at", inUnit(at, timeUnit(at))],
      [null, "last use after", inUnit(last - at, timeUnit(last - at))],
    ]];

    const hover = (u) => {
      const { left, top } = u.cursor;
      if (left === undefined || left < 0) return hideTip();
      const [px, py] = [u.bbox.left + left * devicePixelRatio, u.bbox.top + top * devicePixelRatio];
      const reach = 4 * devicePixelRatio;
      let found = null;
      let nearest = Infinity;
      for (const [x, y, w, h, i] of drawn) {
        const distance = Math.hypot(Math.max(x - px, 0, px - x - w), Math.max(y - py, 0, py - y - h));
        if (distance <= Math.min(nearest, reach)) { nearest = distance; found = i; }
      }
      if (found === null) return hideTip();
      const box = u.over.getBoundingClientRect();
      const [title, told] = (windows ? tellWindow : tellRequest)(chart.rows[found]);
      showTip(box.left + left, box.top + top, title, told);
    };

    /** Panels on common axes zoom together. */
    const show = (zoom) => {
      for (const { id } of set.panels.filter((panel) => !own.checked || panel.policy === chart.policy)) {
        const plot = plots.get(id);
        if (zoom) zooms.set(id, zoom);
        else zooms.delete(id);
        const { x, y } = zoom ?? plot.full;
        plot.batch(() => {
          plot.setScale("x", { min: x[0], max: x[1] });
          plot.setScale("y", { min: y[0], max: y[1] });
        });
      }
    };
    const zoomed = (u) => {
      const { left, top, width, height } = u.select;
      if (width < 4 && height < 4) return;
      const x = width < 4 ? view().x : [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
      const y = height < 4 ? view().y : [u.posToVal(top + height, "y"), u.posToVal(top, "y")];
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      show({ x, y });
    };

    const u = new uPlot({
      width: place.clientWidth || UNSEEN_WIDTH,
      height: 280,
      padding: [10, 22, 0, 4],
      legend: { show: false },
      cursor: { points: { show: false }, drag: { x: true, y: true, uni: 12, setScale: false } },
      scales: {
        x: { time: false, auto: false, min: view().x[0], max: view().x[1] },
        y: { auto: false, min: view().y[0], max: view().y[1] },
      },
      axes: [
        axis({ label: `time, ${time[2]}`, space: 60, values: (_u, splits) => splits.map(number) }),
        sideAxis({ label: `file offset, ${size[2]}`, values: (_u, splits) => splits.map(number) }),
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [drawBars], setCursor: [hover], setSelect: [zoomed] },
    }, [[full.x[0], full.x[1]], [full.y[0], full.y[1]]], place);
    u.full = full;
    u.over.addEventListener("dblclick", () => show(null));
    return u;
  };

  // --- all of them -------------------------------------------------------------------------------

  const plots = new Map();
  const charts = new Map(data.charts.map((chart) => [chart.id, chart]));
  const rebuild = (id) => {
    const chart = charts.get(id);
    const figure = document.getElementById(id);
    const place = figure.querySelector(".plot");
    plots.get(id)?.destroy();
    plots.delete(id);
    plots.set(id, chart.type === "lines" ? lines(chart, figure, place) : bars(chart, figure, place));
  };
  const rebuildAll = () => {
    hideTip();
    for (const id of charts.keys()) rebuild(id);
  };
  // What is folded away has no width until it is opened.
  if (checking) for (const part of document.querySelectorAll("details.part")) part.open = true;
  rebuildAll();

  const places = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const plot = plots.get(target.parentElement.id);
      const width = Math.floor(contentRect.width);
      if (plot && width > 0 && plot.width !== width) plot.setSize({ width, height: plot.height });
    }
  });
  for (const id of charts.keys()) places.observe(document.getElementById(id).querySelector(".plot"));

  root.addEventListener("recoloured", rebuildAll);

  const settle = () => {
    root.dataset.charts = String(document.querySelectorAll("figure[data-drawn]").length);
    const parts = [...document.querySelectorAll("details.part")];
    const boxes = [root, ...parts.map((part) => part.querySelector(":scope > .scroll")).filter((box) => box)];
    root.dataset.overflow = String(Math.max(...boxes.map((box) => Math.max(0, box.scrollWidth - box.clientWidth))));
    root.dataset.width = String(root.clientWidth);
    root.dataset.scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.ready = "1";
  };
  // uPlot draws in a microtask, the sizes settle in a frame.
  requestAnimationFrame(() => setTimeout(settle, 50));
})();
