/* The tables of a page, as pages.py packs them. */

const TABLE_KINDS = { u1: Uint8Array, i1: Int8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

/** Cut the bytes into tables, as pages.py describes them. */
function unpacked(columns, bytes) {
  const tables = {};
  let at = 0;
  for (const { name, kind, shape } of columns) {
    const size = shape.reduce((product, length) => product * length, 1);
    const width = kind === "json" ? 1 : TABLE_KINDS[kind].BYTES_PER_ELEMENT;
    const part = bytes.subarray(at, at + size * width);
    at += size * width;
    if (kind === "json") tables[name] = JSON.parse(new TextDecoder().decode(part));
    else if (kind === "u1") tables[name] = part.slice();
    else if (kind.startsWith("f")) tables[name] = fromBytePlanes(part, TABLE_KINDS[kind], size);
    else tables[name] = fromDifferences(part, TABLE_KINDS[kind], shape[shape.length - 1]);
  }
  return tables;
}

/** Integers are stored as differences along the last axis. */
function fromDifferences(bytes, type, length) {
  const values = new type(bytes.slice().buffer);
  for (let start = 0; start < values.length; start += length) {
    for (let i = start + 1; i < start + length; i++) values[i] += values[i - 1];
  }
  return values;
}

/** Floats are stored as all their first bytes, then all their second bytes, and so on. */
function fromBytePlanes(bytes, type, size) {
  const width = type.BYTES_PER_ELEMENT;
  const whole = new Uint8Array(size * width);
  for (let plane = 0; plane < width; plane++) {
    for (let i = 0; i < size; i++) whole[i * width + plane] = bytes[plane * size + i];
  }
  return new type(whole.buffer);
}

/** Whole numbers from start to before end. */
function range(start, end) { return Array.from({ length: end - start }, (_, i) => start + i); }

function sumOf(values) { return values.reduce((sum, value) => sum + value, 0); }

/** Where each part starts, and where the last ends: [2, 3] gives [0, 2, 5]. */
function running(counts) {
  const starts = new Int32Array(counts.length + 1);
  counts.forEach((count, i) => { starts[i + 1] = starts[i] + count; });
  return starts;
}

/** The part that a place is in, given where each part starts and where the last ends. */
function partAt(starts, place) {
  let [low, high] = [0, starts.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= place) low = middle;
    else high = middle;
  }
  return low;
}

/** The facts in an element. */
function factsIn(id) { return JSON.parse(byId(id).textContent); }

/** Inflate and unpack the tables in an element, which is then removed. */
async function tablesIn(id, columns) {
  const holder = byId(id), binary = atob(holder.textContent.trim()), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i); // several times faster than Uint8Array.from
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const inflated = new Uint8Array(await new Response(stream).arrayBuffer());
  holder.remove();
  return unpacked(columns, inflated);
}
