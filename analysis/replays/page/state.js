"use strict";

/** What the user looks at: the tick, who is followed, the colouring. */
class ViewState extends TimedState {
  constructor(data) {
    super(data);
    this.followed = null; // index of a player
    this.centred = false; // whether the view keeps to the followed agent
    this.colourBy = "policy";
    this.hidden = new Set(); // kinds of events that are not shown
    this.ping = null; // the place of an event that was just gone to
  }

  get tick() { return this.at; }
  get last() { return this.data.ticks - 1; }

  follow(player) {
    this.followed = player;
    this.centred = player !== null;
    this.ping = null;
    this.changed("followed");
  }

  setCentred(centred) {
    if (this.centred === centred) return;
    this.centred = centred;
    this.changed("centred");
  }

  setColourBy(colourBy) {
    if (colourBy === "cluster" && !this.data.facts.clusters) return;
    this.colourBy = colourBy;
    this.changed("colourBy");
  }

  toggleEvents(kind, shown) {
    if (shown) this.hidden.delete(kind);
    else this.hidden.add(kind);
    this.changed("events");
  }

  /** The events that the time line shows, in order of ticks. */
  get events() {
    const own = this.followed === null
      ? this.data.events
      : [...this.data.eventsOf[this.followed], ...this.data.hitsOf(this.followed)].sort((a, b) => a.tick - b.tick);
    return own.filter((event) => !this.hidden.has(event.kind));
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
    const event = direction > 0 ? ahead[0] : ahead[ahead.length - 1];
    if (event) this.goTo(event);
  }

  /** How a player is coloured at the current tick: {colour, solid, label}. */
  colouring(player) {
    if (this.colourBy === "policy") {
      const policy = this.data.policyOf(player);
      return { colour: policy.colour, solid: true, label: policy.name };
    }
    const { clusters } = this.data.facts;
    const cluster = this.data.players.at("cluster", player, this.tick);
    const exact = this.data.players.at("exact", player, this.tick) !== 0;
    const label = cluster === clusters.unlabelled ? "no label" : clusterName(cluster, clusters);
    return { colour: clusters.colours[cluster], solid: exact, label, cluster };
  }
}

function clusterName(cluster, clusters) {
  return cluster === clusters.noise ? "noise" : `cluster ${cluster}`;
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
