// What a person thinks of an answer, told to the service where the key's consent allows that it is kept.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { call, key } from "./api.js";
import { useReturn } from "./focus.js";

let asked = { key: null, allowed: null };

/** Whether the service keeps what this tab's key says of answers; it is asked once a key. */
function allowed() {
  if (asked.key !== key.get()) asked = { key: key.get(), allowed: call("/v1/learning").then(({ learn }) => learn !== "off", () => false) };
  return asked.allowed;
}

/** Where the answer that should have been given is written. */
function Correction({ turn, onSend, onLeave }) {
  const [text, setText] = useState(turn.content);
  const [reason, setReason] = useState("");
  const place = useRef(null);
  useEffect(() => place.current.focus(), []);
  const send = (event) => {
    event.preventDefault();
    if (text.trim()) onSend({ correction: text, ...(reason.trim() ? { reason } : {}) });
  };
  const pressed = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    onLeave();
  };
  return html`<form class="correction" onSubmit=${send} onKeyDown=${pressed}>
    <label>The right answer<textarea ref=${place} dir="auto" rows=${Math.min(16, Math.max(3, text.split("\n").length))} value=${text} onInput=${(e) => setText(e.target.value)}></textarea></label>
    <label>Why, if you like<input value=${reason} maxlength="2000" onInput=${(e) => setReason(e.target.value)} /></label>
    <p>The service keeps the conversation up to here and this answer to learn from.</p>
    <div class="row"><button type="submit" class="first">Send it</button><button type="button" onClick=${onLeave}>Leave it</button></div></form>`;
}

const KEPT = { "-1": "Kept: not a good answer.", 0: "Kept: neither good nor bad.", 1: "Kept: a good answer." };

/** Thumbs and a correction, for an answer that the service knows by its id. */
export function Feedback({ turn, onRated }) {
  const [shown, show] = useState(false);
  const [correcting, setCorrecting] = useState(false);
  const opener = useReturn(correcting);
  const [said, say] = useState("");
  useEffect(() => void allowed().then(show), []);
  if (!shown) return null;
  const send = async (body, words) => {
    try {
      const reply = await call("/v1/feedback", { body: { completion_id: turn.answer, ...body } });
      say(reply.kept ? words : `Not kept: ${reply.why}.`);
      return reply.kept;
    } catch (error) {
      say(`Not kept: ${error.message}.`);
      return false;
    }
  };
  const rate = async (value) => {
    const rating = turn.rating === value ? 0 : value;
    if (await send({ rating }, KEPT[rating])) onRated(turn, rating);
  };
  const correct = async (body) => {
    setCorrecting(false);
    if (await send(body, "Kept: the right answer.")) onRated(turn, -1);
  };
  return html`<div class="feedback"><span class="row" role="group" aria-label="What do you think of this answer?">
      <button type="button" aria-pressed=${turn.rating === 1} onClick=${() => rate(1)}>Good answer</button>
      <button type="button" aria-pressed=${turn.rating === -1} onClick=${() => rate(-1)}>Bad answer</button>
      <button type="button" ref=${opener} aria-expanded=${correcting} onClick=${() => setCorrecting(!correcting)}>Give the right answer</button>
      <span role="status">${said}</span></span>
    ${correcting && html`<${Correction} turn=${turn} onSend=${correct} onLeave=${() => setCorrecting(false)} />`}</div>`;
}
