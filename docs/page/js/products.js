// A product of two numbers as a table: row r belongs to digit r of b, column c to digit c of a, both from the units.
// A cell holds a number below 100: its last digit stands there, the first is carried to the next cell of the row.
// Its four tokens: digit c of a, digit r of b, the cell above (row r - 1, column c + 1), the cell before (column c - 1).
const BLANK = 100, DONE = 100; // what is seen where nothing stands; the token that ends the table
const cellOf = ([a, b, above, before]) =>
  b === BLANK ? DONE : ((above % BLANK) % 10) + (a % BLANK) * b + Math.floor((before % BLANK) / 10);

// Writes the table cell by cell; `say` gives a cell from its four tokens. a and b are digits from the units.
function productTable(a, b, say) {
  const rows = [], seen = [];
  for (let r = 0; r <= b.length; r++) {
    const row = [];
    for (let c = 0; c <= (r < b.length ? a.length : 0); c++) {
      seen.push([a[c] ?? BLANK, b[r] ?? BLANK, rows[r - 1]?.[c + 1] ?? BLANK, row[c - 1] ?? BLANK]);
      row.push(say(seen.at(-1)));
    }
    rows.push(row);
  }
  return { rows: rows.slice(0, -1), end: rows.at(-1)[0], seen };
}
// The product: the last digits of column 0 from row to row, then of the rest of the last row.
const productOf = ({ rows }) => written([...rows.map((row) => row[0] % 10), ...rows.at(-1).slice(1).map((cell) => cell % 10)]);

// Every four tokens that a cell can ever see, and more: above and before may hold any number below 100.
function* productContexts() {
  const [digit, cell, blank] = [range(10), range(100), [BLANK]], any = [...cell, BLANK];
  for (const shape of [[digit, digit, any, any], [blank, digit, blank, cell], [digit, blank, any, blank]])
    for (const a of shape[0])
      for (const b of shape[1])
        for (const above of shape[2]) for (const before of shape[3]) yield { seen: [a, b, above, before], right: cellOf([a, b, above, before]) };
}
