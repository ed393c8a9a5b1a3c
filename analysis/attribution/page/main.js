"use strict";

/* Views of one sample at a time, with the map of the chosen tick and lag over them. */

const SIDE = 15;
const FADED = 0.35;
const UP = "#b2182b", DOWN = "#2166ac";
const $ = (id) => document.getElementById(id);
const facts = JSON.parse($("facts").textContent);
const state = { sample: 0, tick: 0, lag: 0, timer: null, tables: [] };

/** Start with the first sample. */
async function start() {
  facts.samples.forEach((sample, i) => {
    const text = `${sample.number}: agent ${sample.agent}, episode ${sample.episode}`;
    $("sample").append(element("option", { value: i }, text));
  });
  $("sample").addEventListener("change", () => choose(Number($("sample").value)));
  $("tick").addEventListener("input", () => go(Number($("tick").value)));
  $("lag").addEventListener("input", () => { state.lag = Number($("lag").value); draw(); });
  $("overlay").addEventListener("change", draw);
  $("play").addEventListener("click", play);
  $("strip").addEventListener("click", (event) => {
    const box = $("strip").getBoundingClientRect();
    go(Math.floor(((event.clientX - box.left) / box.width) * sample().ticks));
  });
  $("view").addEventListener("mousemove", hover);
  document.addEventListener("keydown", key);
  await choose(0);
  document.body.dataset.ready = "true";
}

const sample = () => facts.samples[state.sample];
const tables = () => state.tables[state.sample];

/** Show another sample from its first tick. */
async function choose(number) {
  if (!state.tables[number]) {
    const bytes = await inflated($(`content-${number}`).textContent.trim());
    state.tables[number] = unpacked(facts.samples[number].columns, bytes);
  }
  state.sample = number;
  $("tick").max = sample().ticks - 1;
  go(0);
}

/** Show a tick. */
function go(tick) {
  state.tick = Math.max(0, Math.min(sample().ticks - 1, tick));
  $("tick").value = state.tick;
  draw();
}

/** Ticks back that there are. */
const back = () => tables().task.length / sample().ticks;

/** One row of a table of (ticks, ticks back, width): the chosen tick and lag. */
function row(name) {
  const table = tables()[name];
  const width = table.length / (sample().ticks * back());
  const at = (state.tick * back() + back() - 1 - state.lag) * width;
  return table.subarray(at, at + width);
}

const sizeOf = (values) => values.reduce((sum, value) => sum + Math.abs(value), 0);
const told = (value) => (value >= 0 ? "+" : "−") + Math.abs(value).toPrecision(3);

/** The tick whose view is shown: that of the lag, if it is in the sample. */
const viewed = () => state.tick - state.lag;

/** Draw everything for the chosen tick and lag. */
function draw() {
  $("clock").textContent = `tick ${tables().tick[state.tick]}: ${told(tables().value[state.tick])}`;
  $("ago").textContent = state.lag;
  drawView();
  drawStrip();
  drawBars();
}

/** The view, with red and blue over it, and entities. */
function drawView() {
  const canvas = $("view"), context = canvas.getContext("2d"), tile = canvas.width / SIDE;
  const map = row("tiles"), there = viewed() >= 0;
  const material = tables().material.subarray(viewed() * SIDE * SIDE, (viewed() + 1) * SIDE * SIDE);
  const far = Math.max(...map.map(Math.abs)) || 1;
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < SIDE * SIDE; i++) {
    const x = (i % SIDE) * tile, y = Math.floor(i / SIDE) * tile;
    context.globalAlpha = $("overlay").checked ? FADED : 1;  // blue water must not be taken for blue on the map
    context.fillStyle = there ? facts.colours[material[i]] : "#eceff2";
    context.fillRect(x, y, tile, tile);
    if ($("overlay").checked) {
      context.globalAlpha = 0.85 * Math.abs(map[i]) / far;
      context.fillStyle = map[i] > 0 ? UP : DOWN;
      context.fillRect(x, y, tile, tile);
    }
  }
  context.globalAlpha = 1;
  if (there) drawEntities(context, tile);
}

/** Entities as dots, larger if more is attributed to them. */
function drawEntities(context, tile) {
  const values = row("entities"), far = Math.max(...values.map(Math.abs), 1e-12);
  tables().entities_text[viewed()].forEach((entity, i) => {
    const x = (entity.col + 7.5) * tile, y = (entity.row + 7.5) * tile, value = values[i] || 0;
    context.beginPath();
    context.arc(x, y, 3 + 7 * Math.abs(value) / far, 0, 2 * Math.PI);
    context.fillStyle = entity.text === "itself" ? "#ffffff" : value > 0 ? UP : value < 0 ? DOWN : "#444444";
    context.fill();
    context.strokeStyle = "#000000";
    context.stroke();
  });
}

/** The target over the sample as a line, over bars of how much is attributed in each tick. */
function drawStrip() {
  const canvas = $("strip"), context = canvas.getContext("2d"), ticks = sample().ticks;
  const width = canvas.width / ticks, height = canvas.height, value = tables().value;
  const size = Array.from({ length: ticks }, (_, t) => {
    const each = tables().tiles.length / ticks;
    return sizeOf(tables().tiles.subarray(t * each, (t + 1) * each));
  });
  const far = Math.max(...size) || 1, low = Math.min(...value), high = Math.max(...value);
  context.clearRect(0, 0, canvas.width, height);
  context.fillStyle = "#c9d6e4";
  size.forEach((each, t) => context.fillRect(t * width, height * (1 - each / far), width - 0.5, (height * each) / far));
  context.fillStyle = "rgba(255, 179, 0, 0.6)";
  context.fillRect(state.tick * width, 0, width, height);
  context.beginPath();
  value.forEach((each, t) => {
    const y = height - 6 - ((each - low) / (high - low || 1)) * (height - 12);
    if (t) context.lineTo((t + 0.5) * width, y); else context.moveTo(width / 2, y);
  });
  context.strokeStyle = "#171b20";
  context.stroke();
}

/** One bar for each part of the input, and for the columns and items that matter most. */
function drawBars() {
  const own = row("own"), entities = row("entities"), items = row("inventory");
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const parts = [
    ["tiles", sum(row("tiles"))], ["entities", sum(entities)], ["own row", sum(own)], ["inventory", sum(items)],
    ["task", row("task")[0]],
  ];
  const columns = tables().columns.map((name, i) => [name, own[i]]);
  const named = viewed() < 0 ? [] : [
    ...tables().entities_text[viewed()].map((each, i) => [each.text, entities[i] || 0]),
    ...tables().items_text[viewed()].map((each, i) => [each, items[i] || 0]),
  ];
  const names = tables().component_names;
  const components = names.map((name, i) => [name, tables().components[state.tick * names.length + i]]);
  const most = (list) => list.filter((each) => each[1]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 6);
  $("bars").replaceChildren(
    ...bars("By part (sums)", parts), ...bars("Own row, by column", most(columns)), ...bars("Entities and items", most(named)),
    ...bars("Memory before the window, by component", most(components)),
    element("p", { class: "dim" }, `Memory before the window: ${tables().memory[state.tick].toPrecision(3)} in size`),
  );
}

function bars(heading, list) {
  const far = Math.max(...list.map((each) => Math.abs(each[1])), 1e-12);
  return list.length ? [element("h3", {}, heading), ...list.map(([name, value]) => bar(name, value, far))] : [];
}

function bar(name, value, far) {
  const fill = element("div", { class: "fill" });
  fill.style.width = `${50 * Math.abs(value) / far}%`;
  fill.style[value > 0 ? "left" : "right"] = "50%";
  fill.style.background = value > 0 ? UP : DOWN;
  const track = element("div", { class: "track" }, fill);
  return element("div", { class: "bar" }, element("span", {}, name), track, element("span", { class: "number" }, told(value)));
}

/** Say what lies under the pointer, and what is attributed to it. */
function hover(event) {
  const box = $("view").getBoundingClientRect();
  const column = Math.floor(((event.clientX - box.left) / box.width) * SIDE);
  const line = Math.floor(((event.clientY - box.top) / box.height) * SIDE);
  if (column < 0 || line < 0 || column >= SIDE || line >= SIDE) return;
  const i = line * SIDE + column, values = row("entities");
  const there = viewed() >= 0;
  const name = there ? facts.materials[tables().material[viewed() * SIDE * SIDE + i]] : "tile before the sample";
  const entities = there ? tables().entities_text[viewed()] : [];
  const others = entities.map((each, k) => [each, values[k] || 0]).filter(
    ([each]) => each.row + 7 === line && each.col + 7 === column,
  );
  $("hover").textContent = [
    `${name} ${place(line - 7, column - 7)}: ${told(row("tiles")[i])}`,
    ...others.map(([each, value]) => `${each.text}: ${each.text === "itself" ? "see its own row" : told(value)}`),
  ].join("; ");
}

function place(down, right) {
  const parts = [];
  if (down) parts.push(`${Math.abs(down)} ${down < 0 ? "north" : "south"}`);
  if (right) parts.push(`${Math.abs(right)} ${right < 0 ? "west" : "east"}`);
  return parts.join(", ") || "underfoot";
}

function play() {
  if (state.timer) { clearInterval(state.timer); state.timer = null; $("play").textContent = "▶"; return; }
  $("play").textContent = "⏸";
  state.timer = setInterval(() => (state.tick + 1 < sample().ticks ? go(state.tick + 1) : play()), 200);
}

function key(event) {
  if (event.target.tagName === "SELECT" || event.target.type === "range") return;
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  if (event.key === " ") play();
  else if (moves[event.key]) {
    state.lag = Math.max(0, Math.min(back() - 1, state.lag + moves[event.key][1]));
    $("lag").value = state.lag;
    go(state.tick + moves[event.key][0]);
  } else return;
  event.preventDefault();
}

start();
