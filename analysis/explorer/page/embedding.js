/* The embedding: one scatter of all points, drawn by plotly; the open life as a path over it. */

const [POINTS, LIFE, PATH, HERE] = [0, 1, 2, 3]; // traces; of the life: points, lines between the latest, the open one
const PATH_POINTS = 4; // before the open tick, and as many after it
const OUTLIERS = 0.01; // share of values at either end that the colours do not spread over
const UNSELECTED = 0.08;
const NOWHERE = [null]; // for a trace that shows nothing: one without points would leave the scene while plotly selects in it
const FADED = 0.35; // numbers of clusters over a selection
const DIGIT = 7; // width of a digit of these numbers, in pixels
const [BESIDE, BELOW] = [10, 24]; // least distances between two of them: of their ends, and of their middles
const MARGIN = { l: 34, r: 12, t: 12, b: 30 };
const PLOT_GROUND = "#eceef1"; // both ends of the colour scale stand out from it

class Embedding extends Panel {
  div = byId("plot");
  scatter = element("canvas").getContext("webgl") ? "scattergl" : "scatter";

  async draw() {
    await Plotly.newPlot(this.div, this.traces(), this.layout(), {
      responsive: true, scrollZoom: true, displaylogo: false, displayModeBar: true,
      modeBarButtons: [["toImage", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    });
    this.div.on("plotly_hover", ({ points }) => this.pointed(points, (point) => this.state.set("hovered", point)));
    this.div.on("plotly_click", ({ points }) => this.pointed(points, (point) => {
      this.state.set("tick", this.data.tables["point.tick"][point]);
    }));
    this.div.on("plotly_selected", (event) => this.selected(event));
    this.div.on("plotly_deselect", () => { if (!this.clearing) this.state.select(null); });
    new ResizeObserver(() => Plotly.Plots.resize(this.div)).observe(this.div); // a life that opens takes room
    this.div.on("plotly_relayout", (changes) => {
      if (Object.keys(changes).some((key) => key.includes("axis."))) Plotly.relayout(this.div, { annotations: this.numbers() });
    });
    this.state.on(["colourBy", "names"], () => this.recolour());
    this.state.on(["plane"], () => this.move());
    this.state.on(["tick"], () => this.showLife());
    this.state.on(["selection"], () => this.showSelection());
  }

  /** Act on the point that an event is about, if there is one. */
  pointed(points, act) {
    const marked = points.find(({ curveNumber }) => curveNumber === POINTS);
    if (marked) act(marked.pointNumber);
  }

  async selected(event) {
    if (!event || this.clearing || this.drawing) return;
    const points = event.points.filter(({ curveNumber }) => curveNumber === POINTS).map(({ pointNumber }) => pointNumber);
    Plotly.Fx.hover(this.div, []); // what the pointer passed on its way
    this.drawing = true; // what was drawn by hand stays on the plot
    this.state.select(Int32Array.from(points).sort());
    await this.marked; // while it marks the points, plotly says again that they are selected
    this.drawing = false;
  }

  traces() {
    const whatever = { marker: { opacity: 1 } }; // a selection is of points, so it must not change these
    const over = { type: this.scatter, x: NOWHERE, y: NOWHERE, hoverinfo: "skip", showlegend: false, selected: whatever, unselected: whatever };
    return [
      {
        type: this.scatter, mode: "markers", x: this.places("x"), y: this.places("y"),
        marker: { size: this.size(), line: { width: 0 }, ...this.colours() }, text: this.texts(), hoverinfo: "text",
        selected: { marker: { size: this.size() + 2 } }, unselected: { marker: { opacity: UNSELECTED } }, showlegend: false,
      },
      { ...over, mode: "markers", marker: { color: "#111418", size: 4.5 } },
      { ...over, mode: "lines", line: { color: "#111418", width: 1.2 } },
      { ...over, mode: "markers", marker: { color: "rgba(0,0,0,0)", size: 17, line: { color: styled("mark"), width: 3 } } },
    ];
  }

  layout() {
    const axis = { zeroline: false, showgrid: false, ticks: "", showticklabels: false, linecolor: "#8a929b", mirror: true, showline: true };
    return {
      margin: MARGIN, hovermode: "closest", dragmode: "pan", uirevision: "kept",
      paper_bgcolor: "#ffffff", plot_bgcolor: PLOT_GROUND, font: { family: "system-ui, sans-serif", size: 12 },
      xaxis: { ...axis, title: { text: `${this.plane().axes} 1`, standoff: 6 } },
      yaxis: { ...axis, title: { text: `${this.plane().axes} 2`, standoff: 4 } },
      hoverlabel: { bgcolor: "#1e2329", font: { color: "#ffffff" } }, annotations: this.numbers(["x", "y"].map((axis) => ends(this.places(axis)))),
    };
  }

  /** The embedding that points are shown in: this run's, or a further one's. */
  plane() { return this.data.facts.planes[this.state.plane]; }

  /** Coordinates of all points along an axis, x or y; NaN for points that the embedding does not have. */
  places(axis) { return this.data.tables[this.plane()[axis]]; }

  /** Show the points in the embedding that was chosen. */
  async move() {
    await this.showSelection(); // or plotly marks what is now inside an outline that was drawn around other places
    const { xaxis, yaxis, annotations } = this.layout();
    const titles = { "xaxis.title": xaxis.title, "yaxis.title": yaxis.title, "xaxis.autorange": true, "yaxis.autorange": true };
    await Plotly.update(this.div, { x: [this.places("x")], y: [this.places("y")] }, { ...titles, annotations }, [POINTS]);
    this.showLife();
  }

  size() { return Math.max(2.6, Math.min(8, 1.5 * Math.sqrt(12000 / Math.max(this.data.count, 1)) + 1.6)); }

  texts() {
    const { tables } = this.data, values = this.values(), { name: of, labels, groups } = this.categories() ?? {};
    const names = new Map(groups?.map(({ label, name }) => [label, name ?? label]));
    return Array.from(tables["point.tick"], (tick, point) => escaped(
      `${this.state.called(tables["point.label"][point])}\nagent ${tables.agent[tick]}, episode ${tables.episode[tick]}, tick ${tables.tick[tick]}`
      + (values ? `\n${this.quantity().name} ${shortNumber(values[point])}` : "")
      + (names.size > 1 && of !== this.data.facts.word ? `\n${of}: ${names.get(labels[point]) ?? "none"}` : ""),
    ).replaceAll("\n", "<br>"));
  }

  // ---- colours

  /** The feature or column that colours stand for; undefined for categories. */
  quantity() {
    const [kind, key] = this.state.colourBy.split(/\.(.*)/s);
    if (kind === "feature") return this.data.features[Number(key)];
    if (kind === "track") return this.data.tracks[key].clusters ? undefined : this.data.tracks[key];
    if (kind === "column") return { name: key, unit: key === "tick" ? "ticks" : "", of: key };
    return undefined;
  }

  /**
   * Where colours stand for categories: what they are of, each point's label, and the groups that have one, {label, name, colour,
   * symbol}, with a name where it is not a number. Null where colours stand for a quantity.
   */
  categories() {
    const [kind, key] = this.state.colourBy.split("."), { tables, facts, tracks } = this.data;
    const ofPoints = (steps) => Array.from(tables["point.tick"], (tick) => steps[tick]);
    if (kind === "cluster") return { name: facts.word, labels: tables["point.label"], groups: facts.clusters };
    if (kind === "policy") return { name: "policy", labels: new Uint8Array(this.data.count), groups: [{ label: 0, name: "", colour: facts.policyColour, symbol: "circle" }] };
    if (kind === "category") return { ...facts.categories[key], labels: tables[`category.${key}`] };
    if (kind === "track" && tracks[key].clusters) return { name: tracks[key].name, labels: ofPoints(tracks[key].steps), groups: tracks[key].clusters };
    return null;
  }

  /** One number a point, or null where colours stand for categories. */
  values() {
    const quantity = this.quantity(), { tables } = this.data;
    if (!quantity || quantity.values) return quantity?.values ?? null;
    return quantity.of ? Array.from(tables["point.tick"], (tick) => tables[quantity.of][tick]) : Array.from(this.data.trackedAtPoints(quantity));
  }

  colours() {
    const values = this.values();
    if (!values) return this.categoryColours();
    const { name, unit } = this.quantity();
    const [low, high] = span(values);
    const beyond = values.reduce((count, value) => count + (value < low || value > high), 0);
    const title = (unit ? `${name} (${unit})` : name) + (beyond ? `; ${counted(beyond, "point")} beyond` : "");
    return {
      color: values, colorscale: "Viridis", reversescale: false, cmin: low, cmax: high, showscale: true, symbol: "circle",
      colorbar: { title: { text: escaped(title), side: "right" }, thickness: 14, len: 0.7, outlinewidth: 0 },
    };
  }

  categoryColours() {
    const { labels, groups: some } = this.categories();
    const groups = [{ ...this.data.facts.noise, symbol: "circle" }, ...some];
    const place = new Map(groups.map(({ label }, i) => [label, i]));
    const stops = colourSteps(groups.map(({ colour }) => colour)), symbols = groups.map(({ symbol }) => symbol);
    return {
      color: Array.from(labels, (label) => place.get(label)), colorscale: stops, reversescale: false,
      cmin: -0.5, cmax: groups.length - 0.5, showscale: false,
      symbol: new Set(symbols).size > 1 ? Array.from(labels, (label) => symbols[place.get(label)]) : "circle",
    };
  }

  recolour() {
    const changes = Object.entries(this.colours()).map(([key, value]) => [`marker.${key}`, [value]]);
    Plotly.update(this.div, { ...Object.fromEntries(changes), text: [this.texts()] }, { annotations: this.numbers() }, [POINTS]);
    // The names of groups that have one, in their colours.
    const named = this.categories()?.groups.filter(({ name }) => name) ?? [], list = byId("groups");
    list.hidden = !named.length;
    list.replaceChildren(...named.map((group) => element("li", {}, swatchOf(group), group.name)));
  }

  /**
   * The numbers of clusters, while colours stand for them, each on a point in the middle of its cluster; where two would be too
   * close to read, that of the larger one.
   */
  numbers(inView = ["xaxis", "yaxis"].map((axis) => this.div._fullLayout[axis].range)) {
    const { labels = [], groups = [] } = this.categories() ?? {};
    const [x, y] = ["x", "y"].map((axis) => this.places(axis));
    const points = new Map(groups.filter(({ name }) => name === undefined).map(({ label }) => [label, []]));
    labels.forEach((label, point) => { if (!Number.isNaN(x[point])) points.get(label)?.push(point); });
    const { l, r, t, b } = MARGIN, sizes = [this.div.clientWidth - l - r, this.div.clientHeight - t - b];
    const pixels = (place, axis) => ((place - inView[axis][0]) / (inView[axis][1] - inView[axis][0])) * sizes[axis];
    const shown = [];
    for (const [label, own] of [...points].filter(([, some]) => some.length).sort(([, one], [, other]) => other.length - one.length)) {
      const [across, up] = [x, y].map((axis) => own.map((point) => axis[point]).sort((one, other) => one - other)[own.length >> 1]); // medians
      const off = (point) => Math.hypot(x[point] - across, y[point] - up);
      const middle = nearest(own, off);
      const number = { text: String(label), x: x[middle], y: y[middle] };
      const isClose = (other) => Math.abs(pixels(number.y, 1) - pixels(other.y, 1)) < BELOW
        && Math.abs(pixels(number.x, 0) - pixels(other.x, 0)) < BESIDE + (DIGIT * (number.text.length + other.text.length)) / 2;
      if (!shown.some(isClose)) shown.push(number);
    }
    return shown.map((number) => ({
      ...number, showarrow: false, borderpad: 0, bgcolor: "rgba(255, 255, 255, 0.75)",
      font: { size: 11, color: "#111418", weight: 700 }, opacity: this.state.selection ? FADED : 1,
    }));
  }

  // ---- what is marked

  showLife() {
    const { tick, life } = this.state, { pointAt } = this.data;
    const points = tick === null ? [] : range(life.start, life.end).filter((at) => pointAt.has(at)).map((at) => pointAt.get(at));
    const latest = points.findLastIndex((point) => this.data.tables["point.tick"][point] <= tick);
    const near = points.slice(Math.max(0, latest - PATH_POINTS), latest + PATH_POINTS + 1);
    const shown = [points, near, points.slice(latest, latest + 1)];
    const places = (axis) => shown.map((some) => (some.length ? some.map((point) => this.places(axis)[point]) : NOWHERE));
    Plotly.restyle(this.div, { x: places("x"), y: places("y") }, [LIFE, PATH, HERE]);
  }

  async showSelection() {
    if (!this.drawing && this.div.layout.selections?.length) {
      this.clearing = true; // what was drawn for another selection goes, and takes nothing along
      await Plotly.relayout(this.div, { selections: [] });
      this.clearing = false;
    }
    const { selection } = this.state;
    const selectedpoints = [selection ? Array.from(selection) : null];
    this.marked = Plotly.update(this.div, { selectedpoints }, { annotations: this.numbers() }, [POINTS]);
  }

  /** Where a point is in the window, in CSS pixels. */
  placeOf(point) {
    const { xaxis, yaxis } = this.div._fullLayout;
    const { left, top } = this.div.getBoundingClientRect();
    return {
      x: left + xaxis._offset + xaxis.l2p(this.places("x")[point]),
      y: top + yaxis._offset + yaxis.l2p(this.places("y")[point]),
    };
  }
}


/** Text that plotly, which knows some tags, shows as it stands. */
function escaped(text) { return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"); }

/** Ends of the values without outliers; of all values where that leaves nothing. */
function span(values) {
  const sorted = Float64Array.from(values).filter((value) => !Number.isNaN(value)).sort();
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))] ?? 0;
  const within = [at(OUTLIERS), at(1 - OUTLIERS)];
  return within[0] < within[1] ? within : [at(0), at(1)];
}
