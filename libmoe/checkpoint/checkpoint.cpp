// The checkpoint handle.
#include "libmoe/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "libmoe/base/error.hpp"
#include "libmoe/base/memory.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/checkpoint/unread_keys.hpp"
#include "libmoe/formats/format.hpp"

namespace {

constexpr int64_t most_decoder_layers = 1'000'000;

moe_io checked_io(const moe_checkpoint_options& options) {
    moe::require(options.io == MOE_IO_MMAP || options.io == MOE_IO_READ,
                 "options.io is {}, neither MMAP nor READ", static_cast<int32_t>(options.io));
    return options.io;
}

moe::FusedOverride checked_override(const moe_checkpoint_options& options) {
    const bool known_orientation = options.orientation == MOE_ORIENTATION_OUT_IN ||
                                   options.orientation == MOE_ORIENTATION_IN_OUT;
    moe::require(known_orientation, "options.orientation is {}, neither OUT_IN nor IN_OUT",
                 static_cast<int32_t>(options.orientation));
    const bool known_order = options.gate_up_order >= MOE_GATE_UP_NONE &&
                             options.gate_up_order <= MOE_GATE_UP_INTERLEAVED;
    moe::require(known_order, "options.gate_up_order is {}, outside 0 to 3",
                 static_cast<int32_t>(options.gate_up_order));
    return {options.has_orientation != 0, options.orientation, options.gate_up_order};
}

void copy_text(char* out, size_t capacity, std::string_view text) {
    const size_t length = std::min(capacity - 1, text.size());
    std::memcpy(out, text.data(), length);
    out[length] = '\0';
}

// A fused tensor holds the rows of both.
bool holds_role(moe_role tensor, moe_role role) {
    if (tensor == role) return true;
    if (tensor == MOE_ROLE_GATE_UP) return role == MOE_ROLE_GATE || role == MOE_ROLE_UP;
    if (tensor == MOE_ROLE_SHARED_GATE_UP)
        return role == MOE_ROLE_SHARED_GATE || role == MOE_ROLE_SHARED_UP;
    if (tensor == MOE_ROLE_GATE_UP_BIAS) {
        return role == MOE_ROLE_GATE_BIAS || role == MOE_ROLE_UP_BIAS;
    }
    return false;
}

}  // namespace

moe_checkpoint* moe_checkpoint::open(moe_runtime* runtime, const char* path,
                                     const moe_checkpoint_options& options) {
    moe::require(path != nullptr, "path is NULL");
    moe::require(*path != '\0', "path is empty");
    moe::RuntimeRef ref(runtime);
    return moe::create_in<moe_checkpoint>(ref->memory, &*ref, path, options);
}

moe_checkpoint::moe_checkpoint(moe_runtime* runtime, const char* path,
                               const moe_checkpoint_options& options)
    : runtime_(runtime),
      memory_(runtime->memory),
      files_(memory_, path, checked_io(options)),
      override_(checked_override(options)),
      overrides_(memory_, options.overrides),
      model_type_(&memory_),
      layers_(&memory_) {
    choose_family(options.family);
    const int32_t n_decoder = n_decoder_layers();
    const auto places = moe::find_layers(memory_, files_.index, files_.files,
                                         {files_.is_gguf, family_->names_layers, n_decoder});
    log_notes(places, n_decoder);
    layers_.reserve(places.size());
    for (const moe::LayerPlace& place : places) layers_.push_back({place});
}

// config.json counts them; 0 where it does not.
int32_t moe_checkpoint::n_decoder_layers() const {
    if (files_.is_gguf) return 0;
    const auto n = files_.settings.find_integer({"num_hidden_layers", "n_layers", "num_layers"}, 0,
                                                most_decoder_layers);
    return static_cast<int32_t>(n.value_or(0));
}

void moe_checkpoint::log_notes(std::span<const moe::LayerPlace> places, int32_t n_decoder) const {
    if (!files_.note.empty()) runtime_->log(MOE_LOG_INFO, "{}", files_.note);
    const auto further = std::find_if(
        places.begin(), places.end(),
        [&](const moe::LayerPlace& place) { return n_decoder > 0 && place.number >= n_decoder; });
    if (further == places.end()) return;
    runtime_->log(MOE_LOG_INFO,
                  "layer {} is '{}': past the last decoder layer, {}, it predicts further tokens",
                  further->number, moe::printable(further->prefix).text, n_decoder - 1);
}

moe_checkpoint::~moe_checkpoint() {
    for (const LayerSlot& slot : layers_) {
        if (slot.data) moe::destroy_in(memory_, slot.data);
    }
}

void moe_checkpoint::retain() const noexcept {
    references_.fetch_add(1, std::memory_order_relaxed);
}

void moe_checkpoint::release() const noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    auto* self = const_cast<moe_checkpoint*>(this);
    const moe::RuntimeRef runtime(&*runtime_);  // its memory outlives what is given back to it
    moe::destroy_in(runtime->memory, self);
}

void moe_checkpoint::choose_family(const char* name) {
    const moe::Settings& settings = files_.settings;
    std::string_view type;
    if (name) {
        family_ = moe::find_family(name);
        const char* key = files_.is_gguf ? "general.architecture" : "model_type";
        type = settings.find_text(key).value_or("");
        if (!family_) {
            std::string known;
            for (const moe::Family& family : moe::all_families())
                known += std::string(" ") + family.name;
            moe::fail(MOE_ERROR_UNSUPPORTED,
                      "options.family '{}' is none that this version knows:{}",
                      moe::printable(name).text, known);
        }
        build_ = files_.is_gguf ? family_->build_gguf : family_->build;
    } else if (files_.is_gguf) {
        const moe::GgufFamily found = moe::family_of_gguf(settings, type);
        family_ = found.family;
        build_ = found.build;
    } else {
        family_ = &moe::family_of_config(settings, type);
        build_ = family_->build;
    }
    if (!build_)
        moe::fail(MOE_ERROR_UNSUPPORTED, "{}: family '{}' is not read from {}", settings.file(),
                  family_->name, files_.is_gguf ? "GGUF" : "safetensors");
    model_type_ = type;
    if (files_.is_gguf) {
        files_.settings.set_prefix(std::string(type) + ".");
    } else if (family_->config_part && settings.has_part(family_->config_part)) {
        files_.settings.set_prefix(family_->config_part);
    }
}

moe_checkpoint_info moe_checkpoint::info() const {
    moe_checkpoint_info info{};
    info.struct_size = sizeof info;
    info.n_layers = n_layers();
    info.n_files = static_cast<int32_t>(files_.files.size());
    info.is_gguf = files_.is_gguf;
    info.n_tensors = files_.index.entries().size();
    info.file_bytes = files_.total_bytes();
    copy_text(info.family, sizeof info.family, family_->name);
    copy_text(info.model_type, sizeof info.model_type, model_type_);
    return info;
}

void moe_checkpoint::fail_no_layers() const {
    moe::fail(MOE_ERROR_NOT_FOUND, "{}: has no MoE layers: {}", files_.name(),
              moe::why_no_layers(files_.index, files_.is_gguf));
}

int32_t moe_checkpoint::layer_at(int32_t index) const {
    if (layers_.empty()) fail_no_layers();
    if (index < 0 || index >= n_layers()) {
        moe::fail(MOE_ERROR_NOT_FOUND, "index is {}, but there are {} MoE layers", index,
                  n_layers());
    }
    return layers_[static_cast<size_t>(index)].place.number;
}

const moe::LayerData& moe_checkpoint::layer(int32_t number) const {
    const auto slot = std::lower_bound(
        layers_.begin(), layers_.end(), number,
        [](const LayerSlot& s, int32_t wanted) { return s.place.number < wanted; });
    if (layers_.empty()) fail_no_layers();
    if (slot == layers_.end() || slot->place.number != number) {
        moe::fail(MOE_ERROR_NOT_FOUND, "layer {} is not a MoE layer; there are {}, from {} to {}",
                  number, n_layers(), layers_.front().place.number, layers_.back().place.number);
    }
    const std::lock_guard lock(mutex_);
    if (!slot->data) slot->data = build(slot->place);
    return *slot->data;
}

moe::LayerData* moe_checkpoint::build(const moe::LayerPlace& place) const {
    const auto destroy = [this](moe::LayerData* data) { moe::destroy_in(memory_, data); };
    std::unique_ptr<moe::LayerData, decltype(destroy)> data(
        moe::create_in<moe::LayerData>(memory_, memory_), destroy);
    moe::LayerBuilder builder(files_, override_, place.prefix, place.number, *data);
    build_(builder);
    builder.finish();
    const moe_layer_desc as_read = data->desc;
    overrides_.apply(data->desc);
    if (!files_.is_gguf)
        moe::refuse_unread_keys(files_.settings, family_->name, place.number, as_read, data->desc);
    return data.release();
}

const moe_layer_desc& moe_checkpoint::layer_desc(int32_t number) const {
    return layer(number).desc;
}

std::span<const moe::LayerTensor> moe_checkpoint::tensors(int32_t number) const {
    return layer(number).tensors;
}

void moe_checkpoint::formats(int32_t number, moe_format* const* out_formats,
                             uint32_t n_formats) const {
    const moe::LayerData& data = layer(number);
    for (uint32_t role = 0; role < n_formats; ++role) {
        if (out_formats[role]) fill_format(data, static_cast<moe_role>(role), *out_formats[role]);
    }
}

std::vector<const moe_format*> moe_checkpoint::expert_formats(int32_t number, moe_role role) const {
    const moe::LayerData& data = layer(number);
    std::vector<const moe_format*> formats(static_cast<size_t>(data.desc.n_experts));
    for (const moe::LayerTensor& one : data.tensors) {
        if (!holds_role(one.tensor.role, role)) continue;
        if (one.tensor.expert == MOE_ALL_EXPERTS)
            std::fill(formats.begin(), formats.end(), &one.format);
        else
            formats[static_cast<size_t>(one.tensor.expert)] = &one.format;
    }
    return formats;
}

void moe_checkpoint::fill_format(const moe::LayerData& data, moe_role role, moe_format& out) const {
    const moe::LayerTensor* first = nullptr;
    for (const moe::LayerTensor& tensor : data.tensors) {
        if (!holds_role(tensor.tensor.role, role)) continue;
        if (!first) {
            first = &tensor;
        } else if (std::memcmp(&first->format, &tensor.format, sizeof out) != 0) {
            moe::fail(MOE_ERROR_UNSUPPORTED, "{}: '{}' and '{}' have different formats",
                      files_.files[tensor.data.file].name(), moe::printable(first->name).text,
                      moe::printable(tensor.name).text);
        }
    }
    out = first ? first->format : moe::format_of(MOE_TYPE_NONE);
}

void moe_checkpoint::read(const moe::FileRange& range, uint64_t offset, uint64_t bytes,
                          void* out) const {
    moe::require(bytes <= range.bytes && offset <= range.bytes - bytes,
                 "{} bytes at {} are outside a tensor of {} bytes", bytes, offset, range.bytes);
    files_.files[range.file].read(range.offset + offset, bytes, out);
}
