// history[token] |= the bit that says "of the prompt", for every token of a list
//
// What `embed` notes of a prompt's rows, for rows that are not computed because their state was kept. One thread a token; a prompt
// names few tokens often, so words are found set and left alone. Bound: 4 bytes a token and the words that change.
//
// history: one sequence's [VOCAB] u16 in words of two, of which the first entry is number `first` of the array. A token beyond the
// vocabulary is left out.
//
// -D: VOCAB.
#include "common/base.cuh"
#include "arguments.cuh"

#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS) history(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= args.count) return;
    u32 token = args.tokens[i];
    if (token >= VOCAB) return;
    u64 entry = args.first + token;
    u32 *word = args.history + entry / 2, bit = 0x8000u << entry % 2 * 16;
    if (!(*(volatile u32 *)word & bit)) atomicOr(word, bit);
}
