// People who read and think: conversations of a few turns. USERS of them, within the service's capacity, so none is refused.
import { ask, number, options as build, summary, think, LATENCY, SECONDS } from './lib.js';

const QUESTIONS = ['What is 17 + 25?', 'Reverse the word harbour.', 'And twice as much?', 'Who are you?', 'Sort: pear, apple, fig.'];
const THINK_SECONDS = number('THINK', 2);
const TURNS = 3;

export const options = build(
  { users: { executor: 'constant-vus', vus: number('USERS', 8), duration: `${SECONDS}s`, gracefulStop: '60s' } },
  Object.assign({ refused: ['count==0'] }, LATENCY),
);
export const handleSummary = summary('steady');

export default function () {
  const messages = [];
  for (let turn = 0; turn < TURNS; turn++) {
    const question = QUESTIONS[(__VU + __ITER + turn) % QUESTIONS.length];
    messages.push({ role: 'user', content: question });
    ask('/v1/chat/completions', { messages, stream: true, max_tokens: 128 });
    messages.push({ role: 'assistant', content: 'Yes.' });
    think(THINK_SECONDS);
  }
}
