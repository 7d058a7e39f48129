// Does it answer at all: a few users, streamed and not, each reply with its timings.
import { ask, options as build, summary, LATENCY } from './lib.js';

export const options = build({ users: { executor: 'per-vu-iterations', vus: 4, iterations: 5, maxDuration: '60s' } }, LATENCY);
export const handleSummary = summary('smoke');

export default function () {
  const stream = __ITER % 2 === 0;
  const messages = [{ role: 'user', content: `What is ${__VU} + ${__ITER}?` }];
  ask('/v1/chat/completions', { messages, stream, max_tokens: 64 });
}
