// Citations that the service has checked: each says at which characters of the answer its mark stands, and the words of a file that
// support the answer there. They are kept with the turn; a mark without one is no citation.

const text = (value) => (typeof value === "string" ? value : "");
const number = (value) => (Number.isFinite(value) ? value : null);

/** Where the marks of an answer begin that goes on with `content`: the service counts characters, not units of UTF-16. */
export const characters = (content) => [...content].length;

/** A name without what would turn its letters around or hide them, so that none pretends to be of another kind. */
export const plain = (name) => name.replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, "\ufffd");

/** A citation of the API as it is kept, or null; its mark stands `base` characters later in the whole answer. */
export function kept(annotation, base) {
  const of = annotation?.file_citation || annotation;
  if (annotation?.type !== "file_citation" || typeof of.file_id !== "string" || typeof of.quote !== "string" || !Number.isInteger(of.start_index)) return null;
  return { start: base + of.start_index, file: of.file_id, name: plain(text(of.filename)), quote: of.quote, page: number(of.page),
    from: number(of.source_start), to: number(of.source_end), score: number(of.score) };
}

/** A kept citation of a file that may come from anywhere, or null. */
export function cleaned(of) {
  if (!of || typeof of.file !== "string" || typeof of.quote !== "string" || !Number.isInteger(of.start)) return null;
  return { start: of.start, file: of.file, name: plain(text(of.name)), quote: of.quote, page: number(of.page), from: number(of.from), to: number(of.to), score: number(of.score) };
}

/** The citations of an answer by the place of their mark, in units of UTF-16 of the answer as it is drawn, with `\n` alone. */
export function byPlace(content, annotations) {
  const starts = new Map();
  for (const of of annotations) starts.set(of.start, [...(starts.get(of.start) || []), of]);
  const found = new Map();
  let at = 0, returns = 0, characters = 0;
  for (const character of content) {
    // Where positions and text do not belong together there is no mark, and so no citation.
    if (starts.has(characters) && character === "[") found.set(at - returns, starts.get(characters));
    characters += 1;
    if (character === "\r" && content[at + 1] === "\n") returns += 1;
    at += character.length;
  }
  return found;
}

/** Ids of the stores that the tools of a request search. */
export const storesOf = (tools) => (tools || []).filter((tool) => tool.type === "file_search").flatMap((tool) => tool.vector_store_ids || []);
