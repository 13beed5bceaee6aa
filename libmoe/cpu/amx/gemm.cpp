// Products of the panels of AVX-512 (cpu/gemm/gemm.hpp) with activation rows, by the tiles of AMX:
// 16 activation rows meet 16 weight rows at once. Where the rows are there in bfloat16, panels are
// rounded to it with their scales. The order of operations does not depend on how many rows there
// are.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/amx/tiles.inc"

namespace moe::cpu {
namespace {

constexpr int tile_rows = 16;

// Tiles 0 to 5 have sums, or activations and weights after those that have; each four columns of
// bytes, or two of bfloat16, are a row of the tile of weights.
constexpr TileShapes shapes_of(int first_operand, int first_weights, int weight_rows) {
    TileShapes shapes;
    for (int i = 0; i < 8; ++i) {
        const bool is_weights = i >= first_weights, is_x = i >= first_operand && !is_weights;
        shapes.rows[i] = static_cast<uint8_t>(is_weights ? weight_rows : tile_rows);
        shapes.row_bytes[i] = static_cast<uint16_t>(is_x ? 4 * weight_rows : 64);
    }
    return shapes;
}

static_assert(sizeof(TileShapes) == saved_tiles_bytes);

void enter(const TileShapes& shapes, std::byte* saved) {
    get_tiles(*reinterpret_cast<TileShapes*>(saved));
    configure_tiles(shapes);
}
void leave(const std::byte* saved) {
    configure_tiles(*reinterpret_cast<const TileShapes*>(saved));
}

}  // namespace
}  // namespace moe::cpu

#include "libmoe/cpu/amx/round_panels.inc"

#include "libmoe/cpu/amx/integer_panels.inc"

#include "libmoe/cpu/amx/bf16_panels.inc"

namespace moe::cpu {
namespace {

struct TileKernel {
    PanelMultiply multiply;
    void (*enter)(std::byte* saved);
};

template <int parts>
constexpr TileKernel integer_kernel{multiply_integer_panel<parts>, enter_integers<parts>};

TileKernel integer_tile_kernel(int32_t parts) {
    return parts == 1 ? integer_kernel<1> : parts == 2 ? integer_kernel<2> : integer_kernel<3>;
}

// Weights of float32 are not rounded, and neither are codes of eight bits with zero points: those
// far from the middle would make all weights of a row large beside their sums.
bool may_be_rounded(GemvFormat format) {
    switch (format) {
        case GemvFormat::f32:
        case GemvFormat::pack8:
        case GemvFormat::gptq8:
        case GemvFormat::pack8_act_order:
        case GemvFormat::gptq8_act_order:
            return false;
        default:
            return true;
    }
}

// Where the rows are there in bfloat16, so are the panels: their tiles add up all columns, and
// those of integers leave for each scale. AVX-512 multiplies panels of float32 with other rows, and
// integers under a scale for 16 columns: they leave a tile after a quarter of the columns that it
// could hold, and were no quicker by tiles (nvfp4, q6_k).
GemmKernels gemm(GemvFormat format, const Quantization& rows) {
    GemmKernels kernels = avx512vnni_gemm(format, rows);
    if (!kernels.dequantize) return kernels;
    const bool takes_bf16 = kernels.rows == RowForm::bf16 || rows.bf16_for_all;
    if (rows.has_bf16 && takes_bf16 && may_be_rounded(format)) {
        // The others may be panels that only say where weights are.
        if (kernels.rows == RowForm::bf16) kernels = gemm_avx512bf16(format, true);
        if (kernels.rows == RowForm::integers) kernels.min_rows = min_rows_of_integers;
        kernels.round = panel_round(kernels);
        kernels.multiply = multiply_bf16_panels;
        kernels.multiply_tiles = multiply_bf16_tiles;
        kernels.rows = RowForm::bf16;
        kernels.scale_columns = 0;
        kernels.enter = enter_bf16;
        kernels.leave = leave;
        kernels.n_panels = bf16_panels;
        return kernels;
    }
    if (kernels.rows != RowForm::integers || kernels.scale_columns != scale_columns) return kernels;
    const TileKernel tiles = integer_tile_kernel(rows.parts);
    kernels.min_rows = min_panel_rows;
    kernels.multiply = tiles.multiply;
    kernels.enter = tiles.enter;
    kernels.leave = leave;
    return kernels;
}

}  // namespace

const GemvFamily gemv_amx = {avx512vnni_kernels, quantize_avx512vnni, gemm, true,
                             gemv_avx512bf16,    activate_avx512vnni, true, true};

}  // namespace moe::cpu
#endif
