/** The limits of a resource: concurrent calls, and rates. The wasm module reads them. */

import type { GateOptions, Limits } from "../wasm/tidegate.js";

export type { AlgorithmSettings, Budget, BudgetDimension, Fixed, GateOptions, Limits, RetryAfterStops, Tide, Vegas } from "../wasm/tidegate.js";

/**
 * Settings of the adaptive limit and of cooldowns. Each has a default. `maxLimit`, the cooldowns and the ramp
 * apply to every algorithm. The others belong to `aimd`, and select it where no algorithm is named.
 */
export type AdaptiveSettings = Pick<Limits, keyof GateOptions & keyof Limits>;

/** The algorithm that sets the limit: a name, for its defaults, or an object with settings. */
export type Algorithm = NonNullable<Limits["algorithm"]>;
