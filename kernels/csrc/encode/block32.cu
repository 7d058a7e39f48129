// Blocks of 32 values with one factor: Q4_0, Q5_0, Q5_1, Q8_0, IQ4_NL and MXFP4. A warp a block.
//
// -D: TYPE (of the numbers below), BYTES of an encoded block.
#include "arguments.cuh"
#include "encode/minimum.cuh"

#define WARPS 4
#define VALUES 32
enum { Q4_0, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4 };

// E2M1 in ascending order; its two zeros are one level.
struct E2m1 {
    static __device__ __forceinline__ float level(int i) {
        constexpr float levels[16] = {-6.0f, -4.0f, -3.0f, -2.0f, -1.5f, -1.0f, -0.5f, 0.0f, 0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
        return levels[i];
    }
    static __device__ __forceinline__ u8 code(int at) { return at < 7 ? 15 - at : at < 9 ? 0 : at - 8; }
};
struct ByteEnds {
    static constexpr int COUNT = 9;
    static __device__ __forceinline__ f32 at(int i) { return f32(127.0f) + f32(0.25f) * float(i - 4); }
};

struct Memory {
    Block<32> block;
    union {
        Products products[Iq4Ends::COUNT];
        Tried tried[TRIALS];
        float errors[4];
    };
    ScaleMin fit;
    u8 codes[VALUES];
    u8 out[BYTES];
};

__device__ __forceinline__ void put16(u8 *out, u32 bits) { out[0] = (u8)bits, out[1] = (u8)(bits >> 8); }
// The fifth bits, then the nibbles, from `out` on.
__device__ __forceinline__ void put_five(const u8 *codes, u8 *out) {
    int lane = threadIdx.x % WARP;
    if (lane < 4) {
        u8 bits = 0;
        for (int i = 0; i < 8; i++) bits |= (codes[lane * 8 + i] >> 4 & 1) << i;
        out[lane] = bits;
    }
    if (lane < 16) out[4 + lane] = nibbles_at(codes, 16, lane);
}

// The factor, and the lane's value over it.
template <class L, class E> __device__ __forceinline__ f32 coded(Memory &memory, u8 *out) {
    int lane = threadIdx.x % WARP;
    Group group = memory.block.group(0, VALUES);
    f32 extreme = extreme_of(group.x, VALUES);
    for (int i = lane; i < E::COUNT; i += WARP) memory.products[i] = products<L>(group, E::at(i) / extreme);
    __syncwarp();
    Factor factor = memory.block.factor(best_scale(memory.products, E::COUNT));
    if (lane == 0) put16(out, factor.bits);
    return f32(group.x[lane]) * inverse_of(factor.d);
}

__device__ __forceinline__ void q5_1(Memory &memory) {
    int lane = threadIdx.x % WARP;
    fit_all<1>(memory.block, 31.0f, INFINITE, memory.tried, &memory.fit);
    Factor scale = memory.block.factor(memory.fit.scale), min = memory.block.factor(memory.fit.min);
    f32 y = (f32(memory.block.x[lane]) - min.d) * inverse_of(scale.d);
    memory.codes[lane] = (u8)(Whole<0, 31>::nearest(y).v);
    if (lane == 0) put16(memory.out, scale.bits), put16(memory.out + 2, min.bits);
    __syncwarp();
    put_five(memory.codes, memory.out + 4);
}

__device__ __forceinline__ f32 power_of(int e) { return __int_as_float(e == 0 ? 0x00400000 : e << 23); }

__device__ __forceinline__ void mxfp4(Memory &memory) {
    int lane = threadIdx.x % WARP;
    f32 largest = memory.block.largest;
    // The power of two that puts the largest value between 3 and 6, and those around it.
    u32 bits = __float_as_uint((largest / 6.0f).v);
    int middle = (int)(bits >> 23) + ((bits & 0x7fffff) != 0);
    auto tried = [&](int i) { return min(max(middle - 2 + i, 0), 254); };
    if (lane < 4) memory.errors[lane] = error_of<Table<E2m1>>(memory.block.group(0, VALUES), power_of(tried(lane)) / largest).v;
    __syncwarp();
    int best = 0;
    for (int i = 1; i < 4; i++)
        if (memory.errors[i] < memory.errors[best]) best = i;
    f32 y = f32(memory.block.x[lane]) / (power_of(tried(best)) / largest);
    memory.codes[lane] = E2m1::code(Table<E2m1>::at(y));
    if (lane == 0) memory.out[0] = (u8)tried(best);
    __syncwarp();
    if (lane < 16) memory.out[1 + lane] = nibbles_at(memory.codes, 16, lane);
}

__device__ __forceinline__ void encode(Memory &memory) {
    int lane = threadIdx.x % WARP;
    u8 *out = memory.out;
    if constexpr (TYPE == Q5_1) {
        q5_1(memory);
    } else if constexpr (TYPE == MXFP4) {
        mxfp4(memory);
    } else if constexpr (TYPE == Q8_0) {
        f32 y = coded<Whole<-127, 127>, ByteEnds>(memory, out);
        out[2 + lane] = (u8)(int)Whole<-127, 127>::nearest(y).v;
    } else {
        if constexpr (TYPE == Q4_0) memory.codes[lane] = (u8)(Whole<-8, 7>::nearest(coded<Whole<-8, 7>, Ends<8>>(memory, out)) + 8.0f).v;
        else if constexpr (TYPE == Q5_0) memory.codes[lane] = (u8)(Whole<-16, 15>::nearest(coded<Whole<-16, 15>, Ends<16>>(memory, out)) + 16.0f).v;
        else memory.codes[lane] = (u8)Table<Iq4>::at(coded<Table<Iq4>, Iq4Ends>(memory, out));
        __syncwarp();
        if (TYPE == Q5_0) put_five(memory.codes, out + 2);
        else if (lane < 16) out[2 + lane] = nibbles_at(memory.codes, 16, lane);
    }
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP) encode_rows(const Arguments args) {
    __shared__ Memory memories[WARPS];
    let_next_start();
    wait_for_inputs();
    Memory &memory = memories[threadIdx.x / WARP];
    u64 block = (u64)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (block >= args.blocks) return;
    bool some = memory.block.read(args.x + block * VALUES, weights_of<VALUES>(args, block));
    if (some) encode(memory);
    __syncwarp();
    for (int i = threadIdx.x % WARP; i < BYTES; i += WARP) args.out[block * BYTES + i] = some ? memory.out[i] : 0;
}
