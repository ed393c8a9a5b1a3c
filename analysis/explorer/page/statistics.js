/* How the features of selected points differ from all others: the analysis' own statistics, computed again here.
 * effect_intervals.py, shifts.py, circular_shift.py and inference.py in analysis/statistics say what they are and why;
 * tests hold the one against the other. */

const FEWEST_LIVES = 6;
const FEWEST_EPISODES = 6;
const LEVEL = 0.05;
const RANK = 10; // exceedances that make a counted p-value steady
const FEWEST_FOR_TAIL = 99;
const ROUNDING = 1e-6; // of sums of values of about 1: what is 0 must be
const ROUNDING_TOGETHER = 1e-5; // the same, of sums over the lives of an episode
const RELATIVE_ROUNDING = 1e-5; // values that differ by less are ties

/** Units, lives or episodes, of so many records each, and their shifts by permutation, of which the first is none. */
function shiftedUnits(lengths, shifts) {
  return { lengths, shifts, starts: running(lengths), permutations: shifts.length / lengths.length - 1 };
}

/**
 * All that the test needs: the points of each life in order of ticks, and how the run's test shifts lives, and whole
 * episodes; of too few episodes there is no test.
 */
function livesOfPoints(tables) {
  const { "test.sharedShifts": shared, "episode.longest": longest, "life.episode": episodeOf } = tables;
  const lives = shiftedUnits(tables["life.points"], tables["test.shifts"]);
  return { ...lives, order: tables["point.order"], episodeOf, episodes: shared ? shiftedUnits(longest, shared) : null };
}

/** Mean and unbiased variance of values less an origin: {count, mean, variance}; one value has variance 0. */
function momentsOf(values, points, origin) {
  let sum = 0;
  for (const point of points) sum += values[point] - origin;
  const mean = sum / points.length;
  let squares = 0;
  for (const point of points) squares += (values[point] - origin - mean) ** 2;
  return { count: points.length, mean, variance: points.length > 1 ? squares / (points.length - 1) : 0 };
}

/** Cohen's d: difference of means over the pooled standard deviation. */
function cohensD(group, rest) {
  const squares = (group.count - 1) * group.variance + (rest.count - 1) * rest.variance;
  const pooled = squares / Math.max(1, group.count + rest.count - 2), difference = group.mean - rest.mean;
  return difference === 0 ? 0 : difference / Math.sqrt(pooled);
}

/** Standard deviation of all values. */
function spreadOf(values, lives) {
  return Math.sqrt(momentsOf(values, lives.order, values[0]).variance * (1 - 1 / values.length));
}

/** Values in order of lives, less their mean in each life, in units of a spread. */
function centredValues(values, lives, spread) {
  const centred = Float64Array.from(lives.order, (point) => (values[point] - values[0]) / (spread > 0 ? spread : 1));
  for (let life = 0; life < lives.lengths.length; life++) {
    const own = centred.subarray(lives.starts[life], lives.starts[life + 1]), first = own[0];
    for (let i = 0; i < own.length; i++) own[i] -= first;
    const mean = sumOf(own) / own.length;
    for (let i = 0; i < own.length; i++) own[i] -= mean;
  }
  return centred;
}

/** At place starts[i] + s, life i's sum over its selected records after their selection moved s records on. */
function sumsOfAllShifts(centred, inside, lives) {
  const table = new Float64Array(centred.length);
  for (let life = 0; life < lives.lengths.length; life++) {
    const [start, length] = [lives.starts[life], lives.lengths[life]];
    for (let i = 0; i < length; i++) {
      if (!inside[start + i]) continue;
      for (let shift = 0; shift < length; shift++) table[start + shift] += centred[start + ((i + shift) % length)];
    }
  }
  return table.map((sum) => (Math.abs(sum) < ROUNDING ? 0 : sum));
}

/** The test of one feature, in units of `spread`: {p, informative}; p is NaN where too few lives or episodes tell. */
function shiftTest(values, inside, lives, spread) {
  const table = sumsOfAllShifts(centredValues(values, lives, spread), inside, lives);
  const alone = ratioTest(table, lives, FEWEST_LIVES);
  if (!lives.episodes) return alone;
  const together = ratioTest(sumsTogether(table, lives), lives.episodes, FEWEST_EPISODES);
  return { p: Math.max(alone.p, together.p), informative: alone.informative, episodes: together.informative };
}

/** At place starts[i] + s, episode i's sum over its lives after the selections of all of them moved s records on. */
function sumsTogether(table, lives) {
  const { episodes, episodeOf } = lives;
  const sums = new Float64Array(episodes.starts.at(-1));
  for (let life = 0; life < lives.lengths.length; life++) {
    const [from, length, to] = [lives.starts[life], lives.lengths[life], episodes.starts[episodeOf[life]]];
    for (let shift = 0; shift < episodes.lengths[episodeOf[life]]; shift++) sums[to + shift] += table[from + (shift % length)];
  }
  return sums.map((sum) => (Math.abs(sum) < ROUNDING_TOGETHER ? 0 : sum));
}

/** Whether sums over units, lives or episodes, are further from 0 than shifts make them: {p, informative}. */
function ratioTest(table, units, fewest) {
  const ofUnit = (unit) => table.subarray(units.starts[unit], units.starts[unit + 1]);
  const power = Array.from(units.lengths, (length, unit) => sumOf(ofUnit(unit).map((value) => value * value)) / length);
  const informative = power.filter((value) => value > 0).length;
  if (informative < fewest) return { p: NaN, informative };
  const sizes = studentised(table, units), observed = sizes[0];
  const nulls = sizes.subarray(1).toSorted();
  const exceeding = nulls.filter((value) => value >= observed * (1 - RELATIVE_ROUNDING)).length;
  const counted = (1 + exceeding) / (1 + nulls.length);
  if (nulls.length < FEWEST_FOR_TAIL) return { p: counted, informative };
  const effective = sumOf(power) ** 2 / sumOf(power.map((value) => value * value));
  return { p: withTail(counted, observed, nulls, informative, Math.max(effective - 1, 1)), informative };
}

/** |total| over the root of the sum of squares over units, for the selection as it is and for each permutation. */
function studentised(table, units) {
  const count = units.lengths.length;
  return Float64Array.from({ length: units.permutations + 1 }, (_, permutation) => {
    let [total, squares] = [0, 0];
    for (let unit = 0; unit < count; unit++) {
      const sum = table[units.starts[unit] + units.shifts[permutation * count + unit]];
      total += sum;
      squares += sum * sum;
    }
    return squares > 0 ? Math.abs(total) / Math.sqrt(squares) : 0;
  });
}

/** Beyond the 10th largest null value, Student's tail, tied to the permutations there. */
function withTail(counted, observed, nulls, lives, freedom) {
  const rank = nulls[nulls.length - RANK];
  if (observed <= rank * (1 + RELATIVE_ROUNDING)) return counted;
  const far = studentTail(asT(observed, lives), freedom);
  const near = studentTail(asT(rank, lives), freedom);
  if (!(near > 0)) return counted;
  return Math.max(((1 + RANK) / (nulls.length + 1)) * (far / near), 2.2250738585072014e-308);
}

/** A sum over the root of its squares, of n shares, as their one-sample t-statistic. */
function asT(ratio, lives) { return ratio * Math.sqrt(Math.max(lives - 1, 0) / Math.max(lives - ratio ** 2, 1e-12)); }

/** Upper tail of Student's t for t >= 0: half the regularised incomplete beta function at freedom / (freedom + t^2). */
function studentTail(t, freedom) {
  const x = freedom / (freedom + t * t);
  const [a, b] = [freedom / 2, 0.5];
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x));
  if (t === 0) return 0.5;
  if (x < (a + 1) / (a + b + 2)) return (0.5 * front * betaFraction(x, a, b)) / a;
  return 0.5 * (1 - (front * betaFraction(1 - x, b, a)) / b);
}

/** Continued fraction of the incomplete beta function, by Lentz's method (Abramowitz and Stegun 26.5.8). */
function betaFraction(x, a, b) {
  const tiny = 1e-300;
  let [c, d] = [1, 1 - ((a + b) * x) / (a + 1)];
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let value = d;
  for (let m = 1; m < 10000; m++) {
    for (const term of [
      (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)), (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
    ]) {
      d = 1 + term * d;
      d = 1 / (Math.abs(d) < tiny ? tiny : d);
      c = 1 + term / c;
      c = Math.abs(c) < tiny ? tiny : c;
      value *= c * d;
    }
    if (Math.abs(c * d - 1) < 1e-15) break;
  }
  return value;
}

/** Logarithm of the gamma function for x > 0: Stirling's series after moving x beyond 15 (Abramowitz and Stegun 6.1.41). */
function logGamma(x) {
  let moved = 0;
  for (; x < 15; x++) moved -= Math.log(x);
  const inverse = 1 / (x * x);
  const series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))) / x;
  return moved + (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series;
}

/** Benjamini and Hochberg's correction; NaN, no test, stays NaN. */
function falseDiscovery(ps) {
  const order = ps.map((_, i) => i).filter((i) => !Number.isNaN(ps[i])).sort((a, b) => ps[b] - ps[a]);
  const corrected = ps.map(() => NaN);
  let least = 1;
  order.forEach((i, place) => {
    least = Math.min(least, (ps[i] * order.length) / (order.length - place));
    corrected[i] = least;
  });
  return corrected;
}

/** What tick and age do not explain of a feature: values less its courses over both. */
function givenTime(data, feature, lives) {
  const { tables } = data;
  const [ofTick, ofAge] = [["course.ticks", `course.tick.${feature}`], ["course.ages", `course.age.${feature}`]].map(
    ([places, course]) => new Map(Array.from(tables[places], (place, i) => [place, tables[course][i]])),
  );
  const ticks = Array.from(tables["point.tick"], (tick) => tables.tick[tick]);
  const rest = Float64Array.from(data.features[feature].values);
  for (let life = 0; life < lives.lengths.length; life++) {
    const birth = ticks[lives.order[lives.starts[life]]];
    for (let i = lives.starts[life]; i < lives.starts[life + 1]; i++) {
      const point = lives.order[i];
      rest[point] -= ofTick.get(ticks[point]) + ofAge.get(ticks[point] - birth);
    }
  }
  return rest;
}

/** Compare selected points with all others, quantity by quantity; between them, let the page breathe.
 *
 * Rows hold q, corrected over all of them, and the spread that they were tested in. Null once it no longer goes on. */
async function compareQuantities(data, quantities, lives, selection, goesOn) {
  const chosen = new Uint8Array(data.count);
  for (const point of selection) chosen[point] = 1;
  const rest = range(0, data.count).filter((point) => !chosen[point]);
  const inside = Uint8Array.from(lives.order, (point) => chosen[point]);
  const rows = [];
  for (const { name, values } of quantities) {
    const spread = spreadOf(values, lives);
    const [group, others] = [selection, rest].map((points) => momentsOf(values, points, values[0]));
    const d = rest.length ? cohensD(group, others) : NaN;
    const tested = shiftTest(values, inside, lives, spread);
    rows.push({ name, mean: group.mean + values[0], rest: others.mean + values[0], d, spread, ...tested });
    await new Promise((resume) => setTimeout(resume));
    if (!goesOn()) return null;
  }
  const corrected = falseDiscovery(rows.map(({ p }) => p));
  return rows.map((row, i) => ({ ...row, q: corrected[i] }));
}

/** Compare selected points with all others, feature by feature.
 *
 * Rows hold q, and qGivenTime of the features with q up to LEVEL, tested again with tick and age held constant. */
async function compareSelection(data, lives, selection, goesOn) {
  const rows = await compareQuantities(data, data.features, lives, selection, goesOn);
  if (!rows) return null;
  const chosen = new Set(selection), inside = Uint8Array.from(lives.order, (point) => chosen.has(point));
  const again = rows.map(() => NaN);
  for (const [i, { q, spread }] of rows.entries()) {
    if (!(q <= LEVEL)) continue;
    again[i] = shiftTest(givenTime(data, i, lives), inside, lives, spread).p;
    await new Promise((resume) => setTimeout(resume));
    if (!goesOn()) return null;
  }
  const both = rows.map(({ p }, i) => (Number.isNaN(p) ? NaN : Number.isNaN(again[i]) ? 1 : Math.max(p, again[i])));
  const givenBoth = falseDiscovery(both).map((q, i) => (Number.isNaN(again[i]) ? NaN : q));
  return rows.map((row, i) => ({ ...row, qGivenTime: givenBoth[i] }));
}
