// All conversations of this browser and what is being answered in them, outside of any view. Tabs tell each other of each turn.

import { useEffect, useState } from "./vendor/preact-htm.js";
import { storesOf } from "./annotations.js";
import { Generation } from "./generation.js";
import { DEFAULTS, fields, load } from "./settings.js";
import * as store from "./store.js";
import * as tree from "./tree.js";

const CHOSEN = "chimere.conversation"; // of this tab
const HEARD_MS = 4000; // a tab that generates is heard each second

class Library {
  constructor() {
    this.all = new Map(); // by name; `turns` is null until they are wanted
    this.current = tree.conversation(load());
    this.generations = new Map(); // by the conversation's name
    this.heard = new Map(); // turns that other tabs write, and when they last said so
    this.watchers = new Set();
    this.trouble = "";
    this.models = []; // that are served, the one that is asked where none was chosen first
    this.onClosed = () => {};
    this.onKept = () => {}; // called as soon as it is known that there are conversations of earlier visits
    this.ready = this.open();
  }

  /** Conversations, the latest first. */
  get list() {
    return [...this.all.values()].sort((a, b) => b.updated - a.updated);
  }

  async open() {
    this.channel = new BroadcastChannel("chimere.conversations");
    this.channel.onmessage = ({ data }) => this.hear(data);
    await this.stored(async () => {
      for (const head of await store.heads()) this.all.set(head.id, { ...head, settings: { ...DEFAULTS, ...head.settings }, turns: null });
      if (this.all.size) this.onKept();
      const chosen = this.all.get(sessionStorage.getItem(CHOSEN)) || this.list[0];
      if (chosen && !Object.keys(this.current.turns).length) await this.choose(chosen);
    });
    // Tabs that write say so, so that their answers do not look cut off here.
    this.tell({ kind: "who" });
  }

  /** Does something with the database; if that fails the page goes on and says so. */
  async stored(act) {
    try {
      return await act();
    } catch (error) {
      this.say(error instanceof store.Unusable ? error.message : `This browser does not keep conversations: ${error.message}`);
    }
  }

  // What views do.

  watch(watcher) {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** Has the views drawn again, at most once a frame. */
  changed() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    for (const watcher of this.watchers) watcher();
  }

  say(trouble) {
    this.trouble = trouble;
    this.changed();
  }

  async choose(c) {
    await this.turnsOf(c);
    this.current = c;
    this.trouble = "";
    sessionStorage.setItem(CHOSEN, c.id);
    // Not at the next frame: a key that comes sooner would be for the conversation that was shown before.
    this.draw();
  }

  begin() {
    return this.choose(tree.conversation(load()));
  }

  /** A conversation with its turns. */
  async turnsOf(c) {
    if (c.turns) return c;
    const found = (await this.stored(() => store.turns(c.id))) || {};
    c.turns ||= found;
    tree.mend(c);
    return c;
  }

  generation(c) {
    return this.generations.get(c.id);
  }

  /** Whether another tab writes this turn now. */
  elsewhere(turn) {
    return turn.open && Date.now() - (this.heard.get(turn.id) || 0) < HEARD_MS;
  }

  // What is kept. Each change is told to other tabs.

  tell(message) {
    this.channel?.postMessage(message);
  }

  keepHead(c) {
    this.all.set(c.id, c);
    this.changed();
    const { turns, ...head } = c;
    this.tell({ kind: "head", head });
    return this.stored(() => store.putHead(head));
  }

  keepTurn(c, turn) {
    this.tell({ kind: "turn", conversation: c.id, turn });
    return this.stored(() => store.putTurn(c.id, turn));
  }

  /** Keeps conversations of a file; those that are here get the turns that they lack. */
  async bring(found) {
    for (const c of found) {
      const own = this.all.get(c.id);
      if (own) await this.turnsOf(own);
      const kept = own || c;
      const lacking = Object.values(c.turns).filter((turn) => !own?.turns[turn.id]);
      for (const turn of lacking) kept.turns[turn.id] = turn;
      for (const turn of lacking) await this.keepTurn(kept, turn);
      await this.keepHead(kept);
    }
    await this.choose(this.all.get(found[0].id));
  }

  async remove(c) {
    this.generation(c)?.stop();
    this.all.delete(c.id);
    if (c === this.current) this.begin();
    this.changed();
    this.tell({ kind: "gone", conversation: c.id });
    await this.stored(() => store.remove(c.id));
  }

  async removeTurn(c, turn) {
    const turns = tree.prune(c, turn);
    this.tell({ kind: "gone", conversation: c.id, turns });
    await this.stored(() => store.removeTurns(c.id, turns));
    await this.keepHead(c);
  }

  /** Takes what another tab says. */
  hear({ kind, head, conversation, turn, turns }) {
    if (kind === "who") return this.answerWho();
    if (kind === "head") this.hearHead(head);
    const c = this.all.get(conversation);
    if (kind === "turn" && turn.open) this.heard.set(turn.id, Date.now());
    if (kind === "turn" && c?.turns && this.generation(c)?.turn.id !== turn.id) this.hearTurn(c, turn);
    if (kind === "gone" && c) this.hearGone(c, turns);
    this.changed();
  }

  hearTurn(c, turn) {
    tree.adopt(c, turn);
    // An answer that nobody goes on with looks cut off after a while.
    if (turn.open) setTimeout(() => this.changed(), HEARD_MS);
  }

  answerWho() {
    for (const [conversation, { turn }] of this.generations) this.tell({ kind: "turn", conversation, turn: { ...turn, tokens: [] } });
  }

  /** The title and the settings are those that were set last; each tab shows its own path. */
  hearHead(head) {
    const own = this.all.get(head.id);
    if (own) Object.assign(own, { title: head.title, settings: head.settings, updated: head.updated });
    else this.all.set(head.id, { ...head, turns: null });
  }

  hearGone(c, turns) {
    if (!turns) {
      this.generation(c)?.stop();
      this.all.delete(c.id);
      if (c === this.current) this.begin();
      return;
    }
    if (!c.turns) return;
    for (const name of turns) delete c.turns[name];
    tree.mend(c);
  }

  // What is said.

  /** Adds what a person says after the shown turn, and asks for the answer. */
  async ask(c, content) {
    await this.answer(c, await this.add(c, c.leaf, { role: "user", content }));
  }

  async add(c, parent, turn) {
    const added = tree.add(c, parent, turn);
    await Promise.all([this.keepTurn(c, added), this.keepHead(c)]);
    return added;
  }

  /** Asks the service for what comes after `parent`, as a new turn. */
  async answer(c, parent) {
    const body = this.body(c, parent);
    if (!body) return;
    const turn = tree.add(c, parent.id, { role: "assistant", content: "", reasoning: "", calls: [], tokens: [], steps: [], annotations: [], stores: storesOf(body.tools) });
    await this.generate(c, turn, body);
  }

  /** Asks the service to go on with an answer that is not over. */
  async goOn(c, turn) {
    const body = this.body(c, turn);
    if (body) await this.generate(c, turn, { ...body, continue_final_message: true });
  }

  body(c, last) {
    this.say("");
    try {
      const asked = fields(c.settings), runsTools = (asked.tools || []).some((tool) => tool.type === "mcp");
      return { model: c.settings.model || this.models[0]?.id, messages: tree.messages(c, last, runsTools), stream: true, stream_options: { include_usage: true, include_steps: true }, ...asked };
    } catch (error) {
      this.say(error.message);
      return null;
    }
  }

  async generate(c, turn, body) {
    const made = new Generation(turn, { onGrown: () => this.changed(), onSave: (turn) => this.all.has(c.id) && c.turns[turn.id] && this.keepTurn(c, turn) });
    this.generations.set(c.id, made);
    this.keepTurn(c, { ...turn, open: true });
    this.keepHead(c);
    const failure = await made.run(body);
    this.generations.delete(c.id);
    c.updated = Date.now();
    if (this.all.has(c.id)) await this.keepHead(c);
    if ([0, 401].includes(failure?.status)) this.onClosed(failure);
    this.changed();
  }
}

export const library = new Library();

/** The library, and the view drawn again when it changed. */
export function useLibrary() {
  const [, draw] = useState(0);
  useEffect(() => library.watch(() => draw((n) => n + 1)), []);
  return library;
}
