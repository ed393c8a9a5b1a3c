/* The page's tables, and what its parts ask of them. */

class Features extends RecordedTicks {
  constructor(facts, tables) {
    super(facts, tables);
    this.traceStart = running(tables["top.ticks"]);
    const { "top.feature": feature, "top.strength": strength } = tables;
    this.tops = Map.groupBy([...feature.keys()].sort((a, b) => strength[b] - strength[a]), (top) => feature[top]);
  }

  get count() { return this.tables.titles.length; }

  number(name, feature) { return this.tables[`feature.${name}`][feature]; }

  behaviour(feature) { return this.facts.behaviours[this.number("best", feature)]; }

  /** What drawView asks: the tiles that the agent of a top record saw. */
  view(top) {
    const size = this.facts.side ** 2;
    return this.tables["view.tiles"].subarray(top * size, (top + 1) * size);
  }

  /** The life of a top record: ticks, strengths and the behaviour, in their units. */
  trace(top) {
    const [start, length] = [this.traceStart[top], this.tables["top.ticks"][top]];
    const part = (name) => Array.from(this.tables[name].subarray(start, start + length));
    const behaviour = part("trace.behaviour"), [low, high] = ends(behaviour);
    return {
      ticks: part("trace.tick"), strengths: part("trace.strength"), behaviour, low, high,
      most: this.tables["top.strength"][top],
    };
  }
}
