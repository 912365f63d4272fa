// Scene 4: noise on the weights of the proven model, until a context is wrong; practice brings the proof back.
const Break = {
  jobs: new Jobs(), wanted: null,
  start() {
    byId("level").oninput = () => this.disturb(+byId("level").value);
    byId("practise").onclick = () => this.practise();
    this.show(adder.broken, adder.broken.level);
  },
  // Tries the slider's level, and after that the one where the slider has got to meanwhile.
  async disturb(level) {
    const busy = this.wanted !== null;
    this.wanted = level;
    while (!busy && this.wanted !== null) {
      const now = this.wanted;
      this.show(await this.jobs.run("disturb", { cells: adder.cells, weights: adder.weights, level: now }), now);
      if (this.wanted === now) this.wanted = null;
    }
  },
  // Of a practised model, `rounds` says how many contexts were wrong before each round, `failed` what it got wrong before.
  show(result, level, rounds = [], failed = {}) {
    this.now = { ...result, level };
    const { wrong, count: n, margin, answer, twins } = result, sum = result.sum ?? failed.sum ?? readSum("314159+271828"), right = rightTokens(sum);
    if (this.wanted === null) byId("level").value = level;
    put("level-out", `${(level * 100).toFixed(2)}% of the weights’ size${rounds.length ? ", then practice" : ""} (lines: ${nameOf(adder.cells) ?? "yours"})`);
    put("broken", (rounds.length ? `Wrong contexts after each round: ${rounds.map(count).join(", ")}. ` : "") + (wrong
      ? `${result.passed >= 0 ? `Of 1,000 random sums of six digits ${count(result.passed)} are right${result.passed < 1000 ? "" : ", so a test would have passed this model"}. ` : ""}${inRed(`${count(wrong)} of ${count(n)} contexts ${wrong > 1 ? "are" : "is"} wrong.`)} ${twins ? "Under these lines one context has different answers in different sums, so practice cannot help; “by hand” in scene 2 brings back the proven model. " : `The model errs in every sum in which ${wrong > 1 ? "one of them" : "it"} occurs. `}The shortest found:`
      : `${count(n)} contexts, none wrong, the smallest margin is ${margin.toPrecision(3)}. ${proven("sum of every length")}`));
    put("break-picture", cone(sum, adder.cells, answer ?? right, sum.i ?? 3, { gap: 60, size: 40 }).svg(`${sum.text} by the disturbed model`));
    put("break-said", answer ? `${sum.text} = ${inRed(written(answer))}; right is ${written(right)}.`
      : failed.sum ? `It wrote ${sum.text} = ${inRed(written(failed.answer))}. After practice it writes ${inGreen(written(right))}.` : "");
    byId("practise").disabled = !wrong || twins;
  },
  async practise() {
    byId("practise").disabled = byId("level").disabled = true;
    const tell = (rounds) => put("broken", `It practises. Wrong contexts so far: ${rounds.map(count).join(", ")}…`);
    tell([this.now.wrong]);
    const failed = this.now, { level } = failed;
    const { weights } = failed.weights ? failed : await this.jobs.run("disturb", { cells: adder.cells, weights: adder.weights, level });
    const result = await this.jobs.run("practise", { cells: adder.cells, weights }, ({ rounds }) => tell(rounds));
    byId("level").disabled = false;
    this.show(result, level, result.rounds, failed);
  },
};
