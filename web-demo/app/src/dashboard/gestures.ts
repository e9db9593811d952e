// Zooming and panning of a picture by wheel and by touch, and panning it by dragging with a mouse.

/** A pointer that moves less than this has clicked, in CSS pixels. */
const CLICK = 4;
/** How much of a wheel's turn doubles what is shown, in CSS pixels. */
const DOUBLES = 240;
/** How high a line is for a wheel that counts lines, in CSS pixels. */
const LINE = 16;

export interface Gestures {
  /** `factor` times as much is to be shown; what lies at `left`, in CSS pixels, stays there. */
  zoom(factor: number, left: number): void;
  /** The picture moves to the right by so many CSS pixels. */
  pan(pixels: number): void;
}

/** Listens on an element. Returns whether the present click is the end of a gesture. */
export function listen(element: HTMLElement, { zoom, pan }: Gestures) {
  /** Where each pressed pointer is. */
  const pressed = new Map<number, number>();
  let moved = 0;

  const leftOf = (clientX: number) => clientX - element.getBoundingClientRect().left;

  element.addEventListener(
    "wheel",
    (event) => {
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
      const [across, down] = [event.deltaX * unit, event.deltaY * unit];
      // The fingers' pinch on a touchpad comes as a wheel with Ctrl. A plain turn scrolls the page.
      if (event.ctrlKey || event.metaKey) zoom(2 ** (down / DOUBLES), leftOf(event.clientX));
      else if (event.shiftKey || Math.abs(across) > Math.abs(down)) pan(-(across || down));
      else return;
      event.preventDefault();
    },
    { passive: false },
  );
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    if (pressed.size === 0) moved = 0;
    pressed.set(event.pointerId, event.clientX);
  });
  element.addEventListener("pointermove", (event) => {
    const before = pressed.get(event.pointerId);
    if (before === undefined) return;
    const distance = event.clientX - before;
    const [other] = [...pressed].filter(([id]) => id !== event.pointerId);
    if (other) {
      const [was, is] = [before, event.clientX].map((at) => Math.max(Math.abs(at - other[1]), 1)) as [number, number];
      zoom(was / is, leftOf(other[1]));
      moved += CLICK;
    } else {
      moved += Math.abs(distance);
      if (moved < CLICK) return;
      // From here on it is no click, wherever the pointer goes.
      if (!element.hasPointerCapture(event.pointerId)) element.setPointerCapture(event.pointerId);
      pan(distance);
    }
    pressed.set(event.pointerId, event.clientX);
  });
  for (const end of ["pointerup", "pointercancel"] as const) element.addEventListener(end, (event) => pressed.delete(event.pointerId));
  return () => moved >= CLICK;
}
