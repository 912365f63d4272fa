// Scene 5: a product as a table, written cell by cell by a model of the same kind; every cell has four tokens.
const Table = {
  at: [1, 2], jobs: new Jobs(), size: 46,
  start() {
    byId("table-form").onsubmit = (event) => (event.preventDefault(), this.typed());
    byId("table-picture").onpointermove = byId("table-picture").onpointerdown = ({ target }) => {
      const cell = target.closest("[data-cell]");
      if (cell) this.point(...cell.dataset.cell.split(",").map(Number));
    };
    onArrows("table-picture", (right, down) => this.point(this.at[0] + down, this.at[1] - right));
    byId("try-product").onclick = () => this.tryAll();
    this.typed();
  },
  typed() {
    const factors = ["first", "second"].map((id) => byId(id).value.trim()), fine = factors.every((text) => /^\d{1,12}$/.test(text));
    put("table-error", fine ? "" : "Two factors of one to twelve digits, please.");
    byId("table-picture").style.opacity = byId("four").style.opacity = fine ? 1 : 0.25;
    if (!fine) return put("table-result", "");
    const [a, b] = factors.map((text) => [...text].reverse().map(Number)), exact = String(BigInt(factors[0]) * BigInt(factors[1]));
    const table = productTable(a, b, (four) => product.says(four)), said = productOf(table);
    Object.assign(this, { a, b, table, right: productTable(a, b, cellOf).rows });
    put("table-result", `${factors.join(" × ")} = ${said === exact && table.end === DONE ? inGreen(said) : `${inRed(said)}; right is ${exact}`}`);
    this.point(...this.at);
  },
  // Shows the four tokens of a cell.
  point(row, column) {
    const { a, b, table } = this, r = Math.max(0, Math.min(b.length - 1, row)), c = Math.max(0, Math.min(a.length, column));
    const four = table.seen[r * (a.length + 1) + c], carry = (cell) => `<sup>${Math.floor(cell / 10) || ""}</sup>${cell % 10}`;
    const pill = (name, cell, style = "") => `<span class="token" ${style}>${name} <b>${cell === BLANK ? "–" : carry(cell)}</b></span>`;
    const names = ["digit of the first factor", "digit of the second", "cell above", "cell on the right"];
    const pills = names.map((name, h) => pill(name, four[h], `style="--dot:${COLORS[h]}"`));
    put("four", pills.join("") + pill("so it writes", table.rows[r][c]));
    this.at = [r, c];
    this.draw(r, c, four);
  },
  // Row r is moved r places to the left, as on paper; so the cell above stands above.
  draw(r, c, four) {
    const { a, b, table, right, size: s } = this, width = (a.length + b.length + 2) * s, height = (b.length + 1.1) * s;
    const x = (place) => width - (1.7 + place) * s, y = (line) => (line + 1.5) * s + 2;
    const box = (px, py, kinds, cell, at = "") => {
      const kind = Object.keys(kinds).filter((name) => kinds[name]).join(" "), carry = Math.floor(cell / 10) || "";
      return `<g ${at}><rect class="cell ${kind}" x="${px - s / 2 + 1}" y="${py - s / 2 + 1}" width="${s - 2}" height="${s - 2}" rx="6"/>
        <text class="${kind}" x="${px + (carry ? 5 : 0)}" y="${py + 1}" font-size="21">${cell % 10}</text>
        <text class="carry" x="${px - 13}" y="${py - 9}" font-size="12">${carry}</text></g>`;
    };
    const digits = [...a.map((digit, i) => box(x(i), y(-1), { lit: i === c }, digit)), ...b.map((digit, i) => box(x(-1), y(i), { lit: i === r }, digit))];
    const cells = table.rows.flatMap((line, i) => line.map((cell, j) => {
      const lit = (i === r - 1 && j === c + 1) || (i === r && j === c - 1), result = j === 0 || i === b.length - 1;
      const kinds = { lit, result, asked: i === r && j === c, wrong: cell !== right[i][j] };
      return box(x(i + j), y(i), kinds, cell, `data-cell="${i},${j}"`);
    }));
    const [mx, my] = [x(r + c), y(r)], wires = [
      [mx + 8, my - 20, x(c) + 10, y(-1) + 16], [mx + 20, my + 15, x(-1) - 14, my + 15],
      [mx - 12, my - 20, mx - 12, my - s + 14], [mx + 20, my - 4, mx + s - 15, my - 4],
    ].map(([x0, y0, x1, y1], h) => (four[h] === BLANK ? "" : `<path class="wire" d="M${x0},${y0}L${x1},${y1}" stroke="${COLORS[h]}"
      stroke-width="3"/><circle cx="${x1}" cy="${y1}" r="5" fill="${COLORS[h]}"/>`)), picture = byId("table-picture");
    picture.innerHTML = `<svg viewBox="0 0 ${width} ${height}" style="max-width:${width}px;min-width:${0.6 * width}px" role="img"
      aria-label="the table of a product">${[...digits, ...cells, ...wires].join("")}</svg>`;
    picture.scrollLeft = (mx / width) * picture.scrollWidth - picture.clientWidth / 2;
  },
  async tryAll() {
    byId("try-product").disabled = true;
    const tell = ({ count: n, wrong, margin, seconds }) => put("product-proof", `${count(n)} contexts tried in ${seconds.toFixed(0)} s,
      ${wrong ? count(wrong) : "none"} wrong; the right token leads by at least ${margin.toFixed(2)}. `);
    const result = await this.jobs.run("product", { shape: product.shape, weights: product.weights }, tell);
    tell(result);
    if (!result.wrong) byId("product-proof").innerHTML += proven("product of two numbers of any length");
    byId("try-product").hidden = !result.wrong;
  },
};
