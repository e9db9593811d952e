// @ts-check
// Views that come when they are first put in front: whoever watches one run loads nothing of them. One that cannot be
// fetched says so and can be asked for again; the rest of the page goes on meanwhile.
import { announce } from "./announce.js";
import { byId, make } from "./dom.js";

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

/** A wait longer than this is told, in real ms. */
const FELT_MS = 250;

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
  #tries = 0;
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
    this.#again.addEventListener("click", () => void this.show());
  }

  /** It has been put in front. */
  async show() {
    if (this.#opened) this.#opened.show();
    else await (this.#coming ??= this.#come());
  }

  async #come() {
    let isFelt = false;
    const tell = () => {
      isFelt = true;
      this.#state.textContent = `${this.#title} is being loaded.`;
    };
    // Whoever asks again sees at once that it was heard.
    const told = setTimeout(tell, this.#tries > 0 ? 0 : FELT_MS);
    if (!this.#note.isConnected) this.#panel.prepend(this.#note);
    this.#panel.setAttribute("aria-busy", "true");
    const module = await this.#fetch();
    clearTimeout(told);
    this.#panel.removeAttribute("aria-busy");
    this.#coming = undefined;
    if (module) this.#open(module, isFelt);
    else this.#refuse();
  }

  /** @returns {Promise<ViewModule | undefined>} */
  async #fetch() {
    // A browser may keep in mind that an address could not be loaded: another try has another one.
    const again = this.#tries > 0 ? `?again=${this.#tries}` : "";
    this.#tries += 1;
    try {
      const [module] = await Promise.all([import(`./${this.#name}/${this.#name}.js${again}`), this.#dress()]);
      await this.#begun;
      return module;
    } catch {
      return undefined;
    }
  }

  /** @param {ViewModule} module @param {boolean} isFelt whether a person has waited */
  #open(module, isFelt) {
    const hadFocus = this.#note.contains(document.activeElement);
    this.#note.remove();
    this.#opened = module.open(this.#shell);
    this.#opened.show();
    if (hadFocus) this.#panel.focus({ preventScroll: true });
    if (isFelt && !this.#panel.hidden) announce(`${this.#title} is there.`);
  }

  #refuse() {
    this.#state.textContent = `${this.#title} could not be loaded: the server does not answer. The rest of the page goes on.`;
    this.#again.hidden = false;
  }

  /** @returns {Promise<void>} */
  #dress() {
    if (this.#isDressed) return Promise.resolve();
    const sheet = make("link", { rel: "stylesheet", href: `${this.#name}/${this.#name}.css` });
    return new Promise((resolve, reject) => {
      sheet.addEventListener("load", () => {
        this.#isDressed = true;
        resolve();
      });
      sheet.addEventListener("error", () => {
        sheet.remove();
        reject(new Error("the style sheet could not be loaded"));
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
