// x[row] = table[token], the int8 form of x * w, and the token's place in the history of its sequence     x: [rows, COLS] f32
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

#define F32 0
#define F16 1
#define BF16 2
#define Q8_0 3
#define Q4_0 4
#define Q4_K 5
#define Q5_K 6
#define Q6_K 7

#if ENCODING == F32
#define ROW_BYTES (COLS * 4)
#elif ENCODING == F16 || ENCODING == BF16
#define ROW_BYTES (COLS * 2)
#elif ENCODING == Q8_0
#define ROW_BYTES (COLS / 32 * 34)
#elif ENCODING == Q4_0
#define ROW_BYTES (COLS / 32 * 18)
#elif ENCODING == Q4_K
#define ROW_BYTES (COLS / 256 * 144)
#elif ENCODING == Q5_K
#define ROW_BYTES (COLS / 256 * 176)
#else
#define ROW_BYTES (COLS / 256 * 210)
#endif
// The widest word that every row starts at.
#if ROW_BYTES % 16 == 0
typedef uint4 Word;
#elif ROW_BYTES % 4 == 0
typedef u32 Word;
#else
typedef u16 Word;
#endif
#define WORDS (ROW_BYTES / (int)sizeof(Word))
#define THREADS ((COLS / 8 + WARP - 1) / WARP * WARP)

__device__ __forceinline__ float half_at(const u8 *p) { return f16_to_f32(*(const u16 *)p); }

// Six-bit scale and minimum of group g of 8.
__device__ __forceinline__ void scale_min(const u8 *s, int g, float &scale, float &min) {
    int sc = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    int mn = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    scale = (float)sc, min = (float)mn;
}

// Values first .. first + 4 of a row, `first` a multiple of four. Products and sums are rounded one by one, as the definition's are.
__device__ __forceinline__ float4 decode(const u8 *row, int first) {
    float v[4];
#if ENCODING == F32
    return *(const float4 *)(row + first * 4);
#elif ENCODING == F16
    for (int i = 0; i < 4; i++) v[i] = half_at(row + (first + i) * 2);
#elif ENCODING == BF16
    for (int i = 0; i < 4; i++) v[i] = __uint_as_float((u32) * (const u16 *)(row + (first + i) * 2) << 16);
#elif ENCODING == Q8_0
    const u8 *b = row + first / 32 * 34;
    float d = half_at(b);
    for (int i = 0; i < 4; i++) v[i] = __fmul_rn(d, (float)(i8)b[2 + first % 32 + i]);
#elif ENCODING == Q4_0
    const u8 *b = row + first / 32 * 18;
    float d = half_at(b);
    for (int i = 0; i < 4; i++) {
        int code = b[2 + first % 16 + i] >> (first % 32 / 16 * 4) & 15;
        v[i] = __fmul_rn(d, (float)(code - 8));
    }
#elif ENCODING == Q4_K || ENCODING == Q5_K
    const u8 *b = row + first / 256 * (ENCODING == Q4_K ? 144 : 176);
    const u8 *codes = b + (ENCODING == Q4_K ? 16 : 48);
    int g = first % 256 / 32, l = first % 32;
    float sc, mn;
    scale_min(b + 4, g, sc, mn);
    float scale = __fmul_rn(half_at(b), sc), min = __fmul_rn(half_at(b + 2), mn);
    for (int i = 0; i < 4; i++) {
        int code = codes[32 * (g / 2) + l + i] >> (g % 2 * 4) & 15;
#if ENCODING == Q5_K
        code |= (b[16 + l + i] >> g & 1) << 4;
#endif
        v[i] = __fsub_rn(__fmul_rn(scale, (float)code), min);
    }
#else
    const u8 *b = row + first / 256 * 210;
    int e = first % 256, n = e / 128, r = e % 128 / 32, l = e % 32;
    float scale = __fmul_rn(half_at(b + 208), (float)(i8)b[192 + 8 * n + 2 * r + l / 16]);
    for (int i = 0; i < 4; i++) {
        int low = b[64 * n + 32 * (r & 1) + l + i] >> (r / 2 * 4) & 15;
        int high = b[128 + 32 * n + l + i] >> (2 * r) & 3;
        v[i] = __fmul_rn(scale, (float)((low | high << 4) - 32));
    }
#endif
    return make_float4(v[0], v[1], v[2], v[3]);
}

// By one thread. Other rows of the step may name the other half of the same word, or the same half.
__device__ __forceinline__ void remember(u32 *history, u64 entry, bool prompt) {
    u32 *word = history + entry / 2;
    int shift = (int)(entry % 2) * 16;
    if (prompt) {
        atomicOr(word, 0x8000u << shift);
        return;
    }
    u32 seen = *(volatile u32 *)word;
    while ((seen >> shift & 0x7fff) != 0x7fff) {
        u32 before = atomicCAS(word, seen, seen + (1u << shift));
        if (before == seen) return;
        seen = before;
    }
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
    if (live && known) a = decode(encoded, first), b = decode(encoded, first + 16);
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
