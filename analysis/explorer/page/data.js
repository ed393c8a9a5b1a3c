/*
 * The explorer's tables, unpacked: N points, and T ticks of their lives, life by life. Points and ticks count from 0. Ticks of
 * simulated lives come after those that were recorded; nothing but `simulated` leads there.
 */

const MAP_STEPS = 127; // of the largest attribution in a map
const LEAST_RING = 0.02; // of it, for a ring around an entity

class ExplorerData extends RecordedTicks {
  constructor(facts, tables) {
    super(facts, tables);
    this.count = tables["point.tick"].length;
    this.ticks = facts.recorded.ticks;
    this.features = facts.features.map((feature, i) => ({ ...feature, values: tables[`feature.${i}`] }));
    this.tracks = facts.tracks.map((track, i) => ({ ...track, steps: tables[`track.${i}`] }));
    this.maps = facts.maps.map((map, i) => { // of the runs of saliency.py
      const [ticks, tiles, most, entities, parts] = ["ticks", "tiles", "most", "entities", "parts"].map((name) => tables[`map.${i}.${name}`]);
      const starts = running(Array.from(ticks, (tick) => tables["entity.count"][tick]));
      return { ...map, tiles, most, entities, parts, starts, numberAt: new Map(Array.from(ticks, (tick, number) => [tick, number])) };
    });
    this.motions = facts.motions.map((motion, i) => new Motion(motion, this, i));
    this.views = this.unfoldViews();
    const starts = running(tables["life.ticks"]);
    this.lifeStart = starts.subarray(0, facts.recorded.lives + 1);
    this.simulated = this.simulatedLives(starts.subarray(facts.recorded.lives));
    this.pointAt = new Map(Array.from(tables["point.tick"], (tick, point) => [tick, point]));
  }

  static async load() {
    const facts = factsIn("explorer-facts");
    return new ExplorerData(facts, await tablesIn("explorer-content", facts.columns));
  }


  /**
   * Each view is stored as what changed since its tiles were last seen in the episode; undo that, in place. What the last life
   * saw of each tile is kept as the world of the episode.
   */
  unfoldViews() {
    const { "view.tiles": views, "view.row": row, "view.col": col, episode } = this.tables;
    const { side } = this.facts;
    // Simulated agents may leave the map, so rows and columns may be below 0.
    const [top, left, bottom, right] = [[Math.min, row], [Math.min, col], [Math.max, row], [Math.max, col]].map(
      ([end, values]) => values.reduce((one, other) => end(one, other), 0),
    );
    const width = right - left + side, size = width * (bottom - top + side);
    const worlds = new Map(Array.from(new Set(episode), (number) => [number, new Uint8Array(size)]));
    let at = 0;
    for (let tick = 0; tick < episode.length; tick++) {
      const world = worlds.get(episode[tick]), corner = (row[tick] - top) * width + col[tick] - left;
      for (let down = 0; down < side; down++) {
        for (let place = corner + down * width; place < corner + down * width + side; place++) world[place] = views[at++] ^= world[place];
      }
    }
    this.worlds = new Map(Array.from(worlds, ([episode, tiles]) => [episode, { top, left, width, tiles }]));
    return views;
  }

  /** Dumps of simulated lives, with the recorded tick that each life goes on from: [{name, edits, lives: [{number, begin, start, ticks}]}]. */
  simulatedLives(starts) {
    let first = 0;
    return this.facts.simulated.map(({ name, edits, lives }, i) => {
      const some = Array.from(this.tables[`simulated.${i}`], (begin, life) => (
        { number: life, begin, start: starts[first + life], ticks: starts[first + life + 1] - starts[first + life] }
      ));
      first += lives;
      return { name, edits, lives: some.sort((a, b) => a.begin - b.begin) };
    });
  }

  /** Simulated lives that go on from ticks of the life that a tick belongs to. */
  simulatedIn(dump, tick) {
    const { start, end } = this.lifeOf(tick);
    return dump.lives.filter(({ begin }) => begin >= start && begin < end);
  }

  /** Of the simulated lives at a recorded tick the one that began last; undefined where there is none. */
  simulatedAt(dump, tick) {
    return this.simulatedIn(dump, tick).findLast(({ begin, ticks }) => begin <= tick && tick < begin + ticks);
  }

  /** How many ticks after their common start two simulated lives first differ in place, vitals or action; null if never. */
  partAfter(one, other) {
    const columns = ["view.row", "view.col", "words", ...VITALS.map((name) => `self_${name}`)].map((key) => this.tables[key]);
    const differs = (at) => columns.some((values) => values[one.start + at] !== values[other.start + at]);
    const shared = Math.min(one.ticks, other.ticks);
    return range(0, shared).find(differs) ?? (one.ticks === other.ticks ? null : shared);
  }

  /** Numbers of the materials in a tick's view, row by row. */
  view(tick) {
    const tiles = this.facts.side ** 2;
    return this.views.subarray(tick * tiles, (tick + 1) * tiles);
  }

  /** What happened at ticks from start to before end: [{tick, kind, text}]. */
  eventsBetween(start, end) {
    const { "event.tick": ticks, "event.kind": kinds, "event.words": words, events } = this.tables;
    const first = ticks.findIndex((tick) => tick >= start);
    const happened = [];
    for (let i = first; i >= 0 && i < ticks.length && ticks[i] < end; i++) {
      happened.push({ tick: ticks[i], kind: this.facts.eventKinds[kinds[i]], text: events[words[i]] });
    }
    return happened;
  }

  /** As in `RecordedTicks`; simulated ones have no identity: their numbers are those of their tiles. */
  others(tick) {
    const others = super.others(tick);
    return tick < this.ticks ? others : others.map((other) => ({ ...other, id: null }));
  }

  /** Place of the agent on the map. */
  place(tick) {
    const middle = Math.floor(this.facts.side / 2);
    return { row: this.tables["view.row"][tick] + middle, col: this.tables["view.col"][tick] + middle };
  }

  /** First tick of the life that a tick belongs to, and the one after its last. */
  lifeOf(tick) {
    const life = partAt(this.lifeStart, tick);
    return { start: this.lifeStart[life], end: this.lifeStart[life + 1] };
  }


  /** Points of other lives that are most alike in hidden space, nearest first. */
  near(point) {
    const near = this.tables["point.near"], count = near.length / this.count;
    return Array.from(near.subarray(point * count, (point + 1) * count)).filter((other) => other >= 0);
  }

  /** What a further run says of a tick: a number, rounded to a 255th of its range, or a label. */
  tracked(track, tick) {
    return track.clusters ? track.steps[tick] : track.low + (track.steps[tick] / 255) * (track.high - track.low);
  }

  /** What a further run says of each point. */
  trackedAtPoints(track) { return Float64Array.from(this.tables["point.tick"], (tick) => this.tracked(track, tick)); }

  /** The numbers of further runs, with their values at the points. */
  numbersOfTracks() {
    const numbers = this.tracks.filter(({ clusters }) => !clusters);
    return numbers.map((track) => ({ name: track.name, values: this.trackedAtPoints(track) }));
  }

  /** The saliency map of a tick, in 127ths of its largest attribution; undefined where there is none. */
  mapAt(map, tick) {
    const number = map?.numberAt.get(tick), size = this.facts.side ** 2, count = this.facts.parts.length;
    if (number === undefined) return undefined;
    return {
      most: map.most[number], tiles: map.tiles.subarray(number * size, (number + 1) * size),
      entities: map.entities.subarray(map.starts[number], map.starts[number + 1]), parts: map.parts.subarray(number * count, (number + 1) * count),
    };
  }

  /** How to draw a run's saliency map over the view of a tick; undefined where there is none. */
  mapOver(map, tick) {
    const here = this.mapAt(map, tick), { side } = this.facts;
    if (!here) return undefined;
    return (context, scale) => {
      drawMapOver(context, side, scale, here.tiles, MAP_STEPS);
      this.others(tick).forEach(({ down, right }, i) => {
        const share = here.entities[i] / MAP_STEPS, ring = [2 + 4 * Math.abs(share), `rgb(${(share > 0 ? UP : DOWN).join(", ")})`];
        if (Math.abs(share) >= LEAST_RING) drawRing(context, (side / 2 + right) * scale, (side / 2 + down) * scale, 0.52 * scale, [ring]);
      });
    };
  }

  colourOf(label, clusters = this.facts.clusters) {
    return clusters.find((cluster) => cluster.label === label)?.colour ?? (label === this.facts.noise.label ? this.facts.noise.colour : "#ffffff");
  }

  nameOf(label) { return label === this.facts.noise.label ? this.facts.noise.name : `${this.facts.word} ${label}`; }

  /** What follows a label's name: that it was propagated to a tick, unless it only says that there is no behaviour yet. */
  originOf(label, own) {
    const none = label === this.facts.noise.label && this.facts.word !== "cluster";
    return own || none ? "" : " (propagated)";
  }

  /** Probabilities of a head's options at a tick, 0 to 1; null where unknown. */
  oddsOf(head, tick) {
    const count = this.facts.odds[head].length;
    return inShares(this.tables[`odds.${head}`].subarray(tick * count, (tick + 1) * count));
  }

  /** Probability of what was chosen in each head at a tick, 0 to 1; null where unknown. */
  chosenAt(tick) {
    const count = this.facts.heads.length;
    return inShares(this.tables.chosen?.subarray(tick * count, (tick + 1) * count) ?? []);
  }
}

/** Shares from percents; null if they are unknown. */
function inShares(percents) { return percents[0] > 100 ? null : Array.from(percents, (percent) => percent / 100); }

/**
 * What the user looks at; what changes is hovered, tick, playing, colourBy, plane, overlay, simulation, selection,
 * names, layout, away or, with the number of a further run under the pointer in the time line, pointedTrack.
 */
class ExplorerState extends TimedState {
  life = null; // the one that is open: its first tick, and the one after its last
  hovered = null; // a point
  colourBy = "cluster";
  plane = 0; // number of the embedding
  overlay = 0; // number of the run of saliency.py whose maps lie over views; "" for none
  simulation = 0; // number of the dump of simulated lives that is shown; "" for none
  selection = null; // points, or none
  names = {}; // labels that people gave to clusters
  layout = byId("layout").value;
  away = AWAY[this.layout]; // keys of PANES that are not shown

  get last() { return this.life.end - this.life.start - 1; }

  /** The open tick, among all; null while no life is open. */
  get tick() { return this.life && this.life.start + this.at; }

  set tick(tick) {
    this.life = tick === null ? null : this.data.lifeOf(tick);
    this.at = this.life ? tick - this.life.start : 0;
  }

  /** A cluster's name, with what people call it. */
  called(label) {
    const given = this.names[label];
    return this.data.nameOf(label) + (given ? `: ${given}` : "");
  }

  /** The maps that lie over views, if there are any. */
  get map() { return this.data.maps[this.overlay]; }

  /** The simulated lives that are shown, if there are any. */
  get simulated() { return this.data.simulated[this.simulation]; }

  /** Let colours stand for something else, and the list say so. */
  colour(by) {
    byId("colour-by").value = by;
    this.set("colourBy", by);
  }

  /**
   * Select the points for which a condition holds; the name says which they are, `by` the features that the condition reads, `words`
   * those that find them.
   */
  selectPoints(condition, name, by = [], words = "") {
    this.select(Int32Array.from(range(0, this.data.count)).filter(condition), name, by, words);
  }

  selectCluster(label) {
    const labels = this.data.tables["point.label"];
    this.selectPoints((point) => labels[point] === label, this.called(label), [], this.data.nameOf(label));
  }

  /** Select points, or none of them. */
  select(points, name = "selected points", by = [], words = "") {
    this.selectionName = name;
    this.selectedBy = by;
    this.selectedWords = words;
    this.selection = points?.length ? points : null;
    this.changed("selection"); // also from none to none: plotly has marked what an empty lasso left out
  }
}

/** Let the browser save a JSON file that says which run it belongs to. */
function saveFile({ run, runKey }, what, content) {
  const blob = new Blob([JSON.stringify({ run, runKey, ...content }, null, 2) + "\n"], { type: "application/json" });
  const link = element("a", { href: URL.createObjectURL(blob), download: `${run}-${what}.json` });
  link.click();
  URL.revokeObjectURL(link.href);
}
