
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

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 530)
#include <cuda_fp16.h>
__device__ half max(half a, half b)
{
  return __hgt(__half(a), __half(b)) ? a : b;
}
__device__ half min(half a, half b)
{
  return __hlt(__half(a), __half(b)) ? a : b;
}
#endif // __CUDA_ARCH__ >= 530

// Pack two half values.
static inline __device__ __host__ unsigned
__pack_half2(const half x, const half y) {
  unsigned v0 = *((unsigned short *)&x);
  unsigned v1 = *((unsigned short *)&y);
  return (v1 << 16) | v0;
}

#define CUDA_UNSUPPORTED_HALF_MATH_BINARY(HALF_MATH_NAME, FP32_MATH_NAME) \
static inline __device__ __host__ half HALF_MATH_NAME(half x, half y) {   \
  float tmp_x = __half2float(x);                                          \
  float tmp_y = __half2float(y);                                          \
  float result = FP32_MATH_NAME(tmp_x, tmp_y);                            \
  return __float2half(result);                                            \
}

#define CUDA_UNSUPPORTED_HALF_MATH_UNARY(HALF_MATH_NAME, FP32_MATH_NAME) \
static inline __device__ __host__ half HALF_MATH_NAME(half x) {          \
  float tmp_x = __half2float(x);                                         \
  float result = FP32_MATH_NAME(tmp_x);                                  \
  return __float2half(result);                                           \
}

// Some fp16 math functions are not supported in cuda_fp16.h,
// so we define them here to make sure the generated CUDA code
// is valid.
#if defined(__CUDA_ARCH__)
#if (__CUDA_ARCH__ >= 530)
CUDA_UNSUPPORTED_HALF_MATH_BINARY(hpow, powf)
#if ((__CUDACC_VER_MAJOR__ < 12) || ((__CUDACC_VER_MAJOR__ == 12) && (__CUDACC_VER_MINOR__ < 8)))
CUDA_UNSUPPORTED_HALF_MATH_UNARY(htanh, tanhf)
#endif
CUDA_UNSUPPORTED_HALF_MATH_UNARY(htan, tanf)
CUDA_UNSUPPORTED_HALF_MATH_UNARY(hatan, atanf)
CUDA_UNSUPPORTED_HALF_MATH_UNARY(herf, erf)
#else
CUDA_UNSUPPORTED_HALF_MATH_UNARY(hexp, exp)
#endif
#endif

#undef CUDA_UNSUPPORTED_HALF_MATH_BINARY
#undef CUDA_UNSUPPORTED_HALF_MATH_UNARY

template <typename T, typename TVec2>
struct __align__(8) half4_bfloat164 {
  T x, y, z, w;
  __host__ __device__ half4_bfloat164() : x(T(0)), y(T(0)), z(T(0)), w(T(0)) {}
  __host__ __device__ half4_bfloat164(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}

};

using half4 = half4_bfloat164<__half, __half2>;
__host__ __device__ half4 make_half4(__half x, __half y, __half z, __half w) {
    return half4(x, y, z, w);
}

#include <mma.h>

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

__forceinline__ __device__ void ptx_cp_async_legacy_cg_16_2_2(void* dst, int dst_off, void* src, int src_off) {
  uint8_t* dst_p = (uint8_t*)dst + dst_off * 2;
  uint8_t* src_p = (uint8_t*)src + src_off * 2;
  unsigned int dst_addr = __cvta_generic_to_shared(dst_p);
  asm volatile("cp.async.cg.shared.global [%0], [%1], %2;"
    :: "r"(dst_addr), "l"(src_p), "n"(16));
}
extern "C" __global__ void __launch_bounds__(128) kernel_kernel(half* __restrict__ A_ptr, half* __restrict__ B_ptr, half* __restrict__ C_ptr);
extern "C" __global__ void __launch_bounds__(128) kernel_kernel(half* __restrict__ A_ptr, half* __restrict__ B_ptr, half* __restrict__ C_ptr) {
  extern __shared__ __align__(64) uchar buf_dyn_shmem_ptr[];
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> C_acc_ptr[2];
  for (int j_f_init = 0; j_f_init < 2; ++j_f_init) {
    nvcuda::wmma::fill_fragment(C_acc_ptr[j_f_init], 0x0p+0f/*0.000000e+00*/);
  }
  int cse_v1 = (((int)blockIdx.x) * 2048);
  int cse_v2 = (((int)threadIdx.y) * 512);
  int cse_v3 = (((int)threadIdx.x) >> 2);
  int cse_v4 = (((int)threadIdx.z) * 512);
  int cse_v5 = (((int)threadIdx.y) * 256);
  int cse_v6 = (((int)threadIdx.x) * 8);
  int cse_v7 = (((int)threadIdx.z) * 576);
  int cse_v8 = (((int)threadIdx.y) * 288);
  int cse_v11 = ((((int)threadIdx.x) & 3) * 8);
  int cse_v12 = ((((int)threadIdx.x) >> 3) * 72);
  int cse_v13 = ((((int)threadIdx.x) & 7) * 8);
  int cse_v15 = ((((((int)threadIdx.z) * 640) + (((int)threadIdx.y) * 320)) + ((((int)threadIdx.x) >> 2) * 40)) + ((((int)threadIdx.x) & 3) * 8));
  int cse_v16 = (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 2) * 64)) + ((((int)threadIdx.x) & 3) * 8));
  ptx_cp_async_legacy_cg_16_2_2(buf_dyn_shmem_ptr, ((((((int)threadIdx.z) * 640) + (((int)threadIdx.y) * 320)) + ((((int)threadIdx.x) >> 2) * 40)) + ((((int)threadIdx.x) & 3) * 8)), A_ptr, (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 2) * 64)) + ((((int)threadIdx.x) & 3) * 8)));
  for (int ax2_ax3_fused_0 = 0; ax2_ax3_fused_0 < 2; ++ax2_ax3_fused_0) {
    ptx_cp_async_legacy_cg_16_2_2(buf_dyn_shmem_ptr, ((((((ax2_ax3_fused_0 * 1152) + (((int)threadIdx.z) * 576)) + (((int)threadIdx.y) * 288)) + ((((int)threadIdx.x) >> 3) * 72)) + ((((int)threadIdx.x) & 7) * 8)) + 3840), B_ptr, ((((ax2_ax3_fused_0 * 1024) + (((int)threadIdx.z) * 512)) + (((int)threadIdx.y) * 256)) + (((int)threadIdx.x) * 8)));
  }
  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
  ptx_cp_async_legacy_cg_16_2_2(buf_dyn_shmem_ptr, (((((((int)threadIdx.z) * 640) + (((int)threadIdx.y) * 320)) + ((((int)threadIdx.x) >> 2) * 40)) + ((((int)threadIdx.x) & 3) * 8)) + 1280), A_ptr, ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 512)) + ((((int)threadIdx.x) >> 2) * 64)) + ((((int)threadIdx.x) & 3) * 8)) + 32));
  for (int ax2_ax3_fused_0_1 = 0; ax2_ax3_fused_0_1 < 2; ++ax2_ax3_fused_0_1) {
    ptx_cp_async_legacy_cg_16_2_2(buf_dyn_shmem_ptr, ((((((ax2_ax3_fused_0_1 * 1152) + (((int)threadIdx.z) * 576)) + (((int)threadIdx.y) * 288)) + ((((int)threadIdx.x) >> 3) * 72)) + ((((int)threadIdx.x) & 7) * 8)) + 6144), B_ptr, (((((ax2_ax3_fused_0_1 * 1024) + (((int)threadIdx.z) * 512)) + (((int)threadIdx.y) * 256)) + (((int)threadIdx.x) * 8)) + 2048));
  }
  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
  int cse_v9 = (((int)threadIdx.y) * 640);
  int cse_v10 = (((int)threadIdx.z) * 32);
  tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();
  __syncthreads();
  for (int k_1 = 0; k_1 < 2; ++k_1) {
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> C_left_fragment_ptr[1];
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::row_major> C_right_fragment_ptr[2];
    nvcuda::wmma::load_matrix_sync(C_left_fragment_ptr[0], (&(((half*)buf_dyn_shmem_ptr)[((((int)threadIdx.y) * 640) + (k_1 * 16))])), 40);
    for (int ax5 = 0; ax5 < 2; ++ax5) {
      nvcuda::wmma::load_matrix_sync(C_right_fragment_ptr[ax5], (&(((half*)buf_dyn_shmem_ptr)[((((k_1 * 1152) + (((int)threadIdx.z) * 32)) + (ax5 * 16)) + 3840)])), 72);
    }
    for (int j_f = 0; j_f < 2; ++j_f) {
      nvcuda::wmma::mma_sync(C_acc_ptr[j_f], C_left_fragment_ptr[0], C_right_fragment_ptr[j_f], C_acc_ptr[j_f]);
    }
  }
  tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();
  __syncthreads();
  for (int k_1_1 = 0; k_1_1 < 2; ++k_1_1) {
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> C_left_fragment_ptr_1[1];
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::row_major> C_right_fragment_ptr_1[2];
    nvcuda::wmma::load_matrix_sync(C_left_fragment_ptr_1[0], (&(((half*)buf_dyn_shmem_ptr)[(((((int)threadIdx.y) * 640) + (k_1_1 * 16)) + 1280)])), 40);
    for (int ax5_1 = 0; ax5_1 < 2; ++ax5_1) {
      nvcuda::wmma::load_matrix_sync(C_right_fragment_ptr_1[ax5_1], (&(((half*)buf_dyn_shmem_ptr)[((((k_1_1 * 1152) + (((int)threadIdx.z) * 32)) + (ax5_1 * 16)) + 6144)])), 72);
    }
    for (int j_f_1 = 0; j_f_1 < 2; ++j_f_1) {
      nvcuda::wmma::mma_sync(C_acc_ptr[j_f_1], C_left_fragment_ptr_1[0], C_right_fragment_ptr_1[j_f_1], C_acc_ptr[j_f_1]);
    }
  }
  for (int ax5_2 = 0; ax5_2 < 2; ++ax5_2) {
    int cse_v14 = ((((int)threadIdx.y) * 512) + (((int)threadIdx.z) * 256));
    __syncthreads();
    nvcuda::wmma::store_matrix_sync((&(((float*)buf_dyn_shmem_ptr)[((((int)threadIdx.y) * 512) + (((int)threadIdx.z) * 256))])), C_acc_ptr[ax5_2], 16, nvcuda::wmma::mem_row_major);
    __syncthreads();
    uint4 __1;
    ulonglong4 v_ = *(ulonglong4*)(((float*)buf_dyn_shmem_ptr) + (((((int)threadIdx.y) * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.x) * 8)));
    ((half2*)(&(__1.x)))->x = (half)(((float2*)(&(v_.x)))->x);
    ((half2*)(&(__1.x)))->y = (half)(((float2*)(&(v_.x)))->y);
    ((half2*)(&(__1.y)))->x = (half)(((float2*)(&(v_.y)))->x);
    ((half2*)(&(__1.y)))->y = (half)(((float2*)(&(v_.y)))->y);
    ((half2*)(&(__1.z)))->x = (half)(((float2*)(&(v_.z)))->x);
    ((half2*)(&(__1.z)))->y = (half)(((float2*)(&(v_.z)))->y);
    ((half2*)(&(__1.w)))->x = (half)(((float2*)(&(v_.w)))->x);
    ((half2*)(&(__1.w)))->y = (half)(((float2*)(&(v_.w)))->y);
    *(uint4*)(C_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.y) * 1024)) + ((((int)threadIdx.x) >> 1) * 64)) + (((int)threadIdx.z) * 32)) + (ax5_2 * 16)) + ((((int)threadIdx.x) & 1) * 8))) = __1;
  }
}
