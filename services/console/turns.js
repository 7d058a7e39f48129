// The shown path of a conversation. It follows an answer unless the reader has gone up.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { later } from "./later.js";
import * as tree from "./tree.js";

// Turns need what most of the page's bytes are for: Markdown, code, formulas. A page without any needs none of it.
const Message = later(async () => (await import("./message.js")).Message);
/** The files of a turn, for a page that will show one as soon as the store is read. */
export const MESSAGE_FILES = ["message", "approval", "citations", "clipboard", "code", "feedback", "footnotes", "formula", "inspector", "markdown", "nesting", "passage", "pieces", "slices", "steplist", "system",
  "vendor/marked", "vendor/purify"];

const SUGGESTIONS = ["Who are you?", "What is 48 + 276?", "Reverse the word lantern."];
const END_PX = 60;

/** Keeps the end in sight while the reader is there. By the time that this is called everything is laid out. */
function useFollowing(conversation, empty) {
  const place = useRef(null);
  const inner = useRef(null);
  const follows = useRef(true);
  const [away, setAway] = useState(false);
  const go = () => place.current && (place.current.scrollTop = place.current.scrollHeight);
  useEffect(() => {
    follows.current = true;
    const grown = new ResizeObserver(() => follows.current && go());
    if (inner.current) grown.observe(inner.current);
    go();
    return () => grown.disconnect();
  }, [conversation, empty]);
  const scrolled = () => {
    const p = place.current;
    follows.current = p.scrollHeight - p.scrollTop - p.clientHeight < END_PX;
    setAway(!follows.current);
  };
  const jump = () => {
    follows.current = true;
    go();
    place.current.focus();
  };
  return { place, inner, away, scrolled, jump };
}

export function Turns({ library, conversation, busy, actions, onSay }) {
  const path = tree.path(conversation);
  const { place, inner, away, scrolled, jump } = useFollowing(conversation.id, !path.length);
  if (!path.length) {
    return html`<div class="turns empty"><p>Ask something, or try one of these:</p>
      <div class="suggestions">${SUGGESTIONS.map((s) => html`<button type="button" onClick=${() => onSay(s)}>${s}</button>`)}</div></div>`;
  }
  const running = library.generation(conversation)?.turn;
  const answered = path.filter((t) => t.role === "tool").map((t) => t.callId);
  // A call is answered right behind it, or not at all.
  const asked = path.findLastIndex((t) => t.role !== "tool");
  return html`<div class="turns" ref=${place} onScroll=${scrolled} tabindex="0" role="log" aria-label="Turns" aria-busy=${busy}><div ref=${inner}>
    ${path.map((turn, i) => html`<${Message} key=${turn.id} turn=${turn} siblings=${tree.siblings(conversation, turn)} running=${running === turn} busy=${busy} last=${i === path.length - 1}
      elsewhere=${library.elsewhere(turn)} conversation=${conversation} answered=${answered} answerable=${i === asked} actions=${actions} />`)}</div></div>
    ${away && html`<div class="jump"><button type="button" onClick=${jump}>Jump to the end ↓</button></div>`}`;
}
