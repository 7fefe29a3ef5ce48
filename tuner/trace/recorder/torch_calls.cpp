// Counts and times PyTorch's operators as the program calls them, by a callback of PyTorch's own
// `RecordFunction`, which its profiler uses too. Compiled against the PyTorch that is recorded,
// see torch_calls.py.
//
// Each call is counted, of all threads, as long as that stays within its share of the time. Else
// the callback is on for windows, whose calls count for the time since the one before.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>

namespace {

constexpr int PLACES = 1 << 14;
constexpr double EVENT_NS = 800;     // of an operator that is seen, those within others too
constexpr double FREE_NS = 20e6;     // taken whatever the share is
constexpr int WINDOW_MS = 20, MOST_GAP = 63;
constexpr size_t LONGEST = 64;       // entries of a list, characters of a text

using Describe = int (*)(const char*);  // the number of a call's slot; 0 for none

struct Place {
  std::atomic<uint64_t> hash{0};
  std::atomic<int> slot{0};
};

struct Thread {
  int depth = 0, slot = 0, weight = 1;
  int64_t begun_ns = 0, events = 0;
};

Place* places = new Place[PLACES];
std::atomic_flag filling = ATOMIC_FLAG_INIT;
int filled = 0;
std::atomic<uint64_t>* slots = nullptr;  // pairs of doubles
Describe describe = nullptr;
double share = 0;
std::atomic<int> weight{1};
std::atomic<int64_t> events{0};
std::atomic<unsigned> generation{0};  // of processes, as forks make them
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
thread_local Thread here;

int64_t now_ns() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

// --- what a call is

struct Hash {
  uint64_t state = 1;

  void add(uint64_t value) {
    state = (state ^ value) * 0x9E3779B97F4A7C15u;
    state ^= state >> 29;
  }

  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != at::kStrided ||
        tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
      add(tensor.defined() ? 3 : 2);
      return;
    }
    add(static_cast<uint64_t>(tensor.scalar_type()) << 8 | static_cast<uint64_t>(tensor.dim()));
    for (int64_t extent : tensor.sizes()) add(static_cast<uint64_t>(extent));
    for (int64_t stride : tensor.strides()) add(static_cast<uint64_t>(stride));
  }

  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isInt()) {
      add(static_cast<uint64_t>(value.toInt()) + 5);
    } else if (value.isBool()) {
      add(value.toBool() ? 7u : 6u);
    } else if (value.isDouble()) {
      double number = value.toDouble();
      uint64_t bits;
      std::memcpy(&bits, &number, sizeof bits);
      add(bits ^ 9);
    } else if (value.isString()) {
      add(std::hash<std::string>()(value.toStringRef()));
    } else if (value.isList()) {
      auto entries = value.toListRef();
      add(entries.size() << 8 | 11);
      for (const c10::IValue& entry : entries) add(entry);
    } else {
      add(value.isNone() ? 12 : 13);
    }
  }
};

// --- what it is in the record, as JSON

void write(std::string& out, const std::string& text) {
  out += '"';
  for (unsigned char letter : text) {
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", letter);
    if (letter < 32 || letter > 126 || letter == '"' || letter == '\\')
      out += code;
    else
      out += static_cast<char>(letter);
  }
  out += '"';
}

void write(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "NaN";
  } else if (std::isinf(number)) {
    out += number < 0 ? "-Infinity" : "Infinity";
  } else {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", number);
    out += digits;
    if (!std::strpbrk(digits, ".e")) out += ".0";
  }
}

void write(std::string& out, c10::IntArrayRef numbers) {
  out += '[';
  for (int64_t number : numbers) {
    if (out.back() != '[') out += ',';
    out += std::to_string(number);
  }
  out += ']';
}

void write(std::string& out, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    out += "{\"value\":null}";
  } else if (tensor.layout() != at::kStrided ||
             tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    out += "{\"type\":\"torch.Tensor\"}";
  } else {
    out += "{\"shape\":";
    write(out, tensor.sizes());
    out += ",\"strides\":";
    write(out, tensor.strides());
    out += ",\"dtype\":" + std::to_string(static_cast<int>(tensor.scalar_type())) + "}";
  }
}

bool write_plain(std::string& out, const c10::IValue& value) {
  if (value.isInt())
    out += std::to_string(value.toInt());
  else if (value.isBool())
    out += value.toBool() ? "true" : "false";
  else if (value.isDouble())
    write(out, value.toDouble());
  else if (value.isString() && value.toStringRef().size() <= LONGEST)
    write(out, value.toStringRef());
  else if (value.isNone())
    out += "null";
  else
    return false;
  return true;
}

void write(std::string& out, const c10::IValue& value) {
  if (value.isTensor()) {
    write(out, value.toTensor());
    return;
  }
  if (!value.isList()) {
    out += "{\"value\":";
    if (!write_plain(out, value)) out += "null";
    out += '}';
    return;
  }
  auto entries = value.toListRef();
  bool is_plain = entries.size() <= LONGEST;
  std::string plain;
  for (const c10::IValue& entry : entries) {
    if (!plain.empty()) plain += ',';
    is_plain = is_plain && write_plain(plain, entry);
  }
  if (is_plain) {
    out += "{\"value\":[" + plain + "]}";
    return;
  }
  out += "{\"list\":[";
  for (size_t number = 0; number < std::min(entries.size(), LONGEST); number++) {
    if (number) out += ',';
    write(out, entries[number]);
  }
  out += "]}";
}

int described(const at::RecordFunction& call) {
  std::string out = "{\"library\":\"torch\",\"operator\":";
  write(out, std::string(call.name()));
  out += ",\"arguments\":[";
  bool is_first = true;
  for (const c10::IValue& input : call.inputs()) {
    if (!is_first) out += ',';
    is_first = false;
    write(out, input);
  }
  out += "]}";
  return describe(out.c_str());
}

// --- slots

// The place of a hash, or the free one where it would be.
Place& place_of(uint64_t hash) {
  for (uint64_t number = hash % PLACES;; number = (number + 1) % PLACES) {
    uint64_t held = places[number].hash.load(std::memory_order_acquire);
    if (held == hash || held == 0) return places[number];
  }
}

int slot_of(const at::RecordFunction& call) {
  Hash hash;
  hash.add(reinterpret_cast<uint64_t>(call.name()));
  for (const c10::IValue& input : call.inputs()) hash.add(input);
  hash.state |= 1;
  Place& known = place_of(hash.state);
  if (known.hash.load(std::memory_order_acquire)) return known.slot;
  if (filled >= PLACES / 2) return 0;
  int slot = described(call);  // runs Python, in which another thread may describe it too
  while (filling.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  Place& place = place_of(hash.state);
  if (!place.hash.load(std::memory_order_acquire)) {
    filled++;
    place.slot = slot;
    place.hash.store(hash.state, std::memory_order_release);
  }
  slot = place.slot;
  filling.clear(std::memory_order_release);
  return slot;
}

void add(std::atomic<uint64_t>& bits, double number) {
  uint64_t before = bits.load(std::memory_order_relaxed), after;
  do {
    double sum;
    std::memcpy(&sum, &before, sizeof sum);
    sum += number;
    std::memcpy(&after, &sum, sizeof after);
  } while (!bits.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

bool is_operator(const at::RecordFunction& call) {
  return std::strncmp(call.name(), "aten::", 6) == 0;
}

std::unique_ptr<at::ObserverContext> begun(const at::RecordFunction& call) {
  if (!is_operator(call)) return nullptr;
  here.events++;
  if (here.depth++) return nullptr;
  try {
    here.slot = slot_of(call);
  } catch (...) {  // as of a tensor that has no sizes
    here.slot = 0;
  }
  here.events = 1;
  here.weight = weight.load(std::memory_order_relaxed);
  here.begun_ns = now_ns();
  return nullptr;
}

void ended(const at::RecordFunction& call, at::ObserverContext*) {
  if (!is_operator(call) || --here.depth) return;
  double spent_ns = static_cast<double>(now_ns() - here.begun_ns);
  double own_ns = static_cast<double>(here.events - 1) * EVENT_NS;
  events.fetch_add(here.events, std::memory_order_relaxed);
  if (!here.slot) return;
  add(slots[2 * here.slot], here.weight);
  add(slots[2 * here.slot + 1], here.weight * std::max(spent_ns - own_ns, spent_ns / 2));
}

// --- the share of the time

// Whether the process is still the one that it was.
bool rest(unsigned mine, double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
  return generation == mine;
}

void pace(unsigned mine) {
  std::minstd_rand random(static_cast<unsigned>(now_ns()));
  std::uniform_real_distribution<double> around(0.5, 1.5);
  int64_t begun_ns = now_ns();
  for (int gap = 0; rest(mine, WINDOW_MS);) {
    double allowed_ns = static_cast<double>(now_ns() - begun_ns) * share + FREE_NS;
    bool is_over = static_cast<double>(events) * EVENT_NS > allowed_ns;
    gap = is_over ? std::min(2 * gap + 1, MOST_GAP) : gap / 2;
    if (gap) {
      at::disableCallback(handle);
      bool goes_on = rest(mine, gap * WINDOW_MS * around(random));
      weight = gap + 1;
      at::reenableCallback(handle);
      if (!goes_on) return;
    } else {
      weight = 1;
    }
  }
}

}  // namespace

extern "C" {

// Into a table of this process: at the start, and after a fork.
void tuner_trace_count(void* table) {
  slots = static_cast<std::atomic<uint64_t>*>(table);
  for (int number = 0; number < PLACES; number++) places[number].hash = 0;
  filled = 0;
  filling.clear();
  events = 0;
  weight = 1;
  here = Thread();
  std::thread(pace, ++generation).detach();
}

void tuner_trace_start(void* table, Describe describing, double cost) {
  describe = describing;
  share = cost;
  tuner_trace_count(table);
  handle = at::addGlobalCallback(at::RecordFunctionCallback(begun, ended)
                                     .needsInputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
}
}
