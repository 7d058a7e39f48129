// Formulas in Markdown, drawn as MathML by a library that is only fetched where there is one.

import { bySlices } from "./slices.js";
import "./vendor/purify.js";

const purify = window.DOMPurify;
// A formula costs the layout as much as so many characters of text.
const WEIGHT = 1000;

/** How the parser of Markdown finds formulas; `escape` makes text of what might be markup. */
export const formulas = (escape) => [
  rule("blockFormula", "block", /^\$\$([\s\S]+?)\$\$(?:\n|$)|^\\\[([\s\S]+?)\\\](?:\n|$)/, /\$\$|\\\[/, true, escape),
  rule("formula", "inline", /^\\\((.+?)\\\)|^\$(?![\s\d])([^$\n]*[^$\s\\])\$(?!\d)/, /\\\(|\$/, false, escape),
];

function rule(name, level, found, start, display, escape) {
  return {
    name,
    level,
    start: (source) => source.match(start)?.index,
    tokenizer(source) {
      const match = found.exec(source);
      return match && { type: name, raw: match[0], text: (match[1] ?? match[2]).trim() };
    },
    renderer: (token) => `<span class="formula" data-display="${display}">${escape(token.text)}</span>`,
  };
}

let temml;

/** Draws the formula whose source stands at `place`. */
export async function typeset(place) {
  temml ||= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/console/vendor/temml.js";
    script.onload = () => resolve(window.temml);
    script.onerror = reject;
    document.head.append(script);
  });
  const library = await temml;
  let drawn = false;
  bySlices(() => {
    if (drawn) return 0;
    drawn = true;
    return draw(library, place);
  });
}

function draw(library, place) {
  const source = place.textContent;
  const markup = library.renderToString(source, { displayMode: place.dataset.display === "true", throwOnError: false, trust: false });
  // Inline styles would break the page's policy; MathML reads well without them.
  const math = markup.replace(/ style="[^"]*"/g, "");
  place.replaceChildren(purify.sanitize(math, { USE_PROFILES: { mathMl: true }, FORBID_ATTR: ["style", "href"], RETURN_DOM_FRAGMENT: true }));
  place.title = source;
  return WEIGHT + source.length;
}
