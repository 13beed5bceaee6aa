// An open checkpoint: the definition of moe.h's opaque handle. Layers are put together when they
// are first requested and then kept; any number of threads may ask. Weights that borrow from the
// mapping keep the checkpoint by retain and release.
#pragma once

#include <atomic>
#include <memory_resource>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libmoe/base/handle.hpp"
#include "libmoe/base/runtime.hpp"
#include "libmoe/checkpoint/checkpoint_files.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/checkpoint/layer_places.hpp"
#include "libmoe/checkpoint/overrides.hpp"

struct moe_checkpoint : moe::Tagged<0x4D4F45636865636B> {
  public:
    // The result has one reference. Fails with moe::Error.
    static moe_checkpoint* open(moe_runtime* runtime, const char* path,
                                const moe_checkpoint_options& options);
    // References may be taken and dropped on any thread; the last one ends the checkpoint.
    void retain() const noexcept;
    void release() const noexcept;

    moe_checkpoint_info info() const;
    bool is_mapped() const { return files_.io == MOE_IO_MMAP; }
    int32_t n_layers() const { return static_cast<int32_t>(layers_.size()); }
    // Number of the index-th MoE layer; MOE_ERROR_NOT_FOUND past the end.
    int32_t layer_at(int32_t index) const;

    // All of these fail with MOE_ERROR_NOT_FOUND when `layer` is not a MoE layer.
    const moe_layer_desc& layer_desc(int32_t layer) const;
    std::span<const moe::LayerTensor> tensors(int32_t layer) const;
    // As moe_checkpoint_formats. A fused GATE_UP tensor is the format of GATE and of UP, too.
    void formats(int32_t layer, moe_format* const* out_formats, uint32_t n_formats) const;
    // By expert; null where there is no tensor of the role. They live as long as the checkpoint.
    std::vector<const moe_format*> expert_formats(int32_t layer, moe_role role) const;

    // Copies bytes [offset, offset + bytes) of a tensor's data or scales; for either kind of input.
    void read(const moe::FileRange& range, uint64_t offset, uint64_t bytes, void* out) const;

    moe_checkpoint(moe_runtime* runtime, const char* path, const moe_checkpoint_options& options);
    ~moe_checkpoint();
    moe_checkpoint(const moe_checkpoint&) = delete;
    moe_checkpoint& operator=(const moe_checkpoint&) = delete;

  private:
    struct LayerSlot {
        moe::LayerPlace place;
        moe::LayerData* data = nullptr;  // null until requested
    };

    [[noreturn]] void fail_no_layers() const;
    void choose_family(const char* name);
    int32_t n_decoder_layers() const;
    // What a person should know of an unusual checkpoint, for the log and `moe inspect`.
    void log_notes(std::span<const moe::LayerPlace> places, int32_t n_decoder) const;
    const moe::LayerData& layer(int32_t number) const;
    moe::LayerData* build(const moe::LayerPlace& place) const;
    void fill_format(const moe::LayerData& layer, moe_role role, moe_format& out) const;

    mutable std::atomic<uint32_t> references_{1};
    moe::RuntimeRef runtime_;
    std::pmr::memory_resource& memory_;
    moe::CheckpointFiles files_;
    moe::FusedOverride override_;
    moe::Overrides overrides_;
    const moe::Family* family_ = nullptr;
    void (*build_)(moe::LayerBuilder& layer) = nullptr;
    std::pmr::string model_type_;
    mutable std::mutex mutex_;
    mutable std::pmr::vector<LayerSlot> layers_;  // data is guarded by mutex_
};
