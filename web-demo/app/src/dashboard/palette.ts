// One colour per column, the same in the graph and in the worker slots. The eight hues (in dashboard.css, for
// light and dark) stay apart for the three kinds of colour blindness; further columns take them again, first
// paler, then deeper.

/** Hues in dashboard.css: `--column-0` and so on. */
const HUES = 8;
/** What is mixed into the hues, a round each. */
const ROUNDS = ["", "var(--surface) 40%", "var(--ink) 45%"];

/** The colour of a column as CSS. */
export function columnColour(column: number) {
  const hue = `var(--column-${column % HUES})`;
  const mixed = ROUNDS[Math.floor(column / HUES) % ROUNDS.length];
  return mixed ? `color-mix(in srgb, ${hue}, ${mixed})` : hue;
}

/** Colours of the present scheme as a canvas takes them, kept until the scheme changes. */
class Resolved {
  #known: Map<string, string> = new Map();

  /** @param css a colour, which may refer to custom properties */
  get(css: string): string {
    const known = this.#known.get(css);
    if (known) return known;
    const probe = document.createElement("span");
    probe.hidden = true;
    probe.style.color = css;
    document.body.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    this.#known.set(css, colour);
    return colour;
  }

  forget() {
    this.#known.clear();
  }
}

const resolved = new Resolved();

/**
 * A custom property's colour, for a canvas.
 * @param property such as `--ink`
 */
export function colour(property: string) {
  return resolved.get(`var(${property})`);
}

/** A column's colour, for a canvas. */
export function canvasColour(column: number) {
  return resolved.get(columnColour(column));
}

/** The same, paler: as much of it as stripes come to. */
export function mixedColour(column: number) {
  return resolved.get(`color-mix(in srgb, ${columnColour(column)} 26%, var(--surface))`);
}

/** Forgets every colour: the scheme has changed. */
export function forgetColours() {
  resolved.forget();
}
