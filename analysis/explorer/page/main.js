/* Puts the parts together, and shows the state to consoles and tests. */

const SHARE_OF_PANEL = 0.55; // that the view takes; vitals and actions stand beside it
const STRIP = 4; // ticks before the point, and as many after it

/** The point under the pointer: its view, and what the analysis knows of it. */
class PointerPanel {
  constructor(state) {
    this.state = state;
    this.body = byId("pointer-body");
    state.on(["hovered", "names", "colourBy", "overlay", "away", "layout"], () => this.draw());
  }

  draw() {
    const { hovered, data } = this.state;
    if (hovered === null || !this.body.clientWidth) return; // nothing to show, or put away
    const tick = data.tables["point.tick"][hovered];
    const [agent, episode] = [data.tables.agent[tick], data.tables.episode[tick]];
    const { row, col } = data.place(tick);
    this.body.replaceChildren(
      element("div", { class: "pointed" }, viewCard(this.state, tick, SHARE_OF_PANEL * this.body.clientWidth), tickFacts(this.state, tick)),
      this.around(tick), ...this.alike(hovered),
      element("p", { class: "note" }, `agent ${agent}, episode ${episode}; row ${row}, column ${col}; record ${data.tables["point.row"][hovered]} of the run`),
      element("details", { class: "features", ...(this.open ? { open: "" } : {}), ontoggle: (event) => { this.open = event.target.open; } },
        element("summary", {}, "features"),
        element("dl", {}, ...data.facts.byChoice.flatMap(({ choice, places }) => this.values(choice, places, hovered)), ...this.tracked(tick)),
      ),
    );
  }

  /** Names and values of features at a point; of a categorical feature, the option that holds there. */
  values(choice, places, point) {
    const rows = places.map((place) => this.state.data.features[place]);
    const shown = choice ? rows.filter((feature) => feature.values[point]).map(({ name }) => [choice, name.slice(choice.length + 1)])
      : rows.map((feature) => [feature.name, shortNumber(feature.values[point])]);
    return shown.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  }

  /** What further runs say of a tick; of their sparse features, those that are active. */
  tracked(tick) {
    const { data } = this.state;
    const shown = data.tracks.map((track) => [track, data.tracked(track, tick)]).filter(([{ clusters }, value]) => clusters || value !== 0);
    const inWords = ({ clusters }, value) => (clusters && value === data.facts.noise.label ? "none" : shortNumber(value, 3));
    return shown.flatMap(([track, value]) => [element("dt", {}, track.name), element("dd", {}, inWords(track, value))]);
  }

  /** The ticks around one of a life. */
  around(tick) {
    const { start, end } = this.state.data.lifeOf(tick);
    const ticks = range(Math.max(start, tick - STRIP), Math.min(end, tick + STRIP + 1));
    return stripOfViews(this.state, "Ticks before and after", ticks, tick);
  }

  /** What others saw in the states that are most alike. */
  alike(point) {
    const { data } = this.state, near = data.near(point);
    if (!near.length) return [];
    return [
      element("p", { class: "note" }, "Most alike in hidden space, in other lives:"),
      stripOfViews(this.state, "Most alike in other lives", near.map((other) => data.tables["point.tick"][other])),
    ];
  }
}

/** What `window.explorer` offers: numbers and copies. */
function publicState(state, embedding, selection, pane) {
  const { data } = state;
  const { tables } = data;
  const tickOf = (tick) => ({
    tick: tables.tick[tick], agent: tables.agent[tick], episode: tables.episode[tick], label: tables.label[tick],
    own: tables.own[tick] !== 0, events: data.eventsBetween(tick, tick + 1).map(({ kind, text }) => ({ kind, text })), materials: Array.from(data.view(tick)), others: data.others(tick), action: data.action(tick),
    ...data.vitals(tick), ...data.place(tick),
    columns: Object.fromEntries([...data.facts.panels.flatMap(({ columns }) => Object.keys(columns)), ...Object.keys(data.facts.acts)]
      .map((key) => [key, tables[key][tick]])),
    tracks: data.tracks.map((track) => data.tracked(track, tick)),
    odds: Object.fromEntries(Object.keys(data.facts.odds).map((head) => [head, data.oddsOf(head, tick)])),
    chosen: data.chosenAt(tick),
    mapped: data.maps.map(({ numberAt }) => numberAt.has(tick)),
  });
  return Object.freeze({
    count: data.count,
    ticks: data.ticks,
    get hovered() { return state.hovered; },
    get colourBy() { return state.colourBy; },
    get open() { return state.tick === null ? null : tickOf(state.tick); },
    /** What was simulated for the open tick; null if nothing was. */
    get simulated() {
      const life = state.tick !== null && state.simulated && data.simulatedAt(state.simulated, state.tick);
      return life ? tickOf(life.start + state.tick - life.begin) : null;
    },
    get selection() { return state.selection && Array.from(state.selection); },
    /** How the selection differs, once it is tested: a row a feature. */
    get compared() { return selection.rows; },
    /** The same of the numbers of further runs. */
    get comparedFurther() { return selection.further; },
    get labels() { return { ...state.names }; },
    point: (i) => ({
      ...tickOf(tables["point.tick"][i]), row_of_run: tables["point.row"][i], x: tables["point.x"][i], y: tables["point.y"][i],
      features: Object.fromEntries(data.features.map(({ name, values }) => [name, values[i]])),
    }),
    life: (i) => {
      const { start, end } = data.lifeOf(tables["point.tick"][i]);
      return range(start, end).map(tickOf);
    },
    near: (i) => data.near(i),
    /** What moves what in the behaviour and at the lag that are shown. */
    get motion() {
      if (!pane.motion) return null;
      const { behaviour, lag, component, entries } = pane;
      return structuredClone({ behaviour, lag, component, entries, strongest: pane.strongest() });
    },
    placeOf: (i) => embedding.placeOf(i),
  });
}

async function start() {
  const state = new ExplorerState(await ExplorerData.load());
  const embedding = new Embedding(state);
  const selection = new SelectionPanel(state);
  for (const Panel of [Panes, PointerPanel, WorldPane, LifePanel]) new Panel(state);
  const motion = new MotionPane(state);
  if (state.data.facts.circuits.length) new Circuits(state.data.facts);
  new ClusterPanel(state, selection);
  new QuantityCard(state, embedding);
  document.addEventListener("click", ({ target: { dataset: { colour, film, dose } } }) => { // of edits: their buttons
    if (film) showFilm(film, state.data.tables.films[film], dose);
    if (colour) state.colour(colour);
  });
  for (const [id, what] of Object.entries({ "plane": "plane", "overlay": "overlay", "simulation": "simulation", "colour-by": "colourBy" })) {
    listenTo(id, "change", ({ target }) => state.set(what, target.value));
  }
  byId("view-legend").append(...viewLegend(state.data));
  if (state.data.maps.length) {
    byId("view-legend").after(element("p", { class: "note" }, "Saliency: red tiles raise what the map is of, blue ones lower it, each "
      + "tick to its own scale. Point at “map” under a view for what it is of, its scale, and which checks it failed."));
  }
  await embedding.draw();
  new Address(state, new SearchBox(state));
  if (state.layout === "panel" && state.tick === null) state.set("tick", firstTick(state.data));
  for (const mode of ["pan", "lasso", "select"]) {
    listenTo(`mode-${mode}`, "change", () => Plotly.relayout(embedding.div, { dragmode: mode }));
  }
  window.explorer = publicState(state, embedding, selection, motion);
  document.body.dataset.ready = String(Math.round(performance.now()));
}

/** Where a layout that is about a life begins: at the first saliency map, or else at the first point. */
function firstTick({ maps, tables }) { return maps[0]?.numberAt.keys().next().value ?? tables["point.tick"][0]; }

begin(start, failing("its run", "build it again"));
