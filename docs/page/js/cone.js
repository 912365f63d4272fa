// Scene 3: what reaches a digit through the layers of ABC's model, and the table of all that can.
const Cone = {
  names: ["first", "second", "first below", "second below", "written"], jobs: new Jobs(), table: new Map(),
  start() {
    const cells = models.abc.cone(10, 30).filter(({ kind }) => kind in ROWS).map(({ kind, place }) => [ROWS[kind], 10 - place].join());
    const order = ([row, back]) => (row === 2 ? 100 : 10 * back + row);
    this.cells = [...new Set(cells)].map((cell) => cell.split(",").map(Number)).sort((x, y) => order(x) - order(y));
    const picture = byId("cone-picture"), map = byId("map");
    picture.onpointermove = picture.onpointerdown = ({ clientX }) => {
      const { left, width } = picture.firstElementChild.getBoundingClientRect();
      this.show(this.sum, Math.round(this.sum.places + 0.5 - ((clientX - left) / width) * (this.sum.places + 2)));
    };
    onArrows("cone-picture", (right) => this.show(this.sum, this.i - right));
    byId("cone-length").oninput = () => this.show(piAndE(+byId("cone-length").value), this.i);
    map.onpointermove = map.onpointerdown = (event) => {
      const { left, top, width, height } = map.getBoundingClientRect();
      const [x, y] = [((event.clientX - left) / width) * 305, ((event.clientY - top) / height) * 106].map(Math.floor);
      const one = this.table.get([x < 2 ? 0 : x, y > 103 ? 105 : y > 100 ? 102 : y].join()); // thin strips are wider here
      if (!one) return this.result || put("cone-context", "The page has not come to this context yet: wait some seconds.");
      const { text, i } = holding(this.cells, one);
      this.show(sumOf(...text.split("+"), 7), i);
    };
    this.show(piAndE(13), 5);
  },
  show(sum, place) {
    const i = Math.max(0, Math.min(sum.places, place)), answer = rightTokens(sum), found = models.abc.cone(i, sum.places);
    if (sum === this.sum && i === this.i) return;
    Object.assign(this, { sum, i });
    byId("cone-length").value = sum.places - 1;
    put("cone-length-out", `${sum.places - 1} digits`);
    const lit = (kind, place) => found.some((token) => token.kind === kind && (!(kind in ROWS) || token.place === place));
    const board = new Board(sum, sum.places > 24 ? { size: 20, gap: 70 } : { size: 34, gap: 96 }).draw(answer.slice(0, i), { lit, asked: i, signs: true });
    for (const { layer, kind, place } of found)
      board.wire(board.node(i, 1 - layer, 2), board.end(kind, place, layer, 2), LAYERS[layer], kind in ROWS ? {} : { width: 1.2, opacity: 0.3 });
    put("cone-picture", board.nodes(i, 2).svg(`what the output at place ${i} depends on`));
    toPlace("cone-picture", board, i);
    this.tokens = seenAt(this.cells, sum, answer, i);
    this.light(answer[i]);
  },
  // Where a context stands in the picture: a panel for each shape, a column for what is below, a row for a and b.
  at([a, b, p, q, y], i, places) {
    const carry = (y - p - q + 20) % 10;
    if (i < 2) return i ? [3 + p * 10 + q, a * 10 + b] : [0, a * 10 + b];
    return i === places ? [105 + carry, 105] : [105 + (p * 10 + q) * 2 + carry, i === places - 1 ? 102 : a * 10 + b];
  },
  // Lists the context, and marks it in the picture.
  light(right) {
    const [x, y] = this.at(this.tokens, this.i, this.sum.places), one = this.table.get([x, y].join());
    const pill = (name, token) => `<span class="token">${name} <b>${token === EDGE ? "–" : token}</b></span>`;
    const pills = [...this.names.map((name, h) => pill(name, this.tokens[h])), pill("so it writes", right === END ? "the end" : right)];
    put("cone-context", pills.join("") + (one ? pill("margin", one.lead.toFixed(1)) : ""));
    byId("map-light").style = `left:${((x + 0.5) / 305) * 100}%;top:${((y + 0.5) / 106) * 100}%`;
  },
  async tryAll() {
    const pen = byId("map").getContext("2d");
    pen.clearRect(0, 0, 305, 106);
    byId("map-still").style.opacity = 0.3; // what the builder found, until it is found again here
    const tell = ({ block, count: n, wrong, margin, seconds }) => {
      for (const one of block) {
        const at = this.at(one.seen, one.shape.i, one.shape.places);
        this.table.set(at.join(), one);
        pen.fillStyle = one.lead > 0 ? `hsl(${195 + 3 * one.right} ${30 + 3 * one.right}% ${93 - 6 * one.right}%)` : "#c8261d";
        pen.fillRect(...at, 1, 1);
      }
      put("map-verdict", `${count(n)} contexts tried in ${seconds.toFixed(1)} s, ${wrong || "none"} wrong; the right token leads by at least ${margin.toFixed(2)}. `);
    };
    this.result = await this.jobs.run("decoder", { model: data.abc, cells: this.cells }, tell);
    tell(this.result);
    if (!this.result.wrong) byId("map-verdict").innerHTML += proven("sum of every length");
    this.light(rightTokens(this.sum)[this.i]);
  },
};
