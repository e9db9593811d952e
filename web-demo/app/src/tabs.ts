// The views as tabs: arrow keys move between them, and each has an address.
import { byId, part } from "./dom.ts";

export type View = "watch" | "explore" | "compare" | "machines" | "scenario" | "lessons" | "share";
export const VIEWS = ["watch", "explore", "compare", "machines", "scenario", "lessons", "share"] as const;

const isView = (text: string): text is View => (VIEWS as readonly string[]).includes(text);

/** What an address says behind its `#`: a view, and the text of a set-up. */
export function addressed(hash: string) {
  const [, view = "", payload = ""] = /^#\/([a-z]*)(?:\/(.*))?$/s.exec(hash) ?? [];
  return { view: isView(view) ? view : undefined, payload };
}

export class Tabs {
  view: View = "watch";
  #onShow;

  /** @param onShow a view has been put in front */
  constructor(onShow: (view: View) => void) {
    this.#onShow = onShow;
    const list = byId("tabs");
    list.addEventListener("click", (event) => {
      const tab = event.target instanceof Element && event.target.closest("[role=tab]");
      if (tab) this.go(tab.id.slice(4) as View);
    });
    list.addEventListener("keydown", (event) => this.#move(event));
    part(document, "#skip", HTMLAnchorElement).addEventListener("click", (event) => {
      event.preventDefault();
      byId(this.view).focus();
    });
    this.#mark();
  }

  /** Puts a view in front. */
  show(view: View) {
    if (view === this.view) return;
    this.view = view;
    this.#mark();
    this.#onShow(view);
  }

  /** Puts a view in front, and its address into the bar. */
  go(view: View) {
    this.show(view);
    history.replaceState(null, "", `#/${view}`);
  }

  #mark() {
    document.body.dataset.view = this.view;
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

  #move(event: KeyboardEvent) {
    const at = VIEWS.indexOf(this.view);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: VIEWS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const view = VIEWS[(to + VIEWS.length) % VIEWS.length] ?? "watch";
    this.go(view);
    part(document, `#tab-${view}`, HTMLButtonElement).focus();
  }
}
