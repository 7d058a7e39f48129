// The chat: conversations at the left, the shown path of one in the middle, settings at the right when asked for.

import { html, useEffect, useLayoutEffect, useState } from "./vendor/preact-htm.js";
import { plain } from "./annotations.js";
import { Composer } from "./composer.js";
import { useReturn } from "./focus.js";
import { useLibrary } from "./library.js";
import { List } from "./list.js";
import { Settings } from "./settings.js";
import { Turns } from "./turns.js";
import * as tree from "./tree.js";

/** What can be done with the turns of a conversation. */
const actionsOf = (library, c) => ({
  /** What a person said is asked anew; what the model said is kept as the person would have it. */
  edit: async (turn, content) => {
    const { role, callId, name } = turn;
    const added = { role, content, callId, name };
    if (role === "assistant") return library.add(c, turn.parent, { ...added, reasoning: turn.reasoning || "", calls: [], tokens: [], finish: "edited" });
    library.answer(c, await library.add(c, turn.parent, added));
  },
  retry: (turn) => library.answer(c, c.turns[turn.parent]),
  goOn: (turn) => library.goOn(c, turn),
  rated: (turn, rating) => {
    turn.rating = rating;
    library.keepTurn(c, turn);
    library.changed();
  },
  remove: (turn) => {
    const after = tree.below(c, turn).length - 1;
    if (confirm(after ? `Delete this turn and the ${after} after it?` : "Delete this turn?")) library.removeTurn(c, turn);
  },
  /** Answers a call with its result or, with `approve`, whether it may run. */
  result: async (turn, made, content, approve) => {
    const answers = () => new Set(tree.path(c).filter((t) => t.role === "tool").map((t) => t.callId));
    // A second press before the first one is drawn.
    if (answers().has(made.id)) return;
    const added = await library.add(c, c.leaf, { role: "tool", callId: made.id, name: made.name, content, ...(approve === undefined ? {} : { approve }) });
    const answered = answers();
    if (turn.calls.every((call) => answered.has(call.id))) library.answer(c, added);
  },
  sibling: (turn) => {
    tree.show(c, turn);
    library.keepHead(c);
  },
});

/** How much of the model's context the conversation takes. */
function Context({ used, most }) {
  if (!used || !most) return null;
  const words = `${used.toLocaleString("en")} of ${most.toLocaleString("en")} tokens`;
  return html`<span class="context" title="What the last answer and its prompt took of the context"><meter min="0" max=${most} high=${0.8 * most} value=${used} aria-label=${`Context used: ${words}`}></meter> <span>${words}</span></span>`;
}

/** Which model answers here: one that is served, one of its adapters, or a pipeline. */
function ModelChoice({ models, value, onChange }) {
  const names = models.map((model) => model.id);
  if (names.length < 2 && !value) return null;
  return html`<select class="which" aria-label="Model" value=${value} title="The model, adapter or pipeline that answers here" onChange=${(e) => onChange(e.target.value)}>
    <option value="" selected=${!value}>${plain(names[0] || "…")}</option>
    ${names.slice(1).map((name) => html`<option value=${name} selected=${name === value}>${plain(name)}</option>`)}
    ${value && !names.slice(1).includes(value) && html`<option value=${value} selected>${plain(value)}, not served</option>`}</select>`;
}

export function Chat({ model }) {
  const library = useLibrary();
  const [showSettings, setShowSettings] = useState(false);
  const opener = useReturn(showSettings);
  const [showList, setShowList] = useState(false);
  const lister = useReturn(showList);
  const current = library.current;
  const busy = Boolean(library.generation(current));
  const stop = () => library.generation(library.current)?.stop();
  const say = (content) => library.ask(current, content);
  const change = (settings) => {
    current.settings = settings;
    // A conversation without turns is kept when something is said.
    if (library.all.has(current.id)) library.keepHead(current);
    else library.changed();
  };

  // Not after the next picture: a key that comes sooner would be read as if the list were still as it was.
  useLayoutEffect(() => {
    const pressed = (event) => {
      // On a telephone the list lies over the conversation.
      if (event.key === "Escape") showList ? setShowList(false) : stop();
      if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        library.begin();
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [showList]);
  useEffect(() => void (showSettings && document.querySelector(".settings").focus()), [showSettings]);

  return html`<div class=${`chat ${showList ? "with-list" : ""}`}>
    <${List} library=${library} onShow=${() => setShowList(false)} />
    <section class="conversation" aria-label="Conversation">
      <div class="tools"><button type="button" class="narrow" ref=${lister} onClick=${() => setShowList(!showList)} aria-expanded=${showList}>Conversations</button>
        <${ModelChoice} models=${library.models} value=${current.settings.model} onChange=${(model) => change({ ...current.settings, model })} />
        <span class="grow"></span>
        <${Context} used=${tree.used(current)} most=${model?.max_model_len} />
        <button type="button" ref=${opener} onClick=${() => setShowSettings(!showSettings)} aria-expanded=${showSettings}>Settings</button></div>
      <${Turns} key=${current.id} library=${library} conversation=${current} busy=${busy} actions=${actionsOf(library, current)} onSay=${say} />
      ${library.trouble && html`<p class="trouble" role="alert">${library.trouble}</p>`}
      <${Composer} key=${current.id} busy=${busy} onSay=${say} onStop=${stop} onTrouble=${(words) => library.say(words)} conversation=${current.id} settings=${current.settings} onChange=${change} />
    </section>
    ${showSettings && html`<${Settings} key=${current.id} settings=${current.settings} onChange=${change} onClose=${() => setShowSettings(false)} />`}
  </div>`;
}
