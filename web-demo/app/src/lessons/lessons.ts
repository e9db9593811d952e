// The lessons: what each sets up, what to look at, what to do, and how the page notices that it was done.
import type { Choice } from "../compare/sides.ts";
import type { SharingSample } from "../pkg/tidegate_machines.js";
import type { Intervention } from "../pkg/tidegate_playground.js";
import { sharesOf } from "../machines/texts.ts";
import type { Simulation } from "../simulation.ts";

/** What has happened since the step began. */
export interface Since {
  simulation: Simulation;
  /** The machines that share a limit, as they are now. */
  machines: SharingSample | undefined;
  changes: Intervention[];
  /** The virtual ms at which it began. */
  from: number;
  /** The largest debt of any group. */
  largestDebt: number;
  /** Whether a person has opened an explanation. */
  hasExplained: boolean;
}

export interface Step {
  /**
   * What to see. `{key|words}` are words about what the chart draws: `key` is its name among the keys of the
   * legends.
   */
  look: string;
  /** What to do. */
  act: string;
  /** What to do it with, or what to watch, as a selector. */
  target: string;
  /** What to watch from the moment that the run goes on, as a selector. */
  watch?: string;
  done: (since: Since) => boolean;
}

interface AnyLesson {
  title: string;
  about: string;
  steps: readonly Step[];
}

/** A lesson with one run of a scenario, or two. */
export interface ScenarioLesson extends AnyLesson {
  of?: "scenario";
  scenario: string;
  /** Of a comparison. */
  sides?: [Partial<Choice>, Partial<Choice>];
  /** The virtual ms to begin at; 0 if left out. */
  at?: number;
  /** A power of ten. */
  speed: number;
}

/** A lesson with the machines that share a limit. */
export interface MachinesLesson extends AnyLesson {
  of: "machines";
}

export type Lesson = ScenarioLesson | MachinesLesson;

const sampleOf = (simulation: Simulation, side = 0) => simulation.frame?.sides[side]?.sample;
const refusals = (simulation: Simulation) => (sampleOf(simulation)?.providers ?? []).reduce((sum, one) => sum + one.refused, 0);
const hasRun = ({ simulation, from }: Since, ms: number) => simulation.at >= from + ms || simulation.phase === "finished";
const reaches = ({ simulation }: Since, ms: number) => simulation.at >= ms || simulation.phase === "finished";
/** Whether the machines hold the whole limit. */
const isDivided = (sample: SharingSample) => sample.limit > 0 && sharesOf(sample) === sample.limit;
const isFinished = ({ simulation }: Since) => simulation.phase === "finished";

const STORM: Lesson = {
  title: "A storm of 429s",
  about: "What happens when a client sends as much as it can, and why a limit has to adapt.",
  scenario: "storm",
  speed: 0,
  steps: [
    {
      look: "The provider serves 8 calls at once: {capacity|the dashed line}. Nobody told the client. It keeps 40 calls in flight: {limit|the solid line}.",
      act: "Press Play.",
      target: "#play",
      watch: "#explore .chart",
      done: ({ simulation }) => refusals(simulation) >= 20,
    },
    {
      look: "Each {refused|red tick} stands for calls that were answered 429, too many requests. They brought nothing and have to be sent again.",
      act: "Let the limit adapt: under Settings, set Limit to AIMD.",
      target: "#controls fieldset[data-provider] select",
      done: ({ changes }) => changes.some((one) => one.set === "algorithm" && one.algorithm.name !== "fixed"),
    },
    {
      look: "Each 429 now cuts {limit|the limit}, and successes raise it by one. It comes down to {capacity|what the provider serves}, and {refused|429s} become rare.",
      act: "Watch for a few seconds of virtual time.",
      target: ".provider",
      done: (since) => hasRun(since, 4_000),
    },
  ],
};

const CAPACITY: Lesson = {
  title: "The limit finds the capacity",
  about: "The limit follows what the provider can take, though no response states it.",
  scenario: "unknown-limit",
  speed: 0.3,
  steps: [
    {
      look: "The provider serves {capacity|12 calls}, and {limit|the limit} starts at 32. The first 429s cut it, successes raise it.",
      act: "Press Play, and watch the limit come down to the dashed line.",
      target: "#play",
      watch: "#explore .chart",
      done: (since) => hasRun(since, 3_000) && refusals(since.simulation) > 0,
    },
    {
      look: "The slider beside the chart is {capacity|what the provider can take}.",
      act: "Drag it down, to 6 or less.",
      target: "#explore input.capacity",
      done: ({ changes }) => changes.some((one) => one.set === "capacity" && typeof one.slots === "number" && one.slots <= 6),
    },
    {
      look: "{limit|The limit} follows: a cut, a short {cooling|cooldown}, and it settles. There is no storm.",
      act: "Drag the capacity up again, to 10 or more.",
      target: "#explore input.capacity",
      done: ({ changes }) => changes.some((one) => one.set === "capacity" && (typeof one.slots !== "number" || one.slots >= 10)),
    },
    {
      look: "Successes raise the limit step by step. Meanwhile calls wait, and each wait has a reason.",
      act: "Click the name of the provider, or a worker slot, and read why it waits.",
      target: "#explore .provider-name",
      done: ({ hasExplained }) => hasExplained,
    },
  ],
};

const RAMP: Lesson = {
  title: "A ramp for a cold server",
  about: "A server that has just started opens one slot after another. A start-up ramp follows it without a single 429.",
  scenario: "cold-storm",
  sides: [{ scenario: "cold-storm" }, { scenario: "cold-ramp" }],
  speed: 0.3,
  steps: [
    {
      look: "Both servers warm up over ten seconds: {capacity|the dashed stairs}. Left starts at {limit|its full limit} of 24. Right climbs from 1 to 24 in the same ten seconds.",
      act: "Press Play.",
      target: "#play",
      watch: "#compare .chart",
      done: (since) => reaches(since, 4_000),
    },
    {
      look: "Left meets {refused|429s} and {cooling|cooldowns}, right meets none.",
      act: "Let both runs finish; a higher speed is fine.",
      target: "#speed",
      done: isFinished,
    },
    {
      look: "The sentence above the table names the better run. A ramp is one setting.",
      act: "Give the left run a Ramp of 10 s as well, and press Play.",
      target: '#compare fieldset[data-side="0"] [aria-label="Ramp"]',
      done: ({ simulation }) => simulation.choices[0].ramp === 10_000 && simulation.phase !== "ready" && simulation.at >= 3_000,
    },
  ],
};

const COOLDOWN: Lesson = {
  title: "A cooldown instead of hammering",
  about: "When a provider refuses everything for a while, calls stop, and start again as soon as it answers.",
  scenario: "noisy-neighbour",
  speed: -0.3,
  steps: [
    {
      look: "Another client takes a changing share of this provider: {capacity|the dashed line} moves all the time. {limit|The limit} follows it.",
      act: "Press Play.",
      target: "#play",
      watch: "#explore .chart",
      done: (since) => reaches(since, 1_500),
    },
    {
      look: "Now it gets worse: for three seconds the provider refuses every call.",
      act: "Press 429 burst below the chart.",
      target: '#explore .troubles [data-trouble="refuse"]',
      done: ({ changes }) => changes.some(({ set }) => set === "refuse"),
    },
    {
      look: "A 429 states how long to wait (Retry-After). Until then nothing is sent: {cooling|the shaded stretch} is the cooldown. A client without one would send hundreds of calls for nothing.",
      act: "Watch until the burst is over.",
      target: ".provider",
      done: ({ simulation, from }) => {
        const { at = 0, providers = [] } = sampleOf(simulation) ?? {};
        const isOver = providers.every(({ refusing_until: until }) => until === null || until <= at);
        return simulation.phase === "finished" || (isOver && simulation.at >= from + 3_000);
      },
    },
    {
      look: "After the cooldown {limit|the limit} grows back from what is left of it. No row was lost: a 429 is retried.",
      act: "Watch the calls come back.",
      target: ".provider",
      done: (since) => hasRun(since, 2_000),
    },
  ],
};

const FAIRNESS: Lesson = {
  title: "A fair share by weight",
  about: "Groups share the workers by weight, however much work each of them has waiting.",
  scenario: "borrow-and-repay",
  at: 4_500,
  speed: -0.3,
  steps: [
    {
      look: "Two groups of equal weight share 16 workers. Both have hundreds of tasks that wait, and each runs about 8.",
      act: "Press Play.",
      target: "#play",
      watch: "#explore .queues",
      done: (since) => hasRun(since, 500),
    },
    {
      look: "Say the work of the first group matters more.",
      act: "Under Settings, set the weight of ample/first to 3.",
      target: '#controls input[data-group="ample/first"]',
      done: ({ changes }) => changes.some((one) => one.set === "weight" && one.weight >= 2),
    },
    {
      look: "No running work is stopped. Each worker that becomes free goes to the group that is below its share, until the first runs 12 and the second 4.",
      act: "Watch the bars of the queues.",
      target: ".queues",
      done: (since) => {
        const running = (sampleOf(since.simulation)?.groups ?? []).map((group) => group.running);
        return Math.max(...running) >= 2 * Math.min(...running) && hasRun(since, 1_000);
      },
    },
  ],
};

const BORROW: Lesson = {
  title: "Borrow and repay",
  about: "A group that has nothing to do lends its share, and gets it back.",
  scenario: "borrow-and-repay",
  speed: 0,
  steps: [
    {
      look: "Two groups of equal weight share 16 workers, 8 each. The second has nothing to do for four seconds, so the first may run more than its share, as a debt.",
      act: "Press Play, and watch the bar of the first group grow past its mark.",
      target: "#play",
      watch: "#explore .queues",
      done: ({ largestDebt }) => largestDebt > 0,
    },
    {
      look: "When the second group has work, nothing is taken away. Each worker of the first that ends repays a part of the debt.",
      act: "Watch until the debt is repaid.",
      target: ".queues",
      done: ({ simulation, largestDebt }) => (largestDebt > 0 && simulation.at > 4_000 && (sampleOf(simulation)?.groups ?? []).every(({ debt }) => debt === 0)) || simulation.phase === "finished",
    },
    {
      look: "To lend is a policy. The strict one keeps every share free for its owner.",
      act: "Under Settings, set the Policy to Strictly fair, and let the run finish.",
      target: "#controls fieldset select",
      done: ({ changes, simulation }) => changes.some(({ set }) => set === "policy") || simulation.phase === "finished",
    },
  ],
};

const YIELD: Lesson = {
  title: "A waiting worker yields its slot",
  about: "One provider pushes back. Workers that wait for it must not keep the other one idle.",
  scenario: "cooldown/both",
  sides: [{}, { advisory: "no", yields: "no" }],
  speed: -0.3,
  steps: [
    {
      look: "Every row needs a call to a and one to b, and there are 8 workers. Provider a refuses at once and asks for two seconds of {cooling|pause}. Provider b is free all the time.",
      act: "Press Play, and compare the charts of b.",
      target: "#play",
      watch: '#compare [data-provider="b"] .chart',
      done: (since) => reaches(since, 1_200),
    },
    {
      look: "Left, a worker that waits for a yields its slot, and work for b passes it: b has {in-flight|calls} all the time. Right, all 8 workers hold their slots and wait for a, and b is idle.",
      act: "Let both runs finish.",
      target: '.half [data-provider="b"]',
      done: isFinished,
    },
    {
      look: "The table shows what the blocked workers cost. Both runs made the very same calls.",
      act: "Read the sentence above the table.",
      target: "#verdict",
      done: () => true,
    },
  ],
};

const OUTAGE: Lesson = {
  title: "An outage, and no row lost",
  about: "A provider fails, then stops answering, then recovers slowly.",
  scenario: "outage",
  speed: 0,
  steps: [
    {
      look: "The provider serves {capacity|16 calls}. At 4 s every call starts to fail with 503; two seconds later calls get no answer at all.",
      act: "Press Play, and watch the capacity fall to zero.",
      target: "#play",
      watch: "#explore .chart",
      done: (since) => reaches(since, 5_000),
    },
    {
      look: "Rows whose calls fail are not dropped. The scheduler sends single calls to find out whether the provider is back, and everything else waits.",
      act: "Click the name of the provider, and read why calls wait.",
      target: "#explore .provider-name",
      done: ({ hasExplained }) => hasExplained,
    },
    {
      look: "{capacity|The capacity} comes back over three seconds. A probe finds it, and the calls start again, a few at first.",
      act: "Let the run finish; a higher speed is fine.",
      target: "#speed",
      done: isFinished,
    },
    {
      look: "Every row is there: Rows dropped is 0. An outage costs its own time and nothing else.",
      act: "Look at the result.",
      target: "#finish",
      done: () => true,
    },
  ],
};

const RATE_LIMIT: Lesson = {
  title: "A limit on calls per minute",
  about: "Some providers count calls per minute instead of calls at once. The pace has to be learned, too.",
  scenario: "rate-limit",
  sides: [{ algorithm: "fixed", fixed: 32 }, { algorithm: "tide" }],
  speed: 0.3,
  steps: [
    {
      look: "The provider takes 600 calls a minute, and 20 at once after a quiet time. Left always keeps {limit|32 calls} out, right runs tide.",
      act: "Press Play.",
      target: "#play",
      watch: "#compare .chart",
      done: (since) => reaches(since, 6_000),
    },
    {
      look: "A limit on calls at once does not help here: left sends every refused call again, and meets {refused|thousands of 429s}. tide reads from the first few that it is a rate, and spaces its calls.",
      act: "Let both runs finish.",
      target: "#speed",
      done: isFinished,
    },
    {
      look: "Both take as long as the rate makes them. A real provider would have suspended the left client by now.",
      act: "Compare the 429s in the table.",
      target: '#compare [data-figure="refused"]',
      done: () => true,
    },
  ],
};

const MACHINES: Lesson = {
  title: "Three machines, one provider",
  about: "Several machines share one limit over a store. One is cut off, the leader dies, and no call goes over the limit.",
  of: "machines",
  steps: [
    {
      look: "Three machines call one account, which serves {capacity|12 calls} at once. Each alone would send up to 12: three times too much. So one machine leads: it owns one limit and leases a part of it, a share, to each.",
      act: "Press Play, and watch the shares arrive.",
      target: "#machines .play",
      done: ({ machines }) => machines !== undefined && machines.at >= 3e9 && isDivided(machines),
    },
    {
      look: "A machine starts calls within its share, and no call waits for the store. Ten times a second it reports its demand, and the leader divides the limit again.",
      act: "Set the demand of machine B to 1, and watch the others get its slots.",
      target: '#machines [data-machine="1"] input',
      done: ({ machines }) => machines !== undefined && isDivided(machines) && machines.processes.some(({ is_alive, demand, share }) => is_alive && demand <= 2 && share <= 2),
    },
    {
      look: "Each report that is answered renews the lease. A machine that is cut off from the store goes on until its lease ends, and then starts no more calls. Only after that the leader takes its share back, and it keeps the slots of calls that may still be out a while longer.",
      act: "Cut off machine C, watch its lease run out, and then the others get its slots.",
      target: '#machines [data-machine="2"] .cut',
      done: ({ machines }) => machines !== undefined && isDivided(machines) && machines.processes.some(({ is_alive, is_connected, lease_ns }) => is_alive && !is_connected && lease_ns === 0),
    },
    {
      look: "The leader can die as well. The shares stay valid without it. A machine that sees no decision for about two seconds takes the lead, and knows the limit and every share from the store.",
      act: "Kill the machine that leads, and wait until its slots are back, too.",
      target: "#machines [data-leads]",
      done: ({ machines }) => machines !== undefined && machines.epoch > 1 && machines.leader !== null && isDivided(machines) && machines.processes.some(({ is_alive }) => !is_alive),
    },
    {
      look: "{in-flight|The calls in flight} were never more than {capacity|the provider serves}: unless you lowered what it serves, it has refused none. What returns gets a share as soon as the others have given up theirs.",
      act: "Start the dead machine and reconnect the other one. That was the last lesson: everything is yours to try.",
      target: "#machines ul",
      done: ({ machines }) => machines !== undefined && isDivided(machines) && machines.processes.every(({ is_alive, is_connected, lease_ns }) => is_alive && is_connected && lease_ns > 0),
    },
  ],
};

export const LESSONS: readonly Lesson[] = [STORM, CAPACITY, RAMP, COOLDOWN, FAIRNESS, BORROW, YIELD, OUTAGE, RATE_LIMIT, MACHINES];
