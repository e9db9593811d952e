// @ts-check
// Views that come when they are first put in front: whoever watches one run loads nothing of them. One that cannot be
// fetched says so and can be asked for again; the rest of the page goes on meanwhile.
import { announce } from "./announce.js";
import { byId, make, wordsOf } from "./dom.js";
import { FELT_MS, fateOf, fetched, NotLoaded } from "./fetching.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./tabs.js").Tabs} Tabs */
/** @typedef {import("./tabs.js").View} View */
/** @typedef {Exclude<View, "stage">} Late */

/**
 * What a view is given.
 * @typedef {object} Shell
 * @property {Session} session its scenarios are known
 * @property {Tabs} tabs
 * @property {() => View} runView the last view that shows a run
 * @property {(view: Late) => Promise<void>} brought resolves once a view that is to be seen is there, or cannot be
 */

/** A view that is there. @typedef {{ show: () => void }} Opened `show`: it has been put in front */
/** What the module of a view exports. @typedef {{ open: (shell: Shell) => Opened }} ViewModule */

/** One view: its module and its style sheet are `name/name.js` and `name/name.css`. */
class LateView {
  #name;
  #title;
  #panel;
  #shell;
  #begun;
  /** @type {Opened | undefined} */
  #opened;
  /** @type {Promise<void> | undefined} */
  #coming;
  #isAgain = false;
  /** Another try would not help, and might do things twice. */
  #isLost = false;
  #isDressed = false;
  #state = make("p", { role: "status" });
  #again = make("button", { type: "button" }, "Try again");
  #note = make("section", { class: "panel late" }, this.#state, this.#again);

  /** @param {Late} name @param {Shell} shell @param {Promise<unknown>} begun once the shell can be used */
  constructor(name, shell, begun) {
    this.#name = name;
    this.#title = byId(`tab-${name}`).textContent ?? name;
    this.#panel = byId(name);
    this.#shell = shell;
    this.#begun = begun;
    this.#again.hidden = true;
    this.#again.addEventListener("click", () => (this.#isLost ? location.reload() : void this.show()));
  }

  /** It has been put in front. */
  async show() {
    if (this.#opened) this.#opened.show();
    else if (!this.#isLost) await (this.#coming ??= this.#come());
  }

  async #come() {
    let isFelt = false;
    const tell = () => {
      isFelt = true;
      this.#state.textContent = `${this.#title} is being loaded.`;
      // What changes in a busy part of the page may go unsaid.
      announce(this.#state.textContent);
    };
    // Whoever asks again sees at once that it was heard.
    const told = setTimeout(tell, this.#isAgain ? 0 : FELT_MS);
    this.#isAgain = true;
    if (!this.#note.isConnected) this.#panel.prepend(this.#note);
    this.#panel.setAttribute("aria-busy", "true");
    /** @type {() => void} */
    let show;
    try {
      const [module] = await Promise.all([fetched(this.#title, `${this.#name}/${this.#name}.js`), this.#dress()]);
      show = await this.#begun.then(
        () => () => this.#open(module, isFelt),
        () => () => this.#lose(),
      );
    } catch (error) {
      show = () => this.#refuse(error);
    }
    clearTimeout(told);
    this.#panel.removeAttribute("aria-busy");
    this.#coming = undefined;
    show();
  }

  /** @param {ViewModule} module @param {boolean} isFelt whether a person has waited */
  #open(module, isFelt) {
    try {
      this.#opened = module.open(this.#shell);
      this.#opened.show();
    } catch (error) {
      this.#opened = undefined;
      reportError(error);
      this.#lose();
      return;
    }
    const hadFocus = this.#note.contains(document.activeElement);
    this.#note.remove();
    if (hadFocus) this.#panel.focus({ preventScroll: true });
    if (isFelt && !this.#panel.hidden) announce(`${this.#title} is there.`);
  }

  /** @param {unknown} error */
  #refuse(error) {
    this.#isLost = error instanceof NotLoaded && error.isOutdated;
    this.#offer(`${wordsOf(error)} The rest of the page goes on.`);
  }

  /** It came, and cannot be shown. */
  #lose() {
    this.#isLost = true;
    this.#offer(`${this.#title} cannot be shown.`);
  }

  /** @param {string} text */
  #offer(text) {
    this.#state.textContent = text;
    this.#again.textContent = this.#isLost ? "Load the page again" : "Try again";
    this.#again.hidden = false;
  }

  /** @returns {Promise<void>} */
  #dress() {
    if (this.#isDressed) return Promise.resolve();
    const path = `${this.#name}/${this.#name}.css`;
    const since = performance.now();
    const sheet = make("link", { rel: "stylesheet", href: path });
    return new Promise((resolve, reject) => {
      sheet.addEventListener("load", () => {
        this.#isDressed = true;
        resolve();
      });
      sheet.addEventListener("error", () => {
        sheet.remove();
        void fateOf(path, since).then((fate) => reject(new NotLoaded(this.#title, fate)));
      });
      document.head.append(sheet);
    });
  }
}

/** All views but the stage. @param {Omit<Shell, "brought">} shell @param {Promise<unknown>} begun once the shell can be used */
export function lateViews(shell, begun) {
  const whole = { ...shell, brought: (/** @type {Late} */ name) => views[name].show() };
  const late = (/** @type {Late} */ name) => new LateView(name, whole, begun);
  /** @type {Record<Late, LateView>} */
  const views = { compare: late("compare"), scenario: late("scenario"), tour: late("tour"), take: late("take") };
  return views;
}
