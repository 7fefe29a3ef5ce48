/* CUDA C++ on a CPU, thread by thread: what the generated kernels use of the language, for the double of NVIDIA's device.
 *
 * Blocks run one after another, the threads of a block in turns on stacks of their own: a thread runs until it reaches a barrier,
 * a shuffle, or an instruction of its whole warp, so that a missing barrier is a wrong answer and a divergent one an error. Copies
 * that were asked for asynchronously happen when they are waited for; so do multiplications of warpgroups. A copy of a box by the
 * tensor memory accelerator, for which no thread in particular waits, happens when no thread can go on, or at once in every other
 * launch: whoever reads too early or gives a stage back too soon has a wrong answer. Accesses that are not aligned for their vector trap. */
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <setjmp.h>
#include <type_traits>
#include <ucontext.h>
#include <unistd.h>
#include <utility>
#include <vector>
#include "tensor_map.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static
#define __restrict__ __restrict
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_INF_F (std::numeric_limits<float>::infinity())
#define CUDART_INF (std::numeric_limits<double>::infinity())
#define CUDART_NAN_F (std::numeric_limits<float>::quiet_NaN())

struct emu_dim { unsigned x, y, z; };
static emu_dim threadIdx, blockIdx, blockDim, gridDim;

namespace emu {

enum State { READY, AT_BARRIER, AT_WARP, POLLING, DONE }; /* polling: runs again to see whether what it waits for has come */
struct Copy { void *to; const void *from; unsigned bytes; };
struct Product { void (*run)(void *, unsigned long long, unsigned long long, bool); void *sums; unsigned long long left, right; bool add; };
struct Box { const emu_tensor_map *map; int place[5]; unsigned shared, barrier; };
struct Fiber {
  jmp_buf at;
  ucontext_t first;
  bool begun;
  State state;
  std::vector<Copy> open;                /* copies of the group that is not committed yet */
  std::vector<std::vector<Copy>> groups; /* committed ones, oldest first */
  std::vector<Product> multiplying;
  std::vector<std::vector<Product>> multiplications;
  std::vector<Box> storing;
  std::vector<std::vector<Box>> stores;
};

enum { MOST_THREADS = 1024, WARP = 32, STACK_BYTES = 96 << 10 };
enum Fault { FINE = 0, DIVERGENT = 1 };

static Fiber fibers[MOST_THREADS];
static char *stacks;
static jmp_buf scheduler;
static ucontext_t home;
static int current, threads;
static bool eager;                      /* boxes are copied at once */
static unsigned long long events;       /* whatever a polling thread may wait for */
static void (*body)(void);
static uint64_t shuffled[MOST_THREADS]; /* what each thread offers to its warp */
static unsigned long long slices;       /* turns taken: the work that the virtual clock counts */

static void place(int thread) {
  current = thread;
  threadIdx.x = thread % blockDim.x;
  threadIdx.y = thread / blockDim.x % blockDim.y;
  threadIdx.z = thread / (blockDim.x * blockDim.y);
}

static void leave(State state) {
  int mine = current;
  fibers[mine].state = state;
  if (_setjmp(fibers[mine].at) == 0) _longjmp(scheduler, 1);
  place(mine);
}

/* A stack serves the thread of its number of one block after another: making a context takes far longer than a turn. */
static void begin() {
  for (;;) {
    body();
    events++;
    leave(DONE);
  }
}

static void turn(int thread) {
  Fiber &fiber = fibers[thread];
  place(thread);
  slices++;
  if (_setjmp(scheduler) == 0) {
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = stacks + (size_t)thread * STACK_BYTES;
    fiber.first.uc_stack.ss_size = STACK_BYTES;
    fiber.first.uc_link = nullptr;
    makecontext(&fiber.first, begin, 0);
    swapcontext(&home, &fiber.first);
  }
}

/* A warp until all its threads wait for the block, or for what others do, or are done. False where some threads of it wait for the others for ever. */
static bool run_warp(int first, int last, bool backwards) {
  for (;;) {
    int warp = 0, still = 0, polling = 0;
    for (int i = 0; i < last - first; i++) {
      int thread = backwards ? last - 1 - i : first + i;
      if (fibers[thread].state == READY || fibers[thread].state == POLLING) turn(thread);
    }
    for (int thread = first; thread < last; thread++) {
      warp += fibers[thread].state == AT_WARP;
      polling += fibers[thread].state == POLLING;
      still += fibers[thread].state == AT_BARRIER;
    }
    if (warp == 0 || polling != 0) return true;
    if (still != 0) return false;
    events++;
    for (int thread = first; thread < last; thread++)
      if (fibers[thread].state == AT_WARP) fibers[thread].state = READY;
  }
}

alignas(1024) static unsigned char shared_memory[227 << 10]; /* what is asked for at the launch */
static const unsigned char zeros[16] = {};
template <int alignment> static unsigned char *dynamic() {
  static_assert(1024 % alignment == 0);
  return shared_memory;
}

/* -- barriers of shared memory (mbarrier), by address -- */
struct Barrier { unsigned arrivals, pending, phase; long bytes; };
static std::map<unsigned, Barrier> barriers;
static Barrier &barrier_at(unsigned address) {
  auto found = barriers.find(address);
  if (found == barriers.end()) abort(); /* nobody has made it */
  return found->second;
}
static void settle(Barrier &barrier) {
  events++;
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.arrivals;
}
static void begin_barrier(unsigned address, unsigned arrivals) {
  if (address % 8 != 0 || arrivals == 0) abort();
  barriers[address] = {arrivals, arrivals, 0, 0};
}
static void arrive(unsigned address) {
  Barrier &barrier = barrier_at(address);
  if (barrier.pending-- == 0) abort(); /* more arrivals than it was made for */
  settle(barrier);
}
static void expect(unsigned address, unsigned bytes) {
  barrier_at(address).bytes += bytes;
  arrive(address);
}
static void wait_barrier(unsigned address, unsigned parity) {
  while (barrier_at(address).phase == parity) leave(POLLING);
  events++;
}

/* -- numbered barriers of some threads of a block; who only arrives does not wait -- */
struct Meeting { unsigned arrived, round; };
static Meeting meetings[16];
static void meet(unsigned number, unsigned count, bool waits) {
  if (number >= 16) abort();
  Meeting &meeting = meetings[number];
  unsigned round = meeting.round;
  if (++meeting.arrived == count) meeting = {0, round + 1};
  events++;
  while (waits && meeting.round == round) leave(POLLING);
  events++;
}

/* -- boxes that the tensor memory accelerator copies: rows of 128 bytes whose pieces of 16 are permuted -- */
static std::vector<Box> flying;
static void round_to_tf32(unsigned char *element) { /* to the nearest number of 10 bits of mantissa */
  uint32_t bits;
  memcpy(&bits, element, 4);
  if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + 0x1000) & ~0x1fffu;
  memcpy(element, &bits, 4);
}
static void copy_box(const Box &box, bool stores) {
  const emu_tensor_map &map = *box.map;
  unsigned rows = 1, pieces = 128 / map.itemsize;
  if (box.shared % 128 != 0 || map.box[0] != pieces) abort();
  for (int i = 1; i < map.rank; i++) rows *= map.box[i];
  for (unsigned row = 0; row < rows; row++)
    for (unsigned x = 0; x < pieces; x++) {
      unsigned rest = row, to = box.shared + row * 128 + x * map.itemsize;
      bool inside = box.place[0] >= 0 && box.place[0] + x < map.extents[0];
      unsigned char *element = (unsigned char *)map.address + (box.place[0] + (long)x) * map.itemsize;
      for (int i = 1; i < map.rank; rest /= map.box[i++]) {
        long at = box.place[i] + (long)(rest % map.box[i]) * map.steps[i];
        inside = inside && at >= 0 && at < map.extents[i];
        element += at * (long)map.strides[i];
      }
      to ^= (to >> 7 & 7) << 4;
      if (stores && inside) memcpy(element, shared_memory + to, map.itemsize);
      if (!stores && inside) memcpy(shared_memory + to, element, map.itemsize);
      if (!stores && inside && map.rounds) round_to_tf32(shared_memory + to);
      if (!stores && !inside) memset(shared_memory + to, 0, map.itemsize);
    }
  if (stores) return;
  Barrier &barrier = barrier_at(box.barrier);
  barrier.bytes -= rows * 128;
  settle(barrier);
}
static bool deliver() {
  if (flying.empty()) return false;
  copy_box(flying.front(), false);
  flying.erase(flying.begin());
  return true;
}
static void load_box(unsigned to, const void *map, int x, int y, int z, int u, unsigned barrier) {
  flying.push_back({(const emu_tensor_map *)map, {x, y, z, u}, to, barrier});
  if (eager) deliver();
}
static void store_box(const void *map, int x, int y, int z, int u, unsigned from) {
  fibers[current].storing.push_back({(const emu_tensor_map *)map, {x, y, z, u}, from, 0});
}
static void commit_stores() {
  fibers[current].stores.push_back(fibers[current].storing);
  fibers[current].storing.clear();
}
static void wait_stores(unsigned left) {
  auto &stores = fibers[current].stores;
  while (stores.size() > left) {
    for (const Box &box : stores.front()) copy_box(box, true);
    stores.erase(stores.begin());
  }
}

static Fault run_block(bool backwards) {
  for (int thread = 0; thread < threads; thread++) {
    Fiber &fiber = fibers[thread];
    fiber.state = READY;
    fiber.open.clear();
    fiber.groups.clear();
    fiber.multiplying.clear();
    fiber.multiplications.clear();
    fiber.storing.clear();
    fiber.stores.clear();
  }
  barriers.clear();
  memset(meetings, 0, sizeof meetings);
  flying.clear();
  eager = backwards;
  for (;;) {
    int warps = (threads + WARP - 1) / WARP, waiting = 0, done = 0;
    unsigned long long before = events;
    for (int i = 0; i < warps; i++) {
      int warp = backwards ? warps - 1 - i : i, last = (warp + 1) * WARP;
      if (!run_warp(warp * WARP, last < threads ? last : threads, backwards)) return DIVERGENT;
    }
    for (int thread = 0; thread < threads; thread++) {
      waiting += fibers[thread].state == AT_BARRIER;
      done += fibers[thread].state == DONE;
    }
    if (done == threads) return flying.empty() ? FINE : DIVERGENT; /* a copy to shared memory that is gone */
    if (waiting + done == threads && done != 0) return DIVERGENT; /* a barrier that some threads never reach */
    if (waiting == threads) {
      for (int thread = 0; thread < threads; thread++) fibers[thread].state = READY;
    } else if (events == before && !deliver()) {
      return DIVERGENT; /* everybody waits for what never comes */
    }
  }
}

static int run_grid(const unsigned *grid, const unsigned *block, bool backwards, unsigned long long *turns) {
  if (stacks == nullptr) stacks = (char *)malloc((size_t)MOST_THREADS * STACK_BYTES);
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  threads = block[0] * block[1] * block[2];
  slices = 0;
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0]; x++) {
        blockIdx = {x, y, z};
        if (Fault fault = run_block(backwards)) return fault;
      }
  *turns = slices;
  return FINE;
}

static void copy_async(void *to, const void *from, unsigned bytes) { fibers[current].open.push_back({to, from, bytes}); }
static void commit_async() {
  fibers[current].groups.push_back(fibers[current].open);
  fibers[current].open.clear();
}
static void wait_async(unsigned left) {
  auto &groups = fibers[current].groups;
  while (groups.size() > left) {
    for (const Copy &one : groups.front()) memcpy(one.to, one.from, one.bytes);
    groups.erase(groups.begin());
  }
}

} /* namespace emu */

static inline void __syncthreads() { emu::leave(emu::AT_BARRIER); }
static inline void __syncwarp(unsigned = 0xffffffff) { emu::leave(emu::AT_WARP); }
static inline unsigned __activemask() {
  int left = emu::threads - emu::current / emu::WARP * emu::WARP;
  return left >= emu::WARP ? 0xffffffffu : (1u << left) - 1;
}
static inline void __nanosleep(unsigned) { usleep(100); }

template <class T> static T emu_shuffled(T value, int from) {
  static_assert(sizeof(T) <= 8);
  memcpy(&emu::shuffled[emu::current], &value, sizeof(T));
  emu::leave(emu::AT_WARP);
  int lane = emu::current % emu::WARP, source = emu::current - lane + from;
  T found = value;
  if (source < emu::threads) memcpy(&found, &emu::shuffled[source], sizeof(T));
  emu::leave(emu::AT_WARP);
  return found;
}
template <class T> static T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  int mine = emu::current % emu::WARP;
  return emu_shuffled(value, mine / width * width + lane % width);
}
template <class T> static T __shfl_down_sync(unsigned, T value, unsigned offset, int width = 32) {
  int mine = emu::current % emu::WARP, from = mine + (int)offset;
  return emu_shuffled(value, from / width == mine / width ? from : mine);
}
template <class T> static T __shfl_up_sync(unsigned, T value, unsigned offset, int width = 32) {
  int mine = emu::current % emu::WARP, from = mine - (int)offset;
  return emu_shuffled(value, from >= mine / width * width ? from : mine);
}

/* -- vectors, aligned as the device wants them -- */
#define EMU_VECTORS(type, name)                                       \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };            \
  struct name##3 { type x, y, z; };                                   \
  struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; }; \
  static inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMU_VECTORS(signed char, char)
EMU_VECTORS(unsigned char, uchar)
EMU_VECTORS(short, short)
EMU_VECTORS(unsigned short, ushort)
EMU_VECTORS(int, int)
EMU_VECTORS(unsigned, uint)
EMU_VECTORS(long long, longlong)
EMU_VECTORS(unsigned long long, ulonglong)
EMU_VECTORS(float, float)
EMU_VECTORS(double, double)

template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmax((T)a, (T)b);
  else return (T)a > (T)b ? (T)a : (T)b;
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmin((T)a, (T)b);
  else return (T)a < (T)b ? (T)a : (T)b;
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#define __expf expf
static inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
  return c;
}
template <class T> static T __ldcg(const T *from) { return *from; }
static inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline unsigned __cvta_generic_to_shared(const void *place) { return (unsigned)((const unsigned char *)place - emu::shared_memory); }

/* -- 16 bits of floating point: rounded to the nearest, ties to even -- */
static inline uint16_t emu_half_bits(float value) {
  uint32_t x;
  memcpy(&x, &value, 4);
  uint32_t sign = x >> 16 & 0x8000, rest = x & 0x7fffffff;
  if (rest >= 0x7f800000) return sign | 0x7c00 | (rest > 0x7f800000 ? 0x200 : 0);
  if (rest >= 0x477ff000) return sign | 0x7c00;
  if (rest < 0x38800000) { /* subnormal: in units of 2^-24 */
    float unit;
    memcpy(&unit, &rest, 4);
    return sign | (uint16_t)std::nearbyint(unit * 16777216.0f);
  }
  uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
  return sign | (uint16_t)((rounded - 0x38000000) >> 13);
}
static inline float emu_half_value(uint16_t bits) {
  uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? CUDART_NAN_F : sign * CUDART_INF_F;
  return sign * (exponent ? std::ldexp(1024.0f + fraction, (int)exponent - 25) : std::ldexp((float)fraction, -24));
}
static inline uint16_t emu_bfloat_bits(float value) {
  uint32_t x;
  memcpy(&x, &value, 4);
  if ((x & 0x7fffffff) > 0x7f800000) return x >> 16 | 0x40;
  return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}
static inline float emu_bfloat_value(uint16_t bits) {
  uint32_t x = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &x, 4);
  return value;
}
#define EMU_NARROW(name, to_bits, to_value)                                                  \
  struct name {                                                                              \
    uint16_t bits;                                                                           \
    name() = default;                                                                        \
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> name(T x) : bits(to_bits((float)x)) {} \
    operator float() const { return to_value(bits); }                                        \
    name &operator+=(name other) { return *this = name((float)*this + (float)other); }       \
  };                                                                                         \
  static inline name operator+(name a, name b) { return name((float)a + (float)b); }         \
  static inline name operator-(name a, name b) { return name((float)a - (float)b); }         \
  static inline name operator*(name a, name b) { return name((float)a * (float)b); }         \
  static inline name operator/(name a, name b) { return name((float)a / (float)b); }         \
  static inline name operator-(name a) { return name(-(float)a); }                           \
  static inline bool __hgt(name a, name b) { return (float)a > (float)b; }                   \
  static inline bool __hlt(name a, name b) { return (float)a < (float)b; }                   \
  struct alignas(4) name##2 { name x, y; name##2() = default; name##2(name x, name y) : x(x), y(y) {} };
EMU_NARROW(__half, emu_half_bits, emu_half_value)
EMU_NARROW(__nv_bfloat16, emu_bfloat_bits, emu_bfloat_value)
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
static inline float __half2float(half x) { return (float)x; }
static inline half __float2half(float x) { return half(x); }
static inline half __float2half_rn(float x) { return half(x); }
static inline float __bfloat162float(nv_bfloat16 x) { return (float)x; }
static inline nv_bfloat16 __float2bfloat16(float x) { return nv_bfloat16(x); }
static inline nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
static inline half hexp(half x) { return half(expf((float)x)); }
static inline nv_bfloat16 hexp(nv_bfloat16 x) { return nv_bfloat16(expf((float)x)); }

/* -- tensor cores: the first lane of a warp holds the square and computes; everybody else waits for it -- */
namespace nvcuda {
namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  T held[(std::is_same_v<Use, matrix_a> ? M * K : std::is_same_v<Use, matrix_b> ? K * N : M * N)];
};
static inline bool emu_first() { return emu::current % emu::WARP == 0; }
static inline void emu_whole() {
  if (emu::threads % emu::WARP != 0) abort(); /* such instructions want whole warps */
}
template <class Use, int M, int N, int K, class T, class L> void fill_fragment(fragment<Use, M, N, K, T, L> &to, std::common_type_t<T> value) {
  for (T &one : to.held) one = value;
}
template <class Use, int M, int N, int K, class T, class L>
void load_matrix_sync(fragment<Use, M, N, K, T, L> &to, const T *from, unsigned stride) {
  constexpr int rows = std::is_same_v<Use, matrix_a> ? M : K, columns = std::is_same_v<Use, matrix_a> ? K : N;
  emu_whole();
  /* A square's row, as the instruction asks for; C++'s description asks for 32 bytes whatever the elements are. */
  if ((uintptr_t)from % (16 * sizeof(T)) != 0 || stride * sizeof(T) % 16 != 0) __builtin_trap();
  emu::leave(emu::AT_WARP);
  if (emu_first())
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < columns; j++)
        to.held[i * columns + j] = from[std::is_same_v<L, row_major> ? i * stride + j : j * stride + i];
  emu::leave(emu::AT_WARP);
}
template <int M, int N, int K, class T>
void store_matrix_sync(T *to, const fragment<accumulator, M, N, K, T> &from, unsigned stride, layout_t layout) {
  emu_whole();
  if ((uintptr_t)to % (16 * sizeof(T)) != 0 || stride * sizeof(T) % 16 != 0) __builtin_trap();
  emu::leave(emu::AT_WARP);
  if (emu_first())
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) to[layout == mem_row_major ? i * stride + j : j * stride + i] = from.held[i * N + j];
  emu::leave(emu::AT_WARP);
}
template <int M, int N, int K, class T, class I, class LA, class LB>
void mma_sync(fragment<accumulator, M, N, K, T> &to, const fragment<matrix_a, M, N, K, I, LA> &a,
              const fragment<matrix_b, M, N, K, I, LB> &b, const fragment<accumulator, M, N, K, T> &c) {
  emu_whole();
  emu::leave(emu::AT_WARP);
  if (!emu_first()) return;
  T left[M * K], right[K * N];
  for (int i = 0; i < M * K; i++) left[i] = (T)a.held[i];
  for (int i = 0; i < K * N; i++) right[i] = (T)b.held[i];
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      T sum = c.held[i * N + j];
      for (int k = 0; k < K; k++) sum += left[i * K + k] * right[k * N + j];
      to.held[i * N + j] = sum;
    }
}
} /* namespace wmma */
} /* namespace nvcuda */

/* -- warpgroups: each thread computes its own sums from operands in shared memory, whose pieces of 16 bytes are permuted -- */
struct emu_halves { /* every value of 16 bits, looked up */
  float values[1 << 16];
  emu_halves() {
    for (int bits = 0; bits < 1 << 16; bits++) values[bits] = emu_half_value(bits);
  }
};
struct emu_f16 {
  using Bits = uint16_t;
  static float value(Bits bits) {
    static const emu_halves halves;
    return halves.values[bits];
  }
};
struct emu_bf16 {
  using Bits = uint16_t;
  static float value(Bits bits) { return emu_bfloat_value(bits); }
};
static uint16_t emu_permuted(unsigned place) {
  uint16_t bits;
  memcpy(&bits, emu::shared_memory + (place ^ (place >> 7 & 7) << 4), 2);
  return bits;
}
static unsigned emu_field(unsigned long long matrix, int first) { return (unsigned)(matrix >> first & 0x3fff) << 4; }
template <int N, class Kind, int ACROSS> static void emu_product(void *to, unsigned long long left, unsigned long long right, bool add) {
  unsigned a = emu_field(left, 0), b = emu_field(right, 0), panel = emu_field(right, 16);
  float *sums = (float *)to;
  int lane = emu::current % 32, first = emu::current % 128 / 32 * 16 + lane / 4;
  float rows[2][16], columns[16]; /* of a thread's two rows, and of one column */
  for (int k = 0; k < 32; k++) {
    int row = first + k / 16 * 8;
    rows[k / 16][k % 16] = Kind::value(emu_permuted(a + row / 8 * 1024 + row % 8 * 128 + k % 16 * 2));
  }
  for (int j = 0; j < N / 4; j++) {
    int column = j / 2 * 8 + lane % 4 * 2 + j % 2;
    for (int k = 0; k < 16; k++) {
      unsigned from = ACROSS ? column / 64 * panel + k / 8 * 1024 + k % 8 * 128 + column % 64 * 2 : column / 8 * 1024 + column % 8 * 128 + k * 2;
      columns[k] = Kind::value(emu_permuted(b + from));
    }
    for (int row = 0; row < 2; row++) {
      float &held = sums[j / 2 * 4 + row * 2 + j % 2], sum = add ? held : 0;
      for (int k = 0; k < 16; k++) sum += rows[row][k] * columns[k];
      held = sum;
    }
  }
}
template <int N, class Kind, int ACROSS> static void emu_multiply(void *sums, unsigned long long left, unsigned long long right, bool add) {
  if (emu::threads % 128 != 0 || left >> 62 != 1 || right >> 62 != 1 || emu_field(left, 32) != 1024 || emu_field(right, 32) != 1024) abort();
  emu::fibers[emu::current].multiplying.push_back({emu_product<N, Kind, ACROSS>, sums, left, right, add});
}
/* Elements of one byte or four: both operands have their depth, 32 bytes, last. */
struct emu_s8 { using Bits = signed char; static int value(Bits bits) { return bits; } };
struct emu_u8 { using Bits = unsigned char; static int value(Bits bits) { return bits; } };
static float emu_byte_value(unsigned char bits, int mantissa, int bias) {
  int size = bits & 127, exponent = size >> mantissa, rest = size & ((1 << mantissa) - 1);
  float number = exponent ? ldexpf((float)(1 << mantissa | rest), exponent - bias - mantissa) : ldexpf((float)rest, 1 - bias - mantissa);
  return bits & 128 ? -number : number;
}
struct emu_bytes { /* every value of 8 bits, looked up */
  float values[256];
  emu_bytes(int mantissa, int bias, bool infinite) {
    for (int bits = 0; bits < 256; bits++) {
      int size = bits & 127;
      values[bits] = emu_byte_value(bits, mantissa, bias);
      if (infinite && size >= 124) values[bits] = size > 124 ? NAN : bits & 128 ? -INFINITY : INFINITY;
      if (!infinite && size == 127) values[bits] = NAN;
    }
  }
};
struct emu_e4m3 {
  using Bits = unsigned char;
  static float value(Bits bits) {
    static const emu_bytes bytes(3, 7, false);
    return bytes.values[bits];
  }
};
struct emu_e5m2 {
  using Bits = unsigned char;
  static float value(Bits bits) {
    static const emu_bytes bytes(2, 15, true);
    return bytes.values[bits];
  }
};
struct emu_tf32 {
  using Bits = uint32_t;
  static float value(Bits bits) {
    float number;
    return memcpy(&number, &(bits &= ~0x1fffu), 4), number;
  }
};
static int emu_total(int sum, const int *terms, int count, size_t) {
  for (int k = 0; k < count; k++) sum += terms[k];
  return sum;
}
/* Sums of bytes keep 13 bits behind the point of the greatest term, what is less is cut off. */
static float emu_total(float sum, const float *terms, int count, size_t size) {
  float greatest = fabsf(sum), plain = sum;
  for (int k = 0; k < count; k++) plain += terms[k], greatest = fmaxf(greatest, fabsf(terms[k]));
  if (size != 1 || !std::isfinite(plain) || greatest == 0) return plain;
  int exponent;
  frexpf(greatest, &exponent);
  float unit = ldexpf(1, exponent - 1 - 13), total = truncf(sum / unit);
  for (int k = 0; k < count; k++) total += truncf(terms[k] / unit);
  return total * unit;
}
template <int N, class Left, class Right> static void emu_plain_product(void *to, unsigned long long left, unsigned long long right, bool add) {
  unsigned a = emu_field(left, 0), b = emu_field(right, 0);
  auto *sums = (decltype(Left::value(0)) *)to;
  int lane = emu::current % 32, first = emu::current % 128 / 32 * 16 + lane / 4;
  constexpr int size = sizeof(typename Left::Bits), depth = 32 / size;
  auto element = [](auto &bits, unsigned matrix, int row, int k) {
    unsigned place = matrix + row / 8 * 1024 + row % 8 * 128 + k * size;
    memcpy(&bits, emu::shared_memory + (place ^ (place >> 7 & 7) << 4), size);
  };
  for (int j = 0; j < N / 2; j++) {
    int column = j / 4 * 8 + lane % 4 * 2 + j % 2, row = first + j / 2 % 2 * 8;
    decltype(Left::value(0)) terms[depth];
    for (int k = 0; k < depth; k++) {
      typename Left::Bits x;
      typename Right::Bits y;
      element(x, a, row, k), element(y, b, column, k);
      terms[k] = Left::value(x) * Right::value(y);
    }
    sums[j] = emu_total(add ? sums[j] : 0, terms, depth, size);
  }
}
template <int N, class Left, class Right> static void emu_multiply_plainly(void *sums, unsigned long long left, unsigned long long right, bool add) {
  if (emu::threads % 128 != 0 || left >> 62 != 1 || right >> 62 != 1 || emu_field(left, 32) != 1024 || emu_field(right, 32) != 1024) abort();
  emu::fibers[emu::current].multiplying.push_back({emu_plain_product<N, Left, Right>, sums, left, right, add});
}
static void emu_commit_multiplications() {
  emu::Fiber &fiber = emu::fibers[emu::current];
  fiber.multiplications.push_back(fiber.multiplying);
  fiber.multiplying.clear();
}
static void emu_wait_multiplications(unsigned left) {
  auto &groups = emu::fibers[emu::current].multiplications;
  while (groups.size() > left) {
    for (const emu::Product &one : groups.front()) one.run(one.sums, one.left, one.right, one.add);
    groups.erase(groups.begin());
  }
  emu::leave(emu::AT_WARP); /* of the whole warp */
}
static void emu_registers(unsigned count) {
  if (count % 8 != 0 || count < 24 || count > 256) abort();
  emu::leave(emu::AT_WARP);
}
/* Four squares of 8 rows of 16 bytes: lanes name the rows, and hold two elements of each square. */
static void emu_put_squares(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
  unsigned values[4] = {a, b, c, d};
  int lane = emu::current % 32, base = emu::current - lane;
  if (row % 16 != 0) abort();
  emu::shuffled[emu::current] = row;
  emu::leave(emu::AT_WARP);
  for (int square = 0; square < 4; square++)
    memcpy(emu::shared_memory + emu::shuffled[base + square * 8 + lane / 4] + lane % 4 * 4, &values[square], 4);
  emu::leave(emu::AT_WARP);
}
/* The other way round; turned, a lane gets two elements of 16 bits of a column. */
static void emu_take_squares(unsigned *values, unsigned row, bool turned) {
  int lane = emu::current % 32, base = emu::current - lane;
  if (row % 16 != 0) abort();
  emu::shuffled[emu::current] = row;
  emu::leave(emu::AT_WARP);
  for (int square = 0; square < 4; square++) {
    auto at = [&](int line, int column) { return emu::shared_memory + emu::shuffled[base + square * 8 + line] + column * 2; };
    uint16_t pair[2];
    for (int i = 0; i < 2; i++) memcpy(&pair[i], turned ? at(lane % 4 * 2 + i, lane / 4) : at(lane / 4, lane % 4 * 2 + i), 2);
    values[square] = pair[0] | (unsigned)pair[1] << 16;
  }
  emu::leave(emu::AT_WARP);
}
/* 16 rows by 8 columns, 32 bytes of the depth. Which lane has which elements: PTX ISA, "Matrix Fragments for mma.m16n8k16", "k32", "k8". */
template <class Left, class Right, class Sum> static void emu_multiply_in_warp(Sum *sums, const unsigned *left, const unsigned *right) {
  static unsigned held[emu::MOST_THREADS][6];
  constexpr int size = sizeof(typename Left::Bits), per = 4 / size, depth = 32 / size;
  int lane = emu::current % 32, base = emu::current - lane;
  memcpy(held[emu::current], left, 16);
  memcpy(held[emu::current] + 4, right, 8);
  emu::leave(emu::AT_WARP);
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    Sum terms[depth];
    for (int k = 0; k < depth; k++) {
      int word = k / per;
      typename Left::Bits x;
      typename Right::Bits y;
      memcpy(&x, (char *)&held[base + row % 8 * 4 + word % 4][row / 8 + word / 4 * 2] + k % per * size, size);
      memcpy(&y, (char *)&held[base + column * 4 + word % 4][4 + word / 4] + k % per * size, size);
      terms[k] = Left::value(x) * Right::value(y);
    }
    sums[i] = emu_total(sums[i], terms, depth, 4);
  }
  emu::leave(emu::AT_WARP);
}
static void emu_put_word(unsigned place, unsigned both) {
  if (place % 4 != 0) abort();
  memcpy(emu::shared_memory + place, &both, 4);
}
static void emu_put_bytes(unsigned place, unsigned short both) {
  if (place % 2 != 0) abort();
  memcpy(emu::shared_memory + place, &both, 2);
}
template <class T> static void emu_put_pair(unsigned place, T low, T high) {
  T pair[2] = {low, high};
  if (place % 8 != 0) abort();
  memcpy(emu::shared_memory + place, pair, 8);
}
static unsigned emu_half_pair(float low, float high) { return emu_half_bits(low) | (unsigned)emu_half_bits(high) << 16; }
static unsigned emu_bfloat_pair(float low, float high) { return emu_bfloat_bits(low) | (unsigned)emu_bfloat_bits(high) << 16; }

/* -- what the driver's double finds in a "cubin": its kernels, and how one is run -- */
struct emu_kernel {
  const char *name;
  void *function;
  int parameters, most_threads;
  int maps; /* of the parameters, which come first; a kernel gets their places */
};
template <class... A> constexpr int emu_count(void (*)(A...)) { return sizeof...(A); }
template <class... A> constexpr int emu_maps(void (*)(A...)) { return (0 + ... + std::is_reference_v<A>); }
static void *emu_function;
static uint64_t emu_arguments[16];
static void emu_call() {
  const uint64_t *a = emu_arguments;
  using F = void (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
  ((F)emu_function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}
extern "C" __attribute__((visibility("default"))) int emu_run(const emu_kernel *kernel, const unsigned *grid, const unsigned *block,
                                                             const uint64_t *arguments, int backwards, unsigned long long *turns) {
  emu_function = kernel->function;
  for (int i = 0; i < 16; i++) emu_arguments[i] = i < kernel->parameters ? arguments[i] : 0;
  emu::body = emu_call;
  return emu::run_grid(grid, block, backwards, turns);
}
