// A unit's weights from shared memory to registers.
#pragma once
#include "wide/stages.cuh"

// Loads that stay where they are written, behind barriers and near their use: hoisted by the compiler, they would take registers.
__device__ __forceinline__ uint4 read16(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
__device__ __forceinline__ uint2 read8(u32 at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
__device__ __forceinline__ u32 read4(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

// What block b needs of a unit and earlier blocks have not read.
__device__ __forceinline__ void load_block(W::Unit &w, u32 unit, int b) {
    int lane = threadIdx.x % WARP, g = lane / 4;
#pragma unroll
    for (int v = 0; v < W::VECTORS; v++)
        if (CODES == BYTE || CODES == WORD || CODES == E4M3 ? v % 4 == b : v * 4 / W::VECTORS == b) w.codes[v] = read16(unit + v * 512 + lane * 16);
    if (b > 0) return;
    u32 planes = unit + W::CODE_BYTES;
    if constexpr (CODES == SIX) w.plane = read16(planes + lane * 16);
    if constexpr (CODES == FIVE || CODES == SIGNED_FIVE || CODES == GRID) {
        uint2 two = read8(planes + lane * 8);
        w.plane = make_uint4(two.x, two.y, 0, 0);
    }
    if constexpr (CODES == GRID) w.high = read4(planes + 256 + lane / 2 * 4) >> lane % 2 * 16;
    if constexpr (SCALES == S_NIBBLE) {
        w.scales.x = read4(unit + SCALES_IN + g * 4);
    } else if constexpr (SCALES == S_BYTE || SCALES == S_ZERO || SCALES == S_EIGHTS) {
        uint2 two = read8(unit + SCALES_IN + (SCALES == S_EIGHTS ? 0 : g * 8));
        w.scales = make_uint4(two.x, two.y, 0, 0);
    } else {
        w.scales = read16(unit + SCALES_IN + g * 16);
    }
    if constexpr (SCALES == S_MIN) w.group = read8(unit + GROUP_IN + g * 8);
    else if constexpr (W::GROUP_BYTES > 0) w.group.x = read4(unit + GROUP_IN + g * 4);
}
