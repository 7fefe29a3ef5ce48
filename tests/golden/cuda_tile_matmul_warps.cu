
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
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0() {
  asm volatile("cp.async.wait_group 0;" :  :  : "memory");
}
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1() {
  asm volatile("cp.async.wait_group 1;" :  :  : "memory");
}
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_commit_group_async_commit_group() {
  asm volatile("cp.async.commit_group;" :  : );
}

__forceinline__ __device__ void ptx_cp_async_legacy_cg_16_4_4(void* dst, int dst_off, void* src, int src_off) {
  uint8_t* dst_p = (uint8_t*)dst + dst_off * 4;
  uint8_t* src_p = (uint8_t*)src + src_off * 4;
  unsigned int dst_addr = __cvta_generic_to_shared(dst_p);
  asm volatile("cp.async.cg.shared.global [%0], [%1], %2;"
    :: "r"(dst_addr), "l"(src_p), "n"(16));
}
extern "C" __global__ void __launch_bounds__(128) kernel_kernel(float* __restrict__ A_ptr, float* __restrict__ B_ptr, float* __restrict__ C_ptr);
extern "C" __global__ void __launch_bounds__(128) kernel_kernel(float* __restrict__ A_ptr, float* __restrict__ B_ptr, float* __restrict__ C_ptr) {
  alignas(64) float C_acc_ptr[32];
  #pragma unroll
  for (int i_0_init = 0; i_0_init < 2; ++i_0_init) {
    #pragma unroll
    for (int i_l_init = 0; i_l_init < 4; ++i_l_init) {
      #pragma unroll
      for (int j_l_init = 0; j_l_init < 4; ++j_l_init) {
        C_acc_ptr[(((i_0_init * 16) + (i_l_init * 4)) + j_l_init)] = 0x0p+0f/*0.000000e+00*/;
      }
    }
  }
  __shared__ alignas(64) float C_fetch0_ptr[2048];
  __shared__ alignas(64) float C_fetch1_ptr[2048];
  int cse_v1 = (((int)threadIdx.x) * 4);
  int cse_v5 = ((((int)threadIdx.x) >> 2) * 64);
  int cse_v6 = ((((int)threadIdx.x) & 3) * 4);
  for (int ax2_ax3_fused_0 = 0; ax2_ax3_fused_0 < 2; ++ax2_ax3_fused_0) {
    int cse_v4 = ((ax2_ax3_fused_0 * 512) + (((int)threadIdx.x) * 4));
    ptx_cp_async_legacy_cg_16_4_4(C_fetch1_ptr, ((ax2_ax3_fused_0 * 512) + (((int)threadIdx.x) * 4)), B_ptr, ((ax2_ax3_fused_0 * 512) + (((int)threadIdx.x) * 4)));
  }
  for (int ax2_ax3_fused_0_1 = 0; ax2_ax3_fused_0_1 < 2; ++ax2_ax3_fused_0_1) {
    ptx_cp_async_legacy_cg_16_4_4(C_fetch0_ptr, ((ax2_ax3_fused_0_1 * 512) + (((int)threadIdx.x) * 4)), A_ptr, (((ax2_ax3_fused_0_1 * 2048) + ((((int)threadIdx.x) >> 2) * 64)) + ((((int)threadIdx.x) & 3) * 4)));
  }
  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
  int cse_v3 = (((int)threadIdx.x) >> 6);
  int cse_v8 = ((((int)threadIdx.x) >> 6) * 256);
  int cse_v9 = ((((int)threadIdx.x) & 31) >> 3);
  int cse_v10 = ((((int)threadIdx.x) & 7) * 4);
  int cse_v13 = (((((int)threadIdx.x) & 31) >> 3) * 64);
  int cse_v14 = (((((int)threadIdx.x) & 63) >> 5) * 32);
  for (int k_2 = 0; k_2 < 3; ++k_2) {
    int cse_v11 = (((k_2 + 1) & 1) * 1024);
    __syncthreads();
    for (int ax2_ax3_fused_0_2 = 0; ax2_ax3_fused_0_2 < 2; ++ax2_ax3_fused_0_2) {
      int cse_v2 = (ax2_ax3_fused_0_2 * 512);
      ptx_cp_async_legacy_cg_16_4_4(C_fetch1_ptr, (((((k_2 + 1) & 1) * 1024) + (ax2_ax3_fused_0_2 * 512)) + (((int)threadIdx.x) * 4)), B_ptr, ((((k_2 * 1024) + (ax2_ax3_fused_0_2 * 512)) + (((int)threadIdx.x) * 4)) + 1024));
    }
    for (int ax2_ax3_fused_0_3 = 0; ax2_ax3_fused_0_3 < 2; ++ax2_ax3_fused_0_3) {
      ptx_cp_async_legacy_cg_16_4_4(C_fetch0_ptr, (((((k_2 + 1) & 1) * 1024) + (ax2_ax3_fused_0_3 * 512)) + (((int)threadIdx.x) * 4)), A_ptr, (((((ax2_ax3_fused_0_3 * 2048) + ((((int)threadIdx.x) >> 2) * 64)) + (k_2 * 16)) + ((((int)threadIdx.x) & 3) * 4)) + 16));
    }
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
    __syncthreads();
    for (int k_1 = 0; k_1 < 16; ++k_1) {
      #pragma unroll
      for (int i_0 = 0; i_0 < 2; ++i_0) {
        #pragma unroll
        for (int i_l = 0; i_l < 4; ++i_l) {
          #pragma unroll
          for (int j_l = 0; j_l < 4; ++j_l) {
            int cse_v7 = ((k_2 & 1) * 1024);
            int cse_v12 = (((i_0 * 16) + (i_l * 4)) + j_l);
            C_acc_ptr[(((i_0 * 16) + (i_l * 4)) + j_l)] = (C_acc_ptr[(((i_0 * 16) + (i_l * 4)) + j_l)] + (C_fetch0_ptr[(((((((k_2 & 1) * 1024) + (i_0 * 512)) + ((((int)threadIdx.x) >> 6) * 256)) + (((((int)threadIdx.x) & 31) >> 3) * 64)) + (i_l * 16)) + k_1)] * C_fetch1_ptr[((((((k_2 & 1) * 1024) + (k_1 * 64)) + (((((int)threadIdx.x) & 63) >> 5) * 32)) + ((((int)threadIdx.x) & 7) * 4)) + j_l)]));
          }
        }
      }
    }
  }
  tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();
  __syncthreads();
  for (int k_1_1 = 0; k_1_1 < 16; ++k_1_1) {
    #pragma unroll
    for (int i_0_1 = 0; i_0_1 < 2; ++i_0_1) {
      #pragma unroll
      for (int i_l_1 = 0; i_l_1 < 4; ++i_l_1) {
        #pragma unroll
        for (int j_l_1 = 0; j_l_1 < 4; ++j_l_1) {
          int cse_v15 = (((i_0_1 * 16) + (i_l_1 * 4)) + j_l_1);
          C_acc_ptr[(((i_0_1 * 16) + (i_l_1 * 4)) + j_l_1)] = (C_acc_ptr[(((i_0_1 * 16) + (i_l_1 * 4)) + j_l_1)] + (C_fetch0_ptr[((((((i_0_1 * 512) + ((((int)threadIdx.x) >> 6) * 256)) + (((((int)threadIdx.x) & 31) >> 3) * 64)) + (i_l_1 * 16)) + k_1_1) + 1024)] * C_fetch1_ptr[(((((k_1_1 * 64) + (((((int)threadIdx.x) & 63) >> 5) * 32)) + ((((int)threadIdx.x) & 7) * 4)) + j_l_1) + 1024)]));
        }
      }
    }
  }
  #pragma unroll
  for (int ax4 = 0; ax4 < 2; ++ax4) {
    #pragma unroll
    for (int ax6 = 0; ax6 < 4; ++ax6) {
      *(float4*)(C_ptr + ((((((ax4 * 2048) + ((((int)threadIdx.x) >> 6) * 1024)) + (((((int)threadIdx.x) & 31) >> 3) * 256)) + (ax6 * 64)) + (((((int)threadIdx.x) & 63) >> 5) * 32)) + ((((int)threadIdx.x) & 7) * 4))) = *(float4*)(C_acc_ptr + ((ax4 * 16) + (ax6 * 4)));
    }
  }
}
