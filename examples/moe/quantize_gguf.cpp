// quantize_gguf.cpp - the MoE layers of a safetensors checkpoint as one GGUF file, in llama.cpp's
// names: experts stacked in the target's blocks, router and vectors in f32, a shared expert in its
// own type. Attention, embeddings and the tokenizer are not libmoe's and are left out.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "checkpoint.hpp"
#include "checkpoint_files.hpp"
#include "floats.hpp"
#include "layer_matrices.hpp"
#include "quantize_encode.hpp"
#include "quantize_files.hpp"
#include "workers.hpp"

namespace moe::cli {
namespace {

constexpr uint32_t ggml_f32 = 0;
constexpr uint32_t ggml_f16 = 1;
constexpr uint32_t ggml_bf16 = 30;

Family family_of(const std::string& path, const std::string& name) {
    const std::map<std::string, Family> families = {
        {"mixtral", Family::Mixtral},        {"qwen2_moe", Family::Qwen2Moe},
        {"qwen3_moe", Family::Qwen3Moe},     {"qwen3_next", Family::Qwen3Next},
        {"deepseek_v2", Family::DeepseekV2}, {"deepseek_v3", Family::DeepseekV3},
        {"gpt_oss", Family::GptOss},
    };
    const auto found = families.find(name);
    if (found != families.end()) return found->second;
    throw Failure(fmt::format("{}: family {} has no GGUF names here", path, name),
                  MOE_ERROR_UNSUPPORTED);
}

// What the metadata are made of.
Model model_of(const std::string& path, const moe_checkpoint* checkpoint) {
    const std::vector<int32_t> layers = layers_of(checkpoint);
    auto desc = sized<moe_layer_desc>();
    check(moe_checkpoint_layer(checkpoint, layers.front(), &desc));
    Model model{};
    model.name = std::filesystem::path(path).filename().string();
    model.family = family_of(path, info_of(checkpoint).family);
    model.hidden = desc.hidden;
    model.intermediate = desc.intermediate;
    model.n_experts = desc.n_experts;
    model.top_k = desc.top_k;
    model.shared_intermediate = desc.shared_intermediate;
    model.n_shared = std::max(desc.shared_intermediate / desc.intermediate, 1);
    model.n_group = desc.n_group;
    model.topk_group = desc.topk_group;
    model.first_moe_layer = layers.front();
    model.n_layers = layers.back() + 1;
    model.dense_intermediate = desc.intermediate;
    model.n_heads = 1;
    model.routed_scale = desc.has_routed_scale ? desc.routed_scale : 1.0F;
    return model;
}

// Whether the file, as libmoe reads it again, activates as the source does.
void check_activation(const moe_layer_desc& wanted, const moe_layer_desc& got, int32_t layer) {
    const auto facts = [](const moe_layer_desc& d) {
        return std::tuple(d.activation, d.is_gated, d.has_activation_alpha, d.activation_alpha,
                          d.activation_up_offset, d.has_gate_limit, d.gate_limit, d.has_up_limit,
                          d.up_limit, d.has_post_limit, d.post_limit, d.weight_on, d.has_gate_bias,
                          d.has_up_bias, d.has_down_bias);
    };
    const auto shared = [](const moe_layer_desc& d) {
        return std::tuple(d.shared_intermediate, d.shared_activation, d.shared_is_gated,
                          d.has_shared_expert_gate, d.has_shared_gate_limit, d.shared_gate_limit,
                          d.has_shared_up_limit, d.shared_up_limit, d.has_shared_activation_alpha,
                          d.shared_activation_alpha);
    };
    const bool has_shared = wanted.shared_intermediate || got.shared_intermediate;
    if (facts(wanted) == facts(got) && (!has_shared || shared(wanted) == shared(got))) return;
    throw Failure(fmt::format("the activation of layer {} cannot be said in GGUF metadata", layer),
                  MOE_ERROR_UNSUPPORTED);
}

// And whether it routes so.
void check_routing(const moe_layer_desc& wanted, const moe_layer_desc& got, int32_t layer) {
    const auto scale = [](const moe_layer_desc& d) {
        return d.has_routed_scale ? d.routed_scale : 1.0F;
    };
    const bool same =
        wanted.n_experts == got.n_experts && wanted.top_k == got.top_k &&
        wanted.score == got.score && wanted.post_score == got.post_score &&
        std::max(wanted.n_group, 1) == std::max(got.n_group, 1) &&
        wanted.topk_group == got.topk_group && wanted.group_score == got.group_score &&
        wanted.group_mask == got.group_mask && scale(wanted) == scale(got) &&
        wanted.has_selection_bias == got.has_selection_bias &&
        wanted.has_second_selection_bias == got.has_second_selection_bias &&
        (wanted.renormalize == MOE_RENORMALIZE_NONE) == (got.renormalize == MOE_RENORMALIZE_NONE);
    if (same) return;
    throw Failure(fmt::format("the routing of layer {} cannot be said in GGUF metadata", layer),
                  MOE_ERROR_UNSUPPORTED);
}

struct Vectors {
    moe_role role;
    const char* name;
    bool per_expert;
};

constexpr Vectors vectors[] = {
    {MOE_ROLE_ROUTER, "ffn_gate_inp.weight", false},
    {MOE_ROLE_ROUTER_BIAS, "ffn_gate_inp.bias", false},
    {MOE_ROLE_SELECTION_BIAS, "exp_probs_b.bias", false},
    {MOE_ROLE_GATE_BIAS, "ffn_gate_exps.bias", true},
    {MOE_ROLE_UP_BIAS, "ffn_up_exps.bias", true},
    {MOE_ROLE_DOWN_BIAS, "ffn_down_exps.bias", true},
    {MOE_ROLE_SHARED_GATE, "ffn_gate_shexp.weight", false},
    {MOE_ROLE_SHARED_UP, "ffn_up_shexp.weight", false},
    {MOE_ROLE_SHARED_DOWN, "ffn_down_shexp.weight", false},
    {MOE_ROLE_SHARED_EXPERT_GATE, "ffn_gate_inp_shexp.weight", false},
};

struct Experts {
    moe_role role;
    const char* name;
};

constexpr Experts experts[] = {{MOE_ROLE_GATE, "ffn_gate_exps.weight"},
                               {MOE_ROLE_UP, "ffn_up_exps.weight"},
                               {MOE_ROLE_DOWN, "ffn_down_exps.weight"}};

bool is_shared(moe_role role) {
    return role == MOE_ROLE_SHARED_GATE || role == MOE_ROLE_SHARED_UP ||
           role == MOE_ROLE_SHARED_DOWN;
}

// A shared expert keeps its type; all else is f32, as llama.cpp wants it.
moe_type type_of(const LayerMatrices& layer, moe_role role) {
    const std::string format = layer.format_of(role);
    if (is_shared(role) && format == "bf16") return MOE_TYPE_BF16;
    return is_shared(role) && format == "f16" ? MOE_TYPE_F16 : MOE_TYPE_F32;
}

uint32_t ggml_id(moe_type type) {
    if (type == MOE_TYPE_BF16) return ggml_bf16;
    return type == MOE_TYPE_F16 ? ggml_f16 : ggml_f32;
}

class GgufWriter {
  public:
    explicit GgufWriter(const QuantizeJob& job) : job_(job) {}

    QuantizeResult run() {
        const Model model = model_of(job_.source, job_.checkpoint);
        for (const int32_t layer : layers_of(job_.checkpoint)) plan(layer);
        RecipeOptions options;
        options.n_layers = model.n_layers - model.first_moe_layer;
        lay_out_gguf(recipe_, model, options, job_.output, files_);
        result_.bytes = recipe_.total_bytes();
        result_.source_bytes = info_of(job_.checkpoint).file_bytes;
        result_.note =
            "The file holds the MoE layers alone: no attention, embeddings or tokenizer.";
        for (const int32_t layer : layers_of(job_.checkpoint)) write(layer);
        files_.close();
        check_result();
        return std::move(result_);
    }

  private:
    size_t piece(const std::string& name, uint32_t type, std::vector<int64_t> shape,
                 uint64_t bytes) {
        Piece piece;
        piece.name = name;
        piece.ggml_type = type;
        piece.shape = std::move(shape);
        piece.bytes = bytes;
        recipe_.pieces.push_back(std::move(piece));
        return recipe_.pieces.size() - 1;
    }

    static std::string full_name(int32_t layer, const char* name) {
        return fmt::format("blk.{}.{}", layer, name);
    }

    void plan(int32_t number) {
        const LayerMatrices layer(job_.checkpoint, number);
        const int64_t n = layer.desc().n_experts;
        for (const Vectors& vector : vectors) {
            if (!layer.has(vector.role)) continue;
            const auto [rows, columns] = layer.shape(vector.role);
            const moe_type type = type_of(layer, vector.role);
            std::vector<int64_t> shape = {columns};
            if (vector.per_expert) shape = {n, columns};
            if (!vector.per_expert && rows > 1) shape = {rows, columns};
            const auto elements =
                static_cast<uint64_t>(rows * columns * (vector.per_expert ? n : 1));
            pieces_[{number, vector.role}] =
                piece(full_name(number, vector.name), ggml_id(type), std::move(shape),
                      elements * element_bytes(type));
        }
        for (const Experts& matrix : experts) {
            const auto [rows, columns] = layer.shape(matrix.role);
            const std::string name = full_name(number, matrix.name);
            uint64_t bytes = 0;
            try {
                bytes = format_size(job_.target.format(), rows, columns).data;
            } catch (const Failure& failure) {
                throw Failure(fmt::format("tensor '{}': {}", name, failure.what()), failure.status);
            }
            pieces_[{number, matrix.role}] =
                piece(name, static_cast<uint32_t>(job_.target.format().block_id),
                      {n, rows, columns}, static_cast<uint64_t>(n) * bytes);
        }
    }

    void write(const Piece& piece, uint64_t within, const void* data, uint64_t bytes) {
        try {
            files_.write(piece.file, piece.offset + within, data, bytes);
        } catch (const Failure& failure) {
            throw Failure(fmt::format("tensor '{}': {}", piece.name, failure.what()),
                          failure.status);
        }
        const std::lock_guard lock(mutex_);
        done_ += bytes;
        job_.progress.show(std::min(done_, result_.bytes), result_.bytes);
    }

    void write(int32_t number) {
        const LayerMatrices layer(job_.checkpoint, number);
        for (const Vectors& vector : vectors)
            if (layer.has(vector.role)) write_vector(layer, number, vector);
        const auto n = static_cast<size_t>(layer.desc().n_experts);
        const size_t first = result_.errors.size();
        result_.errors.resize(first + n * std::size(experts));
        work_in_parallel(n * std::size(experts), job_.n_threads, [&] {
            return [this, &layer, number, first, values = std::vector<float>(),
                    encoder = MatrixEncoder(job_.target)](size_t i) mutable {
                MatrixError& error = result_.errors[first + i];
                error.layer = number;
                error.expert = static_cast<int32_t>(i / std::size(experts));
                make(layer, experts[i % std::size(experts)], values, encoder, error);
            };
        });
    }

    void write_vector(const LayerMatrices& layer, int32_t number, const Vectors& vector) {
        const Piece& piece = recipe_.pieces[pieces_.at({number, vector.role})];
        const moe_type type = type_of(layer, vector.role);
        const int32_t n = vector.per_expert ? layer.desc().n_experts : 1;
        std::vector<float> values;
        std::vector<unsigned char> bytes;
        for (int32_t e = 0; e < n; ++e) {
            layer.values(vector.role, e, values);
            bytes.resize(values.size() * element_bytes(type));
            encode_floats(type, values, bytes.data());
            write(piece, static_cast<uint64_t>(e) * bytes.size(), bytes.data(), bytes.size());
        }
        ++result_.n_copied;
    }

    void make(const LayerMatrices& layer, const Experts& matrix, std::vector<float>& values,
              MatrixEncoder& encoder, MatrixError& error) {
        const Piece& piece = recipe_.pieces[pieces_.at({error.layer, matrix.role})];
        error.role = matrix.role;
        error.name = fmt::format("{} [{}]", piece.name, error.expert);
        const auto [rows, columns] = layer.shape(matrix.role);
        try {
            layer.values(matrix.role, error.expert, values);
            encoder.encode(values, rows, columns);
        } catch (const Failure& failure) {
            throw Failure(fmt::format("tensor '{}': {}", error.name, failure.what()),
                          failure.status);
        }
        const std::vector<unsigned char>& codes = encoder.encoded().codes;
        write(piece, static_cast<uint64_t>(error.expert) * codes.size(), codes.data(),
              codes.size());
        encoder.measure(0, rows, columns, values, error);
    }

    void check_result() const {
        const Checkpoint written = open_checkpoint(nullptr, job_.output.string());
        for (const int32_t layer : layers_of(job_.checkpoint)) {
            auto wanted = sized<moe_layer_desc>();
            auto got = sized<moe_layer_desc>();
            check(moe_checkpoint_layer(job_.checkpoint, layer, &wanted));
            check(moe_checkpoint_layer(written.get(), layer, &got));
            check_routing(wanted, got, layer);
            check_activation(wanted, got, layer);
        }
    }

    const QuantizeJob& job_;
    Recipe recipe_;
    std::map<std::pair<int32_t, moe_role>, size_t> pieces_;
    OutputFiles files_;
    std::mutex mutex_;
    uint64_t done_ = 0;
    QuantizeResult result_;
};

}  // namespace

QuantizeResult quantize_to_gguf(const QuantizeJob& job) {
    if (info_of(job.checkpoint).is_gguf != 0) {
        throw Failure(job.source +
                          ": is GGUF already; llama.cpp's own tool requantises such files "
                          "and keeps the rest of the model",
                      MOE_ERROR_UNSUPPORTED);
    }
    return GgufWriter(job).run();
}

}  // namespace moe::cli
