// A sum: digits of both numbers from the units up, with zeros in front up to `places`, of which the highest holds zeros.
const EDGE = 10, END = 10; // what is seen where no digit stands; the token that ends the answer
function sumOf(first, second, narrowest = 2) {
  const places = Math.max(narrowest, Math.max(first.length, second.length) + 1);
  const digits = (text) => range(places).map((i) => +(text[text.length - 1 - i] ?? 0));
  return { a: digits(first), b: digits(second), places, text: `${first}+${second}` };
}
function readSum(text, narrowest) {
  const parts = /^\s*(\d+)\s*\+\s*(\d+)\s*$/.exec(text);
  return parts && sumOf(parts[1], parts[2], narrowest);
}
// The right answer's tokens, END included.
function rightTokens({ a, b }) {
  let carry = 0;
  const digits = a.map((digit, i) => {
    const sum = digit + b[i] + carry;
    carry = +(sum > 9);
    return sum % 10;
  });
  return [...digits, END];
}
// An answer as people write it.
function written(tokens) {
  const end = tokens.indexOf(END);
  return tokens.slice(0, end < 0 ? undefined : end).reverse().join("").replace(/^0+(?=\d)/, "") || "nothing";
}
const randomNumber = (random, length) => range(length).map(() => below(random, 10)).join("");
