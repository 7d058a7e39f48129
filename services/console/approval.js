// A call that waits for somebody: shown whole and as it will run, with the two answers to it.

import { html, useState } from "./vendor/preact-htm.js";
import { plain } from "./annotations.js";

/** Whether a call of an answer waits for an approval. */
export const asks = (made) => made.id.startsWith("mcpr_");

// Letters that cannot be seen, or that turn others around; JSON has them as escapes as well.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;
const escaped = (text) => text.replace(HIDDEN, (hidden) => [...Array(hidden.length).keys()].map((i) => `\\u${hidden.charCodeAt(i).toString(16).padStart(4, "0")}`).join(""));

const PIECES = /"(?:[^"\\]|\\.)*"?|[[{\]},:]|[^\s"[{\]},:]+/gs;

/** JSON in lines, with each of its letters: read and written anew, a name that comes twice would be shown once. */
export function lines(json) {
  let depth = 0, before = "", text = "";
  for (const piece of json.match(PIECES) || []) {
    const within = before === "{" || before === "[", shuts = piece === "}" || piece === "]";
    if (within) depth += 1;
    if (shuts) depth -= 1;
    const breaks = before === "," || within !== shuts;
    text += (breaks ? `\n${"  ".repeat(Math.max(0, depth))}` : before === ":" ? " " : "") + escaped(piece);
    before = piece;
  }
  return text;
}

/** A call that waits, or waited, for an answer; `onAnswer` gets whether it may run, and why not. */
export function Approval({ made, running, open, onAnswer }) {
  const [reason, setReason] = useState("");
  const at = made.name.indexOf("__");
  const [server, tool] = at < 0 ? ["", made.name] : [made.name.slice(0, at), made.name.slice(at + 2)];
  const answer = (approve) => () => {
    onAnswer(approve, approve ? "" : reason.trim());
    document.getElementById("ask").focus();
  };
  return html`<div class="call asks" role="group" aria-label=${`Approval of ${tool || "a call"}`}>
    <p><strong><bdi>${plain(tool) || "…"}</bdi></strong> of the server <strong><bdi>${plain(server) || "…"}</bdi></strong> ${open ? "waits for your approval" : "waited for an approval"}. It is called with</p>
    <pre class="whole" tabindex="0" aria-label="Arguments">${running ? escaped(made.arguments) : lines(made.arguments)}</pre>
    ${open && html`<p role="status">It runs once, as it stands here, if you approve it.</p>
      <label>Why not <small>(the model reads it)</small><input maxlength="2000" dir="auto" value=${reason} onInput=${(e) => setReason(e.target.value)} /></label>
      <div class="row"><button type="button" class="first" onClick=${answer(true)}>Approve</button><button type="button" onClick=${answer(false)}>Refuse</button></div>`}</div>`;
}

/** What was answered. */
export const Answered = ({ turn }) => html`<p>${turn.approve ? "The call was approved." : "The call was refused."}${turn.content && html` <span class="plain">${turn.content}</span>`}</p>`;
