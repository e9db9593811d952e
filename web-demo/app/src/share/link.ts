// A set-up as text that fits behind the `#` of an address: JSON, deflated, in base64url. The checksum that
// deflate ends with tells a damaged link from a whole one.
import { sameAsScenario } from "../compare/sides.ts";
import type { Choice } from "../compare/sides.ts";
import type { SetUp } from "../simulation.ts";
import type { View } from "../tabs.ts";

/** Grows when a page could not read what one of another version writes. */
const VERSION = 2;
/** The most text a link may unfold to, in bytes: a small link must not fill the memory. */
const MOST_BYTES = 4 << 20;
/** The latest instant a link may lead to, in virtual ms: nanoseconds stay whole numbers up to there. */
const MOST_MS = Number.MAX_SAFE_INTEGER / 1e6;

/** What each field of a choice may be. */
const CHOICE: { [Field in keyof Choice]: (value: unknown) => boolean } = {
  scenario: (value) => typeof value === "string",
  algorithm: oneOf("", "aimd", "tide", "vegas", "fixed"),
  fixed: (value) => Number.isSafeInteger(value) && Number(value) >= 1,
  policy: oneOf("", "strict_fair", "bounded_borrow"),
  ramp: (value) => value === "" || isInstant(value),
  advisory: oneOf("", "yes", "no"),
  yields: oneOf("", "yes", "no"),
};

/** The part of the address behind the `#`. */
export async function write(view: View, setUp: SetUp) {
  const { scenario, seed, mode, choices, changes, at, extent, speed } = setUp;
  const text = JSON.stringify({ v: VERSION, scenario, seed, mode, choices: mode === "two" ? choices : undefined, changes, at, extent, speed });
  return `#/${view}/${toBase64(await pass(new TextEncoder().encode(text), new CompressionStream("deflate")))}`;
}

/**
 * The set-up that an address asks for. Throws, in words, for a damaged link.
 * @param payload the part of the address behind the view
 */
export async function read(payload: string) {
  let parsed;
  try {
    const bytes = await pass(fromBase64(payload), new DecompressionStream("deflate"));
    parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw new Error("This link is damaged: a part of it is missing or changed.");
  }
  if (parsed?.v !== VERSION) throw new Error("This link was made by another version of the playground.");
  return checked(parsed);
}

function checked({ scenario, seed, mode, choices = [], changes, at = 0, extent = at, speed }: Record<string, unknown>): SetUp {
  const isScenario = typeof scenario === "string" || (typeof scenario === "object" && scenario !== null);
  const areChanges = changes === undefined || (Array.isArray(changes) && changes.every(Array.isArray));
  const areChoices = Array.isArray(choices) && choices.every(isChoice);
  if (!isScenario || !Number.isSafeInteger(seed) || !areChanges || !areChoices || !isInstant(at) || !isInstant(extent)) {
    throw new Error("This link is damaged: it says nothing that can be run.");
  }
  const isTwo = mode === "two";
  const side = (one: Partial<Choice> | undefined) => ({ ...sameAsScenario(), ...one });
  return {
    scenario: scenario as SetUp["scenario"],
    seed: Number(seed),
    mode: isTwo ? "two" : "one",
    choices: [side(choices[0]), side(choices[1])],
    changes: changes as SetUp["changes"],
    at,
    extent,
    speed: typeof speed === "number" ? Math.min(Math.max(speed, -1), 4) : 0.3,
  };
}

function isInstant(value: unknown): value is number {
  return typeof value === "number" && value >= 0 && value <= MOST_MS;
}

function oneOf(...values: string[]): (value: unknown) => boolean {
  return (value) => typeof value === "string" && values.includes(value);
}

function isChoice(side: unknown): side is Partial<Choice> {
  if (typeof side !== "object" || side === null) return false;
  return Object.entries(side).every(([field, value]) => Object.hasOwn(CHOICE, field) && CHOICE[(field as keyof Choice)](value));
}

async function pass(bytes: Uint8Array<ArrayBuffer>, through: CompressionStream | DecompressionStream) {
  const reader = new Blob([bytes]).stream().pipeThrough(through).getReader();
  const parts: Uint8Array[] = [];
  let length = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    length += next.value.length;
    if (length > MOST_BYTES) throw new Error("too long");
    parts.push(next.value);
  }
  const whole = new Uint8Array(length);
  parts.reduce((from, some) => (whole.set(some, from), from + some.length), 0);
  return whole;
}

function toBase64(bytes: Uint8Array) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64(text: string) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
}
