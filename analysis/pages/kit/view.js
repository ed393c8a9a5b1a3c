/* What an agent saw at a tick, drawn from the recorded observation; and maps over it. */

const SELF_LOOK = { colour: "#ffd166", solid: true };
const PLAYER_LOOK = { colour: "#e4615c", solid: true };
const SMALLEST_VIEW = 60; // CSS pixels
const UP = [178, 24, 43], DOWN = [33, 102, 172]; // raises a target, lowers it
const WASH = 0.62; // under a map, the view pales, so that blue water is not taken for blue on the map

/** What the pages' data have in common that hold recorded ticks: who is in view, vitals, what was done. */
class RecordedTicks {
  constructor(facts, tables) {
    this.facts = facts;
    this.tables = tables;
    this.entityStart = running(tables["entity.count"]);
  }

  /** The others in a tick's view: [{kind, id, health, down, right, attacked}]; kind 0 is a player, id null where nobody knows it. */
  others(tick) {
    const { tables } = this, first = this.entityStart[tick];
    return Array.from({ length: tables["entity.count"][tick] }, (_, i) => ({
      kind: tables["entity.kind"][first + i],
      id: tables["entity.id"][first + i],
      health: tables["entity.health"][first + i],
      down: tables["entity.down"][first + i],
      right: tables["entity.right"][first + i],
      attacked: tables["attack.target"][tick] === i,
    }));
  }

  /** What somebody in view is called, with a number where there is one. */
  calledOther({ kind, id }) {
    const called = kind ? `${this.facts.npcKinds[kind - 1].name} NPC` : "player";
    return id === null ? called : `${called} ${id}`;
  }

  vitals(tick) { return Object.fromEntries(VITALS.map((name) => [name, this.tables[`self_${name}`][tick]])); }

  action(tick) { return this.tables.phrases[this.tables.words[tick]]; }
}

/** Draw a tick's view on a canvas of the given width in CSS pixels, or of the smallest width that can be read; `over`
 * draws between tiles and entities. */
function drawView(canvas, data, tick, room, over = () => {}) {
  const width = Math.max(SMALLEST_VIEW, room);
  const context = sharp(canvas, width, width);
  const scale = width / data.facts.side;
  drawTiles(context, data, tick, scale);
  over(context, scale);
  drawOthers(context, data, tick, scale);
}

function drawTiles(context, data, tick, scale) {
  const { side, materials, harvestable } = data.facts;
  data.view(tick).forEach((material, tile) => {
    const [down, right] = [Math.floor(tile / side), tile % side];
    context.fillStyle = materials[material].colour;
    // A tile's edges are whole pixels, so that no seams show between tiles.
    const [x, y] = [Math.floor(right * scale), Math.floor(down * scale)];
    context.fillRect(x, y, Math.ceil((right + 1) * scale) - x, Math.ceil((down + 1) * scale) - y);
    if (harvestable[materials[material].name]) {
      drawTileMark(context, materials[material].name, false, (right + 0.5) * scale, (down + 0.5) * scale, scale);
    }
  });
}

/** Everybody on their tiles, those that share one side by side; the attacked one with a line and a ring. */
function drawOthers(context, data, tick, scale) {
  const middle = data.facts.side / 2;
  const here = { x: middle * scale, y: middle * scale };
  const sharing = new Map([["0 0", 1]]);
  const shown = data.others(tick).map((other) => {
    const tile = `${other.down} ${other.right}`;
    const earlier = sharing.get(tile) ?? 0;
    sharing.set(tile, earlier + 1);
    const apart = earlier ? 0.3 * scale : 0;
    return {
      ...other,
      x: (middle + other.right) * scale + apart * Math.cos(2.4 * earlier),
      y: (middle + other.down) * scale + apart * Math.sin(2.4 * earlier),
    };
  });
  const target = shown.find(({ attacked }) => attacked);
  if (target) drawAttack(context, here, target, "Melee", Math.max(0.7, scale / 12), 0.34 * scale);
  for (const other of shown) {
    if (other.kind === 0) drawPlayer(context, other.x, other.y, 0.34 * scale, PLAYER_LOOK);
    else drawNpc(context, other.x, other.y, 0.3 * scale, data.facts.npcKinds[other.kind - 1]);
  }
  drawPlayer(context, here.x, here.y, 0.38 * scale, SELF_LOOK);
  if (target) drawRing(context, target.x, target.y, 0.5 * scale, [[4, "#ffffff"], [2, ATTACK_COLOUR]]);
}

/** A saliency map over a view: pale tiles with red and blue over them. Tiles before the life stay blank. */
function drawMapOver(context, side, scale, tiles, most) {
  context.fillStyle = `rgba(255, 255, 255, ${WASH})`;
  context.fillRect(0, 0, side * scale, side * scale);
  tiles.forEach((value, i) => {
    if (!value) return;
    context.fillStyle = `rgba(${(value > 0 ? UP : DOWN).join(", ")}, ${0.9 * Math.abs(value) / (most || 1)})`;
    context.fillRect((i % side) * scale, Math.floor(i / side) * scale, scale + 0.5, scale + 0.5);
  });
}

/** The tile of a view under the pointer, counted from its first and from the agent; null beside the view. */
function tileUnder(canvas, event, side) {
  const { across, down } = pointIn(canvas, event);
  const [row, column] = [Math.floor(down * side), Math.floor(across * side)];
  if (column < 0 || row < 0 || column >= side || row >= side) return null;
  const middle = (side - 1) / 2;
  return { number: row * side + column, down: row - middle, right: column - middle };
}

/** Where a place is from the agent, in words. */
function whereabouts(down, right) {
  const parts = [];
  if (down) parts.push(`${Math.abs(down)} ${down < 0 ? "north" : "south"}`);
  if (right) parts.push(`${Math.abs(right)} ${right < 0 ? "west" : "east"}`);
  return parts.join(", ") || "underfoot";
}

/** Who is in view, in words: for readers who cannot see the picture. */
function inWords(data, tick) {
  const { materials, side } = data.facts;
  const others = data.others(tick).map((other) => `${data.calledOther(other)} (health ${other.health}${other.attacked ? ", attacked" : ""})`);
  const ground = materials[data.view(tick)[(side * side - 1) / 2]].name;
  return `stands on ${ground}; in view: ${others.join(", ") || "nobody"}`;
}

/** What marks in views mean. */
function viewLegend({ facts }) {
  const tiles = facts.materials.map(({ name, colour }) => (
    element("li", {}, element("span", { class: "swatch", "aria-hidden": "true", style: `background: ${colour}` }), name)
  ));
  return [
    legendItem("the agent", (context) => drawPlayer(context, 8, 8, 5, SELF_LOOK)),
    legendItem("player", (context) => drawPlayer(context, 8, 8, 5, PLAYER_LOOK)), ...npcLegend(facts.npcKinds),
    attackLegend("attack", "Melee"), ...tiles,
  ];
}
