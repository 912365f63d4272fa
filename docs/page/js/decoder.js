// The package's model: two decoder layers with LayerNorms, self-attention to the answer so far, cross-attention to
// `$ a...a + b...b &`, and a feed-forward network. Under lines a head sees the keys on its lines alone.
const SYMBOL = { "+": 10, $: 12, "&": 13 }, STOP = 13;

class Decoder {
  // tensors: {name: [whole numbers in base64, exponents of two of the rows in base64]}
  constructor({ tensors, lines, size }) {
    Object.assign(this, size, { lines, linesOf: {}, w: {}, known: new Map() });
    for (const name in tensors) {
      const [whole, exponents] = tensors[name].map(bytes), row = whole.length / exponents.length;
      this.w[name] = Float64Array.from(whole, (v, i) => v * 2 ** exponents[Math.floor(i / row)]);
    }
    for (const line of lines ?? []) (this.linesOf[line.slice(0, 3)] ??= []).push(line);
  }
  linear(name, x) {
    const w = this.w[`${name}.weight`], out = this.w[`${name}.bias`].slice();
    for (let r = 0; r < out.length; r++) out[r] += dot(w, r * x.length, x);
    return out;
  }
  norm(name, x) {
    const mean = x.reduce((sum, v) => sum + v, 0) / x.length, [scale, shift] = [this.w[`${name}.weight`], this.w[`${name}.bias`]];
    const deviation = Math.sqrt(x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / x.length + 1e-5);
    return x.map((v, i) => ((v - mean) / deviation) * scale[i] + shift[i]);
  }
  embed(token, index) {
    const x = this.w["embedding.weight"].subarray(token * this.width, (token + 1) * this.width).map((v) => v * this.width ** 0.5);
    if (this.lines) return x; // under lines there are no positions
    return x.map((v, i) => v + [Math.sin, Math.cos][i % 2](index * 10000 ** (-(i - (i % 2)) / this.width)));
  }
  keyValue = (layer, attention, x) => ["key", "value"].map((part) => this.linear(`decoder.${layer}.${attention}_attention.${part}`, x));
  // The tokens of a sum with their keys and values in every layer, which without positions are the token's alone.
  problem({ a, b, places }) {
    const columns = [SYMBOL.$, ...[...a].reverse(), SYMBOL["+"], ...[...b].reverse(), SYMBOL["&"]];
    const pair = (layer, token, index) => {
      const name = [layer, token, this.lines ? "" : index].join();
      if (!this.known.has(name)) this.known.set(name, this.keyValue(layer, "cross", this.embed(token, index)));
      return this.known.get(name);
    };
    const cross = range(this.layers).map((layer) => columns.map((token, k) => pair(layer, token, columns.length - 1 - k)));
    return { places, cross, own: range(this.layers).map(() => []), attention: [] };
  }
  // The open keys of a head at step i, as [key, bias]. A line follows the places of a number from its units as far as
  // the token on either side of it, or it stays on a symbol, or it runs beside the answer.
  open(layer, attention, head, i, places) {
    const open = new Map();
    for (const [, , , direction, span, offset, value] of this.linesOf[[attention, layer, head]] ?? []) {
      const units = span === "operand 2" ? 2 * places + 1 : places;
      let key = { $: 0, "+": places + 1, "&": 2 * places + 2 }[span], inside = true;
      if (direction === "antidiagonal") [key, inside] = [units - i + offset, i <= places + offset && i >= offset - 1];
      if (direction === "diagonal") [key, inside] = [i + offset, i + offset >= 0];
      if (inside) open.set(key, Math.max(value, open.get(key) ?? -Infinity));
    }
    return [...open];
  }
  // What a layer's attention gives to a query; `weights` receives the mean of all heads' weights, by key.
  attend(layer, attention, x, keys, i, places, weights = []) {
    const name = `decoder.${layer}.${attention}_attention`, d = this.width / this.heads;
    const query = this.linear(`${name}.query`, x), mixed = new Float64Array(this.width), every = this.lines ? null : keys.map((_, k) => [k, 0]);
    for (let head = 0; head < this.heads; head++) {
      const open = every ?? this.open(layer, attention, head, i, places), part = query.subarray(head * d, (head + 1) * d);
      const logits = open.map(([k, bias]) => dot(keys[k][0], head * d, part) / Math.sqrt(d) + bias);
      const most = Math.max(...logits), share = logits.map((v) => Math.exp(v - most)), total = share.reduce((sum, v) => sum + v, 0);
      open.forEach(([k], n) => {
        const weight = share[n] / total;
        for (let j = head * d; j < (head + 1) * d; j++) mixed[j] += weight * keys[k][1][j];
        weights[k] = (weights[k] ?? 0) + weight / this.heads;
      });
    }
    return this.linear(`${name}.out`, mixed);
  }
  // Logits of output token i, after `token`, which the step before has written.
  step(problem, token, i) {
    let x = this.embed(token, i);
    for (let layer = 0; layer < this.layers; layer++) {
      const name = `decoder.${layer}`, own = this.norm(`${name}.self_residual.norm`, x);
      problem.own[layer][i] = this.keyValue(layer, "self", own);
      x = added(x, this.attend(layer, "self", own, problem.own[layer], i, problem.places));
      const query = this.norm(`${name}.cross_residual.norm`, x);
      x = added(x, this.attend(layer, "cross", query, problem.cross[layer], i, problem.places, (problem.attention[i] = [])));
      const hidden = this.linear(`${name}.feed_forward.0`, this.norm(`${name}.forward_residual.norm`, x));
      x = added(x, this.linear(`${name}.feed_forward.3`, hidden.map((v) => Math.max(0, v))));
    }
    return this.linear("head", this.norm("decoder_norm", x));
  }
  // The whole answer, greedily: digits from the units, END at the end; and the last layer's attention at every step.
  answer(sum) {
    const problem = this.problem(sum), answer = [];
    for (let token = SYMBOL.$; answer.length <= sum.places && answer.at(-1) !== END; ) {
      const logits = this.step(problem, token, answer.length);
      token = logits.indexOf(Math.max(...logits));
      answer.push(token === STOP ? END : token);
    }
    return { answer, attention: problem.attention };
  }
  // All that output i depends on, followed down through the states: {layer, kind, place} of every token that is seen.
  cone(i, places) {
    const found = new Map(), states = new Set([[this.layers - 1, i].join()]);
    const put = (layer, kind, place) => found.set([layer, kind, place].join(), { layer, kind, place });
    const output = (layer, step) => (layer ? states.add([layer - 1, step].join()) : put(0, step ? "y" : "start", step - 1));
    for (const state of states) {
      const [layer, step] = state.split(",").map(Number);
      output(layer, step);
      for (let head = 0; head < this.heads; head++) {
        for (const [key] of this.open(layer, "self", head, step, places)) output(layer, key);
        for (const [key] of this.open(layer, "cross", head, step, places)) {
          const place = key <= places ? places - key : 2 * places + 1 - key;
          put(layer, { 0: "$", [places + 1]: "+", [2 * places + 2]: "&" }[key] ?? (key <= places ? "a" : "b"), place);
        }
      }
    }
    return [...found.values()];
  }
}
