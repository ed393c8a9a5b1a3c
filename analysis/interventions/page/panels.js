/* What the page says in words: who lives in each arm, and the picked agent in both. */

class ArmHeadings extends Panel {
  draw() {
    const { state } = this;
    byId("edited-title").textContent = state.film.name.replace("edit", "Edited");
    const drawn = state.facts.drawn.filter(Boolean).length;
    for (const side of SIDES) {
      const living = state.living(side);
      const end = side === "edited" ? state.film.end : state.facts.unedited;
      const over = state.tick >= end && end < state.data.ticks - 1 ? ` The episode ended at tick ${end}.` : "";
      byId(`${side}-living`).textContent = `Alive: ${living.drawn} of ${drawn} ${side === "edited" ? "edited agents" : "agents drawn at random"}, `
        + `${living.others} of ${state.data.players.count - drawn} others.${over}`;
    }
  }
}

class AgentTable {
  constructor(state) {
    this.state = state;
    this.panel = byId("agent");
    this.choice = byId("agent-choice");
    const { ids, indices } = state.data.players, groups = Map.groupBy(indices, (player) => state.isDrawn(player));
    for (const [label, isDrawn] of [["edited", true], ["others", false]]) {
      const group = groups.get(isDrawn) ?? [];
      const options = group.map((player) => element("option", { value: player }, `agent ${ids[player]}`));
      if (group.length) this.choice.append(element("optgroup", { label }, ...options));
    }
    this.choice.addEventListener("change", () => state.follow(this.choice.value === "" ? null : Number(this.choice.value)));
  }

  draw() {
    const { followed } = this.state;
    this.choice.value = followed === null ? "" : String(followed);
    byId("show-paths").hidden = followed === null;
    const content = followed === null
      ? [element("p", { class: "dim" }, "Hover over an agent to see its state in both arms. Click it, or choose it here, to keep it and to see its two paths.")]
      : [this.table(followed), element("p", { id: "agent-difference" }, this.difference(followed))];
    this.panel.replaceChildren(...content);
  }

  table(player) {
    const { state } = this;
    const values = SIDES.map((side) => state.valuesOf(side, player));
    const row = (name, cells) => element(
      "tr", {}, element("th", { scope: "row" }, name), ...cells.map((cell) => element("td", {}, String(cell))),
    );
    return element(
      "table", { "aria-label": state.nameOf(player) },
      element("thead", {}, element(
        "tr", {}, element("th", { scope: "col" }, state.nameOf(player)),
        ...SIDES.map((side) => element("th", { scope: "col" }, pathMark(side), side)),
      )),
      element(
        "tbody", {},
        row("state", SIDES.map((side) => state.fateOf(side, player))),
        ...["health", "food", "water", "level"].map((name) => row(name, values.map((own) => own[name]))),
        row("row, column", values.map(({ row: line, col }) => `${line}, ${col}`)),
      ),
    );
  }

  difference(player) {
    const { first, differs } = this.state.film, tick = first[player];
    if (tick < 0) return "This agent is in the same place and state in both arms at every tick.";
    return `This agent first differs at tick ${tick}: ${differs[player].join(", ")}.`;
  }
}

/** A stroke as paths of a side are drawn. */
function pathMark(side) { return element("span", { class: `path ${side}`, "aria-hidden": "true" }); }

function mapLegend({ npcKinds }) {
  const agent = (colour, radius) => (context) => drawPlayer(context, 8, 8, radius, { colour, solid: true });
  return [
    legendItem("agent drawn at random, edited on the right", agent(COLOURS.drawn, 5.5)),
    legendItem("other agent", agent(COLOURS.other, 3.8)), ...npcLegend(npcKinds), deathLegend(),
    element("li", {}, pathMark("unedited"), "path of the chosen agent, unedited"),
    element("li", {}, pathMark("edited"), "its path, edited"),
  ];
}
