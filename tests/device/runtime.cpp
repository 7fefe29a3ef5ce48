/* The double of CUDA's runtime, libcudart.so.13: what TVM's own library for CUDA is linked with.

   On a machine with a GPU that library loads, and TVM then compiles what it generates. The product asks none of it, and finds no
   device through it: builders see none on a real machine either. */
#define API(name) extern "C" __attribute__((visibility("default"))) int name() { return NO_DEVICE; }

enum { NO_DEVICE = 100 };

API(cudaDeviceGetAttribute)
API(cudaEventCreate)
API(cudaEventDestroy)
API(cudaEventElapsedTime)
API(cudaEventRecord)
API(cudaEventSynchronize)
API(cudaFree)
API(cudaFreeHost)
API(cudaGetDevice)
API(cudaGetDeviceCount)
API(cudaGetDeviceProperties)
API(cudaGetLastError)
API(cudaGraphDestroy)
API(cudaGraphExecDestroy)
API(cudaGraphInstantiate)
API(cudaGraphLaunch)
API(cudaMalloc)
API(cudaMallocHost)
API(cudaMemGetInfo)
API(cudaMemcpyAsync)
API(cudaMemcpyPeerAsync)
API(cudaPeekAtLastError)
API(cudaSetDevice)
API(cudaStreamBeginCapture)
API(cudaStreamCreate)
API(cudaStreamCreateWithFlags)
API(cudaStreamDestroy)
API(cudaStreamEndCapture)
API(cudaStreamSynchronize)
API(cudaStreamWaitEvent)

extern "C" __attribute__((visibility("default"))) const char *cudaGetErrorName(int) { return "cudaErrorNoDevice"; }
extern "C" __attribute__((visibility("default"))) const char *cudaGetErrorString(int) { return "no CUDA-capable device is detected"; }
