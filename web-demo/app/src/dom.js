// @ts-check
// The page's own markup, and small helpers for elements.

export { make } from "./stage/dom.js";
export { wordsOf } from "./words.js";

/** The element of this kind below `root`. The page's own markup is known to have it.
 * @template {Element} T
 * @param {ParentNode} root @param {string} selector @param {new () => T} kind @returns {T} */
export function part(root, selector, kind) {
  const found = root.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`the page has no ${selector}`);
  return found;
}

/** The element with this id. @param {string} id */
export const byId = (id) => part(document, `#${id}`, HTMLElement);
/** @param {string} id */
export const inputById = (id) => part(document, `#${id}`, HTMLInputElement);
/** @param {string} id */
export const buttonById = (id) => part(document, `#${id}`, HTMLButtonElement);
/** @param {string} id */
export const selectById = (id) => part(document, `#${id}`, HTMLSelectElement);

/** Writes text only where it differs. @param {HTMLElement} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
