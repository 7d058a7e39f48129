// Where a person writes. Each conversation has its own draft while the page is open.

import { html, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { later } from "./later.js";

const ChosenStores = later(async () => (await import("./choice.js")).ChosenStores);
const ChosenTools = later(async () => (await import("./tools.js")).ChosenTools);

const FILE_MAX = 256 * 1024;

const drafts = new Map();

/** Whether a key sends: Enter, unless it makes a new line or chooses a word of an input method. */
export const sends = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

export function Composer({ busy, onSay, onStop, onTrouble, conversation, settings, onChange }) {
  const [text, setText] = useState(drafts.get(conversation) || "");
  const place = useRef(null);
  const set = (text) => {
    drafts.set(conversation, text);
    setText(text);
  };
  useLayoutEffect(() => place.current.focus(), []);
  const send = (event) => {
    event?.preventDefault();
    if (busy || !text.trim()) return;
    set("");
    onSay(text);
  };
  const read = async (files) => {
    for (const file of files) {
      if (file.size > FILE_MAX) {
        onTrouble(`${file.name} has ${file.size} bytes, the most that is taken is ${FILE_MAX}`);
        continue;
      }
      const content = await file.text();
      const before = drafts.get(conversation) || "";
      if (content.includes("\0")) onTrouble(`${file.name} is not text`);
      else set(`${before}${before && "\n\n"}${file.name}:\n\`\`\`\n${content.replace(/\n$/, "")}\n\`\`\`\n`);
    }
  };
  const taken = (event) => {
    const files = [...((event.clipboardData || event.dataTransfer)?.files || [])];
    if (!files.length) return;
    event.preventDefault();
    read(files);
  };
  return html`<form class="composer" onSubmit=${send} onDrop=${taken} onDragOver=${(e) => e.preventDefault()}>
    <label class="unseen" for="ask">Your message</label>
    <textarea id="ask" dir="auto" ref=${place} rows=${Math.min(12, Math.max(2, text.split("\n").length))} value=${text} onInput=${(e) => set(e.target.value)}
      onKeyDown=${(e) => sends(e) && send(e)} onPaste=${taken} placeholder="Your message. Enter sends, Shift+Enter makes a new line, files become text."></textarea>
    <div class="row"><label class="button">Add a file<input type="file" class="unseen" multiple onChange=${(e) => { read([...e.target.files]); e.target.value = ""; }} /></label>
      <${ChosenStores} settings=${settings} onChange=${onChange} />
      <${ChosenTools} settings=${settings} onChange=${onChange} />
      <span class="grow"></span>
      ${busy ? html`<button type="button" class="first" onClick=${onStop}>Stop <kbd>Esc</kbd></button>`
        : html`<button type="submit" class="first" disabled=${!text.trim()}>Send</button>`}</div>
  </form>`;
}
