/** Conditions over a row of a view, as `ratio > 1.2 and symbol = 'BTC-USD'`, evaluated in the page. */

const TOKENS = /\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)|([A-Za-z_][\w]*)|'((?:[^']|'')*)'|(<=|>=|<>|!=|[-+*/()<>=]))/giy;
const COMPARISONS = {
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "<>": (a, b) => a !== b, "!=": (a, b) => a !== b,
};
const SUMS = { "+": (a, b) => a + b, "-": (a, b) => a - b };
const PRODUCTS = { "*": (a, b) => a * b, "/": (a, b) => a / b };

const WORDS = ["and", "or", "not"];

/** {holds, columns}: a function of a row, an object of values by column, to true or false, and the columns it reads.
 *  Throws an Error that says what is wrong. */
export function condition(text) {
  const found = tokens(text);
  const columns = found.filter(({ kind, value }) => kind === "name" && !WORDS.includes(value)).map(({ value }) => value);
  const parser = new Parser(found);
  const parsed = parser.either();
  if (parser.token) throw new Error(`unexpected ${parser.token.text}`);
  return { holds: (row) => parsed(row) === true, columns };
}

function tokens(text) {
  const found = [];
  TOKENS.lastIndex = 0;
  while (TOKENS.lastIndex < text.trimEnd().length) {
    const at = TOKENS.lastIndex;
    const match = TOKENS.exec(text);
    if (!match) throw new Error(`cannot read “${text.slice(at).trim()}”`);
    const [whole, number, name, string, sign] = match;
    if (number !== undefined) found.push({ kind: "number", value: Number(number), text: number });
    else if (name !== undefined) found.push({ kind: "name", value: name.toLowerCase(), text: name });
    else if (string !== undefined) found.push({ kind: "string", value: string.replaceAll("''", "'"), text: whole });
    else found.push({ kind: "sign", value: sign, text: sign });
  }
  if (!found.length) throw new Error("a condition is needed, as ratio > 1.2");
  return found;
}

class Parser {
  #tokens;

  constructor(found) {
    this.#tokens = found;
  }

  get token() {
    return this.#tokens[0];
  }

  #take(...values) {
    return values.includes(this.token?.value) && this.token.kind !== "string" ? this.#tokens.shift().value : undefined;
  }

  either() {
    let left = this.#both();
    while (this.#take("or")) left = joined(left, this.#both(), (a, b) => decided(true, truth(a), truth(b)));
    return left;
  }

  #both() {
    let left = this.#not();
    while (this.#take("and")) left = joined(left, this.#not(), (a, b) => decided(false, truth(a), truth(b)));
    return left;
  }

  #not() {
    if (!this.#take("not")) return this.#compared();
    const inner = this.#not();
    return (row) => (inner(row) === null ? null : inner(row) !== true);
  }

  #compared() {
    const left = this.#chain(() => this.#chain(() => this.#value(), PRODUCTS), SUMS);
    const sign = this.#take(...Object.keys(COMPARISONS));
    if (!sign) return left;
    return joined(left, this.#chain(() => this.#chain(() => this.#value(), PRODUCTS), SUMS), known(COMPARISONS[sign]));
  }

  #chain(operand, operators) {
    let left = operand();
    for (let sign = this.#take(...Object.keys(operators)); sign; sign = this.#take(...Object.keys(operators))) {
      left = joined(left, operand(), known(operators[sign]));
    }
    return left;
  }

  #value() {
    if (this.#take("(")) {
      const inner = this.either();
      if (!this.#take(")")) throw new Error("a ) is missing");
      return inner;
    }
    if (this.#take("-")) {
      const inner = this.#value();
      return (row) => (inner(row) === null ? null : -inner(row));
    }
    const token = this.#tokens.shift();
    if (!token) throw new Error("the condition ends too early");
    if (token.kind === "number" || token.kind === "string") return () => token.value;
    if (token.kind === "name") return (row) => row[token.value] ?? null;
    throw new Error(`unexpected ${token.text}`);
  }
}

const joined = (left, right, act) => (row) => act(left(row), right(row));

/** As in SQL, what is compared with nothing is neither true nor false. */
const known = (act) => (a, b) => (a === null || b === null ? null : act(a, b));

const truth = (value) => (value === null ? null : value === true);

/** What one side alone decides, true of OR and false of AND; else nothing is known where a side is nothing. */
const decided = (alone, a, b) => (a === alone || b === alone ? alone : a === null || b === null ? null : !alone);

/** A row as conditions read it: decimals in text become numbers. */
export function rowOf(columns, values) {
  return Object.fromEntries(columns.map(([name, type], at) => {
    const value = values[at];
    return [name.toLowerCase(), typeof value === "string" && /decimal|numeric/i.test(type) ? Number(value) : value];
  }));
}
