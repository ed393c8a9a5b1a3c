/* A clustering by density: the plane, the tree, and the density at which it is cut. */

const facts = factsIn("facts");
const NOISE = 65535;
const UNLIT = "#e3e6ea";
const DIGITS = 3; // that count
const NUMBERS_AT_MOST = 40;

let points; // tables of the points, and which cluster each cluster belongs to at each level, (levels, clusters)
const clusters = facts.clusters;
const count = clusters.parent.length;
const LAST = facts.densities.length - 1;

const ownSizes = new Map();
for (let i = 0; i < count; i++) if (clusters.run[i] !== null) ownSizes.set(i, clusters.size[i]);


const number = (value) => (value === null ? "∞" : value.toLocaleString("en", { maximumSignificantDigits: DIGITS }));

function effects(cluster) {
  const effects = clusters.strongest[cluster].map(([feature, d]) => {
    const size = d === null ? "∞" : Math.abs(d).toFixed(2);
    return `${feature} ${d !== null && d < 0 ? "−" : "+"}${size}`;
  });
  return effects.length ? `<br>Cohen's d against all others:<br>&nbsp;&nbsp;${effects.join("<br>&nbsp;&nbsp;")}` : "";
}

function describe(cluster, size) {
  const run = clusters.run[cluster] === null ? "" : `, the run's cluster ${clusters.run[cluster]}`;
  const now = size === undefined ? "" : `${size.toLocaleString("en")} records here, `;
  return (
    `<b>cluster ${cluster}</b>${run}<br>${now}${clusters.size[cluster].toLocaleString("en")} at its birth` +
    `<br>densities ${number(clusters.birth[cluster])} to ${number(clusters.death[cluster])}` +
    `<br>persistence ${number(clusters.persistence[cluster])}${effects(cluster)}`
  );
}

/** Where each cluster's number stands: its shown member nearest to the mean of those. */
function places(clusterOf, sizes) {
  const members = Map.groupBy(clusterOf.keys(), (i) => clusterOf[i]);
  members.delete(NOISE);
  const largest = [...members].sort(([a], [b]) => sizes.get(b) - sizes.get(a)).slice(0, NUMBERS_AT_MOST);
  return largest.map(([cluster, own]) => {
    const [x, y] = [points.x, points.y].map((axis) => own.reduce((sum, i) => sum + axis[i], 0) / own.length);
    const at = nearest(own, (i) => (points.x[i] - x) ** 2 + (points.y[i] - y) ** 2);
    return { cluster, x: points.x[at], y: points.y[at] };
  });
}

const positive = facts.densities[0];
const end = Math.max(...facts.densities, ...clusters.death.filter((death) => death !== null));
const start = clusters.birth.map((birth) => Math.log10(Math.max(birth ?? end * 1.2, positive)));
const stop = clusters.death.map((death) => Math.log10(Math.max(death ?? end * 1.2, positive)));

const palette = [facts.noiseColour, ...facts.colours];
// Plotly's "Share chart" would upload the data.
const quiet = { displaylogo: false, responsive: true, plotlyServerURL: "", modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d"] };
const margin = { l: 45, r: 10, t: 30, b: 45 };

function drawPlane() {
  const scale = colourSteps(palette), bare = { showgrid: false, zeroline: false, showticklabels: false };
  const records = {
    type: "scattergl", mode: "markers", x: points.x, y: points.y, hoverinfo: "text", text: [],
    marker: { size: points.x.length > 5000 ? 4 : 6, opacity: 0.8, cmin: 0, cmax: palette.length, colorscale: scale },
  };
  const layout = {
    margin, showlegend: false, hovermode: "closest", dragmode: "pan", hoverlabel: { align: "left" },
    xaxis: { ...bare, title: { text: facts.axes[0] } },
    yaxis: { ...bare, title: { text: facts.axes[1] }, scaleanchor: "x" },
    annotations: [],
  };
  return Plotly.newPlot("plane", [records], layout, { ...quiet, scrollZoom: true });
}

function drawTree() {
  const blocks = {
    type: "bar", orientation: "h", hoverinfo: "text", textposition: "none", text: clusters.size.map((_, i) => describe(i)),
    base: start, x: stop.map((to, i) => to - start[i]),
    y: clusters.low.map((low, i) => (low + clusters.high[i]) / 2), width: clusters.low.map((low, i) => clusters.high[i] - low),
    marker: { color: clusters.size.map(() => UNLIT), line: { color: "#fff", width: 1 } },
  };
  const decades = [];
  for (let power = Math.floor(start[0]); power <= Math.ceil(Math.log10(end * 1.2)); power++) decades.push(power, power + Math.log10(2), power + Math.log10(5));
  const layout = {
    margin, showlegend: false, hovermode: "closest", hoverlabel: { align: "left" }, dragmode: "zoom",
    xaxis: { title: { text: "density (1 / distance)" }, zeroline: false, tickvals: decades, ticktext: decades.map((power) => number(10 ** power)) },
    yaxis: { showticklabels: false, showgrid: false, zeroline: false, title: { text: "clusters of the tree" } },
    shapes: [],
  };
  return Plotly.newPlot("tree", [blocks], layout, quiet);
}

const slider = byId("level");
const ownBox = byId("own");
slider.max = LAST;

function tell(level, sizes, own) {
  const inside = sumOf([...sizes.values()]);
  const share = (part) => `${((100 * part) / facts.records).toFixed(1)}%`;
  const kind = sizes.size === 1 ? "cluster holds" : "clusters hold";
  const where = own ? "The run's own clusters" : `Density ${number(facts.densities[level])}, level ${level + 1} of ${LAST + 1}`;
  return `${where}: ${sizes.size} ${kind} ${share(inside)} of the records, ${share(facts.records - inside)} are noise.`;
}

function show() {
  // The cluster of each point, and how many records, of all, each cluster holds: at a level, or as the run has it.
  const level = Number(slider.value), own = ownBox.checked, there = facts.levels[level];
  const row = points.standing.subarray(level * count, (level + 1) * count);
  const clusterOf = own ? points.own : Int32Array.from(points.home, (home, i) => (points.lasts[i] > level ? row[home] : NOISE));
  const sizes = own ? ownSizes : new Map(there.clusters.map((cluster, i) => [cluster, there.sizes[i]]));
  const texts = new Map([...sizes].map(([cluster, size]) => [cluster, describe(cluster, size)]));
  // The run's own clusters have the colours and numbers of its figures.
  const colourOf = (cluster) => (own ? clusters.run[cluster] : clusters.colour[cluster]);
  const nameOf = (cluster) => String(own ? clusters.run[cluster] : cluster);
  const colour = Array.from(clusterOf, (cluster) => (cluster === NOISE ? 0 : colourOf(cluster) + 1) + 0.5);
  const text = Array.from(clusterOf, (cluster, i) => texts.get(cluster) ?? `noise here; last in cluster ${points.home[i]}`);
  const numbers = places(clusterOf, sizes).map(({ cluster, x, y }) => ({
    x, y, text: `<b>${nameOf(cluster)}</b>`, showarrow: false, font: { size: 12, color: "#000" }, bgcolor: "rgba(255,255,255,0.6)", borderpad: 1,
  }));
  Plotly.restyle("plane", { "marker.color": [colour], text: [text] }, [0]);
  Plotly.relayout("plane", { annotations: numbers });
  const lit = clusters.size.map((_, i) => (sizes.has(i) ? facts.colours[colourOf(i)] : UNLIT));
  Plotly.restyle("tree", { "marker.color": [lit], text: [clusters.size.map((_, i) => describe(i, sizes.get(i)))] }, [0]);
  const at = Math.log10(facts.densities[level]);
  const line = { type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", line: { color: "#1d2733", width: 2, dash: "dot" } };
  Plotly.relayout("tree", { shapes: own ? [] : [line] });
  const words = tell(level, sizes, own);
  byId("words").textContent = words;
  slider.setAttribute("aria-valuetext", words);
  window.explorer = { level, own, clusterOf, sizes, words };
}

function goTo(level) {
  ownBox.checked = false;
  slider.value = Math.min(LAST, Math.max(0, level));
  show();
}

async function startPage() {
  points = await tablesIn("content", facts.columns);
  await Promise.all([drawPlane(), drawTree()]);
  slider.addEventListener("input", () => goTo(Number(slider.value)));
  ownBox.addEventListener("change", show);
  listenTo("sparser", "click", () => goTo(Number(slider.value) - 1));
  listenTo("denser", "click", () => goTo(Number(slider.value) + 1));
  byId("tree").on("plotly_click", (event) => {
    const birth = clusters.birth[event.points[0].pointNumber] ?? Infinity;
    const beyond = facts.densities.findIndex((density) => density > birth);
    goTo(beyond < 0 ? LAST : beyond);
  });
  show();
}

begin(startPage, failing("its clusters", "analyse the dump again"));
