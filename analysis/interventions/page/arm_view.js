/* The map of one arm. Both maps show the same place, and both paths of the agent that was picked. */

const PATH_COLOURS = { unedited: "#ffffff", edited: "#ff5fa2" };
const PATH_DASHES = { unedited: [], edited: [5, 4] };
const OTHERS_SIZE = 0.68; // of agents that nobody edits, against those that are edited

class ArmView extends MapView {
  constructor(state, side) {
    super(state, state.replays[side], `${side}-`, state.camera);
    this.side = side;
    this.other = SIDES.find((other) => other !== side);
    state.on(["replays"], () => { if (this.data !== state.replays[side]) this.show(state.replays[side]); });
  }

  /** A page that scrolls keeps its wheel. */
  wheelZooms(event) { return event.ctrlKey || event.metaKey; }

  placeOf(group, index) {
    const isWanted = group === this.data.players ? this.state.isWanted(index) : !this.state.onlyDrawn;
    return isWanted ? super.placeOf(group, index) : null;
  }

  radiusOf(group, index) {
    const isSmall = group === this.data.players && !this.state.isDrawn(index);
    return this.radius() * (isSmall ? OTHERS_SIZE : 1);
  }

  labelOf(player) { return `agent ${this.data.players.ids[player]}`; }

  /** The map; and the agent that the pointer is on in either map, marked in both. */
  draw() {
    super.draw();
    const { hovered, followed } = this.state, entity = this.shownPlayer(hovered);
    if (entity && hovered !== followed) drawRing(this.context, entity.x, entity.y, this.radius() + 4, [[2, "#ffffff"]]);
  }

  /** The whole paths of the picked agent in both arms, this arm's on top; what is still to come is faint. */
  drawTrail() {
    if (this.state.followed === null) return;
    this.drawPath(this.other);
    this.drawPath(this.side);
  }

  drawPath(side) {
    const { context, state } = this;
    const { players, ticks } = state.replays[side];
    context.save();
    context.lineJoin = context.lineCap = "round";
    for (const [from, to, alpha] of [[0, state.tick, 1], [state.tick, ticks - 1, 0.35]]) {
      context.beginPath();
      for (let tick = from; tick <= to; tick++) {
        if (!players.present(state.followed, tick)) continue;
        const { x, y } = this.camera.toScreen(players.at("row", state.followed, tick), players.at("col", state.followed, tick));
        context.lineTo(x, y);
      }
      context.globalAlpha = alpha;
      context.setLineDash([]);
      strokePath(context, [[4.5, "#101214b0"]]);
      context.setLineDash(PATH_DASHES[side]);
      strokePath(context, [[2.2, PATH_COLOURS[side]]]);
    }
    context.restore();
  }


  /** The agent under the pointer, if the pointer is on this map. */
  hoveredPlayer() {
    const entity = this.pointer && this.entityAt(this.pointer);
    return entity?.group === this.data.players ? entity.index : null;
  }

  describe(entity) {
    if (entity.group !== this.data.players) return super.describe(entity);
    const { state } = this;
    const lines = SIDES.map((side) => `    ${side}: ${state.inWords(side, entity.index)}`);
    return [state.nameOf(entity.index), ...lines].join("\n");
  }
}
