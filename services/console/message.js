// One turn as it is read: text, thought, calls, what it took, and what can be done with it.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { byPlace } from "./annotations.js";
import { Answered, Approval, asks } from "./approval.js";
import { passages, sources } from "./citations.js";
import { copied, copy } from "./clipboard.js";
import { sends } from "./composer.js";
import { Feedback } from "./feedback.js";
import { useReturn } from "./focus.js";
import { Inspector } from "./inspector.js";
import { Growing } from "./markdown.js";
import { Passage } from "./passage.js";
import { Plain } from "./pieces.js";
import { running as runningStep, Steps } from "./steplist.js";
import { speaker } from "./tree.js";

/** Text that grows, drawn by `Drawer`. */
function Text({ text, whole, kind, drawer: Drawer, cited, evidence }) {
  const place = useRef(null);
  const growing = useRef(null);
  useEffect(() => {
    growing.current ||= new Drawer(place.current, cited);
    growing.current.set(text, whole, evidence);
  }, [text, whole, evidence]);
  return html`<div class=${kind} dir="auto" ref=${place}></div>`;
}

const Markdown = (props) => html`<${Text} ...${props} kind=${props.evidence ? "text from-files" : "text"} drawer=${Growing} />`;
const AsItIs = ({ text }) => html`<${Text} text=${text} kind="plain" drawer=${Plain} />`;

function Call({ made, running, open, onResult }) {
  const [result, set] = useState("");
  return html`<div class="call"><p><strong>${made.name || "…"}</strong> is called with</p><pre tabindex="0"><${AsItIs} text=${running ? made.arguments : indented(made.arguments)} /></pre>
    ${open && html`<form onSubmit=${(e) => { e.preventDefault(); onResult(result); }}>
      <label>What it gives back<textarea rows="2" class="mono" value=${result} onInput=${(e) => set(e.target.value)}></textarea></label>
      <button type="submit">Hand it over</button></form>`}</div>`;
}

function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    // Arguments that were cut short are shown as they are.
    return json;
  }
}

const number = (n, digits = 0) => n.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });

/** What an answer took, in words. */
function took(turn) {
  const parts = [];
  const t = turn.timings;
  const tokens = turn.usage?.completion_tokens;
  if (t?.ttft_ms !== undefined) parts.push(`first token after ${number(t.ttft_ms)} ms`);
  else if (turn.first !== undefined) parts.push(`first token after ${number(turn.first)} ms`);
  if (tokens) parts.push(`${number(tokens)} ${tokens === 1 ? "token" : "tokens"}`);
  if (t?.decode_ms && tokens > 1) parts.push(`${number(((tokens - 1) / t.decode_ms) * 1000)} a second`);
  if (turn.usage) parts.push(`${number(turn.usage.prompt_tokens)} in the prompt`);
  const cached = turn.usage?.prompt_tokens_details?.cached_tokens;
  if (cached) parts.push(`${number(cached)} of them from the cache`);
  if (t?.engram) parts.push(`Engram changed ${number(t.engram.changed_tokens)} of ${number(t.engram.lookups)} positions`);
  return parts.join(" · ");
}

const ENDS = { length: "The answer was cut at its most tokens.", stopped: "Stopped.", edited: "Edited.", error: "" };
const CUT = "The answer was cut off: its page was closed while it came.";
const ELSEWHERE = "Another tab writes this answer.";

/** How an answer ended, in words, if there is something to say. */
function End({ turn, elsewhere }) {
  const words = turn.open ? (elsewhere ? ELSEWHERE : CUT) : ENDS[turn.finish];
  return words && html`<span class="end">${words}</span>`;
}

/** A button that says for a while what became of what it did. */
function CopyButton({ text }) {
  const [said, say] = useState("");
  const press = async () => {
    say(copied(await copy(text)));
    setTimeout(() => say(""), 2500);
  };
  return html`<button type="button" aria-live="polite" onClick=${press}>${said || "Copy"}</button>`;
}

/** Where a turn is written anew; keys do as in the composer. */
function Editor({ turn, onSave, onLeave }) {
  const [text, setText] = useState(turn.content);
  const place = useRef(null);
  useEffect(() => place.current.focus(), []);
  const save = (event) => {
    event.preventDefault();
    if (text.trim()) onSave(text);
  };
  const pressed = (event) => {
    if (sends(event)) save(event);
    if (event.key !== "Escape") return;
    event.stopPropagation();
    onLeave();
  };
  return html`<form onSubmit=${save}><label class="unseen" for=${`edit-${turn.id}`}>Edit</label>
    <textarea id=${`edit-${turn.id}`} ref=${place} dir="auto" rows=${Math.min(16, Math.max(3, text.split("\n").length))} value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${pressed}></textarea>
    <div class="row"><button type="submit" class="first">${turn.role === "assistant" ? "Keep this instead" : "Ask this instead"}</button><button type="button" onClick=${onLeave}>Leave it</button></div></form>`;
}

/** What can be done with a turn. An answer with calls is not edited or gone on with: the calls are not text. */
function Actions({ turn, busy, last, elsewhere, inspecting, editor, onEdit, onInspect, actions }) {
  const answer = turn.role === "assistant";
  const plain = answer && !turn.calls?.length && turn.content.trim();
  return html`<span class="actions">
    ${answer && last && plain && !elsewhere && html`<button type="button" disabled=${busy} onClick=${() => actions.goOn(turn)}>Continue</button>`}
    ${answer && html`<button type="button" disabled=${busy} onClick=${() => actions.retry(turn)}>Try again</button>`}
    ${(turn.role === "user" || plain) && html`<button type="button" ref=${editor} disabled=${busy} onClick=${onEdit}>Edit</button>`}
    <${CopyButton} text=${turn.content} />
    ${turn.tokens?.length > 0 && html`<button type="button" aria-pressed=${inspecting} onClick=${onInspect}>Inspect</button>`}
    <button type="button" disabled=${busy} onClick=${() => actions.remove(turn)}>Delete</button></span>`;
}

/** What an answer is from. */
function Sources({ engram }) {
  const found = sources(engram);
  return found.length > 0 && html`<p class="sources">Sources: ${found.map(([name, tokens]) => `${name} (${number(tokens)} ${tokens === 1 ? "token" : "tokens"})`).join(" · ")}</p>`;
}

/** A passage that the conversation numbers. */
const Numbered = ({ number, text, onClose }) => html`<aside class="passage" role="status"><strong>[${number}]</strong> ${text}
  <button type="button" aria-label="Close the passage" onClick=${onClose}>✕</button></aside>`;

/** What of an answer's files stands behind which mark; null for an answer that is not from files. */
function useEvidence(turn, running) {
  const annotations = turn.annotations || [];
  const fromFiles = annotations.length > 0 || turn.stores?.length > 0;
  return useMemo(() => (fromFiles ? byPlace(turn.content, annotations) : null), [turn.id, fromFiles, annotations.length, running]);
}

/** An answer, and the passage of a citation that was pressed. In an answer from files only what the service has checked is a citation. */
function Answer({ turn, running, conversation }) {
  const evidence = useEvidence(turn, running);
  const cited = useMemo(() => (evidence ? new Map() : passages(conversation, turn)), [turn.id, !evidence]);
  const [unproved, setUnproved] = useState("");
  const [at, setAt] = useState(null);
  const pressed = useRef(null);
  const open = (event) => {
    pressed.current = event.target;
    setAt(event.detail === at ? null : event.detail);
  };
  const close = () => {
    setAt(null);
    pressed.current?.focus();
  };
  const found = at?.startsWith("@") && evidence?.get(Number(at.slice(1)));
  return html`<div oncite=${open} onunproved=${(event) => setUnproved(event.detail)}>
    <${Markdown} text=${turn.content} whole=${!running} cited=${cited} evidence=${evidence} />
    ${found ? html`<${Passage} mark=${pressed.current?.textContent} found=${found} stores=${turn.stores || []} onClose=${close} />`
      : cited.has(at) && html`<${Numbered} number=${at} text=${cited.get(at)} onClose=${close} />`}
    ${!running && unproved && html`<p class="sources">No passage of the documents was found to say it: ${unproved}</p>`}
    ${!running && html`<${Sources} engram=${turn.timings?.engram} />`}</div>`;
}

export function Message({ turn, siblings, running, busy, last, elsewhere, answered, answerable, actions, conversation }) {
  const [editing, setEditing] = useState(false);
  const editor = useReturn(editing);
  const [inspecting, setInspecting] = useState(false);
  const grows = running || elsewhere;
  const who = speaker(turn);
  const doing = runningStep(turn.steps);
  const opens = (made) => answerable && !grows && !answered.includes(made.id);
  const at = siblings.findIndex((s) => s.id === turn.id);
  const save = (content) => {
    setEditing(false);
    actions.edit(turn, content);
    // What is asked next is written there, and this turn gives way to the new one.
    document.getElementById("ask").focus();
  };
  return html`<article class=${`turn ${turn.role} ${last ? "last" : ""}`} aria-label=${`${who} said`}>
    <div class="row"><strong class="who">${who}</strong>
      ${siblings.length > 1 && html`<span class="branches"><button type="button" aria-label="Earlier version" disabled=${busy || at === 0} onClick=${() => actions.sibling(siblings[at - 1])}>‹</button>
        ${at + 1} / ${siblings.length}<button type="button" aria-label="Later version" disabled=${busy || at === siblings.length - 1} onClick=${() => actions.sibling(siblings[at + 1])}>›</button></span>`}</div>
    ${turn.reasoning && html`<details class="thought" open=${grows && !turn.content}><summary>Thought${turn.usage?.completion_tokens_details?.reasoning_tokens
      ? `, ${number(turn.usage.completion_tokens_details.reasoning_tokens)} tokens` : ""}</summary><${AsItIs} text=${turn.reasoning} /></details>`}
    ${turn.steps?.length > 0 && html`<${Steps} turn=${turn} grows=${grows} />`}
    ${editing ? html`<${Editor} turn=${turn} onSave=${save} onLeave=${() => setEditing(false)} />`
      : inspecting ? html`<${Inspector} tokens=${turn.tokens} />`
      : turn.approve !== undefined ? html`<${Answered} turn=${turn} />`
      : turn.role === "assistant" ? html`<${Answer} turn=${turn} running=${grows} conversation=${conversation} />` : html`<${AsItIs} text=${turn.content} />`}
    ${running && (doing || (!turn.content && !turn.reasoning && !turn.calls?.length)) && html`<p class="waiting" role="status">${doing || "Reading"}…</p>`}
    ${turn.calls?.map((made) => (asks(made)
      ? html`<${Approval} key=${made.id} made=${made} running=${grows} open=${opens(made)} onAnswer=${(approve, reason) => actions.result(turn, made, reason, approve)} />`
      : html`<${Call} key=${made.id} made=${made} running=${running} open=${opens(made)} onResult=${(r) => actions.result(turn, made, r)} />`))}
    ${turn.error && html`<p class="trouble" role="alert">${turn.error}</p>`}
    ${!running && !editing && html`<footer>${turn.role === "assistant" && html`<span class="took"><${End} turn=${turn} elsewhere=${elsewhere} />${took(turn)}</span>`}
      <${Actions} turn=${turn} busy=${busy} last=${last} elsewhere=${elsewhere} inspecting=${inspecting} editor=${editor} onEdit=${() => setEditing(true)} onInspect=${() => setInspecting(!inspecting)} actions=${actions} /></footer>`}
    ${!grows && !editing && turn.answer && ["stop", "length"].includes(turn.finish) && html`<${Feedback} key=${turn.answer} turn=${turn} onRated=${actions.rated} />`}
  </article>`;
}
