// Training by Adam on batches of contexts {seen, right}: the tokens that heads see, and the right token.
class Training {
  constructor(model, batch, { seed = 1, steps = 2000, rate = 4e-3 } = {}) {
    Object.assign(this, { model, batch, steps, rate, step: 0, random: randomFrom(seed) });
    [this.gradient, this.mean, this.square] = range(3).map(() => new Float64Array(model.size));
    this.G = model.split(this.gradient);
  }
  once() {
    const { model, gradient, mean, square } = this, batch = this.batch(this.random), step = ++this.step;
    gradient.fill(0);
    for (const { seen, right } of batch) model.forward(seen), model.backward(seen, right, 1 / batch.length, this.G);
    const clip = Math.min(1, gradient.reduce((sum, g) => sum + g * g, 0) ** -0.5);
    const rate = this.rate * Math.min(1, step / 50, 2 - (2 * step) / this.steps + 1e-3);
    for (let i = 0; i < model.size; i++) {
      const g = gradient[i] * clip;
      mean[i] = 0.9 * mean[i] + 0.1 * g;
      square[i] = 0.98 * square[i] + 0.02 * g * g;
      model.weights[i] -= (rate * mean[i]) / (1 - 0.9 ** step) / (Math.sqrt(square[i] / (1 - 0.98 ** step)) + 1e-9);
    }
  }
}

// Tries contexts: those that are wrong, and the smallest margin.
function tried(model, contexts) {
  const margins = contexts.map(({ seen, right }) => (model.forward(seen), model.margin(right)));
  return { wrong: contexts.filter((_, n) => !(margins[n] > 0)), margin: margins.reduce((least, margin) => Math.min(least, margin)) };
}
