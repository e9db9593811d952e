// Where the nodes of the pipeline's graph lie: by depth from left to right, or from top to bottom where there
// is no room.
import type { LayoutColumn } from "../pkg/tidegate_playground.js";

export type Place = { left: number, top: number };
export type Drawing = { places: Place[], edges: string[], width: number, height: number, isUpright: boolean };

export const NODE_WIDTH = 196;
export const NODE_HEIGHT = 120;
/** Between two layers, where the edges run: as much as there is room for. Upright, it is the least. */
const LEAST_LAYER_GAP = 28;
const MOST_LAYER_GAP = 64;
/** Between two nodes of one layer. */
const NODE_GAP = 14;
/** A layer with more nodes than this is folded into several rows beside each other. */
const MOST_IN_LAYER = 5;
/** Narrower than this, layers lie below each other. */
const UPRIGHT_BELOW = 620;

/** How far each column is from the seeds: one more than the farthest it needs. */
export function depths(columns: readonly LayoutColumn[]) {
  const found: number[] = [];
  // In the plan's order every column comes after those it needs.
  for (const { after } of columns) found.push(after.reduce((most, index) => Math.max(most, (found[index] ?? 0) + 1), 0));
  return found;
}

/** The columns of each depth, ordered so that few edges cross: each beside the middle of what it needs. */
export function layers(columns: readonly LayoutColumn[]): number[][] {
  const found: number[][] = [];
  depths(columns).forEach((depth, column) => (found[depth] ??= []).push(column));
  const order: number[] = [];
  for (const layer of found) {
    const middle = (column: number) => {
      const { after = [] } = columns[column] ?? {};
      return after.length > 0 ? after.reduce((sum, index) => sum + (order[index] ?? 0), 0) / after.length : column;
    };
    layer.sort((one, other) => middle(one) - middle(other) || one - other);
    layer.forEach((column, index) => (order[column] = (index + 0.5) / layer.length));
  }
  return found;
}

/** A layer cut into ranks of at most `most`, as even as can be. */
function ranks(layer: number[], most: number) {
  const count = Math.ceil(layer.length / most);
  const size = Math.ceil(layer.length / count);
  return Array.from({ length: count }, (_, rank) => layer.slice(rank * size, (rank + 1) * size));
}

/** The gap between layers that fills the room, within bounds. */
function gapFor(layered: number[][][], room: number) {
  const ranked = layered.flat().length;
  const inside = (ranked - layered.length) * NODE_GAP;
  const gap = Math.floor((room - ranked * NODE_WIDTH - inside) / Math.max(1, layered.length - 1));
  return Math.min(MOST_LAYER_GAP, Math.max(LEAST_LAYER_GAP, gap));
}

/** Lays the graph out in `room` pixels of width; it may come out wider, and is scrolled then. */
export function layOut(columns: readonly LayoutColumn[], room: number): Drawing {
  const isUpright = room < UPRIGHT_BELOW;
  const abreast = Math.max(1, Math.floor((room + NODE_GAP) / (NODE_WIDTH + NODE_GAP)));
  const [length, breadth] = isUpright ? [NODE_HEIGHT, NODE_WIDTH] : [NODE_WIDTH, NODE_HEIGHT];
  const layered = layers(columns).map((layer) => ranks(layer, isUpright ? abreast : MOST_IN_LAYER));
  const most = Math.max(1, ...layered.flat().map((rank) => rank.length));
  const across = most * (breadth + NODE_GAP) - NODE_GAP;
  const layerGap = isUpright ? LEAST_LAYER_GAP : gapFor(layered, room);
  const places: Place[] = [];
  let along = 0;
  for (const ranked of layered) {
    for (const rank of ranked) {
      const start = (across - rank.length * (breadth + NODE_GAP) + NODE_GAP) / 2;
      rank.forEach((column, index) => {
        const side = Math.round(start + index * (breadth + NODE_GAP));
        places[column] = isUpright ? { left: side, top: along } : { left: along, top: side };
      });
      along += length + NODE_GAP;
    }
    along += layerGap - NODE_GAP;
  }
  along -= layerGap;
  const edges = columns.flatMap(({ after }, column) => after.map((from) => edge(places[from], places[column], isUpright)));
  const [width, height] = isUpright ? [across, along] : [along, across];
  return { places, edges, width, height, isUpright };
}

/** A curve from the far side of one node to the near side of another. */
function edge(from: Place | undefined, to: Place | undefined, isUpright: boolean) {
  if (!from || !to) return "";
  if (isUpright) {
    const [x1, y1, x2, y2] = [from.left + NODE_WIDTH / 2, from.top + NODE_HEIGHT, to.left + NODE_WIDTH / 2, to.top];
    const bend = Math.max(12, (y2 - y1) / 2);
    return `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
  }
  const [x1, y1, x2, y2] = [from.left + NODE_WIDTH, from.top + NODE_HEIGHT / 2, to.left, to.top + NODE_HEIGHT / 2];
  const bend = Math.max(16, (x2 - x1) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
