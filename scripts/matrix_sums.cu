// Whether Hopper's matrix instructions of a warp and of a warpgroup add alike: sums of 2,048 products of f16 in f32, 16 inputs at a time by
// mma m16n8k16 and by wgmma m64n8k16, and 8 at a time by mma m16n8k8. Says how many sums have other bits than those of wgmma.
//
//   nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a -I kernels/csrc -o matrix_sums scripts/matrix_sums.cu && ./matrix_sums
//
// Inputs are random, in turn with exponents up to 0, 6, 12 and 18 powers of two apart; in every fifth trial each second weight is the one
// before it with its sign turned, in every seventh all weights are below f16's normal numbers.
#include "wide/wgmma.cuh"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_fp16.h>

constexpr int K = 2048, ROWS = 64, COLUMNS = 8, TRIALS = 400;

// Of lane (g, t) of warp w: rows 16 w + g and 8 below it, columns 2t and 2t + 1.
__device__ void store(float *sums, const float (&d)[4]) {
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; i++) sums[(row + i / 2 * 8) * COLUMNS + column + i % 2] = d[i];
}
// 16 inputs of a warp's rows, from `k` on.
__device__ void load(u32 (&a)[4], const __half *weights, int k) {
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const __half *at = weights + row * K + k + threadIdx.x % 4 * 2;
    a[0] = *(const u32 *)at, a[1] = *(const u32 *)(at + 8 * K), a[2] = *(const u32 *)(at + 8), a[3] = *(const u32 *)(at + 8 * K + 8);
}

// weights: [ROWS, K], x: [COLUMNS, K], sums: [ROWS, COLUMNS]. One warpgroup.
__global__ void by_warpgroup(const __half *weights, const __half *x, float *sums) {
    __shared__ __align__(1024) u8 columns[COLUMNS * 128];
    float d[4] = {};
    for (int k = 0; k < K; k += 64) {
        __syncthreads();
        for (int i = threadIdx.x; i < COLUMNS * 8; i += 128)
            *(uint4 *)(columns + i / 8 * 128 + (i % 8 ^ i / 8) * 16) = *(const uint4 *)(x + i / 8 * K + k + i % 8 * 8);
        shared_for_matrices();
        __syncthreads();
        for (int s = 0; s < 4; s++) {
            u32 a[4];
            load(a, weights, k + s * 16);
            matrices_begin();
            Wgmma<8>::add(d, a, descriptor(shared_address(columns) + s * 32));
            matrices_end();
            matrices_wait<0>();
        }
    }
    store(sums, d);
}
__device__ void add_k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void add_k8(float (&d)[4], u32 a0, u32 a1, u32 b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
}
template <bool HALVED> __global__ void by_warp(const __half *weights, const __half *x, float *sums) {
    const int column = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float d[4] = {};
    for (int k = 0; k < K; k += 16) {
        u32 a[4], b[2] = {*(const u32 *)(x + column * K + k + 2 * t), *(const u32 *)(x + column * K + k + 2 * t + 8)};
        load(a, weights, k);
        if (HALVED) add_k8(d, a[0], a[1], b[0]), add_k8(d, a[2], a[3], b[1]);
        else add_k16(d, a, b);
    }
    store(sums, d);
}

static float any() { return rand() / (float)RAND_MAX * 2 - 1; }
static float any_of(int range) { return any() * (range ? exp2f(rand() % (range * 6) - range * 3.f) : 1); }

static void fill(__half *weights, __half *x, int trial) {
    srand(trial);
    for (int i = 0; i < ROWS * K; i++) weights[i] = __float2half(any_of(trial % 4));
    for (int i = 0; i < COLUMNS * K; i++) x[i] = __float2half(any_of(trial % 4));
    for (int i = 0; trial % 5 == 4 && i < ROWS * K; i += 2) weights[i + 1] = __hneg(weights[i]);
    for (int i = 0; trial % 7 == 6 && i < ROWS * K; i++) weights[i] = __float2half(any() * 6e-6f);
}

int main() {
    __half *weights, *x;
    float *sums[3];
    cudaMallocManaged(&weights, ROWS * K * sizeof(__half));
    cudaMallocManaged(&x, COLUMNS * K * sizeof(__half));
    for (float *&s : sums) cudaMallocManaged(&s, ROWS * COLUMNS * sizeof(float));
    int all = 0, other[2] = {};
    for (int trial = 0; trial < TRIALS; trial++) {
        fill(weights, x, trial);
        by_warpgroup<<<1, 128>>>(weights, x, sums[0]);
        by_warp<false><<<1, 128>>>(weights, x, sums[1]);
        by_warp<true><<<1, 128>>>(weights, x, sums[2]);
        if (cudaError_t error = cudaDeviceSynchronize()) return fprintf(stderr, "%s\n", cudaGetErrorString(error)), 1;
        for (int i = 0; i < ROWS * COLUMNS; i++, all++)
            for (int j = 0; j < 2; j++) other[j] += memcmp(&sums[0][i], &sums[j + 1][i], sizeof(float)) != 0;
    }
    printf("of %d sums m16n8k16 has other bits in %d, m16n8k8 in %d\n", all, other[0], other[1]);
}
