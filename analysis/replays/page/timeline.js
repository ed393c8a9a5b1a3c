/* How many live, by policy, and the events, over time. The canvas lines up with the scrub bar below it. */

const EDGE = 8; // half the scrub bar's thumb
const LANE = 12;
const REACH = 6; // pixels from which a click finds an event

class Timeline extends Panel {
  constructor(state) {
    super(state);
    this.canvas = byId("timeline-canvas");
    const { players, facts, ticks } = this.data;
    this.living = facts.policies.map(() => new Int32Array(ticks)); // agents of each policy at each tick
    facts.players.policy.forEach((policy, player) => {
      for (let tick = 0; tick < ticks; tick++) this.living[policy][tick] += players.at("alive", player, tick);
    });
    this.backdrop = document.createElement("canvas");
    this.stale = true;
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    this.resize();
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    state.on(["followed", "hidden"], () => { this.stale = true; });
  }


  get kinds() {
    const kinds = [...this.data.facts.eventKinds, ...(this.state.followed === null ? [] : ["hit", "hit taken"])];
    return kinds.filter((kind) => !this.state.hidden.includes(kind));
  }

  resize() {
    Object.assign(this, sized(this.canvas, this.backdrop));
    this.stale = true;
    this.state.changed("view");
  }

  xOf(tick) { return EDGE + (tick / Math.max(1, this.data.ticks - 1)) * (this.width - 2 * EDGE); }

  laneOf(kind) { return this.height - LANE * (this.kinds.length - this.kinds.indexOf(kind)) + LANE / 2; }

  draw() {
    if (this.stale) this.drawBackdrop();
    const context = cleared(this.canvas);
    if (this.width && this.height) context.drawImage(this.backdrop, 0, 0, this.width, this.height);
    const x = this.xOf(Math.min(this.data.ticks - 1, this.state.tick - 1 + this.state.fraction));
    context.fillStyle = styled("mark");
    context.fillRect(x - 1, 0, 2, this.height);
  }

  drawBackdrop() {
    this.stale = false;
    const context = cleared(this.backdrop);
    const lanes = this.height - LANE * this.kinds.length;
    this.drawLiving(context, lanes - 4);
    if (this.state.followed !== null) this.drawLife(context, lanes - 4);
    for (const kind of this.kinds) {
      context.fillStyle = "#ffffff0c";
      context.fillRect(EDGE, this.laneOf(kind) - LANE / 2 + 1, this.width - 2 * EDGE, LANE - 2);
    }
    for (const event of this.state.events) {
      const { colour, shape } = EVENT_MARKS[event.kind];
      drawShape(context, shape, this.xOf(event.tick), this.laneOf(event.kind), shape === "dot" ? 2 : 3.2, colour, "#15181c");
    }
  }

  /** Areas stacked by policy. */
  drawLiving(context, height) {
    const most = Math.max(1, this.data.players.count);
    const below = new Int32Array(this.data.ticks);
    this.living.forEach((counts, policy) => {
      const y = (tick) => height - (below[tick] / most) * (height - 2);
      context.beginPath();
      context.moveTo(this.xOf(0), y(0));
      for (let tick = 0; tick < this.data.ticks; tick++) context.lineTo(this.xOf(tick), y(tick));
      for (let tick = 0; tick < this.data.ticks; tick++) below[tick] += counts[tick];
      for (let tick = this.data.ticks - 1; tick >= 0; tick--) context.lineTo(this.xOf(tick), y(tick));
      context.fillStyle = this.data.facts.policies[policy].colour + (this.state.followed === null ? "d0" : "48");
      context.fill();
    });
  }

  /** The followed agent's health, food and water. */
  drawLife(context, height) {
    const { data: { players, ticks }, state: { followed } } = this;
    for (const [vital, width] of [["water", 1.2], ["food", 1.2], ["health", 2]]) {
      const values = Array.from({ length: ticks }, (_, tick) => (players.present(followed, tick) ? players.at(vital, followed, tick) : NaN));
      drawLine(context, values, { x: (tick) => this.xOf(tick), low: 0, high: 100, top: 2, bottom: height - 2, colour: styled(vital), width });
    }
  }

  /** The event nearest to a pointer, or null. */
  eventAt({ offsetX, offsetY }) {
    const across = ({ tick }) => Math.abs(this.xOf(tick) - offsetX);
    const down = ({ kind }) => Math.abs(this.laneOf(kind) - offsetY);
    const within = this.state.events.filter((event) => across(event) <= REACH && down(event) <= LANE / 2);
    return nearest(within, (event) => across(event) + down(event) / 2);
  }

  click(pointer) {
    const event = this.eventAt(pointer);
    if (event) this.state.goTo(event);
    else this.state.seek(((pointer.offsetX - EDGE) / (this.width - 2 * EDGE)) * (this.data.ticks - 1));
  }

  hover(pointer) {
    const event = this.eventAt(pointer);
    this.canvas.title = event
      ? `tick ${event.tick}: ${this.data.players.names[event.player]} ${this.data.describe(event)}`
      : "Agents alive, by policy; below, events. Click to go there.";
  }
}
