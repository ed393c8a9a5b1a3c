"use strict";

/** What the user looks at: the tick, who is followed, the colouring. Tells listeners of "change". */
class ViewState extends EventTarget {
  constructor(data) {
    super();
    this.data = data;
    this.tick = 0;
    this.fraction = 1; // how far entities have come from the last tick's place to this one's
    this.playing = false;
    this.speed = 5;
    this.followed = null; // index of a player
    this.centred = false; // whether the view keeps to the followed agent
    this.colourBy = "policy";
    this.hidden = new Set(); // kinds of events that are not shown
    this.ping = null; // the place of an event that was just gone to
  }

  changed(what) {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }

  seek(tick) {
    this.tick = Math.max(0, Math.min(this.data.ticks - 1, Math.round(tick)));
    this.fraction = 1;
    this.changed("tick");
  }

  /** Let time pass while playing. */
  advance(seconds) {
    if (!this.playing) return;
    const position = this.tick + this.fraction + seconds * this.speed;
    const last = this.data.ticks - 1;
    const before = this.tick;
    if (position >= last + 1) {
      this.tick = last;
      this.fraction = 1;
      this.setPlaying(false);
    } else {
      // A tick's own place is reached at its fraction 1, which is the next tick's 0.
      this.tick = Math.floor(position);
      this.fraction = position - this.tick;
    }
    this.changed(this.tick === before ? "fraction" : "tick");
  }

  setPlaying(playing) {
    if (playing && this.tick === this.data.ticks - 1) this.seek(0);
    this.playing = playing;
    if (!playing) this.fraction = 1;
    this.changed("playing");
  }

  setSpeed(speed) {
    this.speed = speed;
    this.changed("speed");
  }

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
  let last = performance.now();
  const frame = (now) => {
    state.advance(Math.min(0.25, (now - last) / 1000));
    last = now;
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
