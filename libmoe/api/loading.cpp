// moe_loading_*: a load on a thread of its own. The thread writes the outcome once, under the
// mutex; until then others see counters and ask it to stop.
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "libmoe/api/guard.hpp"
#include "libmoe/api/load_arguments.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/base/float_mode.hpp"
#include "libmoe/checkpoint/checkpoint.hpp"
#include "libmoe/device/device.hpp"
#include "libmoe/weights/load.hpp"

namespace moe {
namespace {

// A stream for the length of a load.
class OwnStream {
  public:
    OwnStream() : stream_(device::make_stream()) {}
    ~OwnStream() {
        try {
            device::destroy_stream(stream_);
        } catch (const Error&) {
            // The load has its outcome already.
        }
    }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;

    void* get() const { return stream_; }

  private:
    void* stream_;
};

}  // namespace
}  // namespace moe

struct moe_loading : moe::Tagged<0x4D4F456C6F616469> {
  public:
    moe_loading(const moe_plan& plan, const moe::LoadRequest& request);
    ~moe_loading();
    moe_loading(const moe_loading&) = delete;
    moe_loading& operator=(const moe_loading&) = delete;

    void take_tensors(const moe_weights_desc& desc);
    void take_checkpoint(const moe_checkpoint& checkpoint, int32_t layer);
    void start();
    void cancel() noexcept { is_cancelled_.store(true, std::memory_order_relaxed); }
    moe_loading_progress progress() const;
    // The outcome, once it is there. Fails as the load did.
    void wait();
    moe_weights* take_weights();
    // Threads do not survive fork(): true in a child of the process that began the load.
    bool forked() const { return process_ != getpid(); }

    moe::RuntimeRef runtime;

  private:
    static void* enter(void* loading);
    static int32_t note_progress(uint64_t done, uint64_t total, void* loading);
    void run();
    moe_weights* load(const moe::LoadRequest& request);
    moe_weights* load_on_device();

    // Read by the thread, written before it starts.
    moe::WeightsLayout layout_;
    moe::LoadRequest request_;
    moe_progress_fn progress_;
    void* progress_user_data_;
    std::optional<moe::Tensors> tensors_;
    const moe_checkpoint* checkpoint_ = nullptr;
    int32_t layer_ = 0;
    void* context_ = nullptr;  // of a device

    const pid_t process_ = getpid();
    pthread_t thread_{};
    bool has_thread_ = false;
    std::atomic<bool> is_cancelled_{false};
    std::atomic<uint64_t> bytes_done_{0};
    const uint64_t bytes_total_;

    mutable std::mutex mutex_;  // guards all below
    std::condition_variable ended_;
    bool is_done_ = false;
    moe_status status_ = MOE_OK;
    char sentence_[moe::Error::capacity] = "";
    moe_weights* weights_ = nullptr;
};

moe_loading::moe_loading(const moe_plan& plan, const moe::LoadRequest& request)
    : runtime(&*plan.runtime),
      layout_(runtime->memory, plan.layout),
      request_(request),
      progress_(request.progress),
      progress_user_data_(request.progress_user_data),
      bytes_total_(layout_.copy_bytes()) {
    request_.progress = note_progress;
    request_.progress_user_data = this;
    if (runtime->parallel_for)
        moe::fail(MOE_ERROR_UNSUPPORTED,
                  "moe_loading: the runtime has a parallel_for, with which the library makes no "
                  "thread; call moe_weights_load on a thread of the program's");
    if (!plan.is_cuda()) return;
    const moe::device::UseDevice use(plan.device_index);
    context_ = moe::device::current_context();
}

moe_loading::~moe_loading() {
    if (has_thread_) pthread_join(thread_, nullptr);
    moe_weights_destroy(weights_);
    if (checkpoint_) checkpoint_->release();
}

void moe_loading::take_tensors(const moe_weights_desc& desc) {
    tensors_.emplace(runtime->memory, desc.tensors, desc.n_tensors);
}

void moe_loading::take_checkpoint(const moe_checkpoint& checkpoint, int32_t layer) {
    checkpoint.retain();
    checkpoint_ = &checkpoint;
    layer_ = layer;
}

void moe_loading::start() {
    const int error = pthread_create(&thread_, nullptr, enter, this);
    if (error != 0)
        moe::fail(MOE_ERROR_OUT_OF_MEMORY, "no thread to load on: pthread_create answers {}",
                  error);
    has_thread_ = true;
}

void* moe_loading::enter(void* loading) {
    static_cast<moe_loading*>(loading)->run();
    return nullptr;
}

void moe_loading::run() {
    const moe::DefaultFloatMode mode;  // a thread starts in the mode of the one that made it
    moe_weights* weights = nullptr;
    const moe_status status =
        moe::guard([&] { weights = context_ ? load_on_device() : load(request_); });
    const std::lock_guard lock(mutex_);
    status_ = status;
    std::strncpy(sentence_, moe::last_error(), sizeof sentence_ - 1);
    weights_ = weights;
    is_done_ = true;
    ended_.notify_all();
}

moe_weights* moe_loading::load(const moe::LoadRequest& request) {
    if (checkpoint_) return moe::load_checkpoint(&*runtime, layout_, request, *checkpoint_, layer_);
    return moe::load_tensors(&*runtime, layout_, request, tensors_->pointers(), tensors_->size());
}

moe_weights* moe_loading::load_on_device() {
    const moe::device::UseContext use(context_);
    if (request_.stream) return load(request_);
    const moe::OwnStream stream;
    moe::LoadRequest request = request_;
    request.stream = stream.get();
    return load(request);
}

int32_t moe_loading::note_progress(uint64_t done, uint64_t total, void* loading) {
    auto& self = *static_cast<moe_loading*>(loading);
    self.bytes_done_.store(done, std::memory_order_relaxed);
    if (self.is_cancelled_.load(std::memory_order_relaxed)) return 1;
    return self.progress_ ? self.progress_(done, total, self.progress_user_data_) : 0;
}

moe_loading_progress moe_loading::progress() const {
    moe_loading_progress progress{};
    progress.struct_size = sizeof progress;
    progress.bytes_total = bytes_total_;
    const std::lock_guard lock(mutex_);
    progress.is_done = is_done_;
    progress.status = status_;
    const bool is_whole = is_done_ && status_ == MOE_OK;
    progress.bytes_done = is_whole ? bytes_total_ : bytes_done_.load(std::memory_order_relaxed);
    return progress;
}

void moe_loading::wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return is_done_; });
    if (status_ != MOE_OK) moe::fail(status_, "{}", static_cast<const char*>(sentence_));
}

moe_weights* moe_loading::take_weights() {
    const std::lock_guard lock(mutex_);
    if (!weights_)
        moe::fail(MOE_ERROR_NOT_FOUND, "the weights of this load were taken by an earlier wait");
    return std::exchange(weights_, nullptr);
}

namespace moe {
namespace {

moe_loading& check_loading(moe_loading* loading) {
    check_handle(loading, "loading");
    if (loading->forked())
        fail(MOE_ERROR_FORKED, "the loading thread stayed in the parent of this forked process");
    return *loading;
}

void end(moe_loading* loading) {
    RuntimeRef runtime(&*loading->runtime);  // its memory outlives what is given back to it
    destroy_in(runtime->memory, loading);
}

// Makes a load, gives it its source by take(loading), and starts it.
template <class Take>
moe_loading* start_loading(const moe_plan& plan, const LoadRequest& request, Take take) {
    moe_loading* loading = create_in<moe_loading>(plan.runtime->memory, plan, request);
    try {
        take(*loading);
        loading->start();
    } catch (...) {
        end(loading);
        throw;
    }
    return loading;
}

}  // namespace
}  // namespace moe

using namespace moe;

moe_status moe_loading_start(const moe_plan* plan, const moe_weights_desc* given,
                             moe_loading** out_loading) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_out(out_loading, "out_loading");
        const moe_weights_desc desc = read_struct(given, "moe_weights_desc");
        const LoadRequest request = load_request(*plan, desc);
        *out_loading =
            start_loading(*plan, request, [&](moe_loading& one) { one.take_tensors(desc); });
    });
}

moe_status moe_loading_start_checkpoint(const moe_plan* plan, const moe_checkpoint* checkpoint,
                                        int32_t layer, const moe_load_options* options,
                                        moe_loading** out_loading) noexcept {
    return guard([&] {
        check_handle(plan, "plan");
        check_handle(checkpoint, "checkpoint");
        check_out(out_loading, "out_loading");
        const LoadRequest request = load_request(options);
        *out_loading = start_loading(
            *plan, request, [&](moe_loading& one) { one.take_checkpoint(*checkpoint, layer); });
    });
}

moe_status moe_loading_poll(const moe_loading* loading,
                            moe_loading_progress* out_progress) noexcept {
    return guard([&] {
        check_loading(const_cast<moe_loading*>(loading));
        check_out(out_progress, "out_progress");
        write_struct(out_progress, loading->progress(), "moe_loading_progress");
    });
}

moe_status moe_loading_wait(moe_loading* loading, moe_weights** out_weights) noexcept {
    return guard([&] {
        check_loading(loading).wait();
        if (out_weights) *out_weights = loading->take_weights();
    });
}

moe_status moe_loading_cancel(moe_loading* loading) noexcept {
    return guard([&] { check_loading(loading).cancel(); });
}

void moe_loading_destroy(moe_loading* loading) noexcept {
    if (!loading || !is_living(loading) || loading->forked()) return;
    loading->cancel();
    end(loading);
}
