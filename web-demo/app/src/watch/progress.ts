// The chart below the three runs: how many requests each has answered, over virtual time. The first line to
// reach the top has won.
import type { Colours } from "./dots.ts";

/** The history keeps a point per this many virtual ms. */
const STEP_MS = 100;
/** The time axis is at least this long, in virtual ms. */
const LEAST_MS = 30_000;

/** The name of the value axis. */
const VALUES = "Requests answered";

/** How many requests one run has answered, over time. */
export class History {
  times: number[] = [];
  counts: number[] = [];

  add(time: number, count: number) {
    if (time < (this.times.at(-1) ?? 0)) this.clear();
    const isSoon = time - (this.times.at(-2) ?? Number.NEGATIVE_INFINITY) < STEP_MS;
    if (isSoon) {
      this.times.pop();
      this.counts.pop();
    }
    this.times.push(time);
    this.counts.push(count);
  }

  clear() {
    this.times = [];
    this.counts = [];
  }
}

export interface Line {
  history: History;
  colour: string;
  name: string;
  isFinished: boolean;
}

/** Draws the lines into a canvas of this size in CSS pixels. */
export function drawProgress(canvas: HTMLCanvasElement, width: number, height: number, lines: readonly Line[], most: number, colours: Colours) {
  const context = canvas.getContext("2d");
  if (!context) return;
  const ratio = devicePixelRatio;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const [left, right, top, bottom] = [34, width - 8, 14, height - 20];
  const last = Math.max(LEAST_MS, ...lines.map(({ history }) => history.times.at(-1) ?? 0));
  const xOf = (time: number) => left + ((right - left) * time) / last;
  const yOf = (count: number) => bottom - ((bottom - top) * count) / most;
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colours.muted;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const count of [0, most / 2, most]) {
    context.fillText(String(count), left - 6, yOf(count));
    context.beginPath();
    context.moveTo(left, Math.round(yOf(count)) + 0.5);
    context.lineTo(right, Math.round(yOf(count)) + 0.5);
    context.stroke();
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  context.fillText(VALUES, left, top - 4);
  const step = last <= 60_000 ? 10_000 : 10_000 * Math.ceil(last / 100_000);
  for (let time = 0; time <= last; time += step) {
    context.textAlign = time === 0 ? "left" : time > last - step / 4 ? "right" : "center";
    context.fillText(`${time / 1000} s`, xOf(time), height - 5);
  }
  context.lineWidth = 2.5;
  context.lineJoin = "round";
  for (const { history, colour, isFinished } of lines) {
    context.strokeStyle = context.fillStyle = colour;
    context.beginPath();
    history.times.forEach((time, index) => context.lineTo(xOf(time), yOf(history.counts[index] ?? 0)));
    context.stroke();
    if (!isFinished) continue;
    context.beginPath();
    context.arc(xOf(history.times.at(-1) ?? 0), yOf(most), 4.5, 0, 2 * Math.PI);
    context.fill();
  }
}
