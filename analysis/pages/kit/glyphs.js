"use strict";

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

/** Add a shape of a given radius to the canvas's path. */
function shapePath(context, shape, x, y, radius) {
  context.beginPath();
  if (shape === "circle" || shape === "dot") {
    context.arc(x, y, radius, 0, 2 * Math.PI);
  } else if (shape === "square") {
    context.rect(x - 0.85 * radius, y - 0.85 * radius, 1.7 * radius, 1.7 * radius);
  } else if (shape === "diamond") {
    polygon(context, [[x, y - 1.15 * radius], [x + 1.15 * radius, y], [x, y + 1.15 * radius], [x - 1.15 * radius, y]]);
  } else if (shape === "triangle") {
    polygon(context, [[x, y - 1.1 * radius], [x + 1.1 * radius, y + 0.85 * radius], [x - 1.1 * radius, y + 0.85 * radius]]);
  } else if (shape === "cross") {
    for (const slope of [1, -1]) {
      context.moveTo(x - radius, y - slope * radius);
      context.lineTo(x + radius, y + slope * radius);
    }
  }
}

function polygon(context, corners) {
  corners.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
}

/** Fill a shape and give it an edge that shows on any ground. */
function drawShape(context, shape, x, y, radius, fill, edge) {
  shapePath(context, shape, x, y, radius);
  if (shape === "cross") {
    for (const [width, colour] of [[Math.max(3, radius * 0.9), edge], [Math.max(1.5, radius * 0.45), fill]]) {
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke();
    }
    return;
  }
  context.fillStyle = fill;
  context.fill();
  context.lineWidth = Math.max(1, radius * 0.22);
  context.strokeStyle = edge;
  context.stroke();
}

/** A player: a disc, or a ring where the colour is not this very tick's. */
function drawPlayer(context, x, y, radius, { colour, solid }) {
  context.beginPath();
  context.arc(x, y, radius + Math.max(1, radius * 0.16), 0, 2 * Math.PI);
  context.fillStyle = "#101214";
  context.fill();
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = solid ? "#ffffff" : colour;
  context.fill();
  context.beginPath();
  context.arc(x, y, radius * (solid ? 0.78 : 0.52), 0, 2 * Math.PI);
  context.fillStyle = solid ? colour : "#101214";
  context.fill();
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

/** A small canvas that shows a mark, for legends. */
function markCanvas(draw) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 32;
  canvas.style.width = canvas.style.height = "16px";
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  draw(context);
  return canvas;
}
