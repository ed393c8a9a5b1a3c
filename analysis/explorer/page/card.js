"use strict";

/* A tick: what was seen, and what was done and happened. */

/** The cluster of a tick: a filled mark where it is the tick's own, a hollow one where it was propagated. */
function clusterChip(state, tick) {
  const { tables } = state.data;
  const [label, own] = [tables.label[tick], tables.own[tick] !== 0];
  const mark = element("span", { class: own ? "chip own" : "chip propagated", "aria-hidden": "true" });
  mark.style.borderColor = state.data.colourOf(label);
  mark.style.background = own ? state.data.colourOf(label) : "transparent";
  const propagated = own ? "" : " (propagated)";
  return element("span", { class: "cluster" }, mark, state.called(label) + propagated);
}

/** A tick as a card: its view and its cluster. */
function viewCard(state, tick, width) {
  const { data } = state;
  const canvas = element("canvas", { role: "img", "aria-label": `View at tick ${data.tables.tick[tick]}: ${inWords(data, tick)}` });
  drawView(canvas, data, tick, width, data.mapOver(state.map, tick));
  return element(
    "figure", { class: "card" }, canvas,
    element("figcaption", {}, element("b", {}, `tick ${data.tables.tick[tick]}`), clusterChip(state, tick), mapLine(state.map, tick)),
  );
}

/** That there is a map over a view, and whether its checks failed; null where there is none. */
function mapLine(map, tick) {
  const number = map?.numberAt.get(tick);
  if (number === undefined) return null;
  const failed = map.failures.length > 0;
  const meaning = `${map.of}: red raises it, blue lowers it, by at most ${shortNumber(map.most[number], 2)} a tile.`;
  return element("span", { class: failed ? "failed" : "dim", title: [meaning, ...map.failures].join(" ") }, failed ? "map, not to be trusted" : "map");
}

/** Vitals, action and events of a tick; side by side where there is room. */
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
  );
}

/** Ticks as a row of small views, each with the colour of its cluster; a click opens the life there. */
function stripOfViews(state, name, ticks, current = null) {
  const { data } = state, { tables } = data;
  return element("div", { class: "strip", role: "group", "aria-label": name }, ...ticks.map((tick) => {
    const canvas = element("canvas");
    drawView(canvas, data, tick, 0, data.mapOver(state.map, tick));
    canvas.style.width = canvas.style.height = "";
    const whose = current === null ? `agent ${tables.agent[tick]}, episode ${tables.episode[tick]}, ` : "";
    const frame = element("button", {
      type: "button", title: `${whose}tick ${tables.tick[tick]}: ${state.called(tables.label[tick])}, ${data.action(tick)}`,
      ...(tick === current ? { "aria-current": "true" } : {}), onclick: () => state.set("tick", tick),
    }, canvas);
    frame.style.borderColor = data.colourOf(tables.label[tick]);
    return frame;
  }));
}
