/* What the page has besides buttons and keys that move time: zoom, colours, events, how many live. */

class Controls {
  constructor(state, map) {
    this.state = state;
    this.map = map;
    this.help = byId("help");
    const ignored = () => this.help.open;
    this.transport = new Transport(state, { slider: "scrub", keys: this.keys(), pausing: false, ignored });
    listenTo("colour-by", "change", ({ target }) => state.set("colourBy", target.value));
    listenTo("previous-event", "click", () => state.nextEvent(-1));
    listenTo("next-event", "click", () => state.nextEvent(1));
    listenTo("help-button", "click", () => this.help.showModal());
    this.offerEvents();
  }

  /** A box for each kind of event. */
  offerEvents() {
    const { state } = this, kinds = [...state.data.facts.eventKinds, "hit", "hit taken"];
    const plural = { "death": "deaths", "kill": "kills", "level-up": "level-ups", "hit": "hits", "hit taken": "hits taken" };
    const hidden = () => this.boxes.filter(({ checked }) => !checked).map(({ value }) => value);
    this.boxes = kinds.map((kind) => {
      const box = element("input", { type: "checkbox", checked: "", value: kind, onchange: () => state.set("hidden", hidden()) });
      const { shape, colour } = EVENT_MARKS[kind];
      const mark = markCanvas((context) => drawShape(context, shape, 8, 8, 4.5, colour, "#15181c"));
      byId("event-kinds").append(element("label", {}, box, mark, plural[kind]));
      return box;
    });
  }


  keys() {
    const { state } = this, { clusters } = state.data.facts;
    return {
      ...zoomKeys(this.map),
      "ArrowUp": () => this.changeSpeed(1),
      "ArrowDown": () => this.changeSpeed(-1),
      "n": () => state.nextEvent(1),
      "p": () => state.nextEvent(-1),
      "c": () => state.set("colourBy", clusters && state.colourBy === "policy" ? "cluster" : "policy"),
      "f": () => state.set("centred", state.followed !== null),
      "Escape": () => state.follow(null),
      "?": () => this.help.showModal(),
    };
  }

  changeSpeed(by) {
    const speed = byId("speed");
    speed.selectedIndex = Math.max(0, Math.min(speed.options.length - 1, speed.selectedIndex + by));
    this.state.set("speed", Number(speed.value));
  }

  draw() {
    const { tick, followed, colourBy, data: { players, npcs } } = this.state;
    this.transport.draw();
    byId("colour-by").value = colourBy;
    for (const box of this.boxes) box.parentElement.hidden = box.value.startsWith("hit") && followed === null;
    const living = [players, npcs].map((group) => group.living(tick).length);
    byId("living").textContent = `${living[0]} of ${players.count} agents · ${living[1]} NPCs`;
  }
}
