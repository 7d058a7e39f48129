#!/usr/bin/env python3
"""Trains the draft head right behind a training that runs beside it: compiled beforehand, it waits for the weights, then goes on until a time.

    python3 train.py ... --work w1 --exam-every 0 --exam-last --announce done --minutes 8 &
    python3 behind.py done w1/weights $(($(date +%s) + 565)) ... --work w2 --init nano-q8_0.gguf --from-start --steps 100000 --decay-from 20000

A device that is lent for ten minutes so gives both, and the exam of the first runs beside the second.
"""
import pathlib
import sys
import time

import draft_head
import train

DONE, WEIGHTS, DEADLINE = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), float(sys.argv.pop(1))


class Behind(draft_head.DraftTrainer):
    def __init__(self, args, device):
        super().__init__(args, device)
        batch = train.STREAM.batch(0)
        for _ in range(2):
            whole, _ = self.objective(batch)
            whole.backward()
            self.net.zero_grad(set_to_none=True)
        print("draft head: ready; as it was, on the card's rows", self.tell(), flush=True)
        while not DONE.exists():
            if time.time() > DEADLINE:
                sys.exit("the weights never came")
            time.sleep(0.2)
        train.load_weights(self.net, WEIGHTS)
        for k, p in self.trained.items():
            self.average[k].copy_(p.detach())
        print("draft head: the new weights before its training", self.tell(), flush=True)
        train.PROCESS_STARTED = time.time()
        args.minutes = (DEADLINE - time.time()) / 60
        print("draft head: minutes", args.minutes, flush=True)

    def tell(self):
        """Shares of right guesses, in chains that were right so far; tokens a step with three drafts."""
        _, _, counts = self.chains(self.asked)
        shares = [round((right / looked_at.clamp(min=1)).item(), 4) for looked_at, right in counts]
        a, b, c = shares[:3]
        return shares, round(1 + a + a * b + a * b * c, 3)

    def save(self, full=True):
        print("draft head: in the end", self.tell(), flush=True)
        super().save(full=False)


def main():
    ap = train.parser(__doc__)
    ap.add_argument("--guesses", type=int, default=5)
    args = ap.parse_args()
    args.exam_every = 0
    train.run(args, Behind)


if __name__ == "__main__":
    main()
