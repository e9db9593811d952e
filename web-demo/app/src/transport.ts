// Play, pause, one decision, seek, speed, reset and seed, by pointer and by keyboard.
import { buttonById, byId, inputById, part, say, takeNumber } from "./dom.ts";
import { span, times as speedText } from "./format.ts";
import type { Phase, Simulation } from "./simulation.ts";

const PHASES: Record<Phase, string> = { loading: "Loading", ready: "Ready", playing: "Running", paused: "Paused", finished: "Finished", failed: "Stopped" };
/** How far an arrow key seeks, as a share of the run so far, and at least, in virtual ms. */
const KEY_SHARE = 0.02;
const KEY_LEAST_MS = 10;

const play = buttonById("play");
const step = buttonById("step");
const reset = buttonById("reset");
const seek = inputById("seek");
const speed = inputById("speed");
const seed = inputById("seed");
/** On a narrow screen: shows the speed and the seed. */
const more = buttonById("more");

export class Transport {
  #simulation;
  /** Where a person wants to be, while the worker is still under way to somewhere else. */
  #wanted: number | undefined;
  #isSeeking = false;
  /** Whether a person holds the slider; then frames do not move it. */
  #isHeld = false;
  /** Whether the run went on when the slider was taken. */
  #wasPlaying = false;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    simulation.on("phase", (phase) => this.#enter(phase));
    simulation.on("frame", (frame) => this.#show(frame));
    simulation.on("seeking", (share) => this.#sought(share));
    simulation.on("loaded", () => this.#loaded());
    simulation.on("pending", (count) => byId("phase").toggleAttribute("data-pending", count > 0));
    simulation.on("speed", (value) => this.#showSpeed(value));
    simulation.on("refused", () => (seed.value = String(simulation.seed)));
    simulation.on("branched", (at) => this.#branch(`A new branch begins at ${span(at)}: what came after it is gone.`));
    play.addEventListener("click", () => this.toggle());
    step.addEventListener("click", () => simulation.step());
    reset.addEventListener("click", () => void simulation.reset());
    more.addEventListener("click", () => more.setAttribute("aria-expanded", String(more.ariaExpanded !== "true")));
    speed.addEventListener("input", () => simulation.setSpeed(speed.valueAsNumber));
    seed.addEventListener("change", () => takeNumber(seed, simulation.seed, (value) => void simulation.setSeed(value)));
    seek.addEventListener("input", () => this.#drag());
    // A slider that is let go where it was taken tells no change.
    for (const end of ["change", "pointerup", "pointercancel", "blur"]) seek.addEventListener(end, () => this.#release());
    seek.addEventListener("keydown", (event) => this.#seekByKey(event));
    document.addEventListener("keydown", (event) => this.#onKey(event));
  }

  toggle() {
    if (this.#simulation.phase === "playing") this.#simulation.pause();
    else this.#simulation.play();
  }

  #loaded() {
    for (const control of [play, step, reset, seek, speed, seed]) control.disabled = false;
    seed.value = String(this.#simulation.seed);
    this.#wanted = undefined;
    this.#isSeeking = false;
    // No picture of these runs has been drawn yet.
    delete byId("phase").dataset.shown;
    this.#branch("");
    this.#showTime();
  }

  #enter(phase: Phase) {
    const pill = byId("phase");
    say(pill, PHASES[phase]);
    pill.dataset.phase = phase;
    say(byId("play-label"), phase === "playing" ? "Pause" : phase === "finished" ? "Play again" : "Play");
    play.dataset.playing = String(phase === "playing");
    step.disabled = phase === "finished" || phase === "failed" || phase === "loading";
  }

  #show(frame: import("./messages.ts").Frame) {
    byId("phase").dataset.shown = frame.playing ? "moving" : "still";
    this.#showTime();
    const lag = byId("lag");
    const isBehind = frame.reached !== undefined && frame.playing;
    if (lag.hidden === isBehind) lag.hidden = !isBehind;
    if (frame.reached !== undefined) say(lag, `This machine reaches ${speedText(frame.reached)} on this scenario.`);
  }

  #showTime() {
    const { at, extent } = this.#simulation;
    const most = String(Math.max(extent, 1));
    if (seek.max !== most) seek.max = most;
    if (!this.#isHeld && !this.#isSeeking) seek.value = String(at);
    this.#sayTime(this.#isHeld ? seek.valueAsNumber : at);
    if (at < extent && !this.#isSeeking && this.#simulation.phase === "paused") {
      this.#branch(`You are ${span(extent - at)} before the end of what has run. Play takes the same decisions again; a change starts a new branch.`);
    } else if (at >= extent && byId("branch").textContent?.startsWith("You are")) {
      this.#branch("");
    }
  }

  #sayTime(at: number) {
    const { extent } = this.#simulation;
    const words = extent > at + 1 ? `${span(at)} / ${span(extent)}` : span(at);
    say(byId("seek-value"), words);
    seek.setAttribute("aria-valuetext", `${span(at)} of ${span(extent)}`);
  }

  #branch(text: string) {
    const note = byId("branch");
    note.hidden = text === "";
    say(note, text);
  }

  #drag() {
    if (!this.#isHeld) this.#wasPlaying = this.#simulation.phase === "playing";
    this.#isHeld = true;
    this.#simulation.pause();
    this.#sayTime(seek.valueAsNumber);
    this.#seekTo(seek.valueAsNumber);
  }

  #release() {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    if (this.#wasPlaying) this.#simulation.play();
    this.#wasPlaying = false;
  }

  /** One seek at a time; the last one wanted wins. */
  #seekTo(to: number) {
    this.#wanted = to;
    if (this.#isSeeking) return;
    this.#isSeeking = true;
    this.#wanted = undefined;
    this.#simulation.seek(to);
  }

  #sought(share: number | undefined) {
    const track = part(document, ".seek", HTMLElement);
    track.toggleAttribute("data-seeking", share !== undefined);
    track.style.setProperty("--sought", String(share ?? 1));
    if (share !== undefined) {
      this.#isSeeking = true;
      return;
    }
    this.#isSeeking = false;
    const wanted = this.#wanted;
    if (wanted !== undefined) this.#seekTo(wanted);
  }

  /** @returns whether it was one */
  #seekByKey(event: KeyboardEvent): boolean {
    const { at, extent } = this.#simulation;
    const stride = Math.max(extent * KEY_SHARE, KEY_LEAST_MS);
    const from = this.#wanted ?? at;
    const to = {
      ArrowLeft: from - stride,
      ArrowDown: from - stride,
      ArrowRight: from + stride,
      ArrowUp: from + stride,
      PageDown: from - 5 * stride,
      PageUp: from + 5 * stride,
      Home: 0,
      End: extent,
    }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return false;
    event.preventDefault();
    this.#simulation.pause();
    this.#seekTo(Math.min(Math.max(to, 0), extent));
    return true;
  }

  /** Keys that mean something anywhere but in a control that uses them itself. */
  #onKey(event: KeyboardEvent) {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || play.disabled || ["watch", "machines", "lessons"].includes(document.body.dataset.view ?? "")) return;
    const { target } = event;
    const on = (selector: string) => target instanceof Element && target.closest(selector) !== null;
    if (on("input:not([type=range]), textarea, select, [role=listbox], [role=combobox]")) return;
    if (event.key === " " && !event.repeat && !on("button, summary, a, input")) {
      event.preventDefault();
      this.toggle();
    } else if (event.key === "." && !event.repeat) {
      event.preventDefault();
      this.#simulation.step();
    } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && !on("[role=tab], input")) {
      this.#seekByKey(event);
    }
  }

  /** @param value a power of ten */
  #showSpeed(value: number) {
    const text = speedText(10 ** value);
    speed.value = String(value);
    say(byId("speed-value"), text);
    speed.setAttribute("aria-valuetext", `${text} real time`);
  }
}
