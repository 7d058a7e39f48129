// More users than there are places, none of whom thinks: the service says no at once with a time to come back, and who comes back then is
// answered in the end. Run it against a service with few slots and a short queue (run.py does).
import { ask, completion, number, options as build, summary, vocabulary, SECONDS } from './lib.js';

export const options = build({
  users: { executor: 'constant-vus', vus: number('USERS', 64), duration: `${SECONDS}s`, gracefulStop: '120s' },
}, { refused: ['count>0'], gave_up: ['count==0'] });
export const handleSummary = summary('overload');
export const setup = vocabulary;

export default function (words) {
  ask('/v1/completions', completion(words, 64, 64));
}
