// A storm of clients that go away in the middle, beside a few that stay: those who stay are answered, and when all have gone nothing of
// the others is left in the service.
import { check, sleep } from 'k6';
import { Counter } from 'k6/metrics';
import { ask, completion, leave, metric, number, options as build, summary, vocabulary, SECONDS } from './lib.js';

const left = new Counter('left');
const CANCELLED = 'outcome="cancelled"';

export const options = build({
  leavers: { executor: 'constant-vus', vus: number('USERS', 24), duration: `${SECONDS}s`, gracefulStop: '10s', exec: 'go' },
  stayers: { executor: 'constant-vus', vus: 2, duration: `${SECONDS}s`, gracefulStop: '60s', exec: 'stay' },
}, { left: ['count>0'] });
export const handleSummary = summary('disconnect');
export const setup = () => ({ words: vocabulary(), cancelled: metric('chimere_requests_total', CANCELLED) });

export function go({ words }) {
  leave('/v1/completions', completion(words, 64, 2000), 20 + Math.random() * 400);
  left.add(1);
}

export function stay({ words }) {
  ask('/v1/completions', completion(words, 64, 32));
}

export function teardown({ cancelled }) {
  let busy = 1;
  for (let turn = 0; turn < 100 && busy > 0; turn++) {
    busy = metric('chimere_requests_running') + metric('chimere_requests_waiting') + metric('chimere_state_slots', 'state="used"')
      + metric('chimere_kv_pages', 'state="used"');
    sleep(0.1);
  }
  const seen = metric('chimere_requests_total', CANCELLED) - cancelled;
  check(busy, { 'nothing is left of those who went': (n) => n === 0 });
  check(seen, { 'their leaving was seen': (n) => n > 0 });
}
