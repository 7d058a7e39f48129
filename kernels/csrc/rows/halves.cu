// Int8 rows (common/int8_rows.cuh) as f16 for wide/warpgroup.cu: y = x 2^-e, where e is such that the largest block of a row has values up
// to 2^14 to 2^15. Beside it stands what its products are multiplied by: 2^e, times row_factor of the row's NORM_BLOCKS `squares` where
// those are not 0. Four warps a row, or one.
//
// They lie as its matrix instruction wants them in shared memory: of 64 inputs at a time all rows, 128 bytes each, whose pieces of 16
// bytes change places by the row's number (the 128-byte swizzle). Within each 16 inputs the order is that of wide/halves.cuh.
//
// -D COLS, NORM_BLOCKS.
#include "arguments.cuh"
#include "common/int8_rows.cuh"

#define THREADS 128
#define BLOCKS (COLS / 32)
// Threads of a row: a short one's are a warp.
#define TEAM (COLS >= 1024 ? THREADS : WARP)

// Largest scale of the row's blocks. What is no number is passed over: its codes become none either.
__device__ __forceinline__ float largest_scale(const float2 *meta) {
    __shared__ float of_warp[THREADS / WARP];
    float top = 0;
    for (int i = threadIdx.x % TEAM; i < BLOCKS; i += TEAM) top = fmaxf(top, meta[i].x);
    top = warp_max(top);
    if constexpr (TEAM > WARP) {
        if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = top;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < THREADS / WARP; i++) top = fmaxf(top, of_warp[i]);
    }
    return top;
}

__device__ __forceinline__ float code(u32 word, int i) { return (float)(i8)(word >> 8 * i & 255); }

extern "C" __global__ void __launch_bounds__(THREADS) halves(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    const u64 row = (u64)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    if (row >= args.rows) return;
    const float2 *meta = args.meta + row * BLOCKS;
    const u32 *codes = (const u32 *)(args.codes + row * COLS);
    float top = largest_scale(meta) * 127.0f;
    // Exponents of f32: that of the largest value, of 2^-e and of 2^e. Scales of int8 blocks are 0 or above 1e-32.
    int exponent = top > 0 ? (int)(__float_as_uint(top) >> 23) : 127 + 14;
    float down = __uint_as_float((u32)(2 * 127 + 14 - exponent) << 23);
    if (threadIdx.x % TEAM < WARP) {
        float scale = __uint_as_float((u32)(exponent - 14) << 23);
        if constexpr (NORM_BLOCKS > 0) scale *= row_factor<NORM_BLOCKS>(args.squares + row * NORM_BLOCKS, args.eps);
        if (threadIdx.x % WARP == 0) args.scales[row] = scale;
    }
    // Eight values, in the order of wide/halves.cuh: of each quad of a half block the first and third, or the second and fourth.
    #pragma unroll 2
    for (int c = threadIdx.x % TEAM; c < COLS / 8; c += TEAM) {
        int block = c / 4, half = c / 2 % 2, odd = c % 2;
        float scale = meta[block].x * down;
        u32 out[4];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            u32 quad = codes[block * 8 + 2 * t + half];
            out[t] = pack_f16(code(quad, odd) * scale, code(quad, odd + 2) * scale);
        }
        u64 at = ((u64)(u32)(c / 8) * args.rows + row) * 64 + ((c ^ (int)row) & 7) * 8;
        *(uint4 *)(args.halves + at) = make_uint4(out[0], out[1], out[2], out[3]);
    }
}
