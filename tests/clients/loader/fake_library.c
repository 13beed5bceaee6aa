/* Stands in for libmoe in the loader's tests: FAKE_ABI is the ABI version that it claims; it has no
 * other symbol. */
#include <stdint.h>

uint32_t moe_abi_version(void);

uint32_t moe_abi_version(void) {
    return FAKE_ABI;
}
