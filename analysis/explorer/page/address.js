/*
 * The address of what is shown, to keep or to send: #agent=35&episode=0&tick=104&colour=self_food opens the page there;
 * plane=RUN shows the embedding of that run, map=RUN the saliency maps of that run, simulated=EDITS the lives that were simulated so,
 * layout=panel takes another layout; hide=map,clusters puts panes away; select=food < 10 selects the points that these words find in the search box.
 */

class Address {
  constructor(state, search) {
    this.state = state;
    this.search = search;
    const lists = {
      colour: ["colour-by", "colourBy"], plane: ["plane", "plane"], map: ["overlay", "overlay"],
      simulated: ["simulation", "simulation"], layout: ["layout", "layout"],
    };
    this.choices = Object.entries(lists).map(([key, [id, what]]) => [key, byId(id), what]).filter(([, list]) => list);
    this.read();
    window.addEventListener("hashchange", () => this.read());
    state.on(["tick", "colourBy", "plane", "overlay", "simulation", "layout", "away", "selection"], () => this.write());
  }

  /** Show what the address names, and else what the page shows at first. A life stays open; what this page does not hold is left as it is. */
  read() {
    const named = new URLSearchParams(location.hash.slice(1)), { state } = this;
    for (const [key, list, what] of this.choices) {
      const options = [...list.options], wanted = named.get(key) ?? calledIn(list, options[0]);
      const option = options.find((one) => calledIn(list, one) === wanted) ?? options.find(({ text }) => text === wanted);
      if (!option || option.value === String(state[what])) continue;
      list.value = option.value;
      state.set(what, option.value);
    }
    const words = named.get("select") ?? "";
    if (words !== (state.selectedWords ?? "")) words ? this.search.select(words) : state.select(null);
    const { tables, ticks } = state.data;
    const fits = (at) => ["agent", "episode", "tick"].every((name) => !named.has(name) || tables[name][at] === Number(named.get(name)));
    const place = named.has("agent") ? tables.tick.subarray(0, ticks).findIndex((_, at) => fits(at)) : -1;
    if (place >= 0) state.set("tick", place);
    // Last: a selection brings back what shows it, and without a life the embedding is all there is to go on from.
    const hidden = named.get("hide")?.split(",");
    const away = hidden ? Object.keys(PANES).filter((id) => hidden.includes(id) && (id !== "map" || state.tick !== null)) : AWAY[state.layout];
    if (away.join() !== state.away.join()) state.set("away", away);
  }

  write() {
    const { tick, data: { tables } } = this.state;
    const named = new URLSearchParams(tick === null ? {} : { agent: tables.agent[tick], episode: tables.episode[tick], tick: tables.tick[tick] });
    for (const [key, list] of this.choices) {
      if (list.selectedIndex > 0) named.set(key, calledIn(list, list.selectedOptions[0]));
    }
    if (this.state.away.join() !== AWAY[this.state.layout].join()) named.set("hide", this.state.away.join());
    if (this.state.selection && this.state.selectedWords) named.set("select", this.state.selectedWords);
    history.replaceState(null, "", `#${named}`);
  }
}

/** What the address calls an option: its text, after its run's name where another has the same text. */
function calledIn(list, option) {
  const isAlone = [...list.options].every((other) => other === option || other.text !== option.text);
  return isAlone ? option.text : `${option.parentElement.label ?? option.title}/${option.text}`;
}
