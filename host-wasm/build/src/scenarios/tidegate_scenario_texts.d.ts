/** What a scenario is made of, by its name: JSON for `scenarioOf()`; undefined for an unknown one. */
export function textOf(name: string): string | undefined;
