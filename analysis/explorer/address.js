"use strict";

/* The address of what is shown, to keep or to send: #agent=35&episode=0&tick=104&colour=self_food opens the page there. */

class Address {
  constructor(state) {
    this.state = state;
    this.colours = byId("colour-by");
    this.read();
    window.addEventListener("hashchange", () => this.read());
    state.on(["tick", "colourBy"], () => this.write());
  }

  /** Open what the address names; what this page does not hold is left as it is. */
  read() {
    const named = new URLSearchParams(location.hash.slice(1));
    const colour = [...this.colours.options].find(({ text }) => text === named.get("colour"));
    if (colour && colour.value !== this.state.colourBy) {
      this.colours.value = colour.value;
      this.state.set("colourBy", colour.value);
    }
    if (!named.has("agent")) return;
    const { tables, ticks } = this.state.data;
    const fits = (at) => ["agent", "episode", "tick"].every((name) => !named.has(name) || tables[name][at] === Number(named.get(name)));
    for (let at = 0; at < ticks; at += 1) {
      if (!fits(at)) continue;
      if (at !== this.state.tick) this.state.set("tick", at);
      return;
    }
  }

  write() {
    const { tick, colourBy, data: { tables } } = this.state;
    const named = new URLSearchParams(tick === null ? {} : { agent: tables.agent[tick], episode: tables.episode[tick], tick: tables.tick[tick] });
    if (colourBy !== "cluster") named.set("colour", this.colours.selectedOptions[0].text);
    history.replaceState(null, "", `#${named}`);
  }
}
