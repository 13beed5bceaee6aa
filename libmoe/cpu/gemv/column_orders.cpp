// The orders of columns, made of where a column of 256 stands in each.
#include "libmoe/cpu/gemv/gemv.hpp"

namespace moe::cpu {
namespace {

constexpr int natural(int k) {
    return k;
}
constexpr int even_odd(int k) {
    return k / 128 * 128 + k % 2 * 64 + k % 128 / 2;
}
template <int group>
constexpr int halves(int k) {
    const int half = group / 2, in_group = k % group;
    return k / 128 * 128 + in_group / half * 64 + k % 128 / group * half + in_group % half;
}
// Eight columns c of the 32 columns 2 p + s: vector 2 s + c / 2, its eight bytes p + 4 (c % 2).
constexpr int nibble_rows(int k) {
    const int g = k / 32, c = k % 32 / 8;
    return 128 * (g % 2) + 64 * (c / 2) + 8 * (g / 2 + c % 2 * 4) + k % 8;
}
// Eight columns c of 16 columns t of half h: vector 2 (t / 4) + c, its eight bytes 2 (t % 4) + h.
constexpr int split_halves(int k) {
    const int h = k / 128, t = k % 128 / 16, c = k % 16 / 8;
    return 128 * (t / 4) + 64 * c + 8 * (t % 4 * 2 + h) + k % 8;
}
constexpr int two_bit_rows(int k) {
    return k % 128 / 32 * 64 + k / 128 * 32 + k % 32;
}

constexpr ColumnOrders make_orders() {
    ColumnOrders orders{};
    const auto set = [&orders](ColumnOrder order, int (*place_of)(int)) {
        for (int k = 0; k < quantized_step; ++k)
            orders.column[static_cast<int>(order)][place_of(k)] = static_cast<uint8_t>(k);
    };
    set(ColumnOrder::natural, natural);
    set(ColumnOrder::halves_of_32, halves<32>);
    set(ColumnOrder::halves_of_16, halves<16>);
    set(ColumnOrder::even_odd, even_odd);
    set(ColumnOrder::nibble_rows, nibble_rows);
    set(ColumnOrder::split_halves, split_halves);
    set(ColumnOrder::two_bit_rows, two_bit_rows);
    return orders;
}

}  // namespace

constinit const ColumnOrders column_orders = make_orders();

}  // namespace moe::cpu
