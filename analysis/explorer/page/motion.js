/* What moves what: how components follow and move each other in a behaviour, as two matrices, and the strongest entries of one. */

const LISTED = 6; // strongest effects on a component, and as many of it
const EDGE = 26; // CSS pixels for numbers at the left and below
const UNKNOWN = -128; // a correlation that is not known
const FOLLOW = "follow"; // the behaviour of the open tick

/** The numbers of a run of analyze_dynamics.py, each of `later` some ticks after `earlier`, in a behaviour. */
class Motion {
  constructor(facts, data, number) {
    Object.assign(this, facts);
    const { tables } = data, named = (name) => tables[`motion.${number}.${name}`];
    [this.r, this.sure, this.moved] = ["r", "significant", "jacobian"].map(named);
    this.count = facts.components.length;
    this.label = facts.labels === null ? tables.label : data.tracks[facts.labels].steps;
    this.behaviours = facts.labels === null ? data.facts.clusters : data.tracks[facts.labels].clusters;
  }

  /** Everything between two components, row by row of the matrices: [{later, earlier, r, effect, sure}]. */
  entries(behaviour, lag) {
    const all = range(0, this.count), first = (behaviour * (this.lags + 1) + lag) * this.count ** 2;
    return all.flatMap((later) => all.map((earlier) => {
      const at = first + later * this.count + earlier, r = this.r[at] === UNKNOWN ? NaN : this.r[at] / 100;
      return { later, earlier, r, effect: this.moved[at], sure: this.sure[at] !== 0 };
    }));
  }
}

class MotionPane extends Panel {
  constructor(state) {
    super(state);
    this.body = byId("motion-body");
    if (!this.data.motions.length) return;
    this.motion = this.data.motions[0];
    Object.assign(this, { chosen: FOLLOW, lag: Math.min(1, this.motion.lags), component: 0, kept: false });
    this.kinds = [
      { canvas: byId("correlations"), name: "r", most: () => 1 },
      { canvas: byId("jacobians"), name: "effect", most: () => this.largest() },
    ];
    this.listen();
    this.choose(0);
  }

  listen() {
    for (const { canvas } of this.kinds) {
      canvas.addEventListener("mousemove", (event) => this.hover(this.under(event, canvas)));
      canvas.addEventListener("mouseleave", () => this.tell(""));
      canvas.addEventListener("click", (event) => this.keep(this.componentAt(this.under(event, canvas))));
    }
    listenTo("motion-run", "change", ({ target }) => this.choose(Number(target.value)));
    listenTo("of-behaviour", "change", ({ target }) => this.change({ chosen: target.value === FOLLOW ? FOLLOW : Number(target.value) }));
    listenTo("lag", "input", ({ target }) => this.change({ lag: Number(target.value) }));
    listenTo("let-go", "click", () => this.change({ kept: false }));
    listenTo("colour-component", "click", () => this.state.colour(`track.${this.motion.components[this.component].track}`));
    new ResizeObserver(() => this.draw()).observe(this.body);
    this.state.on(["tick"], () => { if (this.behaviour !== this.drawn) this.draw(); });
    this.state.on(["pointedTrack"], () => this.lookAt(this.state.pointedTrack));
    this.state.on(["colourBy"], () => this.lookAt(Number(this.state.colourBy.match(/^track\.(\d+)$/)?.[1] ?? -1)));
  }

  change(what) {
    Object.assign(this, what);
    this.draw();
  }

  /** Show another run. */
  choose(number) {
    this.motion = this.data.motions[number];
    const options = this.motion.behaviours.map(({ label }) => element("option", { value: String(label) }, String(label)));
    byId("of-behaviour").replaceChildren(element("option", { value: FOLLOW }, "of this tick"), ...options);
    byId("motion-layer").textContent = this.motion.layer;
    byId("motion-agreement").textContent = this.motion.agreement.toFixed(2);
    byId("lag").max = String(this.motion.lags);
    this.change({ chosen: FOLLOW, lag: Math.min(this.lag, this.motion.lags), component: 0, kept: false });
  }

  /** The behaviour whose matrices are shown: the chosen one, or that of the open tick; before a life's first one, that one. */
  get behaviour() {
    const { tick } = this.state, { label } = this.motion;
    if (this.chosen !== FOLLOW) return this.chosen;
    if (tick === null) return 0;
    const { end } = this.data.lifeOf(tick), first = label.subarray(tick, end).find((own) => own >= 0);
    return first ?? 0;
  }

  /** Look at a component, unless another one is kept. */
  look(component) {
    if (component >= 0 && component !== this.component && !this.kept) this.change({ component });
  }

  /** Look at the component that a number of the page is. */
  lookAt(track) { this.look(this.motion.components.findIndex((one) => one.track === track)); }

  keep(component) {
    if (component >= 0) this.change({ component, kept: !(this.kept && component === this.component) });
  }

  draw() {
    const { behaviour, lag, motion } = this, width = this.kinds[0].canvas.parentElement.clientWidth;
    Object.assign(this, { drawn: behaviour, entries: motion.entries(behaviour, lag) });
    if (!width) return; // put away: drawn once it is shown, which changes its size
    const facts = motion.behaviours.find(({ label }) => label === behaviour);
    this.cell = Math.max(3, (width - EDGE) / motion.count);
    for (const kind of this.kinds) this.matrix(kind, width);
    byId("lag").value = String(lag);
    byId("lag-text").textContent = counted(lag, "tick");
    byId("behaviour-shown").replaceChildren(swatchOf(facts), ` behaviour ${behaviour}: ${facts.description}`);
    const states = motion.states[behaviour];
    byId("effect-scale").textContent = states ? `effect ±${shortNumber(this.largest(), 2)} (${counted(states, "state")})` : "effect unknown: no states";
    this.list();
  }

  /** The largest effect between different components. */
  largest() {
    const between = this.entries.filter(({ later, earlier, effect }) => later !== earlier && Number.isFinite(effect));
    return between.reduce((most, { effect }) => Math.max(most, Math.abs(effect)), 0) || 1;
  }

  matrix({ canvas, name, most }, width) {
    const { cell, motion: { count }, component } = this, side = cell * count;
    const context = sharp(canvas, width, EDGE + side), darkest = most(), dot = Math.max(1, Math.min(2.2, cell / 5));
    for (const { later, earlier, sure, [name]: value } of this.entries) {
      const [x, y] = [EDGE + earlier * cell, later * cell], strength = Math.min(1, Math.sqrt(Math.abs(value) / darkest));
      const colour = (value > 0 ? UP : DOWN).map((part) => Math.round(255 - (255 - part) * strength)); // over white
      context.fillStyle = Number.isNaN(value) ? "#c9ced4" : `rgb(${colour.join(", ")})`;
      context.fillRect(x, y, cell + 0.5, cell + 0.5);
      if (name === "r" && sure) drawDisc(context, x + cell / 2, y + cell / 2, dot, styled("text"));
    }
    for (const [colour, ...box] of [
      [styled("edge"), EDGE, 0, side, side], [styled("text"), EDGE, component * cell, side, cell], [styled("text"), EDGE + component * cell, 0, cell, side],
    ]) {
      context.strokeStyle = colour;
      context.strokeRect(...box);
    }
    this.numbers(context, count, cell);
  }

  numbers(context, count, cell) {
    const every = [1, 2, 4, 8, 16].find((step) => step * cell >= 11) ?? 16, middle = (cell * count) / 2;
    context.fillStyle = styled("dim");
    context.font = "9px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (let k = 0; k < count; k += every) {
      context.textAlign = "right";
      context.fillText(k + 1, EDGE - 3, (k + 0.5) * cell);
      context.textAlign = "center";
      context.fillText(k + 1, EDGE + (k + 0.5) * cell, cell * count + 7);
    }
    context.fillText("earlier component (ic)", EDGE + middle, cell * count + 19);
    context.translate(7, middle);
    context.rotate(-Math.PI / 2);
    context.fillText("later component (ic)", 0, 0);
  }

  /** What is known of the component, what moves it, and what it moves. */
  list() {
    const { motion, component, kept, entries } = this, facts = motion.components[component];
    byId("component-name").textContent = `${facts.name}${kept ? " (kept)" : ""}`;
    byId("let-go").hidden = !kept;
    const floor = facts.gaussian_highest === null ? "" : ` (components of Gaussians at most ${facts.gaussian_highest.toFixed(2)})`;
    byId("component-facts").textContent =
      `${(100 * facts.explained).toFixed(1)}% of the variance, stability ${facts.stability.toFixed(2)}${floor}; goes with: ${facts.features}.`;
    const own = entries.find(({ later, earlier }) => later === component && earlier === component).effect;
    byId("left-of-it").textContent = Number.isNaN(own) ? "" : `Of one unit, ${signed(own)} is left of itself after ${counted(this.lag, "tick")}.`;
    for (const [id, rows] of Object.entries(this.strongest())) byId(id).replaceChildren(...this.rows(rows));
  }

  /** The strongest effects on the component and of it, by the lists that they stand in: [{other, effect, r, sure}] each. */
  strongest() {
    const best = (side, otherSide) => this.entries
      .filter((entry) => entry[side] === this.component && entry[otherSide] !== this.component && Number.isFinite(entry.effect))
      .map((entry) => ({ other: entry[otherSide], ...entry }))
      .sort((one, two) => Math.abs(two.effect) - Math.abs(one.effect)).slice(0, LISTED);
    return { "moved-by": best("later", "earlier"), "moves": best("earlier", "later") };
  }

  rows(rows) {
    if (!rows.length) return [element("li", { class: "dim" }, "unknown in this behaviour")];
    return rows.map(({ other, effect, r, sure }) => {
      const { name, features } = this.motion.components[other];
      return element(
        "li", {}, element("button", { type: "button", title: features, onclick: () => this.keep(other) }, name),
        element("span", { class: effect < 0 ? "down" : "up" }, signed(effect)),
        element("span", { class: "dim", title: sure ? "q < 0.05" : "q of 0.05 or more" }, `r ${signed(r)}${sure ? " •" : ""}`),
        element("span", { class: "about dim" }, features),
      );
    });
  }

  /** The entry under the pointer; -1 for a side that it is beside. */
  under(event, canvas) {
    const { x, y } = pointIn(canvas, event), { count } = this.motion;
    const inside = (place) => (place >= 0 && place < count ? place : -1);
    return { earlier: inside(Math.floor((x - EDGE) / this.cell)), later: inside(Math.floor(y / this.cell)) };
  }

  componentAt({ earlier, later }) { return later >= 0 ? later : earlier; }

  hover(at) {
    this.look(this.componentAt(at));
    this.tell("");
    if (at.later < 0 || at.earlier < 0) return;
    const [from, to] = [at.earlier, at.later].map((component) => this.motion.components[component].name);
    const { r, effect, sure } = this.entries[at.later * this.motion.count + at.earlier];
    this.tell(`${from} → ${to}: r ${signed(r)}${sure ? " (q < 0.05)" : ""}, effect ${signed(effect)}`);
  }

  tell(text) { byId("matrix-text").textContent = text || "Point at a cell: row = later component, column = earlier one."; }
}

