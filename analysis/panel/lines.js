"use strict";

/* The rollout over time: behaviours as a strip, the value as a line, components as rows of colour. */

const LABELS = 64; // CSS pixels for names at the left
const STRIP = 14, VALUE = 54, GAP = 8, AXIS = 18;
const WIDEST = 3; // standard deviations at the end of the colours

class Lines {
  constructor(state) {
    this.state = state;
    this.canvas = byId("lines");
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => { byId("lines-text").textContent = this.hint; });
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.hint = "Point at a row to see what moves the component and what it moves; click to keep it.";
    byId("lines-text").textContent = this.hint;
    state.on(["rollout", "tick", "component"], () => this.draw());
  }

  get value() { return this.state.data.facts.estimates.includes("value"); }
  get top() { return STRIP + GAP + (this.value ? VALUE + GAP : 0); }

  resize() {
    const place = this.canvas.parentElement;
    this.width = Math.floor(place.clientWidth);
    const room = place.clientHeight - this.top - AXIS;
    this.row = Math.max(9, Math.min(22, Math.floor(room / this.state.data.components)));
    this.draw();
  }

  draw() {
    const { state } = this, { data } = state;
    const bottom = this.top + this.row * data.components;
    const context = this.context = sharp(this.canvas, this.width, bottom + AXIS);
    this.cell = (this.width - LABELS - 6) / state.length;
    const first = data.starts[state.rollout];
    const x = (i) => LABELS + i * this.cell;
    this.label("behaviour", STRIP / 2);
    for (let i = 0; i < state.length; i++) {
      context.fillStyle = data.looks(data.behaviour(first + i)).colour;
      context.globalAlpha = data.tables.own[first + i] || data.behaviour(first + i) < 0 ? 1 : 0.55;
      context.fillRect(x(i), 0, this.cell + 0.5, STRIP);
      context.globalAlpha = 1;
      for (let k = 0; k < data.components; k++) {
        context.fillStyle = diverging(data.component(k, first + i) / WIDEST);
        context.fillRect(x(i), this.top + k * this.row, this.cell + 0.5, this.row);
      }
    }
    if (this.value) this.drawValue(first, x);
    data.facts.components.forEach(({ name }, k) => this.label(name.replace("_", " "), this.top + (k + 0.5) * this.row, k === state.component));
    this.frame(x, bottom, first);
  }

  drawValue(first, x) {
    const { context, state } = this, values = state.data.tables.value.subarray(first, first + state.length);
    const [low, high] = ends(values), top = STRIP + GAP;
    if (low > high) return;
    context.strokeStyle = styled("trough");
    context.strokeRect(LABELS, top, this.cell * state.length, VALUE);
    drawLine(context, values, {
      x: (i) => x(i + 0.5), low, high, top: top + 5, bottom: top + VALUE - 5, colour: styled("text"), width: 1.5,
    });
    this.label("value", top + VALUE / 2);
    context.fillStyle = styled("dim");
    context.font = "9px system-ui, sans-serif";
    context.fillText(high.toPrecision(3), LABELS - 4, top + 6);
    context.fillText(low.toPrecision(3), LABELS - 4, top + VALUE - 4);
    context.font = "11px system-ui, sans-serif";
  }

  /** The row that is looked at, the tick that is shown, and the axis of ticks. */
  frame(x, bottom, first) {
    const { context, state } = this;
    context.lineWidth = 1.5;
    context.strokeStyle = "#111418";
    context.strokeRect(LABELS, this.top + state.component * this.row, this.cell * state.length, this.row);
    context.fillStyle = "rgba(255, 179, 0, 0.35)";
    context.fillRect(x(state.at), 0, this.cell, this.top - GAP);
    context.strokeStyle = "#b36b00";
    context.strokeRect(x(state.at), 0, this.cell, bottom);
    context.fillStyle = styled("dim");
    context.textAlign = "center";
    const every = state.length > 16 ? 8 : 4;
    for (let i = 0; i < state.length; i += every) {
      context.fillText(state.data.tables.tick[first + i], x(i + 0.5), bottom + AXIS - 5);
    }
    context.textAlign = "right";
    context.fillText("tick", LABELS - 6, bottom + AXIS - 5);
  }

  label(text, y, strong = false) {
    this.context.textAlign = "right";
    this.context.textBaseline = "middle";
    this.context.font = `${strong ? "700 " : ""}${Math.min(11, this.row)}px system-ui, sans-serif`;
    this.context.fillStyle = styled("text");
    this.context.fillText(text, LABELS - 4, y);
    this.context.font = "11px system-ui, sans-serif";
  }

  /** Tick and component under the pointer; component -1 above them. */
  under(event) {
    const { x, y } = pointIn(this.canvas, event);
    const at = Math.floor((x - LABELS) / this.cell);
    const component = Math.floor((y - this.top) / this.row);
    return { at, component: component < this.state.data.components ? component : -1 };
  }

  hover(event) {
    const { state } = this, { data } = state, { at, component } = this.under(event);
    if (component >= 0 && component !== state.component) state.look(component);
    const inside = at >= 0 && at < state.length;
    const tick = data.starts[state.rollout] + at;
    const parts = [];
    if (inside) parts.push(`tick ${data.tables.tick[tick]}: ${data.nameOf(data.behaviour(tick))}`);
    if (inside && this.value) parts.push(`value ${rounded(data.tables.value[tick])}`);
    if (inside && component >= 0) parts.push(`${data.facts.components[component].name} ${signed(data.component(component, tick))} standard deviations`);
    byId("lines-text").textContent = parts.join(", ") || this.hint;
  }

  click(event) {
    const { at, component } = this.under(event);
    if (at >= 0 && at < this.state.length) this.state.seek(at);
    if (component >= 0 && at < 0) this.state.look(component, true);
  }
}
