"use strict";

/* The panel's tables, unpacked: R rollouts, and T ticks, rollout by rollout. Both count from 0. */

const UNKNOWN = -128; // a correlation that is not known
const HUNDRED = 100;

const WHOLE = { u1: Uint8Array, i1: Int32Array, i2: Int32Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

/** When the whole page has been read: the browser shows the first picture before. */
const parsed = new Promise((done) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", done); else done();
});

class PanelData extends RecordedTicks {
  constructor(facts, tables) {
    super(facts, tables);
    this.count = tables["rollout.ticks"].length;
    this.starts = running(tables["rollout.ticks"]);
    this.ticks = this.starts[this.count];
    this.components = facts.components.length;
    this.lags = facts.lags;
    this.views = { rollout: -1, tiles: null };
    this.packs = new Map(); // what changed in the views of some rollouts each, once they are unpacked
    this.unpacking = new Map(); // promises of these
    this.maps = facts.saliency.map((target, i) => new SaliencyMaps(target, tables, `map.${i}`));
    this.makeRoom();
  }

  /** The tables that the first picture needs whole: rollouts, matrices and maps, and how many entities each tick has. */
  static async load() {
    const facts = factsIn("panel-facts");
    return new PanelData(facts, await tablesIn("panel-content", facts.columns));
  }

  /** Tables of ticks begin empty, and are filled as the ticks are unpacked. */
  makeRoom() {
    const entities = this.entityStart[this.ticks];
    this.tables.phrases = [];
    for (const { name, kind, shape } of this.facts.packs[0]) {
      if (name === "tiles" || kind === "json") continue;
      const rows = shape.length > 1 ? (this.alongTicks(name) ? shape[0] : shape[1]) : 1;
      this.tables[name] = new WHOLE[kind](rows * (name.startsWith("entity.") ? entities : this.ticks));
    }
  }

  /** Whether the last axis of a table is that of ticks, so that it has a row for each component or head. */
  alongTicks(name) { return name === "component" || name === "chosen"; }

  rolloutOf(tick) { return partAt(this.starts, tick); }

  source(rollout) { return this.facts.sources[this.tables["rollout.source"][rollout]]; }

  packOf(rollout) { return Math.floor(rollout / this.facts.rolloutsAtOnce); }

  /** Whether the ticks of a rollout are unpacked. */
  has(rollout) { return this.packs.has(this.packOf(rollout)); }

  /** Unpack the ticks of a rollout and of those beside it. */
  unpack(rollout) {
    const number = this.packOf(rollout);
    if (!this.unpacking.has(number)) this.unpacking.set(number, this.unpackPack(number));
    return this.unpacking.get(number);
  }

  async unpackPack(number) {
    const columns = this.facts.packs[number];
    if (number > 0) await parsed; // the first ticks stand above the scripts, the others below
    const tables = await tablesIn(`panel-ticks-${number}`, columns);
    const [start, end] = [number, number + 1].map((pack) => this.starts[Math.min(this.count, pack * this.facts.rolloutsAtOnce)]);
    const before = this.tables.phrases.length;
    tables.words = Int32Array.from(tables.words, (word) => word + before);
    for (const phrase of tables.phrases) this.tables.phrases.push(phrase);
    for (const { name, kind, shape } of columns) {
      if (name !== "tiles" && kind !== "json") this.fill(name, tables[name], shape, start, end - start);
    }
    this.packs.set(number, tables.tiles);
  }

  /** Put the values of some ticks, from `start`, where they belong. */
  fill(name, values, shape, start, count) {
    const whole = this.tables[name];
    if (name.startsWith("entity.")) whole.set(values, this.entityStart[start]);
    else if (!this.alongTicks(name)) whole.set(values, start * (shape[1] ?? 1));
    else for (let row = 0; row < shape[0]; row++) whole.set(values.subarray(row * count, (row + 1) * count), row * this.ticks + start);
  }

  async unpackAll() {
    for (let rollout = 0; rollout < this.count; rollout += this.facts.rolloutsAtOnce) {
      await this.unpack(rollout);
      await new Promise((done) => { setTimeout(done); }); // keys and clicks between two packs
    }
  }

  /** Numbers of the materials in a tick's view; views are stored as what changed, so a whole rollout is unfolded. */
  view(tick) {
    const rollout = this.rolloutOf(tick);
    if (this.views.rollout !== rollout) this.views = { rollout, tiles: this.unfolded(rollout) };
    const size = this.facts.side ** 2, at = (tick - this.starts[rollout]) * size;
    return this.views.tiles.subarray(at, at + size);
  }

  unfolded(rollout) {
    const { side } = this.facts, size = side ** 2, pack = this.packOf(rollout);
    const first = this.starts[pack * this.facts.rolloutsAtOnce];
    const [start, end] = [this.starts[rollout], this.starts[rollout + 1]];
    const tiles = this.packs.get(pack).slice((start - first) * size, (end - first) * size);
    for (let tick = 1; tick < end - start; tick++) {
      const down = this.tables["view.row"][start + tick] - this.tables["view.row"][start + tick - 1];
      const right = this.tables["view.col"][start + tick] - this.tables["view.col"][start + tick - 1];
      for (let i = 0; i < size; i++) {
        const [row, col] = [Math.floor(i / side) + down, (i % side) + right];
        if (row < 0 || col < 0 || row >= side || col >= side) continue;
        tiles[tick * size + i] ^= tiles[(tick - 1) * size + row * side + col];
      }
    }
    return tiles;
  }

  component(number, tick) { return this.tables.component[number * this.ticks + tick] / this.facts.stepsInSpread; }

  /** Probabilities of a head's options at a tick, 0 to 1; null where unknown. */
  probabilities(head, tick) {
    const table = this.tables[`p.${head}`];
    const count = this.facts.probabilities[head].length;
    const shares = table.subarray(tick * count, (tick + 1) * count);
    return shares[0] > HUNDRED ? null : Array.from(shares, (share) => share / HUNDRED);
  }

  /** Probability of what was chosen in a head, 0 to 1; null where unknown. */
  chosen(head, tick) {
    const value = this.tables.chosen?.[head * this.ticks + tick] ?? 255;
    return value > HUNDRED ? null : value / HUNDRED;
  }

  behaviour(tick) { return this.tables.behaviour[tick]; }

  /** Place of an entry of the matrices: of `later`, some ticks after `earlier`. */
  entry(behaviour, lag, later, earlier) {
    return ((behaviour * (this.lags + 1) + lag) * this.components + later) * this.components + earlier;
  }

  correlation(behaviour, lag, later, earlier) {
    const value = this.tables.r[this.entry(behaviour, lag, later, earlier)];
    return value === UNKNOWN ? NaN : value / HUNDRED;
  }

  significant(behaviour, lag, later, earlier) {
    return this.tables.significant[this.entry(behaviour, lag, later, earlier)] !== 0;
  }

  jacobian(behaviour, lag, later, earlier) { return this.tables.jacobian[this.entry(behaviour, lag, later, earlier)]; }

  /** Colour and shape of a behaviour. */
  looks(behaviour) { return this.facts.behaviours[behaviour] ?? this.facts.noise; }
  nameOf(behaviour) { return behaviour < 0 ? "no behaviour yet" : `behaviour ${behaviour}`; }

  /** Mean of a column over a rollout. */
  mean(name, rollout) {
    let sum = 0;
    for (let tick = this.starts[rollout]; tick < this.starts[rollout + 1]; tick++) sum += this.tables[name][tick];
    return sum / (this.starts[rollout + 1] - this.starts[rollout]);
  }
}

/** The maps of one run of saliency.py over the ticks of the page. */
class SaliencyMaps {
  constructor(target, tables, name) {
    this.target = target;
    this.lags = target.lags;
    const there = tables[name];
    this.number = new Int32Array(there.length).fill(-1);
    this.scale = tables[`${name}.scale`];
    this.tiles = tables[`${name}.tiles`];
    this.entities = tables[`${name}.entities`];
    this.parts = tables[`${name}.parts`];
    this.value = tables[`${name}.value`];
    const counts = [];
    there.forEach((mapped, tick) => {
      if (mapped) { this.number[tick] = counts.length; counts.push(tables["entity.count"][tick]); }
    });
    this.entityStart = running(counts);
  }

  has(tick) { return this.number[tick] >= 0; }

  /** The map from a tick's view to the target some ticks later: attributions of tiles, entities and parts; null for none. */
  at(tick, later) {
    const number = this.number[tick], width = this.lags + 1;
    if (number < 0) return null;
    const most = this.scale[number * width + later];
    if (Number.isNaN(most)) return null;
    const tiles = this.tiles.length / (this.scale.length || 1), parts = this.parts.length / (this.scale.length || 1);
    const at = (number * width + later);
    const entities = [];
    for (let i = this.entityStart[number]; i < this.entityStart[number + 1]; i++) entities.push(this.entities[i * width + later] * most / 127);
    return {
      most, entities, value: this.value[number],
      tiles: Array.from(this.tiles.subarray(at * tiles, (at + 1) * tiles), (value) => value * most / 127),
      parts: Array.from(this.parts.subarray(at * parts, (at + 1) * parts)),
    };
  }
}
