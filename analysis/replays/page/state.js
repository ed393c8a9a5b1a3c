/** What the user looks at: the tick, who is followed, the colouring. */
class ViewState extends TimedState {
  followed = null; // index of a player
  centred = false; // whether the view keeps to the followed agent
  colourBy = "policy";
  hidden = []; // kinds of events that are not shown
  ping = null; // the place of an event that was just gone to

  get tick() { return this.at; }
  get last() { return this.data.ticks - 1; }

  follow(player) {
    this.followed = player;
    this.centred = player !== null;
    this.ping = null;
    this.changed("followed");
  }

  /** The events that the time line shows, in order of ticks. */
  get events() {
    const own = this.followed === null
      ? this.data.events
      : [...this.data.eventsOf[this.followed], ...this.data.hitsOf(this.followed)].sort((a, b) => a.tick - b.tick);
    return own.filter((event) => !this.hidden.includes(event.kind));
  }

  /** Go to an event and mark where it happened. */
  goTo(event) {
    this.setPlaying(false);
    const { players } = this.data;
    const seen = players.lastSeen(event.player, event.tick);
    this.ping = { tick: event.tick, row: players.at("row", event.player, seen), col: players.at("col", event.player, seen) };
    this.seek(event.tick);
  }

  nextEvent(direction) {
    const ahead = this.events.filter((event) => (event.tick - this.tick) * direction > 0);
    const event = ahead.at(direction > 0 ? 0 : -1);
    if (event) this.goTo(event);
  }

  /** How a player is coloured at the current tick: {colour, solid, label}. */
  colouring(player) {
    if (this.colourBy === "policy") {
      const { name, colour } = this.data.policyOf(player);
      return { colour, solid: true, label: name };
    }
    const [cluster, exact] = ["cluster", "exact"].map((name) => this.data.players.at(name, player, this.tick));
    const { name, colour } = this.data.facts.clusters[cluster];
    return { colour, solid: exact !== 0, label: name, cluster };
  }
}

/** Draw once a frame, and only what changed: panels do not show movement within a tick. */
function drawOnChange(state, views, panels) {
  const dirty = new Set(["tick"]);
  state.addEventListener("change", ({ detail }) => dirty.add(detail));
  const frame = () => {
    if (dirty.size) {
      const onlyPlaces = [...dirty].every((what) => ["fraction", "view", "pointer"].includes(what));
      dirty.clear();
      for (const view of views) view.draw();
      if (!onlyPlaces) for (const panel of panels) panel.draw();
    }
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
