"use strict";

/* One tick of the rollout: the view with the saliency map over it, vitals, what the agent does and how sure it is. */

const UP = [178, 24, 43], DOWN = [33, 102, 172];
const WASH = 0.62; // under a map, the view pales, so that blue water is not taken for blue on the map

class Player {
  constructor(state) {
    this.state = state;
    this.view = document.getElementById("view");
    this.hovered = null;
    this.timer = null;
    const on = (id, what, act) => document.getElementById(id)?.addEventListener(what, act);
    on("play", "click", () => this.play());
    on("tick", "input", ({ target }) => { this.pause(); state.go(Number(target.value)); });
    on("previous", "click", () => state.step(-1));
    on("next", "click", () => state.step(1));
    on("speed", "change", ({ target }) => { state.set("speed", Number(target.value)); });
    on("target", "change", ({ target }) => { state.later = 0; state.set("target", Number(target.value)); });
    on("later", "input", ({ target }) => state.set("later", Number(target.value)));
    this.view.addEventListener("mousemove", (event) => this.hover(event));
    this.view.addEventListener("mouseleave", () => { this.hovered = null; this.tell(); });
    state.on(["rollout", "at", "target", "later", "only", "from"], () => this.draw());
    state.on(["speed"], () => { if (state.playing) { this.pause(); this.play(); } });
  }

  play() {
    const { state } = this;
    if (state.playing) { this.pause(); return; }
    if (state.at === state.length - 1) state.go(0);
    state.set("playing", true);
    this.button("⏸", "Pause");
    this.timer = setInterval(() => (state.at + 1 < state.length ? state.go(state.at + 1) : this.pause()), 1000 / state.speed);
  }

  pause() {
    clearInterval(this.timer);
    this.state.set("playing", false);
    this.button("▶", "Play");
  }

  button(text, label) {
    const button = document.getElementById("play");
    button.textContent = text;
    button.setAttribute("aria-label", label);
  }

  resize() {
    const place = this.view.parentElement;
    this.size = Math.max(150, Math.floor(Math.min(place.clientWidth, place.clientHeight)));
    this.draw();
  }

  draw() {
    const { state } = this, { data, tick, map } = state;
    document.getElementById("rollout-name").textContent = nameOf(data, state.rollout);
    const number = Array.from({ length: state.rollout }, (_, i) => i).filter((i) => state.shown(i)).length + 1;
    document.getElementById("rollout-number").textContent = state.shown(state.rollout) ? `${number} of ${state.shownCount}` : `of ${state.shownCount}`;
    const slider = document.getElementById("tick");
    slider.max = state.length - 1;
    slider.value = state.at;
    document.getElementById("clock").textContent = `tick ${data.tables.tick[tick]} (${state.at + 1} of ${state.length})`;
    const scale = drawView(this.view, data, tick, this.size, map ? (context, side) => this.overlay(context, side, map) : undefined);
    if (map) this.rings(this.view.getContext("2d"), scale, map);
    this.view.setAttribute("aria-label", `The agent's view: ${inWords(data, tick)}`);
    document.getElementById("vitals").replaceChildren(
      ...VITALS.map((name) => vitalBar(name, data.vitals(tick)[name])), this.behaviourLine(tick),
    );
    this.drawActions(tick);
    this.drawSaliency(map);
    this.tell();
  }

  behaviourLine(tick) {
    const { data } = this.state, behaviour = data.behaviour(tick), own = data.tables.own[tick] !== 0;
    const chip = markCanvas((context) => drawShape(context, data.shapeOf(behaviour), 8, 8, 5.5, data.colourOf(behaviour), "#00000055"));
    const how = behaviour < 0 || own ? "" : " (by vote)";
    return element("p", { class: "now", title: behaviour < 0 ? "Behaviours begin with the seventh tick of a life." : "" }, chip, data.nameOf(behaviour) + how);
  }

  /** Pale tiles with red and blue over them. */
  overlay(context, scale, map) {
    const { side } = this.state.data.facts;
    context.fillStyle = `rgba(255, 255, 255, ${WASH})`;
    context.fillRect(0, 0, side * scale, side * scale);
    map.tiles.forEach((value, i) => {
      if (!value) return;
      context.fillStyle = `rgba(${(value > 0 ? UP : DOWN).join(", ")}, ${0.9 * Math.abs(value) / (map.most || 1)})`;
      context.fillRect((i % side) * scale, Math.floor(i / side) * scale, scale + 0.5, scale + 0.5);
    });
  }

  /** A ring around each entity that matters, as wide as it does. */
  rings(context, scale, map) {
    const middle = this.state.data.facts.side / 2;
    this.state.data.others(this.state.tick).forEach(({ down, right }, i) => {
      const value = map.entities[i] / (map.most || 1);
      if (Math.abs(value) < 0.02) return;
      context.beginPath();
      context.arc((middle + right) * scale, (middle + down) * scale, 0.52 * scale, 0, 2 * Math.PI);
      context.lineWidth = 1 + 4 * Math.abs(value);
      context.strokeStyle = `rgb(${(value > 0 ? UP : DOWN).join(", ")})`;
      context.stroke();
    });
  }

  /** What the agent chose, and the probabilities of the options. */
  drawActions(tick) {
    const { data } = this.state, { heads, probabilities } = data.facts;
    const rows = [];
    for (const [head, options] of Object.entries(probabilities).reverse()) {
      const found = data.probabilities(head, tick);
      if (found) rows.push(element("h3", {}, IN_WORDS[head] ?? head), ...options.map((name, i) => bar(name, found[i])));
    }
    const others = heads.map(({ name }, i) => [name, data.chosen(i, tick)])
      .filter(([name, value]) => value !== null && !(probabilities[name] && data.probabilities(name, tick)) && value < 0.995);
    if (others.length) {
      rows.push(element("h3", {}, "what it chose in other heads"), ...others.map(([name, value]) => bar(IN_WORDS[name] ?? name, value)));
    }
    document.getElementById("action").textContent = data.action(tick);
    const none = "The dump does not record probabilities.";
    document.getElementById("probabilities").replaceChildren(...(rows.length ? rows : [element("p", { class: "dim" }, "chosen" in data.tables ? "No choice: one option of each kind." : none)]));
  }

  drawSaliency(map) {
    const place = document.getElementById("saliency-parts");
    if (!place) return;
    const { state } = this, maps = state.data.maps[state.target];
    const slider = document.getElementById("later");
    slider.max = maps?.lags ?? 0;
    slider.value = state.later;
    slider.disabled = !maps?.lags;
    document.getElementById("later-told").textContent = state.later ? `${state.later} tick${state.later > 1 ? "s" : ""} later` : "now";
    if (!map) {
      const mapped = maps && state.mapped(state.rollout);
      place.replaceChildren(!maps ? "" : mapped ? "No map from this tick to that one." : "No map of this rollout: choose “With saliency” at the left.");
      return;
    }
    if (!map.most) {
      place.replaceChildren("The target is not defined then: an option is illegal, or nothing counts.");
      return;
    }
    const all = map.parts.reduce((sum, each) => sum + each, 0) || 1;
    const shares = map.parts.map((each, i) => [state.data.facts.parts[i], each / all]).sort((one, other) => other[1] - one[1]);
    const text = shares.filter(([, share]) => share >= 0.005).map(([name, share]) => `${name} ${Math.round(100 * share)}%`).join(", ");
    const failures = maps.target.failures.length ? element("b", { class: "failed" }, `Not to be trusted: ${maps.target.failures.join("; ")}. `) : null;
    place.replaceChildren(...[failures, `Darkest: ±${told(map.most).slice(1)}. Share of |attribution|: ${text || "none"}.`].filter((each) => each));
  }

  hover(event) {
    const box = this.view.getBoundingClientRect(), { side } = this.state.data.facts;
    const column = Math.floor(((event.clientX - box.left) / box.width) * side);
    const row = Math.floor(((event.clientY - box.top) / box.height) * side);
    this.hovered = column < 0 || row < 0 || column >= side || row >= side ? null : { row, column };
    this.tell();
  }

  /** Say what lies under the pointer, and what is attributed to it. */
  tell() {
    const place = document.getElementById("under-pointer"), { data, tick, map } = this.state;
    if (!this.hovered) { place.textContent = "Point at the view to read it."; return; }
    const { side, materials, npcKinds } = data.facts, middle = (side - 1) / 2;
    const [down, right] = [this.hovered.row - middle, this.hovered.column - middle];
    const i = this.hovered.row * side + this.hovered.column;
    const share = (value) => (map ? ` ${told(value)}` : "");
    const others = data.others(tick).map((other, number) => [other, map?.entities[number] ?? 0])
      .filter(([other]) => other.down === down && other.right === right)
      .map(([other, value]) => `${other.kind ? `${npcKinds[other.kind - 1].name} NPC` : "player"} ${other.id}, health ${other.health}${share(value)}`);
    place.textContent = [`${materials[data.view(tick)[i]].name} ${whereabouts(down, right)}${share(map?.tiles[i])}`, ...others].join("; ");
  }
}

const IN_WORDS = {
  "Move.Direction": "move", "Attack.Style": "attack style", "Attack.Target": "attack target", "Use.InventoryItem": "item to use",
  "Destroy.InventoryItem": "item to destroy", "Buy.MarketItem": "offer to buy", "Sell.InventoryItem": "item to sell",
  "Sell.Price": "price", "Give.InventoryItem": "item to give", "Give.Target": "taker", "GiveGold.Target": "payee", "GiveGold.Price": "gold to give",
};

function bar(name, share) {
  const fill = element("i");
  fill.style.width = `${100 * share}%`;
  return element(
    "div", { class: "probability" }, element("span", {}, name), element("div", { class: "bar" }, fill),
    element("span", { class: "number" }, `${Math.round(100 * share)}%`),
  );
}

function whereabouts(down, right) {
  const parts = [];
  if (down) parts.push(`${Math.abs(down)} ${down < 0 ? "north" : "south"}`);
  if (right) parts.push(`${Math.abs(right)} ${right < 0 ? "west" : "east"}`);
  return parts.join(", ") || "underfoot";
}
