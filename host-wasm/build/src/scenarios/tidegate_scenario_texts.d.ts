/** A scenario as JSON, by its name; undefined for an unknown one. */
export function textOf(name: string): string | undefined;
