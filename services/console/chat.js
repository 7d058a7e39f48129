// The chat: conversations at the left, the shown path of one in the middle, settings at the right when asked for.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { call, events } from "./api.js";
import { compact } from "./inspector.js";
import { Message } from "./message.js";
import { Settings, fields, load, save } from "./settings.js";
import * as store from "./store.js";
import * as tree from "./tree.js";

const FILE_MAX = 256 * 1024;
const SUGGESTIONS = ["Who are you?", "What is 48 + 276?", "Reverse the word lantern."];

/** Takes what a chunk adds to a turn. */
function take(turn, chunk) {
  if (chunk.timings) turn.timings = chunk.timings;
  if (chunk.usage) turn.usage = chunk.usage;
  if (chunk.seed !== undefined) turn.seed = chunk.seed;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const { delta } = choice;
  turn.content += delta.content || "";
  turn.reasoning += delta.reasoning_content || "";
  for (const part of delta.tool_calls || []) {
    const made = (turn.calls[part.index] ||= { id: "", name: "", arguments: "" });
    made.id ||= part.id || "";
    made.name += part.function?.name || "";
    made.arguments += part.function?.arguments || "";
  }
  const scores = choice.logprobs || {};
  for (const list of [scores.reasoning_logprobs, scores.content, scores.tool_calls_logprobs]) for (const t of list || []) turn.tokens.push(compact(t));
  if (choice.finish_reason) turn.finish = choice.finish_reason;
}

/** The chat's state outside of any drawing: what is kept, what is shown, what is being answered. */
function useConversations() {
  const [list, setList] = useState([]);
  const [current, setCurrent] = useState(() => tree.conversation());
  const [, draw] = useState(0);
  useEffect(() => {
    store.all().then((found) => {
      setList(found);
      if (found[0]) setCurrent(found[0]);
    }, () => {});
  }, []);
  const keep = (c) => {
    setList((list) => [c, ...list.filter((other) => other.id !== c.id)].sort((a, b) => b.updated - a.updated));
    return store.put(c).catch(() => {});
  };
  const remove = async (c) => {
    await store.remove(c.id).catch(() => {});
    setList((list) => list.filter((other) => other.id !== c.id));
    if (c.id === current.id) setCurrent(tree.conversation());
  };
  return { list, current, setCurrent, keep, remove, draw: () => draw((n) => n + 1) };
}

export function Chat({ model, onClosed }) {
  const conversations = useConversations();
  const { current, keep, draw } = conversations;
  const [settings, setSettings] = useState(load);
  const [showSettings, setShowSettings] = useState(false);
  const [showList, setShowList] = useState(false);
  const [trouble, setTrouble] = useState("");
  const running = useRef(null);

  const change = (next) => {
    setSettings(next);
    save(next);
  };

  /** Asks the service for what comes after `parent`, as a new turn. */
  const answer = async (parent) => {
    setTrouble("");
    let body;
    try {
      current.system = settings.system;
      body = { model: model?.id, messages: tree.messages(current, parent), stream: true, stream_options: { include_usage: true }, ...fields(settings) };
    } catch (error) {
      return setTrouble(error.message);
    }
    const turn = tree.add(current, parent.id, { role: "assistant", content: "", reasoning: "", calls: [], tokens: [], begun: performance.now() });
    const stop = new AbortController();
    running.current = { stop, turn };
    draw();
    let waiting = false;
    const later = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        draw();
      });
    };
    try {
      for await (const chunk of events("/v1/chat/completions", { body, signal: stop.signal })) {
        if (!turn.first && chunk.choices?.[0]?.delta && (chunk.choices[0].delta.content || chunk.choices[0].delta.reasoning_content)) turn.first = performance.now() - turn.begun;
        take(turn, chunk);
        later();
      }
    } catch (error) {
      if (error.name === "AbortError") turn.finish = "stopped";
      else {
        turn.finish = "error";
        turn.error = error.message;
        if (error.status === 401 || error.status === 403 || error.status === 0) onClosed(error);
      }
    }
    turn.total = performance.now() - turn.begun;
    delete turn.begun;
    running.current = null;
    current.updated = Date.now();
    await keep(current);
    draw();
  };

  const say = (content) => {
    const parent = current.turns[current.leaf];
    const turn = tree.add(current, parent?.id ?? null, { role: "user", content });
    keep(current);
    return answer(turn);
  };
  const actions = {
    edit: (turn, content) => answer(tree.add(current, turn.parent, { role: turn.role, content, callId: turn.callId, name: turn.name })),
    retry: (turn) => answer(current.turns[turn.parent]),
    result: (turn, made, content) => {
      const added = tree.add(current, current.leaf, { role: "tool", callId: made.id, name: made.name, content });
      const answered = new Set(tree.path(current).filter((t) => t.role === "tool").map((t) => t.callId));
      if (turn.calls.every((c) => answered.has(c.id))) answer(added);
      else draw();
    },
    sibling: (turn) => {
      tree.show(current, turn);
      keep(current);
      draw();
    },
  };
  const busy = Boolean(running.current);
  const stop = () => running.current?.stop.abort();

  useEffect(() => {
    const pressed = (event) => {
      if (event.key === "Escape" && running.current) stop();
      if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        conversations.setCurrent(tree.conversation());
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  useEffect(() => stop, []);

  const path = tree.path(current);
  return html`<div class=${`chat ${showList ? "with-list" : ""}`}>
    <${List} conversations=${conversations} busy=${busy} onShow=${() => setShowList(false)} onTrouble=${setTrouble} />
    <section class="conversation" aria-label="Conversation">
      <div class="tools"><button type="button" class="narrow" onClick=${() => setShowList(!showList)} aria-expanded=${showList}>Conversations</button>
        <span class="grow"></span>
        <button type="button" onClick=${() => setShowSettings(!showSettings)} aria-expanded=${showSettings}>Settings</button></div>
      <${Turns} path=${path} current=${current} running=${running.current?.turn} busy=${busy} actions=${actions} onSay=${say} />
      ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
      <${Composer} busy=${busy} onSay=${say} onStop=${stop} onTrouble=${setTrouble} conversation=${current.id} />
    </section>
    ${showSettings && html`<${Settings} settings=${settings} onChange=${change} onClose=${() => setShowSettings(false)} />`}
  </div>`;
}

function Turns({ path, current, running, busy, actions, onSay }) {
  const place = useRef(null);
  const inner = useRef(null);
  const follows = useRef(true);
  // Follows the answer unless the reader has gone up. By the time that this is called everything is laid out.
  useEffect(() => {
    const grown = new ResizeObserver(() => follows.current && (place.current.scrollTop = place.current.scrollHeight));
    if (inner.current) grown.observe(inner.current);
    return () => grown.disconnect();
  }, [path.length === 0]);
  const scrolled = () => {
    const p = place.current;
    follows.current = p.scrollHeight - p.scrollTop - p.clientHeight < 60;
  };
  if (!path.length) {
    return html`<div class="turns empty"><p>Ask something, or try one of these:</p>
      <div class="suggestions">${SUGGESTIONS.map((s) => html`<button type="button" disabled=${busy} onClick=${() => onSay(s)}>${s}</button>`)}</div></div>`;
  }
  return html`<div class="turns" ref=${place} onScroll=${scrolled} tabindex="0" role="log" aria-label="Turns" aria-busy=${busy}><div ref=${inner}>
    ${path.map((turn) => html`<${Message} key=${turn.id} turn=${turn} siblings=${tree.siblings(current, turn)} running=${running === turn} busy=${busy} conversation=${current}
      answered=${path.filter((t) => t.role === "tool").map((t) => t.callId)} actions=${actions} />`)}</div></div>`;
}

function Composer({ busy, onSay, onStop, onTrouble, conversation }) {
  const [text, set] = useState("");
  const place = useRef(null);
  useEffect(() => place.current?.focus(), [conversation]);
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
      if (content.includes("\0")) onTrouble(`${file.name} is not text`);
      else set((text) => `${text}${text && "\n\n"}${file.name}:\n\`\`\`\n${content.replace(/\n$/, "")}\n\`\`\`\n`);
    }
  };
  const taken = (event) => {
    const files = [...((event.clipboardData || event.dataTransfer)?.files || [])];
    if (!files.length) return;
    event.preventDefault();
    read(files);
  };
  const pressed = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  return html`<form class="composer" onSubmit=${send} onDrop=${taken} onDragOver=${(e) => e.preventDefault()}>
    <label class="unseen" for="ask">Your message</label>
    <textarea id="ask" ref=${place} rows=${Math.min(12, Math.max(2, text.split("\n").length))} value=${text} onInput=${(e) => set(e.target.value)}
      onKeyDown=${pressed} onPaste=${taken} placeholder="Your message. Enter sends, Shift+Enter makes a new line, files become text."></textarea>
    <div class="row"><label class="button">Add a file<input type="file" class="unseen" multiple onChange=${(e) => { read([...e.target.files]); e.target.value = ""; }} /></label>
      <span class="grow"></span>
      ${busy ? html`<button type="button" class="first" onClick=${onStop}>Stop <kbd>Esc</kbd></button>`
        : html`<button type="submit" class="first" disabled=${!text.trim()}>Send</button>`}</div>
  </form>`;
}

function List({ conversations, busy, onShow, onTrouble }) {
  const { list, current, setCurrent, remove, keep } = conversations;
  const choose = (c) => {
    setCurrent(c);
    onShow();
  };
  const bring = async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    try {
      const found = JSON.parse(await file.text());
      const all = Array.isArray(found) ? found : [found];
      for (const c of all) {
        const wrong = tree.fault(c);
        if (wrong) throw new Error(`${c?.title || "a conversation"} ${wrong}`);
      }
      for (const c of all) await keep(c);
      choose(all[0]);
    } catch (error) {
      onTrouble(`${file.name} was not imported: ${error.message}`);
    }
  };
  return html`<nav class="list" aria-label="Conversations">
    <button type="button" class="first" disabled=${busy} onClick=${() => choose(tree.conversation())}>New conversation</button>
    <ul>${list.map((c) => html`<li key=${c.id} class=${c.id === current.id ? "chosen" : ""}>
      <button type="button" class="name" disabled=${busy} aria-current=${c.id === current.id ? "true" : undefined} onClick=${() => choose(c)}>${c.title || "Untitled"}</button>
      <button type="button" class="small" aria-label=${`Export ${c.title}`} title="Export" onClick=${() => download(`${c.title || "conversation"}.json`, c)}>↓</button>
      <button type="button" class="small" aria-label=${`Delete ${c.title}`} title="Delete" disabled=${busy} onClick=${() => confirm(`Delete “${c.title}”?`) && remove(c)}>✕</button></li>`)}</ul>
    <div class="row"><button type="button" onClick=${() => download("conversations.json", list)} disabled=${!list.length}>Export all</button>
      <label class="button">Import<input type="file" class="unseen" accept="application/json,.json" onChange=${bring} /></label></div>
  </nav>`;
}

function download(name, value) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], { type: "application/json" }));
  link.download = name.replace(/[^\w .-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
