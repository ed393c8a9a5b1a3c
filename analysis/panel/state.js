"use strict";

/* What the user looks at, and colours of numbers. */

const FOLLOW = "follow";

class PanelState extends TimedState {
  constructor(data) {
    super(data);
    this.rollout = 0;
    this.colourBy = "behaviour";
    this.only = null; // behaviour of the rollouts to choose from
    this.from = "all"; // real, simulated or mapped rollouts, or all
    this.chosenBehaviour = FOLLOW;
    this.lag = Math.min(1, data.lags);
    this.component = 0; // whose neighbours are listed
    this.pinned = false;
    this.target = data.maps.length ? 0 : -1; // saliency maps to lay over views
    this.later = 0;
    this.whole = false; // whether the ticks of all rollouts are unpacked
  }

  get length() { return this.data.tables["rollout.ticks"][this.rollout]; }
  get last() { return this.length - 1; }
  /** The place, among all ticks, of the rollout's tick that is shown. */
  get tick() { return this.data.starts[this.rollout] + this.at; }

  /** The behaviour whose matrices are shown: the chosen one, or that of the tick; before there is one, the rollout's. */
  get behaviour() {
    if (this.chosenBehaviour !== FOLLOW) return this.chosenBehaviour;
    const own = this.data.behaviour(this.tick);
    return Math.max(0, own >= 0 ? own : this.data.tables["rollout.main"][this.rollout]);
  }

  /** The map over the view, or null. */
  get map() { return this.target < 0 ? null : this.data.maps[this.target].at(this.tick, this.later); }

  mapped(rollout) {
    const { starts, maps } = this.data;
    return maps.some((map) => map.has(starts[rollout]));
  }

  /** Whether a rollout can be chosen. */
  shown(rollout) {
    const { data } = this;
    if (this.only !== null && data.tables["rollout.main"][rollout] !== this.only) return false;
    if (this.from === "mapped") return this.mapped(rollout);
    return this.from === "all" || data.source(rollout).simulated === (this.from === "simulated");
  }

  get shownCount() {
    const key = `${this.only} ${this.from}`;
    if (this.counted?.key !== key) {
      let count = 0;
      for (let rollout = 0; rollout < this.data.count; rollout++) count += this.shown(rollout);
      this.counted = { key, count };
    }
    return this.counted.count;
  }

  open(rollout, at = 0) {
    if (!this.data.has(rollout)) { // the first seconds after the page was opened
      this.data.unpack(rollout).then(() => this.open(rollout, at), fail);
      return;
    }
    this.at = Math.min(at, this.data.tables["rollout.ticks"][rollout] - 1);
    this.set("rollout", rollout);
  }

  /** Open the next rollout that can be chosen, or the one before. */
  step(by) {
    const { count } = this.data;
    for (let i = 1; i <= count; i++) {
      const next = (this.rollout + by * i + count * (i + 1)) % count;
      if (this.shown(next)) { this.open(next); return; }
    }
  }

  /** Look at another component: a pinned one stays until it is pinned anew. */
  look(component, pin = false) {
    if (this.pinned && !pin) return;
    if (pin) this.pinned = !(this.pinned && component === this.component);
    this.set("component", component);
  }
}

/** From blue over white to red: -1 to 1. */
function diverging(share) {
  const strength = Math.min(1, Math.abs(share));
  const [red, green, blue] = share > 0 ? UP : DOWN;
  const mix = (part) => Math.round(255 - (255 - part) * strength);
  return `rgb(${mix(red)}, ${mix(green)}, ${mix(blue)})`;
}

/** From yellow over green to dark violet: 1 to 0. */
function sequential(share) {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const place = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place)), part = place - low;
  return `rgb(${stops[low].map((channel, i) => Math.round(channel + (stops[low + 1][i] - channel) * part)).join(", ")})`;
}
