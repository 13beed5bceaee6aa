// Register assignment. PTX has a register for every value, tens of thousands of them; a warp gets
// memory only for those that are live at once.
// Input: instructions with register references and their control flow. Output: operand offsets.
//   1. find basic blocks and the registers that several blocks use
//   2. find the live registers at the bounds of each block
//   3. extend each live range from the first to the last instruction that may need the value, in
//      text order
//   4. assign offsets by a linear scan and patch the operands
#include <algorithm>
#include <array>
#include <queue>

#include "tests/emulator/builder.hpp"

namespace emulator {
namespace {

constexpr uint32_t none = UINT32_MAX;

bool has_bit(const std::vector<uint64_t>& set, uint32_t i) {
    return set[i / 64] >> i % 64 & 1;
}
void set_bit(std::vector<uint64_t>& set, uint32_t i) {
    set[i / 64] |= uint64_t{1} << i % 64;
}

int class_of(unsigned bits) {
    return bits == 1 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
}
constexpr std::array<uint32_t, 4> class_bytes = {4, 64, 128, 256};

uint32_t* operand_of(Kernel& kernel, const Reference& reference) {
    Instruction& in = kernel.code[reference.instruction];
    switch (reference.field) {
        case 0:
            return &in.d;
        case 1:
            return &in.a;
        case 2:
            return &in.b;
        case 3:
            return &in.c;
        case 4:
            return &in.e;
        case 5:
            return &in.f;
        case 6:
            return &in.guard;
        default:
            return &kernel.lists[reference.field - 16];
    }
}

}  // namespace

void RegisterAssignment::run() {
    find_blocks();
    find_shared();
    find_live();
    extend_ranges();
    assign_offsets();
    patch();
}

void RegisterAssignment::find_blocks() {
    const auto n = static_cast<uint32_t>(b_.kernel_.code.size());
    std::vector<bool> starts(n + 1, false);
    starts[0] = true;
    for (auto& [at, flow] : b_.flows_) {
        for (uint32_t& target : flow.targets) {
            target = std::min(target, n - 1);
            starts[target] = true;
        }
        if (flow.targets.size()) b_.kernel_.code[at].target = flow.targets[0];
        starts[at + 1] = true;
    }
    block_of_.resize(n);
    for (uint32_t i = 0; i < n; ++i) {
        if (starts[i]) starts_.push_back(i);
        block_of_[i] = static_cast<uint32_t>(starts_.size() - 1);
    }
    after_.resize(starts_.size());
    starts_.push_back(n);
    for (uint32_t block = 0; block + 1 < starts_.size(); ++block) {
        const auto flow = b_.flows_.find(starts_[block + 1] - 1);
        const bool is_plain = flow == b_.flows_.end();
        if ((is_plain || flow->second.falls_through) && starts_[block + 1] < n)
            after_[block].push_back(block + 1);
        if (!is_plain)
            for (uint32_t target : flow->second.targets) after_[block].push_back(block_of_[target]);
    }
}

// Registers that one block writes before it reads them need no analysis.
void RegisterAssignment::find_shared() {
    std::vector<uint32_t> block(b_.registers_.size(), none);
    shared_index_.assign(b_.registers_.size(), none);
    ranges_.resize(b_.registers_.size());
    const auto mark_shared = [&](uint32_t reg) {
        if (shared_index_[reg] != none) return;
        shared_index_[reg] = static_cast<uint32_t>(shared_registers_.size());
        shared_registers_.push_back(reg);
    };
    for (const Reference& r : b_.references_) {
        Range& range = ranges_[r.reg];
        range.begin = std::min(range.begin, r.instruction);
        range.end = std::max(range.end, r.instruction);
        const uint32_t here = block_of_[r.instruction];
        if (block[r.reg] == none) {
            block[r.reg] = here;
            if (r.is_read) mark_shared(r.reg);
        } else if (block[r.reg] != here) {
            mark_shared(r.reg);
        }
    }
}

void RegisterAssignment::find_live() {
    const size_t n_blocks = after_.size(), words = shared_registers_.size() / 64 + 1;
    const std::vector<uint64_t> empty(words, 0);
    std::vector<std::vector<uint64_t>> written(n_blocks, empty);
    live_in_.assign(n_blocks, empty);
    live_out_.assign(n_blocks, empty);
    // Reads of an instruction precede its writes, in any order of its references.
    const auto& references = b_.references_;
    for (size_t i = 0; i < references.size();) {
        size_t end = i;
        while (end < references.size() && references[end].instruction == references[i].instruction)
            ++end;
        const uint32_t block = block_of_[references[i].instruction];
        for (size_t j = i; j < end; ++j) {
            const uint32_t index = shared_index_[references[j].reg];
            if (index != none && references[j].is_read && !has_bit(written[block], index))
                set_bit(live_in_[block], index);
        }
        for (; i < end; ++i) {
            const uint32_t index = shared_index_[references[i].reg];
            if (index != none && references[i].is_written) set_bit(written[block], index);
        }
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t block = n_blocks; block-- > 0;) {
            auto& out = live_out_[block];
            for (uint32_t after : after_[block])
                for (size_t w = 0; w < words; ++w) out[w] |= live_in_[after][w];
            for (size_t w = 0; w < words; ++w) {
                const uint64_t in = live_in_[block][w] | (out[w] & ~written[block][w]);
                changed |= in != live_in_[block][w];
                live_in_[block][w] = in;
            }
        }
    }
}

void RegisterAssignment::extend_ranges() {
    for (size_t block = 0; block < after_.size(); ++block) {
        for (uint32_t i = 0; i < shared_registers_.size(); ++i) {
            Range& range = ranges_[shared_registers_[i]];
            if (has_bit(live_in_[block], i)) {
                range.begin = std::min(range.begin, starts_[block]);
                range.end = std::max(range.end, starts_[block]);
            }
            if (has_bit(live_out_[block], i)) {
                range.begin = std::min(range.begin, starts_[block + 1] - 1);
                range.end = std::max(range.end, starts_[block + 1] - 1);
            }
        }
    }
}

void RegisterAssignment::assign_offsets() {
    std::vector<uint32_t> order;
    for (uint32_t reg = 0; reg < ranges_.size(); ++reg)
        if (ranges_[reg].begin != none) order.push_back(reg);
    std::sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) {
        return std::pair(ranges_[x].begin, x) < std::pair(ranges_[y].begin, y);
    });
    using Ending = std::pair<uint32_t, uint32_t>;  // last instruction, register
    std::array<std::priority_queue<Ending, std::vector<Ending>, std::greater<>>, 4> alive;
    std::array<std::vector<uint32_t>, 4> free;
    std::array<uint32_t, 4> used{};
    offsets_.assign(ranges_.size(), 0);
    for (uint32_t reg : order) {
        const int c = class_of(b_.registers_[reg]);
        while (!alive[c].empty() && alive[c].top().first < ranges_[reg].begin) {
            free[c].push_back(offsets_[alive[c].top().second]);
            alive[c].pop();
        }
        if (free[c].empty()) free[c].push_back(used[c]++);
        offsets_[reg] = free[c].back();
        free[c].pop_back();
        alive[c].emplace(ranges_[reg].end, reg);
    }
    std::array<uint32_t, 4> base{};
    uint32_t total = 0;
    for (int c = 0; c < 4; ++c) {
        base[c] = total;
        total += (used[c] * class_bytes[c] + 63) / 64 * 64;
    }
    b_.kernel_.register_bytes = total;
    for (uint32_t reg : order) {
        const int c = class_of(b_.registers_[reg]);
        offsets_[reg] = base[c] + offsets_[reg] * class_bytes[c];
    }
    for (uint32_t i = 0; i < shared_registers_.size(); ++i) {
        const uint32_t reg = shared_registers_[i];
        if (has_bit(live_in_[0], i))
            b_.kernel_.unset.emplace_back(offsets_[reg], class_bytes[class_of(b_.registers_[reg])]);
    }
}

void RegisterAssignment::patch() {
    for (const Reference& reference : b_.references_)
        *operand_of(b_.kernel_, reference) = offsets_[reference.reg];
}

}  // namespace emulator
