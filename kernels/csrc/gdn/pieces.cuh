// Chunks of pieces: which tokens of which sequence a block has, and their rows.
#pragma once
#include "arguments.cuh"
#include "common/int8_rows.cuh"
#include "rows/inputs.cuh"

// What activations of 8 bits made is f16, of 16 bits f32.
#if PLANES == 1
typedef u16 Input;
#else
typedef float Input;
#endif
__device__ __forceinline__ const Input *inputs(const Arguments &args) { return (const Input *)args.x; }

struct Chunk {
    int slot, start, first_row, rows; // of the piece
    int index;                        // within the piece
    int filled;                       // tokens, 0: no chunk
    __device__ __forceinline__ u64 row(int token) const { return (u64)first_row + index * C + token; }
};
// The chunk with number `number`.
__device__ __forceinline__ Chunk find_chunk(const int4 *pieces, int count, int number) {
    int found = -1, lane = threadIdx.x % WARP;
    for (int base = 0; base < count; base += WARP) {
        int p = base + lane;
        u32 votes = __ballot_sync(~0u, p < count && pieces[p < count ? p : 0].z / C + p <= number);
        if (!votes) break;
        found = base + 31 - __clz(votes);
    }
    Chunk c = {-1, 0, 0, 0, 0, 0};
    if (found < 0) return c;
    int4 p = pieces[found];
    c.slot = p.x, c.start = p.y, c.first_row = p.z, c.rows = p.w, c.index = number - (p.z / C + found);
    if (c.slot >= 0) c.filled = max(0, min(C, c.rows - c.index * C));
    return c;
}
