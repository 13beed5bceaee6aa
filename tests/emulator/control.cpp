// Implements bra, brx, ret, exit, call, trap, nanosleep and griddepcontrol. Fences and hints do
// nothing.
#include "tests/emulator/lanes.hpp"

namespace emulator {
namespace {

// The lanes of the group jump together, or the group diverges.
Step run_branch(Warp& w, const Instruction& in) {
    if (w.mask == w.active) {
        w.pc = in.target;
        return Step::jumped;
    }
    for (uint32_t i = 0; i < 32; ++i)
        if (w.active >> i & 1) w.pcs[i] = w.mask >> i & 1 ? in.target : w.pc + 1;
    w.regroup();
    return Step::jumped;
}

void decode_bra(Builder& b, const Statement& s) {
    allow_modifiers(s, "uni");
    b.emit(run_branch);
    b.branch_to(s.arguments.at(0).text);
}

// A jump by index becomes a branch for each label, guarded by a comparison.
Step run_indexed(Warp& w, const Instruction& in) {
    const auto* index = w.lanes<uint32_t>(in.a);
    uint32_t jumping = 0;
    for (uint32_t i = 0; i < 32; ++i)
        if ((w.mask >> i & 1) && index[i] == in.immediate) jumping |= 1u << i;
    if (!jumping) return Step::next;
    w.mask = jumping;
    return run_branch(w, in);
}

void decode_brx(Builder& b, const Statement& s) {
    allow_modifiers(s, "idx", "uni");
    int64_t n = 0;
    for (std::string_view label : b.targets_named(s.arguments.at(1).text)) {
        b.emit(run_indexed).immediate = n++;
        b.read(&Instruction::a, s.arguments[0], 32);
        b.branch_to(label);
        b.may_pass();
    }
    b.emit([](Warp& w, const Instruction&) -> Step {
        w.fault(w.first_lane(), "a jump whose index is beyond its labels");
    });
}

Step run_exit(Warp& w, const Instruction&) {
    const uint32_t others = w.active & ~w.mask;
    w.leave(w.mask);
    if (others) return Step::next;
    w.regroup();
    return Step::jumped;
}

void decode_ret(Builder& b, const Statement& s) {
    allow_modifiers(s, "uni");
    b.emit(b.is_in_function() && s.opcode[0] == "ret" ? run_branch : run_exit);
    b.leave();
}

Step run_nothing(Warp&, const Instruction&) {
    return Step::next;
}

void decode_nothing(Builder& b, const Statement&) {
    b.emit(run_nothing);
}

// Programmatic dependent launch.
Step let_next_begin(Warp& w, const Instruction&) {
    w.block->let_next_begin();
    return Step::yielded;
}

Step wait_for_earlier(Warp& w, const Instruction&) {
    if (!w.run->is_ahead) return Step::next;
    w.stay = w.mask;
    return Step::blocked;
}

void decode_griddepcontrol(Builder& b, const Statement& s) {
    allow_modifiers(s, "wait", "launch_dependents");
    b.emit(s.has("wait") ? wait_for_earlier : let_next_begin);
}

// The other warps run first.
void decode_nanosleep(Builder& b, const Statement&) {
    b.emit([](Warp&, const Instruction&) { return Step::yielded; });
}

void decode_trap(Builder& b, const Statement&) {
    b.emit([](Warp& w, const Instruction&) -> Step { w.fault(w.first_lane(), "trap"); });
}

void decode_call(Builder& b, const Statement& s) {
    b.call(s);
}

}  // namespace

std::vector<DecoderEntry> control_decoders() {
    return {{"bra", decode_bra},
            {"brx", decode_brx},
            {"ret", decode_ret},
            {"exit", decode_ret},
            {"call", decode_call},
            {"trap", decode_trap},
            {"brkpt", decode_trap},
            {"nanosleep", decode_nanosleep},
            {"fence", decode_nothing},
            {"membar", decode_nothing},
            {"setmaxnreg", decode_nothing},
            {"griddepcontrol", decode_griddepcontrol},
            {"prefetch", decode_nothing},
            {"prefetchu", decode_nothing},
            {"applypriority", decode_nothing},
            {"discard", decode_nothing}};
}

}  // namespace emulator
