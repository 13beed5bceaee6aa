// Runs a warp: its instruction loop, and the divergence and reconvergence of its lanes. warp.hpp
// declares it.
#include "tests/emulator/warp.hpp"

#include <algorithm>
#include <cstdio>

#include "tests/emulator/builder.hpp"

namespace emulator {

void Warp::run_slice(int instructions) {
    budget = instructions;
    waiting = 0;
    regroup();
    const bool is_starved_slice = is_starved;
    is_starved = false;
    if (is_starved_slice) next_group = UINT32_MAX;
    while (active) {
        const Instruction& in = code[pc];
        mask = active & (predicate(in.guard) ^ in.guard_flip);
        if (mask) {
            const Step step = in.run(*this, in);
            ++done;
            if (step == Step::next) {
                ++pc;
            } else if (step == Step::blocked) {
                done -= stay == active;
                waiting |= stay;
                for (uint32_t i = 0; i < 32; ++i)
                    if (active >> i & 1) pcs[i] = pc + !(stay >> i & 1);
                regroup();
                if (--budget <= 0) break;
                continue;
            } else if (step == Step::yielded) {
                ++pc;
                budget = 0;
            }
        } else {
            ++pc;
            ++done;
        }
        if (pc >= next_group || --budget <= 0) {
            for (uint32_t i = 0; i < 32; ++i)
                if (active >> i & 1) pcs[i] = pc;
            if (budget <= 0) break;
            regroup();
        }
    }
    // A group that used up its budget may wait for a group further on.
    if (active && (active != live)) is_starved = !is_starved_slice;
}

// Selects the lanes with the lowest pc among those that can run. After a starved slice it selects
// the next ones once.
void Warp::regroup() {
    const uint32_t ready = live & ~waiting;
    active = 0;
    next_group = UINT32_MAX;
    if (!ready) return;
    uint32_t least = UINT32_MAX, after = UINT32_MAX;
    for (uint32_t i = 0; i < 32; ++i)
        if (ready >> i & 1) least = std::min(least, pcs[i]);
    for (uint32_t i = 0; i < 32; ++i)
        if ((ready >> i & 1) && pcs[i] != least) after = std::min(after, pcs[i]);
    if (is_starved && after != UINT32_MAX) std::swap(least, after);
    for (uint32_t i = 0; i < 32; ++i)
        if ((ready >> i & 1) && pcs[i] == least) active |= 1u << i;
    pc = least;
    next_group = after;
}

// Ends these lanes.
void Warp::leave(uint32_t lanes) {
    finish_copies(*this, lanes, nullptr, UINT64_MAX);
    live &= ~lanes;
    active &= ~lanes;
    block->cluster->leave(static_cast<uint32_t>(std::popcount(lanes)));
    ++run->effects;
    if (live) return;
    --block->live_warps;
    block->check_barriers();
}

namespace {

std::string text_of(const Dim3& d) {
    char text[48];
    std::snprintf(text, sizeof text, "(%u,%u,%u)", d.x, d.y, d.z);
    return text;
}

}  // namespace

void Warp::fault(int lane, const std::string& what) const {
    const uint32_t thread = index * 32 + static_cast<uint32_t>(lane);
    const Dim3& n = run->launch->block;
    const Dim3 at{thread % n.x, thread / n.x % n.y, thread / n.x / n.y};
    throw Fault(what + " in " + run->kernel->name + ", block " + text_of(block->index) +
                ", thread " + text_of(at) + ", PTX line " + std::to_string(code[pc].line));
}

std::string Warp::where() const {
    std::string text = "block " + text_of(block->index) + " warp " + std::to_string(index);
    uint32_t remaining = live;
    while (remaining) {
        const uint32_t group_pc = pcs[std::countr_zero(remaining)];
        uint32_t here = 0;
        for (uint32_t i = 0; i < 32; ++i)
            if ((remaining >> i & 1) && pcs[i] == group_pc) here |= 1u << i;
        remaining &= ~here;
        char hex[16];
        std::snprintf(hex, sizeof hex, "%08x", here);
        text += " lanes " + std::string(hex) + " at line " + std::to_string(code[group_pc].line);
    }
    return text;
}

bool gather_all(Warp& w) {
    if (w.mask == w.live) return true;
    uint32_t here = w.mask;
    for (uint32_t i = 0; i < 32; ++i)
        if ((w.waiting >> i & 1) && w.pcs[i] == w.pc) here |= 1u << i;
    if (here != w.live) {
        w.stay = w.mask;
        return false;
    }
    w.waiting &= ~here;
    w.active |= here;
    w.mask = here;
    return true;
}

Step synchronise(Warp& w, const Instruction& in, const uint32_t* members, SyncHandler op) {
    if (w.mask == all_lanes) {
        uint32_t differ = 0;
        for (int i = 0; i < 32; ++i) differ |= ~members[i];
        if (!differ) {
            op(w, in);
            return Step::next;
        }
    }
    const uint32_t arriving = w.mask;
    uint32_t here = arriving, blocked = 0;
    for (uint32_t i = 0; i < 32; ++i)
        if ((w.waiting >> i & 1) && w.pcs[i] == w.pc) here |= 1u << i;
    for (uint32_t remaining = arriving; remaining;) {
        const int lane = std::countr_zero(remaining);
        const uint32_t named = members[lane], needed = named & w.live;
        if (!(named >> lane & 1)) w.fault(lane, "a thread that its own member mask leaves out");
        uint32_t same = 0;
        for (uint32_t i = 0; i < 32; ++i)
            if ((here >> i & 1) && members[i] == named) same |= 1u << i;
        remaining &= ~same;
        if (needed & ~same) {
            blocked |= same & arriving;
            continue;
        }
        w.mask = needed;
        op(w, in);
        w.active |= needed;
        w.waiting &= ~needed;
    }
    if (!blocked) return Step::next;
    w.stay = blocked;
    return Step::blocked;
}

Step unknown_instruction(Warp& w, const Instruction& in) {
    const auto& text = w.run->kernel->texts[static_cast<size_t>(in.immediate)];
    w.fault(w.first_lane(), "unknown instruction '" + text + "'");
}

}  // namespace emulator
