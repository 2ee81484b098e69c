"use strict";
(() => {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  // of one point, only curves can be drawn
  data.variables = data.variables.filter((one) => one.curves || data.axes.length > 0);
  if (data.variables.length === 0) return;
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
  const MAX_COLOURS = 24, MAX_PANELS = 12, MAX_POINTS = 3000, MAX_ROWS = 500;
  const find = (id) => document.getElementById(id);

  // the last axis of the sweep is the fastest
  let stride = 1;
  for (const axis of [...data.axes].reverse()) {
    axis.stride = stride;
    stride *= axis.texts.length;
  }
  const axisOf = (name) => data.axes.find((axis) => axis.name === name);
  const variableOf = (name) => data.variables.find((variable) => variable.name === name);

  /* Controls. Texts become nodes of text, never markup. */
  function fill(select, options, chosen) {
    select.replaceChildren(...options.map(([value, text]) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = text;
      option.selected = value === chosen;
      return option;
    }));
  }
  const slices = new Map();
  function addSlices() {
    for (const axis of data.axes) {
      const label = document.createElement("label"), select = document.createElement("select");
      const name = document.createElement("span");
      name.textContent = axis.label;
      select.dataset.axis = axis.name;
      fill(select, axis.texts.map((text, i) => [String(i), text]), "0");
      select.addEventListener("change", update);
      label.append(name, select);
      find("slices").append(label);
      slices.set(axis.name, { label, select });
    }
  }
  function listAbscissae(variable) {
    const axes = data.axes.map((axis) => [`axis:${axis.name}`, axis.label]);
    if (!variable.curves) return axes;
    const others = data.variables.filter((one) => one.curves && one !== variable);
    return [...axes, ["round", "round"], ...others.map((one) => [`along:${one.name}`, one.label])];
  }
  /* Keep each choice where it is still possible; no axis is used twice. */
  function settle() {
    const variable = variableOf(find("pick-y").value);
    const abscissae = listAbscissae(variable);
    const kept = abscissae.some(([value]) => value === find("pick-x").value);
    fill(find("pick-x"), abscissae, kept ? find("pick-x").value : (abscissae[0] || [""])[0]);
    const across = find("pick-x").value.replace(/^axis:/, "");
    const free = (most, taken) => [["", "none"], ...data.axes
      .filter((axis) => axis.texts.length <= most && !taken.includes(axis.name))
      .map((axis) => [axis.name, axis.label])];
    fill(find("pick-hue"), free(MAX_COLOURS, [across]), find("pick-hue").value);
    const hue = find("pick-hue").value;
    fill(find("pick-panel"), free(MAX_PANELS, [across, hue]), find("pick-panel").value);
    const drawn = [across, hue, find("pick-panel").value];
    for (const [name, { label }] of slices) label.hidden = drawn.includes(name);
    find("slices").hidden = [...slices.values()].every(({ label }) => label.hidden);
  }

  /* Values of the chosen slices. */
  function halfWidth(kind, std, count) {
    if (kind === "none" || !(count > 1) || std === null) return null;
    return kind === "std" ? std : std / Math.sqrt(count) * (kind === "error" ? 1 : data.quantiles[count]);
  }
  function collect(state) {
    const { variable, xAxis, along, hue, panel } = state;
    const part = xAxis ? variable.ends : variable.curves;
    const records = xAxis ? 1 : data.rounds.length;
    const drawn = [xAxis, hue, panel].filter(Boolean);
    let fixed = 0;
    for (const axis of data.axes) {
      if (!drawn.includes(axis)) fixed += Number(slices.get(axis.name).select.value) * axis.stride;
    }
    const rows = [];
    const count = (axis) => (axis ? axis.texts.length : 1);
    for (let p = 0; p < count(panel); p++) for (let h = 0; h < count(hue); h++) {
      for (let i = 0; i < count(xAxis); i++) for (let r = 0; r < records; r++) {
        const point = fixed + (panel ? p * panel.stride : 0) + (hue ? h * hue.stride : 0)
          + (xAxis ? i * xAxis.stride : 0);
        const place = point * records + r;
        const y = part.mean[place], std = part.std[place];
        const n = typeof part.count === "number" ? part.count : part.count[place];
        let x = along ? along.curves.mean[place] : data.rounds[r];
        if (xAxis) x = state.isNumeric ? xAxis.numbers[i] : xAxis.texts[i];
        const isDrawn = Number.isFinite(y) && (typeof x === "string" || Number.isFinite(x))
          && !(state.logY && y <= 0) && !(state.logX && x <= 0);
        if (!isDrawn) continue;
        const half = halfWidth(state.spread, std, n);
        const low = half === null ? null : y - half;
        rows.push({
          x, y, n, std, r: xAxis ? null : data.rounds[r],
          lo: state.logY && low !== null ? Math.max(low, 0.1 * y) : low,
          hi: half === null ? null : y + half,
          hue: hue ? hue.texts[h] : "", panel: panel ? panel.texts[p] : "", order: r,
        });
      }
    }
    return rows;
  }

  const SPREADS = { std: "mean ± one standard deviation", error: "mean ± one standard error",
    confidence: "95 % confidence interval of the mean (Student's t)" };
  function describeSpread(state, rows) {
    const least = rows.reduce((found, row) => Math.min(found, row.n), Infinity);
    const most = rows.reduce((found, row) => Math.max(found, row.n), 0);
    if (rows.length === 0) return "";
    const trials = `n = ${least === most ? most : `${least} to ${most}`} trials`;
    const kind = SPREADS[state.spread];
    if (!kind || most < 2) return `mean, ${trials}`;
    return `${state.isNumeric ? "shading" : "bars"}: ${kind}, ${trials}`;
  }

  /* Figure. Only fixed names are fields; labels are values and titles. */
  function makeSpec(state, rows) {
    const { hue, panel, isNumeric } = state;
    const type = isNumeric ? "quantitative" : "nominal";
    const scale = (log) => (log ? { type: "log" } : { zero: false, nice: true });
    const x = { field: "x", type, title: state.xLabel,
      ...(isNumeric ? { scale: scale(state.logX) } : { sort: null, axis: { labelAngle: -30 } }) };
    const yScale = scale(state.logY);
    const y = { field: "y", type: "quantitative", title: state.variable.label, scale: yScale };
    const shared = hue ? { color: { field: "hue", type: "nominal", title: hue.label,
      scale: { domain: hue.texts, range: COLOURS } } } : { color: { value: COLOURS[0] } };
    if (!isNumeric && hue) {
      shared.xOffset = { field: "hue", type: "nominal", scale: { domain: hue.texts } };
    }
    const spread = { x, y: { ...y, field: "lo" }, y2: { field: "hi" }, ...shared };
    const known = { filter: { field: "lo", valid: true } };
    const layer = [isNumeric
      ? { transform: [known], mark: { type: "area", opacity: 0.18 }, encoding: spread }
      : { transform: [known], mark: { type: "rule" }, encoding: spread }];
    const order = { field: "order", type: "quantitative" };
    if (isNumeric) {
      const line = { type: "line", strokeWidth: 2 };
      layer.push({ mark: line, encoding: { x, y, ...shared, ...(state.xAxis ? {} : { order }) } });
    }
    const step = Math.ceil(rows.length / MAX_POINTS);
    const dots = rows.filter((_, i) => i % step === 0);
    const dot = { type: "point", filled: true, size: 45, opacity: 1 };
    const shape = hue ? { shape: { field: "hue", type: "nominal", title: hue.label,
      scale: { domain: hue.texts } } } : {};
    const isText = (field) => rows.length > 0 && typeof rows[0][field] === "string";
    const tooltip = listColumns(state).map(([name, field]) => ({ field, title: name,
      ...(isText(field) ? { type: "nominal" } : { type: "quantitative", format: ".5~g" }) }));
    layer.push({ ...(step > 1 && !panel ? { data: { values: dots } } : {}), mark: dot,
      encoding: { x, y, ...shared, ...shape, tooltip } });
    const isNarrow = find("chart").clientWidth < 700;
    const room = Math.max(240, find("chart").clientWidth - (hue && !isNarrow ? 290 : 110));
    const config = { background: "white", axis: { labelFontSize: 12, titleFontSize: 13 },
      legend: { symbolOpacity: 1, labelFontSize: 12, titleFontSize: 12, labelLimit: 180,
        titleLimit: 180, ...(isNarrow ? { orient: "bottom", columns: 1 } : {}) } };
    const title = { text: describeSpread(state, rows), fontSize: 11, fontWeight: "normal" };
    const common = { data: { values: rows }, config, title };
    if (!panel) return { ...common, width: Math.min(room, 900), height: 380, layer };
    const columns = Math.max(1, Math.min(3, Math.floor(room / 260)));
    const width = Math.min(420, Math.floor(room / columns) - 50);
    return { ...common, columns, spec: { width, height: 240, layer },
      facet: { field: "panel", type: "nominal", title: panel.label, sort: null } };
  }

  /* Table, whose columns are also those of tooltips. */
  const format = (value) => (typeof value === "number" ? String(Number(value.toPrecision(5)))
    : value === null ? "" : value);
  function listColumns(state) {
    const known = [state.panel && [state.panel.label, "panel"], state.hue && [state.hue.label, "hue"],
      state.along && ["round", "r"], [state.xLabel, "x"], [state.variable.label, "y"],
      state.spread !== "none" && ["low", "lo"], state.spread !== "none" && ["high", "hi"],
      ["standard deviation", "std"], ["trials", "n"]];
    return known.filter(Boolean);
  }
  function fillTable(state, rows) {
    const columns = listColumns(state);
    const makeRow = (tag, texts) => {
      const row = document.createElement("tr");
      row.append(...texts.map((text) => {
        const cell = document.createElement(tag);
        cell.textContent = text;
        return cell;
      }));
      return row;
    };
    find("shown-head").replaceChildren(makeRow("th", columns.map(([title]) => title)));
    find("shown-body").replaceChildren(...rows.slice(0, MAX_ROWS)
      .map((row) => makeRow("td", columns.map(([, key]) => format(row[key])))));
    const hidden = rows.length - MAX_ROWS;
    find("shown-note").textContent = rows.length === 0 ? "There are no values for this choice."
      : `${rows.length} values${hidden > 0 ? `; ${hidden} of them not shown` : ""}`;
  }

  let shown = null, number = 0;
  function readState() {
    const across = find("pick-x").value, variable = variableOf(find("pick-y").value);
    const xAxis = across.startsWith("axis:") ? axisOf(across.slice(5)) : null;
    const along = across.startsWith("along:") ? variableOf(across.slice(6)) : null;
    const hue = axisOf(find("pick-hue").value), panel = axisOf(find("pick-panel").value);
    return { variable, xAxis, along, hue, panel, spread: find("pick-spread").value,
      isNumeric: !xAxis || xAxis.numbers !== null, logX: find("log-x").checked,
      logY: find("log-y").checked, xLabel: (xAxis || along || { label: "round" }).label };
  }
  async function update() {
    settle();
    const state = readState(), mine = ++number;
    state.logX = state.logX && state.isNumeric;
    const rows = find("pick-x").value === "" ? [] : collect(state);
    fillTable(state, rows);
    const renderer = rows.length > MAX_POINTS ? "canvas" : "svg";
    const result = await vegaEmbed(find("chart"), makeSpec(state, rows),
      { mode: "vega-lite", ast: true, renderer, downloadFileName: "figure",
        actions: { export: true, source: false, compiled: false, editor: false } });
    if (mine !== number) {
      result.finalize();
      return;
    }
    if (shown) shown.finalize();
    shown = result;
    find("explorer").dataset.drawn = String(number);
  }

  fill(find("pick-y"), data.variables.map((one) => [one.name, one.label]), data.start.y);
  addSlices();
  const start = data.start.x === "round" ? "round" : `axis:${data.start.x}`;
  for (const [id, value] of [["pick-x", start], ["pick-hue", data.start.hue],
    ["pick-panel", data.start.panel]]) fill(find(id), [[value, ""]], value);
  for (const id of ["pick-y", "pick-x", "pick-hue", "pick-panel", "pick-spread", "log-x", "log-y"]) {
    find(id).addEventListener("change", update);
  }
  let timer = 0;
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(update, 300);
  });
  find("explorer").hidden = false;
  for (const one of document.querySelectorAll("[data-explorer-link]")) one.hidden = false;
  update();
})();
