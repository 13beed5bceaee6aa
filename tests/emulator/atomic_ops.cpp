// Implements atom and red. They are atomic across host threads, too, because several may share a
// launch.
#include <algorithm>
#include <bit>

#include "tests/emulator/access.hpp"

namespace emulator {
namespace {

enum class Operation : uint8_t { add, min, max, both, either, differ, exchange, compare, inc, dec };

template <class T>
T result_of(Operation operation, T old, T value, T with) {
    switch (operation) {
        case Operation::add:
            if constexpr (std::is_floating_point_v<T>)
                return old + value;
            else
                return static_cast<T>(uint64_t(old) + uint64_t(value));
        case Operation::min:
            return std::min(old, value);
        case Operation::max:
            return std::max(old, value);
        case Operation::exchange:
            return value;
        case Operation::compare:
            return old == value ? with : old;
        case Operation::inc:
            return old >= value ? T{0} : static_cast<T>(old + 1);
        case Operation::dec:
            return old == T{0} || old > value ? value : static_cast<T>(old - 1);
        default:
            break;
    }
    if constexpr (std::is_integral_v<T>) {
        if (operation == Operation::both) return old & value;
        if (operation == Operation::either) return old | value;
        return old ^ value;
    }
    return old;
}

template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
T update(std::byte* at, Operation operation, T value, T with, uint64_t& effects) {
    auto* word = reinterpret_cast<Bits<T>*>(at);
    Bits<T> old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    for (;;) {
        const T result = result_of(operation, std::bit_cast<T>(old), value, with);
        const auto bits = std::bit_cast<Bits<T>>(result);
        effects += bits != old;
        if (__atomic_compare_exchange_n(word, &old, bits, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return std::bit_cast<T>(old);
    }
}

// count is 1 if the result is used.
template <class T>
Step run_atomic(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, sizeof(T), addresses);
    const T *value = w.lanes<T>(in.b), *with = w.lanes<T>(in.c);
    T old[32] = {};
    for (int i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        old[i] = update(addresses.at[i], static_cast<Operation>(in.bytes), value[i], with[i],
                        w.run->effects);
    }
    if (in.count) w.store(in.d, old);
    w.budget -= 64;
    return Step::next;
}

Operation operation_in(const Statement& s) {
    constexpr std::pair<std::string_view, Operation> names[] = {
        {"add", Operation::add},       {"min", Operation::min},     {"max", Operation::max},
        {"and", Operation::both},      {"or", Operation::either},   {"xor", Operation::differ},
        {"exch", Operation::exchange}, {"cas", Operation::compare}, {"inc", Operation::inc},
        {"dec", Operation::dec}};
    for (const auto& [name, operation] : names)
        if (s.has(name)) return operation;
    throw UnknownForm{};
}

Handler atomic_of(Type type) {
    switch (type) {
        case Type::b32:
        case Type::u32:
            return run_atomic<uint32_t>;
        case Type::s32:
            return run_atomic<int32_t>;
        case Type::b64:
        case Type::u64:
            return run_atomic<uint64_t>;
        case Type::s64:
            return run_atomic<int64_t>;
        case Type::f32:
            return run_atomic<float>;
        case Type::f64:
            return run_atomic<double>;
        default:
            throw UnknownForm{};
    }
}

void decode_atomic(Builder& b, const Statement& s, bool has_result) {
    allow_modifiers(s, "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec",
                    "global", "shared", "shared::cta", "shared::cluster", "relaxed", "acquire",
                    "release", "acq_rel", "cta", "cluster", "gpu", "sys");
    const Type type = s.last_type();
    const unsigned bits = bits_of(type);
    const Operation operation = operation_in(s);
    const bool compares = operation == Operation::compare;
    size_t next = 0;
    Instruction& in = b.emit(atomic_of(type));
    in.space = space_of(s);
    in.bytes = static_cast<uint8_t>(operation);
    in.count = has_result;
    if (has_result) b.write(&Instruction::d, s.arguments.at(next++), bits);
    b.read_address(s.arguments.at(next++));
    b.read(&Instruction::b, s.arguments.at(next++), bits);
    if (compares) b.read(&Instruction::c, s.arguments.at(next++), bits);
    if (next != s.arguments.size()) throw UnknownForm{};
}

void decode_atom(Builder& b, const Statement& s) {
    decode_atomic(b, s, true);
}
void decode_red(Builder& b, const Statement& s) {
    if (s.has("async")) throw UnknownForm{};
    decode_atomic(b, s, false);
}

}  // namespace

std::vector<DecoderEntry> atomic_decoders() {
    return {{"atom", decode_atom}, {"red", decode_red}};
}

}  // namespace emulator
