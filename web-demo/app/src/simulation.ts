// The set-up of the page: which scenario, with which seed, changed how, and where in it. It asks the worker
// for the runs and emits to the views what has come of it; it decides nothing about scheduling.
import { messageOf } from "./dom.ts";
import { sidesOf, usualSides } from "./compare/sides.ts";
import { FELT_MS } from "./fetching.ts";
import { Runner } from "./runner.ts";
import { find, SCENARIOS } from "./scenarios.ts";
import type { Frame, Side } from "./messages.ts";
import type { Change, Intervention, Layout, Scenario, TelemetryField } from "./pkg/tidegate_playground.js";
import type { Choice } from "./compare/sides.ts";

export type Phase = "loading" | "ready" | "playing" | "paused" | "finished" | "failed";
/** One run, or two beside each other. */
export type Mode = "one" | "two";

/** What a link holds, and what a lesson sets up. */
export interface SetUp {
  /** A name of one that comes with the page, or all of it. */
  scenario: string | Scenario;
  seed: number;
  mode: Mode;
  /** What the two sides of a comparison change in the scenario. */
  choices: [Choice, Choice];
  /** By run; undefined: those of the scenario. */
  changes: Change[][] | undefined;
  /** In virtual ms. */
  at: number;
  /** The furthest instant of the branch, in virtual ms; `at` if left out. */
  extent?: number;
  /** A power of ten. */
  speed: number;
}

/** The events of a simulation. */
export interface Events {
  /** The scenario of this name is waited for; undefined: no longer. */
  coming: string | undefined;
  /** Other runs are there. */
  loaded: undefined;
  phase: Phase;
  frame: Frame;
  /** The share of a long seek that is done. */
  seeking: number | undefined;
  /** A live change was made. */
  changed: { what: Intervention, side: Side | undefined };
  /** A new branch begins at this virtual ms. */
  branched: number;
  /** How much of what a person asked for is still under way. */
  pending: number;
  /** Something a person wanted cannot be. */
  refused: string;
  failed: string;
  /** A power of ten. */
  speed: number;
}

/**
 * How much of the past the workers' timeline shows, in real ms at the present speed, and its bounds in
 * virtual ms.
 */
const WINDOW_MS = 10_000;
const WINDOW_LEAST_MS = 1_000;
const WINDOW_MOST_MS = 20_000;

/** Where a run was left. */
export interface SavedPosition {
  /** By run; undefined: those of the scenario. */
  changes: Change[][] | undefined;
  /** In virtual ms. */
  at: number;
  /** In virtual ms. */
  extent: number;
}

const START: SavedPosition = { changes: undefined, at: 0, extent: 0 };

export class Simulation {
  scenarios = SCENARIOS;
  fields: TelemetryField[] = [];
  stride = 0;
  /** The scenario as written, without what is changed by hand. */
  base: Scenario | undefined;
  /** Its name while it is one that comes with the page, unedited. */
  name: string | undefined;
  seed = 1;
  mode: Mode = "one";
  choices: [Choice, Choice] = usualSides();
  layouts: Layout[] = [];
  /** All changes of each run. */
  changes: Change[][] = [];
  /** The change under way, after all before it. */
  #changing: Promise<void> = Promise.resolve();
  /** When the latest change comes: frames from before it may still be on their way. */
  #changedAt = 0;
  /** What each run is made of. */
  runs: Scenario[] = [];
  phase: Phase = "loading";
  /** The present instant and the furthest one of this branch, in virtual ms. */
  at = 0;
  extent = 0;
  /** A power of ten. */
  speed = 0.3;
  /** How much of the past the worker slots of each run show, where that is more than usual, in virtual ms. */
  #past: [number, number] = [0, 0];
  /** The newest frame. */
  frame: Frame | undefined;
  runner;
  /** The scenarios that come with the page and have been wanted, by name. */
  #found: Map<string, Promise<Scenario>> = new Map();
  /** The names of those that the worker has, too. */
  #names: Map<Scenario, string> = new Map();
  /** How each mode was left. */
  #left: Partial<Record<Mode, SavedPosition>> = {};
  /** The last of the loads under way. */
  #turn: Promise<unknown> = Promise.resolve();
  /** Counts what asks for another scenario: the latest counts. */
  #wishes = 0;
  #pending = 0;
  /** The last change of the choices that waits for a scenario. */
  #choosing: Promise<void> = Promise.resolve();
  #listeners: Map<keyof Events, ((detail: never) => void)[]> = new Map();

  constructor() {
    this.runner = new Runner({
      frame: (frame) => this.#show(frame),
      seeking: (share) => this.#emit("seeking", share),
      failed: (message) => this.fail(message),
    });
  }

  on<K extends keyof Events>(event: K, listener: (detail: Events[K]) => void) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), (listener as (detail: never) => void)]);
  }

  #emit<K extends keyof Events>(event: K, detail: Events[K]) {
    for (const listener of this.#listeners.get(event) ?? []) listener(detail as never);
  }

  /** Waits until the worker is there. Rejects where it fails, which is emitted, too. */
  async begin() {
    const { fields, stride } = await this.runner.begin();
    Object.assign(this, { fields, stride });
  }

  /** The run cannot go on. */
  fail(message: string) {
    this.#emit("failed", message);
    this.#enter("failed");
  }

  /** Says that something a person wanted cannot be. */
  refuse(error: unknown) {
    this.#emit("refused", messageOf(error));
  }

  /** Counts `work` as under way until it has ended. */
  async #during<T>(work: Promise<T>) {
    this.#emit("pending", (this.#pending += 1));
    try {
      return await work;
    } finally {
      this.#emit("pending", (this.#pending -= 1));
    }
  }

  /** Loads go one after the other, so that what a person wants next never mixes with what is being loaded. */
  #inTurn(load: () => Promise<void>) {
    const done = this.#turn.then(load);
    this.#turn = done.catch(() => {});
    return done;
  }

  /**
   * Loads with these in force; if that is refused, everything is as before. Throws then.
   * @param forgets how the modes were left
   */
  async #try(wish: Partial<Pick<Simulation, "base" | "name" | "seed" | "mode" | "choices">>, left: SavedPosition, forgets: boolean) {
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

  /** A scenario that comes with the page, with every field. Rejects for an unknown one. */
  #find(name: string) {
    const known = this.#found.get(name);
    if (known) return known;
    const found = this.#complete(name);
    this.#found.set(name, found);
    // What failed may work the next time: the network comes and goes.
    found.catch(() => this.#found.delete(name));
    return found;
  }

  async #complete(name: string) {
    const scenario = await this.runner.ask(async (worker) => worker.completeScenario(await find(name)));
    this.#names.set(scenario, name);
    return scenario;
  }

  /**
   * Finds scenarios before their turn comes: nothing else that a person does waits for the network, or for
   * reading them.
   * @param areWanted whether they still are
   */
  async #fetch(names: string[], areWanted: () => boolean) {
    const timer = setTimeout(() => areWanted() && this.#emit("coming", names[0]), FELT_MS);
    try {
      await Promise.all(names.map((name) => this.#find(name)));
    } finally {
      clearTimeout(timer);
      this.#emit("coming", undefined);
    }
  }

  /** Loads in turn once these scenarios are there. A later wish takes the place of this one. */
  #onceThere(names: string[], load: () => Promise<void>) {
    return this.#during(this.#loadOnceThere(names, load));
  }

  async #loadOnceThere(names: string[], load: () => Promise<void>) {
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

  /** Picks a scenario that comes with the page. */
  async pick(name: string) {
    try {
      await this.#onceThere([name], async () => this.#try({ base: await this.#find(name), name }, START, true));
    } catch (error) {
      this.refuse(error);
    }
  }

  /**
   * Runs a scenario from its start. Throws, and leaves everything as it is, if it cannot run.
   * @param name where it comes with the page as it is
   */
  use(scenario: Scenario, name: string | undefined) {
    return this.#onceThere([], () => this.#try({ base: scenario, name }, START, true));
  }

  /** Brings a whole set-up about. */
  setUp(wish: SetUp) {
    const { scenario, seed, mode, choices, changes, at, extent = at } = wish;
    const names = [scenario, ...choices.map((choice) => choice.scenario)].flatMap((name) => (typeof name === "string" && name) || []);
    return this.#onceThere(names, async () => {
      const [base, name] = typeof scenario === "string" ? [await this.#find(scenario), scenario] : [scenario, undefined];
      await this.#try({ base, name, seed, mode, choices }, { changes, at, extent }, true);
      this.setSpeed(wish.speed);
    });
  }

  /** What brings this about again. */
  currentSetUp(): SetUp {
    const { base, name, seed, mode, choices, speed, at, extent } = this;
    if (!base) throw new Error("nothing is loaded");
    const changed = this.changes.some((changes, side) => JSON.stringify(changes) !== JSON.stringify(this.runs[side]?.changes ?? []));
    return { scenario: name ?? base, seed, mode, choices, changes: changed ? this.changes : undefined, at, extent, speed };
  }

  async setSeed(seed: number) {
    await this.#orRefuse(() => this.#try({ seed }, START, true));
  }

  /** Loads in turn; what is refused is emitted. */
  async #orRefuse(load: () => Promise<void>) {
    try {
      await this.#during(this.#inTurn(load));
    } catch (error) {
      this.refuse(error);
    }
  }

  /** @param change what becomes of the choices */
  async setChoices(change: (now: [Choice, Choice]) => [Choice, Choice]) {
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

  async #choose(change: (now: [Choice, Choice]) => [Choice, Choice]) {
    await this.#orRefuse(async () => {
      const choices = change(this.choices);
      if (this.mode === "two") await this.#try({ choices }, START, false);
      else this.choices = choices;
      delete this.#left.two;
    });
  }

  /** One run, or two; each is found again as it was left. */
  async setMode(mode: Mode) {
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

  async #load({ changes, at, extent }: SavedPosition) {
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
    this.#past = [0, 0];
    this.look();
    this.#emit("loaded", undefined);
    this.#enter(at > 0 ? "paused" : "ready", true);
  }

  #enter(phase: Phase, anew: boolean = false) {
    if (phase === this.phase && !anew) return;
    this.phase = phase;
    this.#emit("phase", phase);
  }

  play() {
    if (this.phase === "failed" || this.phase === "loading" || this.phase === "playing") return;
    if (this.phase === "finished") {
      this.#changedAt = 0;
      this.runner.send((worker) => worker.seek(0));
    }
    this.runner.send((worker) => worker.play());
    // At once, not with the next frame: a second press must mean the opposite.
    this.#enter("playing");
  }

  pause() {
    if (this.phase !== "playing") return;
    this.runner.send((worker) => worker.pause());
    this.#enter("paused");
  }

  /** One decision. */
  step() {
    if (this.phase === "failed" || this.phase === "loading" || this.phase === "finished") return;
    this.runner.send((worker) => worker.step());
    this.#enter("paused");
  }

  /** @param to in virtual ms */
  seek(to: number) {
    if (this.phase === "failed" || this.phase === "loading") return;
    this.#changedAt = 0;
    const instant = Math.min(Math.max(to, 0), this.extent);
    this.runner.send((worker) => worker.seek(instant));
    if (this.phase === "finished") this.#enter("paused");
  }

  /** @param speed a power of ten */
  setSpeed(speed: number) {
    this.speed = speed;
    this.runner.send((worker) => worker.setSpeed(10 ** speed));
    this.look();
    this.#emit("speed", speed);
  }

  /** How much of the past a view shows that follows the run, in virtual ms. */
  get windowMs() {
    return Math.min(Math.max(WINDOW_MS * 10 ** this.speed, WINDOW_LEAST_MS), WINDOW_MOST_MS);
  }

  /**
   * The worker slots of a run show this much of the past, in virtual ms; undefined: as much as follows from
   * the speed.
   */
  showPast(side: Side, ms: number | undefined) {
    this.#past[side] = ms ?? 0;
    this.look();
  }

  /** Asks for a picture of the present instant: a view that has come late missed the last one. */
  look() {
    const ms = Math.max(this.windowMs, ...this.#past);
    this.runner.send((worker) => worker.setWindow(ms));
  }

  /**
   * Changes the run from now on. What was to come after an instant that a person went back to is then gone.
   * One change is made after the other.
   * @param what a function is asked once it is the change's turn, so that it can build on those before
   * @param side all runs if left out
   */
  change(what: Intervention | (() => Intervention), side?: Side) {
    return (this.#changing = this.#during(this.#changing.then(() => this.#change(typeof what === "function" ? what() : what, side))));
  }

  async #change(what: Intervention, side?: Side) {
    const isBranch = this.at < this.extent;
    try {
      const { changes, at } = await this.runner.ask((worker, run) => worker.change(run, what, side));
      // At once, not with the next frame: the next change may build on this one.
      this.changes = changes;
      this.#changedAt = this.at = Math.max(this.at, at);
    } catch (error) {
      this.refuse(error);
      return;
    }
    this.extent = this.at;
    if (isBranch) this.#emit("branched", this.at);
    this.#emit("changed", { what, side });
  }

  #show(frame: Frame) {
    this.frame = frame;
    // One that waited to be drawn while something was changed does not know of it.
    frame.sides.forEach(({ changes, sample }, side) => {
      if (changes && sample.at / 1e6 >= this.#changedAt) this.changes[side] = changes;
    });
    const going = frame.sides.filter(({ result }) => !result);
    const instants = (going.length > 0 ? going : frame.sides).map(({ sample }) => sample.at / 1e6);
    this.at = Math.max(this.#changedAt, going.length > 0 ? Math.min(...instants) : Math.max(...instants));
    this.extent = Math.max(this.extent, this.at);
    this.#emit("frame", frame);
    if (going.length === 0) this.#enter("finished");
    else if (this.phase === "finished") this.#enter(frame.playing ? "playing" : "paused");
  }
}
