/* Times calls of NumPy's functions, see vectorcall.h. */
#include <time.h>

#include "vectorcall.h"

/* The number of a call's slot; 0 for one that is not to be counted. */
typedef int (*Describe)(Object *callable, Object *arguments, Object *keywords);

typedef struct {
    double calls, nanoseconds;
} Slot;

enum {
    PLACES = 1 << 14,
    LARGE = 1 << 15, /* elements of all operands: from here on every call is timed */
    MOST_GAP = 1023,
    COST_NS = 300,   /* of a call that is timed, on a core of 2 GHz */
    FREE = 1 << 12,  /* timed whatever they cost, which is about a millisecond */
};

static struct {
    uint64_t hash;
    int slot;
} places[PLACES];
static int filled;

static Slot *slots;
static Describe describe;
static void *array_type;
static double share; /* of the time, which timing may take */
static uint64_t begun, timed;
static uint32_t gap; /* one of gap + 1 small calls is timed; one less than a power of two */
static uint32_t state = 2463534242u;
static __thread int depth;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* xorshift32 (Marsaglia 2003): calls in a loop must not fall into step with the gap. */
static uint32_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static uint64_t of_array(uint64_t hash, const Array *array)
{
    hash = mixed(hash, (uint64_t)array->descriptor->number * 64u + (uint64_t)array->rank);
    for (int axis = 0; axis < array->rank; axis++) {
        hash = mixed(hash, (uint64_t)array->extents[axis]);
        hash = mixed(hash, (uint64_t)array->strides[axis]);
    }
    return hash;
}

static uint64_t of_argument(uint64_t hash, Object *argument, int nested)
{
    void *type = argument->type;
    if (type == array_type)
        return of_array(hash, (const Array *)argument);
    hash = mixed(hash, (uint64_t)(uintptr_t)type);
    if (type == PyLong_Type || type == PyBool_Type) {
        int overflow = 0;
        long long value = PyLong_AsLongLongAndOverflow(argument, &overflow);
        if (!overflow && value >= -SMALL && value <= SMALL)
            hash = mixed(hash, (uint64_t)(value + SMALL + 1));
    } else if (type == PyUnicode_Type) {
        hash = mixed(hash, (uint64_t)PyObject_Hash(argument));
    } else if (type == PyTuple_Type && !nested) {
        ptrdiff_t count = PyTuple_Size(argument);
        for (ptrdiff_t place = 0; place < count; place++)
            hash = of_argument(hash, PyTuple_GetItem(argument, place), 1);
    } else if (type == PyList_Type && !nested) {
        ptrdiff_t count = PyList_Size(argument);
        for (ptrdiff_t place = 0; place < count; place++)
            hash = of_argument(hash, PyList_GetItem(argument, place), 1);
    }
    return hash;
}

static int is_large(Object *const *arguments, ptrdiff_t count)
{
    ptrdiff_t all = 0;
    for (ptrdiff_t place = 0; place < count; place++) {
        if (arguments[place]->type != array_type)
            continue;
        const Array *array = (const Array *)arguments[place];
        ptrdiff_t elements = 1;
        for (int axis = 0; axis < array->rank; axis++)
            elements *= array->extents[axis];
        all += elements;
    }
    return all >= LARGE;
}

/* The slot of a call, described when it is met first. */
static int slot_of(uint64_t hash, Object *callable, Object *const *arguments, ptrdiff_t count,
                   Object *keywords)
{
    uint32_t place = (uint32_t)(hash % PLACES);
    while (places[place].hash && places[place].hash != hash)
        place = (place + 1) % PLACES;
    if (places[place].hash)
        return places[place].slot;
    if (filled >= PLACES / 2)
        return 0;
    Object *tuple = tuple_of(arguments, count);
    if (tuple == NULL)
        return 0;
    depth++; /* what describes a call may call NumPy */
    int slot = describe(callable, tuple, keywords);
    depth--;
    Py_DecRef(tuple);
    /* Describing runs Python, in which another thread may have taken the place. */
    while (places[place].hash && places[place].hash != hash)
        place = (place + 1) % PLACES;
    filled += !places[place].hash;
    places[place].hash = hash;
    places[place].slot = slot;
    return slot;
}

/* Keeps the cost within its share: fewer small calls are timed where there are many. */
static void adapt(uint64_t time)
{
    if (++timed % 64)
        return;
    double allowed = (double)(time - begun) * share / COST_NS + FREE;
    if ((double)timed > allowed)
        gap = gap >= MOST_GAP ? MOST_GAP : gap * 2 + 1;
    else
        gap >>= 1;
}

static Object *recorded(Object *callable, Object *const *arguments, size_t flags, Object *keywords)
{
    int kind = kind_of(callable);
    Vectorcall original = kinds[kind].original;
    if (depth)
        return original(callable, arguments, flags, keywords);
    int whole = kinds[kind].whole;
    ptrdiff_t positional = positional_of(flags);
    ptrdiff_t count = positional + (keywords ? PyTuple_Size(keywords) : 0);
    uint32_t weight = 1;
    if (gap && !is_large(arguments, count)) {
        if (random_bits() & gap) {
            depth += whole;
            Object *result = original(callable, arguments, flags, keywords);
            depth -= whole;
            return result;
        }
        weight = gap + 1;
    }
    uint64_t hash = mixed(1, (uint64_t)(uintptr_t)callable);
    for (ptrdiff_t place = 0; place < count; place++)
        hash = of_argument(hash, arguments[place], 0);
    for (ptrdiff_t place = positional; place < count; place++)
        hash = mixed(hash, (uint64_t)(uintptr_t)PyTuple_GetItem(keywords, place - positional));
    uint64_t start = now();
    depth += whole;
    Object *result = original(callable, arguments, flags, keywords);
    depth -= whole;
    uint64_t end = now();
    if (result != NULL) {
        int slot = slot_of(hash | 1, callable, arguments, count, keywords);
        if (slot) {
            slots[slot].calls += weight;
            slots[slot].nanoseconds += (double)weight * (double)(end - start);
        }
    }
    adapt(end);
    return result;
}

void tuner_trace_start(void *table, Describe describing, void *array, double cost)
{
    slots = table;
    describe = describing;
    array_type = array;
    share = cost;
    begun = now();
}

/* After a fork: the child counts into a table of its own. */
void tuner_trace_restart(void *table)
{
    for (int place = 0; place < PLACES; place++)
        places[place].hash = 0;
    filled = 0;
    slots = table;
    begun = now();
    timed = 0;
}

int tuner_trace_wrap(Object *callable, ptrdiff_t offset, int whole)
{
    return wrap(callable, offset, whole, recorded);
}
