
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
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ A_ptr, float* __restrict__ B_ptr, float* __restrict__ Cprf_ptr);
extern "C" __global__ void __launch_bounds__(32) kernel_kernel_1(float* __restrict__ Cprf_ptr, float* __restrict__ Crf_ptr);
extern "C" __global__ void __launch_bounds__(64) kernel_kernel(float* __restrict__ A_ptr, float* __restrict__ B_ptr, float* __restrict__ Cprf_ptr) {
  alignas(64) float Cprf_acc_ptr[1];
  Cprf_acc_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  for (int k_2 = 0; k_2 < 256; ++k_2) {
    Cprf_acc_ptr[0] = (Cprf_acc_ptr[0] + (A_ptr[((((((int)threadIdx.y) * 65536) + (((int)blockIdx.x) * 512)) + (((int)threadIdx.z) * 256)) + k_2)] * B_ptr[((((((int)blockIdx.x) * 4096) + (((int)threadIdx.z) * 2048)) + (k_2 * 8)) + ((int)threadIdx.x))]));
  }
  Cprf_ptr[((((((int)blockIdx.x) * 64) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x))] = Cprf_acc_ptr[0];
}

extern "C" __global__ void __launch_bounds__(32) kernel_kernel_1(float* __restrict__ Cprf_ptr, float* __restrict__ Crf_ptr) {
  alignas(64) float Crf_acc_ptr[1];
  Crf_acc_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  int cse_v1 = (((int)threadIdx.y) * 8);
  for (int p_2 = 0; p_2 < 256; ++p_2) {
    Crf_acc_ptr[0] = (Crf_acc_ptr[0] + Cprf_ptr[(((p_2 * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x))]);
  }
  Crf_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))] = Crf_acc_ptr[0];
}
