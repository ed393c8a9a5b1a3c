"use strict";

/* A point for each rollout, near others that behave alike; click one to play it. */

const MARGIN = 14;
const REACH = 12; // CSS pixels within which a point is pointed at
const FADED = "#dde1e6";

class Scatter {
  constructor(state) {
    this.state = state;
    this.canvas = byId("scatter");
    this.tip = byId("scatter-tip");
    this.zoom = { scale: 1, x: 0, y: 0 };
    const { tables } = state.data;
    this.range = { x: spanOf(tables["rollout.x"]), y: spanOf(tables["rollout.y"]) };
    this.values = new Map();
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => { const rollout = this.nearest(event); if (rollout >= 0) state.open(rollout); });
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("dblclick", () => { this.zoom = { scale: 1, x: 0, y: 0 }; this.draw(); });
    state.on(["rollout", "colourBy", "only", "from"], () => this.draw());
    state.on(["whole"], () => { this.values.clear(); this.draw(); }); // means were of the ticks unpacked until then
  }

  /** Place of a rollout in CSS pixels. */
  placeOf(rollout) {
    const { tables } = this.state.data;
    const size = this.size - 2 * MARGIN;
    const x = MARGIN + size * (tables["rollout.x"][rollout] - this.range.x[0]) / this.range.x[1];
    const y = MARGIN + size * (1 - (tables["rollout.y"][rollout] - this.range.y[0]) / this.range.y[1]);
    return { x: x * this.zoom.scale + this.zoom.x, y: y * this.zoom.scale + this.zoom.y };
  }

  resize() {
    this.size = Math.floor(Math.min(this.canvas.parentElement.clientWidth, this.canvas.parentElement.clientHeight));
    this.draw();
  }

  draw() {
    const { data } = this.state;
    const context = sharp(this.canvas, this.size, this.size);
    const order = Array.from({ length: data.count }, (_, i) => i);
    for (const rollout of order) if (!this.state.shown(rollout)) this.point(context, rollout, true);
    for (const rollout of order) if (this.state.shown(rollout)) this.point(context, rollout, false);
    const { x, y } = this.placeOf(this.state.rollout);
    drawRing(context, x, y, 8, [[5, "#ffffff"], [2.5, "#111418"]]);
    this.scale();
  }

  point(context, rollout, faded) {
    const { data } = this.state;
    const { x, y } = this.placeOf(rollout);
    if (x < -9 || y < -9 || x > this.size + 9 || y > this.size + 9) return;
    const radius = data.count > 2000 ? 2.2 : data.count > 500 ? 3 : 4;
    const main = data.tables["rollout.main"][rollout], simulated = data.source(rollout).simulated;
    shapePath(context, data.looks(main).shape, x, y, radius);
    const colour = faded ? FADED : this.colourOf(rollout);
    if (simulated) {
      context.lineWidth = 1.1;
      context.strokeStyle = colour;
      context.stroke();
    } else {
      context.fillStyle = colour;
      context.fill();
    }
  }

  colourOf(rollout) {
    const { data, colourBy } = this.state;
    if (colourBy === "behaviour") return data.looks(data.tables["rollout.main"][rollout]).colour;
    const { values, low, high } = this.valuesOf(colourBy);
    return sequential((values[rollout] - low) / (high - low || 1));
  }

  /** Means of a column over each rollout; colours span all but the outermost hundredths. */
  valuesOf(name) {
    if (!this.values.has(name)) {
      const values = Float64Array.from({ length: this.state.data.count }, (_, i) => this.state.data.mean(name, i));
      const sorted = Float64Array.from(values).sort();
      const at = (share) => sorted[Math.floor(share * (sorted.length - 1))];
      this.values.set(name, { values, low: at(0.01), high: at(0.99) });
    }
    return this.values.get(name);
  }

  /** The scale of colours, where they are of numbers. */
  scale() {
    const place = byId("colour-scale");
    const { colourBy } = this.state;
    place.hidden = colourBy === "behaviour";
    if (place.hidden) return;
    const { low, high } = this.valuesOf(colourBy);
    const bar = element("i");
    bar.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(sequential).join(", ")})`;
    place.replaceChildren(`${rounded(low)}`, bar, `${rounded(high)}`);
  }

  nearest(event) {
    const { x, y } = pointIn(this.canvas, event);
    let [best, nearest] = [REACH, -1];
    for (let rollout = 0; rollout < this.state.data.count; rollout++) {
      const place = this.placeOf(rollout);
      const apart = Math.hypot(place.x - x, place.y - y);
      if (apart < best && this.state.shown(rollout)) [best, nearest] = [apart, rollout];
    }
    return nearest;
  }

  hover(event) {
    const rollout = this.nearest(event);
    this.canvas.style.cursor = rollout >= 0 ? "pointer" : "default";
    this.tip.hidden = rollout < 0;
    if (rollout >= 0) this.tip.textContent = titleOf(this.state.data, rollout);
  }

  wheel(event) {
    event.preventDefault();
    const { x, y } = pointIn(this.canvas, event);
    const scale = Math.max(1, Math.min(40, this.zoom.scale * Math.exp(-event.deltaY / 400)));
    const ratio = scale / this.zoom.scale;
    this.zoom = scale === 1 ? { scale, x: 0, y: 0 } : { scale, x: x - ratio * (x - this.zoom.x), y: y - ratio * (y - this.zoom.y) };
    this.draw();
  }
}

/** Least value, and how far the greatest is above it. */
function spanOf(values) {
  const [low, high] = ends(values);
  return [low, high - low || 1];
}

/** Which rollout it is, and its behaviour. */
function titleOf(data, rollout) {
  return `${nameOf(data, rollout)}, ${data.nameOf(data.tables["rollout.main"][rollout])}`;
}

/** Which rollout it is, in words. */
function nameOf(data, rollout) {
  const { tables } = data;
  const kind = data.source(rollout).simulated ? "Simulated" : "Real";
  const who = `agent ${tables["rollout.agent"][rollout]}, episode ${tables["rollout.episode"][rollout]}`;
  return `${kind}: ${who}, ticks ${tables["rollout.first"][rollout]}–${tables["rollout.last"][rollout]}`;
}

/** The behaviours as a list: colour, share of ticks, what is different in them; a click shows only their rollouts. */
class BehaviourList {
  constructor(state) {
    this.state = state;
    this.list = byId("behaviours");
    state.on(["only", "from"], () => this.draw());
    this.draw();
  }

  draw() {
    const { state } = this;
    this.list.replaceChildren(...state.data.facts.behaviours.map((behaviour) => {
      const chip = behaviourMark(behaviour);
      const button = element(
        "button", {
          type: "button", "aria-pressed": String(state.only === behaviour.number),
          title: `${(100 * behaviour.share).toFixed(1)}% of the ticks that the run followed; the main behaviour of ${behaviour.rollouts} rollouts here. ${behaviour.differences}`,
          onclick: () => state.set("only", state.only === behaviour.number ? null : behaviour.number),
        },
        chip, element("b", {}, String(behaviour.number)), element("span", { class: "share" }, `${Math.round(100 * behaviour.share)}%`),
        element("span", { class: "differences" }, behaviour.differences || "–"),
      );
      return element("li", {}, button);
    }));
  }
}

/** A behaviour's mark, as in the scatter. */
function behaviourMark({ shape, colour }) {
  return markCanvas((context) => drawShape(context, shape, 8, 8, 5.5, colour, "#00000055"));
}
