/* A tick: what was seen, and what was done and happened. */

/** A tick as a card: its view, and its cluster with a filled mark where it is the tick's own, a hollow one where it was propagated. */
function viewCard(state, tick, width) {
  const { data } = state, label = data.tables.label[tick], own = data.tables.own[tick] !== 0;
  const mark = dot({ colour: data.colourOf(label), solid: own }, own ? "chip own" : "chip propagated");
  const canvas = element("canvas", { role: "img", "aria-label": `View at tick ${data.tables.tick[tick]}: ${inWords(data, tick)}` });
  canvas.addEventListener("mousemove", (event) => { canvas.title = readAt(state, tick, tileUnder(canvas, event, data.facts.side)); });
  drawView(canvas, data, tick, width, data.mapOver(state.map, tick));
  return element(
    "figure", { class: "card" }, canvas,
    element(
      "figcaption", {}, element("b", {}, `tick ${data.tables.tick[tick]}`),
      element("span", { class: "cluster" }, mark, state.called(label) + data.originOf(label, own)), mapLine(state, tick),
    ),
  );
}

/** What lies on a tile of a tick's view, and what a map says of it. */
function readAt({ data, map }, tick, tile) {
  if (!tile) return "";
  const { materials } = data.facts, here = data.mapAt(map, tick);
  const value = (steps) => (here ? ` ${rounded((steps / MAP_STEPS) * here.most, 2)}` : "");
  const others = data.others(tick).map((other, i) => ({ ...other, i })).filter(({ down, right }) => down === tile.down && right === tile.right);
  return [
    `${materials[data.view(tick)[tile.number]].name} ${whereabouts(tile.down, tile.right)}${value(here?.tiles[tile.number])}`,
    ...others.map((other) => `${data.calledOther(other)}, health ${other.health}${value(here?.entities[other.i])}`),
  ].join("; ");
}

/** That there is a map over a view, and whether its checks failed; null where there is none. */
function mapLine({ data, map }, tick) {
  const here = data.mapAt(map, tick);
  if (!here) return null;
  const failed = map.failures.length > 0;
  const known = data.facts.parts.map((name, i) => [name, here.parts[i]]).filter(([, percent]) => percent <= 100);
  const parts = known.map(([name, percent]) => `${name} ${percent}%`).join(", ");
  const meaning = `${map.of}: red raises it, blue lowers it, by at most ${shortNumber(here.most, 2)}. Parts of the observation: ${parts}.`;
  return element("span", { class: failed ? "failed" : "dim", title: [meaning, ...map.failures].join(" ") }, failed ? "map, not to be trusted" : "map");
}

const IN_WORDS = {
  "Move.Direction": "move", "Attack.Style": "attack style", "Attack.Target": "attack target", "Use.InventoryItem": "item to use",
  "Destroy.InventoryItem": "item to destroy", "Buy.MarketItem": "offer to buy", "Sell.InventoryItem": "item to sell",
  "Sell.Price": "price", "Give.InventoryItem": "item to give", "Give.Target": "taker", "GiveGold.Target": "payee", "GiveGold.Price": "gold to give",
};
const SURE = 0.995; // no choice, or none worth a row

/** Vitals, action, events and probabilities of a tick; side by side where there is room. */
function tickFacts({ data }, tick) {
  const vitals = data.vitals(tick);
  const target = data.others(tick).find(({ attacked }) => attacked);
  return element(
    "div", { class: "tick-facts" },
    element("div", {}, ...VITALS.map((name) => vitalBar(name, vitals[name]))),
    element(
      "div", {}, element("span", { class: "action", title: data.action(tick) }, data.action(tick)),
      target ? element("span", { class: "target" }, `target has health ${target.health}`) : null,
      ...data.eventsBetween(tick, tick + 1).map(({ text }) => element("span", { class: "event" }, text)),
    ),
    ...(data.tables.chosen ? [element("div", { class: "odds" }, ...oddsAt(data, tick))] : []),
  );
}

/** The probabilities of the options of some action heads, and of what was chosen in the others. */
function oddsAt(data, tick) {
  const bar = (name, share) => barRow("probability", name, `${Math.round(100 * share)}%`, { width: 100 * share });
  const known = Object.entries(data.facts.odds).map(([head, options]) => [head, options, data.oddsOf(head, tick)]).filter(([, , shares]) => shares);
  const heads = known.map(([head]) => head), chosen = data.chosenAt(tick) ?? [];
  const others = data.facts.heads.map((head, i) => [head, chosen[i]]).filter(([head, share]) => share < SURE && !heads.includes(head));
  return [
    ...known.reverse().flatMap(([head, options, shares]) => [element("h3", {}, IN_WORDS[head] ?? head), ...options.map((name, i) => bar(name, shares[i]))]),
    ...(others.length ? [element("h3", {}, known.length ? "what it chose in other heads" : "what it chose")] : []),
    ...others.map(([head, share]) => bar(IN_WORDS[head] ?? head, share)),
  ];
}

/** Ticks as a row of small views, each with the colour of its cluster; a click opens the life there. */
function stripOfViews(state, name, ticks, current = null) {
  const { data } = state, { tables } = data;
  return element("div", { class: "strip", role: "group", "aria-label": name }, ...ticks.map((tick) => {
    const canvas = element("canvas");
    drawView(canvas, data, tick, 0, data.mapOver(state.map, tick));
    canvas.style.width = canvas.style.height = "";
    const whose = current === null ? `agent ${tables.agent[tick]}, episode ${tables.episode[tick]}, ` : "";
    return element("button", {
      type: "button", title: `${whose}tick ${tables.tick[tick]}: ${state.called(tables.label[tick])}, ${data.action(tick)}`,
      style: `border-color: ${data.colourOf(tables.label[tick])}`, "aria-current": tick === current ? "true" : null,
      onclick: () => state.set("tick", tick),
    }, canvas);
  }));
}
