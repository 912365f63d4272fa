// Scene 2: the reader draws what every head sees; the model is trained under these lines, and all contexts are tried.
const PRESETS = {
  "by hand": [[0, 0], [1, 0], [0, 1], [1, 1], [2, 1]],
  "ABC’s lines, in one layer": [[2, 1], [0, 1], [1, 1], [1, 1], [0, 0], [1, 0], [0, 0]],
  "too few": [[0, 0], [1, 0], [2, 1]],
  "one place off": [[0, 1], [1, 1], [0, 2], [1, 2], [2, 1]],
  "carries hidden": [[0, 0], [1, 0], [0, 1], [1, 1]],
};
const nameOf = (cells) => Object.keys(PRESETS).find((name) => PRESETS[name].join() === cells.join());
const Draw = {
  cells: PRESETS["by hand"], sum: readSum("314159+271828"), i: 3, jobs: new Jobs(), seed: 2,
  start() {
    for (const name in PRESETS) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
      button.onclick = () => this.take(PRESETS[name]);
      byId("presets").append(button);
    }
    const picture = byId("draw-picture");
    picture.onpointerdown = (event) => {
      const handle = event.target.closest("[data-head]");
      if (handle) event.preventDefault(), handle.focus(), picture.setPointerCapture(event.pointerId), (this.held = +handle.dataset.head);
    };
    picture.onpointermove = (event) => this.held !== undefined && this.drag(event);
    picture.onlostpointercapture = () => (this.held = undefined);
    onArrows("draw-picture", (right, down, { target }) => {
      const h = +target.dataset.head, [row, back] = this.cells[h];
      this.move(h, row + down, row + down === 2 ? Math.max(1, back + right) : back + right);
    });
    const free = () => [...PRESETS["by hand"], [0, 2], [1, 2]].find((cell) => !this.cells.some((other) => other.join() === cell.join()));
    byId("add").onclick = () => this.take([...this.cells, free()], this.cells.length);
    byId("remove").onclick = () => this.take(this.cells.slice(0, -1));
    byId("train").onclick = () => this.train(false);
    byId("stop").onclick = () => (this.busy ? this.jobs.stop() : this.train(true));
    byId("drill").onclick = () => this.run("practise", { weights: adder.weights });
    this.take(SHIPPED.cells);
  },
  // Other lines: what was trained no longer counts. The page counts their contexts, or shows two sums that look alike.
  take(cells, focus) {
    const shipped = cells.join() === SHIPPED.cells.join();
    let contexts = null;
    this.jobs.stop();
    try {
      contexts = allContexts(cells);
    } catch {} // too many of them
    Object.assign(this, { cells, history: shipped ? SHIPPED.history : [], half: false, contexts });
    const [twin] = contexts?.twins ?? [], seen = twin && cells.some(([, back]) => isIn(twin.i - back, twin.places));
    const alike = contexts?.twins && `${inRed("No training can help here.")} Of ${count(contexts.distinct)} contexts some have several right answers, which makes ${count(contexts.all.length)} pairs of context and answer. At the question mark these lines reach ${seen ? "the same digits" : "no cell"} in either sum, but the right answers differ:`;
    put("contexts", !contexts ? `These lines have more than ${count(MOST)} contexts: finitely many, but too many for a page. Take a line away.`
      : contexts.twins ? alike : `Under these lines a digit can meet ${count(contexts.distinct)} contexts, however long the sum is, and each has one right answer.`);
    put("twins", (contexts?.twins ?? []).map((sum) => `<figure>${cone(sum, cells, rightTokens(sum).slice(0, sum.i), sum.i, { gap: 44 }).svg(sum.text)}
      <figcaption>${sum.text} = ${written(rightTokens(sum))}, so <b>?</b> is ${sum.i < sum.places ? rightTokens(sum)[sum.i] : "the end"}</figcaption></figure>`).join(""));
    put("proof", contexts && !contexts.twins ? "Nothing is trained under these lines yet." : "");
    if (shipped) this.tell(SHIPPED.result), byId("proof").prepend("Trained earlier. ");
    if (shipped && adder !== SHIPPED) (adder = SHIPPED), (byId("yours").hidden = true), Break.start(), Type.draw();
    this.draw(focus);
    this.chart();
    this.buttons();
  },
  draw(focus) {
    const { sum, i, cells } = this, names = ["first number", "second number", "answer"];
    this.board = cone(sum, cells, rightTokens(sum).slice(0, i), i, { size: 46, gap: 74, width: 3 });
    const where = (back) => (back ? `${Math.abs(back)} ${back > 0 ? "below" : "above"}` : "this place");
    const handles = cells.map(([row, back], h) => {
      const [x, y] = this.board.head(cells, h, i);
      return `<g class="handle" data-head="${h}" tabindex="0" role="button" aria-label="head ${h + 1} sees the ${names[row]}, ${where(back)}">
        <circle cx="${x}" cy="${y}" r="15" fill="transparent"/><circle class="knob" cx="${x}" cy="${y}" r="6.5" fill="${COLORS[h]}"/></g>`;
    });
    put("draw-picture", this.board.svg("the heads’ lines over the cells of a sum", handles.join("")).replace('role="img"', 'role="group"'));
    if (focus !== undefined) byId("draw-picture").querySelector(`[data-head="${focus}"]`).focus();
  },
  // Moves a head's line to a cell, if there is one and it is written before this place.
  move(h, row, back) {
    const possible = isIn(row, 3) && back >= (row === 2 ? 1 : -2) && back <= 3;
    if (possible && this.cells[h].join() !== [row, back].join()) this.take(this.cells.map((cell, n) => (n === h ? [row, back] : cell)), h);
  },
  drag({ clientX, clientY }) {
    const { board, sum } = this, { left, top, width } = byId("draw-picture").firstElementChild.getBoundingClientRect(), scale = board.width / width;
    const place = sum.places - Math.floor(((clientX - left) * scale) / board.size), y = (clientY - top) * scale;
    const row = ["a", "b", "y"].findIndex((name) => y < board.y(name) + board.size * 0.6);
    this.move(this.held, row, this.i - place);
  },
  train(go) {
    if (!go) Object.assign(this, { seed: this.seed + 1, history: [] });
    return this.run("train", { seed: this.seed, go, pauses: !go });
  },
  // A job of training or practice, and what its model gets wrong.
  async run(job, input) {
    const { cells } = this;
    Object.assign(this, { busy: true, half: false });
    put("proof", "It trains…");
    this.buttons();
    const news = ({ rounds, step, wrong, right }) => {
      if (cells !== this.cells) return;
      if (rounds) return put("proof", `Practice on wrong contexts: ${rounds.map(count).join(", then ")} wrong.`);
      this.history.push([step, wrong, ...right]);
      this.chart();
    };
    const result = await this.jobs.run(job, { cells, ...input }, news);
    Object.assign(this, { busy: false, half: cells === this.cells && result.stopped });
    if (cells === this.cells) setAdder(cells, result), (byId("yours").hidden = false);
    this.buttons();
    if (cells !== this.cells) return;
    const last = this.history.pop(); // now of the rounded weights
    if (last) this.history.push([result.step ?? last[0], result.wrong, ...(result.wrong ? last.slice(2) : [1, 1, 1])]), this.chart();
    this.tell(result);
    byId("proof").prepend(result.stopped ? `Stopped after ${result.step} steps. ` : result.rounds[1] === undefined ? "" : `Practised: ${result.rounds.map(count).join(" wrong, then ")} wrong. `);
    if (result.sum) Type.show(sumOf(...result.sum.text.split("+"), 7));
  },
  buttons() {
    const { busy, half, contexts, cells } = this;
    const disabled = { train: busy || !contexts, stop: !busy && !half, drill: busy || adder.cells !== cells || !adder.result.wrong || contexts.twins, add: cells.length >= HEADS, remove: cells.length < 2 };
    for (const id in disabled) byId(id).disabled = disabled[id];
    for (const button of byId("presets").children) button.ariaPressed = button.textContent === nameOf(cells);
    put("train", contexts?.twins ? "Train anyway" : this.history.length && adder !== SHIPPED ? "Train anew" : "Train");
    put("stop", half ? "Go on" : "Stop and prove");
  },
  tell({ count: n, wrong, margin, bits, sum, answer, seconds, largest }) {
    const tried = `All <b>${count(n)}</b> ${this.contexts?.twins ? "pairs" : "contexts"} tried in ${seconds.toFixed(2)} s, with weights rounded to ${bits} bits.`;
    const digits = this.contexts?.all.reduce((most, { shape }) => Math.max(most, shape.places - 1), 0);
    put("proof", wrong ? `${tried} ${inRed(`${count(wrong)} are wrong.`)} The shortest sum found in which one occurs: <span class="wrong big">${sum.text} = ${written(answer)}</span>
      <small>Right is ${written(rightTokens(sum))}. <a href="#type">Scene 1</a> shows it.${this.contexts?.twins ? "" : " Go on with its training, or let it practise the wrong contexts."}</small>`
      : `${tried} None is wrong; the right token leads by at least ${margin.toPrecision(3)}, the <em>margin</em>. <span class="big">${proven("sum of every length")}</span> Each context occurs in a sum of numbers of at most ${digits} digits, zeros in front included. So a model that adds all of those right adds <em>all</em> numbers right. <small>Nothing is rounded: all numbers here are whole multiples of one small unit, and no sum of them exceeds 2<sup>${Math.ceil(Math.log2(largest))}</sup> units. Up to 2<sup>53</sup> a browser does not round.</small>`);
  },
  // How many contexts are wrong, and the share of sums that are right at three lengths, over the steps of training.
  chart() {
    const [left, right, low, high] = [40, 368, 190, 36], colors = ["#c8261d", "#9cc2e8", "#4f8fd0", "#17406f"], all = this.contexts?.all?.length || 20102;
    const x = (step) => left + (step / 2000) * (right - left), y = (share) => low - share * (low - high);
    const shown = [(wrong) => y(Math.log1p(wrong) / Math.log1p(all)), y, y, y], names = ["wrong contexts", ...LENGTHS.map((n) => `${n} digits`)];
    const text = (px, py, what, anchor, color = "") => `<text x="${px}" y="${py}" font-size="12" style="text-anchor:${anchor};fill:${color}">${what}</text>`;
    const axes = [0, 0.5, 1].map((v) => `<path class="grid" d="M${left},${y(v)}H${right}"/>${text(left - 6, y(v), `${v * 100}%`, "end")}`);
    const ticks = [0, 10, 100, all].map((n) => (n < all / 2 || n === all) && text(right + 8, shown[0](n), n === all ? "all" : n || "none", "start", colors[0]));
    const steps = [0, 1000, 2000].map((v) => text(x(v), 206, v ? count(v) : "0 steps", "middle"));
    const curves = names.map((name, n) => `<polyline class="curve" stroke="${colors[n]}" points="${this.history
      .map((row) => [x(row[0]), shown[n](row[n + 1])].map((v) => v.toFixed(1)).join()).join(" ")}"/>${text(n ? left + 74 * n - 20 : right + 56, 12, name, n ? "start" : "end", colors[n])}`);
    put("chart", `<svg viewBox="0 0 430 216" style="max-width:460px" role="img" aria-label="wrong contexts and accuracy while it learns">${[text(left, 12, "right:", "end"), ...axes, ...steps, ...ticks.filter(Boolean), ...curves].join("")}</svg>`);
    const last = this.history.at(-1), percent = last?.slice(2).map((v) => `${Math.round(v * 100)}%`).join(", ");
    put("chart-text", last ? `Step ${count(last[0])}. ${last[1] ? `Random sums of 6, 20 and 60 digits that are right: ${percent}. Wrong contexts (red, logarithmic): ${count(last[1])} of ${count(all)}.` : "No context is wrong, so every sum of any length is right."}` : "Training takes five to fifteen seconds.");
  },
};
