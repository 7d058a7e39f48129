// Blocks of 256 values in groups with a signed scale, a whole multiple of one factor: Q3_K, Q6_K and IQ4_XS. A warp a block.
//
// -D: TYPE (of the numbers below), BYTES of an encoded block.
#include "arguments.cuh"
#include "encode/values.cuh"

#define WARPS 4
#define VALUES 256
#define ROUNDS 3
enum { Q3_K, Q6_K, IQ4_XS };

// Levels and where the extreme value may lie; values of a group; multiples go from -MULTIPLES to MULTIPLES - 1; so far from the nearest
// multiple others are tried.
template <int T> struct Form;
template <> struct Form<Q3_K> {
    using L = Whole<-4, 3>;
    using E = Ends<4>;
    static constexpr int GROUP = 16, MULTIPLES = 32, REACH = 8;
};
template <> struct Form<Q6_K> {
    using L = Whole<-32, 31>;
    using E = Ends<32>;
    static constexpr int GROUP = 16, MULTIPLES = 128, REACH = 12;
};
template <> struct Form<IQ4_XS> {
    using L = Table<Iq4>;
    using E = Iq4Ends;
    static constexpr int GROUP = 32, MULTIPLES = 32, REACH = 4;
};
using F = Form<TYPE>;
using L = F::L;
using E = F::E;
#define GROUPS (VALUES / F::GROUP)
#define TRIED (2 * F::REACH + 1)

// What a factor leads to.
struct Coded {
    Factor factor;
    f32 error;
    int multiples[GROUPS];

    __device__ __forceinline__ f32 scale(int group) const { return factor.d * float(multiples[group]); }
};

struct Memory {
    Block<VALUES> block;
    union {
        Products products[GROUPS * E::COUNT];
        struct {
            float errors[GROUPS * TRIED], least[GROUPS];
        };
        float terms[2][VALUES];
    };
    float scales[GROUPS];
    Coded best, next;
    u8 codes[VALUES];
};

// The best scale of each group.
__device__ __forceinline__ void find_scales(Memory &memory) {
    int lane = threadIdx.x % WARP;
    for (int i = lane; i < GROUPS * E::COUNT; i += WARP) {
        Group group = memory.block.group(i / E::COUNT, F::GROUP);
        f32 extreme = extreme_of(group.x, group.count);
        if (!(extreme == 0.0f)) memory.products[i] = products<L>(group, E::at(i % E::COUNT) / extreme);
        else memory.products[i] = {0.0f, 0.0f};
    }
    __syncwarp();
    if (lane < GROUPS) memory.scales[lane] = best_scale(memory.products + lane * E::COUNT, E::COUNT).v;
    __syncwarp();
}

// The best multiples near the scales for a factor near d.
__device__ __forceinline__ void search(Memory &memory, f32 near, Coded &coded) {
    int lane = threadIdx.x % WARP;
    Factor factor = memory.block.factor(near);
    f32 d = factor.d;
    auto tried = [&](int g, int i) {
        constexpr float least = -F::MULTIPLES, most = F::MULTIPLES - 1;
        int middle = d == 0.0f ? 0 : (int)within(roundf((f32(memory.scales[g]) / d).v), least, most).v;
        return middle - F::REACH + i;
    };
    for (int i = lane; i < GROUPS * TRIED; i += WARP) {
        int g = i / TRIED, l = tried(g, i % TRIED);
        bool there = l >= -F::MULTIPLES && l < F::MULTIPLES;
        memory.errors[i] = there ? error_of<L>(memory.block.group(g, F::GROUP), d * float(l)).v : INFINITE;
    }
    __syncwarp();
    if (lane < GROUPS) {
        int best = 0;
        for (int i = 1; i < TRIED; i++)
            if (memory.errors[lane * TRIED + i] < memory.errors[lane * TRIED + best]) best = i;
        coded.multiples[lane] = tried(lane, best), memory.least[lane] = memory.errors[lane * TRIED + best];
    }
    __syncwarp();
    if (lane == 0) {
        coded.factor = factor, coded.error = 0.0f;
        for (int g = 0; g < GROUPS; g++) coded.error += memory.least[g];
    }
    __syncwarp();
}

// The factor for which the error of these codes is least; false if there is none.
__device__ __forceinline__ bool fitted(Memory &memory, const Coded &coded, f32 &d) {
    for (int i = threadIdx.x % WARP; i < VALUES; i += WARP) {
        int g = i / F::GROUP;
        f32 x = memory.block.x[i], w = memory.block.w[i];
        f32 a = L::nearest(x * inverse_of(coded.scale(g))) * float(coded.multiples[g]);
        memory.terms[0][i] = (w * x * a).v, memory.terms[1][i] = (w * a * a).v;
    }
    __syncwarp();
    f32 xa = 0.0f, aa = 0.0f;
    for (int i = 0; i < VALUES; i++) xa += memory.terms[0][i], aa += memory.terms[1][i];
    __syncwarp();
    d = xa / aa;
    return aa > 0.0f;
}

__device__ __forceinline__ u8 code_of(f32 y) {
    if constexpr (TYPE == IQ4_XS) return Table<Iq4>::at(y);
    else return (u8)(L::nearest(y) + (TYPE == Q6_K ? 32.0f : 4.0f)).v;
}

// Codes, multiples and factor as they lie in the block.
__device__ __forceinline__ u8 byte_of(const u8 *q, const Coded &coded, int at) {
    const int *m = coded.multiples;
    auto of_factor = [&](int at) { return (u8)(coded.factor.bits >> 8 * at); };
    if constexpr (TYPE == Q6_K) {
        if (at < 128) {
            const u8 *of = q + at / 64 * 128 + at % 64;
            return (of[0] & 15) | of[64] << 4;
        }
        if (at < 192) {
            const u8 *of = q + (at - 128) / 32 * 128 + at % 32;
            return of[0] >> 4 | of[32] >> 4 << 2 | of[64] >> 4 << 4 | of[96] >> 4 << 6;
        }
        return at < 208 ? (u8)m[at - 192] : of_factor(at - 208);
    } else if constexpr (TYPE == Q3_K) {
        u8 byte = 0;
        if (at < 32) {
            for (int i = 0; i < 8; i++) byte |= q[i * 32 + at] >> 2 << i;
            return byte;
        }
        if (at < 96) {
            const u8 *of = q + (at - 32) / 32 * 128 + at % 32;
            for (int r = 0; r < 4; r++) byte |= (of[32 * r] & 3) << 2 * r;
            return byte;
        }
        if (at < 104) return ((m[at - 96] + 32) & 15) | ((m[at - 88] + 32) & 15) << 4;
        if (at < 108) {
            for (int i = 0; i < 4; i++) byte |= (m[at - 104 + 4 * i] + 32) >> 4 << 2 * i;
            return byte;
        }
        return of_factor(at - 108);
    } else {
        if (at < 2) return of_factor(at);
        if (at < 4) {
            u8 byte = 0;
            for (int i = 0; i < 4; i++) byte |= (m[(at - 2) * 4 + i] + 32) >> 4 << 2 * i;
            return byte;
        }
        if (at < 8) return ((m[(at - 4) * 2] + 32) & 15) | ((m[(at - 4) * 2 + 1] + 32) & 15) << 4;
        return nibbles_at(q + (at - 8) / 16 * 32, 16, at % 16 ^ 8);
    }
}

__device__ __forceinline__ void encode(Memory &memory) {
    int lane = threadIdx.x % WARP;
    find_scales(memory);
    // The largest scale gets the outermost multiple, which is negative.
    search(memory, -extreme_of(memory.scales, GROUPS) / float(F::MULTIPLES), memory.best);
    for (int round = 0; round < ROUNDS; round++) {
        f32 d;
        if (!fitted(memory, memory.best, d)) break;
        search(memory, d, memory.next);
        if (memory.next.error >= memory.best.error) break;
        __syncwarp();
        if (lane < GROUPS) memory.best.multiples[lane] = memory.next.multiples[lane];
        if (lane == 0) memory.best.factor = memory.next.factor, memory.best.error = memory.next.error;
        __syncwarp();
    }
    for (int i = lane; i < VALUES; i += WARP)
        memory.codes[i] = code_of(f32(memory.block.x[i]) * inverse_of(memory.best.scale(i / F::GROUP)));
    __syncwarp();
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
    for (int i = threadIdx.x % WARP; i < BYTES; i += WARP) args.out[block * BYTES + i] = some ? byte_of(memory.codes, memory.best, i) : 0;
}
