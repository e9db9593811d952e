// The five lessons: what is set up, what to look at, what to do, and how the page knows that it was done.
import type { Choice } from "../compare/sides.ts";
import type { Intervention } from "../pkg/tidegate_playground.js";
import type { Simulation } from "../simulation.ts";

/** What has happened since the step began. */
export interface Since {
  simulation: Simulation;
  changes: Intervention[];
  /** The virtual ms at which it began. */
  from: number;
  /** The most that any group has owed. */
  most: number;
  /** Whether a person has asked why. */
  asked: boolean;
}

export interface Step {
  /** What to see. */
  look: string;
  /** What to do. */
  act: string;
  /** What to do it with, as a selector. */
  target: string;
  done: (since: Since) => boolean;
}

export interface Lesson {
  title: string;
  about: string;
  scenario: string;
  /** Of a comparison. */
  sides?: [Partial<Choice>, Partial<Choice>];
  /** A power of ten. */
  speed: number;
  steps: readonly Step[];
}

const providers = (simulation: Simulation, side: number = 0) => simulation.frame?.sides[side]?.sample.providers ?? [];
const refusals = (simulation: Simulation, side: number = 0) => providers(simulation, side).reduce((sum, one) => sum + one.refused, 0);
const hasRun = ({ simulation, from }: Since, ms: number) => simulation.at >= from + ms || simulation.phase === "finished";

const STORM: Lesson = {
  title: "A 429 storm without a limit",
  about: "What happens when a caller sends as much as it can, and why a limit has to adapt.",
  scenario: "storm",
  speed: 0,
  steps: [
    {
      look: "This provider can take 8 calls at once: the dashed line. The caller does not know that and keeps 40 out: the dark line.",
      act: "Press Play.",
      target: "#play",
      done: ({ simulation }) => refusals(simulation) >= 20,
    },
    {
      look: "Every red tick is a call that was answered 429, too many requests. It took a turn and brought nothing; it has to be sent again.",
      act: "Let the limit adapt: under Settings, set Limit to AIMD.",
      target: '#controls fieldset[data-provider] select',
      done: ({ changes }) => changes.some((one) => one.set === "algorithm" && one.algorithm.name === "aimd"),
    },
    {
      look: "A refusal now cuts the limit, successes raise it by one. The dark line comes down to the dashed one, and the red ticks grow rare.",
      act: "Watch for a few seconds of virtual time.",
      target: ".provider",
      done: (since) => hasRun(since, 4_000),
    },
  ],
};

const TIDE: Lesson = {
  title: "AIMD finds the tide",
  about: "The limit follows what the provider can take, though nobody says what that is.",
  scenario: "tide",
  speed: 0.3,
  steps: [
    {
      look: "The provider can take 12 calls, the limit starts at 32. One refusal cuts it to three quarters, once per wave; 25 successes raise it by one.",
      act: "Press Play, and watch the dark line find the dashed one.",
      target: "#play",
      done: (since) => hasRun(since, 3_000) && refusals(since.simulation) > 0,
    },
    {
      look: "The slider at the right of the chart is the tide: what the provider can take.",
      act: "Drag it down, to 6 or less.",
      target: "input.capacity",
      done: ({ changes }) => changes.some((one) => one.set === "capacity" && typeof one.slots === "number" && one.slots <= 6),
    },
    {
      look: "The limit goes out with the tide: a cut, a short cooldown (shaded), and it settles. No storm.",
      act: "Now drag the tide up again, to 10 or more, or give it back to the scenario.",
      target: "input.capacity",
      done: ({ changes }) => changes.some((one) => one.set === "capacity" && (typeof one.slots !== "number" || one.slots >= 10)),
    },
    {
      look: "Successes raise the limit a step at a time. Meanwhile calls wait for their turn, and each can say why.",
      act: "Click on a figure that waits, or on a bar of idle time, and read why.",
      target: ".explain",
      done: ({ asked }) => asked,
    },
  ],
};

const RAMP: Lesson = {
  title: "A ramp against a cold server",
  about: "A server that has just started opens one slot after another. Two ways to meet it, on the same seed.",
  scenario: "cold-storm",
  sides: [{ scenario: "cold-storm" }, { scenario: "cold-ramp" }],
  speed: 0.3,
  steps: [
    {
      look: "Both servers warm up over ten seconds. Left begins at its full limit of 24; right climbs from 1 to 24 in ten seconds.",
      act: "Press Play.",
      target: "#play",
      done: (since) => hasRun(since, 4_000),
    },
    {
      look: "Left runs into refusals and cooldowns, right into none: see the row 429s.",
      act: "Let both come to their end; the speed may be higher.",
      target: "#speed",
      done: ({ simulation }) => simulation.phase === "finished",
    },
    {
      look: "The sentence above the table says which was better. A ramp costs one setting.",
      act: "Give the left side a Ramp of 10 s as well, and press Play.",
      target: '#compare fieldset[data-side="0"] select',
      done: (since) => since.simulation.choices[0].ramp === 10_000 && since.simulation.phase !== "ready" && since.simulation.at >= 3_000,
    },
  ],
};

const BORROW: Lesson = {
  title: "Borrow and repay",
  about: "Columns share the workers fairly. One that has nothing to do lends its part, and gets it back.",
  scenario: "borrow-and-repay",
  speed: 0,
  steps: [
    {
      look: "Two groups of equal weight share the workers. One of them has nothing to do at first, so the other may take more than its share: as a debt.",
      act: "Press Play, and watch the bars per group grow past the share.",
      target: "#play",
      done: ({ most }) => most > 0,
    },
    {
      look: "When the other group wakes up, no work is taken away: each worker that ends repays a part of the debt, until both have their share.",
      act: "Watch until the debt is repaid.",
      target: ".queues",
      done: ({ simulation, most }) => (most > 0 && (simulation.frame?.sides[0]?.sample.groups ?? []).every(({ debt }) => debt === 0)) || simulation.phase === "finished",
    },
    {
      look: "Lending is a policy. The strict one lends only while nobody else could start.",
      act: "Under Settings, set the Policy to Strictly fair, or give one group more weight.",
      target: "#controls fieldset select",
      done: ({ changes }) => changes.some(({ set }) => set === "policy" || set === "weight"),
    },
  ],
};

const HARBOURS: Lesson = {
  title: "A cooled-down provider must not block its neighbour",
  about: "One provider pushes back. Should the workers that wait for it keep the other one waiting too?",
  scenario: "cooldown/both",
  sides: [{}, { advisory: "no", yields: "no" }],
  speed: -0.3,
  steps: [
    {
      look: "Every row needs a call to a and one to b, and there are 8 workers. Provider a refuses at once and asks for a pause of two seconds (shaded); b is open all the time.",
      act: "Press Play, and compare the charts of b.",
      target: "#play",
      done: (since) => hasRun(since, 1_200),
    },
    {
      look: "Left, a worker that waits for a gives its slot back, and work for b passes it: b is always full. Right, all 8 workers sit and wait for a, and b stands empty.",
      act: "Let both run to their end.",
      target: "#play",
      done: ({ simulation }) => simulation.phase === "finished",
    },
    {
      look: "The table says what the blocked neighbour cost. Both sides made the very same calls.",
      act: "Read the sentence above the table. That was the tour: everything is yours to play with.",
      target: "#verdict",
      done: () => true,
    },
  ],
};

export const LESSONS = [STORM, TIDE, RAMP, BORROW, HARBOURS];
