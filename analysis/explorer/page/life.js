/* The life that is open: what was seen around a tick, and how the agent fared at every tick, drawn by plotly. */

const GAP = 14; // between parts, in CSS pixels
const HEAT = [[0, "#f4f5f7"], [0.5, "#7d9cc4"], [1, "#12264a"]];
const LONGEST_NAME = 11; // letters beside a row
const LANE_HEIGHTS = { line: 78, lane: 15, strip: 30, margins: 24 };
const TIME_AXIS = 42; // CSS pixels
const SIDES = { l: 76, r: 12 }; // what is left of the time line and right of it
const LINE_COLOURS = { self_health: styled("health"), self_food: styled("food"), self_water: styled("water") };
const LINES = { type: "scatter", mode: "lines" };
const MARK_COLOUR = "#3f4a55";
const OTHER_COLOURS = [MARK_COLOUR, "#832db6", "#a3600f", "#c2264b"];
const EVENT_LOOKS = {
  "ate": ["circle", styled("food")], "drank": ["circle", styled("water")], "hit": ["line-ns", MARK_COLOUR], "was hit": ["line-ns", styled("health")],
  "killed": ["diamond", "#832db6"], "levelled up": ["triangle-up", "#2f7d46"], "traded": ["square", "#a3600f"], "died": ["x", "#111418"],
};
const DASHES = ["solid", "dash", "dot", "dashdot"];
const DASH_MARKS = ["━", "╌", "┈", "┉"];
const CARD_WIDTHS = { least: 120, most: 230, gap: 8, edges: 14 }; // CSS pixels
const BESIDE_VIEW = 145; // CSS pixels for the caption of a view, and for vitals and actions under it
const UNDER_VITALS = 19; // CSS pixels for actions where there is no room beside vitals
const UNDER_ALONE = 68; // CSS pixels for the caption of the only view
const LEAST_STACKED = 170; // CSS pixels of a recorded view over a simulated one
const CHOICE = 40; // CSS pixels for the list of simulations
const CARDS_TO_EACH_SIDE = 4;
const SIMULATED_OPACITY = 0.3; // of lines

function lineColour(key, number) { return LINE_COLOURS[key] ?? OTHER_COLOURS[number]; }

class LifePanel extends Panel {
  constructor(state) {
    super(state);
    this.section = byId("life");
    this.strip = byId("life-views");
    this.plot = byId("timeline");
    this.axis = byId("time-axis");
    this.room = byId("life-here");
    this.shown = null;
    this.transport = new Transport(state, {
      slider: "life-tick", clock: () => `tick ${this.data.tables.tick[state.tick]}`, keys: this.keys(),
      ignored: (event) => this.ignored(event),
    });
    this.listen();
    state.on(["tick", "away"], () => this.draw());
    state.on(["names", "overlay", "simulation", "layout"], () => this.draw(true));
    state.on(["playing"], () => { if (state.life) this.transport.draw(); });
    state.on(["selection"], () => state.setPlaying(false)); // its test needs the time
  }

  listen() {
    const { state } = this;
    listenTo("close-life", "click", () => state.set("tick", null));
    listenTo("previous-point", "click", () => this.goToPoint(-1));
    listenTo("next-point", "click", () => this.goToPoint(1));
    new ResizeObserver(() => { if (state.tick !== null) this.drawViews(); }).observe(this.room);
    new ResizeObserver(() => {
      if (this.shown !== null) for (const plot of [this.plot, this.axis]) Plotly.Plots.resize(plot);
    }).observe(this.plot.parentElement);
  }

  /** Besides those of time: arrows go to other points with Shift; / finds; Escape closes the life. */
  keys() {
    const to = (step) => (far) => (far ? this.goToPoint(step) : this.transport.step(step));
    const acts = { "/": () => byId("find").focus(), "Escape": () => this.state.set("tick", null) };
    return { ...acts, "ArrowLeft": to(-1), "ArrowRight": to(1) };
  }

  ignored({ target, key }) {
    // What is open is closed first; the cover is plotly's, while a selection is drawn.
    const over = document.querySelector("dialog[open], #panes[open], .dragcover");
    return over || target.matches("input, select, textarea") || (this.state.tick === null && key !== "/");
  }

  go(tick) { this.transport.move(tick - this.life.start); }

  /** The next or previous tick of this life that is a point of the embedding. */
  goToPoint(step) {
    const { tick } = this.state, points = this.ticks().filter((at) => this.data.pointAt.has(at));
    const next = step > 0 ? points.find((at) => at > tick) : points.findLast((at) => at < tick);
    if (next !== undefined) this.go(next);
  }

  draw(anew = false) {
    const { tick } = this.state;
    this.section.hidden = tick === null;
    if (tick === null) {
      this.shown = null;
      this.state.setPlaying(false);
      return;
    }
    this.life = this.state.life;
    const { tables } = this.data;
    byId("life-name").title = byId("life-name").textContent = `Agent ${tables.agent[tick]}, episode ${tables.episode[tick]}: `
      + `ticks ${tables.tick[this.life.start]} to ${tables.tick[this.life.end - 1]}`;
    this.transport.draw();
    this.drawViews();
    if (this.shown !== this.life.start) for (const part of [this.room, this.plot.parentElement]) part.scrollTop = 0;
    if (this.shown !== this.life.start || anew) this.drawTimeline();
    else Plotly.relayout(this.plot, { shapes: this.cursor() });
    this.shown = this.life.start;
  }

  /** How many ticks to show to each side of the open one, and how wide. */
  cards() {
    const { least, most, gap, edges } = CARD_WIDTHS, { clientWidth: room, clientHeight } = this.room, { layout } = this.state;
    const both = this.simulatedLives().length && !["life-views", "simulated"].some((pane) => this.state.away.includes(pane));
    const rows = both ? 2 : 1, scrolls = getComputedStyle(this.room).overflowY === "auto";
    const height = scrolls ? clientHeight : Infinity, perRow = (height - (rows > 1 ? CHOICE : 0)) / rows - BESIDE_VIEW + edges;
    const alone = layout === "panel" && scrolls && rows === 1; // one view, and vitals beside it
    if (alone) return { alone, reach: 0, width: Math.floor(Math.max(least, Math.min(clientHeight - UNDER_ALONE, room / 2))) };
    // One over the other would not fit: side by side, one tick of each.
    const paired = rows > 1 && (layout === "panel" || perRow < LEAST_STACKED);
    const reach = paired ? 0 : Math.max(0, Math.min(CARDS_TO_EACH_SIDE, Math.floor(((room + gap) / (least + gap) - 1) / 2)));
    const count = paired ? 2 : 2 * reach + 1, high = paired ? height - CHOICE - BESIDE_VIEW - UNDER_VITALS + edges : rows > 1 ? perRow : most;
    return { paired, reach, width: Math.floor(Math.max(least, Math.min(most, high, (room - gap * (count - 1)) / count))) };
  }

  /** The tick, and as many before and after it as there is room for. */
  drawViews() {
    if (!this.room.clientWidth) return; // hidden: drawn once it is shown, which changes its size
    const { alone = false, paired = false, reach, width } = this.cards(), { state } = this;
    this.room.classList.toggle("paired", paired);
    this.room.classList.toggle("alone", alone);
    const ticks = range(state.tick - reach, state.tick + reach + 1);
    const row = (span, what, shownAt) => element("div", { class: "cards" }, ...ticks.map((tick) => {
      const card = this.cardOf(tick, span, what, shownAt(tick), width - CARD_WIDTHS.edges);
      card.style.width = paired ? "100%" : `${width}px`;
      return card;
    }));
    const simulated = state.simulated && this.data.simulatedAt(state.simulated, state.tick);
    this.strip.replaceChildren(row(this.life, "life", (tick) => tick), tickFacts(state, state.tick));
    if (!simulated) {
      byId("simulated-views")?.replaceChildren(this.notSimulated());
      return;
    }
    const { begin, start, ticks: length } = simulated, shownAt = (tick) => start + tick - begin;
    byId("simulated-views").replaceChildren(
      row({ start: begin, end: begin + length }, "simulation", shownAt), tickFacts(state, shownAt(state.tick)), this.simulatedFrom(simulated),
    );
  }

  /** Which ticks were simulated, and where that parts from the first of the simulations. */
  simulatedFrom({ number, begin, start, ticks }) {
    const { state, data } = this, { tick } = data.tables, [first] = data.simulated;
    const span = `Ticks ${tick[begin]} to ${tick[start + ticks - 1]} were simulated.`;
    const other = state.simulated === first ? null : first.lives.find((life) => life.number === number && life.begin === begin);
    if (!other) return element("p", { class: "note" }, span);
    const parts = data.partAfter({ start, ticks }, other);
    if (parts === null) return element("p", { class: "note" }, `${span} In place, vitals and actions all of them are as in “${first.edits}”.`);
    return element("p", { class: "note" }, `${span} They differ from “${first.edits}” from tick ${tick[start] + parts} on. `,
      element("button", { type: "button", onclick: () => this.go(begin + parts) }, "Go there"));
  }

  simulatedLives() { return this.state.simulated ? this.data.simulatedIn(this.state.simulated, this.state.tick) : []; }

  /** That nothing was simulated for the open tick, and the way to where something was. */
  notSimulated() {
    const { tick, simulated } = this.state, begins = this.simulatedLives().map(({ begin }) => begin);
    if (!begins.length) return element("p", { class: "note" }, simulated ? "Nothing was simulated from ticks of this life." : "");
    const next = begins.find((begin) => begin > tick) ?? begins.at(-1);
    return element("p", { class: "note" }, "Nothing was simulated for this tick. ", element(
      "button", { type: "button", onclick: () => this.go(next) }, `Go to tick ${this.data.tables.tick[next]}`,
    ));
  }

  /** A tick of a life or of a simulation, each a span of ticks, with what it shows; a click goes to the tick. */
  cardOf(tick, { start, end }, what, shown, width) {
    if (tick < start || tick >= end) {
      return element("figure", { class: "card none" }, `${tick < start ? "before" : "after"} the ${what}`);
    }
    const card = viewCard(this.state, shown, width);
    card.classList.toggle("now", tick === this.state.tick);
    if (shown !== tick) card.querySelector("b").append(", simulated");
    card.addEventListener("click", () => this.go(tick));
    return card;
  }

  // ---- the time line: strips of clusters, lines, lanes of events and acts, rows of further runs, on a shared axis

  drawTimeline() {
    const parts = this.parts();
    const whole = parts.reduce((sum, { height }) => sum + height, 0);
    const axes = {}, traces = [], legends = [];
    let top = 1;
    parts.forEach((part, i) => {
      const bottom = top - part.height / whole, number = i ? i + 1 : "";
      const domain = [bottom + GAP / whole / 2, top - GAP / whole / 2];
      axes[`yaxis${number}`] = { domain, fixedrange: true, zeroline: false, gridcolor: "#e7eaee", ...part.axis };
      traces.push(...part.traces.map((trace) => ({ ...trace, yaxis: `y${number}` })));
      if (part.legend) {
        legends.push({
          text: part.legend, x: 1, y: domain[1], xref: "paper", yref: "paper", xanchor: "right", yanchor: "bottom", showarrow: false,
          font: { size: 10 }, borderpad: 0,
        });
      }
      top = bottom;
    });
    Plotly.react(this.plot, traces, { ...this.layout(whole), ...axes, annotations: legends }, {
      responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoomIn2d", "zoomOut2d", "autoScale2d"]],
      doubleClick: false, // two clicks are two ticks; and plotly would go back to the range of the life that was open first
    });
    for (const event of ["plotly_click", "plotly_hover", "plotly_relayout"]) this.plot.removeAllListeners(event);
    this.plot.on("plotly_click", ({ event: { clientX } }) => {
      // The time of the click itself: that of the point it belongs to would be the middle of a bar.
      const { xaxis } = this.plot._fullLayout, time = xaxis.p2l(clientX - this.plot.getBoundingClientRect().left - xaxis._offset);
      this.go(nearest(this.ticks(), (tick) => Math.abs(this.data.tables.tick[tick] - time)));
    });
    this.plot.on("plotly_hover", ({ points }) => {
      const row = points.find(({ data }) => data.meta);
      if (!row) return;
      this.state.pointedTrack = row.data.meta[row.y];
      this.state.changed("pointedTrack"); // also by the same one, since the matrices may have shown another meanwhile
    });
    this.plot.on("plotly_relayout", () => this.drawAxis()); // another tick, or a zoom
    this.drawAxis();
  }

  /** The time axis, which stays in place while what is under it scrolls. */
  drawAxis() {
    const now = { type: "scatter", mode: "markers", x: [this.data.tables.tick[this.state.tick]], y: [0], marker: { symbol: "triangle-down", size: 11, color: styled("mark") } };
    Plotly.react(this.axis, [now], {
      ...this.look(), height: TIME_AXIS, margin: { ...SIDES, t: TIME_AXIS - 8, b: 0 },
      xaxis: { ...this.timeAxis(this.plot.layout.xaxis.range), title: { text: "tick", standoff: 0 } }, yaxis: { visible: false, range: [-1, 1] },
    }, { responsive: true, staticPlot: true });
  }

  timeAxis(range) { return { side: "top", range, zeroline: false, gridcolor: "#e7eaee", anchor: "y" }; }

  /** What stands over the time axis, from the top: [{height, axis, traces, legend}]. */
  parts() {
    const { tables, facts, tracks } = this.data;
    const acts = Object.entries(facts.acts).filter(([key]) => this.column(key).some((value) => value));
    const events = this.data.eventsBetween(this.life.start, this.life.end);
    const kinds = facts.eventKinds.filter((kind) => events.some((event) => event.kind === kind));
    const labelled = tracks.filter(({ clusters }) => clusters);
    const runs = Map.groupBy(tracks.filter(({ clusters }) => !clusters), ({ run }) => run);
    const lines = facts.panels.map(({ title, columns }) => {
      const names = Object.entries(columns).map(([key, name], i) => `<span style="color: ${lineColour(key, i)}">${DASH_MARKS[i]} ${name}</span>`);
      return {
        height: LANE_HEIGHTS.line, traces: this.lineTraces(columns), legend: names.length > 1 ? names.join("   ") : "",
        axis: { title: { text: title.replace(" (", "<br>("), font: { size: 10 }, standoff: 4 }, rangemode: "tozero", nticks: 4 },
      };
    });
    const value = lines[facts.panels.findIndex(({ title }) => title === "value")];
    const heat = Array.from(runs, ([run, rows]) => this.heatRows(run, rows));
    const first = this.state.layout === "panel"; // what the policy computes comes before how the agent fares
    const { map } = this.state, mapped = this.ticks().filter((tick) => map?.numberAt.has(tick));
    const strip = (name, traces) => ({
      height: LANE_HEIGHTS.strip, axis: { range: [0, 1], tickvals: [0.5], ticktext: [name], showgrid: false }, traces,
    });
    return [
      ...this.simulatedLane(),
      strip(facts.word, this.stripTraces(tables.label, tables.own, (label) => this.state.called(label))),
      ...labelled.map((track) => strip(track.name.split(" ")[0], this.stripTraces(
        track.steps, null, (label) => `${track.name}: ${label === this.data.facts.noise.label ? "none" : label}`, track.clusters,
      ))),
      ...(first ? [value, ...heat].filter(Boolean) : []),
      ...lines.filter((line) => !first || line !== value),
      this.lanes(kinds, this.eventTraces(kinds, events)),
      ...(mapped.length ? [this.lanes(["map"], [this.marks(mapped, 0, { symbol: "square", size: 5 }, `map of ${escaped(map.of)}`)])] : []),
      this.lanes(acts.map(([, name]) => name), acts.map(([key, name], lane) => {
        const acted = this.ticks().filter((tick) => tables[key][tick]);
        return { ...this.marks(acted, lane, { symbol: "line-ns", size: 10, line: { width: 1.3, color: MARK_COLOUR } }, name), name };
      })),
      ...(first ? [] : heat),
    ];
  }

  /** Marks at ticks, all in a lane. */
  marks(ticks, lane, marker, says) {
    return {
      type: "scatter", mode: "markers", x: ticks.map((tick) => this.data.tables.tick[tick]), y: ticks.map(() => lane),
      marker: { color: MARK_COLOUR, ...marker }, hovertemplate: `${says}<extra></extra>`,
    };
  }


  /** The ticks that were simulated, if any were, a mark where a simulated life begins. */
  simulatedLane() {
    const lives = this.simulatedLives();
    if (!lives.length) return [];
    return [this.lanes(["simulated"], [
      { ...LINES, ...this.segments(lives, () => 0), line: { color: "#9aa5b1", width: 3 }, hoverinfo: "skip" },
      this.marks(lives.map(({ begin }) => begin), 0, { symbol: "triangle-right", size: 7 }, "simulated from here on"),
    ])];
  }

  /** Simulated lives as one line with gaps: {x, y}, given the height at each of their ticks. */
  segments(lives, heightAt) {
    const ticks = lives.flatMap(({ start, ticks: count }) => [...range(start, start + count), null]);
    return {
      x: ticks.map((tick) => (tick === null ? null : this.data.tables.tick[tick])), y: ticks.map((tick) => (tick === null ? null : heightAt(tick))),
    };
  }

  lanes(names, traces) {
    const axis = { range: [-0.6, Math.max(1, names.length) - 0.4], tickvals: names.map((_, lane) => lane), ticktext: names };
    return { height: LANE_HEIGHTS.lane * names.length + GAP, axis, traces };
  }

  /** Numbers of a further run at every tick, a row each, from pale at its least value in the page to dark at its greatest. */
  heatRows(run, tracks) {
    const textOf = (track, tick) => escaped(`${track.name} ${shortNumber(this.data.tracked(track, tick), 3)}`);
    const text = tracks.map((track) => this.ticks().map((tick) => textOf(track, tick)));
    const short = ({ name }) => escaped(name.length > LONGEST_NAME ? `…${name.slice(1 - LONGEST_NAME)}` : name);
    return {
      height: LANE_HEIGHTS.lane * tracks.length + 2 * GAP, legend: escaped(run),
      axis: { range: [tracks.length - 0.5, -0.5 - GAP / LANE_HEIGHTS.lane], tickvals: tracks.map((_, row) => row), ticktext: tracks.map(short), showgrid: false },
      traces: [{
        type: "heatmap", x: Array.from(this.clock()), y: tracks.map((_, row) => row), z: tracks.map(({ steps }) => Array.from(steps.subarray(this.life.start, this.life.end))),
        meta: tracks.map((track) => this.data.tracks.indexOf(track)), zmin: 0, zmax: 255, colorscale: HEAT, showscale: false, ygap: 1, text, hovertemplate: "%{text}<extra></extra>",
      }],
    };
  }

  ticks() { return range(this.life.start, this.life.end); }

  column(key) { return this.data.tables[key].subarray(this.life.start, this.life.end); }

  clock() { return this.data.tables.tick.subarray(this.life.start, this.life.end); }


  layout(whole) {
    const clock = this.clock();
    return {
      ...this.look(), height: whole + LANE_HEIGHTS.margins, margin: { ...SIDES, t: 14, b: 10 }, barmode: "overlay", bargap: 0,
      xaxis: { ...this.timeAxis([clock[0] - 1, clock[clock.length - 1] + 1]), showticklabels: false, hoverformat: "d" },
      uirevision: this.life.start, // a zoom stays while the same life is open
      hovermode: "x", hoverlabel: { namelength: -1 }, shapes: this.cursor(),
    };
  }

  look() {
    return { font: { family: "system-ui, sans-serif", size: 11 }, showlegend: false, paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff" };
  }


  cursor() {
    const now = this.data.tables.tick[this.state.tick];
    return [{ type: "line", xref: "x", yref: "paper", x0: now, x1: now, y0: 0, y1: 1, line: { color: styled("mark"), width: 1.5 } }];
  }

  lineTraces(columns) {
    const x = Array.from(this.clock()), lives = this.simulatedLives();
    return Object.entries(columns).flatMap(([key, name], i) => [{
      ...LINES, x, y: Array.from(this.column(key)), name,
      line: { color: lineColour(key, i), width: 1.6, dash: DASHES[i], shape: "hv" },
      hovertemplate: `${name} %{y}<extra></extra>`,
    }, ...(lives.length ? [{
      ...LINES, ...this.segments(lives, (tick) => this.data.tables[key][tick]), name: `${name}, simulated`,
      line: { color: lineColour(key, i), width: 4, shape: "hv" }, opacity: SIMULATED_OPACITY, hovertemplate: `simulated ${name} %{y}<extra></extra>`,
    }] : [])]);
  }


  eventTraces(kinds, events) {
    return kinds.map((kind, lane) => {
      const own = events.filter((event) => event.kind === kind), ticks = own.map(({ tick }) => tick);
      const [symbol, color] = EVENT_LOOKS[kind] ?? ["circle", MARK_COLOUR];
      const [size, width] = symbol === "line-ns" ? [10, 1.3] : [7, 0];
      const marks = this.marks(ticks, lane, { symbol, color, size, line: { color, width } }, "%{text}");
      return { ...marks, name: kind, text: own.map(({ text }) => escaped(text)) };
    });
  }

  /**
   * Stretches of one label: tall where labels are the ticks' own, low and pale where they were propagated.
   * @param own whether each tick's label is its own; null where all are.
   * @param called a label in words.
   */
  stripTraces(labels, own, called, clusters = undefined) {
    const groups = Map.groupBy(this.stretches(labels, own), (stretch) => `${stretch.label} ${stretch.own}`);
    return Array.from(groups.values(), (stretches) => {
      const [{ label, own: tall }] = stretches;
      const name = called(label) + this.data.originOf(label, tall);
      return {
        type: "bar", x: stretches.map(({ from, to }) => (from + to) / 2), width: stretches.map(({ from, to }) => to - from + 1),
        y: stretches.map(() => (tall ? 1 : 0.5)), name,
        marker: { color: this.data.colourOf(label, clusters), opacity: tall ? 1 : 0.45, line: { width: 0 } },
        hovertemplate: `${escaped(name)}<extra></extra>`,
      };
    });
  }

  /** Consecutive ticks with the same label, own or propagated: [{label, own, from, to}]. */
  stretches(labels, owns) {
    const { tick } = this.data.tables;
    const stretches = [];
    for (let i = this.life.start; i < this.life.end; i++) {
      const last = stretches.at(-1), label = labels[i], own = !owns || Boolean(owns[i]);
      if (last && last.label === label && last.own === own && last.to === tick[i] - 1) last.to = tick[i];
      else stretches.push({ label, own, from: tick[i], to: tick[i] });
    }
    return stretches;
  }
}
