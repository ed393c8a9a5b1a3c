/* The replay's tables, unpacked. Players and NPCs are counted from 0; ids are the game's. */

/** Players or NPCs: one table a property, each entity's ticks side by side. */
class Entities {
  constructor(prefix, facts, tables, ticks) {
    this.ids = facts.ids;
    this.names = facts.names;
    this.count = facts.ids.length;
    this.indices = [...facts.ids.keys()];
    this.ticks = ticks;
    this.indexOfId = new Map(facts.ids.map((id, index) => [id, index]));
    const own = Object.entries(tables).filter(([name]) => name.startsWith(`${prefix}.`));
    this.tables = Object.fromEntries(own.map(([name, table]) => [name.slice(prefix.length + 1), table]));
  }

  /** The value of a property of an entity at a tick. */
  at(property, index, tick) { return this.tables[property][index * this.ticks + tick]; }

  present(index, tick) { return this.at("present", index, tick) !== 0; }

  alive(index, tick) { return this.at("alive", index, tick) !== 0; }

  /** Those that live at a tick. */
  living(tick) { return this.indices.filter((index) => this.alive(index, tick)); }

  /** Last tick at or before the given one at which it was there; -1 if it never was. */
  lastSeen(index, tick) {
    while (tick >= 0 && !this.present(index, tick)) tick--;
    return tick;
  }
}

/** The whole replay. */
class ReplayData {
  constructor(facts, tables) {
    this.facts = facts;
    this.tables = tables;
    this.ticks = facts.ticks;
    this.rows = facts.rows;
    this.cols = facts.cols;
    this.players = new Entities("player", facts.players, tables, facts.ticks);
    this.npcs = new Entities("npc", facts.npcs, tables, facts.ticks);
    const numbers = ["player", "other", "detail", "value"];
    this.events = Array.from(tables["event.tick"], (tick, i) => ({
      tick, kind: facts.eventKinds[tables["event.kind"][i]],
      ...Object.fromEntries(numbers.map((name) => [name, tables[`event.${name}`][i]])),
    }));
    const byPlayer = Map.groupBy(this.events, ({ player }) => player);
    this.eventsOf = this.players.indices.map((player) => byPlayer.get(player) ?? []);
    this.hits = []; // by player
  }

  /** Unpack the replay in the elements NAME-facts and NAME-content. */
  static async load(name = "replay") {
    const facts = factsIn(`${name}-facts`);
    return new ReplayData(facts, await tablesIn(`${name}-content`, facts.columns));
  }


  /** Players or NPCs, and the place among them, of an id of the game; null if there is none. */
  find(id) {
    const group = id > 0 ? this.players : this.npcs;
    const index = group.indexOfId.get(id);
    return index === undefined ? null : { group, index };
  }

  nameOf(id) {
    const entity = this.find(id);
    return entity ? entity.group.names[entity.index] : `entity ${id}`;
  }

  policyOf(player) { return this.facts.policies[this.facts.players.policy[player]]; }

  /** The death of a player up to a tick; undefined if it lives. */
  deathOf(player, tick) { return this.eventsOf[player].find((event) => event.kind === "death" && event.tick <= tick); }

  npcKind(npc) { return this.facts.npcKinds[this.facts.npcs.kind[npc]]; }

  /** Who attacks an id at a tick: [{id, style}]. */
  attackersOf(id, tick) {
    return [this.players, this.npcs].flatMap((group) => group.indices
      .filter((index) => group.at("target", index, tick) === id)
      .map((index) => ({ id: group.ids[index], style: this.facts.styles[group.at("style", index, tick)] })));
  }

  /** One line that says what an event is. */
  describe({ kind, other, detail, value, text }) {
    if (kind === "death") return `dies, ${other ? `killed by ${this.nameOf(other)}` : this.facts.causes[detail]}`;
    if (kind === "kill") return `kills ${this.nameOf(other)}`;
    return kind === "level-up" ? `reaches ${this.facts.skills[detail]} level ${value}` : text;
  }

  /** Health that attacks cost a player in a tick; `damage` is that of the last hit alone. */
  lossOf(player, tick) {
    const received = (at) => (at < 0 ? 0 : this.players.at("received", player, at));
    return Math.max(0, received(tick) - received(tick - 1)); // 0 also where it is gone
  }

  /** Hits that a player gave and took, as events; found when first asked for. */
  hitsOf(player) {
    if (this.hits[player]) return this.hits[player];
    const hits = this.hits[player] = [];
    for (let tick = 0; tick < this.ticks; tick++) {
      const target = this.players.at("target", player, tick);
      if (target) {
        const style = this.facts.styles[this.players.at("style", player, tick)];
        hits.push({ tick, kind: "hit", player, other: target, text: `attacks ${this.nameOf(target)} (${style})` });
      }
      const damage = this.lossOf(player, tick);
      if (damage) {
        const names = this.attackersOf(this.players.ids[player], tick).map(({ id }) => this.nameOf(id));
        hits.push({ tick, kind: "hit taken", player, other: 0, text: `loses ${damage} health to ${names.join(", ")}` });
      }
    }
    return hits;
  }
}

/** The map at one tick, moved from tick to tick by the tiles that change: going back undoes what going on does. */
class TileClock {
  constructor(data) {
    this.data = data;
    this.harvested = new Uint8Array(data.rows * data.cols);
    this.tick = -1;
  }

  /** Move to a tick; returns the places of the tiles that may have changed. */
  moveTo(tick) {
    const { "toggle.place": places, "toggle.offset": starts } = this.data.tables;
    const [low, high] = [Math.min(tick, this.tick) + 1, Math.max(tick, this.tick) + 1];
    const changed = places.subarray(starts[low], starts[high]);
    for (const place of changed) this.harvested[place] ^= 1;
    this.tick = tick;
    return changed;
  }

  material(place) {
    const full = this.data.tables.tiles[place];
    return this.harvested[place] ? this.data.facts.harvested[full] : full;
  }
}
