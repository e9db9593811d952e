// The page's own markup, and small helpers for elements.

export { messageOf } from "./errors.ts";

/** The element of this kind below `root`. The page's own markup is known to have it. */
export function part<T extends Element>(root: ParentNode, selector: string, kind: new () => T): T {
  const found = root.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`the page has no ${selector}`);
  return found;
}

/** The element with this id. */
export const byId = (id: string) => part(document, `#${id}`, HTMLElement);
export const inputById = (id: string) => part(document, `#${id}`, HTMLInputElement);
export const buttonById = (id: string) => part(document, `#${id}`, HTMLButtonElement);

/**
 * Gives the number in a field to `take`. A field without a valid number shows `present` again, the number
 * that is in force.
 */
export function takeNumber(field: HTMLInputElement, present: number, take: (value: number) => void) {
  if (field.reportValidity()) take(field.valueAsNumber);
  else field.value = String(present);
}

/** Writes text only where it differs. */
export function say(element: HTMLElement, text: string) {
  if (element.textContent !== text) element.textContent = text;
}
