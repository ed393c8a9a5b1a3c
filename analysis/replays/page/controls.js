"use strict";

/* Buttons, the scrub bar and the keyboard. */

class Controls {
  constructor(state, map) {
    this.state = state;
    this.map = map;
    this.play = document.getElementById("play");
    this.scrub = document.getElementById("scrub");
    this.clock = document.getElementById("clock");
    this.living = document.getElementById("living");
    this.speed = document.getElementById("speed");
    this.colourBy = document.getElementById("colour-by");
    this.help = document.getElementById("help");
    this.listen();
    this.offerEvents();
  }

  listen() {
    const { state, map } = this;
    const last = state.data.ticks - 1;
    const onClick = {
      "play": () => state.setPlaying(!state.playing),
      "back": () => this.step(-1),
      "forward": () => this.step(1),
      "to-start": () => state.seek(0),
      "to-end": () => state.seek(last),
      "previous-event": () => state.nextEvent(-1),
      "next-event": () => state.nextEvent(1),
      "zoom-in": () => map.zoom(1.4),
      "zoom-out": () => map.zoom(1 / 1.4),
      "zoom-fit": () => map.fit(),
      "help-button": () => this.help.showModal(),
    };
    for (const [id, action] of Object.entries(onClick)) document.getElementById(id).addEventListener("click", action);
    this.scrub.addEventListener("input", () => state.seek(Number(this.scrub.value)));
    this.speed.addEventListener("change", () => state.setSpeed(Number(this.speed.value)));
    this.colourBy.addEventListener("change", () => state.setColourBy(this.colourBy.value));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  /** A box for each kind of event. */
  offerEvents() {
    const kinds = [...this.state.data.facts.eventKinds, "hit", "hit taken"];
    const plural = { "death": "deaths", "kill": "kills", "level-up": "level-ups", "hit": "hits", "hit taken": "hits taken" };
    this.boxes = kinds.map((kind) => {
      const box = element("input", { type: "checkbox", checked: "", onchange: () => this.state.toggleEvents(kind, box.checked) });
      const { shape, colour } = EVENT_MARKS[kind];
      const mark = markCanvas((context) => drawShape(context, shape, 8, 8, 4.5, colour, "#15181c"));
      return { kind, label: element("label", {}, box, mark, plural[kind]) };
    });
    document.getElementById("event-kinds").append(...this.boxes.map(({ label }) => label));
  }

  step(ticks) {
    this.state.setPlaying(false);
    this.state.seek(this.state.tick + ticks);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
    const { target, key } = event;
    const typing = target.matches("input[type=search], select");
    if (typing && key !== "Escape") return;
    // A focused button or box answers to the space bar itself.
    if (key === " " && target.matches("button, summary, input[type=checkbox]")) return;
    const action = this.keyAction(event);
    if (!action) return;
    event.preventDefault();
    action();
  }

  keyAction({ key, shiftKey }) {
    const { state, map } = this;
    const stride = shiftKey ? 10 : 1;
    return {
      " ": () => state.setPlaying(!state.playing),
      "ArrowLeft": () => this.step(-stride),
      "ArrowRight": () => this.step(stride),
      "ArrowUp": () => this.changeSpeed(1),
      "ArrowDown": () => this.changeSpeed(-1),
      "Home": () => state.seek(0),
      "End": () => state.seek(state.data.ticks - 1),
      "n": () => state.nextEvent(1),
      "p": () => state.nextEvent(-1),
      "+": () => map.zoom(1.4),
      "=": () => map.zoom(1.4),
      "-": () => map.zoom(1 / 1.4),
      "0": () => map.fit(),
      "c": () => state.setColourBy(state.colourBy === "policy" ? "cluster" : "policy"),
      "f": () => state.followed !== null && state.setCentred(true),
      "Escape": () => state.follow(null),
      "?": () => this.help.showModal(),
    }[key.length === 1 ? key.toLowerCase() : key];
  }

  changeSpeed(by) {
    const { options, selectedIndex } = this.speed;
    this.speed.selectedIndex = Math.max(0, Math.min(options.length - 1, selectedIndex + by));
    this.state.setSpeed(Number(this.speed.value));
  }

  draw() {
    const { tick, playing, data, followed, colourBy } = this.state;
    this.scrub.value = String(tick);
    this.clock.textContent = `tick ${tick.toLocaleString("en")} of ${(data.ticks - 1).toLocaleString("en")}`;
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.colourBy.value = colourBy;
    for (const { kind, label } of this.boxes) label.hidden = kind.startsWith("hit") && followed === null;
    this.drawLiving(tick);
  }

  drawLiving(tick) {
    const { players, npcs } = this.state.data;
    const count = (group) => {
      let living = 0;
      for (let i = 0; i < group.count; i++) living += group.at("alive", i, tick);
      return living;
    };
    this.living.textContent = `${count(players)} of ${players.count} agents · ${count(npcs)} NPCs`;
  }
}
