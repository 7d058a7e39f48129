// What every kernel uses. No include of anyone else's: NVRTC brings no headers, so halves and matrix instructions are inline PTX.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARP 32

// Where a field lies in its struct. NVRTC has no `offsetof`; this is what its front end makes one of.
#define OFFSET_OF(TYPE, FIELD) __INTADDR__(&((TYPE *)0)->FIELD)

// A thread's place in its block, its warp, and the fragments of matrix instructions: rows g and g + 8, columns or inner indices by t. Kernels
// ask once and hand it on: asked for again in every part, it costs instructions and registers.
struct Thread {
    int id, warp, lane, g, t;
};
__device__ __forceinline__ Thread this_thread() {
    int id = threadIdx.x, lane = id % WARP;
    return {id, id / WARP, lane, lane / 4, lane % 4};
}

// Dependent launch (sm_90 on): a kernel may start while the one before it drains. Everything before `wait_for_inputs` must read
// weights only; `let_next_start` promises nothing about our own writes, the next kernel's wait is what makes them visible.
//
// The wait ends when the kernels before have ended, and they do not depend on this one: a kernel starts early only when each block of the one ahead
// has called `let_next_start` or ended. So all blocks of the kernels before run already when this one's first block comes, and keep it from room
// only until they end; and no block of a later kernel takes room from this one's before all of this one's run. That is why the blocks of a
// kernel may wait for one another if the chip holds them all. On streams beside this one run kernels whose blocks wait for no others
// outside their cluster (the shared expert's); two launches whose blocks do must not run beside one another.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ float f16_to_f32(u32 bits) {
    float f;
    asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(bits & 0xffffu));
    return f;
}
__device__ __forceinline__ float low_half(u32 two) { return f16_to_f32(two); }
__device__ __forceinline__ float high_half(u32 two) { return f16_to_f32(two >> 16); }
__device__ __forceinline__ float low_bf16(u32 two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high_bf16(u32 two) { return __uint_as_float(two & 0xffff0000u); }

// Two halves in a word, `low` in its low bits.
__device__ __forceinline__ u32 pack_f16(float low, float high) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ u32 sub_f16x2(u32 a, u32 b) {
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

// Weights are read once a step: past L1, so that activations and scales stay in it. `volatile`, because the compiler may otherwise
// run an asm without effects ahead of the condition that guards it, and read past the end of a matrix.
__device__ __forceinline__ uint4 stream16(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ uint2 stream8(const void *p) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

// Scales: through L1, where lines are shared by units, but issued where it says so, like the codes.
__device__ __forceinline__ uint4 ahead16(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ uint2 ahead8(const void *p) {
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
__device__ __forceinline__ u32 ahead4(const void *p) {
    u32 v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
__device__ __forceinline__ u32 ahead2(const void *p) {
    u32 v;
    asm volatile("{.reg .b16 h; ld.global.nc.u16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(v) : "l"(p));
    return v;
}

// Copies 16 bytes to shared memory without waiting; what was asked for since the last `copies_end` is a group.
__device__ __forceinline__ void copy16(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Copies 16 bytes as `copy16` does, of what is not read again while it would be in the L2 cache: its line is the first to leave.
__device__ __forceinline__ void copy16_once(u32 to, const void *from) {
    constexpr u64 EVICT_FIRST = 0x12f0000000000000;
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(EVICT_FIRST) : "memory");
}
__device__ __forceinline__ void put16(void *to, uint4 v) {
    asm volatile("st.global.cg.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most LEFT groups of this thread are under way. Other threads see what it copied after a barrier.
template <int LEFT> __device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// Part `part` of `parts` of `bytes` bytes, a multiple of 16, is asked to be brought to the L2 cache (sm_90 on).
__device__ __forceinline__ void bring(const u8 *from, u32 bytes, u32 part, u32 parts) {
#if __CUDA_ARCH__ >= 900
    u32 each = (bytes / parts + 127) / 128 * 128, at = each * part;
    if (at >= bytes) return;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from + at), "r"(min(each, bytes - at)) : "memory");
#endif
}

// 1.5 * 2^23 as bits: an integer sum that starts there is, read as a float, that number plus the sum.
#define MAGIC_BITS 0x4b400000
#define MAGIC 12582912.0f
// Byte i of a word. A conversion would go through a much slower unit.
__device__ __forceinline__ float plain_byte_at(u32 word, int i) { return __uint_as_float(__byte_perm(word, MAGIC_BITS, 0x7650 | i)) - MAGIC; }

// D[16,8] = FROM + A[16,32] B[32,8] in integers: one set of registers that are never written serves every instruction. Lane
// (g = lane / 4, t = lane % 4): a0, a2 row g, a1, a3 row g + 8; b column g; d0, d1 row g, columns 2t, 2t + 1; d2, d3 row g + 8.
template <int FROM = MAGIC_BITS> __device__ __forceinline__ void mma_k32(int (&d)[4], const u32 (&a)[4], uint2 b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(FROM), "r"(FROM), "r"(FROM), "r"(FROM));
}
template <int FROM = MAGIC_BITS> __device__ __forceinline__ void mma_k16(int (&d)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(FROM), "r"(FROM), "r"(FROM), "r"(FROM));
}
// D[16,8] += A[16,16] B[16,8] in f16. Lane (g, t): a0, a2 row g, a1, a3 row g + 8; a0, a1, b0 at k = 2t, 2t + 1, a2, a3, b1 at k = 8 + 2t,
// 9 + 2t; b column g; D as of mma_k32.
__device__ __forceinline__ void mma_f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// D[16,8] += A[16,8] B[8,8]. Lane (g, t): a0, a2 row g, a1, a3 row g + 8; a0, a1, b0 at k = t, a2, a3, b1 at k = t + 4; D as of mma_k32.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Every lane gets the sum. The order of additions is fixed by the lanes' numbers.
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
// Reciprocal without the branches of an exact division, which keep values from being worked on side by side; exact to the last bit or two.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float sigmoid_fast(float x) { return reciprocal(1.0f + __expf(-x)); }
__device__ __forceinline__ float silu_fast(float x) { return x * sigmoid_fast(x); }
// The square of what is above zero; rounded by itself, whatever is done with it.
__device__ __forceinline__ float relu2(float x) { return __fmul_rn(fmaxf(x, 0.0f), fmaxf(x, 0.0f)); }

// reference::exp times 2^bits, for x <= 0; `bits` must keep it normal. Products and sums stay as written: no contraction.
__device__ __forceinline__ float exp_scaled(float x, int bits) {
    float n = rintf(__fmul_rn(x, 1.44269504088896340736f));
    float r = __fmaf_rn(n, 2.1219444e-4f, __fmaf_rn(n, -0.6933594f, x));
    float p = 1.9875691e-4f;
    p = __fmaf_rn(p, r, 1.3981999e-3f);
    p = __fmaf_rn(p, r, 8.333452e-3f);
    p = __fmaf_rn(p, r, 4.1665796e-2f);
    p = __fmaf_rn(p, r, 1.6666665e-1f);
    p = __fmaf_rn(p, r, 5e-1f);
    float y = __fadd_rn(__fmaf_rn(p, __fmul_rn(r, r), r), 1.0f);
    return __fmul_rn(y, __uint_as_float((u32)((int)n + 127 + bits) << 23));
}
// reference::exp for x <= 0, whatever its size.
__device__ __forceinline__ float exp_defined(float x) { return x < -87.3f ? 0.0f : exp_scaled(x, 0); }
