
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const EVERY_MS = 1000, KEPT_S = 900;
  const byId = (id) => document.getElementById(id);
  let samples = [];   // {at, rates: Map of policy -> {admitted, denied, would}, age, errors}; at: seconds of the server
  let last = null;    // the status before
  let status = null;
  let paused = false, failed = 0, next = 0;

  /* Elements. Text is only ever set as text: what keys hold is never read as markup. */
  function make(name, fields, ...children) {
    const node = name === "svg" || (fields && fields.svg) ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(fields || {})) {
      if (key !== "svg" && value !== null && value !== undefined) { node.setAttribute(key, value); }
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }
  const draw = (name, fields, ...children) => make(name, { ...fields, svg: true }, ...children);
  function setText(node, text) { if (node.textContent !== text) { node.textContent = text; } }

  /* Numbers. */
  function number(value) {
    if (value === null || value === undefined || !isFinite(value)) { return "\u2013"; }
    const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return value.toLocaleString("en", { maximumFractionDigits: digits });
  }
  function short(value) {
    for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (value >= size) { return +(value / size).toPrecision(3) + letter; }
    }
    return String(+value.toPrecision(3));
  }
  function milliseconds(ms) {
    if (ms === null) { return "\u2013"; }
    return ms < 1000 ? `${number(ms)} ms` : ms < 120000 ? `${number(ms / 1000)} s` : duration(ms / 1000);
  }
  function duration(seconds) {
    const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
    let rest = Math.floor(seconds);
    const parts = [];
    for (const [name, size] of units) {
      if (rest >= size || (size === 1 && parts.length === 0)) {
        parts.push(`${Math.floor(rest / size)} ${name}`);
        rest %= size;
      }
      if (parts.length === 2) { break; }
    }
    return parts.join(" ");
  }
  function period(ns) {
    const s = ns / 1e9;
    return s === 1 ? "a second" : s === 60 ? "a minute" : s === 3600 ? "an hour" : s === 86400 ? "a day" : `every ${s < 1 ? number(s * 1000) + " ms" : duration(s)}`;
  }
  const limitWords = (limit) => `${number(limit.limit)} ${period(limit.period_ns)}` +
    (limit.burst !== limit.limit ? `, bursts of ${number(limit.burst)}` : "") + ` (${limit.algorithm.replace("_", " ")})`;

  /* A sample from two statuses; null where the counters began anew between them. */
  function sample(before, now) {
    const span = (now.uptime_ms - before.uptime_ms) / 1000;
    if (span <= 0) { return null; }
    const old = new Map(before.policies.map((policy) => [policy.name, policy]));
    const rates = new Map();
    const none = { allowed: 0, denied: 0, would_deny: 0 };
    const rate = (one, from) => ({ admitted: Math.max(one.allowed - from.allowed, 0) / span,
      denied: Math.max(one.denied - from.denied, 0) / span, would: Math.max(one.would_deny - from.would_deny, 0) / span });
    for (const policy of now.policies) { rates.set(policy.name, rate(policy, old.get(policy.name) || none)); }
    rates.set("", rate(now, before));   // a request of several policies is one
    return { at: now.uptime_ms / 1000, rates, age: now.fleet_age_ms,
      errors: Math.max(now.sync_errors - before.sync_errors, 0) / span };
  }

  /* A chart: a figure with a title, a legend with the values under the cursor, an SVG, and the figures as a table. */
  class Chart {
    constructor(figure, title, series) {
      this.series = series;
      this.cursor = null;
      const id = figure.id + "-title";
      this.legend = make("p", { class: "legend" });
      this.values = series.map((one, i) => {
        const value = make("b");
        const mark = draw("svg", { "aria-hidden": "true", viewBox: "0 0 28 8" }, draw("line", { class: `line s${i}`, x1: 1, x2: 27, y1: 4, y2: 4 }));
        this.legend.append(make("span", null, mark, one.name + " ", value));
        return value;
      });
      this.when = make("span");
      this.legend.append(this.when);
      this.svg = draw("svg", { role: "img", tabindex: "0", "aria-labelledby": id, "aria-describedby": figure.id + "-words" });
      this.words = make("span", { id: figure.id + "-words", hidden: "" });
      this.table = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title + ", as a table" });
      this.details = make("details", null, make("summary", null, "As a table"), this.table);
      this.details.addEventListener("toggle", () => this.update());
      figure.append(make("h2", { id }, title), this.legend, this.svg, this.words, this.details);
      this.svg.addEventListener("keydown", (event) => this.key(event));
      this.svg.addEventListener("pointermove", (event) => {
        const box = this.svg.getBoundingClientRect();
        this.point((event.clientX - box.left - 52) / Math.max(box.width - 64, 1));
      });
      this.svg.addEventListener("pointerleave", () => { this.cursor = null; this.update(); });
      this.svg.addEventListener("blur", () => { this.cursor = null; this.update(); });
      new ResizeObserver(() => this.update()).observe(this.svg);
    }
    point(part) {
      const [from, to] = span();
      const at = from + part * (to - from);
      const seen = samples.filter((one) => one.at >= from);
      this.cursor = seen.reduce((best, one) => !best || Math.abs(one.at - at) < Math.abs(best.at - at) ? one : best, null);
      this.update();
    }
    key(event) {
      const [from] = span();
      const seen = samples.filter((one) => one.at >= from);
      const at = this.cursor ? seen.indexOf(this.cursor) : seen.length - 1;
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: seen.length - 1 }[event.key];
      if (event.key === "Escape") { this.cursor = null; } else if (to === undefined || seen.length === 0) { return; }
      else { this.cursor = seen[Math.min(Math.max(to, 0), seen.length - 1)]; }
      event.preventDefault();
      this.update();
    }
    update() {
      const [from, to] = span();
      const seen = samples.filter((one) => one.at >= from);
      const lines = this.series.map((one) => seen.map((point) => [point.at, one.of(point)]));
      const box = this.svg.getBoundingClientRect();
      const width = Math.max(box.width, 160), height = Math.max(box.height, 120);
      const left = 52, right = width - 12, top = 8, bottom = height - 22;
      const most = nice(Math.max(...lines.flat().map(([, value]) => value || 0), this.series[0].least));
      const x = (at) => left + (at - from) / (to - from) * (right - left);
      const y = (value) => bottom - value / most * (bottom - top);
      const parts = [];
      for (let i = 0; i <= 4; i++) {
        const value = most * i / 4;
        parts.push(draw("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
          draw("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value) + (i === 4 ? this.series[0].axis || "/s" : "")));
      }
      for (let i = 0; i <= 4; i++) {
        const seconds = (to - from) * (1 - i / 4);
        const text = seconds === 0 ? "now" : seconds < 120 ? `\u2212${seconds} s` : `\u2212${+(seconds / 60).toFixed(2)} min`;
        parts.push(draw("text", { class: "axis", x: x(to - seconds), y: height - 4, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, text));
      }
      lines.forEach((points, i) => {
        for (const run of runs(points)) {
          const path = run.map(([at, value], n) => `${n ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
          if (i === 0) { parts.push(draw("path", { class: "area s0", d: `${path}L${x(run[run.length - 1][0]).toFixed(1)} ${bottom}L${x(run[0][0]).toFixed(1)} ${bottom}Z` })); }
          parts.push(draw("path", { class: `line s${i}`, d: path }));
        }
      });
      const shown = this.cursor && this.cursor.at >= from ? this.cursor : seen[seen.length - 1];
      if (this.cursor && shown) { parts.push(draw("line", { class: "cursor", x1: x(shown.at), x2: x(shown.at), y1: top, y2: bottom })); }
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.svg.replaceChildren(...parts);
      this.series.forEach((one, i) => setText(this.values[i], shown ? one.words(one.of(shown)) : "\u2013"));
      setText(this.when, this.cursor && shown ? `${Math.round(to - shown.at)} s ago` : "");
      setText(this.words, this.series.map((one) => `${one.name}: ${shown ? one.words(one.of(shown)) : "none yet"}`).join(", ") +
        ". Arrow keys move through time.");
      if (this.details.open) {
        table(this.table, "the last ten figures", ["seconds ago", ...this.series.map((one) => one.name)],
          seen.slice(-10).reverse().map((point) => [{ text: String(Math.round(to - point.at)), number: true },
            ...this.series.map((one) => ({ text: one.words(one.of(point)), number: true }))]), "nothing yet");
      }
    }
  }

  /* The least of 1, 2, 4, 5 and 8 times a power of ten that is no less: its quarters are short. */
  function nice(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 4, 5, 8, 10].find((step) => step * power >= value * 0.9999) * power;
  }
  /* A line breaks where a figure is missing. */
  function runs(points) {
    const all = [[]];
    points.forEach(([at, value], i) => {
      if (value === null || (i > 0 && at - points[i - 1][0] > 5)) { all.push([]); }
      if (value !== null) { all[all.length - 1].push([at, value]); }
    });
    return all.filter((run) => run.length !== 0);
  }
  function span() {
    const to = status ? status.uptime_ms / 1000 : 0;
    return [to - Number(byId("range").value), to];
  }

  /* Tables. A row that stays keeps its elements, so that a reader's place in the table stays. */
  function table(place, caption, heads, rows, empty) {
    if (rows.length === 0) {
      place.replaceChildren(make("p", { class: "empty" }, empty));
      return;
    }
    let body = place.querySelector("tbody");
    if (!body) {
      body = make("tbody");
      place.replaceChildren(make("table", null, make("caption", null, caption),
        make("thead", null, make("tr", null, ...heads.map((head, i) => make("th", { scope: "col", class: rows[0][i].number ? "number" : null }, head)))), body));
    }
    while (body.rows.length > rows.length) { body.deleteRow(-1); }
    rows.forEach((cells, n) => {
      const row = body.rows[n] || body.appendChild(make("tr", null, ...cells.map((cell, i) => i === 0 && !cell.number ? make("th", { scope: "row" }) : make("td"))));
      cells.forEach((cell, i) => {
        const at = row.cells[i];
        at.className = [cell.number ? "number" : "", cell.bad ? "bad" : "", cell.class || ""].join(" ").trim();
        if (cell.part !== undefined) {
          at.replaceChildren(draw("svg", { class: "bar", "aria-hidden": "true", viewBox: "0 0 100 8", preserveAspectRatio: "none" },
            draw("rect", { class: "s1", x: 0, y: 0, height: 8, width: Math.max(cell.part * 100, 1).toFixed(1) })));
        } else { setText(at, cell.text); }
      });
    });
  }

  function tile(name, value, more) {
    const tiles = byId("tiles");
    let part = [...tiles.children].find((one) => one.firstChild.textContent === name);
    if (!part) {
      part = make("div", null, make("dt", null, name), make("dd", null, make("span"), make("small")));
      tiles.append(part);
    }
    setText(part.lastChild.firstChild, value);
    setText(part.lastChild.lastChild, more);
  }

  function tell(text, kind) {
    const state = byId("state");
    setText(state, text);
    state.className = kind;
  }

  const chosen = () => byId("policy").value;
  const rateOf = (point) => point.rates.get(chosen()) || { admitted: 0, denied: 0, would: 0 };

  function showTiles() {
    const now = samples.length ? rateOf(samples[samples.length - 1]) : null;
    const policy = status.policies.find((one) => one.name === chosen()) || status;
    tile("Offered", now ? number(now.admitted + now.denied) + "/s" : "\u2013", `${short(policy.allowed + policy.denied)} in all`);
    tile("Admitted", now ? number(now.admitted) + "/s" : "\u2013", `${short(policy.allowed)} in all`);
    tile("Denied", now ? number(now.denied) + "/s" : "\u2013", `${short(policy.denied)} in all`);
    if (status.would_deny) { tile("Would deny", now ? number(now.would) + "/s" : "\u2013", `${short(policy.would_deny)} in all, shadow mode`); }
    tile("Keys", number(status.keys), `of ${number(status.key_capacity)}`);
    tile("Nodes", status.link === "none" ? "1" : number(status.live_nodes), status.suspect_nodes ? `${status.suspect_nodes} suspect` : "live");
    tile("Last sync", milliseconds(status.fleet_age_ms), status.link === "none" ? "no fleet" : `round trip ${milliseconds(status.round_trip_us / 1000)}`);
    tile("Sync errors", number(status.sync_errors), `of ${short(status.syncs + status.sync_errors)} syncs`);
  }

  function showPolicies() {
    const point = samples.length ? samples[samples.length - 1] : null;
    table(byId("policies"), "Policies in force", ["Policy", "Offered/s", "Admitted/s", "Denied/s", "Would deny/s", "Mode", "Outage mode", "Limits"],
      status.policies.map((policy) => {
        const rate = point ? point.rates.get(policy.name) : null;
        const is = (value) => ({ text: rate ? number(value(rate)) : "\u2013", number: true });
        return [{ text: policy.name }, is((r) => r.admitted + r.denied), is((r) => r.admitted), is((r) => r.denied), is((r) => r.would),
          { text: policy.mode }, policy.scope === "process" ? { text: "this process alone" }
            : policy.outage_mode === "fleet" ? { text: status.link === "none" ? "none: no fleet" : policy.basis === "process" ? "none: no sync yet" : "none" } : { text: `outage: ${policy.outage_mode}`, bad: true },
          { text: policy.limits.map(limitWords).join("; "), class: "words" }];
      }), "No policy is in force.");
  }

  function showKeys() {
    const seen = new Set();
    const rows = [];
    for (const policy of status.policies) {
      if (seen.has(policy.group) || (chosen() && policy.name !== chosen())) { continue; }
      seen.add(policy.group);
      for (const one of policy.offenders) {
        rows.push({ group: policy.group, key: one.key, units: one.denied_units, error: one.error_units, total: policy.recent_denied_units });
      }
    }
    rows.sort((a, b) => b.units - a.units);
    const most = rows.length ? rows[0].units : 1;
    table(byId("keys"), "The keys that were denied most", ["Key", "Policy", "Denied units", "Of them perhaps others'", "Compared"],
      rows.slice(0, 20).map((row) => [{ text: row.key, class: "key" }, { text: row.group }, { text: number(row.units), number: true },
        { text: number(row.error), number: true }, { part: row.units / most }]), "No key was denied lately.");
  }

  function showErrors() {
    table(byId("errors"), "Errors by kind", ["Kind", "Times"], Object.entries(status.errors).filter(([, count]) => count !== 0)
      .sort((a, b) => b[1] - a[1]).map(([kind, count]) => [{ text: kind }, { text: number(count), number: true }]), "None.");
  }

  function showState() {
    const out = status.policies.filter((policy) => policy.basis === "outage").map((policy) => `${policy.name} (${policy.outage_mode})`);
    const head = document.title;
    let title = "weir";
    if (status.link === "none") {
      tell("\u25CF Limits alone: no fleet.", "");
    } else if (status.link === "down" || out.length) {
      title = "\u26A0 weir";
      tell(`\u26A0 ${status.link === "down" ? "Redis cannot be reached" : "Redis is connected"}${out.length ? "; outage modes: " + out.join(", ") : ""}.`, "bad");
    } else {
      tell(`\u2713 In the fleet: Redis is connected${status.awaiting_peers ? ", and nodes are awaited after an outage" : ""}.`, "good");
    }
    title += status.name ? ` \u2013 ${status.name}` : "";
    if (title !== head) { document.title = title; }
  }

  function showPolicyChoice() {
    const select = byId("policy");
    const names = ["", ...status.policies.map((policy) => policy.name)];
    if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
      const was = select.value;
      select.replaceChildren(...names.map((name) => make("option", { value: name }, name || "all")));
      select.value = names.includes(was) ? was : "";
    }
  }

  const aSecond = (value) => number(value) + "/s";
  const charts = [
    new Chart(byId("offered"), "Offered and admitted", [
      { name: "offered", of: (point) => rateOf(point).admitted + rateOf(point).denied, words: aSecond, least: 1 },
      { name: "admitted", of: (point) => rateOf(point).admitted, words: aSecond }]),
    new Chart(byId("denied"), "Denied", [
      { name: "denied", of: (point) => rateOf(point).denied, words: aSecond, least: 1 },
      { name: "would be denied, in shadow mode", of: (point) => rateOf(point).would, words: aSecond }]),
    new Chart(byId("age"), "Since the last sync", [
      { name: "time", of: (point) => point.age, words: milliseconds, least: 100, axis: " ms" }]),
    new Chart(byId("failures"), "Sync errors", [
      { name: "errors", of: (point) => point.errors, words: aSecond, least: 1 }]),
  ];

  function show() {
    if (!status) { return; }
    showPolicyChoice();
    setText(byId("node"), status.name);
    setText(byId("about"), [`version ${status.version}`, `up ${duration(status.uptime_ms / 1000)}`, `${status.threads} ${status.threads === 1 ? "thread" : "threads"}`,
      status.processes > 1 ? `${status.processes} processes` : "", status.node ? `node ${status.node}` : "",
      `${number(status.memory_bytes / 1048576)} MiB reserved`].filter((part) => part).join(" \u00B7 "));
    showTiles();
    showPolicies();
    showKeys();
    showErrors();
    for (const id of ["age", "failures"]) { byId(id).hidden = status.link === "none"; }
    charts.forEach((chart) => chart.update());
  }

  function take(now) {
    if (!Array.isArray(now.policies)) { throw new Error("no status of weir"); }
    if (last && now.uptime_ms < last.uptime_ms) { samples = []; } // it was started anew
    else if (last) {
      const one = sample(last, now);
      if (one) { samples.push(one); }
    }
    samples = samples.filter((one) => one.at > now.uptime_ms / 1000 - KEPT_S);
    last = status = now;
    show();
    showState();
  }

  async function poll() {
    const end = new AbortController();
    const timer = setTimeout(() => end.abort(), 5000);
    try {
      const answer = await fetch(location.pathname + "?format=json", { cache: "no-store", signal: end.signal });
      if (!answer.ok) { throw new Error(`HTTP ${answer.status}`); }
      take(await answer.json());
      failed = 0;
    } catch (error) {
      failed = failed || Date.now();
      tell(`\u26A0 No answer from this server for ${duration((Date.now() - failed) / 1000)} (${error.message}).`, "bad");
    } finally {
      clearTimeout(timer);
    }
    clearTimeout(next);
    if (!paused) { next = setTimeout(poll, EVERY_MS); }
  }

  byId("pause").addEventListener("click", (event) => {
    paused = !paused;
    event.currentTarget.setAttribute("aria-pressed", String(paused));
    setText(event.currentTarget, paused ? "Go on" : "Pause");
    if (!paused) { poll(); }
  });
  byId("policy").addEventListener("change", show);
  byId("range").addEventListener("change", show);
  poll();
})();
