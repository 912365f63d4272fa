// Small things that everything uses: sums of products, random numbers from a seed (mulberry32), numbers as text.
function dot(w, from, x) {
  let a = 0, b = 0, i = 0;
  for (const even = x.length & ~1; i < even; i += 2) {
    a += w[from + i] * x[i];
    b += w[from + i + 1] * x[i + 1];
  }
  return i < x.length ? a + b + w[from + i] * x[i] : a + b;
}
const added = (x, y) => x.map((v, i) => v + y[i]);
const seconds = (began) => (performance.now() - began) / 1000;
const range = (n) => Array.from({ length: n }, (_, i) => i);

function randomFrom(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
const gauss = (random) => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());
const below = (random, count) => Math.floor(random() * count);

const bytes = (text) => Int8Array.from(atob(text), (letter) => letter.charCodeAt(0));
