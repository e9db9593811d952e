/** A row at runtime: its seed's values, and those of the columns made so far. */
export type Cells = Record<string, unknown>;

/** The rows of a run before any column is made. */
export interface Seeds {
  readonly count: number;
  /** What row `row` of the run begins with. */
  readonly at: (row: number) => object | undefined;
}

export function seedsOf(rows: number | Iterable<object>, seed: ((row: number) => object) | undefined): Seeds {
  if (typeof rows === "number") {
    if (!Number.isSafeInteger(rows) || rows < 0) throw new RangeError(`\`rows\` must be a whole number from 0 to 2^53 - 1, not ${rows}`);
    return { count: rows, at: seed ?? (() => undefined) };
  }
  if (seed !== undefined) throw new RangeError("`seed` goes with a number of `rows`: these rows have seeds already");
  if (typeof rows !== "object" || rows === null || typeof rows[Symbol.iterator] !== "function") {
    throw new RangeError(`\`rows\` must be a number or an iterable of seed objects, not ${String(rows)}`);
  }
  const list = Array.isArray(rows) ? (rows as readonly object[]) : [...rows];
  return { count: list.length, at: (row) => list[row] };
}

/** The values of the row groups in work. */
export class RowStore {
  readonly #seeds: Seeds;
  readonly #groups = new Map<number, Cells[]>();

  constructor(seeds: Seeds) {
    this.#seeds = seeds;
  }

  /** How many row groups have values here. */
  get size(): number {
    return this.#groups.size;
  }

  /** The rows of a row group; begun with their seeds at the first call. */
  open(rowGroup: number, firstRow: number, rows: number): readonly Cells[] {
    const known = this.#groups.get(rowGroup);
    if (known !== undefined) return known;
    const made = Array.from({ length: rows }, (_, row): Cells => ({ ...this.#seeds.at(firstRow + row) }));
    this.#groups.set(rowGroup, made);
    return made;
  }

  /** The row group is saved, or never will be: its values are let go of. */
  close(rowGroup: number): void {
    this.#groups.delete(rowGroup);
  }

  clear(): void {
    this.#groups.clear();
  }
}
