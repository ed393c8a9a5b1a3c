/*
 * The address of what is shown, to keep or to send: #agent=35&episode=0&tick=104&colour=self_food opens the page there;
 * plane=RUN shows the embedding of that run, map=RUN the saliency maps of that run,
 * layout=panel takes another layout; hide=map,clusters puts panes away; select=food < 10 selects the points that these words find in the search box.
 */

class Address {
  constructor(state, search) {
    this.state = state;
    this.search = search;
    const lists = { colour: ["colour-by", "colourBy"], plane: ["plane", "plane"], map: ["overlay", "overlay"], layout: ["layout", "layout"] };
    this.choices = Object.entries(lists).map(([key, [id, what]]) => [key, byId(id), what]).filter(([, list]) => list);
    this.read();
    window.addEventListener("hashchange", () => this.read());
    state.on(["tick", "colourBy", "plane", "overlay", "layout", "away", "selection"], () => this.write());
  }

  /** Open what the address names; what this page does not hold is left as it is. */
  read() {
    const named = new URLSearchParams(location.hash.slice(1));
    for (const [key, list, what] of this.choices) {
      const options = [...list.options], wanted = named.get(key);
      const option = options.find((one) => calledIn(list, one) === wanted) ?? options.find(({ text }) => text === wanted);
      if (!option || option.value === String(this.state[what])) continue;
      list.value = option.value;
      this.state.set(what, option.value);
    }
    const hidden = named.get("hide")?.split(",");
    const away = hidden ? Object.keys(PANES).filter((id) => hidden.includes(id)) : AWAY[this.state.layout];
    if (away.join() !== this.state.away.join()) this.state.set("away", away);
    const words = named.get("select") ?? "";
    if (words && words !== this.state.selectedWords) this.search.select(words);
    if (!named.has("agent")) return;
    const { tables, ticks } = this.state.data;
    const fits = (at) => ["agent", "episode", "tick"].every((name) => !named.has(name) || tables[name][at] === Number(named.get(name)));
    const place = tables.tick.subarray(0, ticks).findIndex((_, at) => fits(at));
    if (place >= 0) this.state.set("tick", place);
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
  return isAlone ? option.text : `${option.parentElement.label}/${option.text}`;
}
