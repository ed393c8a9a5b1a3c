"use strict";

/* A tick as a card. */

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

/** A tick as a card: its view, vitals, action and cluster. */
function viewCard(state, tick, width) {
  const { data } = state;
  const canvas = element("canvas", { role: "img", "aria-label": `View at tick ${data.tables.tick[tick]}: ${inWords(data, tick)}` });
  drawView(canvas, data, tick, width);
  const vitals = data.vitals(tick);
  const target = data.others(tick).find(({ attacked }) => attacked);
  return element(
    "figure", { class: "card" }, canvas,
    element(
      "figcaption", {},
      element("b", {}, `tick ${data.tables.tick[tick]}`), clusterChip(state, tick),
      ...VITALS.map((name) => vitalBar(name, vitals[name])),
      element("span", { class: "action" }, data.action(tick)),
      ...data.eventsBetween(tick, tick + 1).map(({ text }) => element("span", { class: "event" }, text)),
      target ? element("span", { class: "target" }, `target has health ${target.health}`) : null,
    ),
  );
}
