// From a path to one token.
#include "tests/fuzz/use_checkpoint.hpp"

#include <vector>

#include "tests/fuzz/target.hpp"

namespace moe_fuzz {
namespace {

constexpr int most_layers = 4;
constexpr uint64_t most_weight_bytes = 1 << 20;
constexpr int32_t most_hidden = 4096;

template <class T>
T sized() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

bool ok(moe_status status, std::string_view what) {
    if (status == MOE_OK) return true;
    const std::string_view text = moe_last_error();
    promise(!text.empty(), "a refusal without a sentence", what);
    for (const char c : text)
        promise(static_cast<unsigned char>(c) >= 0x20, "a control byte in the sentence", text);
    // A description that comes from a file may be one that a plan refuses.
    promise(status == MOE_ERROR_CORRUPT_FILE || status == MOE_ERROR_UNSUPPORTED ||
                status == MOE_ERROR_NOT_FOUND || status == MOE_ERROR_INVALID_ARGUMENT ||
                status == MOE_ERROR_LAYOUT_MISMATCH,
            "a status that no file should cause", text);
    refused(text);
    return false;
}

moe_runtime* runtime() {
    static moe_runtime* const one = [] {
        auto desc = sized<moe_runtime_desc>();
        desc.n_threads = 1;
        moe_runtime* made = nullptr;
        promise(moe_runtime_create(&desc, &made) == MOE_OK, "a runtime");
        return made;
    }();
    return one;
}

void look_at_tensors(const moe_checkpoint* checkpoint, int32_t layer) {
    for (uint32_t i = 0;; ++i) {
        auto tensor = sized<moe_tensor>();
        auto format = sized<moe_format>();
        if (moe_checkpoint_tensor(checkpoint, layer, i, &tensor, &format) != MOE_OK) return;
        promise(tensor.format == &format, "the format of a tensor");
        // First and last byte: outside of the mapping they would be a fault.
        const auto* bytes = static_cast<const volatile unsigned char*>(tensor.data);
        if (bytes && tensor.data_bytes) (void)bytes[0], (void)bytes[tensor.data_bytes - 1];
        const auto* scales = static_cast<const volatile unsigned char*>(tensor.scales);
        if (scales && tensor.scale_bytes) (void)scales[0], (void)scales[tensor.scale_bytes - 1];
    }
}

void run_token(const moe_plan* plan, const moe_weights* weights, const moe_layer_desc& layer) {
    auto desc = sized<moe_workspace_desc>();
    desc.plan = plan;
    moe_workspace* workspace = nullptr;
    if (!ok(moe_workspace_create(runtime(), &desc, &workspace), "a workspace")) return;
    const auto width = static_cast<size_t>(layer.hidden);
    std::vector<float> x(width, 0.5f), y(width);
    auto args = sized<moe_forward_args>();
    args.n_tokens = 1;
    args.x = x.data();
    args.out = y.data();
    ok(moe_forward(plan, weights, workspace, &args), "forward");
    moe_workspace_destroy(workspace);
}

void load(const moe_plan* plan, const moe_checkpoint* checkpoint, int32_t number,
          const moe_layer_desc& layer, moe_io io) {
    uint64_t bytes = 0;
    if (!ok(moe_weights_size(plan, nullptr, &bytes), "a size") || bytes > most_weight_bytes) return;
    auto options = sized<moe_load_options>();
    options.ownership = io == MOE_IO_MMAP ? MOE_OWN_BORROW : MOE_OWN_COPY;
    moe_weights* weights = nullptr;
    if (!ok(moe_weights_load_checkpoint(plan, checkpoint, number, &options, &weights), "weights"))
        return;
    if (layer.hidden <= most_hidden) run_token(plan, weights, layer);
    moe_weights_destroy(weights);
}

void names_file(std::string_view named) {
    const std::string_view text = moe_last_error();
    promise(text.find(named) != text.npos, "the sentence does not name the file", text);
}

void use_layer(const moe_checkpoint* checkpoint, int32_t number, moe_io io,
               std::string_view named) {
    auto layer = sized<moe_layer_desc>();
    if (!ok(moe_checkpoint_layer(checkpoint, number, &layer), "a layer")) return names_file(named);
    look_at_tensors(checkpoint, number);
    auto desc = sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.x_type = MOE_TYPE_F32;
    desc.checkpoint = checkpoint;
    desc.checkpoint_layer = number;
    desc.max_tokens = 1;
    moe_plan* plan = nullptr;
    if (!ok(moe_plan_create(runtime(), &desc, &plan), "a plan")) return;
    load(plan, checkpoint, number, layer, io);
    moe_plan_destroy(plan);
}

}  // namespace

void use_checkpoint(const std::string& path, moe_io io, std::string_view named) {
    auto options = sized<moe_checkpoint_options>();
    options.io = io;
    moe_checkpoint* checkpoint = nullptr;
    if (!ok(moe_checkpoint_open(runtime(), path.c_str(), &options, &checkpoint), "open")) {
        promise(checkpoint == nullptr, "a handle beside an error");
        return names_file(named);
    }
    auto info = sized<moe_checkpoint_info>();
    promise(moe_checkpoint_get_info(checkpoint, &info) == MOE_OK, "info", moe_last_error());
    for (int32_t i = 0; i < info.n_layers && i < most_layers; ++i) {
        int32_t number = 0;
        promise(moe_checkpoint_layer_at(checkpoint, i, &number) == MOE_OK, "layer_at",
                moe_last_error());
        use_layer(checkpoint, number, io, named);
    }
    moe_checkpoint_destroy(checkpoint);
}

}  // namespace moe_fuzz
