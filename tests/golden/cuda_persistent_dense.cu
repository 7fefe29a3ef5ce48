#include <cuda_fp16.h>

static __device__ __forceinline__ float tuner_maximum(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float extreme;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(extreme) : "f"(a), "f"(b));
  return extreme;
#else
  return a > b || a != a ? a : b;
#endif
}
static __device__ __forceinline__ double tuner_maximum(double a, double b) {
  return a > b || a != a ? a : b;
}

static __device__ __forceinline__ unsigned tuner_shared(const void *place) { return (unsigned)__cvta_generic_to_shared(place); }
static __device__ __forceinline__ void tuner_warpgroup_barrier(unsigned number) {
  asm volatile("bar.sync %0, 128;" :: "r"(number) : "memory");
}
static __device__ __forceinline__ void tuner_put(unsigned place, float low, float high) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(place), "f"(low), "f"(high) : "memory");
}
static __device__ __forceinline__ void tuner_put(unsigned place, int low, int high) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(place), "r"(low), "r"(high) : "memory");
}
static __device__ __forceinline__ void tuner_put_bytes(unsigned place, int low, int high) {
  unsigned short both = (unsigned short)((low & 255) | (high & 255) << 8);
  asm volatile("st.shared.u16 [%0], %1;" :: "r"(place), "h"(both) : "memory");
}

struct __align__(128) tuner_map { unsigned char bytes[128]; };
static __device__ __forceinline__ void tuner_barrier(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}
/* Barriers are ready for copies. */
static __device__ __forceinline__ void tuner_barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
static __device__ __forceinline__ void tuner_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void tuner_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
static __device__ __forceinline__ void tuner_wait(unsigned barrier, unsigned parity) {
  asm volatile("{.reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra DONE; bra AGAIN; DONE: }" :: "r"(barrier), "r"(parity) : "memory");
}
/* Boxes of a matrix, of one of several, and of images. */
static __device__ __forceinline__ void tuner_load(unsigned to, const tuner_map *from, int x, int y, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" :: "r"(to), "l"(from), "r"(x), "r"(y), "r"(barrier) : "memory");
}
static __device__ __forceinline__ void tuner_load(unsigned to, const tuner_map *from, int x, int y, int z, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" :: "r"(to), "l"(from), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}
static __device__ __forceinline__ void tuner_load(unsigned to, const tuner_map *from, int x, int y, int z, int u, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" :: "r"(to), "l"(from), "r"(x), "r"(y), "r"(z), "r"(u), "r"(barrier) : "memory");
}
static __device__ __forceinline__ void tuner_store(const tuner_map *to, int x, int y, unsigned from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" :: "l"(to), "r"(x), "r"(y), "r"(from) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
static __device__ __forceinline__ void tuner_store(const tuner_map *to, int x, int y, int z, unsigned from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" :: "l"(to), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
static __device__ __forceinline__ void tuner_store(const tuner_map *to, int x, int y, int z, int u, unsigned from) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" :: "l"(to), "r"(x), "r"(y), "r"(z), "r"(u), "r"(from) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until all but `left` of the thread's stores have been read from shared memory. */
template <int left> static __device__ __forceinline__ void tuner_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(left) : "memory");
}
/* What threads wrote to shared memory is there for stores. */
static __device__ __forceinline__ void tuner_written() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Warpgroups in turn: one waits until the other passes its turn on. */
static __device__ __forceinline__ void tuner_wait_for_turn(unsigned number) {
  asm volatile("bar.sync %0, 256;" :: "r"(number) : "memory");
}
static __device__ __forceinline__ void tuner_pass_turn(unsigned number) {
  asm volatile("bar.arrive %0, 256;" :: "r"(number) : "memory");
}
template <int registers> static __device__ __forceinline__ void tuner_fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(registers));
}
template <int registers> static __device__ __forceinline__ void tuner_more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(registers));
}
/* An operand in rows of 128 bytes with their pieces permuted (128-byte swizzle), eight rows 1024 bytes from the next eight. */
static __device__ __forceinline__ unsigned long long tuner_operand(unsigned place, unsigned panel_bytes) {
  return (unsigned long long)((place & 0x3ffff) >> 4) | (unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
static __device__ __forceinline__ void tuner_multiplications_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void tuner_multiplications_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until all but `left` groups of multiplications are done. */
template <int left> static __device__ __forceinline__ void tuner_multiplied() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(left) : "memory");
}
/* Sums stay where multiplications that are not done yet add to them. */
template <int count> static __device__ __forceinline__ void tuner_keep(float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i]) :: "memory");
}
template <int count> static __device__ __forceinline__ void tuner_keep(int (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(sums[i]) :: "memory");
}
/* Four squares of 8 by 8 elements of 16 bits, whose rows the lanes name: eight lanes a square. */
static __device__ __forceinline__ void tuner_put(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

static __device__ __forceinline__ unsigned tuner_pair_float16(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

static __device__ __forceinline__ void kernel_persistent_0_multiply(float (&d)[32], unsigned long long left, unsigned long long right, int add) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;}" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "l"(left), "l"(right), "r"(add));
}

struct kernel_persistent_0_place { int matrix, row, column; };
static __device__ __forceinline__ kernel_persistent_0_place kernel_persistent_0_tile(int tile) {
  const int matrix = tile / 6, within = tile % 6;
  const int first = within / 16 * 8, member = within % 16;
  const int size = min(3 - first, 8);
  const int m = first + member % size, n = member / size;
  return {matrix, m * 64, n * 64};
}

static __device__ __forceinline__ float kernel_persistent_0_finish(float sum, int matrix, int row, int column, const half *__restrict__ bias) {
  return tuner_maximum((sum + (float)bias[column * 1]), 0.0f);
}

static __device__ __forceinline__ void kernel_persistent_0_produce(const tuner_map *left, const tuner_map *right, unsigned ring, unsigned full, unsigned empty) {
  int slot = 0;
  unsigned phase = 1;
  for (int tile = blockIdx.x; tile < 6; tile += gridDim.x) {
    const kernel_persistent_0_place at = kernel_persistent_0_tile(tile);
#pragma unroll 1 /* more takes more registers than a producer has */
    for (int step = 0; step < 3; ++step) {
      const unsigned filled = full + slot * 8, to = ring + slot * 16384;
      tuner_wait(empty + slot * 8, phase);
      tuner_expect(filled, 16384);
      tuner_load(to, left, step * 64, at.row, filled);
      tuner_load(to + 8192, right, step * 64, at.column, filled);
      if (++slot == 3) { slot = 0; phase ^= 1; }
    }
  }
}

extern "C" __global__ void __launch_bounds__(384, 1) kernel_persistent_0(const __grid_constant__ tuner_map left, const __grid_constant__ tuner_map right, const __grid_constant__ tuner_map output, const half *__restrict__ bias) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned ring = tuner_shared(memory), strips = ring + 49152;
  const unsigned full = strips + 32768, empty = full + 24;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 3; ++stage) {
      tuner_barrier(full + stage * 8, 1);
      tuner_barrier(empty + stage * 8, 4);
    }
    tuner_barriers_ready();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
  if (warpgroup == 0) {
    tuner_fewer_registers<40>();
    if (threadIdx.x == 0) kernel_persistent_0_produce(&left, &right, ring, full, empty);
  } else {
    tuner_more_registers<232>();
    const int consumer = warpgroup - 1, thread = threadIdx.x % 128;
    const int lane = threadIdx.x % 32;
    const unsigned strip = strips + consumer * 16384;
    float sums[1][32];
    int slot = 0, half = 0;
    unsigned phase = 0;
    int turn = 0;
    if (consumer == 1) tuner_pass_turn(3);
    for (int tile = blockIdx.x; tile < 6; tile += gridDim.x) {
      const bool skipped = turn != consumer;
      turn ^= 1;
      if (skipped) {
        slot += 0;
        phase ^= 1;
        if (slot >= 3) { slot -= 3; phase ^= 1; }
        continue;
      }
      tuner_wait_for_turn(3 + consumer);
      const kernel_persistent_0_place at = kernel_persistent_0_tile(tile);
      int before = slot;
#pragma unroll 1
      for (int step = 0; step < 3; ++step) {
        const unsigned rows = ring + slot * 16384;
        const unsigned columns = ring + slot * 16384 + 8192;
        tuner_wait(full + slot * 8, phase);
#pragma unroll
        for (int fragment = 0; fragment < 1; ++fragment) tuner_keep(sums[fragment]);
        tuner_multiplications_begin();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int fragment = 0; fragment < 1; ++fragment) kernel_persistent_0_multiply(sums[fragment], tuner_operand(rows + fragment * 8192 + k * 32, 1), tuner_operand(columns + k * 32, 1), (step | k) != 0);
        }
        tuner_multiplications_end();
#pragma unroll
        for (int fragment = 0; fragment < 1; ++fragment) tuner_keep(sums[fragment]);
        tuner_multiplied<1>();
        if (step > 0) { if (lane == 0) tuner_arrive(empty + before * 8); }
        before = slot;
        if (++slot == 3) { slot = 0; phase ^= 1; }
      }
      tuner_multiplied<0>();
#pragma unroll
        for (int fragment = 0; fragment < 1; ++fragment) tuner_keep(sums[fragment]);
      { if (lane == 0) tuner_arrive(empty + before * 8); }
      tuner_pass_turn(3 + 1 - consumer);
#pragma unroll
      for (int fragment = 0; fragment < 1; ++fragment) {
        const int first = at.row + fragment * 64;
#pragma unroll
        for (int part = 0; part < 1; ++part) {
          const unsigned place = strip + half * 8192;
          const int left_column = at.column + part * 64;
          float *values = sums[fragment] + part * 32;
#pragma unroll
          for (int i = 0; i < 32; ++i) {
            const int row = first + thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
            const int column = left_column + i / 4 * 8 + lane % 4 * 2 + i % 2;
            values[i] = kernel_persistent_0_finish(values[i], at.matrix, row, column, bias);
          }
          if (thread == 0) tuner_stores_read<1>();
          tuner_warpgroup_barrier(consumer + 1);
          const unsigned line = thread / 32 * 16 + lane % 16;
#pragma unroll
          for (int square = 0; square < 4; ++square) {
            const float *v = values + square * 8;
            tuner_put(place + line * 128 + ((square * 2u + lane / 16) ^ line % 8) * 16, tuner_pair_float16(v[0], v[1]), tuner_pair_float16(v[2], v[3]), tuner_pair_float16(v[4], v[5]), tuner_pair_float16(v[6], v[7]));
          }
          tuner_written();
          tuner_warpgroup_barrier(consumer + 1);
          if (thread == 0) tuner_store(&output, left_column, first, place);
          half = half + 1 == 2 ? 0 : half + 1;
        }
      }
    }
    if (thread == 0) tuner_stores_read<0>();
  }
}
