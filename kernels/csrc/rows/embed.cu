// x[row] = table[token] * scale, the int8 form of x * w, and the token's place in the history of its sequence     x: [rows, COLS] f32
//
// One block a row, a thread holds eight values (common/int8_rows.cuh, quantize_quads). The table keeps its file's encoding, and is in device
// memory or in host memory that the device reads; so a row comes in whole words, once, into shared memory, and is decoded there.
// Bound: the encoded row in; 4 * COLS of x, 1.25 * COLS of int8 form and COLS / 8 of squares out.
//
// history: [slots][VOCAB] u16 in words of two: bit 15 says that the token is of the prompt, the others count how often it was
// generated. A token beyond the vocabulary gives a row of NaN. slots[row] < 0: no row, a row of zeros.
//
// First of a step: it waits before it reads anything but weights, as all do.
//
// -D: COLS (a multiple of 32), PADDED (COLS up to a multiple of 128), VOCAB, ENCODING, PLANES.
#include "common/int8_rows.cuh"
#include "arguments.cuh"
#include "rows/tables.cuh"

using Table = TableOf<ENCODING>;
#define ROW_BYTES (COLS / Table::VALUES * Table::BYTES)
using Word = WordOf<ROW_BYTES>::Word;
#define WORDS (ROW_BYTES / (int)sizeof(Word))
#define THREADS ((COLS / 8 + WARP - 1) / WARP * WARP)

// By one thread. Other rows of the step may name the other half of the same word, or the same half.
__device__ __forceinline__ void remember(u32 *history, u64 entry, bool prompt) {
    u32 *word = history + entry / 2;
    int shift = (int)(entry % 2) * 16;
    if (prompt) {
        atomicOr(word, 0x8000u << shift);
        return;
    }
    // A turn that does not end the loop means that another row's has changed the word; each row changes it once.
    u32 seen = *(volatile u32 *)word;
    while ((seen >> shift & 0x7fff) != 0x7fff) {
        u32 before = atomicCAS(word, seen, seen + (1u << shift));
        if (before == seen) return;
        seen = before;
    }
}

__device__ __forceinline__ float4 times(float4 a, float by) {
    return make_float4(__fmul_rn(a.x, by), __fmul_rn(a.y, by), __fmul_rn(a.z, by), __fmul_rn(a.w, by));
}

extern "C" __global__ void __launch_bounds__(THREADS) embed(const Arguments args) {
    __shared__ __align__(16) u8 encoded[ROW_BYTES];
    let_next_start();
    u64 row = blockIdx.x;
    int tid = threadIdx.x, block = tid / 4, first = block * 32 + tid % 4 * 4;
    bool live = tid < COLS / 8;
    float4 w0, w1;
    w0 = w1 = make_float4(0, 0, 0, 0);
    if (live) w0 = __ldg((const float4 *)(args.weight + first)), w1 = __ldg((const float4 *)(args.weight + first + 16));
    wait_for_inputs();

    int slot = args.slots[row], token = args.tokens[row];
    if (slot >= 0 && token == -1) token = args.sampled[slot];
    bool known = slot >= 0 && (u32)token < VOCAB;
    if (known) {
        const Word *from = (const Word *)(args.table + (u64)token * ROW_BYTES);
        for (int i = tid; i < WORDS; i += THREADS) ((Word *)encoded)[i] = from[i];
        if (tid == THREADS - 1 && args.history)
            remember(args.history, (u64)slot * VOCAB + token, args.positions[row] < args.prompt_lens[row]);
    }
    __syncthreads();
    float none = slot < 0 ? 0.0f : __int_as_float(0x7fc00000);
    float4 a, b;
    a = b = make_float4(none, none, none, none);
    if (live && known) a = times(Table::decode(encoded, first), args.scale), b = times(Table::decode(encoded, first + 16), args.scale);
    if (live) {
        *(float4 *)(args.x + row * COLS + first) = a;
        *(float4 *)(args.x + row * COLS + first + 16) = b;
    }
    float sum = quads_squares(a, b);
    if (live && tid % 4 == 0) args.squares[row * (COLS / 32) + block] = sum;
    a = make_float4(a.x * w0.x, a.y * w0.y, a.z * w0.z, a.w * w0.w);
    b = make_float4(b.x * w1.x, b.y * w1.y, b.z * w1.z, b.w * w1.w);
    quantize_quads(a, b, args.codes + (row * PADDED + block * 32) * PLANES, args.meta + (row * (PADDED / 32) + block) * PLANES, live);
}
