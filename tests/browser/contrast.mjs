// Whether people can read what a page says: the contrast of every text in sight with what it stands on.
import assert from "node:assert/strict";
import { channelsOf, contrast } from "./colours.mjs";

/** The least contrast of a text (WCAG 2.2, success criterion 1.4.3, level AA). */
const LEAST = 4.5;

/**
 * Asserts that every text in sight below the elements that match `selector` can be read. What is disabled does not count.
 * Returns how many texts there are. Colours must not be on their way to others: use `reducedMotion`.
 */
export async function assertReadable(page, selector) {
  const texts = await page.evaluate(textsBelow, selector);
  const unreadable = texts
    .map(([text, ink, ground]) => [text, contrast(channelsOf(ink), channelsOf(ground)), `${ink} on ${ground}`])
    .filter(([, found]) => found < LEAST)
    .map(([text, found, colours]) => `"${text}" has a contrast of ${found.toFixed(2)}: ${colours}`);
  assert.deepEqual([...new Set(unreadable)], []);
  return texts.length;
}

/** Runs in the page. Returns each text with its colour and that of its ground, as bytes of red, green and blue. */
function textsBelow(selector) {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  /** A colour of any notation: its bytes, and its opacity from 0 to 1. */
  const read = (css) => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = css;
    pixel.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data;
    return { bytes: [red, green, blue], alpha: alpha / 255 };
  };
  const over = ({ bytes, alpha }, ground) => bytes.map((byte, channel) => alpha * byte + (1 - alpha) * ground[channel]);
  const parentOf = (element) => element.parentElement ?? element.getRootNode().host;
  const groundOf = (element) => {
    if (!element) return [255, 255, 255];
    const { backgroundColor } = getComputedStyle(element);
    const own = read(backgroundColor);
    return own.alpha === 1 ? own.bytes : over(own, groundOf(parentOf(element)));
  };
  const opacityOf = (element) => (element ? Number(getComputedStyle(element).opacity) * opacityOf(parentOf(element)) : 1);
  const found = [];
  const add = (element, text, style = getComputedStyle(element)) => {
    if (!text || element.closest(":disabled, [aria-disabled=true], option, .visually-hidden")) return;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) return;
    const ground = groundOf(element);
    const ink = read(element instanceof SVGElement ? style.fill : style.color);
    found.push([text, over({ ...ink, alpha: ink.alpha * opacityOf(element) }, ground).map(Math.round), ground.map(Math.round)]);
  };
  for (const root of document.querySelectorAll(selector)) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) add(walker.currentNode.parentElement, walker.currentNode.data.trim());
    for (const field of root.querySelectorAll("input:not([type=range], [type=checkbox], [type=radio]), select, textarea")) {
      add(field, field.value);
      if (field.placeholder && !field.value) add(field, field.placeholder, getComputedStyle(field, "::placeholder"));
    }
  }
  return found;
}
