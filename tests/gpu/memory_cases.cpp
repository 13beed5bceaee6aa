// moe_memory_* and moe_stream_*: copies in every direction in the order of a stream, a forward by a
// program that has nothing but moe.h, captured copies, contexts, the caller's allocator, refusals.
#include <atomic>
#include <numeric>
#include <thread>

#include "compare.hpp"

namespace moe_gpu {
namespace {

constexpr moe_space all_spaces[] = {MOE_SPACE_HOST, MOE_SPACE_PINNED, MOE_SPACE_DEVICE};

// Memory that moe.h gives.
class Block {
  public:
    Block(Context& context, moe_space space, uint64_t bytes)
        : kind_(context.device.kind()), space_(space), bytes_(bytes) {
        must(moe_memory_allocate(nullptr, kind_, 0, space, bytes, &data_), "moe_memory_allocate");
    }
    ~Block() { moe_memory_free(nullptr, kind_, 0, space_, bytes_, data_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    void* data() const { return data_; }
    uint64_t bytes() const { return bytes_; }
    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }

  private:
    moe_device_kind kind_;
    moe_space space_;
    uint64_t bytes_;
    void* data_ = nullptr;
};

class OwnStream {
  public:
    explicit OwnStream(Context& context) : kind_(context.device.kind()) {
        must(moe_stream_create(kind_, 0, &stream_), "moe_stream_create");
    }
    ~OwnStream() { moe_stream_destroy(kind_, 0, stream_); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;

    void copy(void* to, const void* from, uint64_t bytes) const {
        must(moe_memory_copy(kind_, 0, to, from, bytes, stream_), "moe_memory_copy");
    }
    void zero(void* memory, uint64_t bytes) const {
        must(moe_memory_zero(kind_, 0, memory, bytes, stream_), "moe_memory_zero");
    }
    void synchronize() const {
        must(moe_stream_synchronize(kind_, 0, stream_), "moe_stream_synchronize");
    }
    void* get() const { return stream_; }

  private:
    moe_device_kind kind_;
    void* stream_ = nullptr;
};

std::vector<int32_t> counted(size_t n, int32_t first) {
    std::vector<int32_t> values(n);
    std::iota(values.begin(), values.end(), first);
    return values;
}

// Host -> a -> b -> host for every pair of spaces: what arrives is what was sent.
void check_memory_copies(Context& context) {
    const OwnStream stream(context);
    const size_t n = 100'003;
    int32_t first = 1;
    for (const moe_space a : all_spaces)
        for (const moe_space b : all_spaces) {
            const std::vector<int32_t> sent = counted(n, first += 1000);
            std::vector<int32_t> got(n, -1);
            const Block one(context, a, 4 * n), two(context, b, 4 * n);
            context.expect(reinterpret_cast<uintptr_t>(one.data()) % 256 == 0, "off 256 bytes");
            stream.copy(one.data(), sent.data(), 4 * n);
            stream.copy(two.data(), one.data(), 4 * n);
            stream.copy(got.data(), two.data(), 4 * n);
            stream.synchronize();
            context.expect(got == sent,
                           text("space %d to space %d", static_cast<int>(a), static_cast<int>(b)));
        }
}

// Work on one stream keeps its order, and zeros end where they should.
void check_memory_zero(Context& context) {
    const OwnStream stream(context);
    const size_t n = 5000;
    for (const moe_space space : {MOE_SPACE_PINNED, MOE_SPACE_DEVICE}) {
        std::vector<int32_t> wanted = counted(n, 1), got(n);
        const Block block(context, space, 4 * n);
        stream.zero(block.data(), 4 * n);
        stream.copy(block.data(), wanted.data(), 4 * n);
        stream.zero(block.as<int32_t>() + 7, 4 * 100);
        stream.copy(got.data(), block.data(), 4 * n);
        stream.synchronize();
        std::fill_n(wanted.begin() + 7, 100, 0);
        context.expect(got == wanted, text("zeros in space %d", static_cast<int>(space)));
    }
}

// A program on moe.h alone has the bits of one with its own CUDA memory.
void check_memory_forward(Context& context) {
    PairSpec spec;
    spec.layer.desc = plain_layer(128, 64, 8, 2);
    spec.numbers = f32;
    spec.max_tokens = 32;
    const Pair pair(context, spec);
    const Forward call = pair.routed_call(32);
    const Result wanted = pair.check(call);
    const std::vector<int32_t> ids(call.ids.begin(), call.ids.end());
    const uint64_t x_bytes = 4 * call.x.size();
    const OwnStream stream(context);
    const Block x(context, MOE_SPACE_DEVICE, x_bytes), out(context, MOE_SPACE_DEVICE, x_bytes);
    const Block id_block(context, MOE_SPACE_DEVICE, 4 * ids.size());
    const Block weights(context, MOE_SPACE_DEVICE, 4 * call.weights.size());
    stream.copy(x.data(), call.x.data(), x_bytes);
    stream.copy(id_block.data(), ids.data(), id_block.bytes());
    stream.copy(weights.data(), call.weights.data(), weights.bytes());
    auto args = sized<moe_forward_args>();
    args.n_tokens = call.n_tokens;
    args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
    args.x = x.data();
    args.ids = id_block.data();
    args.weights = weights.data();
    args.out = out.data();
    args.stream = stream.get();
    const Side& side = pair.subject;
    must(moe_forward(side.plan.get(), side.weights.get(), side.workspace(), &args), "moe_forward");
    Bytes got(x_bytes);
    stream.copy(got.data(), out.data(), x_bytes);
    stream.synchronize();
    context.expect(got == wanted.bits, "other bits than with memory of the test's own");
}

// Copies and zeros become nodes of a graph: each replay sees what the source holds then.
void check_memory_capture(Context& context) {
    const size_t n = 1000;
    const OwnStream stream(context);
    const Block from(context, MOE_SPACE_PINNED, 4 * n), there(context, MOE_SPACE_DEVICE, 4 * n);
    const Block to(context, MOE_SPACE_PINNED, 4 * n);
    const auto graph = context.device.capture(stream.get(), [&] {
        stream.copy(there.data(), from.data(), 4 * n);
        stream.zero(there.data(), 4);
        stream.copy(to.data(), there.data(), 4 * n);
    });
    for (int32_t first = 10; first < 40; first += 10) {
        std::vector<int32_t> wanted = counted(n, first);
        std::copy(wanted.begin(), wanted.end(), from.as<int32_t>());
        std::fill_n(to.as<int32_t>(), n, -1);
        graph->launch(stream.get());
        stream.synchronize();
        wanted[0] = 0;
        context.expect(std::equal(wanted.begin(), wanted.end(), to.as<int32_t>()),
                       text("the replay with %d has other values", first));
    }
}

// A thread without a context can do all of it, and has none afterwards.
void check_memory_bare_thread(Context& context) {
    std::string error;
    std::thread([&] {
        try {
            void* before = context.device.current_context();
            check_memory_copies(context);
            if (context.device.current_context() != before)
                error = "the thread has another current context";
        } catch (const std::exception& failure) {
            error = failure.what();
        }
    }).join();
    context.expect(error.empty(), error);
}

// With another device current every call is refused, and memory can still be freed afterwards.
void check_memory_other_device(Context& context) {
    if (context.device.count() < 2) throw Skip("one device only");
    const moe_device_kind kind = context.device.kind();
    const Block block(context, MOE_SPACE_DEVICE, 64);
    std::string error;
    std::thread([&] {
        context.device.make_current(1);
        void* before = context.device.current_context();
        void* out = nullptr;
        const moe_status answers[] = {
            moe_memory_allocate(nullptr, kind, 0, MOE_SPACE_DEVICE, 64, &out),
            moe_memory_free(nullptr, kind, 0, MOE_SPACE_DEVICE, 64, block.data()),
            moe_memory_zero(kind, 0, block.data(), 64, nullptr),
            moe_memory_copy(kind, 0, block.data(), block.data(), 0, nullptr),
            moe_stream_create(kind, 0, &out),
            moe_stream_synchronize(kind, 0, nullptr)};
        for (const moe_status status : answers)
            if (status != MOE_ERROR_INVALID_ARGUMENT)
                error += std::string(" the status is ") + moe_status_name(status);
        if (out) error += " an output was written";
        if (context.device.current_context() != before) error += " the current context changed";
    }).join();
    context.expect(error.empty(), error);
}

struct Counts {
    Device* device;
    std::atomic<int> n_allocated{0}, n_released{0}, n_wrong{0};
};

moe_allocator table_of(Counts& counts) {
    auto table = sized<moe_allocator>();
    table.user_data = &counts;
    table.allocate = [](uint64_t bytes, uint64_t, moe_space space, void*, void* user) -> void* {
        auto& mine = *static_cast<Counts*>(user);
        if (space == MOE_SPACE_HOST) return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        ++mine.n_allocated;
        return mine.device->allocate(bytes);
    };
    table.release = [](void* memory, uint64_t bytes, uint64_t, moe_space space, void*, void* user) {
        auto& mine = *static_cast<Counts*>(user);
        if (space == MOE_SPACE_HOST) return std::free(memory);
        ++mine.n_released;
        if (bytes != 1000 || space != MOE_SPACE_DEVICE) ++mine.n_wrong;
        mine.device->release(memory);
    };
    return table;
}

// Memory of the device comes from the runtime's allocator and goes back to it.
void check_memory_allocator(Context& context) {
    if (!context.device.is_cuda()) throw Skip("every space is the host's here");
    Counts counts{&context.device};
    const moe_allocator table = table_of(counts);
    auto desc = sized<moe_runtime_desc>();
    desc.allocator = &table;
    moe_runtime* raw = nullptr;
    must(moe_runtime_create(&desc, &raw), "moe_runtime_create");
    const Runtime runtime(raw);
    void* memory = nullptr;
    must(moe_memory_allocate(raw, MOE_DEVICE_CUDA, 0, MOE_SPACE_DEVICE, 1000, &memory),
         "moe_memory_allocate");
    context.expect(memory && counts.n_allocated == 1, "the allocator was not asked");
    must(moe_memory_free(raw, MOE_DEVICE_CUDA, 0, MOE_SPACE_DEVICE, 1000, memory),
         "moe_memory_free");
    context.expect(counts.n_released == 1 && counts.n_wrong == 0,
                   "it was not given back as it was");
}

void check_memory_refusals(Context& context) {
    const moe_device_kind kind = context.device.kind();
    void* out = nullptr;
    const auto expect = [&](const char* what, moe_status status, moe_status wanted) {
        context.expect(status == wanted && *moe_last_error(),
                       std::string(what) + ": " + moe_status_name(status));
    };
    const uint64_t too_many = uint64_t{1} << 60;
    expect("too many bytes",
           moe_memory_allocate(nullptr, kind, 0, MOE_SPACE_DEVICE, too_many, &out),
           MOE_ERROR_OUT_OF_MEMORY);
    expect("device 200", moe_memory_allocate(nullptr, kind, 200, MOE_SPACE_DEVICE, 64, &out),
           MOE_ERROR_INVALID_ARGUMENT);
    expect("a stream of device 200", moe_stream_create(kind, 200, &out),
           MOE_ERROR_INVALID_ARGUMENT);
    expect("NULL", moe_memory_zero(kind, 0, nullptr, 64, nullptr), MOE_ERROR_INVALID_ARGUMENT);
    context.expect(!out, "a call that fails wrote its output");
    must(moe_memory_allocate(nullptr, kind, 0, MOE_SPACE_DEVICE, 0, &out), "no bytes");
    must(moe_memory_free(nullptr, kind, 0, MOE_SPACE_DEVICE, 0, out), "no memory");
    must(moe_stream_destroy(kind, 0, nullptr), "no stream");
    must(moe_stream_synchronize(kind, 0, nullptr), "the default stream");
    check_memory_copies(context);  // and all of it works afterwards
}

}  // namespace

void add_memory_cases(CaseList& list) {
    list.add("memory/copies", Extent::smoke, check_memory_copies);
    list.add("memory/zero", Extent::smoke, check_memory_zero);
    list.add("memory/forward", Extent::smoke, check_memory_forward);
    list.add("memory/capture", Extent::smoke, check_memory_capture);
    list.add("memory/bare_thread", Extent::smoke, check_memory_bare_thread);
    list.add("memory/other_device", Extent::smoke, check_memory_other_device);
    list.add("memory/allocator", Extent::smoke, check_memory_allocator);
    list.add("memory/refusals", Extent::smoke, check_memory_refusals);
}

}  // namespace moe_gpu
