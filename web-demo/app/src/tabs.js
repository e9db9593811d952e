// @ts-check
// The views as tabs: arrow keys move between them, and each has an address.
import { byId, part } from "./dom.js";

/** @typedef {"stage" | "compare" | "scenario" | "tour" | "take"} View */
export const VIEWS = /** @type {const} */ (["stage", "compare", "scenario", "tour", "take"]);

/** @param {string} text @returns {text is View} */
const isView = (text) => /** @type {readonly string[]} */ (VIEWS).includes(text);

/** What an address says behind its `#`: a view, and the text of a set-up. @param {string} hash */
export function addressed(hash) {
  const [, view = "", payload = ""] = /^#\/([a-z]*)(?:\/(.*))?$/s.exec(hash) ?? [];
  return { view: isView(view) ? view : undefined, payload };
}

export class Tabs {
  /** @type {View} */
  view = "stage";
  #onShow;

  /** @param {(view: View) => void} onShow a view has been put in front */
  constructor(onShow) {
    this.#onShow = onShow;
    const list = byId("tabs");
    list.addEventListener("click", (event) => {
      const tab = event.target instanceof Element && event.target.closest("[role=tab]");
      if (tab) this.#go(/** @type {View} */ (tab.id.slice(4)));
    });
    list.addEventListener("keydown", (event) => this.#move(event));
    part(document, "#skip", HTMLAnchorElement).addEventListener("click", (event) => {
      event.preventDefault();
      byId(this.view).focus();
    });
    this.#mark();
  }

  /** Puts a view in front. @param {View} view */
  show(view) {
    if (view === this.view) return;
    this.view = view;
    this.#mark();
    this.#onShow(view);
  }

  /** A person does. @param {View} view */
  #go(view) {
    this.show(view);
    history.replaceState(null, "", `#/${view}`);
  }

  #mark() {
    for (const one of VIEWS) {
      const isShown = one === this.view;
      const tab = part(document, `#tab-${one}`, HTMLButtonElement);
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
      byId(one).hidden = !isShown;
    }
    // A narrow screen shows a few tabs at once.
    part(document, `#tab-${this.view}`, HTMLButtonElement).scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const at = VIEWS.indexOf(this.view);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: VIEWS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const view = VIEWS[(to + VIEWS.length) % VIEWS.length] ?? "stage";
    this.#go(view);
    part(document, `#tab-${view}`, HTMLButtonElement).focus();
  }
}
