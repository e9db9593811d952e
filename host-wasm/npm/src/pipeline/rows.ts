/** A row at runtime: the values of its seed and of its complete columns. */
export type Cells = Record<string, unknown>;

/** The initial values of the rows of a run. */
export interface Seeds {
  readonly count: number;
  /** Returns the seed of row `row` of the run. */
  readonly at: (row: number) => object | undefined;
}

export function seedsOf(rows: number | Iterable<object>, seed: ((row: number) => object) | undefined): Seeds {
  if (typeof rows === "number") {
    if (!Number.isSafeInteger(rows) || rows < 0) throw new RangeError(`\`rows\` must be a whole number from 0 to 2^53 - 1, not ${rows}`);
    return { count: rows, at: seed ?? (() => undefined) };
  }
  if (seed !== undefined) throw new RangeError("`seed` requires `rows` to be a number: these rows already have seeds");
  if (typeof rows !== "object" || rows === null || typeof rows[Symbol.iterator] !== "function") {
    throw new RangeError(`\`rows\` must be a number or an iterable of seed objects, not ${String(rows)}`);
  }
  const list = Array.isArray(rows) ? (rows as readonly object[]) : [...rows];
  return { count: list.length, at: (row) => list[row] };
}

/** The values of the active row groups. */
export class RowStore {
  readonly #seeds: Seeds;
  readonly #groups = new Map<number, Cells[]>();

  constructor(seeds: Seeds) {
    this.#seeds = seeds;
  }

  /** The number of row groups with values. */
  get size(): number {
    return this.#groups.size;
  }

  /** Returns the rows of a row group. Creates them from their seeds at the first call. */
  open(rowGroup: number, firstRow: number, rows: number): readonly Cells[] {
    const known = this.#groups.get(rowGroup);
    if (known !== undefined) return known;
    const made = Array.from({ length: rows }, (_, row): Cells => ({ ...this.#seeds.at(firstRow + row) }));
    this.#groups.set(rowGroup, made);
    return made;
  }

  /** Releases the values of a row group that is saved or discarded. */
  close(rowGroup: number): void {
    this.#groups.delete(rowGroup);
  }

  clear(): void {
    this.#groups.clear();
  }
}
