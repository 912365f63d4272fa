// What an output token can depend on. A cell is [row, back]: row 0 and 1 are the two numbers, row 2 is the answer, and
// `back` says how many places below the one that is written it stands (-1: one place above).
const isIn = (place, places) => place >= 0 && place < places;
const seenAt = (cells, { a, b, places }, answer, i) =>
  cells.map(([row, back]) => (isIn(i - back, places) ? [a, b, answer][row][i - back] : EDGE));
// A model of wires writes a sum's answer, from the units up, until it ends it.
function wiresAnswer(model, cells, sum) {
  const answer = [];
  while (answer.length <= sum.places && answer.at(-1) !== END) answer.push(model.says(seenAt(cells, sum, answer, answer.length)));
  return answer;
}

// The shapes of places i of sums. At places of one shape the same cells lie beyond the numbers' ends, and a carry may come
// in below what is seen or may not; so the same contexts can stand there. The narrowest sum of each shape comes first.
function shapesOf(cells, narrowest = 2) {
  const backs = cells.map(([, back]) => back), low = Math.max(0, ...backs), high = Math.max(0, ...backs.map((back) => -back));
  const shapes = new Map();
  for (let places = narrowest; places <= Math.max(narrowest, low + high + 4); places++)
    for (let i = 0; i <= places; i++) {
      const first = Math.max(0, i - low), last = Math.min(places - 1, i + high);
      const shape = { places, i, first, last, carries: first > 0 && first < places ? [0, 1] : [0] };
      const kind = [Math.min(i, low + 1), Math.min(places - i, high + 2)].join();
      if (!shapes.has(kind)) shapes.set(kind, shape);
    }
  return [...shapes.values()];
}

// All ways to go on at a place from a carry: [what is seen there, as a code; the carry after it; the digit if it is asked].
function movesAt(cells, { places, i }, place, carry) {
  const moves = new Map();
  for (const [a, b, digit, next] of additions(place === places - 1, carry)) {
    const code = cells.reduce((sum, [row, back], h) => sum + (i - back === place ? [a, b, digit][row] * 11 ** h : 0), 0);
    moves.set([code, next, digit * (place === i)].join(), [code, next, digit * (place === i)]);
  }
  return [...moves.values()];
}
function* additions(top, carry) {
  for (let a = 0; a < (top ? 1 : 10); a++)
    for (let b = 0; b < (top ? 1 : 10); b++) yield [a, b, (a + b + carry) % 10, +(a + b + carry > 9)];
}

// Every context that can stand at a shape, with its right token: numbers code * 11 + token, where a code has a digit of
// base 11 for each cell. Place by place, from the lowest that is seen, all (code, carry, token) that can be reached.
const MOST = 4e5; // contexts that a page tries
function contextsOf(cells, shape) {
  const { places, i, first, last } = shape;
  const edges = cells.reduce((sum, [, back], h) => sum + (isIn(i - back, places) ? 0 : EDGE * 11 ** h), 0);
  let states = new Set(shape.carries.map((carry) => (edges * 2 + carry) * 11 + (i === places ? END : 0)));
  for (let place = first; place <= last; place++) {
    const moves = [0, 1].map((carry) => movesAt(cells, shape, place, carry)), next = new Set();
    for (const state of states) {
      const token = state % 11, carry = Math.floor(state / 11) % 2, code = Math.floor(state / 22);
      for (const [more, after, digit] of moves[carry]) next.add(((code + more) * 2 + (place < i ? after : 0)) * 11 + token + digit);
      if (next.size > MOST) throw new Error("too many contexts");
    }
    states = next;
  }
  return [...new Set([...states].map((state) => Math.floor(state / 22) * 11 + (state % 11)))].sort((x, y) => x - y);
}
const decoded = (cells, state) => cells.map((_, h) => Math.floor(state / 11 ** (h + 1)) % 11);

// All contexts under lines, as {seen, right, shape}, shorter sums first, and how many are `distinct`. If one has two right
// tokens, `twins` are two sums that hold it, which no model can both get right: one in which digits are seen, if there is any.
function allContexts(cells) {
  const known = new Map(), all = [];
  let clash = null;
  for (const shape of shapesOf(cells).sort((one, other) => one.places - other.places))
    for (const state of contextsOf(cells, shape)) {
      const code = Math.floor(state / 11), before = known.get(code) ?? [], right = state % 11;
      if (before.some((context) => context.right === right)) continue;
      all.push({ seen: decoded(cells, state), right, shape });
      known.set(code, [...before, all.at(-1)]);
      if (before.length && !clash?.[0].seen.some((token) => token !== EDGE)) clash = [before[0], all.at(-1)];
      if (all.length > MOST) throw new Error("too many contexts");
    }
  return { all, distinct: known.size, twins: clash?.map((context) => holding(cells, context)) };
}

// A sum that holds a context: digits place by place, going back where none fits.
function holding(cells, { seen, right, shape: { places, i, first, last, carries } }) {
  const [a, b] = [0, 1].map(() => Array(places).fill(0));
  const go = (place, carry) => {
    if (place > last) return true;
    for (const [x, y, digit, next] of additions(place === places - 1, carry)) {
      const fits = cells.every(([row, back], h) => i - back !== place || seen[h] === [x, y, digit][row]);
      if (!fits || (place === i && digit !== right)) continue;
      [a[place], b[place]] = [x, y];
      if (go(place + 1, next)) return true;
    }
    return false;
  };
  const carry = carries.find((carry) => go(first, carry));
  if (carry) [a[first - 1], b[first - 1]] = [5, 5];
  const numbers = [a, b].map((digits) => digits.slice(0, -1).reverse().join("")), short = numbers.map((digits) => digits.replace(/^0+(?=.)/, ""));
  return { ...sumOf(...(short.some((digits, n) => digits.length === numbers[n].length) ? short : numbers)), i };
}
