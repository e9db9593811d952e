// Numbers and spans of time as a person reads them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function count(value: number) {
  return whole.format(value);
}

/** A mean: one decimal below 100, none above. */
export function mean(value: number) {
  return value < 100 ? fine.format(value) : whole.format(value);
}

/** A span of virtual time: `3.2 s`, `4 min 03.2 s`, `2 h 07 min`. */
export function span(ms: number) {
  const tenths = Math.floor(ms / 100);
  if (tenths < 600) return `${(tenths / 10).toFixed(1)} s`;
  const minutes = Math.floor(tenths / 600);
  if (minutes < 60) return `${minutes} min ${((tenths % 600) / 10).toFixed(1).padStart(4, "0")} s`;
  return `${count(Math.floor(minutes / 60))} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/**
 * A tick on a time axis, as short as it can be: `0.4`, `30 s`, `1:30`, `2:00 h`.
 * @param step the distance to the next tick, in ms
 */
export function tick(ms: number, step: number) {
  const seconds = ms / 1000;
  if (seconds < 60 && step < 30_000) return `${Number(seconds.toFixed(3))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, "0")}`;
  return `${Math.floor(seconds / 3600)}:${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")} h`;
}

/** A speed: `0.25×`, `10×`, `1,000×`. */
export function times(speed: number) {
  const digits = speed < 1 ? 2 : speed < 10 ? 1 : 0;
  return `${Number(speed.toFixed(digits)).toLocaleString("en")}×`;
}

export function percent(part: number, all: number) {
  // Rounded down: 100 % is said only when nothing is left.
  return `${all > 0 ? Math.floor((100 * part) / all) : 0} %`;
}
