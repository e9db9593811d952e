/**
 * The types of the platform, as the libraries of a program declare them: those of the DOM, of Node, of Deno
 * or of an edge runtime. A program that has none of them can still be compiled against this package.
 */

/** An instance of a global class, where it is declared. */
type InstanceOf<Name extends string, Otherwise> = typeof globalThis extends Readonly<Record<Name, { readonly prototype: infer T }>>
  ? T
  : Otherwise;

/** What this package needs of a signal. */
interface SomeSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: "abort", listener: () => void, options?: { readonly once?: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** What a program can do with an answer for which it has no library. */
interface SomeResponse {
  readonly status: number;
  readonly ok: boolean;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
  json(): Promise<unknown>;
}

/** The platform's `AbortSignal`. */
export type Signal = InstanceOf<"AbortSignal", SomeSignal>;

/** The platform's `Response`. */
export type FetchResponse = InstanceOf<"Response", SomeResponse>;

/** What the platform's `fetch` fetches: an address or a `Request`. */
export type FetchInput = typeof globalThis extends { readonly fetch: (input: infer Input, init?: never) => unknown } ? Input : string;

/** What the platform's `fetch` takes beside it. */
export type FetchInit = typeof globalThis extends { readonly fetch: (input: never, init?: infer Init) => unknown }
  ? NonNullable<Init>
  : {
      readonly method?: string;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: string;
      readonly signal?: Signal | null;
    };
