// What may stand at a place of a scenario file, by the schema of such files.
import schema from "../../../../docs/scenario.schema.json";

/** The parts of a JSON schema that the schema of scenarios has. */
interface Schema {
  description?: string;
  type?: string | string[];
  format?: string;
  default?: unknown;
  const?: unknown;
  properties?: Record<string, Schema>;
  items?: Schema;
  oneOf?: Schema[];
  anyOf?: Schema[];
}

/** Something that may be written: a key, or a value as TOML. */
export interface Option {
  label: string;
  detail: string;
  info: string;
}

/** A place in a file. */
export interface Place {
  kind: "table" | "key" | "value";
  /** The keys of the tables around it, and of a value its own key. */
  path: string[];
  /** What has been written there so far. */
  word: string;
}

const HEADER = /^\s*\[{1,2}\s*([\w.-]*)/;
const TOKENS = /"(?:\\.|[^"\\])*"?|'[^']*'?|[\w-]+|[{}[\],=.#]/g;

/** Returns the place after `before`, the text up to there; undefined in a comment. */
export function placeAfter(before: string): Place | undefined {
  const lines = before.split("\n");
  const line = lines.pop() ?? "";
  const header = /^\s*\[{1,2}([\w.-]*)$/.exec(line)?.[1]?.split(".");
  if (header) return { kind: "table", path: header.slice(0, -1), word: header.at(-1) ?? "" };
  const table = lines.findLast((one) => HEADER.test(one));
  return placeInLine(line, (table && HEADER.exec(table)?.[1]?.split(".")) || []);
}

/**
 * The place at the end of the line of a table: in its value, or in an inline table, which cannot go on in the
 * next line.
 */
function placeInLine(line: string, table: string[]): Place | undefined {
  const around: { path: string[]; isTable: boolean }[] = [{ path: table, isTable: true }];
  let path = table;
  let key: string[] = [];
  let isValue = false;
  let word = "";
  for (const { 0: token, index } of line.matchAll(TOKENS)) {
    word = "";
    if (token === "#") return undefined;
    if (token === "=") isValue = true;
    else if (token === "{" || token === "[") {
      path = [...path, ...key];
      around.push({ path, isTable: token === "{" });
      key = [];
      isValue = token === "[";
    } else if (token === "}" || token === "]") {
      around.pop();
      path = around.at(-1)?.path ?? table;
      isValue = true;
    } else if (token === ",") {
      key = [];
      isValue = !around.at(-1)?.isTable;
    } else if (token !== ".") {
      if (index + token.length === line.length) word = token;
      else if (!isValue) key = [...key, token];
    }
  }
  return { kind: isValue ? "value" : "key", path: [...path, ...key], word };
}

/** A schema and those that it chooses from. */
const alternatives = (one: Schema): Schema[] => [one, ...[...(one.oneOf ?? []), ...(one.anyOf ?? [])].flatMap(alternatives)];

/** The schemas of what lies at a path; each item of a list has the path of the list. */
function schemasAt(path: readonly string[]) {
  const items = (all: Schema[]): Schema[] => all.flatMap(alternatives).flatMap((one) => (one.items ? items([one.items]) : [one]));
  return path.reduce((all, key) => items(all.flatMap(({ properties }) => properties?.[key] ?? [])), items([schema as Schema]));
}

/** What may be written at a place. */
export function optionsAt({ kind, path }: Place): Option[] {
  const options = schemasAt(path).flatMap((one) => (kind === "value" ? valuesOf(one) : keysOf(one, kind === "table")));
  return [...new Map(options.map((one) => [one.label, one])).values()];
}

function keysOf({ properties = {} }: Schema, areTables: boolean): Option[] {
  const keys = Object.entries(properties).map(([label, one]) => ({ label, detail: typeOf(one), info: one.description ?? "", isTable: alternatives(one.items ?? one).some(({ properties }) => properties) }));
  return areTables ? keys.filter(({ isTable }) => isTable) : keys;
}

function typeOf(one: Schema) {
  const types = alternatives(one).flatMap(({ type = [] }) => type).filter((type) => type !== "null");
  const usual = ["number", "boolean", "string"].includes(typeof one.default) ? `, else ${JSON.stringify(one.default)}` : "";
  return `${[...new Set(types)].join(" or ")}${usual}`;
}

function valuesOf(one: Schema): Option[] {
  const values = one.const !== undefined ? [one.const] : one.type === "boolean" ? [true, false] : [];
  return values.map((value) => ({ label: JSON.stringify(value), detail: "", info: one.description ?? "" }));
}
