// The one language of pictures: the cells of a sum as on paper, heads as coloured lines over them, wrong is red.
const COLORS = ["#2f6db5", "#d9822b", "#7d5bb5", "#1f9e9a", "#c25b97", "#8a7a1f", "#7a5a44"];
const LAYERS = ["#a89a7c", "#23272c"]; // lines of the first layer, and of the second
const ROWS = { a: 0, b: 1, y: 2 };
const byId = (id) => document.getElementById(id);
const put = (id, html) => (byId(id).innerHTML = html);
const count = (n) => n.toLocaleString("en");
const inRed = (text) => `<span class="wrong">${text}</span>`, inGreen = (text) => `<span class="right">${text}</span>`;
// Scrolls a picture that is wider than the screen to a place.
const toPlace = (id, board, place) => (byId(id).scrollLeft = (board.x(place) / board.width) * byId(id).scrollWidth - byId(id).clientWidth / 2);
const proven = (what) => `${inGreen(`Right for every ${what}`)} <b class="proven" title="proven">∎</b>`;

class Board {
  constructor(sum, { size = 32, gap = 54 } = {}) {
    Object.assign(this, { sum, size, gap, boxes: "", wires: "", texts: "", width: (sum.places + 2) * size, height: 3 * size + gap + 8 });
  }
  x = (place) => (this.sum.places - place + 0.5) * this.size;
  y = (row) => 4 + (ROWS[row] + 0.5) * this.size + (row === "y" ? this.gap : 0);
  text = (x, y, text, kind) => (this.texts += `<text class="${kind}" x="${x}" y="${y}" font-size="${Math.round(this.size * 0.56)}">${text}</text>`);
  cell(row, place, text, kind = "") {
    const s = this.size - 2, [x, y] = [this.x(place), this.y(row)];
    this.boxes += `<rect class="cell ${kind}" x="${x - s / 2}" y="${y - s / 2}" width="${s}" height="${s}" rx="${Math.round(s / 7)}"/>`;
    this.text(x, y, text, kind);
  }
  // Both numbers and what is written of the answer. `lit(row, place)`: which cells shine; `asked`: the place to be written.
  draw(answer, { lit = () => false, asked = -1, signs = false } = {}) {
    const { sum } = this, right = rightTokens(sum), shine = (row, place) => (lit(row, place) ? "lit" : "");
    const isFront = (digits, place) => place > 0 && digits.slice(place).every((digit) => !digit);
    for (const row of ["a", "b"])
      sum[row].forEach((digit, place) => this.cell(row, place, digit, `${isFront(sum[row], place) ? "front" : ""} ${shine(row, place)}`));
    for (let place = 0; place <= sum.places; place++) {
      const token = answer[place], wrong = token !== undefined && token !== right[place];
      if (place === sum.places && !wrong) continue; // the end is no cell
      const kind = wrong ? "wrong" : place === asked ? "asked" : isFront(right.slice(0, -1), place) ? "front" : "";
      this.cell("y", place, token === undefined ? (place === asked ? "?" : "") : token === END ? "·" : token, `${kind} ${shine("y", place)}`);
    }
    const sides = { $: ["a", sum.places], "+": ["b", sum.places], "&": ["b", -1], start: ["y", -1] };
    for (const name in signs ? sides : {}) this.text(this.x(sides[name][1]), this.y(sides[name][0]), name === "start" ? "$" : name, `sign ${shine(name)}`);
    return this;
  }
  // Where lines begin above a cell of the answer: a node for each layer, the last one nearest to the cell.
  node = (place, level = 0, levels = 1) => [this.x(place), this.y("y") - this.size / 2 - (this.gap * 0.72 * (level + 0.55)) / levels];
  nodes(place, levels = 1) {
    for (let level = 0; level < levels; level++) {
      const [x, y] = this.node(place, level, levels);
      this.wires += `<path class="stem" d="M${x},${y}V${this.y("y") - this.size / 2}"/><circle class="node" cx="${x}" cy="${y}" r="${this.size / 8}"/>`;
      if (levels > 1) this.wires += `<text class="layer" style="fill:${LAYERS[levels - 1 - level]}" x="${x + (place < this.sum.places - 1 ? -44 : 44)}" y="${y}" font-size="13">layer ${levels - level}</text>`;
    }
    return this;
  }
  // Where a line ends in a cell, `slot` of `slots` beside each other.
  end(row, place, slot = 0, slots = 1) {
    const [near, column] = { $: ["a", this.sum.places], "+": ["b", this.sum.places], "&": ["b", -1], start: ["y", -1] }[row] ?? [row, place];
    const aside = slots > 1 ? (slot / (slots - 1) - 0.5) * this.size * 0.44 : 0;
    return [this.x(column) + aside, this.y(near) + (near === "y" ? -1 : 1) * this.size * 0.36];
  }
  // Where the line of head `h` ends, seen from place `i`: beside those of other heads that go to the same column.
  head(cells, h, i) {
    const [row, back] = cells[h], same = range(cells.length).filter((n) => cells[n][1] === back && (cells[n][0] === 2) === (row === 2));
    same.sort((m, n) => cells[m][0] - cells[n][0]);
    return this.end("aby"[row], i - back, same.indexOf(h), same.length);
  }
  wire(start, end, color, { width = 2.2, opacity = 0.9 } = {}) {
    const [x0, y0, x1, y1] = [...start, ...end].map(Math.round);
    const up = y1 <= y0, y = up ? (y0 + y1) / 2 : y0 - 12, from = up ? `${x0},${y}` : `${Math.round(x0 + (x1 - x0) * 0.4)},${y}`;
    this.wires += `<path class="wire" d="M${x0},${y0}C${from} ${x1},${up ? y + this.size * 0.3 : y} ${x1},${y1}" stroke="${color}"
      stroke-width="${width}" opacity="${opacity.toFixed(2)}"/><circle cx="${x1}" cy="${y1}" r="${width * 1.25}" fill="${color}" opacity="${opacity}"/>`;
  }
  svg(label, handles = "") {
    const { width, height, boxes, wires, texts } = this, least = Math.min(width, this.sum.places * 14);
    return `<svg viewBox="0 0 ${width} ${height}" style="max-width:${width}px;min-width:${least}px" role="img" aria-label="${label}">${boxes}${wires}${texts}${handles}</svg>`;
  }
}

// A sum under the lines of wires: the cone of place i over its cells.
function cone(sum, cells, answer, i, size) {
  const lit = (row, place) => cells.some(([r, back]) => r === ROWS[row] && i - back === place);
  const board = new Board(sum, size).draw(answer, { lit, asked: i });
  cells.forEach(([, back], h) => isIn(i - back, sum.places) && board.wire(board.node(i), board.head(cells, h, i), COLORS[h], size));
  return i < sum.places ? board.nodes(i) : board;
}
// Jobs in a worker of its own, one at a time.
class Jobs {
  run(job, input, news = () => {}) {
    this.worker ??= new Worker(URL.createObjectURL(new Blob([byId("core").textContent], { type: "text/javascript" })));
    return new Promise((done, failed) => {
      this.worker.onmessage = ({ data }) => (data.news ? news(data.news) : data.done ? done(data.done) : failed(new Error(data.failed)));
      this.worker.postMessage({ job, input });
    });
  }
  stop = () => this.worker?.postMessage({ stop: true });
}
// Arrow keys in an element, as [right, down].
const onArrows = (id, move) => (byId(id).onkeydown = (event) => {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (step) event.preventDefault(), move(...step, event);
});
const PI = "314159265358979323846264338327950288419716939937510582097494", E = "271828182845904523536028747135266249775724709369995957496696";
const piAndE = (length) => sumOf(PI.slice(0, length), E.slice(0, length), 7);
