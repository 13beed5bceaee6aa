/* dl_find_object.c - _dl_find_object for the unwinder inside libmoe.so and the command moe.
 *
 * libgcc_eh.a asks it where the unwind table of an address is. libc has had it since 2.35, and this
 * is the only function that a build on Debian 12 needs of a libc newer than 2.34. Defined here,
 * over dl_iterate_phdr, it is hidden and serves nobody else; an exception then takes the way that
 * it took before 2.35. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#if defined(DLFO_STRUCT_HAS_EH_DBASE) && !DLFO_STRUCT_HAS_EH_DBASE && !DLFO_STRUCT_HAS_EH_COUNT

typedef struct search {
    ElfW(Addr) address;
    struct dl_find_object* result;
} search;

static int holds_address(const struct dl_phdr_info* object, const ElfW(Phdr) * segment,
                         ElfW(Addr) address) {
    return segment->p_type == PT_LOAD &&
           address - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz;
}

/* 1, which ends the iteration, when the object holds the address and has a table. */
static int find_in_object(struct dl_phdr_info* object, size_t size, void* user_data) {
    search* wanted = user_data;
    const ElfW(Phdr)* code = NULL, *table = NULL;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr)* segment = &object->dlpi_phdr[i];
        if (holds_address(object, segment, wanted->address)) code = segment;
        if (segment->p_type == DLFO_EH_SEGMENT_TYPE) table = segment;
    }
    if (!code || !table) return 0;
    wanted->result->dlfo_map_start = (void*)(object->dlpi_addr + code->p_vaddr);
    wanted->result->dlfo_map_end = (void*)(object->dlpi_addr + code->p_vaddr + code->p_memsz);
    wanted->result->dlfo_eh_frame = (void*)(object->dlpi_addr + table->p_vaddr);
    return 1;
}

__attribute__((visibility("hidden"))) int _dl_find_object(void* address,
                                                          struct dl_find_object* result) {
    search wanted = {(ElfW(Addr))address, result};
    memset(result, 0, sizeof *result);
    return dl_iterate_phdr(find_in_object, &wanted) == 1 ? 0 : -1;
}

#else
typedef int not_needed_here;
#endif
