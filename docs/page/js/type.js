// Scene 1: a typed sum, answered by the plain model, by ABC, and by the model of scene 2.
const Type = {
  sum: readSum("0314159+0271828", 7),
  start() {
    byId("type-form").onsubmit = (event) => (event.preventDefault(), this.typed(byId("sum").value));
    byId("without").onclick = () => this.typed(byId("sum").value.replace(/\b0+(?=\d)/g, ""));
    byId("with").onclick = () => this.typed(byId("sum").value.replace(/\d+/g, (number) => "0" + number.padStart(6, "0")));
    byId("length").oninput = () => this.show(piAndE(+byId("length").value), false);
    this.draw();
  },
  typed(text) {
    const sum = readSum(text, 7), long = sum?.places > 61;
    put("sum-error", !sum ? "Two numbers with a plus between them, please." : long ? "At most sixty digits here, please." : "");
    clearInterval(this.timer), (byId("answers").style.opacity = sum && !long ? 1 : 0.25);
    if (sum && !long) this.show(sum);
    else for (const name of ["plain", "abc", "yours"]) put(`${name}-verdict`, "");
  },
  // Shows a sum and the answers to it, a digit at a time unless it is sliding.
  show(sum, slowly = !calm) {
    clearInterval(this.timer);
    this.sum = sum;
    put("sum-error", ""), (byId("sum").value = sum.text);
    const length = Math.max(...sum.text.split("+").map((number) => number.length));
    put("length-out", `${length} digit${length > 1 ? "s" : ""}`), (byId("length").value = length);
    let shown = slowly ? 0 : Infinity;
    const next = () => (this.draw(++shown), shown > sum.places && clearInterval(this.timer));
    if (slowly) this.timer = setInterval(next, Math.max(25, Math.min(120, 1400 / sum.places)));
    else next();
  },
  draw(shown = Infinity) {
    const { sum } = this, own = sumOf(...sum.text.split("+")), size = sum.places > 20 ? { size: 20, gap: 60 } : {};
    const verdict = (answer, asked = sum) => {
      const said = written(answer).replace(/^(.{12}).{9,}(.{12})$/, "$1…$2"), right = answer.join() === rightTokens(asked).join();
      return shown < answer.length ? "…" : right ? inGreen(`right: ${said}`) : inRed(`wrong: ${said}`);
    };
    byId("answers").className = sum.places > 9 ? "long" : "";
    for (const name of ["plain", "abc"]) {
      const { answer, attention } = models[name].answer(sum), board = new Board(sum, size).draw(answer.slice(0, shown), { signs: true });
      this.looks(board, attention.slice(0, Math.min(shown, sum.places)), size.size ? 1.4 : 2.2);
      put(`${name}-picture`, board.svg(`${name} model: ${written(answer)}`));
      toPlace(`${name}-picture`, board, shown > sum.places ? 0 : shown - 1); // back to the units in the end
      put(`${name}-verdict`, verdict(answer));
    }
    const answer = wiresAnswer(adder.model, adder.cells, own), i = Math.min(shown, own.places) - 1;
    put("yours-picture", cone(own, adder.cells, answer.slice(0, shown), Math.max(0, i), { gap: 40, ...size }).svg(`the one-layer model: ${written(answer)}`));
    put("yours-verdict", verdict(answer, own));
  },
  // A line from each digit to the cell of either number that it looks at most, as strong as that attention.
  looks(board, attention, width) {
    const { places } = board.sum;
    attention.forEach((weights, i) => ["a", "b"].forEach((row, second) => {
      const weight = (place) => weights[places - place + second * (places + 1)] ?? 0;
      const most = range(places).reduce((best, place) => (weight(place) > weight(best) ? place : best));
      const from = [board.x(i), board.y("y") - board.size / 2], opacity = Math.min(1, 0.15 + 3 * weight(most));
      board.wire(from, board.end(row, most, second, 2), COLORS[second], { opacity, width });
    }));
  },
};
