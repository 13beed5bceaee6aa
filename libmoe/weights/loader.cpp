// Tensor by tensor, expert by expert: view, check, slice, then borrow or copy.
#include "libmoe/weights/loader.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/checked.hpp"

namespace moe {
namespace {

Layer::Shape shape_of(const Layer& layer, moe_role role) {
    const auto [first, second] = parts_of(role);
    Layer::Shape shape = layer.role_shape(first);
    if (role == MOE_ROLE_GATE_UP_BIAS)
        shape.columns *= 2;
    else if (second != MOE_ROLE_NONE)
        shape.rows *= 2;
    return shape;
}

bool is_up(moe_role role) {
    return role == MOE_ROLE_UP || role == MOE_ROLE_UP_BIAS || role == MOE_ROLE_SHARED_UP;
}

// Column of feature i of one half in a fused bias.
int64_t fused_column(moe_gate_up_order order, bool up, int64_t i, int64_t n) {
    if (order == MOE_GATE_UP_INTERLEAVED) return 2 * i + up;
    return up == (order == MOE_GATE_UP_GATE_FIRST) ? n + i : i;
}

uint64_t entries_of(const moe_tensor& hash_table) {
    return static_cast<uint64_t>(hash_table.rows) * static_cast<uint64_t>(hash_table.columns);
}

// Entry i of a dense table of int32 or int64.
int64_t hash_entry(const moe_tensor& hash_table, uint64_t i) {
    const auto* bytes = static_cast<const std::byte*>(hash_table.data);
    if (hash_table.format->type == MOE_TYPE_I64) {
        int64_t id;
        std::memcpy(&id, bytes + i * sizeof id, sizeof id);
        return id;
    }
    int32_t id;
    std::memcpy(&id, bytes + i * sizeof id, sizeof id);
    return id;
}

}  // namespace

std::pair<moe_role, moe_role> parts_of(moe_role role) {
    switch (role) {
        case MOE_ROLE_GATE_UP:
            return {MOE_ROLE_GATE, MOE_ROLE_UP};
        case MOE_ROLE_GATE_UP_BIAS:
            return {MOE_ROLE_GATE_BIAS, MOE_ROLE_UP_BIAS};
        case MOE_ROLE_SHARED_GATE_UP:
            return {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP};
        default:
            return {role, MOE_ROLE_NONE};
    }
}

TensorName::TensorName(moe_role role, int64_t expert) {
    const char* name = role_name(role);
    char* end =
        is_expert_role(role) && expert != MOE_ALL_EXPERTS
            ? fmt::format_to_n(text, sizeof text - 1, "tensor {} of expert {}", name, expert).out
            : fmt::format_to_n(text, sizeof text - 1, "tensor {}", name).out;
    *end = '\0';
}

void Progress::add(uint64_t bytes) {
    done_ += bytes;
    if (!request_.progress) return;
    if (request_.progress(done_, total, request_.progress_user_data) != 0)
        fail(MOE_ERROR_CANCELLED, "loading was cancelled after {} of {} bytes", done_, total);
}

Loader::Loader(moe_weights& weights, const LoadRequest& request, bool replacing, MatrixTaker* taker)
    : weights_(weights),
      request_(request),
      taker_(taker),
      replacing_(replacing),
      progress_(request),
      seen_(&weights.runtime->memory),
      row_(&weights.runtime->memory) {
    const WeightsLayout& layout = weights.layout;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        offsets_[i] = progress_.total;
        if (!layout.needs(role)) continue;
        const int64_t count = layout.count(role);
        seen_[role].resize(count);
        if (!is_matrix_role(role) || taker) continue;
        if (!replacing) weights.resident.matrices[role].resize(count);
        progress_.total += count * layout.matrix_copy_bytes(role);
    }
}

void Loader::check(const moe_tensor& tensor) const {
    const auto role = static_cast<int32_t>(tensor.role);
    require(role > 0 && role < MOE_ROLE_COUNT, "moe_tensor.role is {}, not a moe_role", role);
    const char* name = role_name(tensor.role);
    require(tensor.format != nullptr, "tensor {}: format is NULL", name);
    const bool on_host = tensor.space == MOE_SPACE_HOST || tensor.space == MOE_SPACE_PINNED;
    require(on_host || (taker_ && tensor.space == MOE_SPACE_DEVICE), "tensor {}: space is {}{}",
            name, static_cast<int32_t>(tensor.space),
            taker_ ? ", not a moe_space" : "; a CPU plan reads host memory");
    const auto order = static_cast<int32_t>(tensor.gate_up_order);
    require(!is_fused(tensor.role) || (order >= 1 && order <= 3),
            "tensor {}: gate_up_order is {}, a fused tensor needs one", name, order);
    const Layer& layer = weights_.layout.layer;
    const auto [first, second] = parts_of(tensor.role);
    for (const moe_role half : {first, second})
        if (half != MOE_ROLE_NONE && half != tensor.role)
            require(layer.has_role(half), "tensor {}: the layer has no {}", name, role_name(half));
    require(is_fused(tensor.role) || layer.has_role(first), "tensor {}: the layer has none", name);
    const Layer::Shape shape = shape_of(layer, tensor.role);
    require(tensor.rows == shape.rows && tensor.columns == shape.columns,
            "tensor {}: shape is [{}, {}], the layer's is [{}, {}]", name, tensor.rows,
            tensor.columns, shape.rows, shape.columns);
    if (!is_expert_role(tensor.role)) return;
    const bool stack = tensor.expert == MOE_ALL_EXPERTS;
    require(stack || (tensor.expert >= 0 && tensor.expert < layer.n_experts),
            "tensor {}: expert is {}, the layer has {}", name, tensor.expert, layer.n_experts);
    require(!stack || tensor.n_experts == layer.n_experts,
            "tensor {}: n_experts is {}, the layer has {}", name, tensor.n_experts,
            layer.n_experts);
}

bool Loader::wants(const moe_tensor& tensor, int64_t expert) const {
    const auto [first, second] = parts_of(tensor.role);
    const WeightsLayout& layout = weights_.layout;
    auto wanted = [&](moe_role role) {
        return role != MOE_ROLE_NONE && layout.needs(role) &&
               layout.index_of_expert(role, expert) >= 0;
    };
    return wanted(first) || wanted(second);
}

template <class Visit>
int64_t Loader::visit_wanted(const moe_tensor& tensor, Visit visit) const {
    const bool has_experts = is_expert_role(tensor.role);
    const bool stack = has_experts && tensor.expert == MOE_ALL_EXPERTS;
    const int64_t first = stack || !has_experts ? 0 : tensor.expert;
    const int64_t n = stack ? tensor.n_experts : 1;
    int64_t n_wanted = 0;
    for (int64_t index = 0; index < n; ++index) {
        if (!wants(tensor, first + index)) continue;
        visit(index, first + index);
        ++n_wanted;
    }
    return n_wanted;
}

void Loader::add(const moe_tensor& tensor) {
    check(tensor);
    // All of it is checked before any of it is written: an update that is refused changes nothing.
    const int64_t n_wanted = visit_wanted(
        tensor, [&](int64_t index, int64_t expert) { check_expert(tensor, index, expert); });
    if (replacing_ && n_wanted == 0)
        fail(MOE_ERROR_NOT_FOUND, "{} is not among these weights, by the slice or the stages",
             TensorName(tensor.role, tensor.expert).text);
    visit_wanted(tensor, [&](int64_t index, int64_t expert) { add_expert(tensor, index, expert); });
}

void Loader::check_expert(const moe_tensor& tensor, int64_t index, int64_t expert) const {
    const TensorName name(tensor.role, expert);
    const auto [first, second] = parts_of(tensor.role);
    for (const moe_role role : {first, second})
        if (role != MOE_ROLE_NONE && weights_.layout.needs(role))
            check_format(*tensor.format, role, name.text);
    if (tensor.role == MOE_ROLE_HASH_TABLE)
        check_hash_table(tensor);
    else
        view_of(tensor, index, name.text);
}

void Loader::add_expert(const moe_tensor& tensor, int64_t index, int64_t expert) {
    const TensorName name(tensor.role, expert);
    const auto [first, second] = parts_of(tensor.role);
    add_role(tensor, index, first, expert, name.text);
    if (second != MOE_ROLE_NONE) add_role(tensor, index, second, expert, name.text);
}

void Loader::add_role(const moe_tensor& tensor, int64_t index, moe_role role, int64_t expert,
                      const char* what) {
    const WeightsLayout& layout = weights_.layout;
    if (!layout.needs(role)) return;
    const int64_t place = layout.index_of_expert(role, expert);
    if (place < 0) return;
    mark(role, place, what);
    if (role == MOE_ROLE_HASH_TABLE) return set_hash_table(tensor);
    if (!is_matrix_role(role)) return set_vector(tensor, index, role, place, what);
    Matrix whole = view_of(tensor, index, what);
    if (is_fused(tensor.role))
        whole = gate_up_half(whole, tensor.gate_up_order,
                             is_up(role) ? GateUpHalf::up : GateUpHalf::gate);
    set_matrix(tensor, whole, role, place, what);
}

void Loader::set_matrix(const moe_tensor& tensor, Matrix whole, moe_role role, int64_t place,
                        const char* what) {
    const WeightsLayout::Part p = weights_.layout.part(role);
    Matrix matrix = part_of(whole, p.row, p.rows, p.column, p.columns);
    if (taker_) return taker_->take(matrix, role, place, tensor.space);
    const uint64_t bytes = weights_.layout.matrix_copy_bytes(role);
    // Codebooks take memory, which there may be none of; copying the codes cannot fail.
    if (matrix.codebook && !builtin_codebook(matrix.format))
        matrix.codebook = keep_codebook(matrix.codebook, int64_t{1} << matrix.format.bits);
    if (matrix.nested_codebook) matrix.nested_codebook = keep_codebook(matrix.nested_codebook, 256);
    if (request_.ownership != MOE_OWN_BORROW) {
        require(weights_.copies != nullptr, "{}: there is no memory to copy it to", what);
        matrix = copy_part(matrix, weights_.copies + offsets_[role] + place * bytes);
    }
    weights_.resident.matrices[role][place] = matrix;
    progress_.add(bytes);
}

void Loader::set_vector(const moe_tensor& tensor, int64_t index, moe_role role, int64_t place,
                        const char* what) {
    const WeightsLayout::Part p = weights_.layout.part(role);
    Matrix source = view_of(tensor, index, what);
    if (tensor.space == MOE_SPACE_DEVICE) source = taker_->to_host(source);
    row_.resize(tensor.columns);
    source.traits->decode(source, 0, 0, tensor.columns, row_.data());
    auto& vector = weights_.resident.vectors[role];
    vector.resize(weights_.layout.count(role) * p.columns);
    float* out = vector.data() + place * p.columns;
    const int64_t n = tensor.columns / 2;
    for (int64_t i = 0; i < p.columns; ++i) {
        const int64_t feature = p.column + i;
        out[i] = is_fused(tensor.role)
                     ? row_[fused_column(tensor.gate_up_order, is_up(role), feature, n)]
                     : row_[feature];
    }
}

void Loader::check_hash_table(const moe_tensor& tensor) const {
    const moe_type type = tensor.format->type;
    require(type == MOE_TYPE_I32 || type == MOE_TYPE_I64,
            "tensor hash_table: type is {}, not i32 or i64", type_name(type));
    require(same_format(*tensor.format, format_of(type)),
            "tensor hash_table: the format is {}, it must have a type alone",
            format_name(*tensor.format).text);
    require(tensor.orientation == MOE_ORIENTATION_OUT_IN,
            "tensor hash_table: orientation is {}, must be OUT_IN",
            static_cast<int32_t>(tensor.orientation));
    check_nothing_unused(tensor, "tensor hash_table");
    if (tensor.space == MOE_SPACE_DEVICE)
        fail(MOE_ERROR_UNSUPPORTED, "tensor hash_table: space is DEVICE, must be HOST or PINNED");
    const int64_t size = type == MOE_TYPE_I64 ? 8 : 4;
    const uint64_t n = entries_of(tensor);
    require(tensor.data != nullptr, "tensor hash_table: data is NULL");
    require(tensor.row_stride == 0 || tensor.row_stride == tensor.columns * size,
            "tensor hash_table: row_stride is {}, it must be dense", tensor.row_stride);
    require(tensor.data_bytes >= n * size, "tensor hash_table: data has {} bytes, needs {}",
            tensor.data_bytes, n * size);
    const int64_t n_experts = weights_.layout.layer.n_experts_all();
    for (uint64_t i = 0; i < n; ++i) {
        const int64_t id = hash_entry(tensor, i);
        require(id >= 0 && id < n_experts,
                "tensor hash_table: entry {} is {}, there are {} experts", i, id, n_experts);
    }
}

void Loader::set_hash_table(const moe_tensor& tensor) {
    auto& table = weights_.resident.hash_table;
    table.resize(entries_of(tensor));
    for (uint64_t i = 0; i < table.size(); ++i)
        table[i] = static_cast<int32_t>(hash_entry(tensor, i));
}

void Loader::check_format(const moe_format& format, moe_role role, const char* what) const {
    const moe_format& wanted = weights_.layout.formats[role];
    if (wanted.type == MOE_TYPE_NONE || same_format(wanted, format)) return;
    fail(MOE_ERROR_LAYOUT_MISMATCH, "{} is {}, the plan has {} as {}", what,
         format_name(format).text, role_name(role), format_name(wanted).text);
}

// A given codebook is small and often shared by all experts: one copy of each is kept.
const float* Loader::keep_codebook(const float* codebook, int64_t n) {
    for (const auto& kept : weights_.codebooks)
        if (std::equal(codebook, codebook + n, kept.begin())) return kept.data();
    auto& kept = weights_.codebooks.emplace_back();
    std::copy_n(codebook, n, kept.begin());
    return kept.data();
}

void Loader::mark(moe_role role, int64_t place, const char* what) {
    uint8_t& seen = seen_[role][place];
    require(!seen, "{} is given twice", what);
    seen = 1;
}

void Loader::check_complete() const {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const auto& seen = seen_[role];
        const auto missing = std::find(seen.begin(), seen.end(), 0);
        if (missing == seen.end()) continue;
        const int64_t place = missing - seen.begin();
        const bool by_local = is_expert_role(role) &&
                              static_cast<int64_t>(seen.size()) == weights_.layout.slice.n_local;
        if (!is_expert_role(role))
            fail(MOE_ERROR_NOT_FOUND, "tensor {} is missing", role_name(role));
        fail(MOE_ERROR_NOT_FOUND, "tensor {} of expert {} is missing", role_name(role),
             by_local ? weights_.layout.slice.global_of[place] : place);
    }
}

}  // namespace moe
