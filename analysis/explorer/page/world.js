/* The world at the open tick: the ground that agents saw, those of the page by cluster or behaviour, and the others that they saw. */

const WORLD_MOST = 460; // CSS pixels
const MARK = 4; // radius of an agent
const PALE = 0.6;
const FARTHEST_STEP = 2; // tiles, which nobody walks in a tick
const REACHED = 8; // CSS pixels from a mark that still mean it
const UNRECORDED = { colour: "#ffffff", solid: false };

class WorldPane extends Panel {
  constructor(state) {
    super(state);
    this.pane = byId("world");
    this.canvas = this.pane.querySelector("canvas");
    this.text = this.pane.querySelector("figcaption");
    this.grounds = new Map();
    this.canvas.addEventListener("mousemove", (event) => this.hover(this.near(event)));
    this.canvas.addEventListener("click", (event) => {
      const agent = this.near(event);
      if (agent) state.set("tick", agent.at);
    });
    new ResizeObserver(() => this.draw()).observe(this.pane);
    state.on(["tick", "names"], () => this.draw());
  }

  draw() {
    const { tick } = this.state, size = Math.min(WORLD_MOST, this.pane.clientWidth);
    if (tick === null || !size) return;
    const { tables } = this.data, ground = this.ground(tables.episode[tick]);
    const context = sharp(this.canvas, size, size);
    this.corner = ground.corner;
    this.scale = size / ground.picture.width;
    context.imageSmoothingEnabled = false;
    context.globalAlpha = PALE; // so that marks stand out
    context.drawImage(ground.picture, 0, 0, size, size);
    context.globalAlpha = 1;
    const { episode, tick: time } = tables; // the agents of the page that are alive then
    this.agents = range(0, this.data.ticks).filter((at) => time[at] === time[tick] && episode[at] === episode[tick]).map((at) => {
      const { row, col } = this.data.place(at), [x, y] = this.middle(row, col);
      return { at, x, y };
    });
    this.drawWay(context, tick);
    for (const { row, col, npc } of this.seen(tick).values()) {
      const [x, y] = this.middle(row, col);
      if (npc) drawNpc(context, x, y, 0.8 * MARK, npc);
      else drawPlayer(context, x, y, MARK, UNRECORDED);
    }
    for (const { at, x, y } of this.agents) drawPlayer(context, x, y, MARK, { colour: this.data.colourOf(tables.label[at]), solid: true });
    const { x, y } = this.agents.find(({ at }) => at === tick), half = (this.data.facts.side / 2) * this.scale;
    context.strokeStyle = styled("mark");
    context.lineWidth = 1.5;
    context.strokeRect(x - half, y - half, 2 * half, 2 * half);
    drawRing(context, x, y, 2 * MARK, [[4, "#ffffff"], [2, styled("mark")]]);
    this.hover(null);
  }

  /** What is known of an episode's map, a pixel a tile, and its first row and column; what nobody saw is void. */
  ground(episode) {
    if (!this.grounds.has(episode)) {
      const { top, left, width, tiles } = this.data.worlds.get(episode);
      const seen = Array.from(tiles.keys()).filter((place) => tiles[place]);
      const box = boxAround(seen.map((place) => Math.floor(place / width)), seen.map((place) => place % width), 0);
      const side = Math.max(box.bottom - box.top, box.right - box.left);
      const corner = { row: box.top + top, col: box.left + left };
      const picture = element("canvas", { width: side, height: side }), context = picture.getContext("2d");
      for (const place of seen) {
        context.fillStyle = this.data.facts.materials[tiles[place]].colour;
        context.fillRect((place % width) - box.left, Math.floor(place / width) - box.top, 1, 1);
      }
      this.grounds.set(episode, { picture, corner });
    }
    return this.grounds.get(episode);
  }

  middle(row, col) { return [(col - this.corner.col + 0.5) * this.scale, (row - this.corner.row + 0.5) * this.scale]; }


  /** Whom these agents see, who are not among them: NPCs, and players that the page does not hold. */
  seen(tick) {
    const { data, agents } = this, own = new Set(agents.map(({ at }) => data.tables.agent[at]));
    const others = new Map();
    for (const { at } of agents) {
      const { row, col } = data.place(at);
      for (const { kind, id, down, right } of data.others(at)) {
        if (!own.has(id)) others.set(id, { row: row + down, col: col + right, npc: kind ? data.facts.npcKinds[kind - 1] : null });
      }
    }
    return others;
  }

  /** The way of the open life up to its tick, with a gap where the agent was moved and did not walk. */
  drawWay(context, tick) {
    context.beginPath();
    let before = null;
    for (let at = this.data.lifeOf(tick).start; at <= tick; at += 1) {
      const { row, col } = this.data.place(at), walked = before && Math.hypot(row - before.row, col - before.col) < FARTHEST_STEP;
      if (walked) context.lineTo(...this.middle(row, col));
      else context.moveTo(...this.middle(row, col));
      before = { row, col };
    }
    strokePath(context, [[1.5, styled("text")]]);
  }

  near(event) {
    const { x, y } = pointIn(this.canvas, event);
    return nearest(this.agents ?? [], (agent) => Math.hypot(agent.x - x, agent.y - y), REACHED);
  }

  /** Say who is under the pointer, or how many are there. */
  hover(agent) {
    const { tables } = this.data;
    this.canvas.style.cursor = agent ? "pointer" : "";
    this.text.textContent = agent ? `agent ${tables.agent[agent.at]}, ${this.state.called(tables.label[agent.at])}: ${this.data.action(agent.at)}`
      : `${counted(this.agents.length, "agent")} of this page at tick ${tables.tick[this.state.tick]}, by ${this.data.facts.word}; rings: other players. Click one to open its life.`;
  }
}
