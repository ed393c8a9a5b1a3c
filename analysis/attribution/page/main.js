/* Views of one sample at a time, with the map of the chosen tick and lag over them. */

const VIEW_WIDTH = 480, STRIP_HEIGHT = 90; // CSS pixels
const MOST_LISTED = 6;
const colourOf = (value) => `rgb(${(value > 0 ? UP : DOWN).join(", ")})`;
const largest = (values) => Math.max(...values.map(Math.abs), 1e-12);

/** What the user looks at: a tick of a sample, and what is attributed to a tick some ticks before, the lag. */
class SampleState extends TimedState {
  sample = 0;
  lag = 0;
  unpacked = [];

  get facts() { return this.data.samples[this.sample]; }
  get tables() { return this.unpacked[this.sample]; }
  get last() { return this.facts.ticks - 1; }
  /** Ticks back that there are. */
  get back() { return this.tables.task.length / this.facts.ticks; }
  /** The tick whose view is shown: that of the lag; below 0 before the sample. */
  get viewed() { return this.at - this.lag; }

  /** Show another sample from its first tick. */
  async choose(number) {
    this.wanted = number; // of several that are asked for while one is unpacked, the last
    this.unpacked[number] ??= await tablesIn(`content-${number}`, this.data.samples[number].columns);
    if (this.wanted !== number) return;
    this.sample = number;
    this.seek(0);
  }

  setLag(lag) { this.set("lag", Math.max(0, Math.min(this.back - 1, lag))); }

  /** One row of a table of (ticks, ticks back, width): the chosen tick and lag. */
  row(name) {
    const width = this.tables[name].length / (this.facts.ticks * this.back);
    const at = (this.at * this.back + this.back - 1 - this.lag) * width;
    return this.tables[name].subarray(at, at + width);
  }

  /** What drawTiles asks: the tiles of the view; none before the sample. */
  view() {
    const tiles = this.data.side ** 2;
    return this.viewed < 0 ? new Uint8Array(0) : this.tables.material.subarray(this.viewed * tiles, (this.viewed + 1) * tiles);
  }

  /** The entities in view, each with its attribution. */
  get entities() {
    const values = this.row("entities");
    return this.viewed < 0 ? [] : this.tables.entities_text[this.viewed].map((entity, i) => ({ ...entity, value: values[i] || 0 }));
  }
}

async function start() {
  const state = new SampleState(factsIn("facts"));
  byId("sample").append(...state.data.samples.map(({ number, agent, episode }, i) => (
    element("option", { value: i }, `${number}: agent ${agent}, episode ${episode}`))));
  const transport = new Transport(state, {
    slider: "tick", clock: () => `tick ${state.tables.tick[state.at]}: ${rounded(state.tables.value[state.at])}`,
    keys: { "ArrowUp": () => state.setLag(state.lag + 1), "ArrowDown": () => state.setLag(state.lag - 1) },
  });
  const draw = () => {
    transport.draw();
    byId("lag").value = state.lag;
    byId("ago").textContent = state.lag;
    drawSample(state);
    drawStrip(state);
    byId("bars").replaceChildren(...barsOf(state));
    byId("hover").textContent = "Point at a tile or an entity.";
  };
  listenTo("sample", "change", ({ target }) => state.choose(Number(target.value)));
  listenTo("lag", "input", ({ target }) => state.setLag(Number(target.value)));
  listenTo("overlay", "change", draw);
  listenTo("strip", "click", (event) => state.seek(Math.floor(pointIn(byId("strip"), event).across * state.facts.ticks)));
  listenTo("view", "mousemove", (event) => hover(state, event));
  window.addEventListener("resize", draw);
  state.on(["tick", "lag", "playing"], draw);
  await state.choose(0);
  document.body.dataset.ready = "true";
}

/** The view, with red and blue over it, and entities as dots, larger if more is attributed to them. */
function drawSample(state) {
  const canvas = byId("view"), { side } = state.data, size = Math.min(VIEW_WIDTH, canvas.parentElement.clientWidth);
  const context = sharp(canvas, size, size), scale = size / side, tiles = state.row("tiles");
  context.fillStyle = styled("hairline");
  context.fillRect(0, 0, size, size);
  drawTiles(context, { facts: state.data, view: () => state.view() }, state.viewed, scale);
  if (byId("overlay").checked) drawMapOver(context, side, scale, tiles, largest(tiles));
  const { entities } = state, far = largest(entities.map(({ value }) => value));
  for (const { row, col, text, value } of entities) {
    const colour = text === "itself" ? "#ffffff" : value ? colourOf(value) : "#444444";
    drawDisc(context, (col + side / 2) * scale, (row + side / 2) * scale, 3 + 7 * Math.abs(value) / far, colour);
    strokePath(context, [[1, "#000000"]]);
  }
}

/** The target over the sample as a line, over bars of how much is attributed in each tick. */
function drawStrip({ tables, facts: { ticks }, at }) {
  const canvas = byId("strip"), whole = canvas.parentElement.clientWidth, width = whole / ticks;
  const context = sharp(canvas, whole, STRIP_HEIGHT), tiles = tables.tiles.length / ticks;
  const ofTick = (tick) => tables.tiles.subarray(tick * tiles, (tick + 1) * tiles);
  const sizes = range(0, ticks).map((tick) => sumOf(ofTick(tick).map(Math.abs)));
  const far = largest(sizes), [low, high] = ends(tables.value);
  context.fillStyle = "#c9d6e4";
  sizes.forEach((size, tick) => {
    const height = (STRIP_HEIGHT * size) / far;
    context.fillRect(tick * width, STRIP_HEIGHT - height, width - 0.5, height);
  });
  context.fillStyle = "rgba(255, 179, 0, 0.6)";
  context.fillRect(at * width, 0, width, STRIP_HEIGHT);
  drawLine(context, tables.value, {
    x: (tick) => (tick + 0.5) * width, low, high, top: 6, bottom: STRIP_HEIGHT - 6, colour: styled("text"),
  });
}

/** One bar for each part of the input, and for the columns and items that matter most. */
function barsOf(state) {
  const { tables, viewed, entities } = state, own = state.row("own"), items = state.row("inventory");
  const parts = [
    ["tiles", sumOf(state.row("tiles"))], ["entities", sumOf(state.row("entities"))], ["own row", sumOf(own)],
    ["inventory", sumOf(items)], ["task", state.row("task")[0]],
  ].filter(([, value]) => !Number.isNaN(value)); // occlusion says nothing of some
  const named = viewed < 0 ? [] : [
    ...entities.map(({ text, value }) => [text, value]), ...tables.items_text[viewed].map((text, i) => [text, items[i] || 0]),
  ];
  const names = tables.component_names;
  const components = names.map((name, i) => [name, tables.components[state.at * names.length + i]]), size = tables.memory[state.at];
  const most = (list) => list.filter(([, value]) => value).sort((one, two) => Math.abs(two[1]) - Math.abs(one[1])).slice(0, MOST_LISTED);
  return [
    ...bars("By part (sums)", parts), ...bars("Own row, by column", most(tables.columns.map((name, i) => [name, own[i]]))),
    ...bars("Entities and items", most(named)), ...bars("Memory before the window, by component", most(components)),
    ...(Number.isNaN(size) ? [] : [element("p", { class: "dim" }, `Memory before the window: ${size.toPrecision(3)} in size`)]),
  ];
}

function bars(heading, list) {
  const far = largest(list.map(([, value]) => value));
  const rows = list.map(([name, value]) => { // to the right of the middle where it raises the target, to the left where it lowers it
    const width = 50 * Math.abs(value) / far;
    return barRow("part", name, rounded(value), { from: value > 0 ? 50 : 50 - width, width, colour: colourOf(value) });
  });
  return list.length ? [element("h3", {}, heading), ...rows] : [];
}

/** Say what lies under the pointer, and what is attributed to it. */
function hover(state, event) {
  const tile = tileUnder(byId("view"), event, state.data.side);
  if (!tile) return;
  const name = state.viewed < 0 ? "tile before the sample" : state.data.materials[state.view()[tile.number]].name;
  const others = state.entities.filter(({ row, col }) => row === tile.down && col === tile.right);
  byId("hover").textContent = [
    `${name} ${whereabouts(tile.down, tile.right)}: ${rounded(state.row("tiles")[tile.number])}`,
    ...others.map(({ text, value }) => `${text}: ${text === "itself" ? "see its own row" : rounded(value)}`),
  ].join("; ");
}

begin(start, failing("its maps", "run saliency.py again"));
