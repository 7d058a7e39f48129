// What a mark of an answer leads to: the words of a file that support it, with what stands around them there.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";

const AROUND = 600; // bytes before and after the words that are shown
const BETWEEN = "\n\n"; // what the service leaves out between two sections of a text

/** The parsed text of a file from a byte on, about a mebibyte of it; of the first of these stores that has the file. */
async function textOf(file, stores, from) {
  let failure = new Error("it is not known which store it is from");
  for (const store of stores) {
    const path = `/v1/vector_stores/${encodeURIComponent(store)}/files/${encodeURIComponent(file)}/content${from ? `?page=${from}` : ""}`;
    try {
      return (await call(path)).data.map((section) => section.text).join(BETWEEN);
    } catch (error) {
      failure = error;
      if (error.status !== 404) break;
    }
  }
  throw failure;
}

/** The nearest byte at which a character begins. */
function boundary(bytes, at, step) {
  while (at > 0 && at < bytes.length && (bytes[at] & 0xc0) === 0x80) at += step;
  return Math.min(Math.max(at, 0), bytes.length);
}

/** What stands before and after `bytes[from..to]`. */
function cutAround(bytes, from, to) {
  const of = (begin, end) => new TextDecoder().decode(bytes.subarray(begin, end));
  const begin = boundary(bytes, Math.max(0, from - AROUND), 1), end = boundary(bytes, to + AROUND, -1);
  return { before: `${begin ? "…" : ""}${of(begin, from)}`, after: `${of(to, end)}${end < bytes.length ? "…" : ""}` };
}

/** What stands around the quoted words of a citation in its file. Throws with words if the file or the words are not there. */
export async function around({ file, quote, from, to }, stores) {
  const bytes = new TextEncoder().encode(await textOf(file, stores, 0));
  if (from !== null && to !== null && new TextDecoder().decode(bytes.subarray(from, to)) === quote) return cutAround(bytes, from, to);
  // A long text comes in parts. Where the part begins is not told, so the words say where they are.
  const part = await textOf(file, stores, Math.max(0, (from || 0) - AROUND));
  const at = part.indexOf(quote);
  if (at < 0) throw new Error("its text does not hold these words any more");
  const before = new TextEncoder().encode(part.slice(0, at)).length;
  return cutAround(new TextEncoder().encode(part), before, before + new TextEncoder().encode(quote).length);
}

function Source({ of, stores }) {
  const [near, setNear] = useState({ before: "", after: "" });
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    let wanted = true;
    around(of, stores).then((found) => wanted && setNear(found), (error) => wanted && setTrouble(error.message));
    return () => (wanted = false);
  }, [of]);
  return html`<p><strong dir="auto">${of.name || "Unnamed"}</strong>${of.page !== null && html`, page ${of.page.toLocaleString("en")}`}</p>
    <blockquote dir="auto">${near.before}<mark>${of.quote}</mark>${near.after}</blockquote>
    ${trouble && html`<p>What stands around these words cannot be shown: ${trouble}.</p>`}`;
}

/** The citations of a mark. */
export function Passage({ mark, found, stores, onClose }) {
  const place = useRef(null);
  useEffect(() => {
    place.current.focus({ preventScroll: true });
    place.current.scrollIntoView({ block: "nearest" });
  }, [mark]);
  const pressed = (event) => {
    if (event.key !== "Escape") return;
    // The key would stop the answer as well.
    event.stopPropagation();
    onClose();
  };
  return html`<aside class="passage sourced" tabindex="-1" ref=${place} aria-label="Passage" onKeyDown=${pressed}>
    <div class="row"><strong>${mark}</strong><span class="grow"></span><button type="button" aria-label="Close the passage" onClick=${onClose}>✕</button></div>
    ${found.map((of) => html`<${Source} key=${`${of.file} ${of.from}`} of=${of} stores=${stores} />`)}</aside>`;
}
