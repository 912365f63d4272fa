// Reads the weights and starts the scenes. `calm`: nothing moves by itself.
const data = JSON.parse(byId("data").textContent), calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const models = { plain: new Decoder(data.plain), abc: new Decoder(data.abc) };
// A one-layer model from a file: whole multiples of a unit for each part, matrices of 8 bits, biases of 32.
function unpacked({ shape, unit, weights }) {
  const model = Object.assign(new Wires(shape), { unit });
  for (const name in unit) model[name].set(Float64Array.from(/[A-Z]/.test(name) ? bytes(weights[name]) : new Int32Array(bytes(weights[name]).buffer), (v) => v * unit[name]));
  return model;
}
const product = unpacked(data.product);

// The one-layer model that scenes 1 and 4 use: the page's at first, then the reader's.
const SHIPPED = { ...data.adder, model: unpacked(data.adder) };
SHIPPED.weights = SHIPPED.model.weights;
let adder = SHIPPED;
function setAdder(cells, { weights, ...result }) {
  adder = { cells, weights, result, model: adderOf(cells, weights) };
  put("yours-lines", nameOf(cells) ?? "lines of your own");
  Break.show({ ...result, weights }, 0);
  Type.draw();
}

// The first picture: the model writes a long sum, and its cone slides along.
const Hero = {
  sum: piAndE(innerWidth < 600 ? 11 : 20), i: 6,
  start() {
    const answer = wiresAnswer(adder.model, adder.cells, this.sum), label = "a cone of five cells slides along a sum";
    const draw = () => put("hero-picture", cone(this.sum, data.adder.cells, answer.slice(0, this.i), this.i, { size: 36, gap: 70 }).svg(label));
    const seen = () => !document.hidden && byId("hero-picture").getBoundingClientRect().bottom > 0;
    if (!calm) setInterval(() => seen() && ((this.i = (this.i + 1) % this.sum.places), draw()), 900);
    draw();
  },
};
// A frame, as in a notebook, shows one scene alone: that whose name it has.
if (byId(window.name)?.matches("section")) document.body.classList.add("frame"), byId(window.name).classList.add("only");
for (const scene of [Hero, Type, Draw, Cone, Break, Table]) scene.start();
new IntersectionObserver(([seen], watch) => seen.isIntersecting && (watch.disconnect(), Cone.tryAll())).observe(byId("map"));

// What the builder writes into the page: pictures and sentences as they are now.
const stillPictures = () => Object.fromEntries([...document.querySelectorAll("[data-still]")].map((part) => [part.id, part.innerHTML]));
