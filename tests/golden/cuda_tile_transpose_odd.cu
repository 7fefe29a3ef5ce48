
#ifdef __CUDACC_RTC__
  #include <cuda/std/cstdint>
  using cuda::std::uint8_t;
  using cuda::std::uint16_t;
  using cuda::std::uint32_t;
  using cuda::std::uint64_t;
  using cuda::std::int8_t;
  using cuda::std::int16_t;
  using cuda::std::int32_t;
  using cuda::std::int64_t;

  #include <cuda/std/type_traits>
  namespace std {
    using cuda::std::is_same;
    using cuda::std::is_same_v;
    using cuda::std::is_integral;
    using cuda::std::is_signed;
    using cuda::std::is_unsigned;
    using cuda::std::is_floating_point;
    using cuda::std::enable_if;
    using cuda::std::conditional;
  }

  // NVRTC uses asm/volatile instead of __asm__/__volatile__ (gcc extension).
  #ifndef __asm__
  #define __asm__ asm
  #endif
  #ifndef __volatile__
  #define __volatile__ volatile
  #endif
#else
  #include <cstdint>
  #include <type_traits>
  #include <cuda.h>
#endif

#if (((__CUDACC_VER_MAJOR__ == 11) && (__CUDACC_VER_MINOR__ >= 4)) || \
     (__CUDACC_VER_MAJOR__ > 11))
#define TVM_ENABLE_L2_PREFETCH 1
#else
#define TVM_ENABLE_L2_PREFETCH 0
#endif

#ifdef _WIN32
  using uint = unsigned int;
  using uchar = unsigned char;
  using ushort = unsigned short;
  using int64_t = long long;
  using uint64_t = unsigned long long;
#else
  #define uint unsigned int
  #define uchar unsigned char
  #define ushort unsigned short
#endif
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ X_ptr, float* __restrict__ Y_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ X_ptr, float* __restrict__ Y_ptr) {
  __shared__ alignas(64) float Y_fetch0_ptr[136];
  int cse_v3 = min(((((int)blockIdx.x) % 5) * 8), 29);
  int cse_v4 = min(((((int)blockIdx.x) / 5) * 16), 25);
  for (int ax2_ax3_fused_0 = 0; ax2_ax3_fused_0 < 2; ++ax2_ax3_fused_0) {
    int cse_v1 = (((int)threadIdx.y) >> 1);
    int cse_v2 = ((((int)threadIdx.y) & 1) * 8);
    Y_fetch0_ptr[((((ax2_ax3_fused_0 * 68) + ((((int)threadIdx.y) >> 1) * 17)) + ((((int)threadIdx.y) & 1) * 8)) + ((int)threadIdx.x))] = X_ptr[((((((ax2_ax3_fused_0 * 164) + ((((int)threadIdx.y) >> 1) * 41)) + (min(((((int)blockIdx.x) % 5) * 8), 29) * 41)) + ((((int)threadIdx.y) & 1) * 8)) + min(((((int)blockIdx.x) / 5) * 16), 25)) + ((int)threadIdx.x))];
  }
  __syncthreads();
  #pragma unroll
  for (int j_0 = 0; j_0 < 2; ++j_0) {
    Y_ptr[(((((j_0 * 296) + (min(((((int)blockIdx.x) / 5) * 16), 25) * 37)) + (((int)threadIdx.y) * 37)) + min(((((int)blockIdx.x) % 5) * 8), 29)) + ((int)threadIdx.x))] = Y_fetch0_ptr[(((((int)threadIdx.x) * 17) + (j_0 * 8)) + ((int)threadIdx.y))];
  }
}
