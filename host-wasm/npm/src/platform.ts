/**
 * Platform types, as a program's type libraries declare them: those of the DOM, Node, Deno or an edge
 * runtime. A program without any of them still compiles against this package.
 */

/** The instance type of a global class, if it is declared. */
type InstanceOf<Name extends string, Otherwise> = typeof globalThis extends Readonly<Record<Name, { readonly prototype: infer T }>>
  ? T
  : Otherwise;

/** The parts of a signal that this package uses. */
interface SomeSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: "abort", listener: () => void, options?: { readonly once?: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** The response type of a program without a type library for it. */
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

/** The first parameter of the platform's `fetch`: an address or a `Request`. */
export type FetchInput = typeof globalThis extends { readonly fetch: (input: infer Input, init?: never) => unknown } ? Input : string;

/** The second parameter of the platform's `fetch`. */
export type FetchInit = typeof globalThis extends { readonly fetch: (input: never, init?: infer Init) => unknown }
  ? NonNullable<Init>
  : {
      readonly method?: string;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: string;
      readonly signal?: Signal | null;
    };
