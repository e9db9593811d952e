// Three machines that share the limit of one provider: a run of its own, in virtual time that follows real
// time. The core decides everything; this keeps the time, and the history for the chart.
import { mount } from "svelte";
import { announce } from "../announce.ts";
import { messageOf } from "../errors.ts";
import { fetched } from "../fetching.ts";
import init, { __wbg_reset_state as renewInstance, Machines as Run } from "../pkg/tidegate_machines.js";
import type { SharingChange, SharingEvent, SharingSample } from "../pkg/tidegate_machines.js";
import { History } from "./history.ts";
import MachinesView from "./Machines.svelte";
import { eventText } from "./texts.ts";

/** With this seed, the first machine leads at the start. */
const SEED = 1;
/**
 * The history has a point for each so many virtual ms at least, so that no call in between is missed for
 * long.
 */
const STEP_MS = 20;
/** A frame later than this means that the tab slept: then no virtual time has passed. */
const ASLEEP_MS = 500;
/** Virtual seconds per real second. */
const SPEED = 2;
/** So many events are shown. */
const MOST_EVENTS = 40;

export class Machines {
  phase = $state<"loading" | "ready" | "playing" | "paused" | "failed">("loading");
  failure = $state("");
  /** The figures of this instant. */
  sample = $state.raw<SharingSample | undefined>();
  /** What happened, newest first. */
  events = $state.raw<SharingEvent[]>([]);
  history = new History();
  /** Is called after everything that may change the figures. */
  onLook = () => {};
  #run: Run | undefined;
  #loaded: Promise<unknown> | undefined;
  /** A panic of the core leaves its instance of the module unusable. */
  #isBroken = false;
  /** The present instant, in virtual ms. */
  #at = 0;
  #frame = 0;
  #frameAt = 0;

  /** Whether the view is in front; else the run pauses. */
  set shown(isShown: boolean) {
    if (!isShown) this.pause();
  }

  /** Starts anew. */
  async restart() {
    try {
      this.#loaded ??= fetched("The machines", () => init({ module_or_path: new URL("../pkg/tidegate_machines_bg.wasm", import.meta.url) }));
      await this.#loaded;
    } catch (error) {
      // What failed may work the next time: the network comes and goes.
      this.#loaded = undefined;
      this.#show(error);
      return;
    }
    try {
      this.failure = "";
      this.#stop();
      if (this.#isBroken) renewInstance();
      else this.#run?.free();
      this.#isBroken = false;
      this.#run = new Run(SEED);
      this.#at = 0;
      this.events = [];
      this.history.clear();
      this.phase = "ready";
      this.#look();
    } catch (error) {
      this.#break(error);
    }
  }

  play() {
    if (this.phase !== "ready" && this.phase !== "paused") return;
    this.phase = "playing";
    this.#frameAt = performance.now();
    this.#frame = requestAnimationFrame((now) => this.#turn(now));
  }

  pause() {
    if (this.phase !== "playing") return;
    this.#stop();
    this.phase = "paused";
  }

  /** Changes the surroundings, from now on. */
  change(what: SharingChange) {
    if (this.#isBroken) return;
    try {
      this.#run?.change(what);
      this.#look();
    } catch (error) {
      this.#break(error);
    }
  }

  #turn(now: number) {
    const passed = now - this.#frameAt;
    this.#frameAt = now;
    try {
      if (passed > 0 && passed <= ASLEEP_MS) this.#advance(this.#at + SPEED * passed);
    } catch (error) {
      this.#break(error);
      return;
    }
    this.#frame = requestAnimationFrame((next) => this.#turn(next));
  }

  #advance(to: number) {
    while (this.#at < to) {
      this.#at = Math.min(to, this.#at + STEP_MS);
      this.#run?.advanceTo(this.#at);
      this.#look();
    }
  }

  /** Reads the figures. */
  #look() {
    if (!this.#run) return;
    const sample = this.#run.sample();
    const events = this.#run.takeEvents();
    this.history.add(sample);
    this.sample = sample;
    if (events.length > 0) {
      this.events = [...events.toReversed(), ...this.events].slice(0, MOST_EVENTS);
      // The start itself is not announced.
      if (sample.epoch > 0 && sample.at > 500e6) announce(events.map((event) => eventText(event, sample.ttl_ns)).join(" "));
    }
    this.onLook();
  }

  #stop() {
    cancelAnimationFrame(this.#frame);
  }

  /** Ends the run after an error of the core: the page makes no change that is invalid. */
  #break(error: unknown) {
    this.#isBroken = true;
    this.#show(error);
  }

  #show(error: unknown) {
    this.#stop();
    this.failure = messageOf(error).replace(/\.?$/, ".");
    this.phase = "failed";
  }
}

/** Puts the view into the page, ready to play. */
export async function openMachines(target: HTMLElement) {
  const machines = new Machines();
  mount(MachinesView, { target, props: { machines } });
  await machines.restart();
  return machines;
}
