/**
 * The body of a response, which holds the slot of its call while the provider works on it.
 *
 * A provider counts a stream as a call until its last chunk is sent. So the slot is held until then and not
 * only until the head arrives. Otherwise streaming calls would appear finished after their first token, and
 * too many calls would start. The provider holds the slot, not the reader: a body is read ahead of its
 * reader, and most bodies are complete before they are read. A longer body waits for its reader, and releases
 * its slot if the reader takes nothing for `idleMs`.
 *
 * ```text
 * provider --pump--> pieces, at most READ_AHEAD bytes and a piece --pull--> reader
 * ```
 */

import { LONGEST_DELAY_MS } from "./own_signal.js";
import { copyOf, withHeadOf } from "../response.js";

/** How much of a body is read ahead of its reader, in bytes. */
const READ_AHEAD = 256 * 1_024;

/** Why a body released its slot: it is complete, it was cancelled, it failed, or it was not read. */
export type BodyEnd = "complete" | "cancelled" | "broken" | "unread";

/** Callbacks of a body. */
export interface BodyWatcher {
  /**
   * Called once, when the slot is released. `isProviderTurn`: for a broken body, whether the provider
   * had to send the next chunk.
   */
  ended(how: BodyEnd, error: unknown, isProviderTurn: boolean): void;
  /**
   * Called when the body starts or stops waiting for its reader. While it waits, it holds a slot that the
   * provider does not need.
   */
  waits(isWaiting: boolean): void;
  /** Called once, when no chunk can arrive any more. That is later than the release of the slot of an unread body. */
  over(): void;
}

type Piece = Uint8Array<ArrayBuffer>;

/** Bodies that are no longer referenced. They are cancelled, which closes their connections. */
const forgottenBodies =
  typeof FinalizationRegistry === "undefined"
    ? undefined
    : new FinalizationRegistry<() => Promise<void>>((cancel) => void cancel().catch(() => {}));

/**
 * Buffers chunks between a provider and a reader. It does not reference the returned stream, so that the
 * garbage collector can free the stream.
 */
class ReadAhead {
  readonly #reader: ReadableStreamDefaultReader<Piece>;
  readonly #watcher: BodyWatcher;
  readonly #idleMs: number;
  readonly #pieces: Piece[] = [];
  #bytes = 0;
  /** Set once no chunk follows. */
  #last: { readonly error?: unknown; readonly isBroken: boolean } | undefined;
  /** Wakes the reader, which waits for a chunk. */
  #onPiece: (() => void) | undefined;
  /** Wakes the pump, which waits for room in the buffer. */
  #onRoom: (() => void) | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isHeld = true;

  constructor(reader: ReadableStreamDefaultReader<Piece>, watcher: BodyWatcher, idleMs: number) {
    this.#reader = reader;
    this.#watcher = watcher;
    this.#idleMs = idleMs;
    void this.#pump();
    // The body can fail while the pump waits.
    reader.closed.catch((error: unknown) => this.#fail(error));
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
      this.#finish({ isBroken: false });
      this.#end("complete");
    } catch (error) {
      this.#fail(error);
    }
    this.#onPiece?.();
  }

  #room(): Promise<void> {
    return new Promise((resolve) => {
      const isFirst = this.#isHeld;
      if (isFirst) {
        this.#watcher.waits(true);
        this.#timer = setTimeout(() => this.#end("unread"), Math.min(this.#idleMs, LONGEST_DELAY_MS));
        // The timer must not keep the process alive.
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

  #finish(last: { readonly error?: unknown; readonly isBroken: boolean }): void {
    if (this.#last !== undefined) return;
    this.#last = last;
    this.#watcher.over();
  }

  #fail(error: unknown): void {
    this.#finish({ error, isBroken: true });
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

  /** Returns the next chunk; undefined at the end. Throws the error of a broken body after its last chunk. */
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
    this.#finish({ isBroken: false });
    this.#pieces.length = 0;
    this.#end("cancelled");
    this.#onRoom?.();
    return this.#reader.cancel(reason);
  };
}

/**
 * Returns the same response with a body that holds its slot and calls `watcher.ended` once. `idleMs` bounds
 * how long the body waits for its reader.
 */
export function holdBody(answer: Response, idleMs: number, watcher: BodyWatcher): Response {
  const { body } = answer;
  if (body === null) {
    watcher.ended("complete", undefined, false);
    watcher.over();
    return answer;
  }
  let unregister: (() => void) | undefined;
  const reader = body.getReader();
  const ahead = new ReadAhead(
    reader,
    {
      waits: (isWaiting) => watcher.waits(isWaiting),
      over: () => watcher.over(),
      ended: (how, error, isProviderTurn) => {
        // An unread body can still be read, and its connection can still be cancelled.
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
    // The stream takes no chunk before its reader requests one.
    { highWaterMark: 0 },
  );
  try {
    const copy = withHeadOf(copyOf(answer, held), answer);
    if (ahead.isHeld) {
      // The stream is registered, not the response: a reader may keep only the stream.
      forgottenBodies?.register(held, ahead.cancel, ahead);
      unregister = () => void forgottenBodies?.unregister(ahead);
    }
    return copy;
  } catch (error) {
    // The error is thrown to the caller.
    void reader.cancel(error).catch(() => {});
    throw error;
  }
}
