/** Reports whether an element can be seen: what cannot need not be drawn. */
export function watchVisibility(element: Element, changed: (isVisible: boolean) => void) {
  const observer = new IntersectionObserver((entries) => changed(entries.at(-1)?.isIntersecting ?? true), { rootMargin: "100px" });
  observer.observe(element);
  return observer;
}
