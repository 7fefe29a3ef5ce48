/* The double of NVIDIA's driver, libcuda.so.1: one device whose kernels run on the CPU (emulated.h) and whose clock is virtual.
 *
 * It knows the calls that the product makes, takes their arguments as cuda.h declares them, and is as strict as the real one about
 * handles, addresses, limits of a launch, calls while a stream is captured, and a context that a kernel has broken. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <csetjmp>
#include <csignal>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
#include "tensor_map.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
#define API extern "C" __attribute__((visibility("default"))) CUresult

enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
  OUT_OF_RESOURCES = 701, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900,
};
static const std::map<int, std::pair<const char *, const char *>> TEXTS = {
    {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {NOT_INITIALIZED, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {INVALID_DEVICE, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {INVALID_IMAGE, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {NO_BINARY_FOR_GPU, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {NOT_READY, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {ILLEGAL_ADDRESS, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {OUT_OF_RESOURCES, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {MISALIGNED_ADDRESS, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {LAUNCH_FAILED, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {CAPTURE_UNSUPPORTED, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
};

/* A small GPU of compute capability 9.0, unless it is built for another one, in the driver's numbers of attributes. */
#ifndef CAPABILITY
#define CAPABILITY 90
#endif
static const int MOST_SHARED = CAPABILITY >= 90 ? 227 << 10 : 163 << 10;
static const size_t MEMORY_BYTES = 1ull << 30;
static const std::map<int, int> ATTRIBUTES = {{1, 1024}, {8, 49152}, {10, 32}, {12, 65536}, {13, 1500000}, {16, 132}, {36, 2000000},
                                              {37, 5120}, {38, 1 << 20}, {75, CAPABILITY / 10}, {76, CAPABILITY % 10},
                                              {81, MOST_SHARED + (1 << 10)}, {82, 65536}, {88, 0}, {97, MOST_SHARED}};

/* As many devices as the environment makes visible, one by default; of a partitioned one a slice alone. */
static const char *visible() { return getenv("CUDA_VISIBLE_DEVICES"); }
static bool is_slice() { return visible() && strncmp(visible(), "MIG-", 4) == 0; }
static int devices() {
  int count = 1;
  for (const char *at = visible(); !is_slice() && at && *at; at++) count += *at == ',';
  return count;
}
static int multiprocessors() { return is_slice() ? 16 : ATTRIBUTES.at(16); }
static size_t memory_bytes() { return is_slice() ? MEMORY_BYTES / 8 : MEMORY_BYTES; }

struct Kernel {
  const char *name;
  void *function;
  int parameters, most_threads, maps;
};
typedef int (*Run)(const Kernel *, const unsigned *, const unsigned *, const uint64_t *, int, unsigned long long *);
struct Function { const Kernel *kernel; Run run; int dynamic_bytes; };
struct Launch {
  Function *function;
  unsigned grid[3], block[3], shared;
  std::vector<uint64_t> arguments;
  std::vector<emu_tensor_map> maps;
};
enum Work { RUNS, FILLS, COPIES };
struct Node {
  Work work;
  Launch launch;
  CUdeviceptr address, source; /* of what is filled or copied to, and from where */
  int byte;
  size_t bytes;
  std::vector<size_t> after; /* nodes of its graph; of a captured one the node before */
};
struct Graph { std::vector<Node> nodes; bool captured = false; };
/* A node as the caller has it: its place in a graph. */
struct Handle { Graph *graph; size_t number; };
struct Executable { Graph *of; std::vector<Node> nodes; bool captured; };
struct Event { double at_s; bool recorded; };
struct Stream { bool capturing; Graph *graph; };

static bool initialised, current;
static int broken; /* the error that every call gives from now on */
static double clock_s;
static unsigned long long launches;
static std::map<CUdeviceptr, size_t> memory;
static std::set<void *> streams, events, graphs, executables, functions, handles;
static Stream legacy;
static sigjmp_buf fault;

#define READY()                              \
  if (!initialised) return NOT_INITIALIZED;  \
  if (broken) return broken;
#define IN_CONTEXT()                         \
  READY()                                    \
  if (!current) return INVALID_CONTEXT;

static bool capturing() {
  for (void *one : streams)
    if (((Stream *)one)->capturing) return true;
  return false;
}
static Stream *stream_of(void *handle) {
  if (handle == nullptr) return &legacy;
  return streams.count(handle) ? (Stream *)handle : nullptr;
}
static bool holds(CUdeviceptr address, size_t bytes) {
  auto after = memory.upper_bound(address);
  if (after == memory.begin()) return false;
  --after;
  return address >= after->first && address + bytes <= after->first + after->second;
}

API cuInit(unsigned flags) {
  if (flags != 0) return INVALID_VALUE;
  if (visible() && !*visible()) return 100; /* CUDA_ERROR_NO_DEVICE */
  initialised = true;
  return SUCCESS;
}
API cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
API cuDeviceGetCount(int *count) { READY() return *count = devices(), SUCCESS; }
API cuDeviceGet(CUdevice *device, int ordinal) {
  READY()
  if (ordinal < 0 || ordinal >= devices()) return INVALID_DEVICE;
  return *device = ordinal, SUCCESS;
}
API cuDeviceGetName(char *name, int length, CUdevice device) {
  READY()
  if (device >= devices()) return INVALID_DEVICE;
  snprintf(name, length, "double of a GPU%s", is_slice() ? " MIG 1g.10gb" : "");
  return SUCCESS;
}
API cuDeviceGetPCIBusId(char *name, int length, CUdevice device) {
  READY()
  if (device >= devices() || length < 13) return INVALID_VALUE;
  snprintf(name, length, "0000:%02X:00.0", 0x0B + device);
  return SUCCESS;
}
API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  READY()
  if (device >= devices()) return INVALID_DEVICE;
  return *bytes = memory_bytes(), SUCCESS;
}
API cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  READY()
  auto found = ATTRIBUTES.find(attribute);
  if (device >= devices() || found == ATTRIBUTES.end()) return INVALID_VALUE;
  if (attribute == 88 && device > 0) return *value = 1, SUCCESS; /* a second device reaches the host's memory */
  return *value = attribute == 16 ? multiprocessors() : found->second, SUCCESS;
}
API cuDevicePrimaryCtxRetain(void **context, CUdevice device) {
  READY()
  if (device >= devices()) return INVALID_DEVICE;
  return *context = (void *)&ATTRIBUTES, SUCCESS;
}
API cuCtxSetCurrent(void *context) {
  READY()
  if (context != (void *)&ATTRIBUTES && context != nullptr) return INVALID_CONTEXT;
  return current = context != nullptr, SUCCESS;
}
API cuCtxGetCurrent(void **context) {
  READY()
  return *context = current ? (void *)&ATTRIBUTES : nullptr, SUCCESS;
}
API cuCtxGetDevice(CUdevice *device) {
  IN_CONTEXT()
  return *device = 0, SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes) {
  size_t held = 0;
  for (auto &one : memory) held += one.second;
  if (bytes == 0) return INVALID_VALUE;
  if (held + bytes > memory_bytes()) return OUT_OF_MEMORY;
  void *found = aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (found == nullptr) return OUT_OF_MEMORY;
  memset(found, 0xcd, bytes); /* what is in new memory means nothing */
  memory[(CUdeviceptr)found] = bytes;
  return *address = (CUdeviceptr)found, SUCCESS;
}
static CUresult release(CUdeviceptr address) {
  if (!memory.erase(address)) return INVALID_VALUE;
  return free((void *)address), SUCCESS;
}
API cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  IN_CONTEXT()
  return capturing() ? CAPTURE_UNSUPPORTED : allocate(address, bytes);
}
API cuMemFree_v2(CUdeviceptr address) {
  IN_CONTEXT()
  return capturing() ? CAPTURE_UNSUPPORTED : release(address);
}
API cuMemAllocAsync(CUdeviceptr *address, size_t bytes, void *stream) {
  IN_CONTEXT()
  return stream_of(stream) ? allocate(address, bytes) : INVALID_HANDLE;
}
API cuMemFreeAsync(CUdeviceptr address, void *stream) {
  IN_CONTEXT()
  Stream *on = stream_of(stream);
  if (on == nullptr) return INVALID_HANDLE;
  return on->capturing ? SUCCESS : release(address); /* of a graph: its launches use it */
}
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *stream) {
  IN_CONTEXT()
  if (!stream_of(stream)) return INVALID_HANDLE;
  if (!holds(to, bytes)) return INVALID_VALUE;
  return memcpy((void *)to, from, bytes), SUCCESS;
}
API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *stream) {
  IN_CONTEXT()
  Stream *on = stream_of(stream);
  if (on == nullptr) return INVALID_HANDLE;
  if (on->capturing) return CAPTURE_UNSUPPORTED;
  if (!holds(from, bytes)) return INVALID_VALUE;
  return memcpy(to, (void *)from, bytes), SUCCESS;
}
static void copied(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  memmove((void *)to, (void *)from, bytes);
  clock_s += 1e-6 + 2.0 * bytes / 2e12;
}
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void *stream) {
  IN_CONTEXT()
  Stream *on = stream_of(stream);
  if (on == nullptr) return INVALID_HANDLE;
  if (!holds(to, bytes) || !holds(from, bytes)) return INVALID_VALUE;
  if (on->capturing) on->graph->nodes.push_back({COPIES, {}, to, from, 0, bytes, {}});
  else copied(to, from, bytes);
  return SUCCESS;
}
API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  IN_CONTEXT()
  if (!holds(from, bytes)) return INVALID_VALUE;
  return memcpy(to, (void *)from, bytes), SUCCESS;
}

static void filled(CUdeviceptr address, int byte, size_t bytes) {
  memset((void *)address, byte, bytes);
  clock_s += 1e-6 + bytes / 2e12;
}
API cuMemsetD8Async(CUdeviceptr address, unsigned char byte, size_t bytes, void *stream) {
  IN_CONTEXT()
  Stream *on = stream_of(stream);
  if (on == nullptr) return INVALID_HANDLE;
  if (!holds(address, bytes)) return INVALID_VALUE;
  if (on->capturing) on->graph->nodes.push_back({FILLS, {}, address, 0, byte, bytes, {}});
  else filled(address, byte, bytes);
  return SUCCESS;
}

API cuStreamCreate(void **stream, unsigned flags) {
  IN_CONTEXT()
  if (flags > 1) return INVALID_VALUE;
  *stream = new Stream{false, nullptr};
  streams.insert(*stream);
  return SUCCESS;
}
API cuStreamSynchronize(void *stream) {
  IN_CONTEXT()
  Stream *on = stream_of(stream);
  if (on == nullptr) return INVALID_HANDLE;
  return on->capturing ? CAPTURE_UNSUPPORTED : SUCCESS;
}
API cuStreamBeginCapture_v2(void *stream, int mode) {
  IN_CONTEXT()
  if (stream == nullptr || !streams.count(stream) || mode < 0 || mode > 2) return INVALID_VALUE;
  ((Stream *)stream)->capturing = true;
  ((Stream *)stream)->graph = new Graph;
  ((Stream *)stream)->graph->captured = true;
  return SUCCESS;
}
API cuStreamIsCapturing(void *stream, int *status) {
  IN_CONTEXT()
  Stream *on = stream_of(stream);
  if (on == nullptr) return INVALID_HANDLE;
  return *status = on->capturing, SUCCESS;
}
API cuStreamEndCapture(void *stream, void **graph) {
  IN_CONTEXT()
  if (!streams.count(stream) || !((Stream *)stream)->capturing) return INVALID_VALUE;
  ((Stream *)stream)->capturing = false;
  graphs.insert(*graph = ((Stream *)stream)->graph);
  return SUCCESS;
}

static void faulted(int number) { siglongjmp(fault, number); }

/* Runs a kernel; what it breaks is told by a later call, as a device works behind the caller's back. */
static double run(const Launch &one) {
  struct sigaction before[3], mine = {};
  int signals[3] = {SIGSEGV, SIGBUS, SIGILL};
  char alternate[1 << 14];
  stack_t old, with = {.ss_sp = alternate, .ss_flags = 0, .ss_size = sizeof alternate};
  sigaltstack(&with, &old);
  mine.sa_handler = faulted;
  mine.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < 3; i++) sigaction(signals[i], &mine, &before[i]);
  unsigned long long turns = 0;
  int came = sigsetjmp(fault, 1);
  if (came == 0) {
    std::vector<uint64_t> arguments;
    for (const emu_tensor_map &map : one.maps) arguments.push_back((uint64_t)&map);
    arguments.insert(arguments.end(), one.arguments.begin(), one.arguments.end());
    int failed = one.function->run(one.function->kernel, one.grid, one.block, arguments.data(), launches++ % 2, &turns);
    if (failed) broken = LAUNCH_FAILED;
  } else {
    broken = came == SIGILL ? MISALIGNED_ADDRESS : ILLEGAL_ADDRESS;
  }
  for (int i = 0; i < 3; i++) sigaction(signals[i], &before[i], nullptr);
  sigaltstack(&old, nullptr);
  double blocks = (double)one.grid[0] * one.grid[1] * one.grid[2];
  return 2e-6 + turns * 5e-9 / (blocks < multiprocessors() ? blocks : multiprocessors());
}

/* Whether a device takes this launch; `one` is then what it is. */
static CUresult made(void *function, const unsigned *grid, const unsigned *block, unsigned shared, void **parameters, void **extra,
                     Launch &one) {
  if (!functions.count(function)) return INVALID_HANDLE;
  Function *known = (Function *)function;
  for (int i = 0; i < 3; i++)
    if (!grid[i] || !block[i] || grid[i] > (i ? 65535 : 0x7fffffff) || block[i] > (i == 2 ? 64 : 1024)) return INVALID_VALUE;
  if (block[0] * block[1] * block[2] > 1024 || extra != nullptr) return INVALID_VALUE;
  if (shared > 49152 && (int)shared > known->dynamic_bytes) return INVALID_VALUE;
  if ((int)(block[0] * block[1] * block[2]) > known->kernel->most_threads) return OUT_OF_RESOURCES;
  one = Launch{known, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, {}, {}};
  for (int i = 0; i < known->kernel->parameters; i++) {
    if (i < known->kernel->maps) {
      one.maps.emplace_back();
      memcpy(&one.maps.back(), parameters[i], sizeof one.maps.back());
      continue;
    }
    uint64_t value;
    memcpy(&value, parameters[i], sizeof value);
    one.arguments.push_back(value);
  }
  return SUCCESS;
}

API cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
  IN_CONTEXT()
  Stream *on = stream_of(stream);
  if (on == nullptr) return INVALID_HANDLE;
  unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  Launch one;
  CUresult refused = made(function, grid, block, shared, parameters, extra, one);
  if (refused) return refused;
  if (on->capturing) on->graph->nodes.push_back({RUNS, one, 0, 0, 0, 0, {}});
  else clock_s += run(one);
  return SUCCESS;
}

/* cuda.h's CUDA_KERNEL_NODE_PARAMS_v2 and CUDA_MEMCPY3D_v2. */
struct KernelNode {
  void *function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
  void *kernel, *context;
};
struct CopyEnd {
  size_t x, y, z, level;
  int kind;
  void *host;
  CUdeviceptr device;
  void *array, *reserved;
  size_t pitch, height;
};
struct CopyNode { CopyEnd source, destination; size_t width, height, depth; };

static CUresult made(const CopyNode &given, Node &node) {
  for (const CopyEnd *end : {&given.source, &given.destination})
    if (end->x || end->y || end->z || end->level || end->kind != 2 || end->array || end->reserved) return INVALID_VALUE;
  if (given.height != 1 || given.depth != 1 || !holds(given.source.device, given.width)) return INVALID_VALUE;
  if (!holds(given.destination.device, given.width)) return INVALID_VALUE;
  return node = {COPIES, {}, given.destination.device, given.source.device, 0, given.width, {}}, SUCCESS;
}
static CUresult made(const KernelNode &given, Node &node) {
  node = {RUNS, {}, 0, 0, 0, 0, {}};
  return made(given.function, given.grid, given.block, given.shared, given.parameters, given.extra, node.launch);
}
template <class Given>
static CUresult add(void **handle, void *graph, void *const *after, size_t count, const Given *given) {
  if (!graphs.count(graph)) return INVALID_VALUE;
  Node node;
  CUresult refused = made(*given, node);
  if (refused) return refused;
  std::set<void *> once;
  for (size_t i = 0; i < count; i++) {
    if (!handles.count(after[i]) || ((Handle *)after[i])->graph != graph || !once.insert(after[i]).second) return INVALID_VALUE;
    node.after.push_back(((Handle *)after[i])->number);
  }
  ((Graph *)graph)->nodes.push_back(node);
  handles.insert(*handle = new Handle{(Graph *)graph, ((Graph *)graph)->nodes.size() - 1});
  return SUCCESS;
}
/* The node stays where it is in the graph; it must be of the graph that the executable one was made of, and do the same. */
template <class Given>
static CUresult change(void *executable, void *handle, const Given *given) {
  if (!executables.count(executable) || !handles.count(handle)) return INVALID_VALUE;
  Executable *one = (Executable *)executable;
  Handle *at = (Handle *)handle;
  Node node;
  if (at->graph != one->of) return INVALID_VALUE;
  CUresult refused = made(*given, node);
  if (refused) return refused;
  Node &before = one->nodes[at->number];
  if (before.work != node.work || before.launch.function != node.launch.function) return INVALID_VALUE;
  node.after = before.after;
  return before = node, SUCCESS;
}
API cuGraphCreate(void **graph, unsigned flags) {
  IN_CONTEXT()
  if (flags != 0) return INVALID_VALUE;
  graphs.insert(*graph = new Graph);
  return SUCCESS;
}
API cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after, size_t count, const KernelNode *given) {
  IN_CONTEXT()
  return add(node, graph, after, count, given);
}
API cuGraphAddMemcpyNode(void **node, void *graph, void *const *after, size_t count, const CopyNode *given, void *context) {
  IN_CONTEXT()
  if (context != (void *)&ATTRIBUTES) return INVALID_CONTEXT;
  return add(node, graph, after, count, given);
}
API cuGraphExecKernelNodeSetParams_v2(void *executable, void *node, const KernelNode *given) {
  IN_CONTEXT()
  return change(executable, node, given);
}
API cuGraphExecMemcpyNodeSetParams(void *executable, void *node, const CopyNode *given, void *context) {
  IN_CONTEXT()
  if (context != (void *)&ATTRIBUTES) return INVALID_CONTEXT;
  return change(executable, node, given);
}
API cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  IN_CONTEXT()
  if (!graphs.count(graph) || flags != 0) return INVALID_VALUE;
  Graph *of = (Graph *)graph;
  executables.insert(*executable = new Executable{of, of->nodes, of->captured});
  return SUCCESS;
}
/* The order in which nodes run. That of nodes that do not wait for one another means nothing, so the launches of a graph take
 * turns between the first and the last of those that are ready. */
static std::vector<size_t> order(const Executable &one, bool last) {
  std::vector<size_t> ordered, waits(one.nodes.size());
  std::vector<std::vector<size_t>> then(one.nodes.size());
  std::set<size_t> ready;
  for (size_t i = 0; i < one.nodes.size(); i++) {
    std::vector<size_t> after = one.nodes[i].after;
    if (one.captured && i > 0) after = {i - 1};
    waits[i] = after.size();
    for (size_t before : after) then[before].push_back(i);
    if (after.empty()) ready.insert(i);
  }
  while (!ready.empty()) {
    size_t next = last ? *ready.rbegin() : *ready.begin();
    ready.erase(next);
    ordered.push_back(next);
    for (size_t i : then[next])
      if (--waits[i] == 0) ready.insert(i);
  }
  return ordered;
}
/* Equal launches in a row compute the same from the same: of a captured graph the first one runs, the others only take their
 * time. Nodes of a graph that was built are each run: they may read what others have written. */
API cuGraphLaunch(void *executable, void *stream) {
  IN_CONTEXT()
  static unsigned long long launched;
  if (!executables.count(executable) || !stream_of(stream)) return INVALID_HANDLE;
  if (stream_of(stream)->capturing) return CAPTURE_UNSUPPORTED;
  const Executable &one = *(Executable *)executable;
  std::map<std::pair<void *, std::vector<uint64_t>>, double> seen;
  for (size_t number : order(one, launched++ % 2)) {
    const Node &node = one.nodes[number];
    if (node.work == FILLS) {
      filled(node.address, node.byte, node.bytes);
    } else if (node.work == COPIES) {
      copied(node.address, node.source, node.bytes);
    } else if (!one.captured) {
      clock_s += run(node.launch);
    } else {
      auto key = std::make_pair((void *)node.launch.function, node.launch.arguments);
      for (const emu_tensor_map &map : node.launch.maps) key.second.push_back(map.address);
      if (!seen.count(key)) seen[key] = run(node.launch);
      clock_s += seen[key];
    }
  }
  return SUCCESS;
}
API cuGraphUpload(void *executable, void *stream) {
  IN_CONTEXT()
  if (!executables.count(executable) || !stream_of(stream)) return INVALID_HANDLE;
  return stream_of(stream)->capturing ? CAPTURE_UNSUPPORTED : SUCCESS;
}
API cuGraphExecDestroy(void *executable) {
  IN_CONTEXT()
  if (!executables.erase(executable)) return INVALID_VALUE;
  delete (Executable *)executable;
  return SUCCESS;
}
API cuGraphDestroy(void *graph) {
  IN_CONTEXT()
  if (!graphs.erase(graph)) return INVALID_VALUE;
  for (auto one = handles.begin(); one != handles.end();) {
    Handle *handle = (Handle *)*one;
    if (handle->graph != graph) {
      ++one;
      continue;
    }
    one = handles.erase(one);
    delete handle;
  }
  delete (Graph *)graph;
  return SUCCESS;
}

API cuEventCreate(void **event, unsigned flags) {
  IN_CONTEXT()
  if (flags & ~7u) return INVALID_VALUE;
  events.insert(*event = new Event{0, false});
  return SUCCESS;
}
API cuEventDestroy_v2(void *event) {
  IN_CONTEXT()
  if (!events.erase(event)) return INVALID_HANDLE;
  delete (Event *)event;
  return SUCCESS;
}
API cuEventRecord(void *event, void *stream) {
  IN_CONTEXT()
  if (!events.count(event) || !stream_of(stream)) return INVALID_HANDLE;
  *(Event *)event = {clock_s, true};
  return SUCCESS;
}
API cuEventSynchronize(void *event) {
  IN_CONTEXT()
  return events.count(event) ? SUCCESS : INVALID_HANDLE;
}
API cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  IN_CONTEXT()
  if (!events.count(start) || !events.count(end) || !((Event *)start)->recorded || !((Event *)end)->recorded) return INVALID_HANDLE;
  return *milliseconds = (float)((((Event *)end)->at_s - ((Event *)start)->at_s) * 1e3), SUCCESS;
}

/* What the double of NVRTC made: it may start no compiler, so that the source is compiled here, once. */
static std::string compiled(const char *source) {
  Dl_info self;
  dladdr((const void *)&ATTRIBUTES, &self);
  std::string folder = self.dli_fname; /* …/lib/libcuda.so.1 */
  folder = folder.substr(0, folder.rfind("/lib/"));
  std::string text = source, name = folder + "/judged-" + std::to_string(std::hash<std::string>()(text));
  if (access((name + ".so").c_str(), R_OK) == 0) return name + ".so";
  std::string own = name + "-" + std::to_string(getpid());
  FILE *file = fopen((own + ".cu").c_str(), "w");
  if (file == nullptr) return "";
  fwrite(text.data(), 1, text.size(), file);
  fclose(file);
  std::string command = folder + "/cuda/bin/nvcc -cubin -arch=sm_" + std::to_string(CAPABILITY) + " -o " + own + ".so " + own + ".cu";
  if (system(command.c_str()) != 0 || rename((own + ".so").c_str(), (name + ".so").c_str()) != 0) return "";
  return name + ".so";
}

/* The image tells its own size, as a cubin does. */
API cuModuleLoadData(void **module, const void *image) {
  IN_CONTEXT()
  if (capturing()) return CAPTURE_UNSUPPORTED;
  if (strncmp((const char *)image, "EMU-SOURCE\n", 11) == 0) {
    std::string path = compiled((const char *)image + 11);
    *module = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    return *module == nullptr ? INVALID_IMAGE : SUCCESS;
  }
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
  if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return INVALID_IMAGE;
  size_t bytes = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize, written = 0;
  int file = memfd_create("cubin", 0);
  while (written < bytes) {
    ssize_t part = write(file, (const char *)image + written, bytes - written);
    if (part <= 0) return INVALID_IMAGE;
    written += part;
  }
  std::string path = "/proc/self/fd/" + std::to_string(file);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fprintf(stderr, "%s\n", dlerror());
  if (library == nullptr || dlsym(library, "emu_kernels") == nullptr) return INVALID_IMAGE;
  if (*(const int *)dlsym(library, "emu_arch") != CAPABILITY) return NO_BINARY_FOR_GPU;
  return *module = library, SUCCESS; /* the file stays open: the loader would take the next one of its number for the same */
}
API cuModuleGetFunction(void **function, void *module, const char *name) {
  IN_CONTEXT()
  for (const Kernel *one = (const Kernel *)dlsym(module, "emu_kernels"); one->name != nullptr; one++)
    if (strcmp(one->name, name) == 0) {
      functions.insert(*function = new Function{one, (Run)dlsym(module, "emu_run"), 0});
      return SUCCESS;
    }
  return NOT_FOUND;
}
API cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
  IN_CONTEXT()
  if (!functions.count(function)) return INVALID_HANDLE;
  const Kernel *kernel = ((Function *)function)->kernel;
  if (index >= (size_t)kernel->parameters) return INVALID_VALUE;
  size_t maps = index < (size_t)kernel->maps ? index : kernel->maps;
  *offset = maps * 128 + (index - maps) * 8;
  return *size = index < (size_t)kernel->maps ? 128 : 8, SUCCESS;
}
API cuFuncSetAttribute(void *function, int attribute, int value) {
  IN_CONTEXT()
  if (!functions.count(function)) return INVALID_HANDLE;
  if (attribute != 8 || value > MOST_SHARED) return INVALID_VALUE;
  return ((Function *)function)->dynamic_bytes = value, SUCCESS;
}

/* Limits as the driver's documentation has them, for the 128-byte swizzle; CUtensorMapDataType 0, 3, 6, 7, 9 and 11 are u8, i32, f16, f32, bf16 and tf32. */
API cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int outside) {
  IN_CONTEXT()
  emu_tensor_map made = {(uint64_t)address, {}, {}, {}, {}, (uint8_t)rank, (uint8_t)(type == 0 ? 1 : type == 6 || type == 9 ? 2 : 4), type == 11};
  if (type != 0 && type != 3 && type != 6 && type != 7 && type != 9 && type != 11) return INVALID_VALUE;
  if ((uintptr_t)map % 128 || (uintptr_t)address % 16 || rank < 1 || rank > 5) return INVALID_VALUE;
  if (interleave != 0 || swizzle != 3 || promotion < 0 || promotion > 3 || outside != 0) return INVALID_VALUE;
  if (box[0] * made.itemsize > 128) return INVALID_VALUE;
  for (unsigned i = 0; i < rank; i++) {
    if (!extents[i] || extents[i] > UINT32_MAX || !box[i] || box[i] > 256 || !steps[i] || steps[i] > 8) return INVALID_VALUE;
    if (i && (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40)) return INVALID_VALUE;
    made.extents[i] = (uint32_t)extents[i];
    made.strides[i] = i ? strides[i - 1] : made.itemsize;
    made.steps[i] = (uint8_t)(i ? steps[i] : 1); /* along rows every element is taken */
    made.box[i] = (uint16_t)((box[i] + made.steps[i] - 1) / made.steps[i]);
  }
  return memcpy(map, &made, sizeof made), SUCCESS;
}

/* What TVM's own library for CUDA is linked with and the product never calls. */
API cuLaunchKernelEx() { return NOT_SUPPORTED; }
API cuModuleUnload() { return NOT_SUPPORTED; }

API cuGetErrorName(CUresult error, const char **name) {
  auto found = TEXTS.find(error);
  if (found == TEXTS.end()) return *name = nullptr, INVALID_VALUE;
  return *name = found->second.first, SUCCESS;
}
API cuGetErrorString(CUresult error, const char **text) {
  auto found = TEXTS.find(error);
  if (found == TEXTS.end()) return *text = nullptr, INVALID_VALUE;
  return *text = found->second.second, SUCCESS;
}
