// Conversations behind one system prompt: USERS of them, TURNS turns each, with time to think between. What the prefix cache spares of each
// prompt is in `spared`, as a share of its tokens; the first turns of conversations and the later ones have times of their own.
import { Trend } from 'k6/metrics';
import { ask, number, options as build, summary, think, vocabulary, URL, LATENCY, SECONDS } from './lib.js';
import http from 'k6/http';

const SYSTEM_TOKENS = number('SYSTEM', 500);
const TURNS = number('TURNS', 6);
const ANSWER = number('ANSWER', 40);
const THINK_SECONDS = number('THINK', 1);
const QUESTIONS = ['What is 17 + 25?', 'Reverse the word harbour.', 'And twice as much?', 'Who are you?', 'Sort: pear, apple, fig.'];

const spared = new Trend('spared');
const firstTurn = new Trend('ttft_first_turn', true);
const laterTurns = new Trend('ttft_later_turns', true);

export const options = build(
  { users: { executor: 'constant-vus', vus: number('USERS', 8), duration: `${SECONDS}s`, gracefulStop: '60s' } },
  // Half of all prompts is the system prompt alone, unless the cache is too small for it or off.
  Object.assign({ refused: ['count==0'], spared: ['avg>0.5'] }, LATENCY),
);
export const handleSummary = summary('conversation');

export function setup() {
  const words = vocabulary();
  const ids = Array.from({ length: SYSTEM_TOKENS }, (_, at) => words[(at * 7) % words.length]);
  const reply = http.post(`${URL}/detokenize`, JSON.stringify({ tokens: ids }), { headers: { 'Content-Type': 'application/json' } });
  return { system: reply.json('prompt') };
}

export default function ({ system }) {
  const messages = [{ role: 'system', content: system }];
  for (let turn = 0; turn < TURNS; turn++) {
    messages.push({ role: 'user', content: QUESTIONS[(__VU + __ITER + turn) % QUESTIONS.length] });
    const timings = ask('/v1/chat/completions', { messages, max_tokens: ANSWER, stream: true });
    if (timings) {
      spared.add(timings.cache_n / (timings.cache_n + timings.prompt_n));
      (turn === 0 ? firstTurn : laterTurns).add(timings.ttft_ms);
    }
    messages.push({ role: 'assistant', content: 'Yes, that is so.' });
    think(THINK_SECONDS);
  }
}
