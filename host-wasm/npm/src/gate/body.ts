/**
 * The body of an answer, which holds the slot of its call for as long as the provider works on it.
 *
 * A provider counts a stream as a call until its last piece is sent, so the slot is held until then and not
 * until the head: calls that stream would otherwise look finished after their first token, and far too many
 * would go out. What holds the slot is the provider, never the reader. A body is read ahead of its reader,
 * and most have ended before anybody looks at them. One that is longer waits for its reader, and gives its
 * slot back when that has taken nothing for a while.
 *
 * ```text
 * provider --pump--> pieces, at most READ_AHEAD bytes and a piece --pull--> reader
 * ```
 */

import { copyOf, withHeadOf } from "../response.js";

/** How much of a body is read before anybody takes it, in bytes. */
const READ_AHEAD = 256 * 1_024;

/**
 * How the slot of a body ended: its body was read or came to its end, was given up, broke, or was left
 * unread.
 */
export type BodyEnd = "complete" | "cancelled" | "broken" | "unread";

/** Who hears of a body. */
export interface BodyWatcher {
  /** Once: the slot is free. `isProviderTurn` says of a broken body that the provider had to send the next piece. */
  ended(how: BodyEnd, error: unknown, isProviderTurn: boolean): void;
  /** The body begins to wait for its reader, or goes on: while it waits, it holds a slot for nothing. */
  waits(isWaiting: boolean): void;
}

type Piece = Uint8Array<ArrayBuffer>;

/** Bodies that nobody can read any more: they are given up, and so are their connections. */
const forgottenBodies =
  typeof FinalizationRegistry === "undefined"
    ? undefined
    : new FinalizationRegistry<() => Promise<void>>((cancel) => void cancel().catch(() => {}));

/**
 * Pieces between a provider and a reader. It knows nothing of the stream that is handed out, which may so be
 * forgotten.
 */
class ReadAhead {
  readonly #reader: ReadableStreamDefaultReader<Piece>;
  readonly #watcher: BodyWatcher;
  readonly #idleMs: number;
  readonly #pieces: Piece[] = [];
  #bytes = 0;
  /** Set once no piece follows. */
  #last: { readonly error?: unknown; readonly isBroken: boolean } | undefined;
  /** The reader waits for a piece. */
  #onPiece: (() => void) | undefined;
  /** The pump waits for room. */
  #onRoom: (() => void) | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isHeld = true;

  constructor(reader: ReadableStreamDefaultReader<Piece>, watcher: BodyWatcher, idleMs: number) {
    this.#reader = reader;
    this.#watcher = watcher;
    this.#idleMs = idleMs;
    void this.#pump();
    // It may end or break while the pump waits.
    reader.closed.catch((error: unknown) => this.#broke(error));
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  async #pump(): Promise<void> {
    try {
      for (;;) {
        const { done, value } = await this.#reader.read();
        if (done) break;
        this.#pieces.push(value);
        this.#bytes += value.byteLength;
        this.#onPiece?.();
        while (this.#bytes >= READ_AHEAD && this.#last === undefined) await this.#room();
      }
      this.#last ??= { isBroken: false };
      this.#end("complete");
    } catch (error) {
      this.#broke(error);
    }
    this.#onPiece?.();
  }

  #room(): Promise<void> {
    return new Promise((resolve) => {
      const isFirst = this.#isHeld;
      if (isFirst) {
        this.#watcher.waits(true);
        this.#timer = setTimeout(() => this.#end("unread"), Math.min(this.#idleMs, LONGEST_DELAY_MS));
        // A body that nobody reads keeps no process alive.
        (this.#timer as { unref?: () => void }).unref?.();
      }
      this.#onRoom = () => {
        this.#onRoom = undefined;
        clearTimeout(this.#timer);
        if (isFirst && this.#isHeld) this.#watcher.waits(false);
        resolve();
      };
    });
  }

  #broke(error: unknown): void {
    this.#last ??= { error, isBroken: true };
    this.#end("broken", error);
    this.#onRoom?.();
    this.#onPiece?.();
  }

  #end(how: BodyEnd, error?: unknown): void {
    if (!this.#isHeld) return;
    const isWaiting = this.#onRoom !== undefined;
    this.#isHeld = false;
    clearTimeout(this.#timer);
    if (isWaiting) this.#watcher.waits(false);
    this.#watcher.ended(how, error, !isWaiting);
  }

  /**
   * The next piece, in order; undefined at the end. Throws what the body broke with, behind its last piece.
   */
  async take(): Promise<Piece | undefined> {
    while (this.#pieces.length === 0 && this.#last === undefined) {
      await new Promise<void>((resolve) => (this.#onPiece = resolve));
      this.#onPiece = undefined;
    }
    const piece = this.#pieces.shift();
    if (piece === undefined) {
      if (this.#last?.isBroken) throw this.#last.error;
      return undefined;
    }
    this.#bytes -= piece.byteLength;
    this.#onRoom?.();
    return piece;
  }

  readonly cancel = (reason?: unknown): Promise<void> => {
    this.#last ??= { isBroken: false };
    this.#pieces.length = 0;
    this.#end("cancelled");
    this.#onRoom?.();
    return this.#reader.cancel(reason);
  };
}

/** The longest delay that a timer holds. */
const LONGEST_DELAY_MS = 2 ** 31 - 1;

/**
 * The same answer, whose body says once how it ended, and holds its slot until then. `idleMs` bounds how long
 * it waits for its reader.
 */
export function holdBody(answer: Response, idleMs: number, watcher: BodyWatcher): Response {
  const { body } = answer;
  if (body === null) {
    watcher.ended("complete", undefined, false);
    return answer;
  }
  let unregister: (() => void) | undefined;
  const reader = body.getReader();
  const ahead = new ReadAhead(
    reader,
    {
      waits: (isWaiting) => watcher.waits(isWaiting),
      ended: (how, error, isProviderTurn) => {
        // Whoever left it unread may still read it, and its connection is still there to be given up.
        if (how !== "unread") unregister?.();
        watcher.ended(how, error, isProviderTurn);
      },
    },
    idleMs,
  );
  const held = new ReadableStream<Piece>(
    {
      async pull(controller) {
        const piece = await ahead.take();
        if (piece === undefined) controller.close();
        else controller.enqueue(piece);
      },
      cancel: ahead.cancel,
    },
    // Nothing is taken before it is asked for.
    { highWaterMark: 0 },
  );
  try {
    const copy = withHeadOf(copyOf(answer, held), answer);
    if (ahead.isHeld) {
      // The stream and not the answer: whoever reads it may have let go of that.
      forgottenBodies?.register(held, ahead.cancel, ahead);
      unregister = () => void forgottenBodies?.unregister(ahead);
    }
    return copy;
  } catch (error) {
    // The caller hears of it as what is thrown.
    void reader.cancel(error).catch(() => {});
    throw error;
  }
}
