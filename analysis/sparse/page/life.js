"use strict";

/* The life of a top record: the feature's strength and its best behaviour, tick by tick. */

const CHART_HEIGHT = 150;
const STRENGTH_COLOUR = "#1f5fa8";
const BEHAVIOUR_COLOUR = "#b06000";

function openLife(data, i, top) {
  const panel = document.getElementById("life");
  panel.hidden = false;
  const [agent, episode] = [data.tables["top.agent"][top], data.tables["top.episode"][top]];
  const trace = data.trace(top);
  const behaviour = data.behaviour(i);
  const name = `feature_${data.number("number", i)}`;
  document.getElementById("life-name").textContent =
    `${name} in the life of agent ${agent}, episode ${episode}: ${trace.ticks.length} ticks`;
  document.getElementById("life-command").textContent =
    `python agent_life_visualization.py ${data.facts.dump} --agent ${agent} --episode ${episode}`;
  const canvas = document.getElementById("life-chart");
  canvas.setAttribute("aria-label", `Strength of ${name} and ${behaviour.name} over the life`);
  const draw = (pointed) => drawLife(canvas, trace, behaviour, data.tables["top.tick"][top], pointed);
  draw(null);
  canvas.onpointermove = (event) => {
    const share = (event.offsetX - 4) / Math.max(1, canvas.clientWidth - 8);
    const place = Math.min(trace.ticks.length - 1, Math.max(0, Math.round(share * (trace.ticks.length - 1))));
    draw(place);
    document.getElementById("life-pointer").textContent =
      `tick ${trace.ticks[place]}: strength ${trace.strengths[place].toFixed(2)}, ${behaviour.name} ` +
      `${shown(trace.behaviour[place])} ${behaviour.unit}`;
  };
  canvas.onpointerleave = () => draw(null);
  document.getElementById("life-pointer").textContent =
    `Blue: strength, from 0 to ${trace.most.toFixed(2)}. Brown: ${behaviour.name}, from ${shown(trace.low)} to ` +
    `${shown(trace.high)} ${behaviour.unit}. The vertical line is the top record. Point at the chart to read it.`;
}

function drawLife(canvas, trace, behaviour, topTick, pointed) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(CHART_HEIGHT * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const last = Math.max(1, trace.ticks.length - 1);
  const x = (place) => 4 + (place / last) * (width - 8);
  const line = (values, low, high, colour, thick) => {
    context.beginPath();
    values.forEach((value, place) => {
      const y = CHART_HEIGHT - 6 - ((value - low) / (high - low || 1)) * (CHART_HEIGHT - 12);
      if (place) context.lineTo(x(place), y);
      else context.moveTo(x(place), y);
    });
    context.strokeStyle = colour;
    context.lineWidth = thick;
    context.stroke();
  };
  const marker = (place, colour) => {
    context.fillStyle = colour;
    context.fillRect(x(place) - 0.5, 0, 1, CHART_HEIGHT);
  };
  marker(Math.max(0, trace.ticks.indexOf(topTick)), "#8a939d");
  if (pointed !== null) marker(pointed, "#d7263d");
  line(trace.behaviour, trace.low, trace.high, BEHAVIOUR_COLOUR, 1);
  line(trace.strengths, 0, trace.most, STRENGTH_COLOUR, 1.5);
}

function shown(value) {
  return Number.isInteger(value) ? String(value) : value.toFixed(2);
}
