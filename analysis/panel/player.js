"use strict";

/* One tick of the rollout: the view with the saliency map over it, vitals, what the agent does and how sure it is. */

class Player {
  constructor(state) {
    this.state = state;
    this.view = byId("view");
    this.hovered = null;
    this.transport = new Transport(state, {
      slider: "tick", clock: () => `tick ${state.data.tables.tick[state.tick]} (${state.at + 1} of ${state.length})`,
      keys: { "ArrowUp": () => state.step(-1), "ArrowDown": () => state.step(1) },
    });
    listenTo("previous", "click", () => state.step(-1));
    listenTo("next", "click", () => state.step(1));
    listenTo("target", "change", ({ target }) => { state.later = 0; state.set("target", Number(target.value)); });
    listenTo("later", "input", ({ target }) => state.set("later", Number(target.value)));
    this.view.addEventListener("mousemove", (event) => this.hover(event));
    this.view.addEventListener("mouseleave", () => { this.hovered = null; this.tell(); });
    state.on(["rollout", "tick", "target", "later", "only", "from"], () => this.draw());
    state.on(["playing"], () => this.transport.draw());
  }

  resize() {
    const place = this.view.parentElement;
    this.size = Math.max(150, Math.floor(Math.min(place.clientWidth, place.clientHeight)));
    this.draw();
  }

  draw() {
    const { state } = this, { data, tick, map } = state;
    byId("rollout-name").textContent = nameOf(data, state.rollout);
    const number = Array.from({ length: state.rollout }, (_, i) => i).filter((i) => state.shown(i)).length + 1;
    byId("rollout-number").textContent = state.shown(state.rollout) ? `${number} of ${state.shownCount}` : `of ${state.shownCount}`;
    this.transport.draw();
    const scale = drawView(this.view, data, tick, this.size, map ? (context, scale) => drawMapOver(context, data.facts.side, scale, map.tiles, map.most) : undefined);
    if (map) this.rings(this.view.getContext("2d"), scale, map);
    this.view.setAttribute("aria-label", `The agent's view: ${inWords(data, tick)}`);
    byId("vitals").replaceChildren(
      ...VITALS.map((name) => vitalBar(name, data.vitals(tick)[name])), this.behaviourLine(tick),
    );
    this.drawActions(tick);
    this.drawSaliency(map);
    this.tell();
  }

  behaviourLine(tick) {
    const { data } = this.state, behaviour = data.behaviour(tick), own = data.tables.own[tick] !== 0;
    const chip = behaviourMark(data.looks(behaviour));
    const how = behaviour < 0 || own ? "" : " (by vote)";
    return element("p", { class: "now", title: behaviour < 0 ? "Behaviours begin with the seventh tick of a life." : "" }, chip, data.nameOf(behaviour) + how);
  }

  /** A ring around each entity that matters, as wide as it does. */
  rings(context, scale, map) {
    const middle = this.state.data.facts.side / 2;
    this.state.data.others(this.state.tick).forEach(({ down, right }, i) => {
      const value = map.entities[i] / (map.most || 1);
      if (Math.abs(value) < 0.02) return;
      const stroke = [1 + 4 * Math.abs(value), `rgb(${(value > 0 ? UP : DOWN).join(", ")})`];
      drawRing(context, (middle + right) * scale, (middle + down) * scale, 0.52 * scale, [stroke]);
    });
  }

  /** What the agent chose, and the probabilities of the options. */
  drawActions(tick) {
    const { data } = this.state, { heads, probabilities } = data.facts;
    const rows = [];
    for (const [head, options] of Object.entries(probabilities).reverse()) {
      const shares = data.probabilities(head, tick);
      if (shares) rows.push(element("h3", {}, IN_WORDS[head] ?? head), ...options.map((name, i) => bar(name, shares[i])));
    }
    const others = heads.map(({ name }, i) => [name, data.chosen(i, tick)])
      .filter(([name, value]) => value !== null && !(probabilities[name] && data.probabilities(name, tick)) && value < 0.995);
    if (others.length) {
      rows.push(element("h3", {}, "what it chose in other heads"), ...others.map(([name, value]) => bar(IN_WORDS[name] ?? name, value)));
    }
    byId("action").textContent = data.action(tick);
    const none = "The dump does not record probabilities.";
    byId("probabilities").replaceChildren(...(rows.length ? rows : [element("p", { class: "dim" }, "chosen" in data.tables ? "No choice: one option of each kind." : none)]));
  }

  drawSaliency(map) {
    const place = byId("saliency-parts");
    if (!place) return;
    const { state } = this, maps = state.data.maps[state.target];
    const slider = byId("later");
    slider.max = maps?.lags ?? 0;
    slider.value = state.later;
    slider.disabled = !maps?.lags;
    byId("later-text").textContent = state.later ? `${counted(state.later, "tick")} later` : "now";
    if (!map) {
      const mapped = maps && state.mapped(state.rollout);
      place.replaceChildren(!maps ? "" : mapped ? "No map from this tick to that one." : "No map of this rollout: choose “With saliency” at the left.");
      return;
    }
    if (!map.most) {
      place.replaceChildren("The target is not defined then: an option is illegal, or nothing counts.");
      return;
    }
    const all = map.parts.reduce((sum, part) => sum + part, 0) || 1;
    const shares = map.parts.map((part, i) => [state.data.facts.parts[i], part / all]).sort((one, other) => other[1] - one[1]);
    const text = shares.filter(([, share]) => share >= 0.005).map(([name, share]) => `${name} ${Math.round(100 * share)}%`).join(", ");
    const failures = maps.target.failures.length ? element("b", { class: "failed" }, `Not to be trusted: ${maps.target.failures.join("; ")}. `) : null;
    place.replaceChildren(...[failures, `Darkest: ±${rounded(map.most).slice(1)}. Share of |attribution|: ${text || "none"}.`].filter((text) => text));
  }

  hover(event) {
    this.hovered = tileUnder(this.view, event, this.state.data.facts.side);
    this.tell();
  }

  /** Say what lies under the pointer, and what is attributed to it. */
  tell() {
    const place = byId("under-pointer"), { data, tick, map } = this.state;
    if (!this.hovered) { place.textContent = "Point at the view to read it."; return; }
    const { materials, npcKinds } = data.facts, { number: i, down, right } = this.hovered;
    const share = (value) => (map ? ` ${rounded(value)}` : "");
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

function bar(name, share) { return barRow("probability", name, `${Math.round(100 * share)}%`, { width: 100 * share }); }
