/* The life of a top record: the feature's strength and its best behaviour, tick by tick. */

const CHART_HEIGHT = 150;
const EDGE = 4; // beside the line

function openLife(data, i, top) {
  const panel = byId("life");
  panel.hidden = false;
  const [agent, episode] = [data.tables["top.agent"][top], data.tables["top.episode"][top]];
  const trace = data.trace(top);
  const behaviour = data.behaviour(i);
  const name = `feature_${data.number("number", i)}`;
  byId("life-name").textContent =
    `${name} in the life of agent ${agent}, episode ${episode}: ${trace.ticks.length} ticks`;
  byId("life-command").textContent =
    `python agent_life_visualization.py ${data.facts.dump} --agent ${agent} --episode ${episode}`;
  const canvas = byId("life-chart");
  canvas.setAttribute("aria-label", `Strength of ${name} and ${behaviour.name} over the life`);
  const draw = (pointed) => drawLife(canvas, trace, data.tables["top.tick"][top], pointed);
  draw(null);
  canvas.onpointermove = (event) => {
    const share = (pointIn(canvas, event).x - EDGE) / Math.max(1, canvas.clientWidth - 2 * EDGE);
    const place = Math.min(trace.ticks.length - 1, Math.max(0, Math.round(share * (trace.ticks.length - 1))));
    draw(place);
    byId("life-pointer").textContent =
      `tick ${trace.ticks[place]}: strength ${trace.strengths[place].toFixed(2)}, ${behaviour.name} ` +
      `${shown(trace.behaviour[place])} ${behaviour.unit}`;
  };
  const legend =
    `Blue: strength, from 0 to ${trace.most.toFixed(2)}. Brown: ${behaviour.name}, from ${shown(trace.low)} to ` +
    `${shown(trace.high)} ${behaviour.unit}. The vertical line is the top record. Point at the chart to read it.`;
  canvas.onpointerleave = () => {
    draw(null);
    byId("life-pointer").textContent = legend;
  };
  byId("life-pointer").textContent = legend;
}

function drawLife(canvas, trace, topTick, pointed) {
  const width = canvas.parentElement.clientWidth - 28; // without the panel's padding
  const context = sharp(canvas, width, CHART_HEIGHT);
  const last = Math.max(1, trace.ticks.length - 1);
  const x = (place) => EDGE + (place / last) * (width - 2 * EDGE);
  const marker = (place, colour) => {
    context.fillStyle = colour;
    context.fillRect(x(place) - 0.5, 0, 1, CHART_HEIGHT);
  };
  marker(Math.max(0, trace.ticks.indexOf(topTick)), "#8a939d");
  if (pointed !== null) marker(pointed, styled("mark"));
  const place = { x, top: 6, bottom: CHART_HEIGHT - 6 };
  drawLine(context, trace.behaviour, { ...place, low: trace.low, high: trace.high, colour: styled("second") });
  drawLine(context, trace.strengths, { ...place, low: 0, high: trace.most, colour: styled("accent"), width: 1.5 });
}

function shown(value) { return Number.isInteger(value) ? String(value) : value.toFixed(2); }
