// Limits, and what the threads of a block share.
#pragma once
#include "arguments.cuh"

#define THREADS 256
#define WARPS (THREADS / WARP)
#define SLICE_MAX 8192
#define BLOCKS_MAX 128
#define WORDS_MAX 3
#define LIST_MAX 128
#define TOP_MAX 20
#define BINS 1024
#define EACH_BINS (BINS / THREADS)

// By a row's code: 5 levels of 10 bits, then one of 2.
#define CODE_BITS 52
#define LEVEL_BITS 10
#define LEVEL_LAST 5

#define ALL (~0ull)
#define TEMPERATURE_MIN 1e-5f
#define WEIGHT_ONE (1u << 30)

// What the row's log-probabilities are of: the unedited logits at temperature 1, or what is drawn from. A `total` of 0: one token
// alone.
struct Raw {
    float best;
    u64 total;
};

// What was chosen: where rows may be told of what is drawn from, the element, with its edited logit; else its id.
#if DRAWN
typedef u64 Chosen;
#else
typedef u32 Chosen;
#endif
// A row without log-probabilities is told of nothing, whatever they would be of.
__device__ __forceinline__ bool told_of_draws(const SampleParams &p) { return DRAWN && p.processed && p.logprobs >= 0; }

// Which token a draw gives: that of a row that is drawn from once, the one without the sparse edits, or the one with them.
enum Draw { ONLY, PLAIN, EDITED };

struct __align__(16) Shared {
    float values[SLICE_MAX];
    union {
        u32 bins[2][BINS];
        struct {
            u64 item[LIST_MAX];
            u32 weight[LIST_MAX];
        } list;
    };
    u64 got[WORDS_MAX][BLOCKS_MAX];
    u64 part[WORDS_MAX][WARPS];
    u64 before, in_bin, bits, picked;
    u32 crit, listed;
    // Of the row; here because they are asked for at its end alone, and registers are few.
    Raw raw;
    u64 top;
    Draw which;
    u32 at;
    SampleParams row;
};
