// The cost model of the CPU: cpu_cost.hpp.
#include "libmoe/plan/cpu_cost.hpp"

#include <algorithm>
#include <cmath>

#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/plan/cpu_cost_constants.hpp"
#include "libmoe/plan/matrix_choices.hpp"
#include "libmoe/plan/plan.hpp"

namespace moe {
namespace {

// Gemv kernels take any number of rows up to `most` at once or, for most formats, whose `most` is
// 0, four, then two, then one; 128 rows share a panel of the gemm kernels.
int64_t gemv_passes(int64_t rows, int64_t most) {
    return most ? (rows + most - 1) / most : rows / 4 + (rows % 4 == 3 ? 2 : rows % 4 > 0);
}
int64_t gemm_passes(int64_t rows) {
    return (rows + 127) / 128;
}

const CpuKernelRate* find(const CpuRates& rates, std::string_view kernel) {
    for (const CpuKernelRate& one : rates.kernels)
        if (one.kernel == kernel) return &one;
    return nullptr;
}

// Between two measured numbers of threads the rate is a straight line; outside of them it is not
// known.
std::optional<double> read_gb_per_s(const CpuRates& rates, int32_t n_threads) {
    const CpuReadRate* before = nullptr;
    for (const CpuReadRate& one : rates.reads) {
        if (n_threads == one.n_threads) return one.gb_per_s;
        if (n_threads < one.n_threads) {
            if (!before) return std::nullopt;
            const double part = static_cast<double>(n_threads - before->n_threads) /
                                (one.n_threads - before->n_threads);
            return before->gb_per_s + part * (one.gb_per_s - before->gb_per_s);
        }
        before = &one;
    }
    return std::nullopt;
}

// Formats whose kernels share a name with those of another, which alone were measured.
bool is_measured_by_name(cpu::GemvFormat format) {
    using cpu::GemvFormat;
    switch (format) {
        case GemvFormat::none:
        case GemvFormat::int4_nibbles:
        case GemvFormat::fp4_grid:
        case GemvFormat::pack4:
        case GemvFormat::pack8:
        case GemvFormat::pack:
        case GemvFormat::gptq2:
        case GemvFormat::gptq3:
        case GemvFormat::gptq4:
        case GemvFormat::gptq8:
        case GemvFormat::awq:
        case GemvFormat::gptq2_act_order:
        case GemvFormat::gptq3_act_order:
        case GemvFormat::gptq4_act_order:
        case GemvFormat::gptq8_act_order:
        case GemvFormat::pack2_act_order:
        case GemvFormat::pack4_act_order:
        case GemvFormat::pack8_act_order:
        case GemvFormat::bnb4:
            return false;
        default:
            return true;
    }
}

// How many experts of a call have so many rows: the rows of an expert are binomial.
class RowsOfExperts {
  public:
    RowsOfExperts(int64_t n_tokens, double probability) : n_(n_tokens), p_(probability) {}

    // use(rows, the part of experts that have them), from one row on.
    template <class Use>
    void for_each(Use use) const {
        if (p_ >= 1) return use(n_, 1.0);
        const double mean = p_ * static_cast<double>(n_), spread = 8 * std::sqrt(mean) + 8;
        const auto first = std::max<int64_t>(1, static_cast<int64_t>(mean - spread));
        const auto last = std::min(n_, static_cast<int64_t>(mean + spread));
        for (int64_t rows = first; rows <= last; ++rows) use(rows, std::exp(log_part(rows)));
    }

  private:
    double log_part(int64_t rows) const {
        const auto n = static_cast<double>(n_), r = static_cast<double>(rows);
        return std::lgamma(n + 1) - std::lgamma(r + 1) - std::lgamma(n - r + 1) + r * std::log(p_) +
               (n - r) * std::log1p(-p_);
    }

    int64_t n_;
    double p_;
};

// A matrix and the kernels that take it.
struct MatrixCost {
    double bytes, values;
    double n_matrices;   // one for each expert that is here, or one alone
    double probability;  // that a token takes it
    int64_t gemm_from;   // rows; 0: never
    const CpuKernelRate *gemv, *gemm;
    int64_t gemv_most;  // of gemv_passes

    void add(int64_t n_tokens, CpuPrediction& sum) const {
        RowsOfExperts(n_tokens, probability).for_each([&](int64_t rows, double part) {
            const bool is_gemm = gemm_from && rows >= gemm_from;
            const CpuKernelRate& rate = is_gemm ? *gemm : *gemv;
            const auto passes =
                static_cast<double>(is_gemm ? gemm_passes(rows) : gemv_passes(rows, gemv_most));
            const double n = n_matrices * part;
            sum.reading_us += n * bytes;  // bytes until the rate is known
            sum.dequantizing_us += n * passes * bytes / rate.gb_per_s * 1e-3;
            sum.multiplying_us +=
                n * 2 * values * static_cast<double>(rows) / rate.gflop_per_s * 1e-3;
        });
    }
};

int64_t most_rows_of_any(const moe_plan& plan, const Candidate& gemv, const moe_format& format,
                         int64_t columns) {
    const cpu::GemvFamily* family = cpu::gemv_family(gemv.arithmetic);
    const int32_t parts = plan.quantizes_to_int8 ? 1 : plan.x_type == MOE_TYPE_F32 ? 3 : 2;
    const cpu::GemvKernels* kernels =
        family ? family->kernels(gemv_format_in(plan.layout, format), parts) : nullptr;
    return kernels && kernels->of_more_rows[0] ? cpu::most_gemv_rows(parts, columns) : 0;
}

std::optional<MatrixCost> cost_of(const moe_plan& plan, const CpuRates& rates,
                                  const MatrixChoice& matrix) {
    const WeightsLayout& layout = plan.layout;
    if (layout.has_mixed_experts() ||
        !is_measured_by_name(gemv_format_in(layout, layout.formats[matrix.role])))
        return std::nullopt;
    const WeightsLayout::Part part = layout.part(matrix.role);
    MatrixCost cost{};
    cost.bytes = static_cast<double>(layout.matrix_copy_bytes(matrix.role));
    cost.values = static_cast<double>(part.rows) * static_cast<double>(part.columns);
    const bool is_of_expert = matrix.role != MOE_ROLE_LATENT_IN;
    cost.n_matrices = is_of_expert ? layout.slice.n_local : 1;
    cost.probability =
        is_of_expert ? static_cast<double>(layout.layer.top_k) / layout.layer.n_experts_all() : 1;
    for (const MatrixKernel& kernel : matrix.kernels) {
        if (!kernel.is_taken) continue;
        const CpuKernelRate* rate = find(rates, kernel.name.view());
        if (!rate) return std::nullopt;
        if (kernel.candidate->tokens == Tokens::many_rows) {
            cost.gemm = rate;
            cost.gemm_from = kernel.first_rows;
        } else {
            cost.gemv = rate;
            cost.gemv_most = most_rows_of_any(plan, *kernel.candidate, layout.formats[matrix.role],
                                              part.columns);
        }
    }
    return cost;
}

std::optional<std::vector<MatrixCost>> costs_of(const moe_plan& plan, const CpuRates& rates) {
    std::vector<MatrixCost> all;
    for (const MatrixChoice& matrix : matrix_choices(plan, MOE_STAGE_EXPERTS)) {
        const auto one = cost_of(plan, rates, matrix);
        if (!one) return std::nullopt;
        all.push_back(*one);
    }
    return all;
}

// Predicts one chunk: first the parts, all threads together, then the time.
CpuPrediction predict_chunk(const moe_plan& plan, const CpuRates& rates,
                            const std::vector<MatrixCost>& costs, double gb_per_s,
                            int64_t n_tokens) {
    const Layer& layer = plan.layout.layer;
    const double n_threads = plan.setup.n_workers;
    CpuPrediction sum{n_tokens, 0, 0, 0, 0};
    for (const MatrixCost& one : costs) one.add(n_tokens, sum);
    sum.reading_us *= 1e-3 / gb_per_s;
    sum.dequantizing_us /= n_threads;
    sum.multiplying_us /= n_threads;
    const double rows = static_cast<double>(n_tokens) * layer.top_k;
    const double rows_us = rows * layer.expert_width() * rates.row_ns * 1e-3 / n_threads;
    // One goes on beside the other (cpu_cost.hpp).
    const double computing = sum.dequantizing_us + sum.multiplying_us;
    const double both =
        std::sqrt(std::hypot(sum.reading_us * sum.reading_us, computing * computing));
    sum.us = rates.call_us + rows_us + both;
    return sum;
}

}  // namespace

const char* CpuPrediction::bound() const {
    const double most = std::max({reading_us, dequantizing_us, multiplying_us});
    return most == reading_us ? "reading" : most == multiplying_us ? "multiplying" : "dequantizing";
}

const CpuRates* cpu_rates(const moe_plan& plan) {
    if (plan.is_cuda()) return nullptr;
    const cpu::InstructionSets& has = plan.instructions;
    const CpuRates* first = nullptr;
    for (const CpuRates& rates : all_cpu_rates) {
        if (!(has.*rates.instructions)) continue;
        if (first && first->instructions != rates.instructions) break;
        if (read_gb_per_s(rates, plan.setup.n_workers)) return &rates;
        if (!first) first = &rates;
    }
    return first;
}

std::optional<CpuPrediction> predict(const moe_plan& plan, const CpuRates& rates,
                                     int64_t n_tokens) {
    const auto gb_per_s = read_gb_per_s(rates, plan.setup.n_workers);
    const auto costs = costs_of(plan, rates);
    if (!gb_per_s || !costs) return std::nullopt;
    CpuPrediction sum{n_tokens, 0, 0, 0, 0};
    const auto add_chunks = [&](int64_t n_chunks, int64_t n) {
        if (n_chunks == 0 || n == 0) return;
        const CpuPrediction one = predict_chunk(plan, rates, *costs, *gb_per_s, n);
        const auto times = static_cast<double>(n_chunks);
        sum.us += times * one.us;
        sum.reading_us += times * one.reading_us;
        sum.dequantizing_us += times * one.dequantizing_us;
        sum.multiplying_us += times * one.multiplying_us;
    };
    add_chunks(n_tokens / plan.chunk_tokens(), plan.chunk_tokens());
    add_chunks(1, n_tokens % plan.chunk_tokens());
    return sum;
}

std::vector<CpuPrediction> cpu_predictions(const moe_plan& plan) {
    std::vector<CpuPrediction> all;
    const CpuRates* rates = cpu_rates(plan);
    if (!rates) return all;
    for (const int64_t n_tokens : {int64_t{1}, plan.max_tokens}) {
        if (!all.empty() && all.back().n_tokens == n_tokens) continue;
        if (const auto one = predict(plan, *rates, n_tokens)) all.push_back(*one);
    }
    return all;
}

}  // namespace moe
