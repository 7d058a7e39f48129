// y = x * w / sqrt(mean(x^2) + eps), and its int8 form (common.cuh)     x: [rows, COLS] f32
//
// One block a row; a warp holds 32 consecutive values at a time, which is one block of the int8 form. Reads x once. `y` may be
// null. Bound: 4 * COLS bytes in, 1.25 * COLS out a row, far below the cost of the launch.
//
// -D: COLS (a multiple of THREADS), THREADS.
#include "common.cuh"

#define EACH (COLS / THREADS)

extern "C" __global__ void __launch_bounds__(THREADS)
    norm_quantize(const float *x, const float *w, float *y, i8 *codes, float2 *meta, float eps) {
    __shared__ float shared[THREADS / WARP];
    let_next_start();
    u64 row = blockIdx.x;
    float factor[EACH], value[EACH], squares = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) factor[i] = __ldg(w + i * THREADS + threadIdx.x);
    wait_for_inputs();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        value[i] = x[row * COLS + i * THREADS + threadIdx.x];
        squares = __fmaf_rn(value[i], value[i], squares);
    }
    float mean = block_sum<THREADS / WARP>(squares, shared) * (1.0f / COLS);
    float scale = __frcp_rn(__fsqrt_rn(mean + eps));
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int at = i * THREADS + threadIdx.x;
        float out = value[i] * scale * factor[i];
        if (y) y[row * COLS + at] = out;
        quantize_block(out, codes + row * COLS + at / 32 * 32, meta + (row * COLS + at) / 32);
    }
}
