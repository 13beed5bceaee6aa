// Rows of tokens in the layouts of moe_experts.
#include "engine.hpp"

#include <algorithm>
#include <cmath>

namespace moe_gpu {

Engine::Engine(const Pair& of, int64_t n, int32_t block)
    : pair(of),
      T(n),
      k(of.desc().top_k),
      H(of.desc().hidden),
      L(of.data->width()),
      n_local(of.desc().n_experts),
      x(of.x(n)) {
    const std::vector<int32_t> all = random_ids(T, of.desc().top_k, of.desc().n_experts, 19);
    ids.assign(all.begin(), all.end());
    for (size_t i = 3; i < ids.size(); i += 11) ids[i] = -1;
    weights = normal(T * k, 23, 0.2f);
    for (float& weight : weights) weight += 0.7f;
    order = dispatch(of.subject, {T, ids, block, {}, static_cast<int32_t>(n_local)});
}

Floats Engine::gathered(const Floats& rows_of_tokens, const std::vector<int32_t>& row_ids) const {
    const int64_t columns = static_cast<int64_t>(rows_of_tokens.size()) / T;
    Floats rows(row_ids.size() * static_cast<size_t>(columns), NAN);
    for (size_t r = 0; r < row_ids.size(); ++r)
        if (row_ids[r] >= 0)
            std::copy_n(rows_of_tokens.begin() + row_ids[r] / k * columns, columns,
                        rows.begin() + static_cast<ptrdiff_t>(r) * columns);
    return rows;
}

Experts Engine::call(moe_in_layout in, moe_out_layout out, bool stops) const {
    Experts call;
    call.in = in;
    call.out = out;
    call.stops_before_activation = stops;
    call.n_tokens = T;
    call.weights = weights;
    call.x = x;
    call.x_scales = x_scales;
    call.x_columns = x_is_latent ? L : H;
    call.x_is_latent = x_is_latent;
    const int64_t width = stops ? pair.desc().intermediate * (pair.desc().is_gated ? 2 : 1) : L;
    call.out_columns = out == MOE_OUT_PER_SLOT ? k * width : width;
    call.out_rows = T;
    if (in == MOE_IN_TOKENS) call.ids = ids;
    if (in == MOE_IN_BATCHED) {
        set_batch(call);
    } else if (in == MOE_IN_SORTED || out == MOE_OUT_ROWS) {
        call.offsets = order.offsets;
        call.row_ids = order.row_ids;
        call.n_rows = static_cast<int64_t>(order.row_ids.size());
        if (in == MOE_IN_SORTED) call.counts = order.counts;
        if (out == MOE_OUT_ROWS) call.out_rows = call.n_rows;
    }
    if (in == MOE_IN_TOKENS) return call;
    call.x = gathered(x, call.row_ids);
    call.x_scales = gathered(x_scales, call.row_ids);
    return call;
}

void Engine::set_batch(Experts& call) const {
    call.counts = order.counts;
    call.batch_capacity =
        std::max<int64_t>(*std::max_element(call.counts.begin(), call.counts.end()), 1) + 3;
    call.n_rows = call.out_rows = n_local * call.batch_capacity;
    call.row_ids.assign(static_cast<size_t>(call.n_rows), -1);
    for (int64_t e = 0; e < n_local; ++e)
        for (int64_t i = 0; i < call.counts[static_cast<size_t>(e)]; ++i)
            call.row_ids[static_cast<size_t>(e * call.batch_capacity + i)] =
                order.row_ids[static_cast<size_t>(order.offsets[static_cast<size_t>(e)] + i)];
}

void clear_padding(const Experts& call, Floats& out, const char* what) {
    if (call.out != MOE_OUT_ROWS) return;
    const auto width = static_cast<size_t>(call.out_columns);
    for (size_t r = 0; r < call.row_ids.size(); ++r)
        for (size_t i = r * width; call.row_ids[r] < 0 && i < (r + 1) * width; ++i) {
            if (!std::isnan(out[i]))
                throw Failure(text("%s: padding row %zu was written", what, r));
            out[i] = 0;
        }
}

}  // namespace moe_gpu
