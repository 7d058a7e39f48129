// What the bus gives kernels that read pinned memory of the host, in the pattern of the experts' kernel (Q8_0, one row) and in plain
// copies: the table of docs/measurements/host-experts.md. No part of the service.
//
//   nvcc -O3 -std=c++17 -arch=sm_90a --extended-lambda -o bus scripts/bus.cu && ./bus
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
// A unit of 16 rows and 128 inputs, tiles of gate and up and of down, and the 64 and 128 tiles of an expert.
#define UNIT 2176
#define TILE 34816
#define DOWN_TILE 8704
#define GATE_UP (64 * TILE)
#define EXPERT (GATE_UP + 128 * DOWN_TILE)
#define CHECK(x) do { cudaError_t e = (x); if (e) { printf("%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); exit(1); } } while (0)

enum Hint { NONE, EVICT_FIRST, EVICT_LAST, LINES_128, LINES_256 };
template <int H> __device__ __forceinline__ void copy16(u32 to, const void *from) {
    if (H == NONE) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    if (H == EVICT_FIRST)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(0x12f0000000000000ull) : "memory");
    if (H == EVICT_LAST)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(0x14f0000000000000ull) : "memory");
    if (H == LINES_128) asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    if (H == LINES_256) asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
template <int H> __device__ __forceinline__ void fetch(u32 to, const u8 *tile, int unit, int units) {
    int lane = threadIdx.x % 32;
    for (int v = 0; v < 4; v++) copy16<H>(to + v * 512 + lane * 16, tile + (unit * 4 + v) * 512 + lane * 16);
    if (lane < 8) copy16<H>(to + 2048 + lane * 16, tile + units * 2048 + unit * 128 + lane * 16);
}
// A block has groups of four tiles of gate and up, four warps a tile; then the tiles of down of 16 outputs. D units a warp are under way.
// PAD: bytes by which a warp's ring is longer than its units.
template <int H, int D, int PAD> __global__ void __launch_bounds__(512) ring(const u64 *experts, int e, u32 *out) {
    extern __shared__ __align__(128) u8 memory[];
    int warp = threadIdx.x / 32;
    u8 *mine = memory + warp * (D * UNIT + PAD);
    u32 to = (u32)__cvta_generic_to_shared(mine), seen = 0;
    auto stream = [&](int n, auto ask) {
        for (int i = 0; i < n + D - 1; i++) {
            if (i < n) ask(i, to + i % D * UNIT);
            asm volatile("cp.async.commit_group;" ::: "memory");
            if (i < D - 1) continue;
            asm volatile("cp.async.wait_group %0;" ::"n"(D - 1) : "memory");
            __syncwarp();
            seen += *(u32 *)(mine + (i - D + 1) % D * UNIT + threadIdx.x % 32 * 4);
            __syncwarp();
        }
    };
    int groups = (e * 16 - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    stream(groups * 4, [&](int i, u32 at) {
        int g = blockIdx.x + i / 4 * gridDim.x;
        fetch<H>(at, (const u8 *)experts[g / 16] + (g % 16 * 4 + warp / 4) * TILE, warp % 4 * 4 + i % 4, 16);
    });
    if (blockIdx.x < 128)
        stream(warp == 0 ? 0 : (e - (warp - 1) + 14) / 15 * 4, [&](int i, u32 at) {
            fetch<H>(at, (const u8 *)experts[warp - 1 + i / 4 * 15] + GATE_UP + blockIdx.x * DOWN_TILE, i % 4, 4);
        });
    if (seen == 0x12345) *out = seen;
}
// Experts to the device: LINES pieces of 512 bytes under way a warp.
template <int LINES> __global__ void __launch_bounds__(512) copy(const u64 *experts, int e, u8 *to) {
    u64 stride = gridDim.x * 16 * LINES, each = EXPERT / 512, all = each * e;
    int lane = threadIdx.x % 32;
    for (u64 i = (blockIdx.x * 16 + threadIdx.x / 32) * LINES; i < all; i += stride) {
        uint4 v[LINES];
#pragma unroll
        for (int k = 0; k < LINES; k++) {
            u64 n = min(i + k, all - 1);
            v[k] = __ldcs((const uint4 *)((const u8 *)experts[n / each] + n % each * 512) + lane);
        }
#pragma unroll
        for (int k = 0; k < LINES; k++)
            if (i + k < all) __stcg((uint4 *)(to + (i + k) * 512) + lane, v[k]);
    }
}

static cudaEvent_t before, after;
template <class F> void timed(const char *name, int experts, F launch) {
    const int N = 24;
    for (int i = 0; i < 2; i++) launch(i);
    CHECK(cudaEventRecord(before));
    for (int i = 0; i < N; i++) launch(i);
    CHECK(cudaEventRecord(after));
    CHECK(cudaEventSynchronize(after));
    CHECK(cudaGetLastError());
    float ms;
    CHECK(cudaEventElapsedTime(&ms, before, after));
    printf("%-40s %7.1f us %6.1f GB/s\n", name, ms * 1e3 / N, double(experts) * EXPERT * N / ms / 1e6);
}
template <int H, int D, int PAD = 0> void rings(const char *hint, const u64 *table, int e, u32 *out) {
    int bytes = 16 * (D * UNIT + PAD);
    CHECK(cudaFuncSetAttribute(ring<H, D, PAD>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    char name[80];
    snprintf(name, sizeof name, "%d experts, %d units and %d B, %s", e, D, PAD, hint);
    timed(name, e, [&](int i) { ring<H, D, PAD><<<132, 512, bytes>>>(table + i * 8, e, out); });
}

int main() {
    const int COUNT = 320;
    size_t bytes = (size_t)COUNT * EXPERT;
    u8 *host = (u8 *)mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *mapped, *to;
    madvise(host, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes; i += 64) *(u32 *)(host + i) = (u32)i * 2654435761u;
    CHECK(cudaHostRegister(host, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
    CHECK(cudaHostGetDevicePointer((void **)&mapped, host, 0));
    CHECK(cudaMalloc(&to, 64 << 20));
    std::vector<u64> order(26 * 8);
    for (size_t i = 0; i < order.size(); i++) order[i] = (u64)mapped + (i * 131 % COUNT) * (u64)EXPERT;
    u64 *table;
    u32 *out;
    CHECK(cudaMalloc(&table, order.size() * 8));
    CHECK(cudaMalloc(&out, 4));
    CHECK(cudaMemcpy(table, order.data(), order.size() * 8, cudaMemcpyHostToDevice));
    CHECK(cudaEventCreate(&before));
    CHECK(cudaEventCreate(&after));
    timed("copy engine, 5 experts", 5, [&](int i) {
        for (int k = 0; k < 5; k++)
            CHECK(cudaMemcpyAsync(to + (size_t)k * EXPERT, host + (i * 31 + k * 131) % COUNT * (size_t)EXPERT, EXPERT, cudaMemcpyHostToDevice));
    });
    for (int e : {5, 8}) {
        rings<EVICT_FIRST, 6>("first to leave", table, e, out);
        rings<EVICT_FIRST, 2>("first to leave", table, e, out);
        rings<EVICT_LAST, 6>("last to leave", table, e, out);
        rings<NONE, 6>("no hint", table, e, out);
        rings<NONE, 3>("no hint", table, e, out);
        rings<LINES_128, 6>("128 bytes at a time", table, e, out);
        rings<LINES_256, 2>("256 bytes at a time", table, e, out);
        rings<EVICT_FIRST, 6, 16>("first to leave, across lines", table, e, out);
    }
    for (int blocks : {8, 16, 32, 132}) {
        char name[80];
        snprintf(name, sizeof name, "copy, %d blocks, a line a warp", blocks);
        timed(name, 5, [&](int i) { copy<1><<<blocks, 512>>>(table + i * 8, 5, to); });
        snprintf(name, sizeof name, "copy, %d blocks, 4 lines a warp", blocks);
        timed(name, 5, [&](int i) { copy<4><<<blocks, 512>>>(table + i * 8, 5, to); });
    }
}
