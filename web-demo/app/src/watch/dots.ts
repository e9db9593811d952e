// Draws the requests of one run as dots: at the left those that wait, at the right the provider with a place
// for each call it can take. A call that is accepted moves into a place and leaves at the right once it is
// answered; one that is refused bounces back in red.
import { IN_WORK } from "./contest.ts";
import type { Request, Requests } from "./requests.ts";

/** How long movements take, in virtual ms: into a place, off to the right, and to the provider and back. */
const MOVE_MS = 180;
const LEAVE_MS = 420;
const BOUNCE_MS = 420;
/** How long a request stays red after a refusal. */
const RED_MS = 700;

interface Point {
  x: number;
  y: number;
}

export interface Colours {
  ink: string;
  muted: string;
  line: string;
  sunk: string;
  refused: string;
  own: string;
}

const ease = (share: number) => 1 - (1 - Math.min(Math.max(share, 0), 1)) ** 3;
const between = (from: Point, to: Point, share: number) => ({ x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share });

export class Dots {
  #canvas;
  #context;
  #width = 0;
  #height = 0;
  colours: Colours;

  constructor(canvas: HTMLCanvasElement, colours: Colours) {
    this.#canvas = canvas;
    this.colours = colours;
    const context = canvas.getContext("2d");
    if (!context) throw new Error("the browser draws no canvas");
    this.#context = context;
  }

  /** The size of the canvas in CSS pixels. */
  resize(width: number, height: number) {
    const ratio = devicePixelRatio;
    [this.#width, this.#height] = [width, height];
    [this.#canvas.width, this.#canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    this.#context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** The lane of the request that is drawn nearest to a point, within reach of a finger. */
  laneAt(requests: Requests, now: number, capacity: number, point: Point) {
    let [nearest, least] = [-1, 22];
    requests.lanes.forEach((request, lane) => {
      if (!request) return;
      const { x, y } = this.#positionOf(request, lane, now, capacity);
      const distance = Math.hypot(x - point.x, y - point.y);
      if (distance < least) [nearest, least] = [lane, distance];
    });
    return nearest < 0 ? undefined : nearest;
  }

  /** @param followed the lane whose request is marked */
  draw(requests: Requests, now: number, capacity: number, limit: number, followed: number | undefined) {
    const context = this.#context;
    context.clearRect(0, 0, this.#width, this.#height);
    this.#drawProvider(requests, capacity);
    this.#write(capacity, limit);
    const radius = this.#radius();
    for (const { at, place } of requests.answered) {
      const share = (now - at) / LEAVE_MS;
      if (share >= 1) continue;
      const from = this.#place(place, capacity);
      const { x, y } = between(from, { x: this.#width + radius, y: from.y }, share ** 2);
      context.globalAlpha = 1 - share;
      this.#dot(x, y, radius, this.colours.own);
    }
    context.globalAlpha = 1;
    requests.lanes.forEach((request, lane) => {
      if (!request) return;
      const { x, y } = this.#positionOf(request, lane, now, capacity);
      const isRed = now - request.refusedAt < RED_MS;
      const colour = isRed ? this.colours.refused : request.calledAt === undefined ? this.colours.muted : this.colours.own;
      this.#dot(x, y, radius, colour, request.calledAt === undefined && !isRed);
      if (lane !== followed) return;
      context.strokeStyle = this.colours.ink;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, radius + 4, 0, 2 * Math.PI);
      context.stroke();
    });
  }

  #dot(x: number, y: number, radius: number, colour: string, isHollow = false) {
    const context = this.#context;
    context.beginPath();
    context.arc(x, y, isHollow ? radius - 0.75 : radius, 0, 2 * Math.PI);
    if (isHollow) {
      context.strokeStyle = colour;
      context.lineWidth = 1.5;
      context.stroke();
    } else {
      context.fillStyle = colour;
      context.fill();
    }
  }

  #drawProvider(requests: Requests, capacity: number) {
    const context = this.#context;
    const [left, radius] = [this.#wall(), this.#radius()];
    context.fillStyle = this.colours.sunk;
    context.beginPath();
    context.roundRect(left, 1, this.#width - left - 1, this.#height - 2, 10);
    context.fill();
    const inUse = requests.lanes.reduce((most, request) => Math.max(most, request?.calledAt === undefined ? 0 : request.place + 1), 0);
    for (let place = 0; place < Math.max(capacity, inUse); place += 1) {
      const { x, y } = this.#place(place, capacity);
      context.strokeStyle = place < capacity ? this.colours.muted : this.colours.line;
      context.lineWidth = 1;
      context.beginPath();
      context.arc(x, y, radius + 2.5, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  #positionOf({ calledAt, refusedAt, place }: Request, lane: number, now: number, capacity: number): Point {
    const home = this.#home(lane);
    if (calledAt !== undefined && place >= 0) return between(home, this.#place(place, capacity), ease((now - calledAt) / MOVE_MS));
    const share = (now - refusedAt) / BOUNCE_MS;
    if (share >= 1 || calledAt !== undefined) return home;
    const wall = { x: this.#wall() - this.#radius(), y: home.y + (this.#height / 2 - home.y) * 0.35 };
    return share < 0.35 ? between(home, wall, ease(share / 0.35)) : between(wall, home, ease((share - 0.35) / 0.65));
  }

  /** Says what is to be seen, where there is room for it. */
  #write(capacity: number, limit: number) {
    if (this.#top() === 0) return;
    const context = this.#context;
    context.font = "12.5px system-ui, sans-serif";
    context.fillStyle = this.colours.muted;
    context.textBaseline = "middle";
    context.fillText(`client: limit ${limit}`, 4, 14);
    context.fillText(`provider: can take ${capacity}`, this.#wall() + 12, 14);
  }

  /** How much of the height the words take. */
  #top() {
    return this.#height < 140 ? 0 : 26;
  }

  /** Where the provider begins. */
  #wall() {
    return this.#width * 0.56;
  }

  #radius() {
    return this.#height < 140 ? 4.5 : 6;
  }

  /** Where the request of a lane waits. */
  #home(lane: number): Point {
    const columns = this.#height < 140 ? 8 : 5;
    const rows = IN_WORK / columns;
    const width = this.#wall() * 0.68;
    return { x: 12 + ((lane % columns) * width) / columns, y: this.#top() + ((Math.floor(lane / columns) + 0.5) * (this.#height - this.#top())) / rows };
  }

  /** A place of the provider: in columns, as few as there is room for. */
  #place(place: number, capacity: number): Point {
    const space = 2 * this.#radius() + 9;
    const rows = Math.max(1, Math.min(Math.floor((this.#height - this.#top() - 10) / space), Math.ceil(Math.max(capacity, 1) / 2)));
    const left = this.#wall() + space * 0.8;
    const top = this.#top() + (this.#height - this.#top() - (rows - 1) * space) / 2;
    return { x: left + Math.floor(place / rows) * space, y: top + (place % rows) * space };
  }
}
