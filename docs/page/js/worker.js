// What takes longer than a picture, in a worker: jobs that tell of their progress and can be stopped.
const HEADS = 7, ADDER = { tokens: 11, classes: 11, D: 12, F: 24 }; // a head for each line, at most seven
const LENGTHS = [6, 20, 60];
const adderOf = (cells, weights) => new Wires({ ...ADDER, heads: cells.length }, weights);

// The contexts of all steps of a sum.
const stepsOf = (cells, sum) => rightTokens(sum).map((right, i, answer) => ({ seen: seenAt(cells, sum, answer, i), right }));
const drawn = (random, length) => sumOf(randomNumber(random, length), randomNumber(random, length));
const some = (random, contexts, n) => (contexts.length ? range(n).map(() => contexts[below(random, contexts.length)]) : []);
// Steps of random sums of six digits, and some of the contexts in `extra`.
const adderBatch = (cells, extra = []) => (random) =>
  [...range(extra.length ? 48 : 64).flatMap(() => stepsOf(cells, drawn(random, 6))), ...some(random, extra, 128)];

// Rounds to 8 bits, or to as many fewer as keep all sums exact, and tries all contexts.
function proved(model, cells, contexts = allContexts(cells)) {
  const began = performance.now(), weights = model.weights.slice();
  let bits = 8;
  while (model.round(bits).largestSum() >= 2 ** 53) model.weights.set(weights), bits--;
  const { wrong, margin } = tried(model, contexts.all), sums = wrong.slice(0, 3000).map((context) => holding(cells, context));
  const sum = sums.sort((one, other) => one.text.length - other.text.length)[0] ?? null;
  const result = { count: contexts.all.length, wrong: wrong.length, margin, bits, seconds: seconds(began), largest: model.largestSum() };
  return { ...result, unit: model.unit, sum, answer: sum && wiresAnswer(model, cells, sum), extra: wrong, weights: model.weights, twins: Boolean(contexts.twins) };
}

let stopped = false, training = null;
const pause = () => new Promise((go) => setTimeout(go));
const resting = (last = performance.now()) => async () => performance.now() - last > 30 && (await pause(), (last = performance.now()));
async function train(each) {
  for (const rest = resting(); training.step < training.steps && !stopped; await rest()) {
    training.once();
    if (training.step % 40 === 0) each();
  }
}

// Rounds of 200 steps on wrong contexts and short sums, until none is wrong.
async function practise(model, cells, contexts, tell) {
  let result = proved(model, cells, contexts);
  const rounds = [result.wrong];
  let extra = [];
  while (result.wrong && !contexts.twins && rounds.length <= 12 && !stopped) {
    extra = extra.concat(result.extra);
    training = new Training(model, adderBatch(cells, extra), { seed: rounds.length, steps: 200, rate: 1e-3 });
    await train(() => tell({ rounds }));
    result = proved(model, cells, contexts);
    rounds.push(result.wrong);
  }
  return { ...result, rounds, extra: null };
}

const jobs = {
  // Trains a model under lines, and proves it; with `go` on from where it stopped. It `pauses` where tests are first passed.
  async train({ cells, seed = 1, steps = 2000, go, pauses }, tell) {
    const random = randomFrom(1000 + seed), tests = LENGTHS.map((length) => range(40).map(() => stepsOf(cells, drawn(random, length))));
    if (!go) training = new Training(adderOf(cells).start(randomFrom(seed)), adderBatch(cells), { seed, steps });
    const own = training, { all } = allContexts(cells), every = Math.ceil(all.length / 3e4), some = all.filter((_, n) => n % every === 0);
    const share = (sums) => sums.filter((sum) => !tried(own.model, sum).wrong.length).length / sums.length;
    await train(() => {
      const wrong = every * tried(own.model, some).wrong.length, right = tests.map(share);
      tell({ step: own.step, wrong, right }), (stopped ||= Boolean(pauses && wrong && right[0] === 1));
    });
    if (own.step === own.steps) return practise(own.model, cells, allContexts(cells), tell);
    return { ...proved(adderOf(cells, own.model.weights.slice()), cells), extra: null, stopped: true, step: own.step };
  },
  // Adds noise to weights, in units of their size, rounds them again and tries all contexts.
  async disturb({ cells, weights, level, seed = 7 }) {
    const model = adderOf(cells, weights), random = randomFrom(seed);
    for (const name in model.parts) {
      const part = model[name], size = Math.sqrt(part.reduce((sum, v) => sum + v * v, 0) / part.length);
      part.forEach((v, i) => (part[i] = v + level * size * gauss(random)));
    }
    const result = proved(model, cells);
    const passed = range(1000).filter(() => !tried(model, stepsOf(cells, drawn(random, 6))).wrong.length).length;
    return { ...result, passed, extra: null };
  },
  practise: ({ cells, weights }, tell) => practise(adderOf(cells, weights), cells, allContexts(cells), tell),
  decoder: ({ model, cells }, tell) => counted(decoderLeads(new Decoder(model), cells), tell),
  product: ({ shape, weights }, tell) => counted(productLeads(new Wires(shape, weights)), tell),
};

// By how much the right token leads in every context of a package's model under lines, a shape after the other, in sums of
// seven places or more.
function* decoderLeads(model, cells) {
  const first = model.problem(sumOf("", ""));
  model.step(first, SYMBOL.$, 0); // what later steps see of this one is the same in every sum
  for (const shape of shapesOf(cells, 7))
    for (const state of contextsOf(cells, shape)) {
      const { places, i } = shape, [a, b, y] = range(3).map(() => Array(places).fill(0)), seen = decoded(cells, state), right = state % 11;
      cells.forEach(([row, back], h) => isIn(i - back, places) && ([a, b, y][row][i - back] = seen[h]));
      const problem = model.problem({ a, b, places }), token = right === END ? STOP : right;
      problem.own[0][0] = first.own[0][0];
      const logits = model.step(problem, i ? y[i - 1] : SYMBOL.$, i);
      yield { lead: logits[token] - Math.max(...logits.filter((_, t) => t !== token)), seen, right, shape };
    }
}
function* productLeads(model) {
  for (const { seen, right } of productContexts()) yield { lead: (model.forward(seen), model.margin(right)) };
}
// Goes through the leads of right tokens, and tells of them in blocks.
async function counted(leads, tell) {
  const began = performance.now(), so = { count: 0, wrong: 0, margin: Infinity, block: [] }, rest = resting();
  for (const one of leads) {
    so.count++;
    so.wrong += !(one.lead > 0);
    so.margin = Math.min(so.margin, one.lead);
    if (so.block.push(one) < 500) continue;
    tell({ ...so, seconds: seconds(began) });
    so.block = [];
    await rest();
  }
  return { ...so, seconds: seconds(began) };
}

if (typeof document === "undefined" && typeof self !== "undefined")
  self.onmessage = ({ data: { job, input, stop } }) => {
    const answer = (kind) => (value) => self.postMessage({ [kind]: kind === "failed" ? value.message : value });
    stopped = Boolean(stop);
    if (!stop) jobs[job](input, answer("news")).then(answer("done"), answer("failed"));
  };
