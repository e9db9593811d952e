// @ts-check
// The set-up of the page: which scenario, with which seed, changed how, and where in it. It asks the worker for the
// runs and tells the views what has come of it; it decides nothing about scheduling.
import { wordsOf } from "./dom.js";
import { sidesOf, sameAsScenario } from "./compare/sides.js";
import { FELT_MS } from "./fetching.js";
import { Runner } from "./runner.js";
import { find, SCENARIOS } from "./scenarios.js";

/** @typedef {import("./messages").Frame} Frame */
/** @typedef {import("./messages").Side} Side */
/** @typedef {import("./pkg/tidegate_playground.js").Change} Change */
/** @typedef {import("./pkg/tidegate_playground.js").Intervention} Intervention */
/** @typedef {import("./pkg/tidegate_playground.js").Layout} Layout */
/** @typedef {import("./pkg/tidegate_playground.js").Scenario} Scenario */
/** @typedef {import("./pkg/tidegate_playground.js").TelemetryField} TelemetryField */
/** @typedef {import("./compare/sides.js").Choice} Choice */
/** @typedef {"loading" | "ready" | "playing" | "paused" | "finished" | "failed"} Phase */
/** One run, or two beside each other. @typedef {"one" | "two"} Mode */

/**
 * What a link holds, and what a lesson sets up.
 * @typedef {object} SetUp
 * @property {string | Scenario} scenario a name of one that comes with the page, or all of it
 * @property {number} seed
 * @property {Mode} mode
 * @property {[Choice, Choice]} choices what the two sides of a comparison change in the scenario
 * @property {Change[][] | undefined} changes by run; undefined: those of the scenario
 * @property {number} at in virtual ms
 * @property {number} [extent] the furthest instant of the branch, in virtual ms; `at` if left out
 * @property {number} speed a power of ten
 */

/**
 * What the session tells.
 * @typedef {object} Events
 * @property {string | undefined} coming the scenario of this name is waited for; undefined: no longer
 * @property {undefined} loaded other runs are there
 * @property {Phase} phase
 * @property {Frame} frame
 * @property {number | undefined} seeking the share of a long seek that is done
 * @property {{ what: Intervention, side: Side | undefined }} changed a live change was made
 * @property {number} branched a new branch begins at this virtual ms
 * @property {number} pending how much of what a person asked for is still under way
 * @property {string} refused something a person wanted cannot be
 * @property {string} failed
 * @property {number} speed a power of ten
 */

/** How much of the past the workers' timeline shows, in real ms at the present speed, and its bounds in virtual ms. */
const WINDOW_MS = 10_000;
const WINDOW_LEAST_MS = 1_000;
const WINDOW_MOST_MS = 20_000;

/**
 * Where a run was left.
 * @typedef {object} Left
 * @property {Change[][] | undefined} changes by run; undefined: those of the scenario
 * @property {number} at in virtual ms
 * @property {number} extent in virtual ms
 */

/** @type {Left} */
const START = { changes: undefined, at: 0, extent: 0 };

export class Session {
  scenarios = SCENARIOS;
  /** @type {TelemetryField[]} */
  fields = [];
  stride = 0;
  /** The scenario as written, without what is changed by hand. @type {Scenario | undefined} */
  base;
  /** Its name while it is one that comes with the page, unedited. @type {string | undefined} */
  name;
  seed = 1;
  /** @type {Mode} */
  mode = "one";
  /** @type {[Choice, Choice]} */
  choices = [sameAsScenario(), sameAsScenario()];
  /** @type {Layout[]} */
  layouts = [];
  /** All changes of each run. @type {Change[][]} */
  changes = [];
  /** The change under way, after all before it. @type {Promise<void>} */
  #changing = Promise.resolve();
  /** When the latest change comes: frames from before it may still be on their way. */
  #changedAt = 0;
  /** What each run is made of. @type {Scenario[]} */
  runs = [];
  /** @type {Phase} */
  phase = "loading";
  /** The present instant and the furthest one of this branch, in virtual ms. */
  at = 0;
  extent = 0;
  /** A power of ten. */
  speed = 0.3;
  /** The newest frame. @type {Frame | undefined} */
  frame;
  runner;
  /** The scenarios that come with the page and have been wanted, by name. @type {Map<string, Promise<Scenario>>} */
  #found = new Map();
  /** The names of those that the worker has, too. @type {Map<Scenario, string>} */
  #names = new Map();
  /** How each mode was left. @type {Partial<Record<Mode, Left>>} */
  #left = {};
  /** The last of the loads under way. @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** Counts what asks for another scenario: the latest counts. */
  #wishes = 0;
  #pending = 0;
  /** The last change of the choices that waits for a scenario. @type {Promise<void>} */
  #choosing = Promise.resolve();
  /** @type {Map<keyof Events, ((detail: never) => void)[]>} */
  #listeners = new Map();

  constructor() {
    this.runner = new Runner({
      frame: (frame) => this.#show(frame),
      seeking: (share) => this.#tell("seeking", share),
      failed: (message) => this.fail(message),
    });
  }

  /** @template {keyof Events} K @param {K} event @param {(detail: Events[K]) => void} listener */
  on(event, listener) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), /** @type {(detail: never) => void} */ (listener)]);
  }

  /** @template {keyof Events} K @param {K} event @param {Events[K]} detail */
  #tell(event, detail) {
    for (const listener of this.#listeners.get(event) ?? []) listener(/** @type {never} */ (detail));
  }

  /** Waits until the worker is there. Rejects where it fails, which is told, too. */
  async begin() {
    const { fields, stride } = await this.runner.ready;
    Object.assign(this, { fields, stride });
  }

  /** The run cannot go on. @param {string} message */
  fail(message) {
    this.#tell("failed", message);
    this.#enter("failed");
  }

  /** Says that something a person wanted cannot be. @param {unknown} error */
  refuse(error) {
    this.#tell("refused", wordsOf(error));
  }

  /** Counts `work` as under way until it has ended. @template T @param {Promise<T>} work */
  async #during(work) {
    this.#tell("pending", (this.#pending += 1));
    try {
      return await work;
    } finally {
      this.#tell("pending", (this.#pending -= 1));
    }
  }

  /** Loads go one after the other, so that what a person wants next never mixes with what is being loaded.
   * @param {() => Promise<void>} load */
  #inTurn(load) {
    const done = this.#turn.then(load);
    this.#turn = done.catch(() => {});
    return done;
  }

  /** Loads with these in force; if that is refused, everything is as before. Throws then.
   * @param {Partial<Pick<Session, "base" | "name" | "seed" | "mode" | "choices">>} wish @param {Left} left @param {boolean} forgets how the modes were left */
  async #try(wish, left, forgets) {
    const { base, name, seed, mode, choices } = this;
    Object.assign(this, wish);
    try {
      await this.#load(left);
    } catch (error) {
      Object.assign(this, { base, name, seed, mode, choices });
      throw error;
    }
    if (forgets) this.#left = {};
  }

  /** A scenario that comes with the page, with every field. Rejects for an unknown one. @param {string} name */
  #find(name) {
    const known = this.#found.get(name);
    if (known) return known;
    const found = this.#complete(name);
    this.#found.set(name, found);
    // What failed may work the next time: the network comes and goes.
    found.catch(() => this.#found.delete(name));
    return found;
  }

  /** @param {string} name */
  async #complete(name) {
    const scenario = await this.runner.ask("completeScenario", await find(name));
    this.#names.set(scenario, name);
    return scenario;
  }

  /** Finds scenarios before their turn comes: nothing else that a person does waits for the network, or for reading them.
   * @param {string[]} names @param {() => boolean} areWanted whether they still are */
  async #fetch(names, areWanted) {
    const told = setTimeout(() => areWanted() && this.#tell("coming", names[0]), FELT_MS);
    try {
      await Promise.all(names.map((name) => this.#find(name)));
    } finally {
      clearTimeout(told);
      this.#tell("coming", undefined);
    }
  }

  /** Loads in turn once these scenarios are there. A later wish takes the place of this one.
   * @param {string[]} names @param {() => Promise<void>} load */
  #onceThere(names, load) {
    return this.#during(this.#loadOnceThere(names, load));
  }

  /** @param {string[]} names @param {() => Promise<void>} load */
  async #loadOnceThere(names, load) {
    const wish = (this.#wishes += 1);
    const isLatest = () => wish === this.#wishes;
    try {
      await this.#fetch(names, isLatest);
      await this.#inTurn(async () => {
        if (isLatest()) await load();
      });
    } catch (error) {
      if (isLatest()) throw error;
    }
  }

  /** Picks a scenario that comes with the page. @param {string} name */
  async pick(name) {
    try {
      await this.#onceThere([name], async () => this.#try({ base: await this.#find(name), name }, START, true));
    } catch (error) {
      this.refuse(error);
    }
  }

  /** Runs a scenario from its start. Throws, and leaves everything as it is, if it cannot run.
   * @param {Scenario} scenario @param {string | undefined} name where it comes with the page as it is */
  use(scenario, name) {
    return this.#onceThere([], () => this.#try({ base: scenario, name }, START, true));
  }

  /** Brings a whole set-up about. @param {SetUp} wish */
  setUp(wish) {
    const { scenario, seed, mode, choices, changes, at, extent = at } = wish;
    const names = [scenario, ...choices.map((choice) => choice.scenario)].flatMap((name) => (typeof name === "string" && name) || []);
    return this.#onceThere(names, async () => {
      const [base, name] = typeof scenario === "string" ? [await this.#find(scenario), scenario] : [scenario, undefined];
      await this.#try({ base, name, seed, mode, choices }, { changes, at, extent }, true);
      this.setSpeed(wish.speed);
    });
  }

  /** What brings this about again. @returns {SetUp} */
  standing() {
    const { base, name, seed, mode, choices, speed, at, extent } = this;
    if (!base) throw new Error("nothing is loaded");
    const changed = this.changes.some((changes, side) => JSON.stringify(changes) !== JSON.stringify(this.runs[side]?.changes ?? []));
    return { scenario: name ?? base, seed, mode, choices, changes: changed ? this.changes : undefined, at, extent, speed };
  }

  /** @param {number} seed */
  async setSeed(seed) {
    await this.#orRefuse(() => this.#try({ seed }, START, true));
  }

  /** Loads in turn; what is refused is told. @param {() => Promise<void>} load */
  async #orRefuse(load) {
    try {
      await this.#during(this.#inTurn(load));
    } catch (error) {
      this.refuse(error);
    }
  }

  /** @param {(now: [Choice, Choice]) => [Choice, Choice]} change what becomes of the choices */
  async setChoices(change) {
    const named = change(this.choices).flatMap(({ scenario }) => scenario || []);
    if (named.length === 0) return this.#choose(change);
    // One after the other: the later one builds on those before.
    return (this.#choosing = this.#during(this.#choosing.then(async () => {
      const before = this.choices;
      const areMeant = () => this.choices === before;
      try {
        await this.#fetch(named, areMeant);
        if (areMeant()) await this.#choose(change);
      } catch (error) {
        this.refuse(error);
      }
    })));
  }

  /** @param {(now: [Choice, Choice]) => [Choice, Choice]} change */
  async #choose(change) {
    await this.#orRefuse(async () => {
      const choices = change(this.choices);
      if (this.mode === "two") await this.#try({ choices }, START, false);
      else this.choices = choices;
      delete this.#left.two;
    });
  }

  /** One run, or two; each is found again as it was left. @param {Mode} mode */
  async setMode(mode) {
    await this.#orRefuse(async () => {
      if (mode === this.mode || !this.base) return;
      this.#left[this.mode] = { changes: this.changes, at: this.at, extent: this.extent };
      await this.#try({ mode }, this.#left[mode] ?? START, false);
    });
  }

  /** Back to the start; what was changed by hand is forgotten. */
  async reset() {
    await this.#orRefuse(() => this.#load(START));
  }

  /** @param {Left} left */
  async #load({ changes, at, extent }) {
    const { base } = this;
    if (!base) return;
    const written = await sidesOf(base, this.mode === "one" ? undefined : this.choices, (name) => this.#find(name));
    const sides = written.map(({ scenario, own }, side) => ({
      scenario: this.#names.get(scenario) ?? scenario,
      own: changes?.[side] ? { ...own, changes: changes[side] } : own,
    }));
    const { layouts } = await this.runner.load({ sides, seed: this.seed, at, isTakenBack: at < extent });
    this.runs = written.map(({ scenario, own }) => ({ ...scenario, ...own }));
    this.layouts = layouts;
    this.changes = this.runs.map((one, side) => changes?.[side] ?? one.changes ?? []);
    this.#changedAt = 0;
    this.at = at;
    this.extent = Math.max(extent, at);
    this.frame = undefined;
    this.#tell("loaded", undefined);
    this.#enter(at > 0 ? "paused" : "ready", true);
  }

  /** @param {Phase} phase @param {boolean} [anew] */
  #enter(phase, anew = false) {
    if (phase === this.phase && !anew) return;
    this.phase = phase;
    this.#tell("phase", phase);
  }

  play() {
    if (this.phase === "failed" || this.phase === "loading" || this.phase === "playing") return;
    if (this.phase === "finished") {
      this.#changedAt = 0;
      this.runner.tell({ type: "seek", to: 0 });
    }
    this.runner.tell({ type: "play" });
    // At once, not with the next frame: a second press must mean the opposite.
    this.#enter("playing");
  }

  pause() {
    if (this.phase !== "playing") return;
    this.runner.tell({ type: "pause" });
    this.#enter("paused");
  }

  /** One decision. */
  step() {
    if (this.phase === "failed" || this.phase === "loading" || this.phase === "finished") return;
    this.runner.tell({ type: "step" });
    this.#enter("paused");
  }

  /** @param {number} to in virtual ms */
  seek(to) {
    if (this.phase === "failed" || this.phase === "loading") return;
    this.#changedAt = 0;
    this.runner.tell({ type: "seek", to: Math.min(Math.max(to, 0), this.extent) });
    if (this.phase === "finished") this.#enter("paused");
  }

  /** @param {number} speed a power of ten */
  setSpeed(speed) {
    this.speed = speed;
    this.runner.tell({ type: "speed", speed: 10 ** speed });
    this.look();
    this.#tell("speed", speed);
  }

  /** Asks for a picture of the present instant: a view that has come late missed the last one. */
  look() {
    this.runner.tell({ type: "window", ms: Math.min(Math.max(WINDOW_MS * 10 ** this.speed, WINDOW_LEAST_MS), WINDOW_MOST_MS) });
  }

  /** Changes the run from now on. What was to come after an instant that a person went back to is then gone.
   * One change is made after the other.
   * @param {Intervention | (() => Intervention)} what a function is asked once it is the change's turn, so that it can build on
   * those before @param {Side} [side] all runs if left out */
  change(what, side) {
    return (this.#changing = this.#during(this.#changing.then(() => this.#change(typeof what === "function" ? what() : what, side))));
  }

  /** @param {Intervention} what @param {Side} [side] */
  async #change(what, side) {
    const isBranch = this.at < this.extent;
    try {
      const { changes, at } = await this.runner.ask("change", { what, side });
      // At once, not with the next frame: the next change may build on this one.
      this.changes = changes;
      this.#changedAt = this.at = Math.max(this.at, at);
    } catch (error) {
      this.refuse(error);
      return;
    }
    this.extent = this.at;
    if (isBranch) this.#tell("branched", this.at);
    this.#tell("changed", { what, side });
  }

  /** @param {Frame} frame */
  #show(frame) {
    this.frame = frame;
    // One that waited to be drawn while something was changed does not know of it.
    frame.sides.forEach(({ changes, sample }, side) => {
      if (changes && sample.at / 1e6 >= this.#changedAt) this.changes[side] = changes;
    });
    const going = frame.sides.filter(({ result }) => !result);
    const instants = (going.length > 0 ? going : frame.sides).map(({ sample }) => sample.at / 1e6);
    this.at = Math.max(this.#changedAt, going.length > 0 ? Math.min(...instants) : Math.max(...instants));
    this.extent = Math.max(this.extent, this.at);
    this.#tell("frame", frame);
    if (going.length === 0) this.#enter("finished");
    else if (this.phase === "finished") this.#enter(frame.playing ? "playing" : "paused");
  }
}
