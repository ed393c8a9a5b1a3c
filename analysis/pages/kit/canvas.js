/* Canvases: sharp pixels, what is under the pointer, lines over ticks, rings, colours of the page's style. */

/** A colour of the style, by the name of its variable. */
function styled(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }

/** Give a canvas sharp pixels for its size in the page; returns its context, whose units are CSS pixels. */
function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = "11px system-ui, sans-serif";
  return context;
}

/** Give canvases sharp pixels for the size that the style gives to the first of them; returns that size in CSS pixels. */
function sized(...canvases) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvases[0];
  for (const canvas of canvases) {
    canvas.width = Math.max(1, width * ratio);
    canvas.height = Math.max(1, height * ratio);
  }
  return { width, height };
}

/** Clear a canvas that was `sized`; returns its context, whose units are CSS pixels. */
function cleared(canvas) {
  const context = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.width / ratio, canvas.height / ratio);
  return context;
}

/** Where an event is on a canvas, in CSS pixels; and as shares of its width and height. */
function pointIn(canvas, { clientX, clientY }) {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const [x, y] = [clientX - left, clientY - top];
  return { x, y, across: x / width, down: y / height };
}

/** Least and greatest of the values that are known. */
function ends(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}

/** The least box around places, with a margin. */
function boxAround(rows, cols, margin) {
  const [[top, bottom], [left, right]] = [ends(rows), ends(cols)];
  return { top: top - margin, left: left - margin, bottom: bottom + 1 + margin, right: right + 1 + margin };
}

/** Draw values, tick by tick, as a line: `x` gives the place of a tick, `low` is drawn at `bottom` and `high` at `top`. */
function drawLine(context, values, { x, low, high, top, bottom, colour, width = 1 }) {
  context.beginPath();
  values.forEach((value, i) => {
    if (Number.isFinite(value)) context.lineTo(x(i), bottom - ((value - low) / (high - low || 1)) * (bottom - top));
  });
  strokePath(context, [[width, colour]]);
}

/** Stroke the canvas's path several times, [width, colour] each, the first below. */
function strokePath(context, strokes) {
  for (const [width, colour] of strokes) {
    context.lineWidth = width;
    context.strokeStyle = colour;
    context.stroke();
  }
}

/** A ring of several strokes. */
function drawRing(context, x, y, radius, strokes) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  strokePath(context, strokes);
}

function drawDisc(context, x, y, radius, colour) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = colour;
  context.fill();
}

/** Plotly's colour scale of colours that are not mixed, each as wide as the others. */
function colourSteps(colours) {
  return colours.flatMap((colour, i) => [[i / colours.length, colour], [(i + 1) / colours.length, colour]]);
}

/** The thing that is least far, less than the reach; null if there is none. */
function nearest(things, farOf, reach = Infinity) {
  let [best, least] = [null, reach];
  for (const thing of things) {
    const far = farOf(thing);
    if (far < least) [best, least] = [thing, far];
  }
  return best;
}
