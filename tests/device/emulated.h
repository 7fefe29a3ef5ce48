/* CUDA C++ on a CPU, thread by thread: what the generated kernels use of the language, for the double of NVIDIA's device.
 *
 * Blocks run one after another, the threads of a block in turns on stacks of their own: a thread runs until it reaches a barrier,
 * a shuffle, or an instruction of its whole warp, so that a missing barrier is a wrong answer and a divergent one an error. Copies
 * that were asked for asynchronously happen when they are waited for. Accesses that are not aligned for their vector trap. */
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <setjmp.h>
#include <type_traits>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

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

enum State { READY, AT_BARRIER, AT_WARP, DONE };
struct Copy { void *to; const void *from; unsigned bytes; };
struct Fiber {
  jmp_buf at;
  ucontext_t first;
  bool begun;
  State state;
  std::vector<Copy> open;                /* copies of the group that is not committed yet */
  std::vector<std::vector<Copy>> groups; /* committed ones, oldest first */
};

enum { MOST_THREADS = 1024, WARP = 32, STACK_BYTES = 96 << 10 };
enum Fault { FINE = 0, DIVERGENT = 1 };

static Fiber fibers[MOST_THREADS];
static char *stacks;
static jmp_buf scheduler;
static ucontext_t home;
static int current, threads;
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

/* A warp until all its threads wait for the block or are done. False where some threads of it wait for the others for ever. */
static bool run_warp(int first, int last, bool backwards) {
  for (;;) {
    int warp = 0, still = 0;
    for (int i = 0; i < last - first; i++) {
      int thread = backwards ? last - 1 - i : first + i;
      if (fibers[thread].state == READY) turn(thread);
    }
    for (int thread = first; thread < last; thread++) {
      warp += fibers[thread].state == AT_WARP;
      still += fibers[thread].state != DONE && fibers[thread].state != AT_WARP;
    }
    if (warp == 0) return true;
    if (still != 0) return false;
    for (int thread = first; thread < last; thread++)
      if (fibers[thread].state == AT_WARP) fibers[thread].state = READY;
  }
}

static Fault run_block(bool backwards) {
  for (int thread = 0; thread < threads; thread++) {
    fibers[thread].state = READY;
    fibers[thread].open.clear();
    fibers[thread].groups.clear();
  }
  for (;;) {
    int warps = (threads + WARP - 1) / WARP, waiting = 0, done = 0;
    for (int i = 0; i < warps; i++) {
      int warp = backwards ? warps - 1 - i : i, last = (warp + 1) * WARP;
      if (!run_warp(warp * WARP, last < threads ? last : threads, backwards)) return DIVERGENT;
    }
    for (int thread = 0; thread < threads; thread++) {
      waiting += fibers[thread].state == AT_BARRIER;
      done += fibers[thread].state == DONE;
    }
    if (done == threads) return FINE;
    if (done != 0) return DIVERGENT; /* a barrier that some threads never reach */
    for (int thread = 0; thread < threads; thread++) fibers[thread].state = READY;
    (void)waiting;
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

alignas(1024) static unsigned char shared_memory[227 << 10]; /* what is asked for at the launch */
static const unsigned char zeros[16] = {};
template <int alignment> static unsigned char *dynamic() {
  static_assert(1024 % alignment == 0);
  return shared_memory;
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
struct emu_f16 { static float value(uint16_t bits) { return emu_half_value(bits); } };
struct emu_bf16 { static float value(uint16_t bits) { return emu_bfloat_value(bits); } };
static uint16_t emu_permuted(unsigned place) {
  uint16_t bits;
  memcpy(&bits, emu::shared_memory + (place ^ (place >> 7 & 7) << 4), 2);
  return bits;
}
static unsigned emu_field(unsigned long long matrix, int first) { return (unsigned)(matrix >> first & 0x3fff) << 4; }
template <int N, class Kind, int ACROSS, class Sums>
static void emu_multiply(Sums *sums, unsigned long long left, unsigned long long right) {
  if (emu::threads % 128 != 0 || left >> 62 != 1 || right >> 62 != 1 || emu_field(left, 32) != 1024 || emu_field(right, 32) != 1024) abort();
  unsigned a = emu_field(left, 0), b = emu_field(right, 0), panel = emu_field(right, 16);
  int lane = emu::current % 32, first = emu::current % 128 / 32 * 16 + lane / 4;
  for (int i = 0; i < N / 2; i++) {
    int row = first + (i & 2 ? 8 : 0), column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
    float &sum = sums[i / 16].x[i % 16];
    for (int k = 0; k < 16; k++) {
      unsigned from = ACROSS ? column / 64 * panel + k / 8 * 1024 + k % 8 * 128 + column % 64 * 2 : column / 8 * 1024 + column % 8 * 128 + k * 2;
      sum += Kind::value(emu_permuted(a + row / 8 * 1024 + row % 8 * 128 + k * 2)) * Kind::value(emu_permuted(b + from));
    }
  }
}

/* -- what the driver's double finds in a "cubin": its kernels, and how one is run -- */
struct emu_kernel {
  const char *name;
  void *function;
  int parameters, most_threads;
};
template <class... A> constexpr int emu_count(void (*)(A...)) { return sizeof...(A); }
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
