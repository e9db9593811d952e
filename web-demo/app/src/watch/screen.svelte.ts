// Puts the first screen into the page.
import { mount } from "svelte";
import Watch from "./Watch.svelte";

/** Returns the properties of the screen: it plays while `shown` is set. */
export function openWatch(target: HTMLElement, leads: { explore: () => void; learn: () => void }) {
  const props = $state({ shown: false, ...leads });
  mount(Watch, { target, props });
  return props;
}
