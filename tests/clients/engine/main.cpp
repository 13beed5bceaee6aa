// An engine in the style of llama.cpp: its own allocator and threads, a GGUF file of half a
// gigabyte mapped and read in place, sixty layers on one workspace. usage: engine_client [folder
// for a temporary file of 540 MB; else $TMPDIR, else the current one]
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "engine/engine.hpp"

int main(int argc, char** argv) {
    using namespace clients;
    const char* folder = argc > 1 ? argv[1] : std::getenv("TMPDIR");
    std::thread([] {
    }).join();  // a sanitizer starts a thread of its own with the first: count from there
    every_byte_through_the_allocator();
    forward_allocates_nothing();
    threads_of_the_engine();
    model_from_a_mapped_file(folder ? folder : ".");
    std::puts("engine client: good");
    return 0;
}
