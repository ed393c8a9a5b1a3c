/* The marks that are drawn on maps and views, on time lines and in legends. */

const EVENT_MARKS = {
  "death": { colour: "#ff8fa3", shape: "cross" },
  "kill": { colour: "#ffb347", shape: "diamond" },
  "level-up": { colour: "#8ee3a1", shape: "triangle" },
  "hit": { colour: "#f4f1de", shape: "dot" },
  "hit taken": { colour: "#e4615c", shape: "dot" },
};
const STYLE_DASHES = { Melee: [], Range: [6, 3], Mage: [2, 3] };
const ATTACK_COLOUR = "#d7263d";

/** Corners of shapes of radius 1, across and down; a cross is two lines, other shapes are circles. */
const CORNERS = {
  square: [[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]],
  diamond: [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]],
  triangle: [[0, -1.1], [1.1, 0.85], [-1.1, 0.85]],
};

/** Make a shape of a given radius the canvas's path. */
function shapePath(context, shape, x, y, radius) {
  context.beginPath();
  if (shape in CORNERS) {
    polygon(context, CORNERS[shape].map(([across, down]) => [x + across * radius, y + down * radius]));
  } else if (shape === "cross") {
    for (const slope of [1, -1]) {
      context.moveTo(x - radius, y - slope * radius);
      context.lineTo(x + radius, y + slope * radius);
    }
  } else {
    context.arc(x, y, radius, 0, 2 * Math.PI);
  }
}

function polygon(context, corners) {
  for (const corner of corners) context.lineTo(...corner);
  context.closePath();
}

/** Fill a shape and give it an edge that shows on any ground. */
function drawShape(context, shape, x, y, radius, fill, edge) {
  shapePath(context, shape, x, y, radius);
  if (shape === "cross") {
    strokePath(context, [[Math.max(3, radius * 0.9), edge], [Math.max(1.5, radius * 0.45), fill]]);
    return;
  }
  context.fillStyle = fill;
  context.fill();
  strokePath(context, [[Math.max(1, radius * 0.22), edge]]);
}

/** A player: a disc, or a ring where the colour is not this very tick's. */
function drawPlayer(context, x, y, radius, { colour, solid }) {
  drawDisc(context, x, y, radius + Math.max(1, radius * 0.16), "#101214");
  drawDisc(context, x, y, radius, solid ? "#ffffff" : colour);
  drawDisc(context, x, y, radius * (solid ? 0.78 : 0.52), solid ? colour : "#101214");
}

function drawNpc(context, x, y, radius, kind) {
  drawShape(context, kind.shape, x, y, radius, kind.colour, kind.shape === "square" ? "#ff6b5e" : "#101214");
}

/** A mark on what can be harvested, a filled one, and on what was, an empty one: not by colour alone. */
function drawTileMark(context, material, harvested, x, y, scale) {
  const shapes = { foilage: "dot", tree: "triangle", ore: "square", crystal: "diamond", herb: "circle", fish: "dot" };
  shapePath(context, shapes[material], x, y, scale * 0.2);
  context.lineWidth = 1;
  context.fillStyle = context.strokeStyle = harvested ? "#00000055" : "#ffffffa0";
  if (harvested) context.stroke();
  else context.fill();
}

/** An attack: a line with a white seam and an arrow head, which stops short of its target by a gap. */
function drawAttack(context, from, target, style, scale, gap = 0) {
  const length = Math.hypot(target.x - from.x, target.y - from.y);
  if (length < 1) return;
  const [unitX, unitY] = [(target.x - from.x) / length, (target.y - from.y) / length];
  const to = { x: target.x - unitX * gap, y: target.y - unitY * gap };
  const head = Math.min(length / 2, Math.max(4, 5 * scale));
  for (const [width, colour] of [[3 * scale + 1.5, "#ffffffd0"], [1.6 * scale, ATTACK_COLOUR]]) {
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = width;
    context.setLineDash(colour === ATTACK_COLOUR ? STYLE_DASHES[style].map((part) => part * scale) : []);
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x - unitX * head, to.y - unitY * head);
    context.stroke();
  }
  context.setLineDash([]);
  context.beginPath();
  polygon(context, [
    [to.x, to.y],
    [to.x - unitX * head - unitY * head * 0.6, to.y - unitY * head + unitX * head * 0.6],
    [to.x - unitX * head + unitY * head * 0.6, to.y - unitY * head - unitX * head * 0.6],
  ]);
  context.fill();
}

/** A small canvas that shows a mark. */
function markCanvas(draw) {
  const canvas = element("canvas", { width: 32, height: 32, style: "width: 16px; height: 16px", "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  draw(context);
  return canvas;
}

/** A dot in a colour, hollow where what it stands for is not this tick's own. */
function dot({ colour, solid }, kind = "dot") {
  const style = `border-color: ${colour}; background: ${solid ? colour : "transparent"}`;
  return element("span", { class: kind, "aria-hidden": "true", style });
}

/** A mark and what it means, for legends. */
function legendItem(meaning, draw) { return element("li", {}, markCanvas(draw), meaning); }

/** What the marks of NPCs mean. */
function npcLegend(kinds) {
  return kinds.map((kind) => legendItem(`${kind.name} NPC`, (context) => drawNpc(context, 8, 8, 5, kind)));
}

function deathLegend() {
  return legendItem("dies", (context) => drawShape(context, "cross", 8, 8, 5, "#ffffff", "#101214"));
}

function attackLegend(meaning, style) {
  return legendItem(meaning, (context) => drawAttack(context, { x: 1, y: 13 }, { x: 15, y: 3 }, style, 0.9));
}
