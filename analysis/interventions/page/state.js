/* What the user looks at in two replays of the same episode: one tick, one agent, one place for both. */

const SIDES = ["unedited", "edited"];
const COLOURS = { drawn: "#ff9f1c", other: "#5eb3e8" };

class ComparedState extends ViewState {
  camera = new Camera();
  onlyDrawn = false;
  hovered = null;

  /** `facts` are the page's own, `replays` the two replays by side; players have the same places in all. */
  constructor(facts, replays) {
    super(replays.unedited);
    this.facts = facts;
    this.replays = replays;
    this.chosen = facts.shown; // which dose is shown
    this.loaded = new Map([[facts.shown, replays.edited]]); // replays by dose, unpacked once they are asked for
  }

  /** What the page knows of the dose that is shown. */
  get film() { return this.facts.films[this.chosen]; }

  /** Show another dose; of several that are asked for while one is unpacked, the last. */
  async choose(number) {
    this.chosen = number;
    this.changed("chosen");
    if (!this.loaded.has(number)) this.loaded.set(number, await ReplayData.load(`edited-${number}`));
    if (this.chosen !== number) return;
    this.replays.edited = this.loaded.get(number);
    this.changed("replays");
  }

  isDrawn(player) { return this.facts.drawn[player]; }

  colouring(player) {
    const [colour, label] = this.isDrawn(player) ? [COLOURS.drawn, "edited"] : [COLOURS.other, "unedited"];
    return { colour, solid: true, label };
  }

  /** Pick an agent; the view stays where it is, since the two paths lead to different places. */
  follow(player) {
    this.followed = player;
    this.changed("followed");
  }

  /** Whether a player is on the maps: while only edited agents are wanted, they are, and the chosen one. */
  isWanted(player) { return !this.onlyDrawn || this.isDrawn(player) || player === this.followed; }

  nameOf(player) { return `agent ${this.data.players.ids[player]}${this.isDrawn(player) ? " (edited)" : ""}`; }

  /** "alive", "died at tick 17, starved", or "alive when the episode ended". */
  fateOf(side, player) {
    const replay = this.replays[side], death = replay.deathOf(player, this.tick);
    if (!death) return replay.players.alive(player, this.tick) ? "alive" : "alive when the episode ended";
    const cause = death.other > 0 ? `killed by ${this.nameOf(this.data.find(death.other).index)}`
      : death.other ? "killed by an NPC" : replay.facts.causes[death.detail];
    return `died at tick ${death.tick}, ${cause}`;
  }

  /** The last values of an agent in one replay, at or before the current tick. */
  valuesOf(side, player) {
    const { players } = this.replays[side];
    const seen = Math.max(0, players.lastSeen(player, this.tick));
    return Object.fromEntries(
      ["health", "food", "water", "level", "row", "col"].map((name) => [name, players.at(name, player, seen)]),
    );
  }


  /** One line on an agent in one replay. */
  inWords(side, player) {
    const fate = this.fateOf(side, player);
    const { health, food, water } = this.valuesOf(side, player);
    return fate === "alive" ? `alive, health ${health}, food ${food}, water ${water}` : fate;
  }

  /** Living agents in one replay: those drawn at random, and the others. */
  living(side) {
    const living = this.replays[side].players.living(this.tick);
    const drawn = living.filter((player) => this.isDrawn(player)).length;
    return { drawn, others: living.length - drawn };
  }
}
