/* The list of features: search, sort, and a card for each. */

const STEP = 30;
const VIEW_WIDTH = 105;
const CHART_HEIGHT = 150;
const EDGE = 4; // beside the line

/** The tables, and what the page asks of them. */
class Features extends RecordedTicks {
  constructor(facts, tables) {
    super(facts, tables);
    this.traceStart = running(tables["top.ticks"]);
    const { "top.feature": feature, "top.strength": strength } = tables;
    this.tops = Map.groupBy([...feature.keys()].sort((a, b) => strength[b] - strength[a]), (top) => feature[top]);
  }

  get count() { return this.tables.titles.length; }

  number(name, feature) { return this.tables[`feature.${name}`][feature]; }

  behaviour(feature) { return this.facts.behaviours[this.number("best", feature)]; }

  /** What drawView asks: the tiles that the agent of a top record saw. */
  view(top) {
    const size = this.facts.side ** 2;
    return this.tables["view.tiles"].subarray(top * size, (top + 1) * size);
  }

  /** The life of a top record: ticks, strengths and the behaviour, in their units. */
  trace(top) {
    const [start, length] = [this.traceStart[top], this.tables["top.ticks"][top]];
    const part = (name) => Array.from(this.tables[name].subarray(start, start + length));
    const behaviour = part("trace.behaviour"), [low, high] = ends(behaviour);
    return {
      ticks: part("trace.tick"), strengths: part("trace.strength"), behaviour, low, high,
      most: this.tables["top.strength"][top],
    };
  }
}

async function main() {
  const facts = factsIn("page-facts");
  const data = new Features(facts, await tablesIn("page-content", facts.columns));
  const state = { data, shown: STEP, listed: [] };
  for (const id of ["search", "sort", "described"]) {
    listenTo(id, "input", () => { state.shown = STEP; update(state); });
  }
  listenTo("more", "click", () => { state.shown += STEP; draw(state); });
  listenTo("close-life", "click", closeLife);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeLife(); });
  update(state);
}

function closeLife() {
  byId("life").hidden = true;
  document.querySelectorAll('.top[aria-pressed="true"]').forEach((top) => top.setAttribute("aria-pressed", "false"));
}

const stable = (q) => (Number.isNaN(q) ? "unknown" : q <= 0.05 ? "yes" : "no");

const KEYS = {
  r: (data, i) => Math.abs(data.number("r", i)),
  given: (data, i) => Math.abs(data.number("given", i)),
  auc: (data, i) => Math.abs(data.number("auc", i) - 0.5),
  density: (data, i) => data.number("density", i),
  strongest: (data, i) => data.number("strongest", i),
  value: (data, i) => Math.abs(data.number("value_effect", i)),
  action: (data, i) => Math.abs(data.number("action_effect", i)),
  cosine: (data, i) => data.number("cosine", i),
  number: (data, i) => -data.number("number", i),
};

function update(state) {
  closeLife();
  const { data } = state;
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const only = byId("described").checked;
  const key = KEYS[byId("sort").value];
  const text = (i) => `feature_${data.number("number", i)} ${data.tables.titles[i]} ${data.tables.descriptions[i]}`.toLowerCase();
  state.listed = range(0, data.count)
    .filter((i) => (!only || data.number("described", i)) && words.every((word) => text(i).includes(word)));
  const order = new Map(state.listed.map((i) => [i, key(data, i)]));
  // What could not be measured comes last.
  const value = (i) => (Number.isFinite(order.get(i)) ? order.get(i) : -Infinity);
  state.listed.sort((a, b) => value(b) - value(a) || a - b);
  byId("list").replaceChildren();
  draw(state);
}

function draw({ data, listed, shown }) {
  const list = byId("list"); // cards that are there stay: one of them may have its life open
  list.append(...listed.slice(list.childElementCount, shown).map((i) => card(data, i)));
  byId("count").textContent =
    `${listed.length.toLocaleString("en")} of ${data.count.toLocaleString("en")} features`;
  byId("more").hidden = listed.length <= shown;
}

function card(data, i) {
  const number = data.number("number", i);
  const behaviour = data.behaviour(i);
  const described = data.number("described", i) !== 0;
  const facts = [
    ["active in", `${(100 * data.number("density", i)).toFixed(2)}% of ticks`],
    ["best behaviour", behaviour.name, `${behaviour.definition} (${behaviour.unit})`],
    ["r", signed(data.number("r", i)), "Correlation of strength and behaviour"],
    ["given tick and age", signed(data.number("given", i)), "Correlation with what tick and age leave of the behaviour"],
    ["AUC", fixed(data.number("auc", i)), "Probability that the behaviour is higher where the feature is active than where it is not"],
    ["q", probability(data.number("q", i)), "p-value of the correlation given tick and age, corrected for all features"],
    ["largest strength", fixed(data.number("strongest", i))],
    ["value without it", rounded(data.number("value_effect", i), 2), "How much the critic's value changes on average when the feature is taken out where it is active"],
    ["action without it", rounded(data.number("action_effect", i), 2), "How much the log-probability of the action taken changes on average, in nats"],
    ["other seed", fixed(data.number("cosine", i)), "Cosine with its partner in the autoencoder with another seed"],
    ["more stable than on a Gaussian", stable(data.number("cosine_q", i)), "Whether this cosine exceeds those on a Gaussian of the same covariance and autocorrelation, q at most 0.05"],
  ];
  const tops = data.tops.get(i) ?? [];
  return element(
    "article", { class: described ? "" : "plain", id: `feature_${number}` },
    element("h2", {}, `feature_${number}: ${data.tables.titles[i]}`),
    element("p", {}, data.tables.descriptions[i]),
    element("dl", {}, ...facts.map(([name, value, title]) => (
      element("div", { title: title ?? null }, element("dt", {}, name), element("dd", {}, value))
    ))),
    element(
      "div", { class: "tops" },
      ...tops.map((top) => topButton(data, i, number, top)),
      element("div", { class: "ages" }, ages(data, i), "density from birth to death"),
    ),
  );
}

function topButton(data, i, number, top) {
  const { tables } = data;
  const canvas = element("canvas", { role: "img", "aria-label": inWords(data, top) });
  drawView(canvas, data, top, VIEW_WIDTH);
  const words = `agent ${tables["top.agent"][top]}, tick ${tables["top.tick"][top]}`;
  const button = element(
    "button", { type: "button", class: "top", "aria-pressed": "false", title: `${inWords(data, top)}. Click for the life.` },
    canvas, element("span", {}, words), element("span", {}, `strength ${tables["top.strength"][top].toFixed(2)}`),
  );
  button.addEventListener("click", () => {
    closeLife();
    button.setAttribute("aria-pressed", "true");
    openLife(data, i, top);
  });
  return button;
}

/** In which share of the records of each part of life the feature is active. */
function ages({ tables, facts: { parts } }, i) {
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const values = tables["feature.byAge"].subarray(i * parts, (i + 1) * parts);
  return histogram(values, `Density in ${parts} parts of life: ${Array.from(values, percent).join(", ")}`, percent);
}

function fixed(value, digits = 2) { return Number.isFinite(value) ? value.toFixed(digits) : "–"; }

/** The life of a top record: the feature's strength and its best behaviour, tick by tick. */
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
      `${shortNumber(trace.behaviour[place], 3)} ${behaviour.unit}`;
  };
  const legend =
    `Blue: strength, from 0 to ${trace.most.toFixed(2)}. Brown: ${behaviour.name}, from ${shortNumber(trace.low, 3)} to ` +
    `${shortNumber(trace.high, 3)} ${behaviour.unit}. The vertical line is the top record. Point at the chart to read it.`;
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

begin(main, failing("its features", "run train_sparse_autoencoder.py again"));
