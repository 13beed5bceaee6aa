#include "names.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "host.hpp"

namespace moe::ggml {
namespace {

template <class Id, size_t n>
using Names = std::array<std::pair<std::string_view, Id>, n>;

constexpr Names<Op, 15> op_names{{{"NONE", Op::none},
                                  {"MUL_MAT_ID", Op::mul_mat_id},
                                  {"ADD_ID", Op::add_id},
                                  {"GLU", Op::glu},
                                  {"UNARY", Op::unary},
                                  {"MUL", Op::mul},
                                  {"ADD", Op::add},
                                  {"SQR", Op::sqr},
                                  {"SCALE", Op::scale},
                                  {"CLAMP", Op::clamp},
                                  {"CONT", Op::cont},
                                  {"RESHAPE", Op::reshape},
                                  {"VIEW", Op::view},
                                  {"REPEAT", Op::repeat},
                                  {"GET_ROWS", Op::get_rows}}};

constexpr Names<Unary, 7> unary_names{{{"SILU", Unary::silu},
                                       {"GELU", Unary::gelu},
                                       {"GELU_ERF", Unary::gelu_erf},
                                       {"GELU_QUICK", Unary::gelu_quick},
                                       {"RELU", Unary::relu},
                                       {"TANH", Unary::tanh},
                                       {"SIGMOID", Unary::sigmoid}}};

constexpr Names<Glu, 7> glu_names{{{"REGLU", Glu::reglu},
                                   {"GEGLU", Glu::geglu},
                                   {"SWIGLU", Glu::swiglu},
                                   {"SWIGLU_OAI", Glu::swiglu_oai},
                                   {"GEGLU_ERF", Glu::geglu_erf},
                                   {"GEGLU_QUICK", Glu::geglu_quick},
                                   {"SWIGLU_CLAMP", Glu::swiglu_clamp}}};

template <class Id, size_t n>
Id id_of(const char* name, const Names<Id, n>& names) {
    for (const auto& [text, id] : names)
        if (name && text == name) return id;
    return Id::other;
}

// Graphs ask for the same few ids again and again.
class OpTable {
  public:
    Op get(int id) {
        if (id < 0 || id >= size) return id_of(host.op_name(id), op_names);
        int known = known_[id].load(std::memory_order_relaxed);
        if (known == unknown) {
            known = static_cast<int>(id_of(host.op_name(id), op_names)) + 1;
            known_[id].store(known, std::memory_order_relaxed);
        }
        return static_cast<Op>(known - 1);
    }

  private:
    static constexpr int size = 256, unknown = 0;
    std::atomic<int> known_[size]{};
};

OpTable op_table;

bool has_type(const Tensor* tensor, std::string_view name) {
    const char* type = host.type_name(tensor->type);
    return type && name == type;
}

}  // namespace

Op op_of(const Tensor* tensor) {
    return op_table.get(tensor->op);
}

Unary unary_of(const Tensor* tensor) {
    return id_of(host.unary_op_name(tensor->op_params[0]), unary_names);
}

Glu glu_of(const Tensor* tensor) {
    return id_of(host.glu_op_name(tensor->op_params[0]), glu_names);
}

bool is_f32(const Tensor* tensor) {
    return has_type(tensor, "f32");
}

bool is_i32(const Tensor* tensor) {
    return has_type(tensor, "i32");
}

moe_format format_of(const Tensor* tensor) {
    moe_format format{};
    format.struct_size = sizeof format;
    const char* type = host.type_name(tensor->type);
    std::string name = type ? type : "";
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    // moe.h has both layouts of these two; ggml's is the one in blocks.
    if (name == "mxfp4" || name == "nvfp4") name += "_gguf";
    if (moe_format_by_name(name.c_str(), &format) != MOE_OK) format.type = MOE_TYPE_NONE;
    return format;
}

float float_param(const Tensor* tensor, int index) {
    float value = 0;
    std::memcpy(&value, &tensor->op_params[index], sizeof value);
    return value;
}

}  // namespace moe::ggml
