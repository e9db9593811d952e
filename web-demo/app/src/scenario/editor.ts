// The editor of scenario files: colours, completion by their schema, and what is wrong at the place where it
// is.
import { autocompletion } from "@codemirror/autocomplete";
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { lintGutter, linter } from "@codemirror/lint";
import { Prec } from "@codemirror/state";
import { EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";
import { closest, distance } from "fastest-levenshtein";
import { optionsAt, placeAfter } from "./schema.ts";
import type { CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import type { Diagnostic } from "@codemirror/lint";

/** Keystrokes closer together than this are checked once, in real ms. */
const PAUSE_MS = 400;

export interface EditorEvents {
  /** A person has changed the text, or a program. */
  changed: () => void;
  /** A person wants it to run. */
  apply: () => void;
  /** Returns what is wrong with a text: `line 3, column 9: ...`. */
  check: (text: string) => Promise<string | undefined>;
}

/**
 * Colours of the page, so that it is readable in light and dark. The marks that come with the editor are
 * images, which the policy of the page forbids.
 */
const LOOK = EditorView.theme({
  "&": { height: "min(60vh, 620px)", backgroundColor: "var(--surface)", color: "var(--ink)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { font: "13px/20px var(--mono)" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--sunk)", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 8%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 28%, var(--surface))" },
  ".cm-tooltip, .cm-panels": { backgroundColor: "var(--surface)", color: "var(--ink)", borderColor: "var(--line)" },
  ".cm-tooltip.cm-completionInfo": { maxWidth: "340px", padding: "6px 10px" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-ink)" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--refused)" },
  ".cm-lint-marker-error": { content: "normal", borderRadius: "50%", backgroundColor: "var(--refused)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--refused)" },
});

const COLOURS = HighlightStyle.define([
  { tag: tags.comment, color: "var(--muted)" },
  { tag: [tags.string, tags.number, tags.bool, tags.atom], color: "var(--accent)" },
  { tag: tags.propertyName, color: "var(--ink)" },
  { tag: [tags.heading, tags.bracket], color: "var(--capacity-ink)", fontWeight: "600" },
]);

function complete(context: CompletionContext): CompletionResult | null {
  const place = placeAfter(context.state.sliceDoc(0, context.pos));
  if (!place || (!place.word && !context.explicit)) return null;
  const options = optionsAt(place).map((one) => ({ ...one, type: place.kind === "value" ? "constant" : "property", apply: place.kind === "key" ? `${one.label} = ` : one.label }));
  return options.length > 0 ? { from: context.pos - place.word.length, options } : null;
}

/** What is wrong, at its place; of a name that is unknown, the one that was perhaps meant. */
function diagnosticOf(view: EditorView, problem: string): Diagnostic {
  const [, line = "1", column = "1", message = problem] = /^line (\d+), column (\d+): (.*)$/s.exec(problem) ?? [];
  const { from: start, to: end, text } = view.state.doc.line(Math.min(Number(line), view.state.doc.lines));
  const from = Math.min(start + [...text].slice(0, Number(column) - 1).join("").length, end);
  const to = from + (/^[\w-]+|^"[^"]*"?/.exec(view.state.sliceDoc(from, end))?.[0].length ?? 0);
  const [, unknown, expected] = /unknown (?:field|variant) `([^`]*)`, expected (.*)/.exec(message) ?? [];
  const names = [...(expected ?? "").matchAll(/`([^`]*)`/g)].map(([, name = ""]) => name);
  const meant = unknown && names.length > 0 ? closest(unknown, names) : undefined;
  const isNear = unknown && meant && distance(unknown, meant) <= Math.max(1, unknown.length / 3);
  if (!isNear) return { from, to, severity: "error", message };
  const at = view.state.sliceDoc(from, end).indexOf(unknown);
  const change = { from: from + at, to: from + at + unknown.length, insert: meant };
  return {
    from,
    to,
    severity: "error",
    message: `unknown name ${unknown}: did you mean ${meant}?`,
    actions: at < 0 ? [] : [{ name: `Change to ${meant}`, apply: (view) => view.dispatch({ changes: change }) }],
  };
}

export class Editor {
  #view;

  /**
   * It lives in a shadow tree: there the editor adopts its style sheets, which the policy of the page allows,
   * and adds no element of styles, which it forbids.
   */
  constructor(parent: HTMLElement, { changed, apply, check }: EditorEvents) {
    const root = parent.attachShadow({ mode: "open" });
    this.#view = new EditorView({
      parent: root,
      root,
      extensions: [
        // Before the usual keys, of which one makes a line there.
        Prec.highest(keymap.of([{ key: "Mod-Enter", run: () => (apply(), true) }])),
        basicSetup,
        StreamLanguage.define(toml),
        syntaxHighlighting(COLOURS),
        LOOK,
        autocompletion({ override: [complete] }),
        lintGutter(),
        linter(async (view) => {
          const problem = await check(view.state.doc.toString());
          return problem === undefined ? [] : [diagnosticOf(view, problem)];
        }, { delay: PAUSE_MS }),
        EditorView.contentAttributes.of({ id: "toml", "aria-label": "The scenario as TOML", autocapitalize: "off" }),
        EditorView.updateListener.of(({ docChanged }) => docChanged && changed()),
      ],
    });
  }

  get text() {
    return this.#view.state.doc.toString();
  }

  set text(text: string) {
    this.#view.dispatch({ changes: { from: 0, to: this.#view.state.doc.length, insert: text } });
  }

  /** Puts the cursor where something is wrong. */
  showProblem(problem: string) {
    const { from, to } = diagnosticOf(this.#view, problem);
    this.#view.dispatch({ selection: { anchor: from, head: to }, effects: EditorView.scrollIntoView(from, { y: "center" }) });
    this.#view.focus();
  }
}
