// An answer that is being made. It belongs to its conversation and not to a view: it goes on whatever is shown.

import { characters, kept } from "./annotations.js";
import { events } from "./api.js";
import { take as takeSteps } from "./steps.js";

const SAVE_MS = 1000; // text that a closed page may lose

/** A token of the API as it is kept: text, because a browser stores many strings sooner than many objects. */
const compact = (t) => JSON.stringify({ text: t.token, logprob: t.logprob, top: t.top_logprobs.map((a) => [a.token, a.logprob]), report: t.report });

/** Takes what a chunk adds to a turn, of which `base` characters were there before. */
function take(turn, chunk, base) {
  if (chunk.timings) turn.timings = chunk.timings;
  if (chunk.seed !== undefined) turn.seed = chunk.seed;
  if (chunk.id) turn.answer = chunk.id; // what feedback names it by
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
  const cited = (delta.annotations || []).map((annotation) => kept(annotation, base)).filter(Boolean);
  if (cited.length) turn.annotations = [...(turn.annotations || []), ...cited];
  const scores = choice.logprobs || {};
  for (const list of [scores.reasoning_logprobs, scores.content, scores.tool_calls_logprobs]) for (const t of list || []) turn.tokens.push(compact(t));
  if (choice.finish_reason) turn.finish = choice.finish_reason;
}

/** What two requests took of the context, of which the second went on with the answer of the first. */
function joined(before, usage) {
  if (!before) return usage;
  const prompt = Math.min(before.prompt_tokens, usage.prompt_tokens);
  return { ...usage, prompt_tokens: prompt, completion_tokens: usage.prompt_tokens + usage.completion_tokens - prompt };
}

export class Generation {
  /** `onGrown` is called for each chunk, `onSave` from time to time and at the end. */
  constructor(turn, { onGrown, onSave }) {
    Object.assign(this, { turn, onGrown, onSave, stopper: new AbortController(), saved: performance.now() });
  }

  stop() {
    this.stopper.abort();
  }

  /** Asks, and takes the answer to its end. Throws nothing: what went wrong stands in the turn, and is given as well. */
  async run(body) {
    const { turn } = this;
    const begun = performance.now();
    const before = turn.usage, base = characters(turn.content);
    Object.assign(turn, { open: true, error: "", finish: "" });
    let failure = null;
    try {
      for await (const chunk of events("/v1/chat/completions", { body, signal: this.stopper.signal })) {
        const delta = chunk.choices?.[0]?.delta;
        if (!turn.first && (delta?.content || delta?.reasoning_content)) turn.first = performance.now() - begun;
        take(turn, chunk, base);
        takeSteps(turn, chunk, performance.now());
        if (chunk.usage) turn.usage = joined(before, chunk.usage);
        this.grown();
      }
    } catch (error) {
      failure = error;
      turn.finish = error.name === "AbortError" ? "stopped" : "error";
      if (turn.finish === "error") turn.error = error.message;
    }
    turn.total = performance.now() - begun;
    turn.open = false;
    this.onSave(turn);
    return failure;
  }

  grown() {
    this.onGrown();
    const now = performance.now();
    if (now - this.saved < SAVE_MS) return;
    this.saved = now;
    // The tokens of the inspector are many and are kept once, at the end.
    this.onSave({ ...this.turn, tokens: [] });
  }
}
