/* The side panel: the list of agents, the followed agent, the legend. All text goes in as text, never as HTML. */


/** A heading over a list, or over what is said instead of an empty one. */
function listed(heading, kind, items, empty) {
  const list = items.length ? element("ul", { class: kind }, ...items) : element("p", { class: "empty" }, empty);
  return [element("h3", {}, heading), list];
}

class AgentList extends Panel {
  constructor(state) {
    super(state);
    this.list = byId("agent-list");
    this.search = byId("search");
    this.search.addEventListener("input", () => this.filter());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.list.querySelector("li:not([hidden]) button")?.click();
    });
    this.rows = this.data.players.names.map((name, player) => this.row(name, player));
    this.nobody = element("li", { class: "none" }, "no agent has such a name");
    this.list.append(...this.rows.map(({ item }) => item), this.nobody);
    this.filter();
  }

  row(name, player) {
    const mark = element("span");
    const label = element("span", { class: "state" });
    const button = element(
      "button", { type: "button", "aria-label": `Follow ${name}`, onclick: () => this.toggle(player) },
      mark, element("span", { class: "name", title: name }, name), label,
    );
    return { item: element("li", {}, button), button, mark, label, text: "", key: "" };
  }

  toggle(player) { this.state.follow(this.state.followed === player ? null : player); }

  /** An agent's number alone finds that agent; any other text, all whose name holds it. */
  filter() {
    const wanted = this.search.value.trim().toLowerCase(), { ids, names } = this.data.players;
    const isHit = /^\d+$/.test(wanted) ? (player) => String(ids[player]) === wanted
      : (player) => names[player].toLowerCase().includes(wanted);
    this.rows.forEach(({ item }, player) => { item.hidden = !isHit(player); });
    this.nobody.hidden = this.rows.some(({ item }) => !item.hidden);
  }

  draw() {
    const { tick, followed } = this.state;
    const { players } = this.data;
    this.rows.forEach((row, player) => {
      const alive = players.alive(player, tick), seen = players.lastSeen(player, tick);
      const text = alive ? `health ${players.at("health", player, tick)}` : seen < 0 ? "not there yet" : `died at ${seen}`;
      if (row.text !== text) row.label.textContent = row.text = text;
      const colouring = this.state.colouring(player);
      const key = `${colouring.colour} ${colouring.solid} ${alive} ${followed === player}`;
      if (row.key === key) return;
      row.key = key;
      row.mark.replaceChildren(dot(colouring));
      row.button.classList.toggle("dead", !alive);
      row.item.style.order = alive ? 0 : 1;
      row.button.setAttribute("aria-pressed", String(followed === player));
    });
  }

}

class AgentPanel extends Panel {
  panel = byId("agent");
  now = element("div");
  life = element("div"); // its events, which stay while time passes: with focus, clicks and scrolling

  constructor(state) {
    super(state);
    this.panel.append(this.now, this.life);
  }

  draw() {
    const { followed } = this.state;
    document.body.classList.toggle("following", followed !== null);
    this.panel.hidden = followed === null;
    if (followed === null) return;
    if (this.shown !== followed) {
      const rows = this.data.eventsOf[followed].map((event) => element(
        "li", {},
        element("button", { type: "button", "aria-label": `Go to tick ${event.tick}`, onclick: () => this.state.goTo(event) }, String(event.tick)),
        this.data.describe(event),
      ));
      this.life.replaceChildren(...listed("Life", "log", rows, "nothing"));
    }
    this.shown = followed;
    const focused = document.activeElement?.dataset?.keep;
    this.now.replaceChildren(...this.content(followed, Math.max(0, this.data.players.lastSeen(followed, this.state.tick))));
    if (focused) this.now.querySelector(`[data-keep="${focused}"]`)?.focus();
  }

  content(player, tick) {
    const { players, facts, tables } = this.data, name = players.names[player];
    const value = (property) => players.at(property, player, tick);
    const worn = (slot) => (slot ? element("span", { class: "slot" }, `worn: ${slot}`) : null);
    return [
      element(
        "div", { class: "head" }, dot(this.state.colouring(player)), element("h2", {}, name),
        this.state.centred ? null
          : element("button", { type: "button", "data-keep": "centre", title: "F", onclick: () => this.state.set("centred", true) }, "Centre"),
        element("button", { type: "button", "data-keep": "close", "aria-label": `Stop following ${name}`, title: "Esc", onclick: () => this.state.follow(null) }, "×"),
      ),
      this.about(player),
      element("div", { class: "bars" }, ...VITALS.map((vital) => vitalBar(vital, value(vital)))),
      element("div", { class: "facts" }, ...[
        ["level", value("level")], ["gold", value("gold")], ["kills", value("kills")],
        ["row, column", `${value("row")}, ${value("col")}`],
        ["damage dealt", value("inflicted")], ["damage taken", value("received")],
        ["frozen", value("frozen") ? counted(value("frozen"), "tick") : "no"],
      ].map(([name, text]) => element("div", { "data-fact": name }, element("b", {}, String(text)), name))),
      ...this.fight(player, tick),
      element("h3", {}, "Skills: level (experience)"),
      element("div", { class: "skills" }, ...facts.skills.map((skill) => element(
        "div", {}, element("span", {}, skill), `${value(`level.${skill}`)} (${value(`experience.${skill}`)})`,
      ))),
      ...listed("Inventory", "items", tables.inventories[value("inventory")].map(({ name: item, level, quantity, slot }) => element(
        "li", {}, `${quantity > 1 ? `${quantity} × ` : ""}${item}, level ${level}`, worn(slot),
      )), "empty"),
    ];
  }

  about(player) {
    const death = this.data.deathOf(player, this.state.tick), { label, solid } = this.state.colouring(player);
    const cluster = this.state.colourBy === "cluster" && !death
      ? ` · ${label}${solid || label === "no label" ? "" : " (propagated)"}` : "";
    const fate = death ? `${this.data.describe(death).replace("dies", "died")}, at tick ${death.tick}` : "alive";
    return element("p", { class: "about" }, `${this.data.policyOf(player).name} · ${fate}${cluster}`);
  }

  /** Whom it attacks, and who attacks it, at this tick. */
  fight(player, tick) {
    if (tick !== this.state.tick) return [];
    const { players } = this.data;
    const lines = this.data.attackersOf(players.ids[player], tick).map(({ id, style }) => ["attacked by ", id, style]);
    const target = players.at("target", player, tick);
    if (target) lines.unshift(["attacks ", target, this.data.facts.styles[players.at("style", player, tick)]]);
    const items = lines.map(([verb, id, style]) => element("li", {}, verb, this.link(id), ` (${style})`));
    const damage = this.data.lossOf(player, tick);
    return listed(damage ? `Fight: loses ${damage} health` : "Fight", "fight", items, "nobody");
  }

  /** An entity's name; a player's can be clicked. */
  link(id) {
    const entity = this.data.find(id);
    if (!entity || entity.group !== this.data.players) return element("b", {}, this.data.nameOf(id));
    return element("button", { type: "button", onclick: () => this.state.follow(entity.index) }, this.data.nameOf(id));
  }

}

class Legend extends Panel {
  constructor(state) {
    super(state);
    this.agents = byId("legend-agents");
    byId("legend-npcs").append(...npcLegend(this.data.facts.npcKinds));
    byId("legend-marks").append(
      deathLegend(), ...this.data.facts.styles.map((style) => attackLegend(`${style} attack`, style)),
    );
  }

  draw() {
    const { colourBy, data: { facts, players } } = this.state;
    const living = players.living(this.state.tick).map((player) => this.state.colouring(player).label);
    const counts = Map.groupBy(living, (label) => label);
    const groups = Object.values(colourBy === "policy" ? facts.policies : facts.clusters);
    const entries = groups.map(({ name, colour }) => ({ name, colour, count: counts.get(name)?.length ?? 0 }));
    const key = JSON.stringify([entries, colourBy]);
    if (key === this.key) return;
    this.key = key;
    const items = entries.map(({ name, colour, count }) => element(
      "li", {}, dot({ colour, solid: name !== "no label" }), name,
      element("span", { class: "count" }, `${count} alive`),
    ));
    const hollow = (context) => drawPlayer(context, 8, 8, 5, { colour: "#ffffff", solid: false });
    if (colourBy === "cluster") items.push(legendItem("hollow: label of an earlier tick, or none yet", hollow));
    this.agents.replaceChildren(element("ul", { "aria-label": `Agents by ${colourBy}` }, ...items));
  }
}
