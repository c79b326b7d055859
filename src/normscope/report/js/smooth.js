// Smoothing, as TensorBoard does it: an exponential moving average whose start is not drawn towards zero.

/** Values averaged with those before them; `weight` in [0, 1) is what the past keeps from one mean step to the next.

Points are not equally far apart, so a point that is twice as far on forgets twice as much. A gap stays a gap. */
function smoothed(xs, values, weight) {
  if (!weight) return values;
  const span = xs[xs.length - 1] - xs[0], step = span > 0 ? span / (xs.length - 1) : 1;
  let sum = 0, mass = 0, last = null;
  return values.map((value, i) => {
    if (value === null) return null;
    const kept = last === null ? 0 : weight ** ((xs[i] - last) / step);
    sum = kept * sum + (1 - weight) * value;
    mass = kept * mass + (1 - weight);
    last = xs[i];
    return sum / mass;
  });
}
