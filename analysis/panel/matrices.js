"use strict";

/* How components follow and move each other in a behaviour: two matrices, and the strongest entries of one component. */

const LISTED = 6;
const EDGE = 26; // CSS pixels for numbers at the left and below

class Matrices {
  constructor(state) {
    this.state = state;
    this.kinds = [
      { canvas: byId("correlations"), value: (...at) => state.data.correlation(...at), name: "r", most: () => 1 },
      { canvas: byId("jacobians"), value: (...at) => state.data.jacobian(...at), name: "effect", most: () => this.largest() },
    ];
    for (const kind of this.kinds) {
      kind.canvas.addEventListener("mousemove", (event) => this.hover(event, kind));
      kind.canvas.addEventListener("mouseleave", () => { this.tell(""); });
      kind.canvas.addEventListener("click", (event) => this.click(event, kind));
    }
    listenTo("of-behaviour", "change", ({ target }) => (
      state.set("chosenBehaviour", target.value === FOLLOW ? FOLLOW : Number(target.value))));
    listenTo("lag", "input", ({ target }) => state.set("lag", Number(target.value)));
    listenTo("unpin", "click", () => { state.pinned = false; state.set("component", state.component); });
    this.drawn = "";
    state.on(["rollout", "tick", "chosenBehaviour", "lag"], () => this.draw());
    state.on(["component"], () => { this.drawn = ""; this.draw(); });
  }

  resize() {
    const place = this.kinds[0].canvas.parentElement;
    this.size = Math.floor(place.clientWidth);
    this.cell = Math.max(3, (this.size - EDGE) / this.state.data.components);
    this.drawn = "";
    this.draw();
  }

  draw() {
    const { state } = this, key = `${state.behaviour} ${state.lag}`;
    if (key === this.drawn) return;
    this.drawn = key;
    for (const kind of this.kinds) this.matrix(kind);
    const { behaviour } = state, facts = state.data.facts.behaviours[behaviour];
    byId("lag-text").textContent = counted(state.lag, "tick");
    const chip = behaviourMark(facts);
    byId("behaviour-shown").replaceChildren(
      chip, ` behaviour ${behaviour}: ${facts.differences || `${Math.round(100 * facts.share)}% of ticks`}`,
    );
    byId("jacobian-scale").textContent =
      `r ±1, effect ${facts.states ? `±${this.largest().toPrecision(2)} (${facts.states} states)` : "unknown: no states"}`;
    this.list();
  }

  /** The largest effect between different components. */
  largest() {
    const { data, behaviour, lag } = this.state;
    let most = 0;
    for (let later = 0; later < data.components; later++) {
      for (let earlier = 0; earlier < data.components; earlier++) {
        const value = Math.abs(data.jacobian(behaviour, lag, later, earlier));
        if (later !== earlier && value > most) most = value;
      }
    }
    return most || 1;
  }

  matrix({ canvas, value, name, most }) {
    const { state } = this, { data, behaviour, lag } = state, count = data.components, { cell } = this;
    const height = EDGE + cell * count;
    const context = sharp(canvas, this.size, height), darkest = most();
    for (let later = 0; later < count; later++) {
      for (let earlier = 0; earlier < count; earlier++) {
        const number = value(behaviour, lag, later, earlier);
        const [x, y] = [EDGE + earlier * cell, later * cell];
        context.fillStyle = Number.isNaN(number) ? "#c9ced4" : diverging(Math.sign(number) * Math.sqrt(Math.min(1, Math.abs(number) / darkest)));
        context.fillRect(x, y, cell + 0.5, cell + 0.5);
        if (name === "r" && data.significant(behaviour, lag, later, earlier)) {
          context.fillStyle = "#111418";
          context.beginPath();
          context.arc(x + cell / 2, y + cell / 2, Math.max(1, Math.min(2.2, cell / 5)), 0, 2 * Math.PI);
          context.fill();
        }
      }
    }
    context.strokeStyle = styled("edge");
    context.strokeRect(EDGE, 0, cell * count, cell * count);
    context.strokeStyle = "#111418";
    context.lineWidth = 1.5;
    context.strokeRect(EDGE, state.component * cell, cell * count, cell);
    context.strokeRect(EDGE + state.component * cell, 0, cell, cell * count);
    this.numbers(context, count, cell);
  }

  numbers(context, count, cell) {
    const every = [1, 2, 4, 8, 16].find((step) => step * cell >= 11) ?? 16;
    context.fillStyle = styled("dim");
    context.font = "9px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (let k = 0; k < count; k += every) {
      context.textAlign = "right";
      context.fillText(k + 1, EDGE - 3, (k + 0.5) * cell);
      context.textAlign = "center";
      context.fillText(k + 1, EDGE + (k + 0.5) * cell, cell * count + 7);
    }
    context.textAlign = "center";
    context.fillText("earlier component (ic)", EDGE + (cell * count) / 2, cell * count + 19);
    context.save();
    context.translate(7, (cell * count) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText("later component (ic)", 0, 0);
    context.restore();
  }

  /** What moves the component, and what it moves: the strongest effects, and the correlations beside them. */
  list() {
    const { state } = this, { data, component } = state, facts = data.facts.components[component];
    byId("component-name").textContent = `${facts.name}${state.pinned ? " (kept)" : ""}`;
    byId("unpin").hidden = !state.pinned;
    const floor = facts.gaussian_highest === null ? "" : ` (components of Gaussians at most ${facts.gaussian_highest.toFixed(2)})`;
    byId("component-facts").textContent =
      `${(100 * facts.explained).toFixed(1)}% of the variance, stability ${facts.stability.toFixed(2)}${floor}; goes with: ${facts.features}.`;
    const { into, out } = strongest(state);
    const own = data.jacobian(state.behaviour, state.lag, component, component);
    byId("keeps").textContent = Number.isNaN(own) ? "" : `Of one unit, ${signed(own)} is left of itself after ${counted(state.lag, "tick")}.`;
    this.fill("moved-by", into);
    this.fill("moves", out);
  }

  fill(id, rows) {
    const names = this.state.data.facts.components;
    byId(id).replaceChildren(...rows.map(({ component, effect, r, significant }) => element(
      "li", { onclick: () => this.state.look(component, true) },
      element("b", {}, names[component].name), element("span", { class: effect < 0 ? "down" : "up" }, signed(effect)),
      element("span", { class: "dim", title: significant ? "q < 0.05" : "q of 0.05 or more" }, `r ${signed(r)}${significant ? " •" : ""}`),
      element("span", { class: "about dim", title: names[component].features }, names[component].features),
    )), ...(rows.length ? [] : [element("li", { class: "dim" }, "unknown in this behaviour")]));
  }

  under(event, { canvas }) {
    const { x, y } = pointIn(canvas, event), count = this.state.data.components;
    const earlier = Math.floor((x - EDGE) / this.cell), later = Math.floor(y / this.cell);
    return { earlier, later, onLater: later >= 0 && later < count, onEarlier: earlier >= 0 && earlier < count };
  }

  hover(event, kind) {
    const { state } = this, at = this.under(event, kind), names = state.data.facts.components;
    const component = at.onLater ? at.later : at.onEarlier ? at.earlier : -1;
    if (component >= 0 && component !== state.component) state.look(component);
    if (!at.onLater || !at.onEarlier) { this.tell(""); return; }
    const where = [state.behaviour, state.lag, at.later, at.earlier];
    const sure = state.data.significant(...where) ? " (q < 0.05)" : "";
    this.tell(`${names[at.earlier].name} → ${names[at.later].name}: r ${signed(state.data.correlation(...where))}${sure}, effect ${signed(state.data.jacobian(...where))}`);
  }

  click(event, kind) {
    const at = this.under(event, kind);
    if (at.onLater || at.onEarlier) this.state.look(at.onLater ? at.later : at.earlier, true);
  }

  tell(text) { byId("matrix-text").textContent = text || "Point at a cell: row = later component, column = earlier one."; }
}

/** The strongest effects on a component (`into`) and of it (`out`), strongest first: [{component, effect, r, significant}]. */
function strongest(state) {
  const { data, behaviour, lag, component } = state;
  const entry = (later, earlier, other) => ({
    component: other, effect: data.jacobian(behaviour, lag, later, earlier), r: data.correlation(behaviour, lag, later, earlier),
    significant: data.significant(behaviour, lag, later, earlier),
  });
  const others = Array.from({ length: data.components }, (_, k) => k).filter((k) => k !== component);
  const best = (rows) => rows.filter(({ effect }) => Number.isFinite(effect))
    .sort((one, two) => Math.abs(two.effect) - Math.abs(one.effect)).slice(0, LISTED);
  return { into: best(others.map((k) => entry(component, k, k))), out: best(others.map((k) => entry(k, component, k))) };
}
