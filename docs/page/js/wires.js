// A Transformer of one layer, in which every head sees one key. A softmax over one key is 1, so that a head is a wire: it
// adds one vector, T[head, token that it sees], which stands for its value and output matrices times the embedding.
//   x = sum over heads of T[head, token],   z = max(0, U x + u),   y = x + W z,   logits = O y + o
// All weights lie in one array. T is (heads, tokens, D), U (F, D), W (D, F), O (classes, D).
class Wires {
  constructor(shape, weights) {
    const { tokens, classes, heads, D, F } = Object.assign(this, shape, { shape, size: 0, parts: {} });
    const sizes = { T: heads * tokens * D, U: F * D, u: F, W: D * F, O: classes * D, o: classes };
    for (const name in sizes) this.parts[name] = [this.size, (this.size += sizes[name])];
    this.weights = new Float64Array(weights ?? this.size);
    Object.assign(this, this.split(this.weights));
    [this.x, this.y, this.dx, this.dy] = range(4).map(() => new Float64Array(D));
    [this.z, this.dz] = range(2).map(() => new Float64Array(F));
    this.logits = new Float64Array(classes);
  }
  // The parts of such an array, by name.
  split = (array) => Object.fromEntries(Object.entries(this.parts).map(([name, ends]) => [name, array.subarray(...ends)]));
  start(random) {
    const spread = { T: 0.5, U: this.D ** -0.5, O: this.D ** -0.5 };
    for (const name in spread) this[name].forEach((_, i, part) => (part[i] = spread[name] * gauss(random)));
    return this;
  }
  // Logits for the tokens that the heads see.
  forward(seen) {
    const { D, F, heads, tokens, classes, T, x, y, z, logits, U, u, W, O, o } = this;
    x.fill(0);
    for (let h = 0; h < heads; h++)
      for (let i = 0, at = (h * tokens + seen[h]) * D; i < D; i++) x[i] += T[at + i];
    for (let f = 0; f < F; f++) z[f] = Math.max(0, u[f] + dot(U, f * D, x));
    for (let i = 0; i < D; i++) y[i] = x[i] + dot(W, i * F, z);
    for (let t = 0; t < classes; t++) logits[t] = o[t] + dot(O, t * D, y);
    return logits;
  }
  says = (seen) => this.forward(seen).reduce((best, v, t, all) => (v > all[best] ? t : best), 0);
  // By how much the right token leads after `forward`.
  margin = (right) => this.logits[right] - this.logits.reduce((most, v, t) => (t !== right && v > most ? v : most), -Infinity);
  // Adds the gradient of scale * cross-entropy to the parts G, after `forward`; gives the cross-entropy.
  backward(seen, right, scale, G) {
    const { D, F, heads, tokens, classes, x, y, z, dx, dy, dz, logits, U, W, O } = this;
    const most = Math.max(...logits), total = logits.reduce((sum, v) => sum + Math.exp(v - most), 0);
    dy.fill(0);
    dz.fill(0);
    for (let t = 0; t < classes; t++) {
      const g = (Math.exp(logits[t] - most) / total - (t === right)) * scale;
      G.o[t] += g;
      backDot(g, t * D, O, G.O, y, dy);
    }
    dx.set(dy);
    for (let i = 0; i < D; i++) backDot(dy[i], i * F, W, G.W, z, dz);
    for (let f = 0; f < F; f++) {
      if (!(z[f] > 0)) continue;
      G.u[f] += dz[f];
      backDot(dz[f], f * D, U, G.U, x, dx);
    }
    for (let h = 0; h < heads; h++)
      for (let i = 0, at = (h * tokens + seen[h]) * D; i < D; i++) G.T[at + i] += dx[i];
    return Math.log(total) + most - logits[right];
  }
  // Weights of `bits` bits: whole numbers times a power of two for each matrix. Biases are whole multiples of the unit
  // of what they are added to. Then every number in `forward` is a whole multiple of a known power of two.
  round(bits = 8) {
    const unit = (this.unit = {}), most = 2 ** (bits - 1) - 1;
    for (const name of "TUWO") {
      const largest = this[name].reduce((so, v) => Math.max(so, Math.abs(v)), 2 ** -20);
      unit[name] = 2 ** Math.ceil(Math.log2(largest / most));
    }
    unit.u = unit.T * unit.U;
    unit.o = unit.u * unit.W * unit.O;
    for (const name in unit) this[name].forEach((v, i, part) => (part[i] = Math.round(v / unit[name]) * unit[name]));
    return this;
  }
  // The largest that a sum of absolute values can be, in units of the logits: below 2^53 all sums are exact.
  largestSum() {
    const { D, F, heads, tokens, unit } = this, [T, U, u, W, O, o] = [..."TUuWOo"].map((name) => this[name].map(Math.abs));
    const largest = (h, i) => range(tokens).reduce((so, t) => Math.max(so, T[(h * tokens + t) * D + i]), 0);
    const x = Float64Array.from(range(D), (i) => range(heads).reduce((sum, h) => sum + largest(h, i), 0));
    const z = u.map((v, f) => v + dot(U, f * D, x)), y = x.map((v, i) => v + dot(W, i * F, z));
    return Math.max(...o.map((v, t) => v + dot(O, t * D, y))) / unit.o;
  }
}

// Of dot(w, from, x) with the gradient g: to the gradients of w and x.
function backDot(g, from, w, dw, x, dx) {
  for (let i = 0; i < x.length; i++) {
    dw[from + i] += g * x[i];
    dx[i] += g * w[from + i];
  }
}
